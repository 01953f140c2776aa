//! A run that goes on after a failure, from the page: the choice beside the start, a rank that is marked dead, what the page tells
//! of the recovery, and the way back.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;

const SOON: Duration = Duration::from_secs(20);
/// How long four processes may take for some steps of a tiny model and a recovery, on a busy machine.
const A_RUN: Duration = Duration::from_secs(120);

fn plan(checkpoint: Value) -> Value {
    json!({
        "version": 1,
        "name": "goes on",
        "model": {"preset": "tiny-dense"},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 4},
        "runtime": "native",
        "layout": {"tp": 2},
        "training": {"seq_len": 32, "micro_batch_size": 1, "global_batch_size": 4},
        "run": {"steps": 100_000, "lr": 1e-3, "checkpoint": checkpoint},
    })
}

#[tokio::test]
async fn a_rank_is_marked_dead_and_the_run_goes_on_and_returns_to_its_whole_plan() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.paste("config-paste", &plan(json!({"save": false})).to_string()).await?;
    browser.click("config-apply").await?;
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
    let refusal = "section[aria-label='Start a run'] [role=status]";
    browser.choose("on-failure", "ntp").await?;
    browser.any_text_when(refusal, SOON, |text| text.contains("saves none")).await?;
    ensure!(browser.attribute("run-start", "disabled").await?.is_some(), "it could be started");
    browser.paste("config-paste", &plan(json!({"every_steps": 4, "keep": 2})).to_string()).await?;
    browser.click("config-apply").await?;
    browser.choose("on-failure", "spare").await?;
    browser.any_text_when(refusal, SOON, |text| text.contains("needs spares")).await?;
    browser.choose("on-failure", "ntp").await?;
    browser.screenshot("run-to-go-on-after-a-failure").await?;
    browser.click("run-start").await?;
    browser.number_when("step-value", "data-value", A_RUN, |step| step >= 8.0).await?;

    browser.selected("[data-testid=mark-dead][data-rank='1']").await?.click().await?;
    browser.any_text_when("[role=alertdialog] p", SOON, |text| text.contains("rank 1")).await?;
    let focused = browser.script("return document.activeElement.textContent").await?;
    ensure!(focused.as_str() == Some("Cancel"), "the keyboard is at {focused}");
    browser.scroll_to("mark-dead-now").await?;
    browser.screenshot("rank-to-be-marked-dead").await?;
    browser.click("mark-dead-now").await?;
    let told = browser
        .text_when("run-recovered", A_RUN, |text| {
            text.contains("was done") && text.contains("after the failure")
        })
        .await?;
    ensure!(told.contains("Attempt 2"), "{told}");
    let at = browser.number_when("step-value", "data-value", SOON, |_| true).await?;
    browser.number_when("step-value", "data-value", A_RUN, |step| step >= at + 4.0).await?;
    let row = "[data-testid=run-attempts] [data-attempt='2']";
    browser.any_text_when(row, SOON, |text| text.contains('%')).await?;
    ensure!(browser.elements("mark-dead").await?.len() == 3, "three ranks go on");
    browser.screenshot("run-after-a-failure").await?;

    browser.click("run-whole").await?;
    browser
        .text_when("run-recovered", A_RUN, |text| {
            text.contains("Attempt 3") && text.contains("after the stop")
        })
        .await?;
    browser
        .any_text_when("[data-testid=run-attempts] [data-attempt='3']", A_RUN, |text| text.contains('%'))
        .await?;
    browser.screenshot("run-with-its-whole-plan-again").await?;
    browser.click("run-stop").await?;
    browser.text_when("run-state", A_RUN, |text| text.contains("stopped")).await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
