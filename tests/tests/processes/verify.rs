//! `shardplan verify`: a plan for a cluster, as a twin of a few processes on this machine.

use std::process::Output;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;

fn verify(plan: &Value, arguments: &[&str], code: i32) -> Result<(Output, Runs)> {
    let runs = Runs::new()?;
    let file = runs.beside("plan.json");
    std::fs::write(&file, plan.to_string())?;
    let mut command = shardplan()?;
    command.arg("verify").arg(file).args(["--json", "--runs"]).arg(runs.path()).args(arguments);
    Ok((expect_code(&mut command, code)?, runs))
}

fn cluster_plan() -> Value {
    json!({
        "version": 1,
        "model": {"preset": "llama-3-70b"},
        "cluster": {"gpu": "h100-sxm", "nodes": 8, "gpus_per_node": 8},
        "layout": {"tp": 8, "pp": 4},
        "training": {"global_batch_size": 256},
    })
}

#[tokio::test]
async fn a_cluster_plan_is_verified_by_its_twin() -> Result<()> {
    let (output, _runs) = verify(&cluster_plan(), &[], 0)?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(answer["static_bytes_equal"] == true && answer["outcome"] == "completed", "{answer}");
    let scaled = answer["scaled"].as_array().context("nothing was scaled")?;
    for (field, from, to) in [("layout.tp", 8, 2), ("layout.pp", 4, 2), ("model.num_layers", 80, 2)] {
        ensure!(
            scaled.contains(&json!({"field": field, "from": from, "to": to})),
            "{field} is not among {scaled:?}"
        );
    }
    let classes = answer["rank_classes"].as_array().context("no rank classes")?;
    ensure!(classes.len() == 2, "{classes:?}");
    for class in classes {
        for what in ["weights_bytes", "gradients_bytes", "optimizer_bytes"] {
            let compared = &class[what];
            ensure!(
                compared["measured"] == compared["predicted"] && compared["measured"].as_u64() > Some(0),
                "{what}: {compared}"
            );
        }
        ensure!(class["activations_bytes"]["measured"].as_u64() > Some(0), "{class}");
    }
    let time = &answer["time"];
    let (measured, predicted) = (time["measured"].as_f64(), time["predicted"].as_f64());
    ensure!(measured > Some(0.0) && predicted > Some(0.0), "{answer}");
    // How long a step takes here is the machine's affair; a finding has both figures.
    let findings = answer["findings"].as_array().context("no list of findings")?;
    for finding in findings {
        let message = finding["message"].as_str().unwrap_or_default();
        ensure!(message.contains("s predicted") && message.contains("shardplan calibrate"), "{finding}");
    }
    ensure!(answer["plan"]["layout"]["tp"] == 2 && answer["plan"]["runtime"] == "native");
    Ok(())
}

#[tokio::test]
async fn more_axes_than_ranks_are_refused() -> Result<()> {
    let (output, runs) = verify(&cluster_plan(), &["--ranks", "3"], 1)?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let message = answer["findings"][0]["message"].as_str().context("no finding")?;
    ensure!(message.contains("has 4 ranks, and 3 are allowed here"), "{message}");
    ensure!(std::fs::read_dir(runs.path())?.next().is_none(), "it left a run behind");
    Ok(())
}
