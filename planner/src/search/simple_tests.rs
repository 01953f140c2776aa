use serde_json::json;

use super::choose_tests::open;
use super::tests::whole;
use super::*;

/// Axes in use and settings that are not the usual ones, how layers are split, how much is recomputed.
fn simplicity(settings: &Settings) -> (usize, usize, usize) {
    let axes = [settings.tp, settings.cp, settings.pp, settings.vpp, settings.ep, settings.dp_replicate];
    let usual = [json!(false), json!("none"), json!("alltoall"), json!("p2p"), json!("tp-cp-ep-dp-pp")];
    let unusual = settings.settings.values().filter(|value| !usual.contains(value)).count();
    let again = ["none", "full"].iter().position(|set| *set == settings.recompute.0);
    let by_words = settings.first_stage_layers.is_some()
        || settings.last_stage_layers.is_some()
        || settings.account_for_embedding
        || settings.account_for_loss;
    (
        axes.iter().filter(|size| **size > 1).count() + unusual,
        if settings.pipeline_layout.is_some() { 2 } else { usize::from(by_words) },
        again.map_or(1, |place| 2 * place),
    )
}

#[test]
fn of_plans_that_the_time_model_can_not_tell_apart_the_simplest_stands_first() {
    for (preset, nodes) in [("qwen3-14b", 2), ("llama-3-8b", 2), ("qwen3-30b-a3b", 1)] {
        let file = open(preset, "h100-sxm", nodes, json!({"layout": {"cp": 1}}));
        let mut request = Choice::of(&file).unwrap().unwrap().request;
        (request.limits.rows, request.limits.simulated) = (400, 400);
        let answer = whole(&Search::new(&request).unwrap());
        let alike = |row: &&Row| row.group == answer.rows[0].group;
        let fits: Vec<&Row> = answer.rows.iter().filter(alike).collect();
        let fastest = fits.iter().map(|row| row.step_seconds).fold(f64::INFINITY, f64::min);
        let alike = fits.iter().filter(|row| row.step_seconds <= fastest * 1.02);
        let simplest = alike.map(|row| simplicity(&row.settings)).min().unwrap();
        assert_eq!(simplicity(&fits[0].settings), simplest, "{preset}");
        assert!(fits[0].step_seconds <= fastest * 1.02, "{preset}");
        // And of as simple ones none leaves much more memory.
        let as_simple = fits
            .iter()
            .filter(|row| row.step_seconds <= fastest * 1.02 && simplicity(&row.settings) == simplest);
        let least = as_simple.map(|row| row.peak_bytes).min().unwrap();
        let left = fits[0].peak_bytes - least;
        assert!(left <= (80 << 30) / 20, "{preset}: {left}");
    }
}

/// What a recipe sets where the layout leaves room for it holds in a search as it does in the plan of a row: graphs, dispatcher, what hides.
#[test]
fn rows_under_a_recipe_have_the_numbers_of_their_estimate() {
    for (preset, gpu, nodes, dtype) in
        [("qwen3-235b-a22b", "gb200", 32, "mxfp8"), ("deepseek-v3", "h100-sxm", 128, "bf16")]
    {
        let more = json!({"software": {"framework": "bridge 26.08"}, "training": {"dtype": dtype, "global_batch_size": 2048}});
        let file = open(preset, gpu, nodes, more);
        let mut request = Choice::of(&file).unwrap().unwrap().request;
        request.only_first = false;
        request.limits.rows = 4;
        for set in [None, Some("moe")] {
            request.axes.recompute = set.map(|set| vec![RecomputeWords(set.to_owned())]);
            let answer = whole(&Search::new(&request).unwrap());
            assert!(set.is_some() || !answer.rows.is_empty(), "{preset}");
            for row in &answer.rows {
                let found = crate::answer::estimate(&row.apply(&request.plan)).time.unwrap();
                if found.simulated == row.simulated {
                    let apart = (found.step_seconds / row.step_seconds - 1.0).abs();
                    assert!(apart < 1e-6, "{preset} {} {row:?}", found.step_seconds);
                }
            }
        }
    }
}
