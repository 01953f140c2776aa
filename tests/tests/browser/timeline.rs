//! The timeline: the same picture by GPU and canvas, an SVG when it is small, answered by keys, exported as a trace.

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use system_tests::browser::{Browser, Graphics};
use system_tests::hub::Hub;
use system_tests::pictures::{KEEP_FRAMES, pixels};
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::SOON;

/// WebDriver's names of keys.
const RIGHT: char = '\u{e014}';
const DOWN: char = '\u{e015}';

/// Keeps what the page lets the browser save last.
const KEEP_DOWNLOADS: &str = "
    const create = URL.createObjectURL;
    URL.createObjectURL = blob => { window.lastBlob = blob; return create.call(URL, blob); };";

/// A browser of a kind on a hub's page.
struct Page {
    browser: Browser,
    _hub: Hub,
    _runs: Runs,
}

impl Page {
    /// Opens a plan's timeline and waits for the first drawing.
    async fn open(graphics: Graphics, plan: &Value, actions: u64, renderer: &str) -> Result<Page> {
        let runs = Runs::new()?;
        let hub = Hub::start(runs.path())?;
        let browser = Browser::start_with(graphics).await?;
        browser.open(&hub.page()?).await?;
        browser.element("answer-verdict").await?;
        browser.script(KEEP_FRAMES).await?;
        browser.script(KEEP_DOWNLOADS).await?;
        browser.paste("config-paste", &plan.to_string()).await?;
        browser.click("config-apply").await?;
        browser.click("tab-timeline").await?;
        browser.number_when("timeline", "data-actions", SOON, |drawn| drawn == actions as f64).await?;
        let drawn = browser.attribute("timeline", "data-renderer").await?;
        ensure!(drawn.as_deref() == Some(renderer), "drawn by {drawn:?} and not by {renderer}");
        Ok(Page { browser, _hub: hub, _runs: runs })
    }

    /// Presses a key on the timeline.
    async fn key(&self, key: char) -> Result<()> {
        Ok(self.browser.element("timeline").await?.send_keys(&key.to_string()).await?)
    }

    /// The picture: the whole, and from close by.
    async fn pictures(&self) -> Result<Vec<Value>> {
        let mut pictures = vec![pixels(&self.browser, "timeline").await?];
        for key in ['w', '+', '+', 'd'] {
            self.key(key).await?;
        }
        self.browser.number_when("timeline", "data-sight", SOON, |sight| sight < 0.5).await?;
        self.browser
            .script("return new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            .await?;
        pictures.push(pixels(&self.browser, "timeline").await?);
        Ok(pictures)
    }
}

/// Llama 3 8B on one node, with `pp` stages of `vpp` chunks and this many sequences of a step.
fn llama(pp: u64, vpp: u64, sequences: u64) -> Value {
    json!({
        "version": 1,
        "name": "a pipeline",
        "model": { "preset": "llama-3-8b" },
        "cluster": { "gpu": "h100-sxm", "nodes": 1 },
        "layout": { "tp": 8 / pp, "pp": pp, "vpp": vpp },
        "training": { "global_batch_size": sequences },
    })
}

#[tokio::test]
async fn the_gpu_and_the_canvas_draw_the_same_timeline() -> Result<()> {
    // 8 stages, 2 chunks, 128 micro batches: too many for an SVG.
    let plan = llama(8, 2, 128);
    let page = Page::open(Graphics::WebGpu, &plan, 4096, "webgpu").await?;
    let by_gpu = page.pictures().await?;
    let errors = page.browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    drop(page);

    let page = Page::open(Graphics::None, &plan, 4096, "canvas").await?;
    page.browser.screenshot("timeline-of-128-micro-batches").await?;
    let by_canvas = page.pictures().await?;
    page.browser.screenshot("timeline-from-close-by").await?;
    ensure!(by_gpu == by_canvas, "the pictures differ: {by_gpu:#?} and {by_canvas:#?}");
    ensure!(by_canvas.iter().all(|picture| picture["colours"].as_u64() > Some(3)), "{by_canvas:#?}");
    ensure!(by_canvas[0] != by_canvas[1], "{by_canvas:#?}");
    Ok(())
}

#[tokio::test]
async fn a_small_timeline_is_walked_by_keys_and_saved_as_the_command_line_writes_it() -> Result<()> {
    let plan = llama(4, 1, 8);
    let page = Page::open(Graphics::None, &plan, 4 * 8 * 2, "svg").await?;
    let browser = &page.browser;
    let rectangles = browser.script("return document.querySelectorAll('.picture-svg rect').length").await?;
    // Every action, and the ground.
    ensure!(rectangles.as_u64() > Some(64), "{rectangles} rectangles");
    browser.screenshot("timeline-small").await?;

    page.key('+').await?;
    browser.number_when("timeline", "data-sight", SOON, |sight| sight < 0.7).await?;
    page.key('d').await?;
    browser.number_when("timeline", "data-start", SOON, |start| start > 0.0).await?;
    page.key('0').await?;
    browser.number_when("timeline", "data-sight", SOON, |sight| sight == 1.0).await?;

    page.key(RIGHT).await?;
    browser
        .text_when("timeline-says", SOON, |text| text.starts_with("Stage 0, forward of micro batch 0"))
        .await?;
    page.key(RIGHT).await?;
    browser
        .text_when("timeline-says", SOON, |text| text.starts_with("Stage 0, forward of micro batch 1"))
        .await?;
    page.key(DOWN).await?;
    browser.text_when("timeline-says", SOON, |text| text.starts_with("Stage 1, ")).await?;
    browser.click("timeline-path").await?;
    browser.screenshot("timeline-critical-path").await?;

    browser.click("table-toggle").await?;
    let rows =
        browser.script("return document.querySelectorAll('[data-testid=timeline-table] tbody tr').length");
    ensure!(rows.await? == json!(4), "a row for each stage");

    browser.click("timeline-trace").await?;
    let saved = browser.script("return window.lastBlob.text()").await?;
    let folder = tempfile::tempdir()?;
    let (plan_path, trace_path) = (folder.path().join("plan.json"), folder.path().join("trace.json"));
    std::fs::write(&plan_path, plan.to_string())?;
    let mut command = shardplan()?;
    command.arg("estimate").arg(&plan_path).arg("--trace").arg(&trace_path);
    expect_code(&mut command, 0)?;
    let written = std::fs::read_to_string(&trace_path)?;
    ensure!(saved.as_str() == Some(&written), "the page's trace is not the command line's");
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
