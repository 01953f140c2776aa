//! The rank map: drawn by the GPU where the browser has one, and on a 2D canvas where not, and the same either way.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use serde_json::{Value, json};

use system_tests::browser::{Browser, Graphics};
use system_tests::hub::Hub;
use system_tests::pictures::{KEEP_FRAMES, pixels};
use system_tests::runs::Runs;
use system_tests::wait::SOON;

/// Names of the second module's files that the browser has asked for.
const LOADED: &str = "return performance.getEntriesByType('resource')
    .map(entry => entry.name.split('/').pop()).filter(name => name.startsWith('pictures'));";

/// A browser of a kind on a hub's page.
struct Page {
    browser: Browser,
    _hub: Hub,
    _runs: Runs,
}

impl Page {
    async fn open(graphics: Graphics) -> Result<Page> {
        let runs = Runs::new()?;
        let hub = Hub::start(runs.path())?;
        let browser = Browser::start_with(graphics).await?;
        browser.open(&hub.page()?).await?;
        browser.element("answer-verdict").await?;
        browser.script(KEEP_FRAMES).await?;
        Ok(Page { browser, _hub: hub, _runs: runs })
    }

    /// Opens the view and waits for the first drawing.
    async fn map(&self, renderer: &str) -> Result<()> {
        self.browser.click("tab-ranks").await?;
        self.browser.number_when("rank-grid", "data-rank", SOON, |rank| rank == 0.0).await?;
        let drawn = self.browser.attribute("rank-grid", "data-renderer").await?;
        ensure!(drawn.as_deref() == Some(renderer), "drawn by {drawn:?} and not by {renderer}");
        Ok(())
    }

    /// Presses a key on the map.
    async fn key(&self, key: char) -> Result<()> {
        Ok(self.browser.element("rank-grid").await?.send_keys(&key.to_string()).await?)
    }

    /// Presses the map at a share of its width, above its middle.
    async fn press(&self, across: f64) -> Result<()> {
        let script = format!(
            "const map = document.querySelector('[data-testid=rank-grid]'), at = map.getBoundingClientRect();
             for (const kind of ['pointerdown', 'pointerup'])
                 map.dispatchEvent(new PointerEvent(kind, {{bubbles: true, button: 0, pointerId: 1,
                     clientX: at.left + {across} * at.width, clientY: at.top + 0.3 * at.height}}));"
        );
        self.browser.script(&script).await.map(drop)
    }

    /// The picture, after three views of it: the whole, a group lit, and a part from close by.
    async fn pictures(&self) -> Result<Vec<Value>> {
        let mut pictures = vec![pixels(&self.browser, "rank-grid").await?];
        self.key(DOWN).await?;
        self.browser.number_when("rank-grid", "data-rank", SOON, |rank| rank == 4.0).await?;
        self.browser.number_when("rank-grid", "data-lit", SOON, |lit| lit == 4.0).await?;
        pictures.push(pixels(&self.browser, "rank-grid").await?);
        for key in ['+', '+', 'd'] {
            self.key(key).await?;
        }
        self.browser
            .script("return new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
            .await?;
        pictures.push(pixels(&self.browser, "rank-grid").await?);
        Ok(pictures)
    }
}

/// WebDriver's names of keys.
const DOWN: char = '\u{e015}';
const RIGHT: char = '\u{e014}';
const END: char = '\u{e010}';

#[tokio::test]
async fn the_gpu_and_the_canvas_draw_the_same_picture() -> Result<()> {
    let page = Page::open(Graphics::WebGpu).await?;
    let before = page.browser.script(LOADED).await?;
    ensure!(before == json!([]), "loaded before the view was opened: {before}");
    page.map("webgpu").await?;
    let after = page.browser.script(LOADED).await?.to_string();
    ensure!(after.contains("pictures_bg.wasm"), "the second module was not loaded: {after}");
    let by_gpu = page.pictures().await?;
    let errors = page.browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    drop(page);

    let page = Page::open(Graphics::None).await?;
    page.map("canvas").await?;
    let by_canvas = page.pictures().await?;
    page.browser.screenshot("rank-map").await?;
    ensure!(by_gpu == by_canvas, "the pictures differ: {by_gpu:#?} and {by_canvas:#?}");
    ensure!(by_canvas.iter().all(|picture| picture["colours"].as_u64() > Some(4)), "{by_canvas:#?}");
    ensure!(by_canvas[0] != by_canvas[1] && by_canvas[1] != by_canvas[2], "{by_canvas:#?}");

    // What the map lights is in the list too, for whoever does not see the map.
    let groups = page.browser.text("rank-groups").await?;
    ensure!(groups.contains("Groups of rank 4") && groups.contains("4, 5, 6, 7"), "{groups}");
    Ok(())
}

#[tokio::test]
async fn the_map_of_131072_gpus_answers_at_once() -> Result<()> {
    let page = Page::open(Graphics::None).await?;
    page.map("canvas").await?;
    let plan = json!({
        "version": 1,
        "model": { "preset": "llama-3-70b" },
        "cluster": { "gpu": "h100-sxm", "nodes": 16_384, "gpus_per_node": 8 },
        "layout": { "tp": 8, "pp": 8 },
        "training": { "global_batch_size": 4096 },
    });
    page.browser.paste("config-paste", &plan.to_string()).await?;
    page.browser.click("config-apply").await?;
    page.browser.number_when("rank-grid", "data-ranks", SOON, |ranks| ranks == 131_072.0).await?;

    let start = Instant::now();
    page.key(END).await?;
    page.browser.number_when("rank-grid", "data-rank", SOON, |rank| rank == 131_071.0).await?;
    eprintln!("a key on a map of 131,072 GPUs was answered after {:?}", start.elapsed());
    let says = page.browser.text("rank-says").await?;
    ensure!(says.contains("Rank 131071, pp 7, tp 7") && says.contains("node 16383"), "{says}");
    let listed = page.browser.text("rank-groups").await?;
    ensure!(listed.contains("131064, 131065"), "{}", listed.get(..400).context("a list")?);
    page.browser.choose("rank-colour", "node").await?;
    page.browser.text_when("rank-says", SOON, |text| text.contains("tensor group")).await?;
    page.browser.screenshot("rank-map-of-131072").await?;
    Ok(())
}

#[tokio::test]
async fn gpus_are_marked_as_failed_on_the_map() -> Result<()> {
    let page = Page::open(Graphics::None).await?;
    page.map("canvas").await?;
    let plan = json!({
        "version": 1,
        "model": { "preset": "llama-3-8b" },
        "cluster": { "gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8 },
        "layout": { "tp": 8 },
        "training": { "global_batch_size": 128 },
    });
    page.browser.paste("config-paste", &plan.to_string()).await?;
    page.browser.click("config-apply").await?;
    page.browser.number_when("rank-grid", "data-ranks", SOON, |ranks| ranks == 32.0).await?;

    // By keyboard: rank 1 is dead, so its replica goes on with 4 of 8 slots.
    page.key(RIGHT).await?;
    page.browser.number_when("rank-grid", "data-rank", SOON, |rank| rank == 1.0).await?;
    page.key('x').await?;
    let table =
        page.browser.text_when("failed-table", SOON, |text| text.contains("1 replica with 4 of 8")).await?;
    let mut failed = plan.clone();
    failed["cluster"]["failed"] = json!([{"node": 0, "gpu": 1}]);
    let failed = planner::parse_plan(&failed.to_string()).map_err(|findings| anyhow!("{findings:?}"))?;
    let ways = planner::estimate(&failed).nonuniform.context("no answer on failed GPUs")?.alternatives;
    let losses: Vec<String> = ways.iter().map(|way| format!("{:.2} %", way.loss * 100.0)).collect();
    ensure!(losses.len() > 4 && losses.iter().all(|loss| table.contains(loss)), "{losses:?}: {table}");
    ensure!(table.contains("25.00 %"), "{table}");
    // What each way takes is a long sentence, and nothing to scroll to, on a phone neither.
    let beyond = "const box = document.querySelector('[data-testid=failed-table] [role=region]');
        return ['', '360px'].map(width => {
            box.style.width = width;
            const beyond = box.scrollWidth - box.clientWidth;
            box.style.width = '';
            return beyond;
        });";
    let beyond = page.browser.script(beyond).await?;
    ensure!(beyond == json!([0, 0]), "the table of alternatives is wider than its box by {beyond}");
    page.browser
        .text_when("rank-says", SOON, |text| text.contains("inactive") && text.contains("failed"))
        .await?;

    // By a click, once clicks mark: somewhere about the middle of the map is a rank, and not the gap between two.
    page.browser.click("failed-clicks").await?;
    let mut across = 0.5;
    while page.browser.attribute("rank-grid", "data-rank").await?.as_deref() == Some("1") {
        ensure!(across < 0.7, "no rank was clicked");
        across += 0.011;
        page.press(across).await?;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    page.browser.text_when("failed-clear", SOON, |text| text.contains("All 2 failed GPUs")).await?;
    page.press(across).await?;
    page.browser.text_when("failed-clear", SOON, |text| text.contains("All 1 failed GPUs")).await?;
    page.browser.click("failed-clicks").await?;

    // Where no replica is whole, nothing can be planned; the map stays, so that a GPU can be taken back.
    let nowhere = json!({
        "version": 1,
        "model": { "preset": "llama-3-8b" },
        "cluster": { "gpu": "h100-sxm", "nodes": 1, "failed": [{"node": 0, "gpu": 3}, {"rank": 3}] },
        "layout": { "tp": 8 },
    });
    page.browser.paste("config-paste", &nowhere.to_string()).await?;
    page.browser.click("config-apply").await?;
    page.browser.number_when("rank-grid", "data-ranks", SOON, |ranks| ranks == 8.0).await?;
    page.browser.text_when("answer-verdict", SOON, |text| text == "Invalid").await?;
    // One GPU, by whatever names.
    page.browser.text_when("failed-clear", SOON, |text| text.contains("All 1 failed GPUs")).await?;
    page.browser.paste("config-paste", &plan.to_string()).await?;
    page.browser.click("config-apply").await?;
    page.browser.number_when("rank-grid", "data-ranks", SOON, |ranks| ranks == 32.0).await?;
    page.key('x').await?;
    page.browser.element("failed-table").await?;
    page.browser.scroll_to("failed-table").await?;
    page.browser.screenshot("alternatives-for-failed-gpus").await?;

    page.browser.click("failure-study").await?;
    page.browser.text_when("study-table", SOON, |text| text.contains("99.38 %")).await?;
    page.browser.choose("study-against", "2").await?;
    page.browser.text_when("study-table", SOON, |text| text.contains("91.50 %")).await?;
    page.browser.scroll_to("failure-study").await?;
    page.browser.screenshot("failure-study").await?;
    page.browser.click("failed-clear").await?;
    page.browser.scroll_to("rank-grid").await?;
    let errors = page.browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
