//! Who names a runtime: the folder that says what is true of each, and the few places that ARCHITECTURE.md lists with their reason.
//!
//! Everybody else asks for a fact (`runtime.facts()`), so that a runtime more is a file more. The list may only shrink: who names
//! fewer than it says has to lower it.

mod tokens;

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use tokens::{is_mark, pass_attribute};

/// Where sources are, whose names count.
const SOURCES: [&str; 9] = [
    "planner/src",
    "planner/batch/src",
    "planner/diagnose/src",
    "planner/evidence/src",
    "planner/frameworks/src",
    "web",
    "native-worker/src",
    "native-worker/run-folder/src",
    "native-worker/rank/src",
];
/// Where a runtime is at home.
const HOME: &str = "planner/src/runtime/";

#[test]
fn who_names_a_runtime_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let listed = table(&std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap());
    let mut found = BTreeMap::new();
    for folder in SOURCES {
        add(&root, folder, &mut found);
    }
    let faults = check(&listed, &found);
    assert!(faults.is_empty(), "{} faults by ARCHITECTURE.md:\n  {}", faults.len(), faults.join("\n  "));
}

/// The document's list: how often a file names runtimes.
fn table(document: &str) -> BTreeMap<String, usize> {
    let behind = document.lines().skip_while(|line| !line.starts_with("| names a runtime |"));
    let rows = behind.skip(2).take_while(|line| line.starts_with('|'));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [file, count, why] = cells[..] else { panic!("`{line}` is no row of three cells") };
        assert!(!why.is_empty(), "`{line}` says no reason");
        (file.trim_matches('`').to_owned(), count.parse().unwrap())
    };
    rows.map(row).collect()
}

fn check(listed: &BTreeMap<String, usize>, found: &BTreeMap<String, usize>) -> Vec<String> {
    let mut faults = Vec::new();
    for (file, count) in found {
        match listed.get(file) {
            None => faults.push(format!(
                "{file} names a runtime {count} times: ask `runtime.facts()` for what is true of it"
            )),
            Some(most) if most < count => {
                faults.push(format!("{file} names runtimes {count} times, not {most}"))
            }
            Some(most) if most > count => {
                faults.push(format!("{file} names runtimes {count} times: lower {most} in the list"));
            }
            Some(_) => {}
        }
    }
    let gone = listed.keys().filter(|file| !found.contains_key(*file));
    faults.extend(gone.map(|file| format!("{file} no longer names a runtime: take it from the list")));
    faults
}

/// Adds the files of a folder and what is in it.
fn add(root: &Path, folder: &str, found: &mut BTreeMap<String, usize>) {
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        if root.join(&path).is_dir() {
            if !matches!(name.as_str(), "tests" | "target" | "dist") {
                add(root, &path, found);
            }
        } else if name.ends_with(".rs") && !path.starts_with(HOME) {
            let is_test = ["tests.rs", "testing.rs"].iter().any(|end| name.ends_with(end));
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            let count = if is_test { 0 } else { named(text.parse().unwrap()) };
            if count > 0 {
                found.insert(path, count);
            }
        }
    }
}

/// How often code that is shipped names one of the runtimes.
fn named(stream: TokenStream) -> usize {
    let mut tokens = stream.into_iter().peekable();
    let mut count = 0;
    while let Some(token) = tokens.next() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == '#' => pass_attribute(&mut tokens),
            TokenTree::Group(group) => count += named(group.stream()),
            TokenTree::Ident(word) if word == "Runtime" && is_mark(tokens.peek(), ':') => {
                tokens.nth(1);
                if let Some(TokenTree::Ident(which)) = tokens.peek() {
                    let which = which.to_string();
                    count += usize::from(
                        ["Megatron", "Fsdp2", "MegatronFsdp", "Native"].contains(&which.as_str()),
                    );
                }
            }
            _ => {}
        }
    }
    count
}

#[test]
fn names_are_counted_in_code_that_is_shipped() {
    let code = "use crate::runtime::Runtime;\n\
         // Runtime::Native in a comment\n\
         fn f(one: Runtime) -> bool { matches!(one, Runtime::Fsdp2 | Runtime::MegatronFsdp) || one == crate::runtime::Runtime::Native }\n\
         const ALL: usize = Runtime::ALL.len();\n\
         fn g() -> &'static str { \"Runtime::Native\" }\n\
         #[cfg(test)]\nmod tests { fn h() { Runtime::Native; } }\n";
    assert_eq!(named(code.parse().unwrap()), 3);
}

#[test]
fn what_the_list_does_not_allow_is_named() {
    let document = "x\n| names a runtime | times | why |\n|---|---|---|\n| `a.rs` | 2 | it chooses |\n| `b.rs` | 1 | it reads |\n\nrest\n";
    let listed = table(document);
    let found =
        |all: &[(&str, usize)]| all.iter().map(|(file, count)| ((*file).to_owned(), *count)).collect();
    assert_eq!(check(&listed, &found(&[("a.rs", 2), ("b.rs", 1)])), [""; 0]);
    assert_eq!(
        check(&listed, &found(&[("a.rs", 3), ("c.rs", 1)])),
        [
            "a.rs names runtimes 3 times, not 2",
            "c.rs names a runtime 1 times: ask `runtime.facts()` for what is true of it",
            "b.rs no longer names a runtime: take it from the list",
        ]
    );
    assert_eq!(
        check(&listed, &found(&[("a.rs", 1), ("b.rs", 1)])),
        ["a.rs names runtimes 1 times: lower 2 in the list"]
    );
}
