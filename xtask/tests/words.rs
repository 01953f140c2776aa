//! One word for one thing: what the glossary of ARCHITECTURE.md says of names holds of the sources.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};

use tokens::{is_mark, pass_attribute};

/// Where sources of each crate are.
const CRATES: [&str; 13] = [
    "planner/src",
    "planner/batch/src",
    "planner/diagnose/src",
    "planner/evidence/src",
    "planner/frameworks/src",
    "web/src",
    "web/searcher/src",
    "native-worker/src",
    "native-worker/run-folder/src",
    "native-worker/tensor-files/src",
    "native-worker/token-files/src",
    "native-worker/rank/src",
    "xtask/src",
];

/// Programs, which export nothing: what is `pub` there is of the program itself.
const PROGRAMS: [&str; 5] =
    ["web/src", "web/searcher/src", "native-worker/src", "native-worker/rank/src", "xtask/src"];

/// Types of a crate that other modules see, by name, each with the files that declare it.
type Types = BTreeMap<String, BTreeSet<String>>;

/// What is read of a crate: its exported types, all its types, and its words.
#[derive(Default)]
struct Read {
    exported: Types,
    all: Types,
    text: String,
}

#[test]
fn the_glossary_holds() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let document = std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap();
    let crates = CRATES.map(|folder| {
        let mut read = Read::default();
        add(&root, folder, &mut read);
        if PROGRAMS.contains(&folder) {
            read.exported.clear();
        }
        read
    });
    let faults = check(&document, &crates);
    assert!(faults.is_empty(), "{} faults by ARCHITECTURE.md:\n  {}", faults.len(), faults.join("\n  "));
}

/// Rows of the glossary: words, and names that no type has.
fn glossary(document: &str) -> Vec<(Vec<String>, Vec<String>)> {
    let behind = document.lines().skip_while(|line| !line.starts_with("| word |"));
    let list = |cell: &str| {
        cell.split(',')
            .map(|one| one.trim().trim_matches('`').to_owned())
            .filter(|one| !one.is_empty())
            .collect()
    };
    let row = |line: &str| {
        let cells: Vec<&str> = line
            .strip_prefix('|')
            .and_then(|line| line.strip_suffix('|'))
            .unwrap_or(line)
            .split('|')
            .map(str::trim)
            .collect();
        let [words, what, names] = cells[..] else { panic!("`{line}` is no row of three cells") };
        assert!(!what.is_empty(), "`{line}` says nothing of the word");
        (list(words), list(names))
    };
    behind.skip(2).take_while(|line| line.starts_with('|')).map(row).collect()
}

fn check(document: &str, crates: &[Read]) -> Vec<String> {
    let mut faults = Vec::new();
    for (words, names) in glossary(document) {
        for word in words {
            let written =
                [word.clone(), word.replace(' ', "_"), word.replace(' ', "-"), word.replace(' ', "")];
            let is_used = |read: &Read| written.iter().any(|word| read.text.contains(word.as_str()));
            if !crates.iter().any(is_used) {
                faults.push(format!("nothing is called {word}: take it from the glossary"));
            }
        }
        for name in names {
            for files in crates.iter().filter_map(|read| read.all.get(&name)) {
                faults.push(format!("{name} is a type of {}: the glossary has another word", list(files)));
            }
        }
    }
    let mut several = Vec::new();
    for read in crates {
        several.extend(read.exported.iter().filter(|(_, files)| files.len() > 1));
    }
    let said = document
        .split("which may only shrink: ")
        .nth(1)
        .and_then(|rest| rest.split('.').next()?.parse().ok());
    if said != Some(several.len()) {
        let names: Vec<String> =
            several.iter().map(|(name, files)| format!("{name} ({})", files.len())).collect();
        faults.push(format!(
            "{} type names are exported more than once, and ARCHITECTURE.md says {said:?}; a new one needs another name, and of fewer the document says so: {}",
            several.len(),
            names.join(", ")
        ));
    }
    faults
}

fn list(files: &BTreeSet<String>) -> String {
    files.iter().cloned().collect::<Vec<_>>().join(", ")
}

/// Adds the files of a folder and what is in it.
fn add(root: &Path, folder: &str, read: &mut Read) {
    for entry in std::fs::read_dir(root.join(folder)).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let path = format!("{folder}/{name}");
        let is_test = ["tests", "tests.rs", "testing.rs"].iter().any(|end| name.ends_with(end));
        if is_test || matches!(name.as_str(), "target" | "dist") {
            continue;
        }
        if root.join(&path).is_dir() {
            add(root, &path, read);
        } else if name.ends_with(".rs") {
            let text = std::fs::read_to_string(root.join(&path)).unwrap();
            types(text.parse().unwrap(), &path, read);
            read.text.push_str(&text.to_lowercase());
        }
    }
}

/// Adds types that code declares.
fn types(stream: TokenStream, path: &str, read: &mut Read) {
    let mut tokens = stream.into_iter().peekable();
    // Whether the last words were `pub`, and nothing of `pub(super)`.
    let mut public = false;
    while let Some(token) = tokens.next() {
        match token {
            mark if is_mark(Some(&mark), '#') => pass_attribute(&mut tokens),
            TokenTree::Group(group) => {
                public = false;
                types(group.stream(), path, read);
            }
            TokenTree::Ident(word) if word == "pub" => public = true,
            TokenTree::Ident(word) if ["struct", "enum", "trait"].iter().any(|kind| word == kind) => {
                if let Some(TokenTree::Ident(name)) = tokens.peek() {
                    let add = |types: &mut Types| {
                        types.entry(name.to_string()).or_default().insert(path.to_owned())
                    };
                    add(&mut read.all);
                    if public {
                        add(&mut read.exported);
                    }
                }
                public = false;
            }
            TokenTree::Ident(word) if word == "unsafe" => {}
            _ => public = false,
        }
    }
}

#[test]
fn types_are_those_that_code_declares_for_others() {
    let code = "pub struct One; pub(crate) enum Two { A } struct Three;\n\
        // pub struct Four;\n\
        pub trait Five { fn f(); }\n\
        #[cfg(test)]\nmod tests { pub struct Six; }\n";
    let mut read = Read::default();
    types(code.parse().unwrap(), "a.rs", &mut read);
    assert_eq!(read.exported.keys().collect::<Vec<_>>(), ["Five", "One"]);
    assert_eq!(read.all.keys().collect::<Vec<_>>(), ["Five", "One", "Three", "Two"]);
}

#[test]
fn what_the_glossary_does_not_allow_is_named() {
    let document = "of a crate, which may only shrink: 0.\n\n| word | what it is | no type is called |\n|---|---|---|\n| run folder | files | `Bag` |\n| moon | none | |\n";
    let mut read = Read { text: "the run_folder of a run".to_owned(), ..Read::default() };
    types("struct Bag;".parse().unwrap(), "a.rs", &mut read);
    let declared = "pub struct Twice;".parse::<TokenStream>().unwrap();
    for path in ["a.rs", "b.rs"] {
        types(declared.clone(), path, &mut read);
    }
    assert_eq!(
        check(document, &[read]),
        [
            "Bag is a type of a.rs: the glossary has another word",
            "nothing is called moon: take it from the glossary",
            "1 type names are exported more than once, and ARCHITECTURE.md says Some(0); a new one needs another name, and of fewer the document says so: Twice (2)",
        ]
    );
}
