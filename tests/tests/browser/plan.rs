//! The page in a real Chromium, with a real hub behind it.
//!
//! Screenshots go to `target/screenshots`, for people to look at.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use planner::wire::{Answer, PlanFile};
use serde_json::{Value, json};

use system_tests::browser::Browser;
use system_tests::hub::Hub;
use system_tests::plans::{four_ranks, plan};
use system_tests::programs::{expect_code, shardplan};
use system_tests::runs::Runs;
use system_tests::wait::{LONG, SOON};

const QWEN3_30B_A3B: &str = include_str!("../../data/qwen3-30b-a3b.config.json");

/// A browser on a hub's page.
struct Page {
    browser: Browser,
    hub: Hub,
    runs: Runs,
}

impl Page {
    async fn open() -> Result<Page> {
        let runs = Runs::new()?;
        let hub = Hub::start(runs.path())?;
        let browser = Browser::start().await?;
        browser.open(&hub.page()?).await?;
        browser.element("answer-verdict").await?;
        Ok(Page { browser, hub, runs })
    }

    /// Opens the page and does a test with it. One that fails leaves a picture behind; one that passes has left no
    /// error in the page's console.
    async fn test(name: &str, test: impl AsyncFnOnce(&Page) -> Result<()>) -> Result<()> {
        let page = Page::open().await?;
        match test(&page).await {
            Ok(()) => page.console_is_clean().await,
            Err(error) => {
                let picture = page.browser.screenshot(&format!("failed-{name}")).await;
                Err(error).with_context(|| format!("the page then: {picture:?}"))
            }
        }
    }

    /// Pastes a config.json or a plan file into the box that takes both.
    async fn paste(&self, text: &str) -> Result<()> {
        self.open_section("model").await?;
        self.browser.paste("config-paste", text).await?;
        self.browser.click("config-apply").await
    }

    async fn open_section(&self, id: &str) -> Result<()> {
        let line = format!("section-{id}");
        if self.browser.attribute(&line, "aria-expanded").await?.as_deref() != Some("true") {
            self.browser.click(&line).await?;
        }
        Ok(())
    }

    /// The plan in the address, which follows the page's plan after a moment.
    async fn plan_in_address(&self) -> Result<PlanFile> {
        tokio::time::sleep(Duration::from_millis(1000)).await;
        let address = self.browser.address().await?;
        let (_, link) =
            address.split_once('#').with_context(|| format!("no plan in the address {address}"))?;
        Ok(planner::link::decode_link(link)?)
    }

    /// The answer that the page shows as JSON.
    async fn answer_text(&self) -> Result<String> {
        self.browser.click("tab-data").await?;
        self.browser.text_when("data-json", SOON, |text| text.trim_start().starts_with('{')).await
    }

    /// Waits for a finding of a kind that has a word in its text.
    async fn finds(&self, kind: &str, word: &str) -> Result<String> {
        let selector = format!("[data-testid=finding]{kind}");
        self.browser.any_text_when(&selector, SOON, |text| text.contains(word)).await
    }

    /// Fails when the page has reported an error or a panic to the console.
    async fn console_is_clean(&self) -> Result<()> {
        let errors = self.browser.console_errors().await?;
        ensure!(errors.is_empty(), "the page's console says {errors:#?}");
        Ok(())
    }
}

#[tokio::test]
async fn a_pasted_config_gives_the_memory_that_planner_computes() -> Result<()> {
    Page::test("a-pasted-config-gives-the-memory-that-planner-computes", async |page| {
        page.paste(QWEN3_30B_A3B).await?;
        page.browser
            .text_when("parameters-total", SOON, |text| text.contains("30.5") || text.contains("30,53"))
            .await?;

        let shown = page.answer_text().await?;
        let answer: Answer = serde_json::from_str(&shown).context("the page's JSON is not an answer")?;
        ensure!(
            answer.parameters.as_ref().is_some_and(|counts| counts.total == 30_532_122_624),
            "{:?}",
            answer.parameters
        );

        let plan = page.plan_in_address().await?;
        ensure!(plan.model.hf_config.is_some(), "the pasted config is not in the plan: {:?}", plan.model);
        let expected = planner::advise(&plan, false, None);
        assert_eq!(answer, expected, "the page and planner, run natively, differ");

        let file = page.runs.beside("plan.json");
        std::fs::write(&file, serde_json::to_string(&plan)?)?;
        let memory = expected.memory.context("no memory for the pasted config")?;
        let code = i32::from(matches!(memory.verdict, planner::wire::Verdict::No));
        let printed = expect_code(shardplan()?.args(["estimate", "--json"]).arg(&file), code)?;
        assert_eq!(
            shown.trim_end(),
            String::from_utf8(printed.stdout)?.trim_end(),
            "the page and the command line differ"
        );

        page.browser.click("tab-memory").await?;
        page.browser
            .text_when("answer-peak", SOON, |text| text.contains(&format!("{:.1}", gib(memory.peak_bytes))))
            .await?;
        page.browser.screenshot("pasted-config").await?;

        // Where a number comes from, in planner's words; another number asks anew.
        for (number, key) in [("answer-peak", "memory.peak_bytes"), ("parameters-total", "parameters.total")]
        {
            let why = planner::why::explain(&plan, key).context(key)?;
            page.browser.click(number).await?;
            let told = |text: &str| text.contains(&why.title) && text.contains(&why.source);
            page.browser.text_when("why-panel", SOON, told).await?;
        }
        page.browser.screenshot("why").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn minimax_m2_has_the_published_weights_per_gpu() -> Result<()> {
    Page::test("minimax-m2-has-the-published-weights-per-gpu", async |page| {
        page.open_section("model").await?;
        page.browser.choose("preset-select", "minimax-m2").await?;
        page.open_section("cluster").await?;
        page.browser.choose("field-cluster-gpu", "h100-sxm").await?;
        page.open_section("layout").await?;
        page.browser.fill("field-layout-pp", "1").await?;
        for (tp, ep, nodes, weights) in
            [(2, 4, 1, "116.40"), (2, 8, 2, "60.23"), (1, 16, 2, "36.10"), (2, 32, 8, "18.10")]
        {
            page.browser.fill("field-cluster-nodes", &nodes.to_string()).await?;
            page.browser.fill("field-layout-tp", &tp.to_string()).await?;
            page.browser.fill("field-layout-ep", &ep.to_string()).await?;
            let shown = page
                .browser
                .text_when("weights-gb", SOON, |text| text.contains(&format!("{weights} GB")))
                .await;
            shown.with_context(|| format!("TP{tp} EP{ep} on {nodes} nodes"))?;
            page.browser.screenshot(&format!("minimax-m2-tp{tp}-ep{ep}")).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_read_gets_a_finding_and_changes_nothing() -> Result<()> {
    Page::test("what-cannot-be-read-gets-a-finding-and-changes-nothing", async |page| {
        let before = page.browser.text("answer-peak").await?;
        for (garbage, word) in [("this is not JSON", "JSON"), ("\"text\"", "object")] {
            page.paste(garbage).await?;
            page.finds("[data-severity=error]", word)
                .await
                .with_context(|| format!("after pasting {garbage}"))?;
        }
        page.browser.screenshot("not-json").await?;
        let file = page.runs.beside("config.json");
        std::fs::write(&file, format!("{{\"model_type\": \"{}\"}}", "x".repeat(50_000_000)))?;
        page.browser.choose_file("config-file", &file).await?;
        page.finds("[data-severity=error]", "47.7 MiB").await.context("after a file of 50 MB")?;
        ensure!(page.browser.text("answer-peak").await? == before, "garbage has changed the plan");
        Ok(())
    })
    .await
}

/// Drops files into the box for a config.json: their names and what is in them.
const DROP: &str = "
    const transfer = new DataTransfer();
    for (const [name, text] of arguments[0]) transfer.items.add(new File([text], name));
    document.querySelector('.config').dispatchEvent(new DragEvent('drop', {dataTransfer: transfer, bubbles: true, cancelable: true}));
";

#[tokio::test]
async fn weights_that_are_dropped_are_held_against_the_model() -> Result<()> {
    Page::test("weights-that-are-dropped-are-held-against-the-model", async |page| {
        let config = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "vocab_size": 1000,
            "num_attention_heads": 4, "num_key_value_heads": 2, "torch_dtype": "bfloat16", "tie_word_embeddings": true,
        });
        let shapes = [
            ("model.embed_tokens.weight", vec![1000, 64]),
            ("model.norm.weight", vec![64]),
            ("model.layers.0.self_attn.q_proj.weight", vec![64, 64]),
            ("model.layers.0.self_attn.k_proj.weight", vec![32, 64]),
            ("model.layers.0.self_attn.v_proj.weight", vec![32, 64]),
            ("model.layers.0.self_attn.o_proj.weight", vec![64, 64]),
            ("model.layers.0.mlp.gate_proj.weight", vec![128, 64]),
            ("model.layers.0.mlp.up_proj.weight", vec![128, 64]),
            ("model.layers.0.mlp.down_proj.weight", vec![64, 128]),
            ("model.layers.0.input_layernorm.weight", vec![64]),
            ("model.layers.0.post_attention_layernorm.weight", vec![64]),
        ];
        let index = |shapes: &[(&str, Vec<u64>)]| {
            let bytes: u64 = shapes.iter().map(|(_, shape)| 2 * shape.iter().product::<u64>()).sum();
            let files: serde_json::Map<String, Value> =
                shapes.iter().map(|(name, _)| ((*name).to_owned(), json!("model.safetensors"))).collect();
            json!({"metadata": {"total_size": bytes}, "weight_map": files}).to_string()
        };
        page.open_section("model").await?;
        let drop = async |files: Value| page.browser.call(DROP, vec![files]).await;
        // Together, in whatever order: the config.json is read first.
        let (whole, config) = (index(&shapes), config.to_string());
        drop(json!([["model.safetensors.index.json", whole], ["config.json", config]])).await?;
        page.finds("[data-severity=info]", "11 tensors are those that are planned").await?;
        page.browser.screenshot("weights-that-match").await?;
        drop(json!([["model.safetensors.index.json", index(&shapes[..7])]])).await?;
        page.finds("[data-severity=warning], [data-severity=error]", "index says").await?;
        page.browser.screenshot("weights-that-do-not").await?;
        // A file of weights names its shapes, and a preset has a config.json too.
        let mut header = serde_json::Map::new();
        let mut at = 0;
        for (name, shape) in &shapes {
            let bytes = 2 * shape.iter().product::<u64>();
            header.insert((*name).to_owned(), json!({"dtype": "BF16", "shape": shape, "data_offsets": [at, at + bytes]}));
            at += bytes;
        }
        let header = serde_json::to_vec(&header)?;
        let file = page.runs.beside("model.safetensors");
        std::fs::write(&file, [&(header.len() as u64).to_le_bytes(), header.as_slice(), &[0xff; 64]].concat())?;
        page.browser.choose_file("config-file", &file).await?;
        page.finds("[data-severity=info]", "11 tensors are those that are planned").await?;
        page.browser.choose("preset-select", "qwen3-0.6b").await?;
        page.browser.choose_file("config-file", &file).await?;
        page.finds("[data-severity=warning], [data-severity=error]", "tensor is of layer").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_unusable_config_says_what_it_lacks_and_can_be_undone() -> Result<()> {
    Page::test("an-unusable-config-says-what-it-lacks-and-can-be-undone", async |page| {
        let before = page.browser.text("answer-peak").await?;
        for (config, word) in [
            // A key that is left out is the class's own; one that is no number is nobody's.
            ("{\"model_type\": \"llama\", \"num_hidden_layers\": \"many\"}", "many"),
            ("{\"model_type\": \"llama\", \"hidden_size\": \"wide\"}", "wide"),
            ("{\"model_type\": \"walrus-9000\", \"hidden_size\": 64}", "walrus-9000"),
        ] {
            page.paste(config).await?;
            page.finds("[data-severity=error]", word)
                .await
                .with_context(|| format!("after pasting {config}"))?;
            page.browser.text_when("answer-verdict", SOON, |text| text.contains("Invalid")).await?;
            page.browser.screenshot(&format!("config-{word}")).await?;
            page.browser.click("undo").await?;
            page.browser.text_when("answer-peak", SOON, |text| text == before).await?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn an_invalid_layout_gets_a_finding_at_its_field() -> Result<()> {
    Page::test("an-invalid-layout-gets-a-finding-at-its-field", async |page| {
        page.open_section("layout").await?;
        page.browser.fill("field-layout-tp", "3").await?;
        page.browser.text_when("answer-verdict", SOON, |text| text.contains("Invalid")).await?;
        page.finds("[data-severity=error][data-field='layout.tp']", "3").await?;
        page.browser.screenshot("invalid-layout").await?;
        page.browser.fill("field-layout-tp", "2").await?;
        page.browser.text_when("answer-verdict", SOON, |text| !text.contains("Invalid")).await?;
        for absurd in ["0", "99999999999999999999", "-1", "18446744073709551615"] {
            page.browser.fill("field-layout-tp", absurd).await?;
            page.finds("[data-severity=error][data-field='layout.tp']", "")
                .await
                .with_context(|| absurd.to_owned())?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_plan_runs_from_the_page_and_its_history_stays() -> Result<()> {
    Page::test("a-plan-runs-from-the-page-and-its-history-stays", async |page| {
        let value = four_ranks("bf16", 100_000);
        page.paste(&value.to_string()).await?;
        page.browser.click("tab-run").await?;
        page.browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
        page.browser.click("run-start").await?;
        page.browser.text_when("run-state", SOON, |text| text.contains("running")).await?;

        // Training, live: the loss of a later step is lower than the first one's.
        page.browser.number_when("step-value", "data-value", LONG, |steps| steps >= 12.0).await?;
        let first: f64 =
            page.browser.attribute("loss-value", "data-first").await?.context("no first loss")?.parse()?;
        page.browser.number_when("loss-value", "data-value", SOON, |loss| loss < first).await?;

        // Measured beside predicted, equal to the byte.
        let expected = static_bytes(&plan(&value)?)?;
        for (category, bytes) in expected {
            for side in ["predicted", "measured"] {
                let hook = format!("{side}-{category}");
                page.browser.number_when(&hook, "data-bytes", SOON, |shown| shown == bytes as f64).await?;
            }
        }
        page.browser.screenshot("running").await?;
        page.browser.scroll_to("measured-weights").await?;
        page.browser.screenshot("measured-and-predicted").await?;

        page.browser.click("run-stop").await?;
        page.browser.text_when("run-state", SOON, |text| text.contains("stopped")).await?;
        let steps = page.browser.number_when("step-value", "data-value", SOON, |steps| steps >= 12.0).await?;

        // A reload has no token in its address and no state in the page: all comes from the session and the run folder.
        page.browser.reload().await?;
        page.browser.click("tab-run").await?;
        page.browser.click("run-item").await?;
        page.browser.text_when("run-state", SOON, |text| text.contains("stopped")).await?;
        page.browser.number_when("step-value", "data-value", SOON, |shown| shown == steps).await?;
        page.browser.screenshot("history").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_plan_for_a_cluster_is_measured_by_its_twin() -> Result<()> {
    Page::test("a-plan-for-a-cluster-is-measured-by-its-twin", async |page| {
        let value = json!({
            "version": 1,
            "model": {"preset": "qwen3-235b-a22b"},
            "cluster": {"gpu": "h100-sxm", "nodes": 8, "gpus_per_node": 8},
            "layout": {"tp": 4, "pp": 2, "ep": 8},
        });
        page.paste(&value.to_string()).await?;
        page.browser.click("tab-run").await?;
        page.browser.text_when("hub-state", SOON, |text| text.contains("connected")).await?;
        page.browser.text_when("twin-says", SOON, |text| text.contains("8 ranks on CPU processes")).await?;
        // What this machine has no GPUs for is not offered to be started, and what can be done is said.
        page.browser.text_when("run-says", SOON, |text| text.contains("can't start it")).await?;
        ensure!(page.browser.elements("run-start").await?.is_empty(), "the plan is offered to be started");
        page.finds("[data-severity=error][data-field='cluster.gpu']", "64 H100").await?;
        let instead = page.browser.text("run-instead").await?;
        ensure!(instead.contains("shardplan verify") && instead.contains("shardplan script"), "{instead}");
        page.browser.click("twin-start").await?;
        page.browser.text_when("run-state", LONG, |text| text.contains("completed")).await?;
        for category in ["weights", "gradients", "optimizer"] {
            let of = async |side: &str| {
                let hook = format!("{side}-{category}");
                page.browser.number_when(&hook, "data-bytes", SOON, |bytes| bytes > 0.0).await
            };
            let (predicted, measured) = (of("predicted").await?, of("measured").await?);
            ensure!(predicted == measured, "{category}: {predicted} predicted, {measured} measured");
        }
        page.browser.screenshot("twin").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn the_token_leaves_the_address_at_once() -> Result<()> {
    Page::test("the-token-leaves-the-address-at-once", async |page| {
        let address = page.browser.address().await?;
        ensure!(!address.contains(page.hub.token()?), "the token is still in the address {address}");
        let kept = page.browser.script("return JSON.stringify(localStorage)").await?;
        ensure!(
            !kept.to_string().contains(page.hub.token()?),
            "the token is kept beyond the session: {kept}"
        );
        Ok(())
    })
    .await
}

#[tokio::test]
async fn back_and_forward_walk_over_edits_and_views() -> Result<()> {
    Page::test("back-and-forward-walk-over-edits-and-views", async |page| {
        let (browser, tp) = (&page.browser, "field-layout-tp");
        let shows = async |view: &str, size: Option<u64>| -> Result<()> {
            for _ in 0..100 {
                let selected = browser.attribute(&format!("tab-{view}"), "aria-selected").await?;
                let address = browser.address().await?;
                let said = address.split_once('#').map(|(_, link)| planner::link::decode_link(link));
                let said = said.transpose().ok().flatten().and_then(|plan| plan.layout.tp);
                if selected.as_deref() == Some("true") && said == size {
                    return Ok(());
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            anyhow::bail!("never showed {view} with tp {size:?}; the address is {}", browser.address().await?)
        };
        page.open_section("layout").await?;
        shows("memory", Some(4)).await?;
        browser.fill(tp, "8").await?;
        shows("memory", Some(8)).await?;
        // Longer than edits that follow each other are one entry.
        tokio::time::sleep(Duration::from_millis(1500)).await;
        browser.fill(tp, "2").await?;
        shows("memory", Some(2)).await?;
        browser.click("tab-timeline").await?;
        for _ in 0..100 {
            if browser.address().await?.ends_with("v=timeline") {
                break;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        shows("timeline", Some(2)).await?;
        browser.back().await?;
        shows("memory", Some(2)).await?;
        browser.back().await?;
        shows("memory", Some(8)).await?;
        let typed = "return document.querySelector('[data-testid=field-layout-tp]').value";
        let typed = browser.script(typed).await?;
        ensure!(typed == json!("8"), "the field shows {typed}");
        browser.back().await?;
        shows("memory", Some(4)).await?;
        for (view, size) in [("memory", 8), ("memory", 2), ("timeline", 2)] {
            browser.forward().await?;
            shows(view, Some(size)).await?;
        }
        browser.reload().await?;
        shows("timeline", Some(2)).await?;
        browser.back().await?;
        shows("memory", Some(2)).await
    })
    .await
}

/// Weights, gradients and optimizer bytes of rank 0 of the plan as the worker runs it.
fn static_bytes(file: &PlanFile) -> Result<[(&'static str, u64); 3]> {
    let plan = planner::Plan::resolve(file).plan.context("the plan has errors")?;
    let memory = planner::estimate(&plan.executed()).memory.context("no memory is predicted")?;
    let class =
        memory.rank_classes.iter().find(|class| class.example_rank == 0).context("rank 0 has no class")?;
    Ok([
        ("weights", class.weights_bytes),
        ("gradients", class.gradients_bytes),
        ("optimizer", class.optimizer_bytes),
    ])
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / (1u64 << 30) as f64
}
