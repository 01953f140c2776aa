//! Factors on constants: the parts of a machine that a calibration measures, and how CPU ranks share one.

use super::constants::{ConstantRole, ROLES};
use super::setup::Setup;
use crate::finding::{Finding, clip, nearest_names};
use crate::plan::Plan;
use crate::settings::Precision;
use crate::wire::Calibration;

/// A part of a machine, and the constants that its factor multiplies.
#[derive(Debug, Clone, Copy)]
pub struct MachinePart {
    /// Name in a calibration.
    pub name: &'static str,
    /// What it is.
    pub meaning: &'static str,
    /// The constants.
    roles: &'static [ConstantRole],
    /// Standard deviation of the factor's logarithm before anything is measured, for a device whose constants were
    /// fitted to published steps.
    pub width: f64,
}

/// The parts.
pub const PARTS: [MachinePart; 13] = [
    MachinePart {
        name: "compute",
        meaning: "rate of matrix products and, beside its own factor, of attention",
        roles: &[ConstantRole::Clock],
        width: 0.2,
    },
    MachinePart {
        name: "attention",
        meaning: "rate of attention and scans over that of matrix products",
        roles: &[ConstantRole::Attention, ConstantRole::Bmm, ConstantRole::Scan],
        width: 0.15,
    },
    MachinePart {
        name: "attention_blocks",
        meaning: "time to start a block of attention's backward on a CPU",
        roles: &[ConstantRole::HostBlock],
        width: 0.2,
    },
    MachinePart {
        name: "memory",
        meaning: "rate at which everything streams through memory",
        roles: &[ConstantRole::MemoryShare],
        width: 0.2,
    },
    MachinePart {
        name: "operations",
        meaning: "memory traffic of norms, rotation, activations and loss",
        roles: &[ConstantRole::Traffic],
        width: 0.1,
    },
    MachinePart {
        name: "host",
        meaning: "time to launch a layer's mixer and dense part, and the output layer",
        roles: &[ConstantRole::HostLayer, ConstantRole::HostHead],
        width: 0.3,
    },
    MachinePart {
        name: "experts",
        meaning: "time to launch a layer's experts, whatever their number",
        roles: &[ConstantRole::HostMoe, ConstantRole::HostMoeFlex],
        width: 0.3,
    },
    MachinePart {
        name: "expert",
        meaning: "time to launch one more expert",
        roles: &[ConstantRole::HostExpert],
        width: 0.3,
    },
    MachinePart {
        name: "sorting",
        meaning: "memory traffic of sorting tokens",
        roles: &[ConstantRole::MoeTraffic],
        width: 0.2,
    },
    MachinePart {
        name: "tensor",
        meaning: "time of the optimizer to launch what it does with a tensor",
        roles: &[ConstantRole::HostTensor],
        width: 0.2,
    },
    MachinePart {
        name: "links",
        meaning: "rate of links between ranks",
        roles: &[ConstantRole::NvlinkShare, ConstantRole::NicShare],
        width: 0.2,
    },
    MachinePart {
        name: "latency",
        meaning: "time of a collective's or send's steps beside its bytes",
        roles: &[
            ConstantRole::StepIn,
            ConstantRole::StepOut,
            ConstantRole::Launch,
            ConstantRole::BucketStep,
            ConstantRole::P2pLatency,
        ],
        width: 0.3,
    },
    MachinePart {
        name: "step",
        meaning: "time of a step outside the model",
        roles: &[ConstantRole::Fixed],
        width: 0.2,
    },
];

/// Factors outside of these are no machine.
const RANGE: [f64; 2] = [1e-6, 1e6];

impl Setup {
    /// Multiplies the constants of each part, in the order of [`PARTS`].
    pub fn multiply(&mut self, factors: &[f64; PARTS.len()]) {
        for (part, factor) in PARTS.iter().zip(factors) {
            for &role in part.roles {
                self.multiply_role(role, *factor);
            }
        }
    }

    fn multiply_role(&mut self, role: ConstantRole, factor: f64) {
        if let Some(slot) = self.hardware.factors.get_mut(role as usize) {
            *slot *= factor;
        }
    }

    /// Lets `ranks` CPU processes share a node of `cores` cores: rates are of the node, and each rank has its share;
    /// what one thread does takes longer where ranks outnumber cores. Does nothing with 0 cores.
    pub(crate) fn share_host(&mut self, ranks: u64, cores: u64) {
        if cores == 0 || ranks == 0 {
            return;
        }
        let ranks = ranks as f64;
        let waiting = (ranks / cores as f64).max(1.0);
        for role in [ConstantRole::Clock, ConstantRole::MemoryShare, ConstantRole::NvlinkShare] {
            self.multiply_role(role, 1.0 / ranks);
        }
        // Threads of a node share blocks of attention as they share rates.
        self.multiply_role(ConstantRole::HostBlock, ranks);
        let of_one_thread = [
            ConstantRole::HostLayer,
            ConstantRole::HostHead,
            ConstantRole::HostMoe,
            ConstantRole::HostMoeFlex,
            ConstantRole::HostExpert,
            ConstantRole::HostTensor,
            ConstantRole::Fixed,
            ConstantRole::StepIn,
            ConstantRole::Launch,
            ConstantRole::BucketStep,
            ConstantRole::P2pLatency,
        ];
        for role in of_one_thread {
            self.multiply_role(role, waiting);
        }
        // A stage that waits leaves its share to the others: cores idle only while fewer stages than cores have work,
        // as the pipeline fills and drains.
        let (cores, stages) = (cores as f64, self.pipe.stages);
        if stages > cores {
            self.idle_share = cores * (cores - 1.0) / (stages * (stages - 1.0));
        }
    }
}

/// No factors.
pub(super) const NO_FACTORS: [f64; ROLES] = [1.0; ROLES];

/// The calibration of a plan, where it holds for it; else why it does not.
pub fn calibration(plan: &Plan) -> Result<Option<&Calibration>, String> {
    let Some(calibration) = plan.file.software.calibration.as_deref() else { return Ok(None) };
    let gpu = plan.cluster.gpu.id;
    if calibration.gpu != gpu {
        return Err(format!("it was measured on {}, and the plan is for {gpu}", clip(&calibration.gpu)));
    }
    let profile = plan.software.profile.as_deref().unwrap_or_else(|| super::default_profile(plan));
    if calibration.profile != profile {
        return Err(format!(
            "it is of software profile {}, and the plan's is {profile}",
            clip(&calibration.profile)
        ));
    }
    let dtype = plan.file.training.dtype.unwrap_or(Precision::Bf16);
    if calibration.dtype != dtype {
        return Err(format!(
            "it was measured in {}, and the plan trains in {}",
            calibration.dtype.name(),
            dtype.name()
        ));
    }
    Ok(Some(calibration))
}

/// Puts a plan's calibration into its numbers.
pub(super) fn calibrate(setup: &mut Setup, plan: &Plan) {
    let Ok(Some(calibration)) = calibration(plan) else { return };
    let factors = PARTS.map(|part| calibration.factors.get(part.name).copied().unwrap_or(1.0));
    setup.multiply(&factors);
    if plan.cluster.gpu.speeds.is_none() {
        setup.share_host(plan.world_size().min(plan.cluster.gpus_per_node), calibration.cores);
    }
}

/// What is wrong with the calibration in a plan, and whether it is used.
pub(super) fn check(plan: &Plan) -> Vec<Finding> {
    const FIELD: &str = "software.calibration";
    let Some(given) = plan.file.software.calibration.as_deref() else { return Vec::new() };
    let rule = "calibration profile, version 1";
    let mut findings = Vec::new();
    let names: Vec<&str> = PARTS.iter().map(|part| part.name).collect();
    for (name, &factor) in &given.factors {
        if !names.contains(&name.as_str()) {
            let message =
                format!("`{}` is not a part of a machine; known are {}", clip(name), names.join(", "));
            let nearest = nearest_names(name, names.iter().copied(), 3);
            findings.push(
                Finding::error(&format!("{FIELD}.factors"), clip(name), message).rule(rule).nearest(nearest),
            );
        } else if !(RANGE[0]..=RANGE[1]).contains(&factor) {
            let message =
                format!("the factor of {name} is {factor}; it must be between {} and {}", RANGE[0], RANGE[1]);
            findings.push(Finding::error(&format!("{FIELD}.factors.{name}"), factor, message).rule(rule));
        }
    }
    if !(0.0..=3.0).contains(&given.spread) {
        let message = format!("the spread is {}; it must be between 0 and 3", given.spread);
        findings.push(Finding::error(&format!("{FIELD}.spread"), given.spread, message).rule(rule));
    }
    if given.cores > 1 << 20 {
        let message = format!("{} cores are given; at most 1,048,576 are known", given.cores);
        findings.push(Finding::error(&format!("{FIELD}.cores"), given.cores, message).rule(rule));
    }
    if findings.is_empty() {
        findings.push(
            match calibration(plan) {
                Err(why) => {
                    let message = format!("the calibration `{}` is not used: {why}", clip(&given.name));
                    Finding::warning(FIELD, clip(&given.name), message)
                }
                Ok(_) => {
                    let factors: Vec<String> =
                        given.factors.iter().map(|(name, factor)| format!("{name} x {factor:.3}")).collect();
                    let message = format!(
                        "seconds are calibrated by `{}`: {}; the likely range is that of its held-out steps",
                        clip(&given.name),
                        factors.join(", ")
                    );
                    Finding::info(FIELD, clip(&given.name), message)
                }
            }
            .rule(rule),
        );
    }
    let missing: Vec<&str> = names.into_iter().filter(|name| !given.factors.contains_key(*name)).collect();
    if !missing.is_empty() && plan.cluster.gpu.speeds.is_none() && matches!(calibration(plan), Ok(Some(_))) {
        let message = format!(
            "the calibration `{}` has no factor for {}: it was fitted to the constants of an older version; measure again",
            clip(&given.name),
            missing.join(", ")
        );
        findings.push(Finding::warning(FIELD, clip(&given.name), message).rule(rule));
    }
    findings
}
