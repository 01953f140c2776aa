//! What frameworks call the fields of a plan: a folder for each, with a row for each option that says how it is written and
//! read, and a row for each field that it has no option for. Scripts, imports and the reference in docs come from the rows.

pub mod automodel;
pub mod bridge;
mod gap;
mod reference;
mod row;
#[cfg(test)]
mod tests;
pub mod torchtitan;

pub use gap::{Gap, Holds};
pub use reference::reference;
pub use row::{Kind, Row};

use serde_json::Value;

use crate::plan::Plan;

/// The rows of a framework, as they hold for plans of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Options, in the order in which they are written. Of several that are one field, the last that is there holds.
    pub rows: &'static [&'static [Row]],
    /// Fields without an option.
    pub gaps: &'static [&'static [Gap]],
}

/// Something of a plan that a job of the framework does not get.
#[derive(Debug, Clone, PartialEq)]
pub struct Missing {
    /// Path of the field.
    pub field: &'static str,
    /// Its value.
    pub value: Value,
    /// Why, in a sentence.
    pub what: &'static str,
}

/// A plan as options of a framework.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Each with its value, in the order of the rows.
    pub options: Vec<(&'static Row, String)>,
    /// What they do not say.
    pub missing: Vec<Missing>,
}

/// The value at a path of a filled plan file; null where there is none.
pub(crate) fn at<'a>(file: &'a Value, path: &str) -> &'a Value {
    const ABSENT: &Value = &Value::Null;
    path.split('.').try_fold(file, |at, part| at.get(part)).unwrap_or(ABSENT)
}

impl Table {
    fn rows(&self) -> impl Iterator<Item = &'static Row> {
        self.rows.iter().copied().flatten()
    }

    fn gaps(&self) -> impl Iterator<Item = &'static Gap> {
        self.gaps.iter().copied().flatten()
    }

    /// The plan as options, and what they do not say.
    pub fn write(&self, plan: &Plan) -> Written {
        let file = serde_json::to_value(&plan.file).unwrap_or_default();
        let mut written = Written::default();
        for row in self.rows().filter(|row| (row.when)(plan)) {
            match row.kind.write(plan, at(&file, row.field)) {
                Ok(word) => written.options.extend(word.map(|word| (row, word))),
                Err(what) => {
                    let value = at(&file, row.field).clone();
                    written.missing.push(Missing { field: row.field, value, what });
                }
            }
        }
        written.missing.extend(gap::missing(self.gaps(), plan, &file));
        written
    }

    /// Puts what a job's settings say into a plan file. `said` knows the value of an option.
    ///
    /// # Errors
    /// The option and its value, where that is none that it takes.
    pub fn read(&self, said: &dyn Fn(&str) -> Option<String>, file: &mut Value) -> Result<(), String> {
        for row in self.rows() {
            let Some(word) = said(row.option).filter(|_| !row.option.is_empty()) else { continue };
            let value =
                row.kind.read(&word, said).map_err(|why| format!("{} is `{word}`, {why}", row.option))?;
            if let Some(value) = value {
                put(file, row.field, value);
            }
        }
        Ok(())
    }

    /// Paths of fields that options are, for a plan in which they mean something.
    pub fn fields(&self, plan: &Plan) -> impl Iterator<Item = &'static str> {
        self.rows().filter(|row| !row.field.is_empty() && (row.when)(plan)).map(|row| row.field)
    }

    /// Whether an option or a gap stands for the field at a path.
    pub fn knows(&self, path: &str) -> bool {
        let is =
            |field: &str| path == field || path.strip_prefix(field).is_some_and(|rest| rest.starts_with('.'));
        self.rows().any(|row| is(row.field)) || self.gaps().any(|gap| is(gap.field))
    }
}

fn put(file: &mut Value, path: &str, value: Value) {
    let mut place = file;
    for part in path.split('.') {
        if !place.is_object() {
            *place = Value::Object(serde_json::Map::new());
        }
        place = &mut place[part];
    }
    *place = value;
}
