//! The page on a phone: no view is wider than the window, and every table scrolls in a box of its own.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::SOON;

/// Width and height of a phone.
const PHONE: (u32, u32) = (390, 844);

/// Opens whatever a view keeps closed.
const OPEN: &str = "
    document.querySelectorAll('#view details').forEach(details => { details.open = true; });
    document.querySelectorAll('#view [aria-expanded=false]').forEach(button => button.click());
";

/// What is wider than the window, in words: the document, tables without a box that scrolls, and what is clicked or typed in.
const TOO_WIDE: &str = "
    const width = document.documentElement.clientWidth;
    const rect = element => element.getBoundingClientRect();
    const shown = element => element.getClientRects().length > 0 && !element.closest('.visually-hidden');
    const box = element => {
        for (let at = element.parentElement; at !== document.body; at = at.parentElement) {
            if (['auto', 'scroll'].includes(getComputedStyle(at).overflowX)) return at;
        }
        return null;
    };
    const beyond = element => rect(element).right > width + 1;
    const name = element => {
        const words = element.getAttribute('aria-label') ?? element.dataset.testid ?? element.textContent.trim().slice(0, 60);
        return `${element.tagName.toLowerCase()} ${words}, to ${Math.round(rect(element).right)}`;
    };
    const all = selector => Array.from(document.querySelectorAll(selector)).filter(shown);
    const wrong = [];
    if (document.documentElement.scrollWidth > width) {
        const wide = all('body *').filter(element => beyond(element) && box(element) === null);
        wrong.push(`the document, ${document.documentElement.scrollWidth} of ${width}: ${wide.slice(0, 5).map(name).join('; ')}`);
    }
    for (const table of all('table')) {
        const of = box(table);
        if (of === null) wrong.push(`${name(table)} has no box to scroll in`);
        else if (beyond(of)) wrong.push(`the box of ${name(table)}`);
    }
    for (const control of all('button, input, select, textarea, summary, a')) {
        if (beyond(control) && box(control) === null) wrong.push(name(control));
    }
    const inputs = document.querySelector('.inputs');
    if (inputs.scrollWidth > inputs.clientWidth) wrong.push(`the inputs, ${inputs.scrollWidth} of ${inputs.clientWidth}`);
    return wrong;
";

/// Waits until a view changes no more, and gives what of it is too wide.
async fn too_wide(browser: &Browser) -> Result<Value> {
    const SIZE: &str = "const view = document.getElementById('view'); return [view.innerHTML.length, view.querySelectorAll('*').length]";
    const PAUSE: Duration = Duration::from_millis(500);
    let mut before = Value::Null;
    for _ in 0..SOON.as_millis() / PAUSE.as_millis() {
        tokio::time::sleep(PAUSE).await;
        let now = browser.script(SIZE).await?;
        if now == before {
            return browser.script(TOO_WIDE).await;
        }
        before = now;
    }
    bail!("the view still changes after {SOON:?}: {before}")
}

/// Fails where a view, closed or open, is too wide.
async fn fits(browser: &Browser, what: &str) -> Result<()> {
    for state in ["as it is opened", "with all of it open"] {
        let wrong = too_wide(browser).await?;
        if wrong != json!([]) {
            browser.screenshot(&format!("too-wide-{}", what.replace(' ', "-"))).await?;
        }
        ensure!(wrong == json!([]), "{what}, {state}: {wrong:#}");
        browser.script(OPEN).await?;
    }
    let wrong = too_wide(browser).await?;
    ensure!(wrong == json!([]), "{what}, open twice: {wrong:#}");
    Ok(())
}

fn cluster_plan() -> Value {
    json!({
        "version": 1,
        "name": "a-name-that-is-long-and-has-no-place-to-break_0123456789012345678901234567890123456789",
        "model": {"preset": "qwen3-30b-a3b"},
        "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8},
        "layout": {"tp": 2, "pp": 2, "ep": 4},
        "training": {"global_batch_size": 64},
    })
}

/// A run of two processes, for the tables of the Run view.
fn record_a_run(runs: &Runs) -> Result<()> {
    let plan = json!({
        "version": 1, "name": "short", "model": {"preset": "tiny-dense"}, "runtime": "native", "layout": {"tp": 2},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2},
        "training": {"seq_len": 32, "micro_batch_size": 1, "global_batch_size": 2}, "run": {"steps": 3},
    });
    let file = runs.beside("short.json");
    std::fs::write(&file, plan.to_string())?;
    expect_code(shardplan()?.arg("run").arg(&file).arg("--runs").arg(runs.path()), 0).map(drop)
}

#[tokio::test]
async fn every_view_is_as_wide_as_a_phone() -> Result<()> {
    let runs = Runs::new()?;
    record_a_run(&runs)?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    // The inputs lie in a sheet on a phone.
    browser.paste("config-paste", &cluster_plan().to_string()).await?;
    browser.click("config-apply").await?;
    browser.text_when("plan-name", SOON, |name| name.contains("no-place-to-break")).await?;
    browser.resize(PHONE.0, PHONE.1).await?;
    let width = browser.script("return window.innerWidth").await?;
    ensure!(width == json!(PHONE.0), "the window is {width} wide");

    for view in
        ["memory", "timeline", "ranks", "layouts", "search", "shards", "script", "run", "diagnose", "data"]
    {
        browser.click(&format!("tab-{view}")).await?;
        match view {
            "ranks" => browser.click("failed-mark").await?,
            "search" => {
                let done = "[data-testid=search-says][data-phase=done]";
                browser.any_text_when(done, SOON, |_| true).await?;
            }
            "script" => {
                let long = format!(
                    "#!/bin/bash\n#SBATCH --nodes=2\nsrun python train.py --data {}\n",
                    "/data/part".repeat(40)
                );
                browser.paste("lint-text", &long).await?;
            }
            "run" => {
                browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
                browser.click("run-item").await?;
                browser.text_when("run-state", SOON, |text| text.contains("completed")).await?;
            }
            "diagnose" => {
                let log = format!(
                    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB {}\n",
                    "x".repeat(300)
                );
                browser.paste("diagnose-paste", &log).await?;
                browser.click("diagnose-read").await?;
                browser.text_when("diagnose-cause", SOON, |title| title.contains("out of memory")).await?;
            }
            _ => {}
        }
        fits(&browser, view).await?;
        browser.screenshot(&format!("phone-{view}")).await?;
        if view == "ranks" {
            browser.click("failed-clear").await?;
        }
    }
    // The inputs, in their sheet.
    browser.click("sheet-open").await.context("no way to the inputs")?;
    fits(&browser, "the inputs").await?;
    browser.screenshot("phone-inputs").await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
