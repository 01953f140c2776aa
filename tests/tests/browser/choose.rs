//! Open fields on the page: model and cluster are enough, what is touched is held, and an error takes no picture away.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, LONG, SOON, until};

async fn open(url: &str) -> Result<Browser> {
    let browser = Browser::start().await?;
    browser.open(url).await?;
    browser.element("answer-verdict").await?;
    Ok(browser)
}

/// Waits until nothing is left to choose, and gives what the page says of it.
async fn chosen(browser: &Browser) -> Result<String> {
    browser.text_when("choice", SOON, |text| text.starts_with("The best of")).await
}

/// The answer that the page shows as JSON.
async fn answer(browser: &Browser) -> Result<Value> {
    browser.click("tab-data").await?;
    let text = browser.text_when("data-json", SOON, |text| text.trim_start().starts_with('{')).await?;
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test]
async fn model_and_cluster_are_enough() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = open(&hub.url).await?;
    chosen(&browser).await?;
    browser.text_when("answer-verdict", SOON, |text| text == "Fits").await?;
    browser.screenshot("chosen-at-once").await?;
    browser.choose("preset-select", "deepseek-v3").await?;
    browser.fill("field-cluster-nodes", "32").await?;
    browser.text_when("plan-name", SOON, |name| name.contains("deepseek-v3 on 256")).await?;
    chosen(&browser).await?;
    browser.text_when("answer-verdict", SOON, |text| text == "Fits").await?;
    browser.screenshot("deepseek-v3-chosen").await?;

    // What the command chooses.
    let printed = expect_code(
        shardplan()?.args(["plan", "--model", "deepseek-v3", "--gpu", "h100-sxm", "--nodes", "32", "--json"]),
        0,
    )?;
    let printed: Value = serde_json::from_slice(&printed.stdout)?;
    let shown = answer(&browser).await?;
    for part in ["layout", "training"] {
        ensure!(shown["plan"][part] == printed["plan"][part], "{} and {}", shown["plan"], printed["plan"]);
    }
    ensure!(shown["chosen"] == printed["chosen"], "{} and {}", shown["chosen"], printed["chosen"]);
    browser.click("tab-script").await?;
    browser.text_when("script-text", SOON, |text| text.contains("#SBATCH")).await?;

    // A model with a cluster of its own takes nothing away for good.
    browser.choose("preset-select", "tiny-moe").await?;
    browser.text_when("section-cluster", SOON, |text| text.contains("CPU")).await?;
    browser.choose("preset-select", "qwen3-8b").await?;
    browser.text_when("section-cluster", SOON, |text| text.contains("32 x 8")).await?;
    browser.choose("preset-select", "tiny-moe").await?;
    browser.text_when("section-cluster", SOON, |text| text.contains("CPU")).await?;
    let config = json!({
        "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128_256,
    });
    browser.paste("config-paste", &config.to_string()).await?;
    browser.click("config-apply").await?;
    browser.text_when("section-cluster", SOON, |text| text.contains("32 x 8")).await?;
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}

#[tokio::test]
async fn what_is_touched_is_held_and_the_rest_follows() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = open(&hub.url).await?;
    chosen(&browser).await?;
    ensure!(browser.text("field-layout-tp-pin").await? == "chosen");
    browser.fill("field-layout-pp", "16").await?;
    browser.text_when("field-layout-pp-pin", SOON, |text| text == "held").await?;
    chosen(&browser).await?;
    let shown = answer(&browser).await?;
    ensure!(shown["plan"]["layout"]["pp"] == json!(16), "{}", shown["plan"]["layout"]);
    ensure!(shown["memory"]["verdict"] == json!("fits"), "{}", shown["memory"]["verdict"]);
    // What no plan has says what would have to give way.
    browser.fill("field-layout-pp", "5").await?;
    browser.text_when("choice", SOON, |text| text.starts_with("Nothing")).await?;
    browser.any_text_when("[data-testid=finding]", SOON, |text| text.contains("layout.pp left open")).await?;
    // The command line has no answer either, and says the same.
    browser.click("tab-data").await?;
    let file = runs.beside("nothing.json");
    std::fs::write(&file, browser.text("data-plan").await?)?;
    let printed = expect_code(shardplan()?.args(["estimate", "--json"]).arg(&file), 1)?;
    let printed = String::from_utf8(printed.stdout)?;
    browser.text_when("data-json", SOON, |text| text == printed).await.with_context(|| printed.clone())?;
    browser.click("field-layout-pp-pin").await?;
    browser.text_when("field-layout-pp-pin", SOON, |text| text == "chosen").await?;
    chosen(&browser).await?;
    browser.click("pin-all").await?;
    // Nothing is open any more.
    browser.text_when("open-all", SOON, |text| text == "Choose for me").await?;
    let held = answer(&browser).await?;
    ensure!(held["chosen"].is_null(), "{}", held["chosen"]);
    browser.click("open-all").await?;
    chosen(&browser).await?;
    Ok(())
}

/// Notes from now on, whenever the answer line changes, what it says of the plan before and which figures it shows.
const WATCH: &str = "
    const text = hook => document.querySelector(`[data-testid=${hook}]`)?.textContent ?? null;
    window.noted = [];
    const note = () => window.noted.push({mark: text('answer-earlier'), step: text('answer-step'), peak: text('answer-peak')});
    new MutationObserver(note).observe(document.querySelector('header.answer'), {childList: true, subtree: true, characterData: true});
";

#[tokio::test]
async fn while_a_plan_is_chosen_the_last_answer_stands_and_says_so() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = open(&hub.url).await?;
    chosen(&browser).await?;
    let before = (browser.text("answer-step").await?, browser.text("answer-peak").await?);
    ensure!(
        browser.elements("answer-earlier").await?.is_empty(),
        "the plan itself is said to be of one before"
    );
    browser.script(WATCH).await?;
    browser.choose("preset-select", "qwen3-32b").await?;
    browser.text_when("answer-step", SOON, |step| step != before.0).await?;
    chosen(&browser).await?;
    let noted = browser.script("return window.noted").await?;
    let marked: Vec<&Value> =
        noted.as_array().into_iter().flatten().filter(|note| !note["mark"].is_null()).collect();
    ensure!(!marked.is_empty(), "nothing was said while the plan was chosen: {noted}");
    for note in marked {
        ensure!(note["mark"].as_str().is_some_and(|mark| mark.contains("plan before")), "{note}");
        ensure!(
            (&note["step"], &note["peak"]) == (&json!(before.0), &json!(before.1)),
            "{note}, not {before:?}"
        );
    }
    ensure!(
        browser.elements("answer-earlier").await?.is_empty(),
        "the choice is made, and still said to be open"
    );

    // A plan whose fields are given is an answer, too.
    browser.click("pin-all").await?;
    browser.text_when("open-all", SOON, |text| text == "Choose for me").await?;
    browser.script(WATCH).await?;
    browser.click("open-all").await?;
    browser.text_when("choice", SOON, |text| text.starts_with("The best of")).await?;
    let noted = browser.script("return window.noted").await?;
    let blank = noted.as_array().into_iter().flatten().find(|note| note["step"].is_null());
    ensure!(blank.is_none(), "the answer line was blank while the plan was chosen: {noted}");
    Ok(())
}

#[tokio::test]
async fn an_error_takes_no_picture_away_and_offers_to_keep_what_was_meant() -> Result<()> {
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = open(&hub.page()?).await?;
    browser.text_when("answer-verdict", SOON, |text| text != "Invalid").await?;
    browser.fill("field-layout-tp", "3").await?;
    browser.text_when("answer-verdict", SOON, |text| text == "Invalid").await?;
    browser.element("memory-chart").await.context("the chart is gone")?;
    browser.text_when("drawn", SOON, |text| text.contains("last plan without errors")).await?;
    for tab in ["timeline", "ranks", "shards", "script"] {
        browser.click(&format!("tab-{tab}")).await?;
        let view = browser.script("return document.getElementById('view').innerText").await?;
        let view = view.as_str().unwrap_or_default();
        ensure!(!view.contains("appears once the plan has no errors"), "{tab} is blank: {view}");
    }
    browser.screenshot("an-error-keeps-the-picture").await?;
    browser.fill("field-layout-tp", "4").await?;
    browser.fill("field-layout-pp", "32").await?;
    browser.click("choose-rest").await?;
    chosen(&browser).await?;
    browser.text_when("answer-verdict", SOON, |text| text != "Invalid").await?;
    let shown = answer(&browser).await?;
    ensure!(shown["plan"]["layout"]["pp"] == json!(32), "{}", shown["plan"]["layout"]);
    Ok(())
}

/// How soon a plan is chosen in the page, printed: of few models in the test command, and as `cargo xtask soak --only choices` wants them
/// of all, on each of its clusters, named `GPU:NODES`.
#[allow(clippy::print_stdout, reason = "what it measures is for whoever asked")]
#[tokio::test]
async fn what_choices_take_is_printed() -> Result<()> {
    let clusters = std::env::var("SHARDPLAN_CHOICES").ok();
    let models = match clusters {
        None => json!(["llama-3-70b", "deepseek-v3"]),
        Some(_) => json!([]),
    };
    let clusters = clusters.unwrap_or_else(|| "h100-sxm:32".to_owned());
    let runs = Runs::new()?;
    let hub = Hub::start(runs.path())?;
    let browser = open(&hub.url).await?;
    chosen(&browser).await?;
    // The page warms its workers when it has nothing to do for a while.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for cluster in clusters.split(',') {
        let (gpu, nodes) = cluster.split_once(':').context("a cluster is GPU:NODES")?;
        let plan = json!({
            "version": 1, "choose": "all",
            "model": { "preset": "qwen3-8b" }, "cluster": { "gpu": gpu, "nodes": nodes.parse::<u64>()? },
        });
        browser.paste("config-paste", &plan.to_string()).await?;
        browser.click("config-apply").await?;
        browser.call(include_str!("choices.js"), vec![models.clone()]).await?;
        until("choices in the page", LONG, || async {
            let all: bool = serde_json::from_value(browser.script("return window.all_made").await?)?;
            if all {
                return Ok(Attempt::Ready(()));
            }
            // Who asks all the time is waited for by what is measured.
            tokio::time::sleep(Duration::from_secs(1)).await;
            Ok(Attempt::NotYet(format!("{} are made", browser.script("return window.made.length").await?)))
        })
        .await?;
        let mut made: Vec<(String, f64, String)> =
            serde_json::from_value(browser.script("return window.made").await?)?;
        ensure!(!made.is_empty(), "nothing was chosen");
        made.sort_by(|one, other| other.1.total_cmp(&one.1));
        // The least milliseconds within which so many of a hundred are made.
        let within = |percent: usize| made[made.len() - (made.len() * percent).div_ceil(100)].1;
        let soon = made.iter().filter(|(_, milliseconds, _)| *milliseconds <= 300.0).count();
        let fit = made.iter().filter(|(_, _, said)| said.starts_with("The best of")).count();
        println!(
            "{gpu}, {nodes} nodes: {} models, {fit} fit; median {:.0} ms, 95 % {:.0} ms, within 300 ms {soon}",
            made.len(),
            within(50),
            within(95),
        );
        for (model, milliseconds, said) in made.iter().take(4) {
            println!("    {model}: {milliseconds:.0} ms. {said}");
        }
    }
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
