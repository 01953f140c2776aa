//! The loss on data that is held out is the same in every layout, and measuring it changes nothing.

use planner::wire::{Evaluated, Event};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Run, set, tiny};

fn evaluations(run: &Run, rank: usize) -> Vec<Evaluated> {
    let of = |event| if let Event::Evaluated(evaluated) = event { Some(evaluated) } else { None };
    run.records(rank).into_iter().filter_map(|record| of(record.event)).collect()
}

/// A mixture whose router counts tokens, with a module that predicts.
fn mixture(world: u64, tp: u64) -> Value {
    let mut plan = tiny(world, tp);
    set(
        &mut plan,
        "model.architecture.moe",
        json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24, "router_bias_buffer": 8,
               "routing": {"score": "sigmoid", "balance": "global_aux_loss", "aux_coefficient": 0.1, "bias_update_rate": 0.01}}),
    );
    set(&mut plan, "model.architecture.mtp_layers", 1);
    plan
}

fn evaluating(plan: &Value) -> Value {
    let mut plan = plan.clone();
    set(
        &mut plan,
        "run.evaluation",
        json!({"data": {"kind": "synthetic"}, "every_steps": 2, "sequences": 8}),
    );
    plan
}

#[test]
fn every_layout_measures_the_same_and_trains_as_without_it() {
    for (make, splits) in [(tiny as fn(u64, u64) -> Value, true), (mixture, false)] {
        let plain = Run::complete(&make(1, 1));
        let expected = Run::complete(&evaluating(&make(1, 1)));
        let steps = |run: &Run| run.steps(0).iter().map(|step| step.loss.to_bits()).collect::<Vec<_>>();
        assert_eq!(steps(&plain), steps(&expected));
        let whole = evaluations(&expected, 0);
        assert_eq!(whole.iter().map(|one| one.step).collect::<Vec<_>>(), [2, 4, 5]);
        assert!(whole.iter().all(|one| one.tokens == 8 * 16), "{whole:?}");
        let mut layouts = vec![(2, 2, json!({"pp": 1})), (2, 1, json!({"cp": 2})), (4, 2, json!({"pp": 2}))];
        // Split backwards are for models without modules that predict.
        if splits {
            layouts.push((4, 1, json!({"pp": 2, "vpp": 1, "schedule": "zb-h1"})));
        }
        for (world, tp, more) in layouts {
            let mut plan = evaluating(&make(world, tp));
            for (name, value) in more.as_object().unwrap() {
                set(&mut plan, &format!("layout.{name}"), value.clone());
            }
            let run = Run::complete(&plan);
            let found = evaluations(&run, 0);
            assert_eq!(found.len(), whole.len());
            for (one, other) in whole.iter().zip(&found) {
                assert_eq!((other.step, other.tokens), (one.step, one.tokens));
                assert!((one.loss - other.loss).abs() <= 1e-9 * one.loss, "{plan}: {one:?} and {other:?}");
            }
            assert!((1..world as usize).all(|rank| evaluations(&run, rank).is_empty()));
        }
    }
}

#[test]
fn what_is_held_out_is_read_once_and_must_suffice() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("held-out.txt");
    std::fs::write(&file, "abcdefgh".repeat(8)).unwrap();
    let mut plan = evaluating(&tiny(1, 1));
    set(&mut plan, "run.evaluation.data", json!({"kind": "text", "path": file}));
    let run = Run::complete(&plan);
    // 64 tokens are three windows of 16 and the token behind each.
    assert!(evaluations(&run, 0).iter().all(|one| one.tokens == 3 * 16));
    let mut wide = plan.clone();
    set(&mut wide, "training.micro_batch_size", 4);
    let mut run = Run::start(&wide, &[]);
    let finished = run.finish(PATIENCE).remove(0);
    assert!(!finished.success);
    assert!(
        finished.stderr.contains("run.evaluation.data has 3 sequences of 16 tokens"),
        "{}",
        finished.stderr
    );
}
