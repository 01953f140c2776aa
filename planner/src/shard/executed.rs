//! What the worker executes of a plan: the plan itself where it knows its runtime, else the same layout by its own rules.

use crate::fill;
use crate::layout::Reshard;
use crate::plan::Plan;
use crate::runtime::Runtime;
use crate::settings::OptimizerKind;
use crate::shard::fsdp::{check_carried_out, computed_with};
use crate::shard::{check_units, is_wrapped};
use crate::software::Product;
use crate::units::Dtype;
use crate::wire::PlanFile;

/// As what the worker carries a plan out.
enum CarriedOut {
    /// By its own rules, which are the plan's.
    AsItStands,
    /// As the plan's runtime: its name, and what of it is the runtime's.
    As([&'static str; 2]),
    /// By its own rules, and why not as the plan's runtime, where it could.
    ByOwnRules(Option<([&'static str; 2], String)>),
}

const FSDP2: [&str; 2] = ["FSDP2", "shards, units and reductions are torch's, operators its own"];
const MEGATRON_FSDP: [&str; 2] = [
    "Megatron-FSDP",
    "units, their flat buffers and what of them each rank keeps are Megatron-FSDP's, operators and how far ahead it gathers its own",
];

impl Plan {
    /// The plan that the worker executes: this one where it knows its runtime, else the same layout with runtime native.
    pub fn executed(&self) -> PlanFile {
        if !matches!(self.carried_out(), CarriedOut::As(_)) {
            return self.native();
        }
        let mut file = self.file.clone();
        file.software.framework = Some(Product::Worker.name().to_owned());
        fill::take_back(&mut file.training, &self.software.set);
        if self.cluster.gpu.is_cpu() {
            // Everything is on the host already.
            file.layout.fsdp.offload = Some("none".to_owned());
        }
        file
    }

    /// As what the worker carries it out: the one place of this room that chooses by runtime.
    fn carried_out(&self) -> CarriedOut {
        let (what, not_so) = match self.runtime {
            Runtime::Native => return CarriedOut::AsItStands,
            Runtime::Megatron => return CarriedOut::ByOwnRules(None),
            Runtime::Fsdp2 => (FSDP2, self.not_as_fsdp2()),
            Runtime::MegatronFsdp => (MEGATRON_FSDP, self.not_as_megatron_fsdp()),
        };
        match not_so {
            None => CarriedOut::As(what),
            Some(why) => CarriedOut::ByOwnRules(Some((what, why))),
        }
    }

    /// Of a plan for Megatron-FSDP that the worker runs as such: the plan of runtime native that it computes with, whose
    /// operators, temporaries and times are those of the run. None of other plans.
    pub(crate) fn computed_as_native(&self) -> Option<Plan> {
        let runs = self.runtime.facts().flat_units && self.is_computed_by_the_worker();
        runs.then(|| fill::valid(&computed_with(self)))?
    }

    /// What a run of the plan is compared with: what page and command say before it starts.
    pub fn compared_with(&self) -> String {
        const OWN: &str = "The worker runs the same layout under its own rules, runtime native";
        match self.carried_out() {
            CarriedOut::AsItStands => {
                "The worker runs the plan as it stands; this is the prediction for it".to_owned()
            }
            CarriedOut::As([name, theirs]) => {
                format!("The worker runs it as {name}: {theirs}; this is the prediction for that")
            }
            CarriedOut::ByOwnRules(None) => format!("{OWN}; this is the prediction for that"),
            CarriedOut::ByOwnRules(Some(([name, _], why))) => {
                format!("{OWN}, not as {name}: {why}. This is the prediction for that")
            }
        }
    }

    /// Why the worker runs a plan for Megatron-FSDP by its own rules instead; none where it runs it as Megatron-FSDP.
    pub fn not_as_megatron_fsdp(&self) -> Option<String> {
        let (layout, training) = (&self.layout, &self.training);
        if !is_wrapped(self) {
            return Some("there is one data-parallel rank, so Megatron-FSDP is not applied".to_owned());
        }
        if matches!(training.dtype, Dtype::Bf16 | Dtype::Fp16) && !layout.fsdp.preserve_fp32_weights {
            return Some("it keeps fp32 copies of weights in two bytes (preserve_fp32_weights)".to_owned());
        }
        if training.optimizer.kind == OptimizerKind::Muon {
            return Some("Muon needs whole matrices".to_owned());
        }
        if training.offload.layers > 0 {
            return Some("it keeps no activations on the host (training.offload.layers)".to_owned());
        }
        match fill::valid(&computed_with(self)) {
            Some(native) => check_units(self, &native).err(),
            None => Some("its own rules refuse the layout".to_owned()),
        }
    }

    /// Why the worker runs a plan for FSDP2 by its own rules instead; none where it runs it as FSDP2.
    pub fn not_as_fsdp2(&self) -> Option<String> {
        let layout = &self.layout;
        if layout.dp * layout.cp == 1 {
            return Some("there is one data-parallel rank, so nothing is sharded".to_owned());
        }
        if self.training.optimizer.kind == OptimizerKind::Muon {
            return Some("Muon needs whole matrices".to_owned());
        }
        let gives_back = layout.pp == 1 || !matches!(layout.fsdp.reshard, Reshard::Default | Reshard::Never);
        let norms = self.training.recompute_modules.iter().any(|module| module == "layernorm");
        if layout.schedule.kind().splits_backward && gives_back && norms {
            let why = "norms that are made again for weight gradients that a schedule puts off need weights that are given back";
            return Some(format!("{why} (layout.fsdp.reshard_after_forward)"));
        }
        match fill::valid(&computed_with(self)) {
            Some(native) => check_carried_out(self, &native).err(),
            None => Some("its own rules refuse the layout".to_owned()),
        }
    }
}
