//! What windows leave of attention: FLOPs, seconds and caches of long contexts, against the same model without.

use serde_json::{Value, json};

use crate::answer::estimate;
use crate::model::{Architecture, Mixer, Model, import_hf, presets};
use crate::parse::parse_plan;
use crate::time::flops::forward_flops;

fn model(id: &str) -> Architecture {
    let preset = presets().iter().find(|preset| preset.id == id).unwrap();
    import_hf(preset.hf_config.as_ref().unwrap()).architecture.unwrap()
}

/// The same model, every token of which sees all before it.
fn without(mut model: Architecture) -> Architecture {
    let mut all = vec![&mut model.attention];
    all.extend(model.other_mixers.iter_mut().filter_map(|mixer| match mixer {
        Mixer::Attention(attention) => Some(attention),
        _ => None,
    }));
    for attention in all {
        (attention.scores_mut().window, attention.scores_mut().chunk) = (None, None);
    }
    model
}

/// Seconds of attention over those of matrices, seconds of a step, and bytes of the cache of a sequence. A GPU that multiplies less of the
/// time has a higher clock, for matrices as for attention.
fn answer(model: &Architecture, seq_len: u64) -> (f64, f64, f64) {
    let file: Value = json!({
        "version": 1, "model": {"architecture": model},
        "cluster": {"gpu": "h100-sxm", "nodes": 8, "gpus_per_node": 8},
        "layout": {"tp": 4, "sp": true, "cp": 8},
        "training": {"global_batch_size": 8, "micro_batch_size": 1, "seq_len": seq_len, "recompute": {"granularity": "full", "method": "uniform", "num_layers": 1}},
    });
    let file = parse_plan(&file.to_string()).unwrap();
    let answer = estimate(&file);
    let time = answer.time.unwrap_or_else(|| panic!("{:?}", answer.findings));
    (
        time.breakdown.attention / time.breakdown.matrix_products,
        time.step_seconds,
        answer.sizing.unwrap().cache_bytes as f64,
    )
}

#[test]
fn windows_and_chunks_are_counted_in_flops_seconds_and_caches() {
    // Of each: layers that see everything of all layers, and of how many tokens the others see.
    for (id, full, span) in [
        ("gpt-oss-20b", 1.0 / 2.0, 128.0),
        ("gemma-3-27b", 10.0 / 62.0, 1024.0),
        ("llama-4-scout", 1.0 / 4.0, 8192.0),
    ] {
        let seq_len = 131_072;
        let (model, whole) = (model(id), without(model(id)));
        let flops = |model: &Architecture| {
            forward_flops(&Model::new(model.clone()), model.vocab_size, seq_len).core_attention
        };
        // A window leaves its own length of the half that is seen of a long sequence, a chunk half of its own.
        let seen = span / (seq_len as f64 / 2.0) * if id.starts_with("llama") { 0.5 } else { 1.0 };
        let expected = full + (1.0 - full) * seen;
        let share = flops(&model) / flops(&whole);
        assert!((share / expected - 1.0).abs() < 0.01, "{id}: {share} of the FLOPs, {expected} expected");

        let (with, all) = (answer(&model, seq_len), answer(&whole, seq_len));
        let attention = with.0 / all.0;
        assert!(
            (attention / expected - 1.0).abs() < 0.03,
            "{id}: {attention} of the seconds of attention, {expected} expected"
        );
        assert!(with.1 < all.1, "{id}: a step of {} s instead of {} s", with.1, all.1);
        let cached = full + (1.0 - full) * span / seq_len as f64;
        assert!(
            (with.2 / all.2 / cached - 1.0).abs() < 0.01,
            "{id}: {} of the cache, {cached} expected",
            with.2 / all.2
        );
        // A sequence that no window cuts is what it was.
        assert_eq!(flops_of(&model, 128), flops_of(&whole, 128), "{id}");
    }
}

fn flops_of(model: &Architecture, seq_len: u64) -> f64 {
    forward_flops(&Model::new(model.clone()), model.vocab_size, seq_len).total()
}
