//! What people write for the fields of a plan file and their values, and what is meant by it: a table of names, a table of
//! values, and a few that have to be worked out. What means exactly the same is taken, with a remark; what only resembles
//! is refused with one sentence that says what to write. Whatever stands in no table is left to the reader.

mod counts;
mod fields;
mod names;
mod numbers;
mod open;
mod place;
mod shorthands;
#[cfg(test)]
mod tests;
mod values;
mod zero;

use serde_json::{Map, Value};

use crate::finding::{Finding, clip};
use crate::json::Located;
use crate::json::value_of;
use crate::wire::{PlanFile, Remark};
pub(super) use fields::of as fields;
use names::Meaning;
pub(super) use numbers::wanted;
pub(super) use place::{at, put};
use place::{fold, take};

/// Rounds in which names are put in their place: a section may hold another that people name in their own way.
const ROUNDS: usize = 4;
/// The rule behind a refusal and a remark.
const RULE: &str = "plan file: what people write, and what is meant";

/// A plan file in the plan file's own words.
pub(super) struct Spelled {
    /// The file as it is to be read.
    pub(super) root: Value,
    /// What was read as something else.
    pub(super) remarks: Vec<Remark>,
    /// What can't be taken, each with what to write instead. Their fields are no more in `root`.
    pub(super) refusals: Vec<Finding>,
    /// Numbers that say something about others: GPUs in all, replicas, micro batches of a step.
    counts: Vec<counts::Said>,
}

/// The plan file of a person in the plan file's own words.
pub(super) fn spelled(root: Value) -> Spelled {
    let mut spelled = Spelled { root, remarks: Vec::new(), refusals: Vec::new(), counts: Vec::new() };
    shorthands::whole_sections(&mut spelled);
    for _ in 0..ROUNDS {
        if !spelled.names() {
            break;
        }
        shorthands::whole_sections(&mut spelled);
    }
    shorthands::settings(&mut spelled);
    open::settle(&mut spelled);
    values::normalise(&mut spelled);
    zero::settle(&mut spelled);
    counts::settle(&mut spelled);
    spelled
}

/// The plan file in `spelled`, with numbers that were written as text.
pub(super) fn read(spelled: &mut Spelled) -> Result<PlanFile, Located> {
    loop {
        let wrong = match PlanFile::read(spelled.root.clone()) {
            Ok(file) => return Ok(file),
            Err(wrong) => wrong,
        };
        let (path, message) = wrong.innermost();
        if !numbers::taken(spelled, &path, &message) {
            return Err(wrong);
        }
    }
}

/// The remarks that still hold: a field that got another value since it was read says nothing of the one before.
pub(crate) fn holding(file: &PlanFile) -> Vec<Finding> {
    if file.remarks.is_empty() {
        return Vec::new();
    }
    let values = value_of(file);
    let holds =
        |remark: &&Remark| at(&values, &remark.finding.field).is_some_and(|value| same(value, &remark.value));
    let mut findings: Vec<Finding> = Vec::new();
    for remark in file.remarks.iter().filter(holds) {
        // A file that was put together from parts, each read by itself, has a remark of each.
        if !findings.contains(&remark.finding) {
            findings.push(remark.finding.clone());
        }
    }
    findings
}

/// Whether two values are the same to a reader, to whom 8 and 8.0 are one number.
fn same(one: &Value, other: &Value) -> bool {
    one == other || one.as_f64().zip(other.as_f64()).is_some_and(|(one, other)| one == other)
}

impl Spelled {
    /// `written` was read as `value` of `field`.
    fn remark(&mut self, field: &str, written: &Value, value: &Value, message: String) {
        // A field gets one remark, however many words were read for it: its name, its value, the number in its text.
        match self.remarks.iter_mut().find(|remark| remark.finding.field == field) {
            Some(remark) => {
                remark.finding.message = format!("{}; {message}", remark.finding.message);
                remark.value = value.clone();
            }
            None => {
                let finding = Finding::info(field, short(written), message).rule(RULE);
                self.remarks.push(Remark { finding, value: value.clone() });
            }
        }
    }

    /// `written` at `field` can't be taken.
    fn refuse(&mut self, field: &str, written: &Value, message: impl Into<String>) {
        self.refusals.push(Finding::error(field, short(written), message).rule(RULE));
    }

    /// Puts `value` where `field` is, said there as `written`: only where nothing else stands.
    fn set(&mut self, field: &str, value: Value, written: &str) {
        match at(&self.root, field) {
            Some(there) if !there.is_null() => {
                if !same(there, &value) {
                    let message = format!(
                        "`{written}` says {} and `{field}` {}; keep one of the two",
                        clip(&value.to_string()),
                        clip(&there.to_string())
                    );
                    self.refuse(field, &value, message);
                }
            }
            _ => {
                if !put(&mut self.root, field, value.clone()) {
                    self.refuse(
                        field,
                        &value,
                        format!("`{written}` belongs to `{field}`, which has no fields here"),
                    );
                }
            }
        }
    }

    /// Puts fields in their place; whether anything was moved.
    fn names(&mut self) -> bool {
        let mut moved = false;
        for (section, known) in fields::sections() {
            let Some(Value::Object(object)) = at(&self.root, section) else { continue };
            let unknown: Vec<String> =
                object.keys().filter(|key| !known.iter().any(|known| known == *key)).cloned().collect();
            for key in unknown {
                moved |= self.name(section, &key);
            }
        }
        moved
    }

    /// What becomes of a field that its section does not know; whether anything became of it.
    fn name(&mut self, section: &str, key: &str) -> bool {
        let path = if section.is_empty() { key.to_owned() } else { format!("{section}.{key}") };
        let Some(meaning) = names::meaning(section, key) else { return false };
        let Some(value) = take_key(&mut self.root, section, key) else { return false };
        // Null asks for the default, whatever it is called.
        if value.is_null() {
            return true;
        }
        let key = clip(key);
        match meaning {
            Meaning::Field(field) => self.moved(&field, value, &key),
            Meaning::Switch(field, on) => match numbers::switch(&value) {
                Some(true) => {
                    self.set(field, on.into(), &key);
                    let message = format!("`{key}` is read as {field}: {on}");
                    self.remark(field, &value, &on.into(), message);
                }
                Some(false) => {}
                None => self.moved(field, value, &key),
            },
            Meaning::Count(kind) => self.counts.push(counts::Said { kind, path, value }),
            Meaning::Says(sentence) => {
                self.refuse(&clip(&path), &value, format!("`{key}` is no field here: {sentence}"))
            }
        }
        true
    }

    /// A value under another name: whole sections are joined with what is there.
    fn moved(&mut self, field: &str, value: Value, written: &str) {
        let section = fields::sections().iter().any(|(section, _)| *section == field);
        match (section, value) {
            (true, Value::Object(entries)) => {
                for (key, value) in entries {
                    // A key with dots would be a path; the reader refuses it where it stands.
                    let there = at(&self.root, field).and_then(|place| place.get(&key));
                    if there.is_some_and(|there| !same(there, &value)) {
                        let message = format!(
                            "`{}` stands in `{written}` and in `{field}`; keep one of the two",
                            clip(&key)
                        );
                        self.refuse(field, &value, message);
                        continue;
                    }
                    let path = format!("{field}.{key}");
                    self.remark(&path, &value, &value, format!("`{written}` is read as {field}"));
                    insert(&mut self.root, field, key, value);
                }
            }
            (_, value) => {
                let refused = self.refusals.len();
                self.set(field, value.clone(), written);
                if self.refusals.len() == refused {
                    self.remark(field, &value, &value, format!("`{written}` is read as {field}"));
                }
            }
        }
    }
}

/// Takes a field out of a section; its name may have dots.
fn take_key(root: &mut Value, section: &str, key: &str) -> Option<Value> {
    place::at_mut(root, section)?.as_object_mut()?.remove(key)
}

/// Puts a field into a section, which is made where it is not; its name may have dots.
fn insert(root: &mut Value, section: &str, key: String, value: Value) {
    if at(root, section).is_none_or(Value::is_null) {
        put(root, section, Value::Object(Map::new()));
    }
    if let Some(Value::Object(object)) = place::at_mut(root, section) {
        object.insert(key, value);
    }
}

/// A value as findings show it.
fn short(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(clip(text)),
        Value::Array(_) | Value::Object(_) => Value::String(clip(&value.to_string())),
        plain => plain.clone(),
    }
}
