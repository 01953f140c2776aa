//! Every test that ARCHITECTURE.md names for a property is there: a name that a move left behind says nothing.

use std::path::{Path, PathBuf};

/// Crates of the document, with their folders.
const CRATES: [(&str, &str); 11] = [
    ("planner", "planner"),
    ("batch", "planner/batch"),
    ("diagnose", "planner/diagnose"),
    ("evidence", "planner/evidence"),
    ("frameworks", "planner/frameworks"),
    ("shardplan", "native-worker"),
    ("run-folder", "native-worker/run-folder"),
    ("token-files", "native-worker/token-files"),
    ("shardplan-rank", "native-worker/rank"),
    ("system-tests", "tests"),
    ("xtask", "xtask"),
];

#[test]
fn named_tests_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let named = named(&document);
    assert!(named.len() > 100, "{} tests are named", named.len());
    let missing: Vec<&(&str, &str)> =
        named.iter().filter(|(name, test)| !is_there(&root, name, test)).collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md names tests that are not there: {missing:?}");
}

/// What stands as `crate: place` in the document, between backticks.
fn named(document: &str) -> Vec<(&str, &str)> {
    let quoted = document.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let of_a_crate = quoted.filter_map(|quoted| quoted.split_once(": "));
    of_a_crate.filter(|(name, _)| CRATES.iter().any(|(known, _)| known == name)).collect()
}

/// Whether a crate has a test file or folder, a module with tests, or a test of that name in one.
fn is_there(root: &Path, name: &str, test: &str) -> bool {
    let Some((_, folder)) = CRATES.iter().find(|(known, _)| *known == name) else { return false };
    let folder = root.join(folder);
    if test.starts_with("tests/") {
        return folder.join(test).exists() || folder.join(format!("{test}.rs")).is_file();
    }
    let parts: Vec<&str> = test.split("::").collect();
    let mut tops = vec![folder.join("src")];
    if name == "system-tests" {
        let programs = std::fs::read_dir(folder.join("tests")).unwrap();
        tops.extend(programs.map(|program| program.unwrap().path()).chain([folder.join("tests")]));
    }
    tops.iter().any(|top| has(top, &parts))
}

/// Whether the modules below a folder lead to a place where tests stand, or to a function in one.
fn has(top: &Path, parts: &[&str]) -> bool {
    let Some((last, before)) = parts.split_last() else { return false };
    let (inside, whole) = (before.iter().collect::<PathBuf>(), parts.iter().collect::<PathBuf>());
    let read = |module: &Path| {
        let place = top.join(module);
        let files = [place.with_extension("rs"), place.join("mod.rs"), place.join("lib.rs")];
        files.iter().find_map(|file| std::fs::read_to_string(file).ok())
    };
    if top.join(&whole).is_dir()
        || read(&whole).is_some_and(|text| text.contains("test]") || text.contains("proptest!"))
    {
        return true;
    }
    let items = [format!("fn {last}("), format!("mod {last};"), format!("mod {last} {{")];
    let has_item = |text: String| items.iter().any(|item| text.contains(item));
    // Tests stand in the file that they are of, too.
    read(&inside).is_some_and(has_item)
        || before.last() == Some(&"tests")
            && read(inside.parent().unwrap_or(Path::new(""))).is_some_and(has_item)
}

#[test]
fn what_is_not_there_is_noticed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    assert_eq!(
        named("a `xtask: tests/rooms.rs` b `else: c` d `planner: search::tests`"),
        [("xtask", "tests/rooms.rs"), ("planner", "search::tests"),]
    );
    for (name, test) in [
        ("planner", "search::no_tests"),
        ("planner", "schedule::tests::no_such_test"),
        ("xtask", "tests/nothing.rs"),
        ("system-tests", "nothing"),
        ("evidence", "tests::no_such_test"),
    ] {
        assert!(!is_there(&root, name, test), "{name}: {test}");
    }
}
