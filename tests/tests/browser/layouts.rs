//! Layouts and slices on the page: the same lists as on the command line, and a layout is one click from being the plan.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::SOON;

/// A mixture of experts on two nodes; it has hundreds of layouts there.
fn two_nodes(preset: &str) -> Value {
    json!({
        "version": 1,
        "name": "sixteen GPUs",
        "model": {"preset": preset},
        "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8},
        "layout": {"tp": 2},
        "training": {"global_batch_size": 16},
    })
}

async fn open(runs: &Runs, plan: &Value) -> Result<(Hub, Browser)> {
    let hub = Hub::start(runs.path())?;
    let browser = Browser::start().await?;
    browser.open(&hub.page()?).await?;
    browser.element("answer-verdict").await?;
    browser.paste("config-paste", &plan.to_string()).await?;
    browser.click("config-apply").await?;
    browser.text_when("plan-name", SOON, |name| name.contains("sixteen GPUs")).await?;
    Ok((hub, browser))
}

/// What the command line prints of the plan as JSON.
fn printed(runs: &Runs, plan: &Value, arguments: &[&str]) -> Result<Value> {
    let file = runs.beside("plan.json");
    std::fs::write(&file, plan.to_string())?;
    let mut command = shardplan()?;
    command.arg(arguments[0]).arg(&file).args(&arguments[1..]).arg("--json");
    Ok(serde_json::from_slice(&expect_code(&mut command, 0)?.stdout)?)
}

#[tokio::test]
async fn layouts_are_the_command_lines_and_one_click_from_being_the_plan() -> Result<()> {
    let (runs, plan) = (Runs::new()?, two_nodes("mixtral-8x7b"));
    let listed = printed(&runs, &plan, &["layouts"])?;
    let listed = listed["layouts"].as_array().context("no layouts were printed")?.clone();
    ensure!(listed.len() > 50, "too few layouts to fill a page: {}", listed.len());
    let (_hub, browser) = open(&runs, &plan).await?;
    browser.click("tab-layouts").await?;
    let count = listed.len() as f64;
    browser.number_when("layouts-table", "data-count", SOON, |shown| shown == count).await?;

    // All pages together are the command line's list, in its order.
    let rows = on_all_pages(&browser, "layout-row", "row.dataset.of").await?;
    let key = |layout: &Value| {
        ["tp", "cp", "pp", "vpp", "ep", "etp"].map(|axis| layout[axis].to_string()).join("-")
    };
    assert_eq!(rows, listed.iter().map(|layout| json!(key(layout))).collect::<Vec<_>>());

    // A filter keeps what has that size.
    browser.choose("layouts-filter-pp", "2").await?;
    let staged: Vec<&Value> = listed.iter().filter(|layout| layout["pp"] == 2).collect();
    ensure!(!staged.is_empty(), "no layout has two stages");
    browser.number_when("layouts-table", "data-kept", SOON, |kept| kept == staged.len() as f64).await?;

    // A click makes a row the plan, and undo takes it back.
    let before = browser.text("answer-peak").await?;
    let chosen = key(staged[0]);
    browser.selected(&format!("[data-of='{chosen}']")).await?.click().await?;
    browser.selected(&format!("[data-of='{chosen}'][aria-current=true]")).await?;
    browser.text_when("answer-peak", SOON, |peak| peak != before).await?;
    let shown = browser.element("field-layout-pp").await?.prop("value").await?;
    ensure!(shown.as_deref() == Some("2"), "the form shows {shown:?} stages");
    browser.screenshot("layouts").await?;
    browser.click("undo").await?;
    browser.text_when("answer-peak", SOON, |peak| peak == before).await?;
    clean(&browser).await
}

#[tokio::test]
async fn a_row_has_the_memory_of_the_plan_that_it_makes_where_fields_are_open() -> Result<()> {
    let (runs, mut plan) = (Runs::new()?, two_nodes("mixtral-8x7b"));
    plan["choose"] = json!("all");
    plan["layout"] = json!({});
    let (_hub, browser) = open(&runs, &plan).await?;
    browser.text_when("choice", SOON, |text| text.starts_with("The best of")).await?;
    browser.click("tab-layouts").await?;
    let last = "[data-testid=layout-row]:last-child td:nth-child(3)";
    browser.any_text_when(last, SOON, |text| text.starts_with(|c: char| c.is_ascii_digit())).await?;
    let rows = "return Array.from(document.querySelectorAll('[data-testid=layout-row]:not([aria-current=true])'), \
        row => [row.dataset.of, row.cells[2].textContent])";
    let rows: Vec<(String, String)> = serde_json::from_value(browser.script(rows).await?)?;
    for (of, memory) in rows.iter().step_by(rows.len() / 3) {
        browser.selected(&format!("[data-of='{of}']")).await?.click().await?;
        browser
            .text_when("answer-peak", SOON, |peak| peak == memory)
            .await
            .with_context(|| format!("layout {of}, of which the list says {memory} GiB"))?;
        browser.click("undo").await?;
        browser.text_when("choice", SOON, |text| text.starts_with("The best of")).await?;
    }
    clean(&browser).await
}

#[tokio::test]
async fn a_broken_layout_has_findings_and_still_a_list() -> Result<()> {
    let (runs, plan) = (Runs::new()?, two_nodes("mixtral-8x7b"));
    let listed = printed(&runs, &plan, &["layouts"])?["layouts"].as_array().map_or(0, Vec::len) as f64;
    let (_hub, browser) = open(&runs, &plan).await?;
    browser.click("tab-layouts").await?;
    browser.fill("field-layout-tp", "3").await?;
    browser.selected("[data-testid=finding][data-severity=error][data-field='layout.tp']").await?;
    browser.text_when("answer-verdict", SOON, |verdict| verdict.contains("Invalid")).await?;
    browser.number_when("layouts-table", "data-count", SOON, |shown| shown == listed).await?;
    browser.screenshot("layouts-of-a-broken-plan").await?;
    browser.click("layout-row").await?;
    browser.text_when("answer-verdict", SOON, |verdict| !verdict.contains("Invalid")).await?;
    // A GPU's memory of the layouts on screen comes one after the other.
    let has_verdict = |text: &str| text.contains("fit") || text.contains("Fits") || text.contains("Tight");
    browser.any_text_when("[data-testid=layout-row]:last-child", SOON, has_verdict).await?;
    clean(&browser).await
}

#[tokio::test]
async fn slices_of_a_rank_are_the_command_lines() -> Result<()> {
    let (runs, mut plan) = (Runs::new()?, two_nodes("tiny-moe"));
    for (runtime, rank) in [("megatron", 5), ("fsdp2", 9)] {
        plan["runtime"] = json!(runtime);
        let shards = printed(&runs, &plan, &["shards", "--rank", &rank.to_string()])?;
        let params = shards["params"].as_array().context("no slices were printed")?;
        let elements = |param: &Value| -> u64 {
            param["local_shape"].as_array().into_iter().flatten().filter_map(Value::as_u64).product()
        };
        let (_hub, browser) = open(&runs, &plan).await?;
        browser.click("tab-shards").await?;
        browser.fill("shards-rank", &format!("{rank}\n")).await?;
        browser.number_when("shards-table", "data-rank", SOON, |shown| shown == f64::from(rank)).await?;
        let total: u64 = params.iter().map(elements).sum();
        browser.number_when("shards-table", "data-elements", SOON, |shown| shown == total as f64).await?;
        browser.click("shards-open").await?;
        let slice = "[row.cells[0].textContent, Number(row.cells[6].textContent.replaceAll(',', ''))]";
        let rows = on_all_pages(&browser, "shard-row", slice).await?;
        let expected: Vec<Value> =
            params.iter().map(|param| json!([param["name"], elements(param)])).collect();
        assert_eq!(rows, expected, "{runtime}");

        // The buffers that hold them have the weights that memory counts.
        let answer = planner::estimate(&system_tests::plans::plan(&plan)?);
        let classes = answer.memory.context("no memory")?.rank_classes;
        let weights =
            browser.number_when("shards-table", "data-weights-bytes", SOON, |bytes| bytes > 0.0).await?;
        let is_of_class = classes.iter().any(|class| class.weights_bytes as f64 == weights);
        ensure!(is_of_class, "{weights} bytes of weights are in none of {classes:?}");
        browser.screenshot(&format!("shards-{runtime}")).await?;
        clean(&browser).await?;
    }
    Ok(())
}

#[tokio::test]
async fn fields_of_a_runtime_are_there_only_with_it() -> Result<()> {
    let (runs, plan) = (Runs::new()?, two_nodes("tiny-moe"));
    let (_hub, browser) = open(&runs, &plan).await?;
    if browser.attribute("section-training", "aria-expanded").await?.as_deref() != Some("true") {
        browser.click("section-training").await?;
    }
    let fields = ["dp-replicate", "fsdp-strategy", "fsdp-reshard-after-forward", "tp-plan"];
    for (runtime, expected) in [
        ("fsdp2", [true, false, true, true]),
        ("megatron_fsdp", [true, true, false, false]),
        ("megatron", [false; 4]),
    ] {
        browser.choose("field-runtime", runtime).await?;
        for (field, there) in fields.iter().zip(expected) {
            let found = browser.elements(&format!("field-layout-{field}")).await?.len();
            ensure!(found == usize::from(there), "{runtime}: {found} fields {field}");
        }
    }
    clean(&browser).await
}

/// What a JavaScript expression says of each row of a long table, over all its pages.
async fn on_all_pages(browser: &Browser, hook: &str, of_row: &str) -> Result<Vec<Value>> {
    let turn = |button: &str| {
        format!(
            "const button = document.querySelector('[data-testid={button}]'); \
            const more = !button.disabled; button.click(); return more"
        )
    };
    let (before, after) = (turn("page-before"), turn("page-after"));
    while browser.script(&before).await? == true {}
    let read =
        format!("return Array.from(document.querySelectorAll('[data-testid={hook}]'), row => {of_row})");
    let mut rows: Vec<Value> = Vec::new();
    loop {
        rows.extend(serde_json::from_value::<Vec<Value>>(browser.script(&read).await?)?);
        ensure!(rows.len() < 100_000, "the pages of {hook} don't end");
        if browser.script(&after).await? != true {
            return Ok(rows);
        }
    }
}

async fn clean(browser: &Browser) -> Result<()> {
    let errors = browser.console_errors().await?;
    ensure!(errors.is_empty(), "the page's console says {errors:#?}");
    Ok(())
}
