//! `shardplan tokenize`: what it prints, how it ends, and what a kill leaves.

use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{PATIENCE, Workshop};

const TOKENIZER: &str = r#"{"version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "normalizer": null,
    "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
    "model": {"type": "WordLevel", "vocab": {"[UNK]": 0, "one": 1, "two": 2, "</s>": 3}, "unk_token": "[UNK]"}}"#;

fn shop() -> Workshop {
    let shop = Workshop::new();
    shop.write("tokenizer.json", TOKENIZER);
    shop
}

const TO: [&str; 5] = ["tokenize", "--tokenizer", "tokenizer.json", "--to", "data"];

#[test]
fn text_becomes_a_data_set_and_is_counted() {
    let shop = shop();
    shop.write("in.jsonl", "{\"text\": \"one two\"}\n{\"text\": 5}\n");
    shop.write("more.txt", "two three");
    let more = ["in.jsonl", "more.txt", "--append-eod", "</s>", "--skip-bad", "--json"];
    let answer = shop.ask(&[&TO[..], &more].concat());
    assert_eq!(answer.code, Some(0), "{answer:?}");
    assert!(answer.stderr.starts_with("2 documents, 6 tokens (the largest is 3), "), "{answer:?}");
    assert!(answer.stderr.trim_end().ends_with(" tokens/s, 1 lines skipped"), "{answer:?}");
    let said: Value = serde_json::from_str(&answer.stdout).expect("JSON");
    let of = |name: &str| said[name].as_f64().unwrap_or(f64::NAN);
    assert_eq!((&said["dtype"], &said["prefix"]), (&json!("uint16"), &json!("data")));
    assert_eq!(["documents", "tokens", "largest", "bytes", "read"].map(of), [2.0, 6.0, 3.0, 12.0, 41.0]);
    assert_eq!(["vocabulary", "skipped", "empty"].map(of), [4.0, 1.0, 0.0]);
    assert!(of("seconds") > 0.0 && of("tokens_per_second") > 0.0, "{said}");
    let tokens = std::fs::read(shop.path("data.bin")).expect("tokens");
    assert_eq!(tokens, [1_u16, 2, 3, 2, 0, 3].map(u16::to_le_bytes).concat());
}

#[test]
fn what_is_wrong_is_named() {
    let shop = shop();
    shop.write("in.jsonl", "{\"text\": \"one\"}\n{\"body\": \"two\"}\n");
    for (more, code, expected) in [
        (&["in.jsonl"][..], 3, "in.jsonl, line 2: there is no field \"text\" (it has body)"),
        (&["in.jsonl", "--append-eod", "4"], 2, "--append-eod: 4 is no token: the tokenizer's are 0 to 3"),
        (&["other.jsonl"], 2, "other.jsonl can't be read"),
    ] {
        let answer = shop.ask(&[&TO[..], more].concat());
        assert_eq!(answer.code, Some(code), "{answer:?}");
        assert!(answer.stderr.contains(expected), "{expected}: {answer:?}");
        assert!(!shop.path("data.bin").exists() && !shop.path("data.idx").exists());
    }
}

#[test]
fn a_kill_leaves_nothing_that_looks_whole() {
    let shop = shop();
    let mut command = shop.shardplan();
    let command = command.args(TO).arg("-").stdin(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("shardplan");
    let lines = "{\"text\": \"one two one two one two\"}\n".repeat(40_000);
    child.stdin.as_mut().expect("a pipe").write_all(lines.as_bytes()).expect("room");
    let names = || -> Vec<String> {
        let entries = std::fs::read_dir(shop.path("")).expect("a folder").flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| name.starts_with("data")).collect()
    };
    let deadline = Instant::now() + PATIENCE;
    while names().len() < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("a process");
    child.wait().expect("its end");
    assert_eq!(names().len(), 2);
    assert!(names().iter().all(|name| name.contains(".part-")), "{:?}", names());
    // What is left is in nobody's way.
    shop.write("in.jsonl", "{\"text\": \"one\"}\n");
    let answer = shop.ask(&[&TO[..], &["in.jsonl"]].concat());
    assert_eq!((answer.code, answer.stdout.as_str()), (Some(0), "data\n"), "{answer:?}");
}
