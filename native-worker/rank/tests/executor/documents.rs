//! Documents that are packed into sequences train what they would train by themselves, in every layout.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use planner::wire::Event;
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Run, set, tiny};
use crate::parity::{check, same};

/// The token that ends a document.
const END: u16 = 0;
/// Tokens of a sequence.
const SEQUENCE: usize = 16;

/// Documents of so many tokens each, the last of which ends it.
fn tokens(lengths: &[usize]) -> Vec<u16> {
    let document = |(number, &length): (usize, &usize)| {
        let mut word = 31 * number as u16 % 199;
        let mut tokens: Vec<u16> = (1..length)
            .map(|_| {
                word = (5 * word + 7) % 199;
                word + 1
            })
            .collect();
        tokens.push(END);
        tokens
    };
    lengths.iter().enumerate().flat_map(document).collect()
}

fn write(folder: &Path, name: &str, tokens: &[u16]) -> PathBuf {
    let path = folder.join(name);
    let bytes: Vec<u8> = tokens.iter().copied().flat_map(u16::to_le_bytes).collect();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// One step of a plan with this data: its loss, and its gradients whole.
fn step(plan: &Value, file: &Path, sequence: usize, sequences: u64) -> (f64, BTreeMap<String, Vec<f64>>) {
    let mut plan = plan.clone();
    set(&mut plan, "run.steps", 1);
    set(&mut plan, "run.data", json!({"kind": "tokens", "path": file}));
    set(&mut plan, "training.seq_len", sequence);
    set(&mut plan, "training.global_batch_size", sequences);
    let run = Run::complete_with_dumps(&plan);
    (run.steps(0)[0].loss, run.dumped("gradients", 1))
}

fn norm<'v>(values: impl IntoIterator<Item = &'v f64>) -> f64 {
    values.into_iter().map(|value| value * value).sum::<f64>().sqrt()
}

/// Per tensor: norm(difference) <= 1e-10 x max(norm(gradient), 1e-6 x norm of all gradients).
#[track_caller]
fn equal(
    case: &str,
    expected: &(f64, BTreeMap<String, Vec<f64>>),
    found: &(f64, BTreeMap<String, Vec<f64>>),
) {
    let ((loss, gradients), (other_loss, others)) = (expected, found);
    assert!((loss - other_loss).abs() <= 1e-10 * loss.abs(), "{case}: loss {loss} and {other_loss}");
    assert_eq!(gradients.keys().collect::<Vec<_>>(), others.keys().collect::<Vec<_>>());
    let all = norm(gradients.values().flatten());
    assert!(all > 0.0);
    for (name, gradient) in gradients {
        let differences: Vec<f64> =
            gradient.iter().zip(&others[name]).map(|(one, other)| one - other).collect();
        let allowed = 1e-10 * norm(gradient).max(1e-6 * all);
        assert!(norm(&differences) <= allowed, "{case}, {name}: {:e} > {allowed:e}", norm(&differences));
    }
}

/// What a plan's two packed sequences train against each of their documents as a sequence by itself, weighted by the predictions
/// that count. Where the loss from ends is masked a document is run without its end, as what is predicted alone.
#[track_caller]
fn check_apart(case: &str, lengths: &[usize], masked: bool, change: impl Fn(&mut Value)) {
    let folder = tempfile::tempdir().unwrap();
    let all = tokens(lengths);
    assert!(all.len() > 2 * SEQUENCE);
    let mut plan = tiny(1, 1);
    change(&mut plan);
    let mut packed = plan.clone();
    set(&mut packed, "training.micro_batch_size", 2);
    set(
        &mut packed,
        "run.documents",
        json!({"reset_positions": true, "reset_attention": true, "mask_eod_loss": masked, "eod_token": END}),
    );
    let file = write(folder.path(), "packed", &all[..=2 * SEQUENCE]);
    let found = step(&packed, &file, SEQUENCE, 2);
    let (mut counted, mut loss, mut gradients) = (0, 0.0, BTreeMap::<String, Vec<f64>>::new());
    for window in 0..2 {
        let places = window * SEQUENCE..(window + 1) * SEQUENCE;
        let mut start = places.start;
        for place in places.clone() {
            if all[place] != END && place + 1 < places.end {
                continue;
            }
            let ends = masked && all[place] == END;
            let behind = if ends { place } else { place + 1 };
            let inputs = behind - start;
            if inputs > 0 {
                let file = write(folder.path(), "apart", &all[start..=behind]);
                let (of_it, its) = step(&plan, &file, inputs, 1);
                counted += inputs;
                loss += of_it * inputs as f64;
                for (name, gradient) in its {
                    let sums = gradients.entry(name).or_insert_with(|| vec![0.0; gradient.len()]);
                    sums.iter_mut().zip(gradient).for_each(|(sum, part)| *sum += part * inputs as f64);
                }
            }
            start = place + 1;
        }
    }
    gradients.values_mut().flatten().for_each(|value| *value /= counted as f64);
    equal(&format!("{case}, masked {masked}"), &(loss / counted as f64, gradients), &found);
}

#[test]
fn a_sequence_of_documents_is_these_documents() {
    for (case, lengths) in [
        ("ends at the first and the last token", &[1, 15, 16, 1][..]),
        ("longer than a sequence", &[24, 9]),
        ("documents of one token, several in a row", &[4, 1, 1, 3, 7, 1, 6, 10]),
        ("no end at all", &[40]),
        ("ends behind the sequence", &[17, 16]),
        ("nothing but ends in one of them", &[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 9, 9]),
    ] {
        for masked in [false, true] {
            check_apart(case, lengths, masked, |_| {});
        }
    }
}

#[test]
fn so_it_is_with_every_kind_of_attention() {
    const LENGTHS: &[usize] = &[5, 3, 1, 9, 11, 4];
    let scores = |scores: Value| {
        move |plan: &mut Value| set(plan, "model.architecture.attention.scores", scores.clone())
    };
    check_apart("as many keys as queries", LENGTHS, true, |plan| {
        set(plan, "model.architecture.attention.kv_heads", 8);
    });
    check_apart("latent", LENGTHS, true, latent);
    check_apart("a window", LENGTHS, true, scores(json!({"window": 3})));
    check_apart("chunks", LENGTHS, true, scores(json!({"chunk": 4})));
    check_apart("a cap", LENGTHS, false, scores(json!({"soft_cap": 5.0})));
    check_apart(
        "a temperature",
        LENGTHS,
        true,
        scores(json!({"temperature": {"tokens": 3, "factor": 0.3, "shift": 1}})),
    );
    check_apart("sinks and a window", LENGTHS, true, sinks);
    check_apart("learned positions", LENGTHS, true, |plan| {
        set(plan, "model.architecture.learned_positions", 16);
    });
    check_apart("recomputed layers", LENGTHS, true, |plan| set(plan, "training.recompute", "full"));
    check_apart("recomputed attention", LENGTHS, true, |plan| {
        set(plan, "training.recompute", json!({"granularity": "selective", "modules": ["core_attn"]}));
    });
}

fn latent(plan: &mut Value) {
    set(
        plan,
        "model.architecture.attention",
        json!({"kind": "mla", "heads": 4, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_dim": 8, "qk_rope_dim": 4, "v_dim": 6}),
    );
}

fn sinks(plan: &mut Value) {
    set(plan, "model.architecture.attention.sinks", true);
    set(plan, "model.architecture.attention.scores", json!({"window": 5}));
}

/// Modules that predict don't look into the next document, as they don't look beyond the sequence.
#[test]
fn modules_that_predict_stay_within_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), "tokens", &tokens(&[8; 9])[..65]);
    let mut plan = tiny(1, 1);
    set(&mut plan, "model.architecture.mtp_layers", 2);
    let apart = step(&plan, &file, 8, 8);
    set(
        &mut plan,
        "run.documents",
        json!({"reset_positions": true, "reset_attention": true, "eod_token": END}),
    );
    equal("two modules", &apart, &step(&plan, &file, SEQUENCE, 4));
    // Where they began elsewhere it is another training.
    set(&mut plan, "run.documents.eod_token", 9);
    assert!((apart.0 - step(&plan, &file, SEQUENCE, 4).0).abs() > 1e-6);
}

/// Each setting by itself, too, and all of them on data of which replicas and micro batches have different numbers of ends.
#[test]
fn every_layout_tells_documents_apart() {
    let folder = tempfile::tempdir().unwrap();
    let lengths = [3, 1, 9, 20, 1, 1, 4, 5, 6, 2, 2, 2, 2, 2, 5];
    let file = write(folder.path(), "tokens", &tokens(&lengths)[..65]);
    let with = |documents: Value, more: fn(&mut Value)| {
        let file = file.clone();
        move |plan: &mut Value| {
            set(plan, "run.data", json!({"kind": "tokens", "path": file}));
            set(plan, "run.documents", documents.clone());
            more(plan);
        }
    };
    let all =
        json!({"reset_positions": true, "reset_attention": true, "mask_eod_loss": true, "eod_token": END});
    let rows: fn(&mut Value) = |plan| set(plan, "training.micro_batch_size", 2);
    let cp: fn(&mut Value) = |plan| set(plan, "layout.cp", 2);
    let pp: fn(&mut Value) = |plan| set(plan, "layout.pp", 2);
    let split: fn(&mut Value) = |plan| {
        set(plan, "layout.pp", 2);
        set(plan, "layout.schedule", "zb-h1");
        set(plan, "training.micro_batch_size", 2);
    };
    let without_sp: fn(&mut Value) = |plan| {
        set(plan, "layout.sp", false);
        set(plan, "training.micro_batch_size", 2);
    };
    let four: fn(&mut Value) = |plan| {
        set(plan, "layout.cp", 4);
        set(plan, "training.micro_batch_size", 2);
    };
    for (world, tp, layout) in [
        (1, 1, rows),
        (2, 1, same as fn(&mut Value)),
        (2, 1, rows),
        (2, 2, rows),
        (2, 2, without_sp),
        (2, 1, cp),
        (4, 2, cp),
        (4, 1, four),
        (4, 2, pp),
        (2, 1, split),
    ] {
        check(world, tp, with(all.clone(), same), layout);
    }
    for one in ["reset_positions", "reset_attention", "mask_eod_loss"] {
        let documents = json!({one: true, "eod_token": END});
        check(2, 1, with(documents.clone(), same), same);
        check(4, 2, with(documents.clone(), same), cp);
        check(4, 2, with(documents, same), pp);
    }
    let learned: fn(&mut Value) = |plan| set(plan, "model.architecture.learned_positions", 16);
    let predicting: fn(&mut Value) = |plan| set(plan, "model.architecture.mtp_layers", 1);
    let experts: fn(&mut Value) = |plan| {
        let moe = json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24, "routing": {"balance": "seq_aux_loss", "aux_coefficient": 0.01}});
        set(plan, "model.architecture.moe", moe);
    };
    for model in [latent as fn(&mut Value), sinks, learned, predicting, experts] {
        check(4, 2, with(all.clone(), model), cp);
        check(4, 2, with(all.clone(), model), pp);
        check(2, 2, with(all.clone(), model), rows);
    }
}

#[test]
fn what_is_held_out_counts_alike() {
    let folder = tempfile::tempdir().unwrap();
    let trained = write(folder.path(), "trained", &tokens(&[3, 1, 9, 20, 32])[..65]);
    let held_out = write(folder.path(), "held out", &tokens(&[1, 1, 1, 13, 5, 12, 20, 12])[..65]);
    let evaluated = |world: u64, tp: u64, layout: &[(&str, Value)]| {
        let mut plan = tiny(world, tp);
        set(&mut plan, "run.steps", 1);
        set(&mut plan, "run.data", json!({"kind": "tokens", "path": trained}));
        set(
            &mut plan,
            "run.evaluation",
            json!({"data": {"kind": "tokens", "path": held_out}, "sequences": 4}),
        );
        set(
            &mut plan,
            "run.documents",
            json!({"reset_positions": true, "reset_attention": true, "mask_eod_loss": true, "eod_token": END}),
        );
        layout.iter().for_each(|(field, value)| set(&mut plan, field, value.clone()));
        let run = Run::complete(&plan);
        let found = run.records(0).into_iter().find_map(|record| match record.event {
            Event::Evaluated(evaluated) => Some(evaluated),
            _ => None,
        });
        found.unwrap()
    };
    let one = evaluated(1, 1, &[]);
    assert_eq!(one.tokens, 64);
    for (world, tp, layout) in [
        (2, 1, vec![]),
        (4, 1, vec![]),
        (2, 2, vec![]),
        (2, 1, vec![("layout.cp", json!(2))]),
        (2, 1, vec![("layout.pp", json!(2))]),
    ] {
        let other = evaluated(world, tp, &layout);
        assert!(
            (one.loss - other.loss).abs() <= 1e-9 * one.loss,
            "{world} {tp} {layout:?}: {one:?} and {other:?}"
        );
    }
    // Another number of predictions is the mean of others.
    let all = evaluated(1, 1, &[("run.documents.mask_eod_loss", json!(false))]);
    assert!((one.loss - all.loss).abs() > 1e-6);
}

/// An index says which token ends documents, and one that does not is refused by name.
#[test]
fn an_index_says_what_ends_a_document() {
    let folder = tempfile::tempdir().unwrap();
    let lengths: &[usize] = &[5, 3, 9, 16, 32];
    let all = tokens(lengths);
    write(folder.path(), "set.bin", &all);
    let index = |lengths: &[usize]| {
        let mut bytes = b"MMIDIDX\0\0".to_vec();
        bytes.extend(1_u64.to_le_bytes());
        bytes.push(8);
        bytes.extend((lengths.len() as u64).to_le_bytes());
        bytes.extend((lengths.len() as u64 + 1).to_le_bytes());
        lengths.iter().for_each(|&length| bytes.extend((length as i32).to_le_bytes()));
        let starts =
            lengths.iter().scan(0, |start, length| Some(std::mem::replace(start, *start + 2 * length)));
        starts.for_each(|start| bytes.extend((start as i64).to_le_bytes()));
        (0..=lengths.len() as i64).for_each(|document| bytes.extend(document.to_le_bytes()));
        std::fs::write(folder.path().join("set.idx"), bytes).unwrap();
    };
    index(lengths);
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 1);
    set(&mut plan, "run.data", json!({"kind": "megatron", "path": folder.path().join("set")}));
    set(
        &mut plan,
        "run.documents",
        json!({"reset_positions": true, "reset_attention": true, "mask_eod_loss": true}),
    );
    let by_index = Run::complete(&plan).steps(0)[0].loss;
    set(&mut plan, "run.documents.eod_token", END);
    assert_eq!(by_index.to_bits(), Run::complete(&plan).steps(0)[0].loss.to_bits());
    set(&mut plan, "run.documents.eod_token", Value::Null);
    index(&[5, 4, 8, 16, 32]);
    let mut run = Run::start(&plan, &[]);
    let finished = run.finish(PATIENCE).remove(0);
    assert!(
        !finished.success && finished.stderr.contains("end with different tokens"),
        "{}",
        finished.stderr
    );
}
