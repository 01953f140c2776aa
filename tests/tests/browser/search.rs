//! The search in the page: by workers off the main thread, streamed, stopped, begun anew; the same answer as the command's.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use planner::search::Request;
use serde_json::{Value, json};

use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, SOON, until};

/// WebDriver's name of a key.
const BACKSPACE: &str = "\u{e003}";

/// A text and the key that ends it.
fn entered(text: &str) -> String {
    format!("{text}\u{e007}")
}

fn plan(nodes: u64) -> Value {
    json!({
        "version": 1,
        "model": { "preset": "qwen3-30b-a3b" },
        "cluster": { "gpu": "h100-sxm", "nodes": nodes },
        "training": { "global_batch_size": 512 },
    })
}

async fn open(browser: &Browser, plan: &Value) -> Result<()> {
    browser.paste("config-paste", &plan.to_string()).await?;
    browser.click("config-apply").await?;
    browser.click("tab-search").await
}

/// Waits for a phase of the search.
async fn phase(browser: &Browser, wanted: &str) -> Result<()> {
    let script =
        format!("return document.querySelector('[data-testid=search-says]')?.dataset.phase === '{wanted}'");
    for _ in 0..SOON.as_millis() / 100 {
        if browser.script(&script).await? == json!(true) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("the search was not {wanted} in {SOON:?}: {}", browser.text("search-says").await?)
}

#[tokio::test]
async fn a_search_in_the_page_finds_what_the_command_finds() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    open(&browser, &plan(8)).await?;
    phase(&browser, "done").await?;
    browser.screenshot("search").await?;

    let file = runs.path().join("plan.json");
    std::fs::write(&file, plan(8).to_string())?;
    let output = expect_code(shardplan()?.arg("search").arg(&file).arg("--json"), 0)?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let best = &answer["rows"][0]["settings"];
    let rows = browser.elements("search-row").await?;
    ensure!(rows.len() == answer["rows"].as_array().context("rows")?.len(), "{} rows", rows.len());
    // Those that fit stand first, then a line, then tight ones.
    let script =
        "return [...document.querySelectorAll('[data-testid=search-row]')].map(row => row.dataset.of)";
    let groups = browser.script(script).await?;
    let expected: Vec<&Value> =
        answer["rows"].as_array().into_iter().flatten().map(|row| &row["group"]).collect();
    ensure!(groups == json!(expected) && groups[0] == "fits", "{groups}");
    ensure!(browser.text("search-tight").await?.contains("upper end of its likely range"));
    let counts = browser.text("search-counts").await?;
    let digits: String = counts.chars().take_while(|letter| *letter != ' ').filter(|c| *c != ',').collect();
    ensure!(json!(digits.parse::<u64>()?) == answer["counts"]["candidates"], "{counts}");

    // The best row becomes the plan, and is not searched for again.
    browser.click("search-row").await?;
    browser.click("tab-data").await?;
    let shown: Value = serde_json::from_str(&browser.text("data-json").await?)?;
    for name in ["tp", "pp", "ep", "vpp"] {
        ensure!(shown["plan"]["layout"][name] == best[name], "{name} {}: {shown}", best[name]);
    }

    // Around failed GPUs, too: a row has what the ranks that are left take, and the plan that is taken keeps them.
    let failed = json!([{"rank": 0}]);
    let around = json!({
        "version": 1,
        "model": { "preset": "llama-3-8b" },
        "cluster": { "gpu": "h100-sxm", "nodes": 1, "failed": failed },
        "training": { "global_batch_size": 32 },
    });
    open(&browser, &around).await?;
    phase(&browser, "done").await?;
    std::fs::write(&file, around.to_string())?;
    let output = expect_code(shardplan()?.arg("search").arg(&file).arg("--json"), 0)?;
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    let peak = answer["rows"][0]["peak_bytes"].as_f64().context("a peak")? / f64::from(1 << 30);
    let row = browser.text("search-row").await?;
    ensure!(row.contains(&format!("{peak:.1}")), "{peak} GiB: {row}");
    browser.click("search-row").await?;
    let peak = format!("{peak:.1}");
    browser.text_when("answer-peak", SOON, |text| text.contains(&peak)).await?;
    browser.click("tab-data").await?;
    let shown: Value = serde_json::from_str(&browser.text("data-json").await?)?;
    ensure!(shown["plan"]["cluster"]["failed"] == failed, "{shown}");
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}

#[tokio::test]
async fn a_search_is_stopped_narrowed_and_begun_anew() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    // A batch with many divisors, so that there is something to stop.
    let mut large = plan(256);
    large["model"]["preset"] = json!("deepseek-v3");
    large["training"]["global_batch_size"] = json!(15_360);
    open(&browser, &large).await?;
    phase(&browser, "looking").await?;
    browser.click("search-cancel").await?;
    phase(&browser, "cancelled").await?;
    // It stays so, whatever workers still say.
    tokio::time::sleep(Duration::from_secs(1)).await;
    phase(&browser, "cancelled").await?;

    // An axis that can't be read is said at its field; one that can narrows the space.
    browser.click("search-axes").await?;
    browser.fill("search-tp", &entered("many")).await?;
    browser.fill("search-tp", &entered("2|4")).await?;
    browser.fill("search-pp", &entered("2..8")).await?;
    phase(&browser, "done").await?;
    let rows = browser.elements("search-row").await?.len();
    ensure!(rows > 2, "{rows} rows");
    // What must stay free is said, read and heeded.
    browser.scroll_to("search-margin").await?;
    browser.fill("search-margin", &entered("much")).await?;
    browser.text_when("search-margin-said", SOON, |text| text.contains("4GiB")).await?;
    browser.fill("search-margin", &entered("20 GiB")).await?;
    phase(&browser, "done").await?;
    browser.text_when("search-tight", SOON, |text| text.contains("20.00 GiB")).await?;
    browser.fill("search-ask", &entered("tp=8")).await?;
    browser.text_when("search-reasons", SOON, |text| text.contains("TP 8")).await?;

    // Nothing fits on one GPU: what would is said.
    let mut small = plan(1);
    small["cluster"]["gpus_per_node"] = json!(1);
    small["model"]["preset"] = json!("llama-3.1-405b");
    browser.paste("config-paste", &small.to_string()).await?;
    browser.click("config-apply").await?;
    browser.scroll_to("search-axes").await?;
    browser.fill("search-tp", &entered(BACKSPACE)).await?;
    browser.fill("search-pp", &entered(BACKSPACE)).await?;
    phase(&browser, "done").await?;
    browser.element("search-relief").await?;
    // What was in mind is answered anew, and so is what is no plan and what does not fit.
    browser.text_when("search-reasons", SOON, |text| text.contains("no plan with tp=8 is valid")).await?;
    browser.fill("search-ask", &entered("tp=1")).await?;
    browser
        .text_when("search-reasons", SOON, |text| text.contains("nothing fits, whatever is chosen"))
        .await?;
    browser.fill("search-ask", &entered(BACKSPACE)).await?;

    // What would is a click away.
    small["model"]["preset"] = json!("llama-3-8b");
    browser.paste("config-paste", &small.to_string()).await?;
    browser.click("config-apply").await?;
    browser.text_when("answer-verdict", SOON, |text| !text.contains("Fits")).await?;
    phase(&browser, "done").await?;
    browser.click("search-remedy").await?;
    browser.text_when("answer-verdict", SOON, |text| text.contains("Fits")).await?;
    Ok(())
}

#[tokio::test]
async fn a_worker_that_stops_is_said_and_replaced() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    // One worker ends when it is asked to work on something, and at every later word: it never says that it did. Workers may
    // be there already, so what all of them are spoken to with is changed.
    let script = "const send = Worker.prototype.postMessage; let dying; \
        Worker.prototype.postMessage = function (...given) { \
            if ((dying ?? this) === this && JSON.stringify(given).includes('Work')) { dying = this; this.terminate(); } \
            send.apply(this, given); \
        }; return true";
    ensure!(browser.script(script).await? == json!(true));
    open(&browser, &plan(8)).await?;
    phase(&browser, "done").await?;
    let said = browser.text("search-mishap").await?;
    ensure!(said.contains("started again"), "{said}");
    ensure!(!browser.elements("search-row").await?.is_empty());
    Ok(())
}

/// What a search takes on one core: a worker in the page, then a thread of the command; both evaluate as many.
async fn on_one_core(browser: &Browser, plan: &Value) -> Result<[f64; 2]> {
    let file = planner::parse_plan(&plan.to_string()).map_err(|findings| anyhow!("{findings:?}"))?;
    let request = Request::new(file);
    let sent = [json!(request), json!(request.architecture()), json!(planner::data::texts())];
    browser.call(include_str!("one_worker.js"), sent.to_vec()).await?;
    let done = until("a worker's search", SOON, || async {
        let failed = browser.script("return window.failed").await?;
        ensure!(failed.is_null(), "{failed}");
        let done = browser.script("return window.seconds").await?;
        Ok(if done.is_null() { Attempt::NotYet("still at work".to_owned()) } else { Attempt::Ready(done) })
    });
    let done = done.await?;
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), plan.to_string())?;
    let began = Instant::now();
    let output = expect_code(shardplan()?.args(["search", "--threads", "1", "--json"]).arg(file.path()), 0)?;
    let native = began.elapsed().as_secs_f64();
    let answer: Value = serde_json::from_slice(&output.stdout)?;
    ensure!(answer["counts"]["valid"] == done["valid"], "{} and {done}", answer["counts"]);
    Ok([done["seconds"].as_f64().context("no seconds")?, native])
}

/// Bytes that the page may take while it searches.
const MOST_BYTES: u64 = 300_000_000;

/// What searches cost in the page, printed: a small one in the test command, and as `cargo xtask soak --only search` wants them
/// the largest, so many times. They come to the same counts each time.
#[allow(clippy::print_stdout, reason = "what it measures is for whoever asked")]
#[tokio::test]
async fn what_searches_cost_is_printed() -> Result<()> {
    let times = std::env::var("SHARDPLAN_SEARCHES").ok().and_then(|text| text.parse::<u32>().ok());
    let of = |preset: &str, nodes: u64, sequence: u64| {
        let mut plan = plan(nodes);
        plan["model"]["preset"] = json!(preset);
        plan["training"] = json!({ "global_batch_size": 2048, "seq_len": sequence });
        plan
    };
    let plans = match times {
        None => vec![plan(4)],
        Some(_) => vec![of("deepseek-v3", 256, 4096), of("llama-3.1-405b", 2048, 8192)],
    };
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    let watch = "window.tasks = []; new PerformanceObserver(list => { for (const task of list.getEntries()) \
        window.tasks.push([Math.round(task.startTime), Math.round(task.duration)]) }).observe({ type: 'longtask', buffered: true })";
    browser.script(watch).await?;
    // The page starts its workers when it has nothing to do for a while.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for plan in &plans {
        let mut counts = Vec::new();
        for _ in 0..times.unwrap_or(2) {
            let begun = browser.script("return Math.round(performance.now())").await?;
            open(&browser, plan).await?;
            phase(&browser, "done").await?;
            counts.push(browser.text("search-counts").await?);
            let (says, bytes) = (browser.text("search-says").await?, browser.page_bytes()?);
            println!(
                "{}: begun {begun} ms after loading, {says}, {bytes} bytes of its own",
                plan["model"]["preset"]
            );
            ensure!(bytes < MOST_BYTES, "the page takes {bytes} bytes");
            browser.click("tab-memory").await?;
        }
        counts.dedup();
        ensure!(counts.len() == 1, "{counts:#?}");
    }
    // Side by side, since what else the machine does changes both.
    for plan in &plans {
        for _ in 0..times.unwrap_or(1) {
            let [page, native] = on_one_core(&browser, plan).await?;
            println!(
                "{} on one core: {page:.2} s by a worker in the page, {native:.2} s by a thread of the command, {:.2} of its speed",
                plan["model"]["preset"],
                native / page
            );
        }
    }
    println!(
        "tasks of 50 ms or more, begun and as long as [ms]: {}",
        browser.script("return window.tasks").await?
    );
    Ok(())
}
