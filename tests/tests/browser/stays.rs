//! What stays: the plan on screen in the address, a view while the hub is away, and planning where a browser keeps nothing.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use planner::wire::PlanFile;
use serde_json::{Value, json};

use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, SOON, until};

/// Asking for what a browser keeps throws, as where all cookies are blocked.
const NOTHING_KEPT: &str = "
    for (const name of ['localStorage', 'sessionStorage'])
        Object.defineProperty(window, name, {get() { throw new DOMException('denied', 'SecurityError'); }});
";

/// Waits until the address holds a plan that is right.
async fn in_address(browser: &Browser, is_right: impl Fn(&PlanFile) -> bool) -> Result<()> {
    until("the right plan in the address", SOON, async || {
        let address = browser.address().await?;
        let link = address.split_once('#').map_or("", |(_, link)| link);
        Ok(match planner::link::decode_link(link) {
            Ok(plan) if is_right(&plan) => Attempt::Ready(()),
            other => Attempt::NotYet(format!("{other:?}")),
        })
    })
    .await
}

async fn named(browser: &Browser, part: &str) -> Result<String> {
    browser.text_when("plan-name", SOON, |name| name.contains(part)).await
}

#[tokio::test]
async fn a_browser_that_keeps_nothing_plans_and_has_its_hub() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.before_each_page(NOTHING_KEPT).await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.click("theme").await?;
    browser.click("tab-script").await?;
    browser.text_when("script-text", SOON, |text| text.contains("#SBATCH")).await?;
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text == "connected").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}

#[tokio::test]
async fn the_address_says_the_plan_on_screen_whatever_is_opened_over_it() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let (plain, fragment) = hub.url.split_once('#').context("the address has no token")?;
    let browser = Browser::start().await?;
    browser.open(plain).await?;
    named(&browser, "llama-3-70b").await?;
    browser.choose("preset-select", "gpt-oss-20b").await?;
    let is_chosen = |plan: &PlanFile| plan.model.preset.as_deref() == Some("gpt-oss-20b");
    in_address(&browser, is_chosen).await?;

    // A token, and a link that can't be read, come to the same page.
    for came in [fragment, "p=1.damaged"] {
        browser.call("location.hash = arguments[0]", vec![Value::from(came)]).await?;
        in_address(&browser, is_chosen).await?;
        ensure!(!browser.address().await?.contains(came), "{came} is still in the address");
        named(&browser, "gpt-oss-20b").await?;
    }
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text == "connected").await?;

    // After a reload nobody remembers the first plan, and the address without a plan is still its.
    browser.reload().await?;
    named(&browser, "gpt-oss-20b").await?;
    for _ in 0..4 {
        if browser.address().await? == plain {
            break;
        }
        browser.back().await?;
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    named(&browser, "llama-3-70b").await?;
    Ok(())
}

#[tokio::test]
async fn a_plan_too_large_for_a_link_is_neither_shared_nor_in_the_address() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    named(&browser, "llama-3-70b").await?;
    let mut plan = json!({
        "version": 1, "name": "too long", "model": {"hf_config": {}},
        "cluster": {"gpu": "h100-sxm", "nodes": 8}, "layout": {"tp": 4, "pp": 4},
    });
    // Nothing makes that shorter.
    let mut state = 1_u64;
    let letters = (0..400_000).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        char::from(b'A' + (state >> 59) as u8 % 26)
    });
    let mut config: Value = serde_json::from_str(include_str!("../../data/qwen3-30b-a3b.config.json"))?;
    config["note"] = letters.collect::<String>().into();
    plan["model"]["hf_config"] = config;
    let file = runs.beside("large.json");
    std::fs::write(&file, plan.to_string())?;
    browser.choose_file("config-file", &file).await?;
    named(&browser, "too long").await?;
    browser
        .any_text_when("[data-testid=finding]", SOON, |text| text.contains("too large for a link"))
        .await?;
    in_address(&browser, |plan| plan.model.preset.as_deref() == Some("llama-3-70b")).await?;
    browser.click("share").await?;
    browser.any_text_when(".toast", SOON, |text| text.contains("too large for a link")).await?;
    browser.element("data-plan").await?;
    Ok(())
}

#[tokio::test]
async fn a_view_stays_as_it_is_while_the_hub_is_away() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.click("tab-run").await?;
    browser.text_when("hub-state", SOON, |text| text == "connected").await?;
    browser.element("twin-start").await?;
    drop(hub);
    browser.text_when("hub-state", SOON, |text| text == "waiting").await?;
    browser.script("window.card = document.querySelector('[data-testid=twin-start]')").await?;
    tokio::time::sleep(Duration::from_secs(4)).await;
    ensure!(browser.script("return window.card.isConnected").await? == true, "the view was made anew");
    // What is sent to a socket that never opened is an error of its own.
    let errors = browser.console_errors().await?;
    let sent = errors.iter().find(|error| error.contains("CLOSING or CLOSED"));
    ensure!(sent.is_none(), "{sent:?}");
    Ok(())
}
