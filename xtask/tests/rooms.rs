//! Rooms, the modules at the top of a crate, know only rooms that stand before them.
//!
//! Which know which stands in ARCHITECTURE.md and is held against what their code names: what is new there has to be argued
//! for in the table, what went has to leave it, and a circle can only be of arrows that are marked to be taken back.

mod tokens;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use proc_macro2::{Delimiter, TokenStream, TokenTree};

use tokens::{Tokens, is_mark, pass_attribute};

/// Which rooms a room names.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// A line of a table: a room, what it may name, and what it names though that stands behind it.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    room: String,
    uses: BTreeSet<String>,
    back: BTreeSet<String>,
}

#[test]
fn rooms_know_what_the_tables_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let tables = tables(&std::fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap());
    let crates: Vec<&str> = tables.keys().map(String::as_str).collect();
    assert_eq!(
        crates,
        [
            "native-worker/rank/src",
            "native-worker/src",
            "planner/batch/src",
            "planner/frameworks/src",
            "planner/src",
            "web/src"
        ]
    );
    let mut faults = Vec::new();
    for (folder, rows) in &tables {
        faults.extend(
            check(rows, &arrows(&root.join(folder))).iter().map(|fault| format!("{folder}: {fault}")),
        );
    }
    assert!(faults.is_empty(), "{} faults by ARCHITECTURE.md:\n  {}", faults.len(), faults.join("\n  "));
}

/// The tables of rooms in a document, by the folder that their first column names.
fn tables(document: &str) -> BTreeMap<String, Vec<Row>> {
    let mut tables: BTreeMap<String, Vec<Row>> = BTreeMap::new();
    let mut table = None;
    for line in document.lines() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let names = |cell: &str| cell.split_whitespace().map(str::to_owned).collect();
        match (&table, &cells[..]) {
            (_, [head, _, _]) if head.starts_with("room of `") => {
                table = head.split('`').nth(1).map(str::to_owned);
            }
            (Some(_), [line, ..]) if line.starts_with("--") => {}
            (Some(folder), [room, uses, back]) => {
                let row = Row { room: (*room).to_owned(), uses: names(uses), back: names(back) };
                tables.entry(folder.clone()).or_default().push(row);
            }
            _ => table = None,
        }
    }
    tables
}

/// Where a table and what is found differ, and where the table's own order is broken.
fn check(rows: &[Row], found: &Arrows) -> Vec<String> {
    let mut faults = Vec::new();
    let listed: BTreeSet<&String> = rows.iter().map(|row| &row.room).collect();
    faults.extend(found.keys().filter(|room| !listed.contains(room)).map(|room| format!("{room} is no row")));
    let mut before: BTreeSet<String> = BTreeSet::new();
    for Row { room, uses, back } in rows {
        let Some(named) = found.get(room) else {
            faults.push(format!("{room} is a row and no room"));
            continue;
        };
        for other in named.iter().filter(|other| !uses.contains(*other) && !back.contains(*other)) {
            let behind = if before.contains(other) { "" } else { ", and stands behind it" };
            faults.push(format!("{room} names {other}, which its row does not allow{behind}"));
        }
        for other in uses.union(back).filter(|other| !named.contains(*other)) {
            faults.push(format!("{room} no longer names {other}: take that from its row"));
        }
        for other in uses.iter().filter(|other| !before.contains(*other)) {
            faults.push(format!("{room} may not use {other}, which does not stand before it"));
        }
        for other in back.iter().filter(|other| before.contains(*other)) {
            faults.push(format!("{room} may use {other}, which stands before it: nothing to take back"));
        }
        before.insert(room.clone());
    }
    faults
}

/// What the rooms of a crate name of each other in code that is shipped.
fn arrows(folder: &Path) -> Arrows {
    let root = ["lib.rs", "main.rs"].map(|name| folder.join(name)).into_iter().find(|file| file.is_file());
    let root = read(&root.expect("a folder with lib.rs or main.rs"));
    let mut found: Arrows = root.modules.iter().map(|room| (room.clone(), BTreeSet::new())).collect();
    // What the root hands on belongs to the room that it takes it from.
    let mut home: BTreeMap<String, String> =
        root.modules.iter().map(|room| (room.clone(), room.clone())).collect();
    home.extend(root.handed_on);
    let mut sources: BTreeMap<&String, Vec<Source>> = BTreeMap::new();
    for room in &root.modules {
        let mut files = vec![(file_of(folder, room), 1)];
        while let Some((file, depth)) = files.pop() {
            let source = read(&file);
            let inside = if file.ends_with("mod.rs") {
                file.parent().unwrap().into()
            } else {
                file.with_extension("")
            };
            files.extend(source.modules.iter().map(|module| (file_of(&inside, module), depth + 1)));
            let at_root = source.named.iter().filter(|(supers, _)| *supers == 0 || *supers == depth);
            let others = at_root.filter_map(|(_, name)| home.get(name)).filter(|other| *other != room);
            found.get_mut(room).unwrap().extend(others.cloned());
            sources.entry(room).or_default().push(source);
        }
    }
    let elsewhere = added_elsewhere(&sources);
    for (room, sources) in &sources {
        let called = sources.iter().flat_map(|source| &source.called);
        let others = called.filter_map(|name| elsewhere.get(name)).filter(|other| other != room);
        found.get_mut(*room).unwrap().extend(others.cloned());
    }
    found
}

/// Functions that a room adds to a type of another one, with that room: whoever calls one names the room, though no path says so.
/// Only those of a name that the crate has once.
fn added_elsewhere(sources: &BTreeMap<&String, Vec<Source>>) -> BTreeMap<String, String> {
    let mut times: BTreeMap<&String, usize> = BTreeMap::new();
    for function in sources.values().flatten().flat_map(|source| &source.functions) {
        *times.entry(function).or_default() += 1;
    }
    let mut added = BTreeMap::new();
    for (room, sources) in sources {
        let own: BTreeSet<&String> = sources.iter().flat_map(|source| &source.types).collect();
        let of_others =
            sources.iter().flat_map(|source| &source.added).filter(|(owner, _)| !own.contains(owner));
        for (_, function) in of_others.filter(|(_, function)| times[function] == 1) {
            added.insert(function.clone(), (*room).clone());
        }
    }
    added
}

fn file_of(folder: &Path, module: &str) -> PathBuf {
    let file = folder.join(format!("{module}.rs"));
    if file.is_file() { file } else { folder.join(module).join("mod.rs") }
}

/// What a file declares and names, without what is compiled for tests alone.
#[derive(Debug, Default, PartialEq, Eq)]
struct Source {
    /// Modules with files of their own.
    modules: Vec<String>,
    /// First names of paths: behind so many `super`, or behind `crate` for none.
    named: BTreeSet<(usize, String)>,
    /// What is taken out of modules by `use module::..`, and out of which.
    handed_on: Vec<(String, String)>,
    /// Types that it declares.
    types: BTreeSet<String>,
    /// Functions, each as often as it is declared.
    functions: Vec<String>,
    /// Functions that it adds to types, with the type.
    added: Vec<(String, String)>,
    /// Functions that are called of a value or a type.
    called: BTreeSet<String>,
}

fn read(file: &Path) -> Source {
    let text = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    source(&text)
}

fn source(text: &str) -> Source {
    let mut source = Source::default();
    source.add(text.parse().unwrap());
    source
}

impl Source {
    fn add(&mut self, stream: TokenStream) {
        let mut tokens = stream.into_iter().peekable();
        while let Some(token) = tokens.next() {
            match token {
                TokenTree::Punct(mark) if mark.as_char() == '#' => pass_attribute(&mut tokens),
                TokenTree::Group(group) => self.add(group.stream()),
                TokenTree::Ident(word) if word == "mod" => {
                    let name = tokens.next().unwrap().to_string();
                    if is_mark(tokens.peek(), ';') {
                        self.modules.push(name);
                    }
                }
                TokenTree::Ident(word) if word == "use" => {
                    // Only what begins with a module's own name, as roots hand things on.
                    if let Some(TokenTree::Ident(module)) = tokens.peek()
                        && module != "crate"
                        && module != "super"
                    {
                        let module = module.to_string();
                        tokens.next();
                        let names = path_ends(&mut tokens);
                        self.handed_on.extend(names.into_iter().map(|name| (name, module.clone())));
                    }
                }
                TokenTree::Ident(word) if word == "struct" || word == "enum" => {
                    self.types.extend(tokens.peek().map(ToString::to_string));
                }
                TokenTree::Ident(word) if word == "fn" => {
                    self.functions.extend(tokens.peek().map(ToString::to_string));
                }
                TokenTree::Ident(word) if word == "impl" => self.add_impl(&mut tokens),
                TokenTree::Punct(mark) if mark.as_char() == '.' || mark.as_char() == ':' => {
                    let mut ahead = tokens.clone();
                    if let (Some(TokenTree::Ident(word)), Some(TokenTree::Group(_))) =
                        (ahead.next(), ahead.next())
                    {
                        self.called.insert(word.to_string());
                    }
                }
                TokenTree::Ident(word) if word == "crate" => self.add_path(0, &mut tokens),
                TokenTree::Ident(word) if word == "super" => self.add_path(1, &mut tokens),
                _ => {}
            }
        }
    }

    /// Adds an `impl`: of a type's own functions what they are of; what a trait asks for is the trait's.
    fn add_impl(&mut self, tokens: &mut Tokens) {
        let mut words: Vec<String> = Vec::new();
        let (mut inside, mut arrow) = (0, false);
        for token in tokens.by_ref() {
            match &token {
                TokenTree::Group(body) if body.delimiter() == Delimiter::Brace => {
                    if let [owner] = &words[..] {
                        self.added.extend(functions(body.stream()).map(|name| (owner.clone(), name)));
                    }
                    self.add(body.stream());
                    return;
                }
                TokenTree::Group(group) => self.add(group.stream()),
                // `impl Trait` as a type.
                TokenTree::Punct(mark) if mark.as_char() == ';' => return,
                TokenTree::Punct(mark) if mark.as_char() == '<' => inside += 1,
                TokenTree::Punct(mark) if mark.as_char() == '>' && !arrow => inside -= 1,
                TokenTree::Ident(word) if inside == 0 => words.push(word.to_string()),
                _ => {}
            }
            arrow = is_mark(Some(&token), '-');
        }
    }

    /// Adds what a path names first, behind `crate` or `super`.
    fn add_path(&mut self, supers: usize, tokens: &mut Tokens) {
        if !is_mark(tokens.peek(), ':') {
            return;
        }
        tokens.nth(1);
        match tokens.next() {
            Some(TokenTree::Ident(word)) if word == "super" => self.add_path(supers + 1, tokens),
            Some(TokenTree::Ident(word)) => {
                self.named.insert((supers, word.to_string()));
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                let mut is_first = true;
                for token in group.stream() {
                    if let TokenTree::Ident(word) = &token
                        && is_first
                    {
                        self.named.insert((supers, word.to_string()));
                    }
                    is_first = is_mark(Some(&token), ',');
                }
                // Paths that stand inside.
                self.add(group.stream());
            }
            _ => {}
        }
    }
}

/// Names of the functions that stand in a body, not of those inside them.
fn functions(body: TokenStream) -> impl Iterator<Item = String> {
    let mut tokens = body.into_iter().peekable();
    std::iter::from_fn(move || {
        loop {
            match tokens.next()? {
                TokenTree::Punct(mark) if mark.as_char() == '#' => pass_attribute(&mut tokens),
                TokenTree::Ident(word) if word == "fn" => return tokens.peek().map(ToString::to_string),
                _ => {}
            }
        }
    })
}

/// The last names of the rest of a `use`: `::a::b` and `::{a, b}`.
fn path_ends(tokens: &mut Tokens) -> Vec<String> {
    let mut last = None;
    for token in tokens.by_ref() {
        match token {
            TokenTree::Punct(mark) if mark.as_char() == ';' => break,
            TokenTree::Ident(word) => last = Some(word.to_string()),
            TokenTree::Group(group) => {
                let words = group.stream().into_iter().filter(|token| matches!(token, TokenTree::Ident(_)));
                return words.map(|word| word.to_string()).collect();
            }
            _ => {}
        }
    }
    last.into_iter().collect()
}

#[test]
fn names_are_read_as_the_compiler_reads_them() {
    let found = source(
        "mod a;\n\
         pub(crate) mod b;\n\
         #[cfg(test)]\n#[allow(dead_code)]\nmod tests;\n\
         pub use a::{One, Two};\n\
         pub use b::three;\n\
         use crate::{c, d::{self, e}};\n\
         // crate::no::comment\n\
         fn f() -> &'static str { let x = g!(crate::in_macro::x); \"crate::no::text\" }\n\
         #[cfg(test)]\nuse crate::{no};\n\
         #[cfg(test)]\nmod inside { use crate::no; }\n\
         mod shipped { pub(in crate::visible) fn f() { super::super::two_up::g() } }\n",
    );
    assert_eq!(found.modules, ["a", "b"]);
    let handed_on = [("One", "a"), ("Two", "a"), ("three", "b")];
    assert_eq!(found.handed_on, handed_on.map(|(name, module)| (name.to_owned(), module.to_owned())));
    let named = [(0, "c"), (0, "d"), (0, "in_macro"), (0, "visible"), (2, "two_up")];
    assert_eq!(found.named, named.map(|(supers, name)| (supers, name.to_owned())).into());
}

#[test]
fn functions_that_a_room_adds_to_another_ones_types_are_its_own() {
    let low = source(
        "pub struct Plan;\nimpl Plan { fn own(&self) {} fn twice(&self) {} }\n\
         fn f(plan: &Plan) -> impl Fn() { plan.resolve(); plan.twice(); plan.field; g }\n",
    );
    let high = source(
        "struct Own<'a>(&'a u8);\nimpl<'a> Own<'a> { fn of_own(&self) {} }\nimpl Default for Plan { fn default() {} }\n\
         impl Plan { pub fn resolve(&self) { fn inside() {} } fn twice(&self) {}\n#[cfg(test)]\nfn no(&self) {} }\n",
    );
    assert_eq!(low.called, ["resolve", "twice"].map(str::to_owned).into());
    let names = ["low", "high"].map(str::to_owned);
    let sources = BTreeMap::from([(&names[0], vec![low]), (&names[1], vec![high])]);
    assert_eq!(added_elsewhere(&sources), [("resolve".to_owned(), "high".to_owned())].into());
}

#[test]
fn what_the_tables_do_not_allow_is_named() {
    let table = "| room of `x/src` | uses | to be taken back |\n|---|---|---|\n| low | | high |\n| high | low | |\n\n";
    let rows = &tables(table)["x/src"];
    let found = |arrows: &[(&str, &[&str])]| -> Arrows {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        arrows.iter().map(|(room, names)| ((*room).to_owned(), set(names))).collect()
    };
    let none: &[&str] = &[];
    assert_eq!(check(rows, &found(&[("low", &["high"]), ("high", &["low"])])), none);
    assert_eq!(
        check(rows, &found(&[("low", none), ("high", &["low", "new"]), ("new", &["low"])])),
        [
            "new is no row",
            "low no longer names high: take that from its row",
            "high names new, which its row does not allow, and stands behind it",
        ]
    );
    assert_eq!(check(rows, &found(&[("low", &["high"])])), ["high is a row and no room"]);
    let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let row = |room: &str, uses: &[&str], back: &[&str]| Row {
        room: room.to_owned(),
        uses: set(uses),
        back: set(back),
    };
    assert_eq!(
        check(
            &[row("low", &["high"], &[]), row("high", &[], &["low"])],
            &found(&[("low", &["high"]), ("high", &["low"])])
        ),
        [
            "low may not use high, which does not stand before it",
            "high may use low, which stands before it: nothing to take back",
        ]
    );
}
