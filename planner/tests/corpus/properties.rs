//! What holds for any bytes: one function for each fuzz target. The fuzz targets and the replay of the corpora both
//! include this file.
//!
//! Time is watched from outside: by the fuzzer's `-timeout`, and by the replay.

// A fuzz target uses one of them, the replay all.
#![allow(dead_code)]

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use planner::finding::has_error;
use planner::link::{decode_link, encode_link};
use planner::wire::{Answer, PlanFile};
use serde_json::{Map, Value, json};

/// A pasted config.json is imported or refused with an error, alone and in plans of every runtime.
pub fn hf_config(bytes: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Map<String, Value>>(bytes) else { return };
    let imported = planner::model::import_hf(&config);
    assert_ne!(
        imported.architecture.is_some(),
        has_error(&imported.findings),
        "an architecture or an error, not both, not neither: {:?}",
        imported.findings
    );
    let config = Value::Object(config);
    for (runtime, layout) in [
        ("megatron", json!({"tp": 2, "pp": 2})),
        ("fsdp2", json!({"dp_replicate": 2})),
        ("megatron_fsdp", json!({})),
        ("native", json!({"tp": 2})),
    ] {
        let answer = answer_of(&json!({
            "version": 1,
            "model": {"hf_config": &config},
            "cluster": {"gpu": "h100-sxm", "nodes": 2},
            "runtime": runtime,
            "layout": layout,
            "training": {"global_batch_size": 64},
        }));
        assert!(
            imported.architecture.is_some() || answer.memory.is_none(),
            "{runtime}: memory of a model that was not imported"
        );
    }
}

/// A layout string is cut into stages that hold every layer once, or refused, alone and in a plan.
pub fn layout_string(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let parsed = planner::layout::parse_layout_string(text);
    let (mut layers, mut stages) = (1, 2);
    if let Ok(chunks) = &parsed {
        layers = 0;
        for chunk in chunks {
            assert_eq!(chunk.layers.start, layers, "stages hold the layers in order: {chunks:?}");
            layers = chunk.layers.end;
        }
        stages = chunks.len();
        assert!(chunks.first().is_some_and(|chunk| chunk.embedding), "{chunks:?}");
        assert!(chunks.last().is_some_and(|chunk| chunk.loss), "{chunks:?}");
    }
    // As stages of one chunk, and as chunks of two stages.
    for pipeline_stages in [stages, 2] {
        let answer = answer_of(&json!({
            "version": 1,
            "model": {"hf_config": {
                "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": layers,
                "num_attention_heads": 4, "vocab_size": 256,
            }},
            "cluster": {"gpu": "h100-sxm", "nodes": pipeline_stages, "gpus_per_node": 2},
            "layout": {"pp": pipeline_stages, "pipeline_layout": text},
            "training": {
                "global_batch_size": 2 * pipeline_stages,
                "mtp_layers": planner::layout::mtp_of_layout_string(text),
            },
        }));
        assert!(parsed.is_ok() || answer.memory.is_none(), "memory of a layout that is refused: {parsed:?}");
    }
}

/// A plan file is refused with a finding, or answered; and its answer stays the same when the file goes through JSON.
pub fn plan_file(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    match planner::parse_plan(text) {
        Err(findings) => assert!(has_error(&findings), "refused without a reason: {findings:?}"),
        Ok(file) => check_plan(&file),
    }
}

/// A link is read or refused, as it stands and as its packed part; what is read comes through a link unchanged.
pub fn link(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        check_link(text);
    }
    check_link(&format!("p=1.{}", URL_SAFE_NO_PAD.encode(bytes)));
}

fn check_link(text: &str) {
    match decode_link(text) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(file) => {
            let again = decode_link(&encode_link(&file)).expect("our own link is read");
            assert_eq!(text_of(&planner::estimate(&plain(&file))), text_of(&planner::estimate(&again)));
            check_plan(&file);
        }
    }
}

/// A plan file without what was said of the words in which it was written.
fn plain(file: &PlanFile) -> PlanFile {
    PlanFile { remarks: Vec::new(), ..file.clone() }
}

fn check_plan(file: &PlanFile) {
    let file = &plain(file);
    let answer = planner::estimate(file);
    check_answer(&answer);
    let written = serde_json::to_string(file).expect("a plan file is JSON");
    let again = planner::parse_plan(&written).expect("our own plan file is read");
    assert_eq!(text_of(&answer), text_of(&planner::estimate(&again)), "through JSON: {written}");
}

fn answer_of(plan: &Value) -> Answer {
    let file = planner::parse_plan(&plan.to_string()).expect("a well-formed plan file is read");
    let answer = planner::estimate(&file);
    check_answer(&answer);
    answer
}

/// Memory or an error; sums that add up; JSON that is read as it was written.
fn check_answer(answer: &Answer) {
    let refused = has_error(&answer.findings);
    assert_ne!(answer.memory.is_some(), refused, "memory or an error: {:?}", answer.findings);
    assert_eq!(answer.memory.is_some(), answer.groups.is_some());
    for finding in &answer.findings {
        assert!(!finding.message.is_empty(), "{finding:?}");
    }
    if let (Some(memory), Some(groups)) = (&answer.memory, &answer.groups) {
        let ranks: u64 = memory.rank_classes.iter().map(|class| class.count).sum();
        assert_eq!(ranks, groups.world, "every rank is in one class");
        let [low, high] = memory.interval_bytes;
        assert!(low <= memory.peak_bytes && memory.peak_bytes <= high, "{memory:?}");
        for class in &memory.rank_classes {
            let parts = [
                class.weights_bytes,
                class.gradients_bytes,
                class.optimizer_bytes,
                class.activations_bytes,
                class.transient_bytes,
            ];
            // Sums stop at the largest number, and so does this one.
            let sum = parts.into_iter().fold(0, u64::saturating_add);
            assert_eq!(sum, class.peak_allocated_bytes, "{class:?}");
        }
    }
    let written = text_of(answer);
    let again: Answer = serde_json::from_str(&written).expect("our own answer is read");
    assert_eq!(written, text_of(&again));
}

fn text_of(answer: &Answer) -> String {
    serde_json::to_string(answer).expect("an answer is JSON")
}
