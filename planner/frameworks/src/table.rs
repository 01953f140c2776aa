//! The rows of a framework: a plan written as its options, and read back.

use serde_json::Value;

use planner::plan::Plan;
use planner::rules;
use planner::wire::{Part, Setting};

use crate::gap::{self, Gap, Holds, Missing};
use crate::kind::{Kind, NULL};
use crate::path::{at, is_at, put};
use crate::row::Row;

/// The rows of a framework, as they hold for plans of one kind.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// Options, in the order in which they are written. Of several that are one field, the last that is there holds.
    pub rows: &'static [&'static [Row]],
    /// Fields without an option.
    pub gaps: &'static [&'static [Gap]],
}

/// A plan as options of a framework.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Each with its value, in the order of the rows.
    pub options: Vec<(&'static Row, String)>,
    /// What they do not say.
    pub missing: Vec<Missing>,
}

impl Table {
    /// Its options, in order.
    pub fn rows(self) -> impl Iterator<Item = &'static Row> {
        self.rows.iter().copied().flatten()
    }

    /// Its gaps, in order.
    pub fn gaps(self) -> impl Iterator<Item = &'static Gap> {
        self.gaps.iter().copied().flatten()
    }

    /// The plan as options, and what they do not say.
    pub fn write(&self, plan: &Plan) -> Written {
        let mut file = serde_json::to_value(&plan.file).unwrap_or_default();
        let has_models = self.rows().any(|row| row.field.starts_with("model."));
        if has_models {
            file["model"] = architecture(plan);
        }
        let mut written = Written::default();
        for row in self.rows() {
            if !(row.when)(plan) {
                written.options.extend(row.otherwise.map(|word| (row, word.to_owned())));
                continue;
            }
            match row.kind.write(plan, at(&file, row.field)) {
                Ok(word) => written.options.extend(word.map(|word| (row, word))),
                Err(what) => {
                    let value = at(&file, row.field).clone();
                    written.missing.push(Missing { field: row.field, value, what });
                }
            }
        }
        written.missing.extend(gap::missing(self.gaps().copied().chain(self.unread()), plan, &file));
        for missing in
            written.missing.iter_mut().filter(|missing| has_models && is_at(missing.field, "model"))
        {
            // A whole part of a model says nothing that its name does not.
            if missing.value.is_object() || missing.value.is_array() {
                missing.value = Value::Null;
            }
        }
        written
    }

    /// Gaps of settings that neither a row nor a gap is of, since nobody has read yet what the framework has for them; those of no
    /// form are of planner alone.
    pub(crate) fn unread(self) -> impl Iterator<Item = Gap> {
        let unread = move |setting: &&Setting| setting.part != Part::Apart && !self.knows(setting.path);
        Setting::all().filter(unread).map(|setting| gap::unread(setting.path))
    }

    /// Puts what a job's settings say into a plan file. `said` knows the value of an option.
    ///
    /// # Errors
    /// The option and its value, where that is none that it takes.
    pub fn read(&self, said: &dyn Fn(&str) -> Option<String>, file: &mut Value) -> Result<(), String> {
        for row in self.rows() {
            let word = said(row.option).or_else(|| row.usual.map(str::to_owned));
            // What takes a recipe's value away is none itself.
            let says =
                |word: &String| !row.option.is_empty() && (word != NULL || row.otherwise != Some(NULL));
            let Some(word) = word.filter(says) else { continue };
            let value = row
                .kind
                .read(&word, said)
                .map_err(|why| format!("{} is `{word}`, {why}{}", row.option, row.kind.words()))?;
            if let Some(value) = value {
                put(file, row.field, value);
            }
        }
        Ok(())
    }

    /// Paths of fields that options are, for a plan in which they mean something.
    pub fn fields(&self, plan: &Plan) -> impl Iterator<Item = &'static str> {
        let written = |row: &&Row| !matches!(row.kind, Kind::Says(_) | Kind::Asked(_)) && (row.when)(plan);
        self.rows().filter(|row| !row.field.is_empty()).filter(written).map(|row| row.field)
    }

    /// Whether nothing of a plan is lost where the field at a path comes back otherwise: a gap says so, or the setting's own row.
    pub fn is_idle(&self, plan: &Plan, path: &str) -> bool {
        let of_gap = |gap: &Gap| match gap.holds {
            Holds::Nothing => true,
            Holds::Idle(so) => so(plan),
            _ => false,
        };
        rules::is_idle(plan, path) || self.gaps().any(|gap| is_at(path, gap.field) && of_gap(gap))
    }

    /// Whether an option or a gap stands for the field at a path.
    pub fn knows(&self, path: &str) -> bool {
        self.rows().any(|row| is_at(path, row.field)) || self.gaps().any(|gap| is_at(path, gap.field))
    }
}

/// The model of a plan with every field, whatever its file names it by.
pub fn architecture(plan: &Plan) -> Value {
    let mut model = serde_json::to_value(&**plan.model).unwrap_or_default();
    if let Some(moe) = &plan.model.moe {
        model["moe"]["routing"] = serde_json::to_value(&moe.routing).unwrap_or_default();
    }
    model
}
