//! Properties of layouts that planner accepts, and that it never panics on the others.

use proptest::prelude::*;
use serde_json::json;

use crate::answer::estimate;
use crate::layout::{GroupKind, coordinates};
use crate::parse::parse_plan;
use crate::plan::Plan;
use crate::resolve::valid_values;
use crate::runtime::Runtime;
use crate::wire::PlanFile;

fn file(preset: &str, world: u64, sizes: [u64; 6], order: &str) -> PlanFile {
    let [tp, cp, pp, vpp, ep, etp] = sizes;
    let value = json!({
        "version": 1, "model": {"preset": preset}, "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": world},
        "layout": {"tp": tp, "cp": cp, "pp": pp, "vpp": vpp, "ep": ep, "etp": etp, "order": order},
        "training": {"global_batch_size": 64},
    });
    parse_plan(&value.to_string()).unwrap()
}

fn small() -> impl Strategy<Value = u64> {
    prop_oneof![Just(1u64), Just(2), Just(3), Just(4), Just(8)]
}

proptest! {
    #[test]
    fn accepted_layouts_have_groups_and_shards(
        moe in any::<bool>(), world in prop_oneof![Just(1u64), Just(2), Just(4), Just(6), Just(8), Just(16), Just(32)],
        tp in small(), cp in small(), pp in small(), vpp in small(), ep in small(), etp in small(),
        order in prop_oneof![Just("tp-cp-ep-dp-pp"), Just("tp-cp-ep-pp-dp"), Just("tp-cp-pp-ep-dp")],
    ) {
        let preset = if moe { "tiny-moe" } else { "tiny-dense" };
        let file = file(preset, world, [tp, cp, pp, vpp, ep, etp], order);
        let resolved = Plan::resolve(&file);
        prop_assert_eq!(resolved.plan.is_some(), !crate::finding::has_error(&resolved.findings));
        let Some(plan) = resolved.plan else { return Ok(()) };
        prop_assert!(estimate(&file).memory.is_some());
        // Each kind of group partitions the world (the embedding group only its ends of each pipeline).
        let groups = plan.groups();
        let mut kinds: Vec<GroupKind> = groups.iter().map(|group| group.kind).collect();
        kinds.dedup();
        for kind in kinds {
            let mut ranks: Vec<u64> =
                groups.iter().filter(|group| group.kind == kind).flat_map(|group| group.ranks.clone()).collect();
            ranks.sort_unstable();
            if kind != GroupKind::Embedding {
                prop_assert_eq!(&ranks, &(0..world).collect::<Vec<_>>());
            }
            for group in groups.iter().filter(|group| group.kind == kind) {
                prop_assert_eq!(group.ranks.len() as u64, plan.group_size(kind));
            }
        }
        // Dense and expert pipelines are the same ranks.
        for rank in 0..world {
            let at = coordinates(&plan.layout, rank);
            prop_assert!(at.pp < plan.layout.pp && at.ep < plan.layout.ep && at.dp < plan.layout.dp);
            prop_assert!(!plan.rank_shards(rank).params.is_empty());
        }
        // Every element is held once per replica.
        let held: u64 = (0..world).map(|rank| plan.rank_shards(rank).buffers.iter().map(|b| b.state_elements()).sum::<u64>()).sum();
        let needed: u64 = (0..world).map(|rank| plan.rank_shards(rank).buffers.iter()
            .map(|b| b.elements / plan.group_size(b.group)).sum::<u64>()).sum();
        prop_assert_eq!(held, needed);
    }

    #[test]
    fn accepted_meshes_have_groups_and_shards(
        moe in any::<bool>(), flat in any::<bool>(), world in prop_oneof![1u64..=16, Just(24u64), Just(32)],
        tp in small(), cp in small(), pp in small(), ep in small(), replicate in small(),
        strategy in 0usize..4, sp in any::<bool>(),
    ) {
        let mut file = file(if moe { "tiny-moe" } else { "tiny-dense" }, world, [tp, cp, pp, 1, ep, if moe { 1 } else { tp }], "tp-cp-ep-dp-pp");
        file.runtime = Some(if flat { Runtime::MegatronFsdp } else { Runtime::Fsdp2 });
        file.layout.dp_replicate = Some(replicate);
        file.layout.sp = Some(sp && tp > 1);
        file.layout.fsdp.strategy = Some(crate::settings::Strategy::WORDS[strategy].to_owned());
        // Any batch and sequence go with any mesh here.
        file.training.global_batch_size = Some(5040 * 32);
        file.training.seq_len = Some(5040 * 32);
        let resolved = Plan::resolve(&file);
        prop_assert_eq!(resolved.plan.is_some(), !crate::finding::has_error(&resolved.findings));
        let Some(plan) = resolved.plan else { return Ok(()) };
        let answer = estimate(&file);
        let memory = answer.memory.as_ref().ok_or_else(|| TestCaseError::fail("no memory"))?;
        prop_assert_eq!(memory.rank_classes.iter().map(|class| class.count).sum::<u64>(), world);
        let groups = plan.groups();
        let mut kinds: Vec<GroupKind> = groups.iter().map(|group| group.kind).collect();
        kinds.dedup();
        prop_assert!(kinds.is_sorted());
        for kind in kinds {
            let of_kind = groups.iter().filter(|group| group.kind == kind);
            let mut ranks: Vec<u64> = of_kind.clone().flat_map(|group| group.ranks.clone()).collect();
            ranks.sort_unstable();
            prop_assert_eq!(&ranks, &(0..world).collect::<Vec<_>>());
            for group in of_kind {
                prop_assert_eq!(group.ranks.len() as u64, plan.group_size(kind));
            }
        }
        // Each element is held by as many ranks of its stage as do not cut it.
        let mut held = std::collections::BTreeMap::<String, (u64, u64, u64, u64)>::new();
        for rank in 0..world {
            let shards = plan.rank_shards(rank);
            for param in &shards.params {
                let whole: u64 = param.shape.iter().product();
                for (dim, extent) in param.shape.iter().enumerate() {
                    prop_assert!(param.offset[dim] + param.local_shape[dim] <= *extent);
                }
                let cutting: u64 = param.cuts.iter().map(|cut| plan.group_size(cut.group)).product();
                // A slice of a flat buffer is a range of what tensor or expert parallelism left of the parameter.
                let model_parallel = |cut: &&crate::shard::Cut| matches!(cut.group, GroupKind::Tp | GroupKind::Ep);
                let in_flat = flat && param.cuts.last().is_some_and(|cut| !model_parallel(&cut));
                let cuts = param.cuts.iter().filter(model_parallel).filter(|_| in_flat);
                let wholes = cuts.map(|cut| plan.group_size(cut.group)).product();
                let entry = held.entry(param.name.clone()).or_insert((whole, 0, cutting, wholes));
                entry.1 += param.elements();
                prop_assert_eq!(entry.2, cutting);
            }
        }
        for (name, (whole, sum, cutting, wholes)) in held {
            let copies = world / plan.layout.pp / cutting;
            prop_assert_eq!(sum, whole * copies * wholes, "{}", name);
        }
    }

    #[test]
    fn any_numbers_give_findings_and_no_panic(sizes in prop::array::uniform6(any::<u64>()), nodes in any::<u64>(), gpus in any::<u64>(), seq in any::<u64>(), runtime in 0usize..4, replicate in any::<u64>()) {
        let mut file = file("deepseek-v3", 8, sizes, "tp-cp-ep-dp-pp");
        file.cluster.nodes = Some(nodes);
        file.cluster.gpus_per_node = Some(gpus);
        file.training.seq_len = Some(seq);
        file.layout.dp_replicate = Some(replicate);
        file.runtime = Some(Runtime::ALL[runtime]);
        let answer = estimate(&file);
        prop_assert!(answer.memory.is_some() || crate::finding::has_error(&answer.findings));
    }
}

#[test]
fn nearest_values_and_steppers_are_accepted() {
    for (preset, world, sizes) in [
        ("tiny-dense", 8, [3, 1, 1, 1, 1, 1]),
        ("tiny-moe", 8, [1, 1, 3, 1, 1, 1]),
        ("tiny-moe", 8, [1, 1, 1, 1, 3, 1]),
    ] {
        let file = file(preset, world, sizes, "tp-cp-ep-dp-pp");
        let finding = estimate(&file).findings.into_iter().next().unwrap();
        assert!(!finding.nearest.is_empty(), "{finding:?}");
        for value in valid_values(&file, &finding.field) {
            let mut changed = serde_json::to_value(&file).unwrap();
            *changed.pointer_mut(&format!("/{}", finding.field.replace('.', "/"))).unwrap() = json!(value);
            let changed = parse_plan(&changed.to_string()).unwrap();
            assert!(Plan::resolve(&changed).plan.is_some(), "{} {value}", finding.field);
        }
    }
    for field in ["cluster.nodes", "cluster.gpus_per_node"] {
        let mut cluster = file("tiny-dense", 8, [1; 6], "tp-cp-ep-dp-pp");
        cluster.cluster.nodes = Some(8);
        cluster.training.global_batch_size = Some(40_320);
        let steps = valid_values(&cluster, field);
        assert!(steps.contains(&7) && steps.contains(&9) && steps.contains(&16), "{field} {steps:?}");
    }
    let steps = valid_values(&file("tiny-moe", 8, [1; 6], "tp-cp-ep-dp-pp"), "layout.ep");
    assert_eq!(steps, [1, 2, 4, 8]);
}
