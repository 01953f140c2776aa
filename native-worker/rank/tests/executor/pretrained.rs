//! Training from the weights of a Hugging Face model folder, and back: transformers makes a small model, it is fine-tuned in one
//! layout, killed, gone on with in another, and what is exported is transformers' again, with the same losses and tokens.

use std::collections::BTreeMap;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use run_folder::Checkpoints;
use serde_json::{Map, Value, json};
use tensor_files::{CheckpointReader, Export, export};

use crate::harness::{PATIENCE, Run, set, tiny};
use crate::python;

/// Runs the reference with these arguments; what it prints as JSON.
pub fn reference(arguments: &[&str]) -> Value {
    let said = python::run("pretrained_reference.py", arguments);
    assert!(said.success, "{arguments:?}: {}", said.stderr);
    serde_json::from_str(&said.stdout).unwrap()
}

pub fn config(folder: &Path) -> Map<String, Value> {
    serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
}

/// A plan that begins with a folder's weights, in fp32 and with a batch of text.
fn plan(folder: &Path, world: u64, layout: &[(&str, u64)], dtype: &str) -> Value {
    let mut plan = tiny(world, 1);
    plan["model"] = json!({"hf_config": config(folder)});
    set(&mut plan, "training.dtype", dtype);
    set(&mut plan, "run.steps", 4);
    set(&mut plan, "run.lr", 0.001);
    set(&mut plan, "run.weights", folder.display().to_string());
    set(&mut plan, "run.checkpoint", json!({"every_steps": 1}));
    for (name, size) in layout {
        set(&mut plan, &format!("layout.{name}"), *size);
    }
    plan
}

fn exported(run: &Run, to: &Path, dtype: &str) {
    let newest = Checkpoints::of_run(run.folder()).all().remove(0);
    let index = newest.index().unwrap();
    let reader = CheckpointReader::open(newest, index).unwrap();
    // So small that several files and an index are written.
    export(reader, &Export { to, dtype, file_bytes: Some(40_000) }).unwrap();
}

/// Whether weights are the same, but for padding of the vocabulary, which follows from the layout.
fn alike(one: &BTreeMap<String, Vec<f64>>, other: &BTreeMap<String, Vec<f64>>) -> bool {
    let same = |(name, values): (&String, &Vec<f64>)| {
        let Some(others) = other.get(name) else { return false };
        let both = values.len().min(others.len());
        values[..both] == others[..both]
            && values[both..].iter().chain(&others[both..]).all(|value| *value == 0.0)
    };
    one.len() == other.len() && one.iter().all(same)
}

/// Fine-tunes transformers' model of a kind, killed and in two layouts, and gives it back.
fn check(kind: &str, first: (u64, &[(&str, u64)]), second: (u64, &[(&str, u64)])) {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    let path = |folder: &Path| folder.display().to_string();
    reference(&["make", kind, &path(&model)]);

    // The same weights in both layouts, to the bit, and they are transformers'.
    let mut starts = Vec::new();
    for (world, layout) in [first, second] {
        let mut plan = plan(&model, world, layout, "fp64");
        set(&mut plan, "run.steps", 1);
        set(&mut plan, "run.checkpoint", json!({"save": false}));
        let run = Run::complete_with_dumps(&plan);
        starts.push((run.dumped("weights", 0), run.steps(0)[0].loss));
    }
    assert!(alike(&starts[0].0, &starts[1].0), "{kind}: the layouts begin with other weights");
    let said = reference(&["loss", &path(&model), "1"])["loss"].as_f64().unwrap();
    assert!((starts[0].1 - said).abs() <= 1e-9 * said, "{kind}: {} and {said}", starts[0].1);

    let whole = Run::complete(&plan(&model, first.0, first.1, "fp32"));
    let mut run = Run::prepare(&plan(&model, first.0, first.1, "fp32"));
    run.restart(first.0, &[]);
    run.wait_for_steps(2);
    kill(Pid::from_raw(run.pid(0)), Signal::SIGKILL).unwrap();
    run.finish(PATIENCE);
    std::fs::write(run.folder().join("plan.json"), plan(&model, second.0, second.1, "fp32").to_string())
        .unwrap();
    run.restart(second.0, &[]);
    run.succeed();
    let (last, expected) = (run.steps(0).pop().unwrap(), whole.steps(0).pop().unwrap());
    assert_eq!((last.step, expected.step), (4, 4));
    assert!(
        (last.loss - expected.loss).abs() < 1e-5 * expected.loss,
        "{kind}: {} and {}",
        last.loss,
        expected.loss
    );

    // What would be the loss of the next step, and what it generates: fp64 keeps every bit of fp32.
    let back = folder.path().join("back");
    exported(&run, &back, "F32");
    let next = reference(&["loss", &path(&back), "5"]);
    let mut more = plan(&model, second.0, second.1, "fp32");
    set(&mut more, "run.steps", 5);
    std::fs::write(run.folder().join("plan.json"), more.to_string()).unwrap();
    run.restart(second.0, &[]);
    run.succeed();
    let (own, theirs) = (run.steps(0).pop().unwrap().loss, next["loss"].as_f64().unwrap());
    assert!((own - theirs).abs() < 1e-5 * theirs, "{kind}: {own} and {theirs}");

    // Read again by the worker it is what it was, and transformers' own way of saving it is the same to the byte.
    reference(&["same", &path(&back)]);
    let mut again = plan(&back, first.0, first.1, "fp32");
    set(&mut again, "run.steps", 1);
    set(&mut again, "run.checkpoint", json!({"save": false}));
    let again = Run::complete_with_dumps(&again);
    let twice = folder.path().join("twice");
    let mut once_more = plan(&back, second.0, second.1, "fp32");
    set(&mut once_more, "run.steps", 1);
    set(&mut once_more, "run.lr", 0.0);
    let once_more = Run::complete_with_dumps(&once_more);
    assert!(alike(&again.dumped("weights", 0), &once_more.dumped("weights", 0)), "{kind}");
    exported(&once_more, &twice, "F32");
    reference(&["equal", &path(&back), &path(&twice)]);
}

#[test]
fn llama_is_fine_tuned_and_given_back() {
    check("llama", (2, &[("tp", 2)]), (2, &[("pp", 2)]));
}

#[test]
fn qwen3_with_tied_embeddings_is_fine_tuned_and_given_back() {
    check("qwen3", (2, &[("pp", 2)]), (4, &[("tp", 4)]));
}

#[test]
fn experts_of_qwen3_are_fine_tuned_and_given_back() {
    check("qwen3_moe", (2, &[("ep", 2)]), (4, &[("tp", 2), ("ep", 2), ("etp", 2)]));
}

#[test]
fn deepseek_v3_is_fine_tuned_and_given_back() {
    check("deepseek_v3", (2, &[("ep", 2)]), (2, &[("tp", 2)]));
}

#[test]
fn gpt_oss_is_fine_tuned_and_given_back() {
    check("gpt_oss", (2, &[("tp", 2)]), (2, &[("ep", 2)]));
}

#[test]
fn what_does_not_fit_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    let path = model.display().to_string();
    reference(&["make", "llama", &path]);
    let refused = |change: &dyn Fn(&mut Value), expected: &str| {
        let mut plan = plan(&model, 1, &[], "fp32");
        change(&mut plan);
        let mut run = Run::start(&plan, &[]);
        let finished = run.finish(PATIENCE);
        assert!(
            !finished[0].success && finished[0].stderr.contains(expected),
            "{expected}: {}",
            finished[0].stderr
        );
    };
    refused(&|plan| set(plan, "model.hf_config.num_hidden_layers", 3), "model.layers.2");
    refused(&|plan| set(plan, "model.hf_config.num_hidden_layers", 1), "model.layers.1");
    refused(&|plan| set(plan, "model.hf_config.intermediate_size", 32), "mlp");
    refused(&|plan| set(plan, "run.weights", "/nowhere"), "/nowhere");
    let file = model.join("model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 100]).unwrap();
    refused(&|_| {}, "is the file whole?");
    std::fs::write(&file, b"PK\x03\x04 no tensors at all").unwrap();
    refused(&|_| {}, "is no safetensors file");
}
