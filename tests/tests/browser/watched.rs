//! A watched run on the page: `shardplan wrap` beside a hub, measured next to predicted, while it runs and after.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use planner::run::Comparison;
use serde_json::json;
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::process::Guarded;
use system_tests::programs::shardplan;
use system_tests::runs::Runs;
use system_tests::wait::SOON;

/// Iterations as Megatron-LM prints them, until somebody makes the file of the first argument.
const JOB: &str = r#"
i=0
until [ -e "$0" ]; do
  i=$((i + 1))
  printf ' iteration %8d/%8d | consumed samples: %12d | elapsed time per iteration (ms): 200.0 | learning rate: 1.000E-04 | global batch size:     8 | lm loss: 2.5E+00 | grad norm: 1.0 |\n' $i 100000 $i
  sleep 0.2
done
"#;

#[tokio::test]
async fn a_watched_run_stands_beside_its_prediction() -> Result<()> {
    let runs = Runs::new()?;
    let plan = runs.beside("plan.json");
    let file = json!({
        "version": planner::wire::VERSION, "name": "watched", "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "h100-sxm", "nodes": 1, "gpus_per_node": 4}, "training": {"global_batch_size": 8},
    });
    std::fs::write(&plan, file.to_string())?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;

    let enough = runs.beside("enough");
    let mut command = shardplan()?;
    command
        .args(["wrap", "--id", "watched", "--interval", "0.5", "--plan"])
        .arg(&plan)
        .arg("--runs")
        .arg(runs.path());
    command.args(["--", "bash", "-c", JOB]).arg(&enough);
    let mut watched = Guarded::start(command.stdout(Stdio::null()))?;

    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
    browser.text_when("run-item", SOON, |text| text.contains("watched")).await?;
    browser.click("run-item").await?;
    browser.text_when("run-state", SOON, |text| text.contains("running")).await?;
    let measured = "[data-testid=watched-table] [data-quantity=step_seconds]";
    browser.any_text_when(measured, SOON, |text| text.contains("200")).await?;
    let before = browser.number_when("step-value", "data-value", SOON, |steps| steps >= 5.0).await?;
    // It goes on while it is looked at.
    browser.number_when("step-value", "data-value", SOON, |steps| steps > before).await?;
    let predicted = "[data-testid=watched-table] tr:has([data-quantity=step_seconds]) td:first-of-type";
    let shown = browser.any_text_when(predicted, SOON, |text| text != "-").await?;
    browser.screenshot("watched-running").await?;

    std::fs::write(&enough, "")?;
    let status = watched.wait(SOON)?;
    ensure!(status.success(), "the watched command ended with {status}");
    browser.text_when("run-state", SOON, |text| text.contains("completed")).await?;
    let said = std::fs::read_to_string(runs.path().join("watched").join("comparison.json"))?;
    let said: Comparison = serde_json::from_str(&said)?;
    let row =
        said.rows.iter().find(|row| row.quantity == "step_seconds").context("no step time is compared")?;
    ensure!(row.measured == Some(0.2) && row.predicted.is_some(), "{row:?}");
    // The page shows the figures that the record has.
    let on_page = browser.selected(measured).await?.attr("data-value").await?;
    ensure!(on_page.as_deref() == Some("0.2"), "{on_page:?}");
    ensure!(!shown.is_empty(), "no prediction on the page");
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
