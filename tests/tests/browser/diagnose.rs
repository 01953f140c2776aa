//! Logs on the page and on the command line: the same diagnosis, and a page that stays alive while megabytes are read.

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::SOON;

const STEP: &str = " [2026-11-03 09:00:00] iteration 1/ 20000 | elapsed time per iteration (ms): 10.0 | lm loss: 1.0E+01 |\n";
const FAILURE: &str = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of \
                       79.11 GiB of which 1.33 GiB is free. Including non-PyTorch memory, this process has 77.77 GiB memory in \
                       use. Of the allocated memory 71.02 GiB is allocated by PyTorch, and 4.98 GiB is reserved by PyTorch but \
                       unallocated.\n";

async fn open(runs: &Runs) -> Result<(Hub, Browser)> {
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.click("tab-diagnose").await?;
    Ok((hub, browser))
}

async fn clean(browser: &Browser) -> Result<()> {
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}

#[tokio::test]
async fn a_chosen_log_is_diagnosed_as_on_the_command_line() -> Result<()> {
    let runs = Runs::new()?;
    let log = runs.beside("job.log");
    std::fs::write(&log, format!("{}{FAILURE}{}", STEP.repeat(100_000), "frame #1: x\n".repeat(300_000)))?;
    let mut command = shardplan()?;
    command.arg("diagnose").arg(&log).arg("--json");
    let printed: Value = serde_json::from_slice(&expect_code(&mut command, 0)?.stdout)?;
    let (_hub, browser) = open(&runs).await?;
    browser.choose_file("diagnose-files", &log).await?;
    browser.text_when("diagnose-cause", SOON, |title| title.contains("out of memory")).await?;
    let cause = browser.attribute("diagnose-cause", "data-cause").await?;
    ensure!(cause.as_deref() == printed["verdicts"][0]["cause"].as_str(), "{cause:?}");
    let rank = browser.attribute("diagnose-cause", "data-rank").await?;
    ensure!(rank.as_deref() == Some("3"), "{rank:?}");
    let line = printed["verdicts"][0]["evidence"][0]["line"].as_u64().context("no line")?;
    let evidence = browser.text("diagnose-evidence").await?;
    ensure!(evidence.starts_with(&format!("job.log:{line}: ")), "{evidence}");
    browser.screenshot("diagnose").await?;
    clean(&browser).await
}

#[tokio::test]
async fn a_pasted_log_is_set_against_the_plan_and_a_novel_says_nothing() -> Result<()> {
    let runs = Runs::new()?;
    let (_hub, browser) = open(&runs).await?;
    browser.click("diagnose-plan").await?;
    browser.paste("diagnose-paste", FAILURE).await?;
    browser.click("diagnose-read").await?;
    browser.text_when("diagnose-against", SOON, |said| said.contains("predicts")).await?;
    browser.paste("diagnose-paste", "It was past midnight when the engine died.").await?;
    browser.click("diagnose-read").await?;
    browser.text_when("diagnose-result", SOON, |said| said.contains("Nothing found")).await?;
    clean(&browser).await
}
