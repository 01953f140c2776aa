//! The executor's activations and peaks against their prediction, in tensor bytes on this machine's CPU.

use anyhow::{Context, Result, ensure};
use planner::wire::MeasuredMemory;
use planner::{Plan, estimate};
use serde_json::{Value, json};
use system_tests::plans::plan;
use system_tests::programs::expect_code;
use system_tests::run_folder::{all_records, only_run, steps};
use system_tests::runs::Runs;

use crate::worker::run_command;

/// A model whose activations are as large as its weights, on `ranks` CPU processes.
fn sized(ranks: u64, tp: u64, sp: bool, dtype: &str) -> Value {
    json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 4, "hidden_size": 512, "ffn_hidden_size": 1408, "vocab_size": 8192,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 64}
        }},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": ranks},
        "runtime": "native",
        "layout": {"tp": tp, "sp": sp},
        "training": {"seq_len": 256, "micro_batch_size": 2, "global_batch_size": 4, "dtype": dtype},
        "run": {"steps": 2},
    })
}

#[tokio::test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
async fn activations_and_peaks_are_the_predicted_ones() -> Result<()> {
    for (ranks, tp, sp, dtype) in [
        (1, 1, false, "fp32"),
        (2, 1, false, "bf16"),
        (2, 2, true, "bf16"),
        (2, 2, false, "bf16"),
        (4, 2, true, "fp32"),
    ] {
        let value = sized(ranks, tp, sp, dtype);
        let runs = Runs::new()?;
        expect_code(run_command(&value, &runs)?.args(["--json"]), 0)?;
        let records = all_records(&only_run(runs.path())?)?;
        let file = plan(&value)?;
        let native = Plan::resolve(&file).plan.context("the plan has errors")?.executed();
        let memory = estimate(&native).memory.context("no memory is predicted")?;
        let class = memory.rank_classes.first().context("no rank class")?;
        let last = steps(&records, class.example_rank).into_iter().next_back().context("no step")?;
        let MeasuredMemory { activations_bytes, peak_allocated_bytes, .. } = last.memory;
        let label = format!("tp {tp}, sp {sp}, {dtype}, {ranks} ranks");
        for (what, measured, predicted) in [
            ("activations", activations_bytes, class.activations_bytes),
            ("peak", peak_allocated_bytes, class.peak_allocated_bytes),
        ] {
            let error = measured as f64 / predicted as f64 - 1.0;
            println!("{label}: {what} measured {measured}, predicted {predicted}: {:+.2}%", 100.0 * error);
            // Token ids, positions and statistics of a few bytes a token are not predicted one by one.
            ensure!(error.abs() < 0.01, "{label}: {what} measured {measured}, predicted {predicted}");
        }
    }
    Ok(())
}
