//! Every place of a site, a plan and a kind of script that takes any text. The formats themselves are asked, so a field
//! that is added later is among them.

use batch::launch::{ScriptOptions, Site};
use planner::wire::PlanFile;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What a script is made of.
#[derive(Debug, Clone)]
pub struct Inputs {
    /// A site, as its file.
    pub site: Value,
    /// A plan file.
    pub plan: Value,
    /// A kind of script.
    pub options: ScriptOptions,
}

/// What takes the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// The field itself.
    Text,
    /// The only item of its list.
    Item,
    /// A name in its map.
    Name,
    /// A value in its map.
    Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Root {
    Site,
    Plan,
    Options,
}

/// A place.
#[derive(Debug, Clone)]
pub struct Place {
    root: Root,
    pointer: String,
    shape: Shape,
}

impl Place {
    /// Its name, as findings say it.
    pub fn field(&self) -> String {
        let path = self.pointer.trim_start_matches('/').replace('/', ".");
        match self.root {
            Root::Site => format!("site.{path}"),
            Root::Plan => path,
            Root::Options => format!("script.{path}"),
        }
    }

    /// Puts a text there.
    pub fn put(&self, inputs: &mut Inputs, text: &str) {
        let target = match self.root {
            Root::Site => &mut inputs.site,
            Root::Plan => &mut inputs.plan,
            Root::Options => {
                let text = text.to_owned();
                match self.pointer.as_str() {
                    "/array" => inputs.options.array = Some(text),
                    "/het" => inputs.options.het = Some(text),
                    _ => inputs.options.command = vec!["train".to_owned(), text, "last".to_owned()],
                }
                return;
            }
        };
        match self.shape {
            Shape::Text => set(target, &self.pointer, json!(text)),
            Shape::Item => set(target, &self.pointer, json!([text])),
            Shape::Name => set(target, &format!("{}/{}", self.pointer, escaped(text)), json!("1")),
            Shape::Value => set(target, &format!("{}/FINE", self.pointer), json!(text)),
        }
    }
}

/// All places, given a site and a plan in which nothing is wrong.
pub fn places(inputs: &Inputs) -> Vec<Place> {
    // A field that is added here has to be added to `Place::put`, but for commands that are there to be executed.
    let ScriptOptions {
        mode: _,
        body: _,
        task: _,
        array: _,
        het: _,
        command: _,
        startup: _,
        environment: _,
        going_on: _,
        spare_nodes: _,
        cluster_alone: _,
        strict: _,
    } = inputs.options;
    let mut all = Vec::new();
    for pointer in ["/array", "/het", "/command"] {
        all.push(Place { root: Root::Options, pointer: pointer.to_owned(), shape: Shape::Text });
    }
    find::<Site>(Root::Site, &inputs.site, "", &mut all);
    // Lines of shell are there to be executed, too.
    all.retain(|place| place.field() != "site.prologue");
    find::<PlanFile>(Root::Plan, &inputs.plan, "", &mut all);
    all
}

/// Finds the places under a pointer of a document that `T` reads.
fn find<T: DeserializeOwned>(root: Root, document: &Value, pointer: &str, all: &mut Vec<Place>) {
    for name in names::<T>(document, pointer) {
        let pointer = format!("{pointer}/{name}");
        if !names::<T>(document, &pointer).is_empty() {
            find::<T>(root, document, &pointer, all);
            continue;
        }
        let takes = |value: Value| {
            let mut changed = document.clone();
            set(&mut changed, &pointer, value);
            serde_json::from_value::<T>(changed).is_ok()
        };
        let shapes = [
            (Shape::Text, takes(json!("x"))),
            (Shape::Item, takes(json!(["x"]))),
            (Shape::Name, takes(json!({"x": "x"}))),
            (Shape::Value, takes(json!({"x": "x"}))),
        ];
        let found = shapes.into_iter().filter(|(_, takes)| *takes);
        all.extend(found.map(|(shape, _)| Place { root, pointer: pointer.clone(), shape }));
    }
}

/// Names of the fields under a pointer, which the error about an unknown one lists.
fn names<T: DeserializeOwned>(document: &Value, pointer: &str) -> Vec<String> {
    let mut changed = document.clone();
    set(&mut changed, &format!("{pointer}/?"), json!(0));
    let error = serde_json::from_value::<T>(changed).err().map(|error| error.to_string()).unwrap_or_default();
    let Some((_, listed)) = error.split_once("unknown field `?`, expected ") else { return Vec::new() };
    listed.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn escaped(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

/// Sets a value at a pointer and makes the objects on the way.
fn set(document: &mut Value, pointer: &str, value: Value) {
    let mut at = document;
    for name in pointer.split('/').skip(1) {
        let name = name.replace("~1", "/").replace("~0", "~");
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[name];
    }
    *at = value;
}

#[test]
fn fields_of_all_depths_are_found() {
    let plan = json!({
        "version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"},
        "run": {"data": {"kind": "text", "path": "x"}},
    });
    let inputs = Inputs { site: json!({}), plan, options: ScriptOptions::default() };
    let fields: Vec<String> = places(&inputs).iter().map(Place::field).collect();
    for field in [
        "site.account",
        "site.mounts",
        "site.env",
        "script.command",
        "name",
        "cluster.gpu",
        "layout.fsdp.strategy",
        "training.recompute.modules",
        "run.data.path",
        "model.hf_config",
    ] {
        assert!(fields.iter().any(|known| known == field), "{field} is not in {fields:?}");
    }
    assert!(!fields.iter().any(|field| field == "site.exclusive" || field == "layout.tp"), "{fields:?}");
}
