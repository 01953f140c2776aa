//! Checkpoints as torch's own: what `shardplan export --format dcp` writes is read by `torch.distributed.checkpoint`, whose tensors
//! are those of the Hugging Face export and the elements of the ranks' files, to the bit.

use std::path::Path;

use run_folder::{Checkpoint, Checkpoints};
use serde_json::{Value, json};
use tensor_files::{CheckpointReader, DcpExport, Export, export, export_dcp};

use crate::harness::{Run, set, tiny};
use crate::pretrained::{config, reference};
use crate::reference::compared;

fn newest(run: &Run) -> (Checkpoint, CheckpointReader) {
    let newest = Checkpoints::of_run(run.folder()).all().remove(0);
    let reader = CheckpointReader::open(newest.clone(), newest.index().unwrap()).unwrap();
    (newest, reader)
}

/// Exports what a plan trains, and gives the reference's arguments; `kind` is the way to hold it against more.
fn exported(plan: &mut Value, kind: &str, to: &Path) -> Vec<String> {
    set(plan, "run.steps", 3);
    set(plan, "run.checkpoint", json!({"every_steps": 3}));
    let run = Run::complete(plan);
    let (checkpoint, reader) = newest(&run);
    // So small that tensors are cut in every dim, and there are several files.
    let sizes = DcpExport { to: &to.join("dcp"), part_bytes: Some(520), file_bytes: Some(30_000) };
    let written = export_dcp(reader, &sizes).unwrap();
    assert!(written.files > 3 && written.tensors > 20, "{written:?}");
    assert_eq!(written.own_names.is_some(), kind == "own", "{written:?}");
    if kind != "own" {
        let wanted = Export { to: &to.join("hf"), dtype: "F32", file_bytes: None };
        export(newest(&run).1, &wanted).unwrap();
    }
    let kept = to.join("kept");
    std::fs::create_dir(&kept).unwrap();
    for entry in std::fs::read_dir(&checkpoint.path).unwrap().flatten() {
        std::fs::copy(entry.path(), kept.join(entry.file_name())).unwrap();
    }
    vec![kind.to_owned(), to.display().to_string()]
}

#[test]
fn what_is_exported_is_read_by_torch_to_the_bit() {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        place
    };
    let of_family = |kind: &str, world: u64, layout: (&str, u64)| {
        let place = place(kind);
        let model = place.join("model");
        reference(&["make", kind, &model.display().to_string()]);
        let mut plan = tiny(world, 1);
        plan["model"] = json!({"hf_config": config(&model)});
        set(&mut plan, "training.dtype", "bf16");
        set(&mut plan, "run.weights", model.display().to_string());
        set(&mut plan, &format!("layout.{}", layout.0), layout.1);
        exported(&mut plan, kind, &place)
    };
    let of_tiny = |name: &str, change: &dyn Fn(&mut Value)| {
        let mut plan = tiny(2, 2);
        change(&mut plan);
        exported(&mut plan, "own", &place(name))
    };
    let runs = [
        of_family("llama", 2, ("tp", 2)),
        of_family("qwen3", 2, ("pp", 2)),
        of_family("deepseek_v3", 2, ("ep", 2)),
        of_family("gpt_oss", 2, ("tp", 2)),
        of_tiny("tiny", &|_| {}),
        of_tiny("muon", &|plan| set(plan, "training.optimizer.kind", "muon")),
    ];
    compared("dcp_reference.py", runs);
}

#[test]
fn what_can_not_be_exported_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut plan = tiny(1, 1);
    set(&mut plan, "run.steps", 1);
    set(&mut plan, "run.checkpoint", json!({"every_steps": 1}));
    let run = Run::complete(&plan);
    let to = folder.path().join("dcp");
    let refused = |expected: &str| {
        let (_, reader) = newest(&run);
        let error = export_dcp(reader, &DcpExport { to: &to, part_bytes: None, file_bytes: None });
        let error = format!("{:#}", error.unwrap_err());
        assert!(error.contains(expected), "{expected}: {error}");
    };
    std::fs::create_dir(&to).unwrap();
    refused("is there already; name another folder");
    std::fs::remove_dir(&to).unwrap();
    // One that shrinks while it is read.
    let (checkpoint, reader) = newest(&run);
    let file = checkpoint.file(&reader.index.files[0]).unwrap();
    let whole = std::fs::read(&file).unwrap();
    std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(whole.len() as u64 / 2).unwrap();
    let error = export_dcp(reader, &DcpExport { to: &to, part_bytes: None, file_bytes: None }).unwrap_err();
    assert!(format!("{error:#}").contains("reading "), "{error:#}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "something is left");
}
