//! Settings of training on the page: each shows when it matters, is set by a click, and a wrong one is mended by one.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use planner::wire::PlanFile;
use serde_json::json;
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;

const SOON: Duration = Duration::from_secs(20);

async fn open(runs: &Runs) -> Result<(Hub, Browser)> {
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    let plan = json!({
        "version": 1, "name": "settings", "model": {"preset": "mixtral-8x7b"},
        "cluster": {"gpu": "h100-sxm", "nodes": 2}, "layout": {"ep": 8},
    });
    browser.paste("config-paste", &plan.to_string()).await?;
    browser.click("config-apply").await?;
    browser.text_when("plan-name", SOON, |name| name.contains("settings")).await?;
    browser.click("section-training").await?;
    Ok((hub, browser))
}

/// The plan in the address, once it is as wanted.
async fn plan_when(browser: &Browser, wanted: impl Fn(&PlanFile) -> bool) -> Result<PlanFile> {
    for _ in 0..100 {
        let address = browser.address().await?;
        if let Some((_, link)) = address.split_once('#')
            && let Ok(plan) = planner::wire::decode_link(link)
            && wanted(&plan)
        {
            return Ok(plan);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the plan in the address is {}", browser.address().await?)
}

#[tokio::test]
async fn recomputed_modules_are_chosen_once_recomputation_is_selective() -> Result<()> {
    let runs = Runs::new()?;
    let (_hub, browser) = open(&runs).await?;
    let modules = "field-training-recompute-modules";
    ensure!(
        browser.elements(modules).await?.is_empty(),
        "modules are offered without selective recomputation"
    );
    browser.choose("field-training-recompute-granularity", "selective").await?;
    browser.click(&format!("{modules}-moe_act")).await?;
    let chosen =
        |plan: &PlanFile| plan.training.recompute.modules.as_deref() == Some(&["moe_act".to_owned()]);
    plan_when(&browser, chosen).await?;
    browser.choose("field-training-recompute-granularity", "full").await?;
    ensure!(browser.elements(modules).await?.is_empty(), "modules are offered with full recomputation");
    browser.element("field-training-recompute-method").await?;
    browser.screenshot("settings-recompute").await?;
    Ok(())
}

#[tokio::test]
async fn a_setting_against_a_rule_opens_its_part_and_a_click_mends_it() -> Result<()> {
    let runs = Runs::new()?;
    let (_hub, browser) = open(&runs).await?;
    browser.click("more-training-more").await?;
    browser.click("field-training-overlap-tp").await?;
    let finding = "[data-testid=finding][data-field='training.overlap.tp'][data-severity=error]";
    let said = browser.any_text_when(finding, SOON, |text| text.contains("sequence parallel")).await?;
    ensure!(said.contains("tp is 1"), "{said}");
    let line = browser.text("more-training-more").await?;
    ensure!(line.contains("1 set"), "the line says {line}");
    browser.screenshot("settings-more").await?;
    browser.selected(&format!("{finding} [data-testid=finding-nearest]")).await?.click().await?;
    let plan = plan_when(&browser, |plan| plan.training.overlap.tp == Some(false)).await?;
    let resolved = planner::Plan::resolve(&plan);
    resolved.plan.context("the mended plan breaks a rule")?;
    Ok(())
}
