//! A run that goes on after a failure, from the page: the choice beside the start, a rank that is marked dead, what the page tells
//! of the recovery, and the way back.

use anyhow::{Result, ensure};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, LONG, SOON, until};

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

/// Starts a run that goes on with fewer tensor-parallel slots, and waits for some of its steps.
async fn running(browser: &Browser, hub: &Hub) -> Result<()> {
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.paste("config-paste", &plan(json!({"every_steps": 4, "keep": 2})).to_string()).await?;
    browser.click("config-apply").await?;
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
    browser.choose("on-failure", "ntp").await?;
    browser.click("run-start").await?;
    browser.number_when("step-value", "data-value", LONG, |step| step >= 8.0).await.map(drop)
}

const ASKED: &str = "[role=alertdialog] p";

#[tokio::test]
async fn a_rank_is_marked_dead_on_the_map_by_keyboard_or_pointer_as_in_the_list() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    running(&browser, &hub).await?;
    let map = |name: &'static str, right: fn(f64) -> bool| browser.number_when("run-map", name, LONG, right);
    map("data-ranks", |ranks| ranks == 4.0).await?;
    map("data-failed", |lost| lost == 0.0).await?;

    // By keyboard, and a question that is answered by no.
    browser.scroll_to("run-map").await?;
    let frame = browser.element("run-map").await?;
    frame.send_keys("\u{e014}").await?;
    map("data-rank", |rank| rank == 1.0).await?;
    browser
        .text_when("run-map-says", SOON, |text| text.contains("Rank 1") && text.contains("training"))
        .await?;
    frame.send_keys("\u{e007}").await?;
    let asked = browser.any_text_when(ASKED, SOON, |text| text.contains("rank 1")).await?;
    ensure!(asked.contains("fewer tensor-parallel slots"), "it is not said what will happen: {asked}");
    browser.selected("[role=alertdialog] button").await?.send_keys("\u{e00c}").await?;
    until("no question, and the keyboard on the map", SOON, async || {
        let at = browser
            .script(
                "return [document.activeElement.dataset.testid,
            document.querySelectorAll('[role=alertdialog]').length]",
            )
            .await?;
        let right = at == json!(["run-map", 0]);
        Ok(if right { Attempt::Ready(()) } else { Attempt::NotYet(at.to_string()) })
    })
    .await?;

    // By pointer: rank 2 is the first of the second row.
    let press = "const map = document.querySelector('[data-testid=run-map]'), at = map.getBoundingClientRect();
        for (const kind of ['pointerdown', 'pointerup'])
            map.dispatchEvent(new PointerEvent(kind, {bubbles: true, button: 0, pointerId: 1,
                clientX: at.left + at.width / 2 - at.height / 6, clientY: at.top + at.height / 2 + at.height / 6}));";
    browser.script(press).await?;
    browser.any_text_when(ASKED, SOON, |text| text.contains("rank 2")).await?;
    browser.screenshot("rank-to-be-marked-dead-on-the-map").await?;
    browser.click("mark-dead-now").await?;
    // Before anybody knows more, and until the run goes on.
    map("data-failed", |lost| lost >= 1.0).await?;
    browser
        .text_when("run-map-says", SOON, |text| text.contains("Rank 2") && text.contains("takes no part"))
        .await?;
    browser.screenshot("rank-lost-on-the-map").await?;
    browser.text_when("run-recovered", LONG, |text| text.contains("after the failure")).await?;
    browser.text_when("run-map-told", SOON, str::is_empty).await?;
    map("data-failed", |lost| lost == 1.0).await?;
    ensure!(browser.elements("mark-dead").await?.len() == 3, "three ranks go on");
    browser.screenshot("run-after-a-failure-on-the-map").await?;
    // Who is lost can't be lost again.
    browser.script(press).await?;
    map("data-rank", |rank| rank == 2.0).await?;
    let questions = browser.script("return document.querySelectorAll('[role=alertdialog]').length").await?;
    ensure!(questions == 0, "it is asked about a rank that is lost");

    browser.click("run-whole").await?;
    browser.text_when("run-recovered", LONG, |text| text.contains("after the stop")).await?;
    map("data-failed", |lost| lost == 0.0).await?;
    browser.click("run-stop").await?;
    browser.text_when("run-state", LONG, |text| text.contains("stopped")).await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
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
    browser.number_when("step-value", "data-value", LONG, |step| step >= 8.0).await?;

    browser.selected("[data-testid=mark-dead][data-rank='1']").await?.click().await?;
    browser.any_text_when("[role=alertdialog] p", SOON, |text| text.contains("rank 1")).await?;
    let focused = browser.script("return document.activeElement.textContent").await?;
    ensure!(focused.as_str() == Some("Cancel"), "the keyboard is at {focused}");
    browser.scroll_to("mark-dead-now").await?;
    browser.screenshot("rank-to-be-marked-dead").await?;
    browser.click("mark-dead-now").await?;
    let told = browser
        .text_when("run-recovered", LONG, |text| {
            text.contains("was done") && text.contains("after the failure")
        })
        .await?;
    ensure!(told.contains("Attempt 2"), "{told}");
    let at = browser.number_when("step-value", "data-value", SOON, |_| true).await?;
    browser.number_when("step-value", "data-value", LONG, |step| step >= at + 4.0).await?;
    let row = "[data-testid=run-attempt][data-of='2']";
    browser.any_text_when(row, SOON, |text| text.contains('%')).await?;
    ensure!(browser.elements("mark-dead").await?.len() == 3, "three ranks go on");
    browser.screenshot("run-after-a-failure").await?;

    browser.click("run-whole").await?;
    browser
        .text_when("run-recovered", LONG, |text| {
            text.contains("Attempt 3") && text.contains("after the stop")
        })
        .await?;
    browser.any_text_when("[data-testid=run-attempt][data-of='3']", LONG, |text| text.contains('%')).await?;
    browser.screenshot("run-with-its-whole-plan-again").await?;
    browser.click("run-stop").await?;
    browser.text_when("run-state", LONG, |text| text.contains("stopped")).await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
