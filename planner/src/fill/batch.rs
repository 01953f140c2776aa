//! The global batch of a plan that does not say one. Where search chooses the layout it is the model's published one, else some
//! four million tokens; where the layout is said it is what is usual, and goes with that layout.

use crate::layout::Layout;
use crate::model::presets;
use crate::rules::{group_of, groups_fit};
use crate::wire::{MAX_COUNT, Setting};

/// Tokens of a step where no batch of the model is published: among the 2 to 16 million of published trainings.
const TOKENS: u64 = 4 << 20;
/// Most sequences of a step that are assumed.
const MOST: u64 = 1 << 20;
/// Share by which a batch is changed so that more ranks can be replicas.
const CHANGED: f64 = 0.03;

/// Sequences of a step for a model by its preset, where it is one, made to divide over replicas on a world of ranks, each of which takes
/// micro batches of so many.
pub(crate) fn assumed_batch(preset: Option<&str>, seq_len: u64, world: u64, micro: Option<u64>) -> u64 {
    let published = preset.and_then(|id| presets().iter().find(|preset| preset.id == id)?.batch.as_ref());
    let tokens = published.map_or(TOKENS, |batch| batch.tokens);
    let wanted = (tokens / seq_len.max(1)).clamp(1, MOST);
    // Axes within a replica are powers of two, mostly: what else the world is made of is left to replicas.
    let world = world.max(1).saturating_mul(micro.unwrap_or(1).max(1));
    let odd = world >> world.trailing_zeros();
    let units = (0..=world.trailing_zeros()).rev().map(|power| odd << power);
    let rounded = |unit: u64| (wanted + unit / 2) / unit * unit;
    let near = |unit: &u64| {
        let batch = rounded(*unit);
        batch > 0 && batch.abs_diff(wanted) as f64 <= CHANGED * wanted as f64
    };
    units.clone().find(near).map_or_else(|| if odd <= wanted { rounded(odd) } else { wanted }, rounded)
}

/// Sequences of a step of a layout for which nobody says them: what is usual, or the next more that make whole micro batches of
/// `micro` sequences on every replica, at least so many of them, in the groups of an interleaved pipeline, and leave one for a replica that
/// `failed` GPUs reduce.
pub(super) fn usual_batch(layout: &Layout, micro: u64, (failed, microbatches): (u64, u64)) -> u64 {
    let usual: u64 = Setting::usual_of("training.global_batch_size");
    let group = group_of(layout);
    let once = micro.max(1).saturating_mul(layout.dp.max(1));
    let at_once = once.saturating_mul(group.map_or(1, |group| group.max(1)));
    // A reduced replica takes its share of the slots, so it takes nothing of too few.
    let reduced = match failed {
        0 => 0,
        failed => at_once.saturating_mul(layout.tp.div_ceil(left_at_least(layout.tp, failed))),
    };
    let least = reduced.max(once.saturating_mul(microbatches));
    let goes = usual >= least
        && usual.is_multiple_of(once)
        && group.is_none_or(|group| groups_fit(group, layout.pp, usual / once));
    let whole = usual.max(least).checked_next_multiple_of(at_once).filter(|whole| *whole <= MAX_COUNT);
    whole.filter(|_| !goes).unwrap_or(usual)
}

/// Slots of a replica that lost so many: tensors are cut by powers of two, mostly.
const fn left_at_least(slots: u64, failed: u64) -> u64 {
    let left = slots.saturating_sub(failed);
    if left == 0 { 1 } else { 1 << left.ilog2() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::fill::fill;
    use crate::parse::parse_plan;
    use crate::rules::{Aspect, Shape, first_broken};

    proptest! {
        /// No rule about batches is broken by a batch that nobody said.
        #[test]
        fn a_batch_that_nobody_said_goes_with_the_layout(
            (nodes, tp, pp, cp) in (1_u64..2000, 0_u32..4, 1_u64..6, 0_u32..2),
            (vpp, micro, group) in (1_u64..4, 1_u64..9, 0_u64..5),
        ) {
            let (tp, cp) = (1 << tp, 1 << cp);
            let mut layout = json!({"tp": tp, "pp": pp, "cp": cp, "vpp": vpp});
            if group > 0 && vpp > 1 && pp > 1 {
                layout["microbatch_group_size"] = (pp + group).into();
            }
            let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "layout": layout,
                "cluster": {"gpu": "h100-sxm", "nodes": nodes * pp * cp, "gpus_per_node": 8},
                "training": {"micro_batch_size": micro}});
            let plan = fill(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
            let broken = first_broken(&Shape::of(&plan), Aspect::Batch);
            prop_assert!(broken.is_none(), "{broken:?} of {:?}", plan.training.global_batch_size);
            prop_assert!(plan.training.global_batch_size >= 256);
        }
    }

    #[test]
    fn a_batch_that_nobody_said_leaves_some_for_reduced_replicas() {
        let check = |nodes: u64, failed: u64, more: serde_json::Value, expected: u64| {
            let failed: Vec<_> = (0..failed).map(|gpu| json!({"node": 0, "gpu": gpu})).collect();
            let mut file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "layout": {"tp": 8},
                "cluster": {"gpu": "h100-sxm", "nodes": nodes, "gpus_per_node": 8, "failed": failed}});
            for (part, value) in more.as_object().unwrap() {
                file[part] = value.clone();
            }
            let resolved = crate::Plan::resolve(&parse_plan(&file.to_string()).unwrap());
            let plan = resolved.plan.unwrap_or_else(|| panic!("{nodes} {more}: {:?}", resolved.findings));
            assert_eq!(plan.training.global_batch_size, expected, "{nodes} {more}");
        };
        check(16, 1, json!({}), 256);
        check(40, 1, json!({}), 280);
        check(320, 0, json!({}), 320);
        check(320, 1, json!({}), 640);
        check(320, 5, json!({}), 1280);
        check(320, 7, json!({}), 2560);
        check(320, 1, json!({"training": {"micro_batch_size": 3}}), 1920);
        check(80, 3, json!({"layout": {"tp": 4, "pp": 4, "vpp": 2}}), 640);
    }

    #[test]
    fn a_batch_is_published_or_four_million_tokens_and_divides() {
        let check = |preset: Option<&str>, seq_len: u64, world: u64, expected: u64| {
            assert_eq!(assumed_batch(preset, seq_len, world, None), expected, "{preset:?} {seq_len} {world}");
            assert_eq!(
                assumed_batch(preset, seq_len, world, Some(1)),
                expected,
                "{preset:?} {seq_len} {world}"
            );
        };
        for (world, micro, expected) in [(24, 5, 1020), (8, 3, 1032), (64, 6, 1008), (64, 4, 1024)] {
            assert_eq!(assumed_batch(None, 4096, world, Some(micro)), expected, "{world} {micro}");
        }
        check(None, 4096, 64, 1024);
        check(None, 4096, 2048, 1024);
        check(None, 4096, 56, 1008);
        check(None, 8192, 8, 512);
        check(None, 4096, 997, 997);
        check(None, 4096, 997 * 8, 997);
        check(None, 4096, 1_000_003, 1024);
        check(None, 1 << 40, 8, 1);
        check(Some("deepseek-v3"), 4096, 2048, 15360);
        check(Some("deepseek-v3"), 4096, 24, 15360);
        check(Some("llama-3.1-405b"), 8192, 16384, 2048);
    }
}
