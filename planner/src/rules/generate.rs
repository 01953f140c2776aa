//! Every valid layout of a model on a cluster, found by the rules that refuse the others.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde::Serialize;

use crate::layout::{Split, Splitter};
use crate::plan::Plan;
use crate::rules::layout::broken;
use crate::rules::shape::Shape;
use crate::settings::Schedule;
use crate::software::program;
use crate::wire::PlanFile;

/// The axis sizes of one valid layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct LayoutChoice {
    /// Tensor parallel.
    pub tp: u64,
    /// Context parallel.
    pub cp: u64,
    /// Pipeline stages.
    pub pp: u64,
    /// Model chunks per stage.
    pub vpp: u64,
    /// Expert parallel.
    pub ep: u64,
    /// Expert tensor parallel.
    pub etp: u64,
    /// Data parallel.
    pub dp: u64,
    /// Data parallel of experts.
    pub edp: u64,
}

impl LayoutChoice {
    /// `file` with this layout. What only fitted the old one (schedule, group size, uneven stages) goes back to its
    /// default.
    pub fn apply(&self, file: &PlanFile) -> PlanFile {
        let mut file = file.clone();
        let layout = &mut file.layout;
        layout.tp = Some(self.tp);
        layout.cp = Some(self.cp);
        layout.pp = Some(self.pp);
        layout.vpp = Some(self.vpp);
        layout.ep = Some(self.ep);
        layout.etp = Some(self.etp);
        layout.sp = None;
        layout.schedule = None;
        layout.microbatch_group_size = None;
        layout.forget_split();
        file
    }
}

/// The split of each number of stages and chunks, once it was asked for: it takes longer than the rules do.
type Splits = BTreeMap<(u64, u64), Split>;

/// The shape with one layout, everything that follows from it at its default.
fn with<'a>(shape: &Shape<'a>, choice: LayoutChoice, splits: &mut Splits) -> Shape<'a> {
    let mut tried = shape.clone();
    let layout = tried.layout.to_mut();
    (layout.tp, layout.cp, layout.pp, layout.vpp) = (choice.tp, choice.cp, choice.pp, choice.vpp);
    (layout.ep, layout.etp) = (choice.ep, choice.etp);
    let program = program(tried.software.profile.as_deref(), tried.runtime.facts());
    layout.sp = choice.tp > 1 && program.is_none_or(|program| program.splits_sequences);
    layout.schedule = Schedule::usual(choice.vpp);
    layout.microbatch_group_size = choice.pp;
    layout.splitter = Some(Splitter::of(tried.runtime, tried.software.framework, program, true));
    let split = splits
        .entry((choice.pp, choice.vpp))
        .or_insert_with(|| Split::usual(&tried.layout, tried.architecture));
    split.put(tried.layout.to_mut());
    tried
}

/// All valid layouts of the plan's model, cluster, runtime and batch, in rising order of (tp, cp, pp, vpp, ep, etp).
/// Axes are fixed one after the other; a size that breaks a rule of its own field with the later axes at 1 breaks it
/// with any, so nothing is tried behind it.
pub fn valid_layouts(plan: &Plan) -> Vec<LayoutChoice> {
    let shape = Shape::of(plan);
    let one = LayoutChoice { tp: 1, cp: 1, pp: 1, vpp: 1, ep: 1, etp: 1, dp: 1, edp: 1 };
    let splits = RefCell::new(Splits::new());
    let with = |choice: LayoutChoice| with(&shape, choice, &mut splits.borrow_mut());
    let sizes = |choice: LayoutChoice, field: &str| -> Vec<u64> { with(choice).sizes(field) };
    // An axis is refused for good when its own field is broken while the later ones are 1.
    let open = |choice: LayoutChoice, field: &str| {
        broken(&with(choice)).iter().all(|violation| violation.field != field)
    };
    let mut found = Vec::new();
    let dense = plan.model.moe.is_none();
    for tp in sizes(one, "layout.tp") {
        // A dense model has one grid: its expert axes are those of the dense one.
        let choice = LayoutChoice { tp, etp: if dense { tp } else { 1 }, ..one };
        if !open(choice, "layout.tp") {
            continue;
        }
        for cp in sizes(choice, "layout.cp") {
            let choice = LayoutChoice { cp, ..choice };
            if !open(choice, "layout.cp") {
                continue;
            }
            for pp in sizes(choice, "layout.pp") {
                let choice = LayoutChoice { pp, ..choice };
                if !open(choice, "layout.pp") {
                    continue;
                }
                let chunks = if pp > 1 { sizes(choice, "layout.vpp") } else { vec![1] };
                let experts = if dense { vec![(1, tp)] } else { expert_sizes(&with(choice)) };
                for vpp in chunks {
                    // Stages are split once for all expert axes.
                    let mut tried = with(LayoutChoice { vpp, ..choice });
                    for &(ep, etp) in &experts {
                        let choice = LayoutChoice { vpp, ep, etp, ..choice };
                        let layout = tried.layout.to_mut();
                        (layout.ep, layout.etp) = (ep, etp);
                        if broken(&tried).is_empty() {
                            let world = shape.world;
                            found.push(LayoutChoice {
                                dp: world / (tp * cp * pp),
                                edp: world / (etp * ep * pp),
                                ..choice
                            });
                        }
                    }
                }
            }
        }
    }
    found
}

/// Expert axes that no rule refuses at this dense layout.
fn expert_sizes(shape: &Shape<'_>) -> Vec<(u64, u64)> {
    let mut tried = shape.clone();
    let mut found = Vec::new();
    for ep in shape.sizes("layout.ep") {
        for etp in shape.sizes("layout.etp") {
            let layout = tried.layout.to_mut();
            (layout.ep, layout.etp) = (ep, etp);
            if broken(&tried).iter().all(|violation| !matches!(violation.field, "layout.ep" | "layout.etp")) {
                found.push((ep, etp));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse_plan;
    use crate::resolve::valid_layouts_of;

    fn plan(preset: &str, nodes: u64, gpus: u64, batch: u64) -> Plan {
        plan_of(preset, "megatron", nodes, gpus, batch)
    }

    fn plan_of(preset: &str, runtime: &str, nodes: u64, gpus: u64, batch: u64) -> Plan {
        let file = json!({"version": 1, "model": {"preset": preset}, "runtime": runtime,
            "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": gpus}, "training": {"global_batch_size": batch}});
        let resolved = Plan::judge(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    /// Generated layouts are exactly those that resolve without an error, of all sizes tried.
    fn check(preset: &str, gpus: u64, batch: u64) {
        check_of(&plan(preset, 1, gpus, batch), preset, gpus);
    }

    fn check_of(plan: &Plan, preset: &str, gpus: u64) {
        let dense = plan.model.moe.is_none();
        // Divisors of the world, and a size that divides nothing here.
        let sizes: Vec<u64> = (1..=gpus).filter(|size| gpus.is_multiple_of(*size)).chain([7]).collect();
        let mut choices = vec![Vec::new()];
        for axis in ["tp", "cp", "pp", "vpp", "ep", "etp"] {
            let sizes = if axis == "vpp" { vec![1, 2, 3, 4] } else { sizes.clone() };
            let extended = |choice: Vec<u64>| {
                sizes.iter().map(move |&size| [&choice[..], &[size]].concat()).collect::<Vec<_>>()
            };
            choices = choices.into_iter().flat_map(extended).collect();
        }
        let mut brute = Vec::new();
        for choice in choices.into_iter().filter(|choice| !dense || choice[5] == choice[0]) {
            let [tp, cp, pp, vpp, ep, etp] = choice[..] else { panic!("six axes") };
            let choice = LayoutChoice { tp, cp, pp, vpp, ep, etp, dp: 0, edp: 0 };
            if let Some(found) = Plan::judge(&choice.apply(&plan.file)).plan {
                brute.push(LayoutChoice { dp: found.layout.dp, edp: found.layout.edp, ..choice });
            }
        }
        assert!(!brute.is_empty());
        assert_eq!(valid_layouts(plan), brute, "{preset} on {gpus}");
    }

    #[test]
    fn generated_layouts_are_exactly_the_accepted_ones() {
        check("tiny-dense", 4, 8);
        check("tiny-dense", 6, 12);
        check("tiny-moe", 4, 16);
        check("tiny-moe", 8, 16);
    }

    #[test]
    fn those_of_fsdp_runtimes_too() {
        check_of(&plan_of("tiny-moe", "fsdp2", 1, 8, 16), "tiny-moe", 8);
        check_of(&plan_of("tiny-dense", "fsdp2", 1, 6, 12), "tiny-dense", 6);
        check_of(&plan_of("tiny-dense", "megatron_fsdp", 1, 8, 16), "tiny-dense", 8);
    }

    #[test]
    fn a_large_cluster_has_many() {
        let found = valid_layouts(&plan("deepseek-v3", 256, 8, 4096));
        assert!(found.len() > 100, "{}", found.len());
        assert!(found.is_sorted());
    }

    #[test]
    fn a_broken_layout_hides_no_valid_one() {
        let mut file = plan("deepseek-v3", 8, 8, 256).file;
        let valid = valid_layouts_of(&file);
        assert!(valid.as_ref().is_some_and(|found| !found.is_empty()));
        for tp in [0, 3, 7, u64::MAX] {
            file.layout.tp = Some(tp);
            assert!(Plan::resolve(&file).plan.is_none(), "tp {tp}");
            assert_eq!(valid_layouts_of(&file), valid, "tp {tp}");
        }
        file.cluster.gpu = "abacus".to_owned();
        assert_eq!(valid_layouts_of(&file), None);
    }
}
