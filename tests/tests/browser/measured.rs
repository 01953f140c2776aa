//! What was measured, on the page: a run's pipeline over the planned one, its seconds as a calibration, and a calibration
//! from a file.

use anyhow::{Result, ensure};
use serde_json::json;

use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::run_folder::only_run;
use system_tests::runs::Runs;
use system_tests::wait::{LONG, SOON};

#[tokio::test]
async fn a_runs_pipeline_lies_over_the_plan_and_calibrates_its_seconds() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    let micro_batches = 4;
    let plan = json!({
        "version": 1,
        "name": "two stages",
        "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2},
        "runtime": "native",
        "layout": {"pp": 2},
        "training": {"seq_len": 32, "micro_batch_size": 1, "global_batch_size": micro_batches},
        "run": {"steps": 5, "lr": 1e-3},
    });
    browser.paste("config-paste", &plan.to_string()).await?;
    browser.click("config-apply").await?;
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
    browser.click("run-start").await?;
    browser.text_when("run-state", LONG, |text| text.contains("completed")).await?;
    browser.text_when("step-compare", SOON, |text| text.contains("predicted")).await?;

    // Forward and backward of every micro batch on both stages, planned and then measured too.
    let actions = f64::from(2 * 2 * micro_batches);
    browser.click("tab-timeline").await?;
    browser.number_when("timeline", "data-actions", SOON, |drawn| drawn == 2.0 * actions).await?;
    browser.selected("[data-testid=timeline][data-measured=true]").await?;
    let title = browser.script("return document.querySelector('main .view-head h3').textContent").await?;
    ensure!(title.as_str().is_some_and(|title| title.contains("predicted is off by")), "{title}");
    browser.screenshot("timeline-with-its-run").await?;
    browser.click("timeline-run").await?;
    browser.number_when("timeline", "data-actions", SOON, |drawn| drawn == actions).await?;
    browser.selected("[data-testid=timeline][data-measured=false]").await?;

    let before = browser.text("answer-step").await?;
    browser.click("tab-run").await?;
    browser.click("use-calibration").await?;
    browser.click("tab-timeline").await?;
    browser.text_when("calibration", SOON, |text| text.starts_with("Seconds are calibrated by run ")).await?;
    let calibrated = browser.text_when("answer-step", SOON, |text| text != before).await?;
    browser.screenshot("calibrated-by-its-run").await?;
    // Beside the run that it is fitted to, that is no prediction.
    browser.click("tab-run").await?;
    browser.text_when("step-compare", SOON, |text| text.contains("fitted to this run")).await?;
    browser.click("tab-timeline").await?;
    browser.click("calibration-remove").await?;
    browser.text_when("answer-step", SOON, |text| text == before).await?;

    // The same run as a file: what the command line writes, the page takes.
    let folder = tempfile::tempdir()?;
    let profile = folder.path().join("calibration.json");
    let mut command = shardplan()?;
    command.arg("calibrate").arg(only_run(runs.path())?).arg("--output").arg(&profile);
    expect_code(&mut command, 0)?;
    browser.choose_file("config-file", &profile).await?;
    browser.text_when("calibration", SOON, |text| text.starts_with("Seconds are calibrated by run ")).await?;
    ensure!(calibrated != before, "{calibrated}");
    browser.text_when("answer-step", SOON, |text| text != before).await?;
    browser.click("tab-run").await?;
    browser.text_when("step-compare", SOON, |text| text.contains("fitted to this run")).await?;
    browser.click("tab-timeline").await?;
    // Of another runtime, it changes nothing, and that is said.
    let other =
        json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1}});
    browser.paste("config-paste", &other.to_string()).await?;
    browser.click("config-apply").await?;
    browser.choose_file("config-file", &profile).await?;
    browser
        .text_when("calibration", SOON, |text| text.contains("is not for this plan and changes nothing"))
        .await?;
    // So it is from the run itself, which takes nothing of the plan then; laid over it, it is of another plan.
    browser.click("calibration-remove").await?;
    let before = browser.text("answer-step").await?;
    browser.click("tab-run").await?;
    browser.click("use-calibration").await?;
    browser.any_text_when("[data-testid=finding]", SOON, |text| text.contains("is not used")).await?;
    ensure!(browser.text("answer-step").await? == before, "another runtime's run has changed the seconds");
    browser.click("tab-timeline").await?;
    browser.click("timeline-run").await?;
    browser.selected("[data-testid=timeline-other]:not([hidden])").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}

#[tokio::test]
async fn a_run_that_was_stopped_goes_on_from_the_page() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    let plan = json!({
        "version": 1,
        "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2},
        "runtime": "native",
        "layout": {"tp": 2},
        "training": {"seq_len": 32, "micro_batch_size": 1, "global_batch_size": 4},
        "run": {"steps": 100_000, "lr": 1e-3, "checkpoint": {"every_steps": 5, "keep": 2}},
    });
    browser.paste("config-paste", &plan.to_string()).await?;
    browser.click("config-apply").await?;
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
    browser.click("run-start").await?;
    let saved = browser
        .text_when("run-saved", LONG, |text| text.contains("is saved") && text.contains("predicted"))
        .await?;
    ensure!(saved.contains("training waited"), "{saved}");
    browser.click("run-stop").await?;
    browser.text_when("run-state", LONG, |text| text.contains("stopped")).await?;
    let offered = browser.text_when("run-resume", SOON, |text| text.starts_with("Go on after step ")).await?;
    browser.screenshot("run-to-go-on-with").await?;
    browser.click("run-resume").await?;
    browser.text_when("run-state", LONG, |text| text.contains("running")).await?;
    let step = offered.trim_start_matches("Go on after step ").to_owned();
    let at = format!("went on after step {step},");
    browser.text_when("run-resumed", LONG, |text| text.contains(&at)).await?;
    // Another save, of what was trained since.
    browser.text_when("run-saved", LONG, |text| text != saved).await?;
    browser.click("run-stop").await?;
    browser.text_when("run-state", LONG, |text| text.contains("stopped")).await?;
    browser.screenshot("run-that-went-on").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
