//! Failing logs with what is to be said of them: every case of `tests/corpus/diagnose/expected.json`.

// Tests read files; what they test does not.
#![allow(clippy::disallowed_methods)]

use std::path::{Path, PathBuf};

use diagnose::{Answer, Diagnosis};
use proptest::prelude::*;
use serde::Deserialize;

/// One case: logs, and what is expected. What is absent is not looked at; no cause means that nothing is to be found.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    files: Vec<String>,
    cause: Option<String>,
    rank: Option<u32>,
    exit: Option<u32>,
    node: Option<String>,
    gpu: Option<String>,
    #[serde(default)]
    also: Vec<String>,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/diagnose")
}

fn cases() -> Vec<Case> {
    let text = std::fs::read_to_string(folder().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn diagnose(files: &[(String, Vec<u8>)], piece: usize) -> Answer {
    let mut diagnosis = Diagnosis::new(None);
    for (name, bytes) in files {
        diagnosis.file(name);
        for piece in bytes.chunks(piece.max(1)) {
            diagnosis.feed(piece);
        }
    }
    diagnosis.finish()
}

fn read(case: &Case) -> Vec<(String, Vec<u8>)> {
    case.files.iter().map(|name| (name.clone(), std::fs::read(folder().join(name)).unwrap())).collect()
}

/// What of the answer is not as expected.
fn differences(case: &Case, answer: &Answer) -> Vec<String> {
    let first = answer.verdicts.first();
    let mut found = Vec::new();
    let mut check = |what: &str, expected: Option<String>, got: Option<String>| {
        if expected.is_some() && expected != got {
            found.push(format!(
                "{what}: {} instead of {}",
                got.unwrap_or_default(),
                expected.unwrap_or_default()
            ));
        }
    };
    check("found", Some(case.cause.is_some().to_string()), Some(answer.found.to_string()));
    check("cause", case.cause.clone(), first.map(|first| first.cause.clone()));
    check(
        "rank",
        case.rank.map(|rank| rank.to_string()),
        first.and_then(|first| Some(first.culprit.rank?.to_string())),
    );
    check("node", case.node.clone(), first.and_then(|first| first.culprit.node.clone()));
    check("gpu", case.gpu.clone(), first.and_then(|first| first.culprit.gpu.clone()));
    check(
        "exit",
        case.exit.map(|code| code.to_string()),
        answer.exit.as_ref().and_then(|end| Some(end.code?.to_string())),
    );
    for also in &case.also {
        let said = answer.verdicts.iter().any(|verdict| verdict.cause == *also);
        check("also", Some(also.clone()), said.then(|| also.clone()));
    }
    found
}

#[test]
fn every_case_is_diagnosed() {
    let cases = cases();
    assert!(cases.iter().filter(|case| case.cause.is_some()).count() >= 60);
    let mut wrong = Vec::new();
    for case in &cases {
        let answer = diagnose(&read(case), usize::MAX);
        let differences = differences(case, &answer);
        if !differences.is_empty() {
            let said: Vec<String> = answer
                .verdicts
                .iter()
                .map(|verdict| format!("{} ({:?})", verdict.cause, verdict.part))
                .collect();
            wrong.push(format!("{:?}: {}; said {}", case.files, differences.join("; "), said.join(", ")));
        }
        assert!(answer.found || !answer.notes.is_empty(), "{:?} says nothing", case.files);
        assert_eq!(answer.looked_at.files.len(), case.files.len());
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
}

#[test]
fn every_log_of_the_corpus_has_a_case() {
    let named: std::collections::BTreeSet<String> = cases().into_iter().flat_map(|case| case.files).collect();
    let present: std::collections::BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "expected.json")
        .collect();
    assert_eq!(named, present);
}

#[test]
fn a_log_that_is_cut_anywhere_has_the_same_answer() {
    for case in cases() {
        let files = read(&case);
        let whole = diagnose(&files, usize::MAX);
        for piece in [1, 7, 4096] {
            assert_eq!(diagnose(&files, piece), whole, "{:?} in pieces of {piece}", case.files);
        }
    }
}

#[test]
fn a_failure_is_found_in_the_middle_of_a_long_log() {
    let step = " iteration  10/ 100 | lm loss: 1.0E+01 | elapsed time per iteration (ms): 10.0 |\n";
    let failure = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.11 GiB \
                   of which 1.00 GiB is free.\n";
    for lines in [1, 3_000, 3_200, 40_000] {
        let log =
            format!("{}{failure}{}", step.repeat(lines), "frame #1: x + 0x1 (0x2 in y)\n".repeat(lines));
        let answer = diagnose(&[("x".to_owned(), log.into_bytes())], 10_000);
        let first = answer.verdicts.first().unwrap();
        assert_eq!((first.cause.as_str(), first.culprit.rank), ("cuda-oom", Some(3)));
        assert_eq!(first.evidence[0].line, lines as u64 + 1);
        assert_eq!(answer.looked_at.lines, 2 * lines as u64 + 1);
    }
}

#[test]
fn a_line_of_megabytes_is_read() {
    let mut log = vec![b'x'; 3_000_000];
    log.extend_from_slice(b" CUDA out of memory. Tried to allocate 2.00 GiB ");
    log.extend(vec![b'y'; 3_000_000]);
    let answer = diagnose(&[("x".to_owned(), log.clone())], usize::MAX);
    assert_eq!(answer.verdicts[0].cause, "cuda-oom");
    assert!(answer.verdicts[0].evidence[0].text.chars().count() < 330);
    assert_eq!(diagnose(&[("x".to_owned(), log)], 65_537), answer);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Lines of the corpus in any order, with anything between them, cut anywhere.
    #[test]
    fn any_cut_of_anything_has_the_same_answer(
        picks in proptest::collection::vec((any::<prop::sample::Index>(), any::<prop::sample::Index>(), proptest::collection::vec(any::<u8>(), 0..40)), 1..60),
        pieces in proptest::collection::vec(1usize..5000, 1..8),
    ) {
        let cases = cases();
        let mut log = Vec::new();
        for (case, line, noise) in &picks {
            let files = read(case.get(&cases));
            let lines: Vec<&[u8]> = files[0].1.split_inclusive(|&byte| byte == b'\n').collect();
            if !lines.is_empty() {
                log.extend_from_slice(lines[line.index(lines.len())]);
            }
            log.extend_from_slice(noise);
        }
        let whole = diagnose(&[("x".to_owned(), log.clone())], usize::MAX);
        let mut diagnosis = Diagnosis::new(None);
        diagnosis.file("x");
        let mut rest = log.as_slice();
        for size in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, later) = rest.split_at((*size).min(rest.len()));
            diagnosis.feed(piece);
            rest = later;
        }
        prop_assert_eq!(diagnosis.finish(), whole);
    }
}
