//! Which layouts a framework accepts: broken rules as findings with the value, the rule and the nearest values that
//! satisfy it.

use std::borrow::Cow;

use super::{Layout, Split};
use serde_json::Value;

use super::rules::{Broken, Violation, broken};
use crate::cluster::Gpu;
use crate::finding::{Finding, divisors, has_error, nearest_values};
use crate::model::Architecture;
use crate::plan::{Plan, Software, Training, rules};
use crate::runtime::Runtime;
use crate::settings::CpKind;
use crate::wire::PlanFile;

/// What the rules look at. Small and cheap to change, so that nearest values are found by trying.
#[derive(Debug, Clone)]
pub struct Shape<'a> {
    /// The model.
    pub architecture: &'a Architecture,
    /// The framework.
    pub runtime: Runtime,
    /// The layout; `dp` and `edp` are ignored.
    pub layout: Cow<'a, Layout>,
    /// Ranks in all.
    pub world: u64,
    /// What each rank has.
    pub gpu: &'static Gpu,
    /// Settings of training, but for the three sizes that follow.
    pub training: &'a Training,
    /// What is installed.
    pub software: &'a Software,
    /// Tokens of a sequence.
    pub seq_len: u64,
    /// Sequences of a micro batch.
    pub micro_batch_size: u64,
    /// Sequences of a step.
    pub global_batch_size: u64,
}

/// Most chunks of a stage that a plan takes.
const MAX_CHUNKS: u64 = 4096;

impl<'a> Shape<'a> {
    /// The shape of a plan, which may break rules.
    pub fn of(plan: &'a Plan) -> Shape<'a> {
        let training = &plan.training;
        Shape {
            architecture: &plan.model,
            runtime: plan.runtime,
            layout: Cow::Borrowed(&plan.layout),
            world: plan.world_size(),
            gpu: plan.cluster.gpu,
            training,
            software: &plan.software,
            seq_len: training.seq_len,
            micro_batch_size: training.micro_batch_size,
            global_batch_size: training.global_batch_size,
        }
    }

    fn set(&mut self, field: &str, value: u64) {
        let layout = self.layout.to_mut();
        match field {
            "layout.tp" => layout.tp = value,
            "layout.cp" => layout.cp = value,
            "layout.pp" => {
                if layout.microbatch_group_size == layout.pp {
                    layout.microbatch_group_size = value;
                }
                layout.pp = value;
            }
            "layout.vpp" => layout.vpp = value,
            "layout.ep" => layout.ep = value,
            "layout.etp" => layout.etp = value,
            "layout.dp_replicate" => layout.dp_replicate = value,
            "layout.microbatch_group_size" => layout.microbatch_group_size = value,
            "training.seq_len" => self.seq_len = value,
            "training.micro_batch_size" => self.micro_batch_size = value,
            "training.global_batch_size" => self.global_batch_size = value,
            _ => {}
        }
        if matches!(field, "layout.pp" | "layout.vpp") {
            self.split();
        }
    }

    /// Splits the layers anew over the stages that there are now, unless somebody said how.
    pub(super) fn split(&mut self) {
        if self.layout.splitter.is_some() {
            Split::usual(&self.layout, self.architecture).put(self.layout.to_mut());
        }
    }

    fn get(&self, field: &str) -> Option<u64> {
        let layout = &self.layout;
        Some(match field {
            "layout.tp" => layout.tp,
            "layout.cp" => layout.cp,
            "layout.pp" => layout.pp,
            "layout.vpp" => layout.vpp,
            "layout.ep" => layout.ep,
            "layout.etp" => layout.etp,
            "layout.dp_replicate" => layout.dp_replicate,
            "layout.microbatch_group_size" => layout.microbatch_group_size,
            "training.seq_len" => self.seq_len,
            "training.micro_batch_size" => self.micro_batch_size,
            "training.global_batch_size" => self.global_batch_size,
            _ => return None,
        })
    }

    /// Values worth trying for a field.
    pub(crate) fn candidates(&self, field: &str) -> Vec<u64> {
        let step = |unit: u64, around: u64| -> Vec<u64> {
            let unit = unit.max(1);
            let at = around / unit;
            (at.saturating_sub(4)..=at.saturating_add(4))
                .filter_map(|n| n.checked_mul(unit))
                .filter(|&n| n > 0)
                .collect()
        };
        match field {
            "layout.tp" | "layout.cp" | "layout.pp" => divisors(self.world),
            "layout.ep" => self.architecture.moe.as_ref().map_or(vec![1], |moe| divisors(moe.experts)),
            "layout.etp" => self.architecture.moe.as_ref().map_or(vec![self.layout.tp], |moe| {
                divisors(moe.ffn_hidden_size)
                    .into_iter()
                    .filter(|size| self.world.is_multiple_of(*size))
                    .collect()
            }),
            "layout.vpp" if self.layout.splitter.is_some() => {
                let most = self.architecture.num_layers.saturating_add(2) / self.layout.pp.max(1);
                (1..=most.clamp(1, MAX_CHUNKS)).collect()
            }
            "layout.vpp" => divisors(self.architecture.num_layers),
            "layout.dp_replicate" => divisors(self.dp().unwrap_or(1)),
            "layout.microbatch_group_size" => (self.layout.pp
                ..=self.microbatches().unwrap_or(0).min(self.layout.pp.saturating_add(4096)))
                .collect(),
            "training.seq_len" => {
                let most = self.architecture.learned_positions.unwrap_or(self.seq_len);
                step(2 * self.layout.cp, self.seq_len.min(most))
            }
            "training.micro_batch_size" => divisors(self.global_batch_size),
            "training.global_batch_size" => {
                let unit = self.dp().and_then(|dp| dp.checked_mul(self.micro_batch_size)).unwrap_or(1);
                step(unit, self.global_batch_size)
            }
            _ => Vec::new(),
        }
    }

    /// Data parallel, where the axes divide the world.
    pub(crate) fn dp(&self) -> Option<u64> {
        let model = self.layout.tp.checked_mul(self.layout.cp)?.checked_mul(self.layout.pp)?;
        (model > 0 && self.world.is_multiple_of(model)).then(|| self.world / model)
    }

    /// Data parallel of experts, where their axes divide the world.
    pub(crate) fn edp(&self) -> Option<u64> {
        let model = self.layout.etp.checked_mul(self.layout.ep)?.checked_mul(self.layout.pp)?;
        (model > 0 && self.world.is_multiple_of(model)).then(|| self.world / model)
    }

    pub(crate) fn microbatches(&self) -> Option<u64> {
        let unit = self.micro_batch_size.checked_mul(self.dp()?)?;
        (unit > 0 && self.global_batch_size.is_multiple_of(unit)).then(|| self.global_batch_size / unit)
    }
}

/// All rules against one shape. Errors carry the nearest values of their field that satisfy every rule on it.
pub fn check(shape: &Shape<'_>) -> Vec<Finding> {
    let mut all = broken(shape);
    all.extend(broken_alone(shape));
    all.into_iter()
        .map(|violation| {
            let finding =
                Finding::error(violation.field, violation.value, violation.message).rule(violation.rule);
            if let Some(values) = violation.nearest {
                return finding.nearest(values);
            }
            match violation.field {
                "layout.sp" => finding.nearest([shape.layout.tp > 1]),
                "layout.order" => finding.nearest(["tp-cp-ep-dp-pp"]),
                "layout.schedule" => {
                    finding.nearest([if shape.layout.vpp > 1 { "interleaved" } else { "1f1b" }])
                }
                "layout.fsdp.reshard_after_forward" => {
                    finding.nearest(super::mesh_rules::reshard_sizes(shape))
                }
                "layout.fsdp.double_buffer" => finding.nearest([true]),
                "layout.fsdp.init_meta" | "layout.fsdp.nccl_ub" => finding.nearest([false]),
                "layout.fsdp.outer_strategy" => finding.nearest(["no_shard"]),
                "layout.cp_kind" => finding.nearest(nearest_kinds(shape)),
                field if shape.get(field).is_some() => finding.nearest(nearest(shape, field)),
                field => finding.nearest(nearest_settings(shape, field)),
            }
        })
        .collect()
}

fn nearest(shape: &Shape<'_>, field: &str) -> Vec<u64> {
    let Some(value) = shape.get(field) else { return Vec::new() };
    let accepted = |&candidate: &u64| {
        let mut tried = shape.clone();
        tried.set(field, candidate);
        // Sequence parallel follows tp unless it was asked for, so it is not held against a candidate.
        let layout = tried.layout.to_mut();
        layout.sp = layout.sp && layout.tp > 1;
        broken(&tried).iter().all(|violation| violation.field != field)
    };
    nearest_values(value, shape.candidates(field).into_iter().filter(accepted), 2)
}

/// Rules that hold or not whatever the layout is.
fn broken_alone(shape: &Shape<'_>) -> Vec<Violation> {
    let mut broken = Broken::default();
    rules::alone(shape, &mut broken);
    broken.into_violations()
}

/// The first of them that is broken, with its field.
pub(crate) fn first_broken_alone(shape: &Shape<'_>) -> Option<(&'static str, &'static str)> {
    let mut broken = Broken::first_only();
    rules::alone(shape, &mut broken);
    broken.first()
}

/// Kinds of context parallelism that break no rule of theirs.
fn nearest_kinds(shape: &Shape<'_>) -> Vec<&'static str> {
    let accepted = |kind: &CpKind| {
        let mut tried = shape.clone();
        tried.layout.to_mut().cp_kind = *kind;
        broken(&tried).iter().all(|violation| violation.field != "layout.cp_kind")
    };
    CpKind::ALL.into_iter().filter(accepted).map(CpKind::name).take(2).collect()
}

/// Values of a training setting that break no rule of its field.
fn nearest_settings(shape: &Shape<'_>, field: &str) -> Vec<Value> {
    let accepted = |(value, training): (Value, Training)| {
        let tried = Shape { training: &training, ..shape.clone() };
        let mut broken = broken(&tried).into_iter().chain(broken_alone(&tried));
        broken.all(|violation| violation.field != field).then_some(value)
    };
    rules::alternatives(shape, field).into_iter().filter_map(accepted).take(2).collect()
}

/// Values of a number field that leave the plan without an error, rising; when none do (something else is wrong),
/// those that leave no error at the field itself. For steppers.
pub fn valid_values(file: &PlanFile, field: &str) -> Vec<u64> {
    let Some(plan) = Plan::resolve(file).plan_or_shape() else { return Vec::new() };
    let mut candidates = match field {
        "cluster.nodes" => around(plan.cluster.nodes),
        "cluster.gpus_per_node" => around(plan.cluster.gpus_per_node),
        _ => Shape::of(&plan).candidates(field),
    };
    candidates.sort_unstable();
    candidates.dedup();
    let tried = |value: u64| -> Vec<Finding> {
        let mut changed = file.clone();
        if set_field(&mut changed, field, value) { Plan::resolve(&changed).findings } else { Vec::new() }
    };
    let (mut valid, mut local) = (Vec::new(), Vec::new());
    for value in candidates {
        let findings = tried(value);
        if !has_error(&findings) {
            valid.push(value);
        } else if !findings.iter().any(|finding| finding.field == field) {
            local.push(value);
        }
    }
    if valid.is_empty() { local } else { valid }
}

/// Sizes of a cluster worth a step: the next ones, and those that are powers of two away, one of which a layout divides.
fn around(size: u64) -> Vec<u64> {
    let near = size.saturating_sub(4)..=size.saturating_add(4);
    let halves = (1..=3).map(|power| size >> power);
    let doubles = (1..=3).filter_map(|power| size.checked_mul(1 << power));
    near.chain(halves).chain(doubles).filter(|&size| size > 0).collect()
}

fn set_field(file: &mut PlanFile, field: &str, value: u64) -> bool {
    let slot = match field {
        "cluster.nodes" => &mut file.cluster.nodes,
        "cluster.gpus_per_node" => &mut file.cluster.gpus_per_node,
        "layout.tp" => &mut file.layout.tp,
        "layout.cp" => &mut file.layout.cp,
        "layout.pp" => &mut file.layout.pp,
        "layout.vpp" => &mut file.layout.vpp,
        "layout.ep" => &mut file.layout.ep,
        "layout.etp" => &mut file.layout.etp,
        "layout.dp_replicate" => &mut file.layout.dp_replicate,
        "layout.microbatch_group_size" => &mut file.layout.microbatch_group_size,
        "training.seq_len" => &mut file.training.seq_len,
        "training.micro_batch_size" => &mut file.training.micro_batch_size,
        "training.global_batch_size" => &mut file.training.global_batch_size,
        _ => return false,
    };
    *slot = Some(value);
    true
}
