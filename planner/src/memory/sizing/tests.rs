//! Worked examples of MoE sizing: GB of 10^9 bytes, without multi-token prediction.

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::parse::parse_plan;
use crate::wire::{SizingAnswer, SizingVerdict, Verdict};

fn sized(model: Value, gpus: u64, layout: Value, training: Value) -> (SizingAnswer, crate::wire::Answer) {
    let file = json!({
        "version": 1, "model": model, "layout": layout, "training": training,
        "cluster": {"gpu": "h100-sxm", "nodes": gpus.div_ceil(8), "gpus_per_node": gpus.min(8)}
    });
    let answer = estimate(&parse_plan(&file.to_string()).unwrap());
    let sizing = answer.sizing.clone().unwrap_or_else(|| panic!("{:?}", answer.findings));
    (sizing, answer)
}

fn check(preset: &str, gpus: u64, layout: Value, expected: (&str, SizingVerdict)) -> SizingAnswer {
    let (sizing, _) = sized(json!({"preset": preset}), gpus, layout, json!({}));
    let gb = format!("{:.2}", sizing.weights_bytes as f64 / 1e9);
    assert_eq!((gb.as_str(), sizing.verdict), (expected.0, Some(expected.1)), "{preset} on {gpus}");
    sizing
}

#[test]
fn minimax_m2() {
    let training = |sizing: &SizingAnswer| format!("{:.0}", sizing.training_bytes as f64 / 1e9);
    let one = check("minimax-m2", 8, json!({"tp": 2, "ep": 4}), ("116.40", SizingVerdict::None));
    assert_eq!(training(&one), "692");
    let two = check("minimax-m2", 16, json!({"tp": 2, "ep": 8}), ("60.23", SizingVerdict::RoundTrip));
    assert_eq!(training(&two), "352");
    let three = check("minimax-m2", 16, json!({"ep": 16}), ("36.10", SizingVerdict::Inference));
    assert_eq!(training(&three), "280");
    let four = check("minimax-m2", 64, json!({"tp": 2, "ep": 32}), ("18.10", SizingVerdict::Training));
    assert_eq!(training(&four), "97");
    // Keys and values of half the heads, 62 layers.
    assert_eq!((three.kv_bytes_per_token, four.kv_bytes_per_token), (253_952, 126_976));
    assert_eq!(four.cache_bytes, 126_976 * 4096);
    // Experts over two ranks each.
    check("minimax-m2", 8, json!({"tp": 2, "ep": 4, "etp": 2}), ("60.23", SizingVerdict::RoundTrip));
}

#[test]
fn other_models() {
    check("mixtral-8x7b", 8, json!({"ep": 8}), ("14.49", SizingVerdict::Training));
    check("qwen3-30b-a3b", 8, json!({"ep": 8}), ("10.33", SizingVerdict::Training));
    // One latent vector of 512 and a rotated key of 64 for each of 61 layers, on every rank.
    let (deepseek, _) = sized(json!({"preset": "deepseek-v3"}), 64, json!({"tp": 2, "ep": 32}), json!({}));
    assert_eq!(deepseek.kv_bytes_per_token, 2 * 576 * 61);
    // With more ranks than key and value heads these are repeated.
    let (llama, _) = sized(json!({"preset": "llama-3-8b"}), 16, json!({"tp": 16}), json!({}));
    assert_eq!(llama.kv_bytes_per_token, 2 * 2 * 128 * 32);
}

#[test]
fn stages_share_layers() {
    let whole = sized(json!({"preset": "llama-3-8b"}), 8, json!({}), json!({})).0;
    let halves = sized(json!({"preset": "llama-3-8b"}), 8, json!({"pp": 2}), json!({})).0;
    assert_eq!(whole.kv_bytes_per_token, 2 * halves.kv_bytes_per_token);
    assert!(halves.workspace_bytes <= whole.workspace_bytes);
    assert_eq!(whole.inference_bytes, whole.weights_bytes + whole.cache_bytes + whole.workspace_bytes);
}

#[test]
fn sources_of_8_bits_lie_beside_their_copies() {
    let config: Value =
        serde_json::from_str(include_str!("../../../../tests/data/qwen3-30b-a3b.config.json")).unwrap();
    let plain = sized(json!({"hf_config": config}), 8, json!({"ep": 8}), json!({})).0;
    assert_eq!((plain.source_bytes, plain.conversion_peak_bytes), (None, None));
    let mut quantised = config;
    quantised["quantization_config"] = json!({"quant_method": "fp8", "weight_block_size": [128, 128]});
    let from = sized(json!({"hf_config": quantised}), 8, json!({"ep": 8}), json!({})).0;
    let source = from.source_bytes.unwrap();
    let half = from.weights_bytes / 2;
    assert!(source > half && source < half + half / 1000, "{source} of {half}");
    assert_eq!(from.conversion_peak_bytes, Some(from.weights_bytes + source));
}

#[test]
fn a_rule_of_thumb_that_errs_is_said_to() {
    let warned = |training: Value, layout: Value| {
        let (sizing, answer) = sized(json!({"preset": "llama-3-8b"}), 8, layout, training);
        let warned = answer.findings.iter().any(|finding| finding.field == "sizing.verdict");
        (sizing.verdict.unwrap(), answer.memory.unwrap().verdict, warned)
    };
    // 16 GB of weights, but a batch that no GPU holds.
    let big = json!({"micro_batch_size": 32, "seq_len": 8192});
    assert_eq!(warned(big, json!({})), (SizingVerdict::Training, Verdict::No, true));
    let (_, _, quiet) = warned(json!({}), json!({"tp": 8}));
    assert!(!quiet);
}

#[test]
fn sizes_of_experts_beside_each_other() {
    let file = json!({"version": 1, "model": {"preset": "minimax-m2"}, "cluster": {"gpu": "h100-sxm", "nodes": 8},
        "layout": {"tp": 2, "ep": 32}});
    let rows = crate::answer::sizing_rows(&parse_plan(&file.to_string()).unwrap());
    let row = |(tp, ep)| rows.iter().find(|row| (row.tp, row.ep) == (tp, ep)).unwrap();
    for (size, gpus, weights, rule, agrees) in [
        ((2, 4), 8, "116.40", SizingVerdict::None, true),
        ((2, 8), 16, "60.23", SizingVerdict::RoundTrip, true),
        ((1, 16), 16, "36.10", SizingVerdict::Inference, true),
        ((2, 32), 64, "18.10", SizingVerdict::Training, false),
    ] {
        let row = row(size);
        let found = format!("{:.2}", row.weights_bytes as f64 / 1e9);
        assert_eq!((row.gpus, found.as_str(), row.rule), (gpus, weights, Some(rule)));
        assert_eq!((row.verdict, row.agrees), (Verdict::No, agrees));
    }
    let dense = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h100-sxm"}});
    assert!(crate::answer::sizing_rows(&parse_plan(&dense.to_string()).unwrap()).is_empty());
}

#[test]
fn limits_are_those_of_the_memory_that_the_plan_says() {
    let with = |memory: Value| {
        let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "layout": {"tp": 8},
            "cluster": {"gpu": "h100-sxm", "nodes": 1, "memory_gib": memory}});
        estimate(&parse_plan(&file.to_string()).unwrap()).sizing.unwrap()
    };
    assert_eq!(with(Value::Null).verdict, Some(SizingVerdict::Training));
    let little = with(json!(12));
    assert_eq!(little.verdict, Some(SizingVerdict::None), "{little:?}");
}

#[test]
fn published_weights_of_8_bits_want_room_and_whole_blocks() {
    let found = |layout: Value| {
        let (sizing, answer) = sized(json!({"preset": "minimax-m2"}), 16, layout, json!({}));
        assert!(sizing.source_bytes.is_some(), "{sizing:?}");
        let of = ["sizing.conversion_peak_bytes", "layout.etp"];
        let of_8_bits = answer.findings.into_iter().filter(|found| of.contains(&found.field.as_str()));
        of_8_bits.map(|found| (found.field, found.nearest)).collect::<Vec<_>>()
    };
    // 56 GiB and half as much beside them on a GPU of 79.
    assert_eq!(found(json!({"tp": 2, "ep": 8})), [("sizing.conversion_peak_bytes".to_owned(), vec![])]);
    assert_eq!(found(json!({"tp": 1, "ep": 16})), []);
    // Of 1,536 columns 384 are three blocks, and 192 one and a half.
    assert_eq!(found(json!({"tp": 4, "ep": 4, "etp": 4})), []);
    assert_eq!(found(json!({"tp": 8, "ep": 2, "etp": 8})), [("layout.etp".to_owned(), vec![json!(4)])]);
}
