//! `shardplan export`: what it says of what it writes, and what it refuses. What torch reads of it is seen by the tests of ranks.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::Workshop;

/// A checkpoint of one parameter with six elements, of which each of two ranks has half.
fn checkpoint(shop: &Workshop) -> PathBuf {
    let folder = shop.path("checkpoints/step-7");
    std::fs::create_dir_all(&folder).expect("a folder");
    let plan = json!({
        "version": 1,
        "model": {"architecture": {
            "num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 256,
            "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8}
        }},
        "cluster": {"gpu": "cpu", "nodes": 1, "gpus_per_node": 2},
        "runtime": "native"
    });
    let mut files = Vec::new();
    for rank in 0..2 {
        let piece = json!({"offset": [0, 0], "extent": [2, 3], "start": 3 * rank, "elements": 3});
        let saved = |kind: &str| json!({"tensor": format!("{kind}/one"), "parameter": "one", "kind": kind, "shape": [2, 3], "piece": piece});
        let pieces = json!([saved("weight"), saved("exp_avg")]).to_string();
        let header = json!({
            "__metadata__": {"shardplan.pieces": pieces},
            "weight/one": {"dtype": "F32", "shape": [3], "data_offsets": [0, 12]},
            "exp_avg/one": {"dtype": "BF16", "shape": [3], "data_offsets": [12, 18]}
        })
        .to_string();
        let mut bytes = (header.len() as u64).to_le_bytes().to_vec();
        bytes.extend(header.as_bytes());
        bytes.extend([0x40; 18]);
        let name = format!("rank-0000{rank}.safetensors");
        std::fs::write(folder.join(&name), bytes).expect("a file");
        let (bytes, crc32) = run_folder::measure(&folder.join(&name)).expect("a length");
        files.push(json!({"name": name, "bytes": bytes, "crc32": crc32}));
    }
    let index = json!({"version": 1, "step": 7, "samples": 28, "unix_ms": 0, "plan": plan, "files": files})
        .to_string();
    std::fs::write(folder.join("checkpoint.json"), index).expect("a file");
    folder
}

#[test]
fn torchs_format_is_written_and_said() {
    let shop = Workshop::new();
    checkpoint(&shop);
    let answer = shop.ask(&["export", "checkpoints", "--to", "dcp", "--format", "dcp", "--json"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stderr.contains("tensors have the names of the plan's parameters"), "{answer:?}");
    let said: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!((&said["step"], &said["names"], &said["files"]), (&json!(7), &json!("plan"), &json!(1)));
    // The weight, its moment, and three numbers: Adam's steps, and steps and sequences of the training.
    assert_eq!((&said["tensors"], &said["bytes"]), (&json!(5), &json!(24 + 12 + 4 + 8 + 8)));
    let mut names: Vec<_> = std::fs::read_dir(shop.path("dcp"))
        .expect("a folder")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    assert_eq!(names, [".metadata", "__0_0.distcp"]);
}

/// Folders above the one that is named are made, as `run --runs` makes them.
#[test]
fn folders_above_are_made() {
    let shop = Workshop::new();
    checkpoint(&shop);
    let answer = shop.ask(&["export", "checkpoints", "--to", "a/b/dcp", "--format", "dcp"]);
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(shop.path("a/b/dcp/.metadata").is_file());
}

#[test]
fn what_can_not_be_exported_is_refused() {
    let shop = Workshop::new();
    let folder = checkpoint(&shop);
    let refused = |arguments: &[&str], code: i32, expected: &str| {
        let answer = shop.ask(&[&["export", "checkpoints", "--to", "dcp"], arguments].concat());
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
    };
    refused(&["--format", "dcp", "--dtype", "bf16"], 2, "keeps the types that the checkpoint has");
    refused(&["--format", "torch_dist"], 2, "Megatron Bridge imports and saves as torch_dist");
    refused(&["--format", "pickle"], 2, "say hf or dcp");
    refused(&[], 1, "has no config.json");
    shop.write("dcp/theirs", "");
    refused(&["--format", "dcp"], 3, "dcp is there already; name another folder");
    std::fs::remove_dir_all(shop.path("dcp")).expect("a folder");
    let file = folder.join("rank-00001.safetensors");
    let whole = std::fs::read(&file).expect("a file");
    std::fs::write(&file, &whole[..whole.len() - 6]).expect("a file");
    refused(&["--format", "dcp"], 3, "no checkpoint in");
    std::fs::remove_file(&file).expect("a file");
    refused(&["--format", "dcp"], 3, "rank-00001.safetensors can't be read");
    assert!(!shop.path("dcp").exists());
    let left = std::fs::read_dir(shop.path("")).expect("a folder").flatten();
    assert!(left.map(|entry| entry.file_name()).all(|name| !name.to_string_lossy().contains("export")));
}
