//! What was typed or chosen in a view is there when somebody comes back from another.

use anyhow::{Context, Result, ensure};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::runs::Runs;
use system_tests::wait::SOON;

/// What a box or a list holds.
async fn value(browser: &Browser, hook: &str) -> Result<String> {
    browser.element(hook).await?.prop("value").await?.with_context(|| format!("{hook} has no value"))
}

/// Fills a box as a person does who then presses Enter.
async fn enter(browser: &Browser, hook: &str, text: &str) -> Result<()> {
    browser.fill(hook, &format!("{text}\u{e007}")).await
}

#[tokio::test]
async fn what_a_view_was_asked_stays_while_another_is_on_screen() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;

    browser.click("tab-ranks").await?;
    browser.choose("rank-colour", "node").await?;
    enter(&browser, "rank-number", "3").await?;
    browser.number_when("rank-grid", "data-rank", SOON, |rank| rank == 3.0).await?;
    browser.click("tab-shards").await?;
    enter(&browser, "shards-rank", "2").await?;
    browser.click("tab-layouts").await?;
    browser.choose("layouts-filter-pp", "2").await?;
    let kept = browser.attribute("layouts-table", "data-kept").await?;
    browser.click("tab-search").await?;
    browser.choose("search-objective", "cheapest").await?;
    browser.click("search-axes").await?;
    enter(&browser, "search-tp", "2|4").await?;
    browser.click("tab-script").await?;
    browser.choose("script-body", "torchtitan").await?;
    browser.fill("script-array", "0-3").await?;
    browser.paste("lint-text", "#!/bin/bash\n#SBATCH --time=2h\n").await?;
    browser.text_when("lint-summary", SOON, |text| text.contains("error")).await?;

    browser.click("tab-search").await?;
    ensure!(value(&browser, "search-objective").await? == "cheapest", "the objective is lost");
    ensure!(value(&browser, "search-tp").await? == "2|4", "the axis is lost");
    browser.click("tab-layouts").await?;
    ensure!(value(&browser, "layouts-filter-pp").await? == "2", "the filter is lost");
    ensure!(browser.attribute("layouts-table", "data-kept").await? == kept, "other layouts are listed");
    browser.click("tab-shards").await?;
    ensure!(value(&browser, "shards-rank").await? == "2", "the rank of the shards is lost");
    browser.click("tab-ranks").await?;
    ensure!(value(&browser, "rank-number").await? == "3", "the rank is lost");
    ensure!(value(&browser, "rank-colour").await? == "node", "the colour is lost");
    browser.click("tab-script").await?;
    ensure!(value(&browser, "script-body").await? == "torchtitan", "the kind of script is lost");
    ensure!(value(&browser, "script-array").await? == "0-3", "the job array is lost");
    ensure!(value(&browser, "lint-text").await?.contains("--time=2h"), "the checked script is lost");
    browser.text_when("lint-summary", SOON, |text| text.contains("error")).await?;

    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "{errors:?}");
    Ok(())
}
