//! What the datasets of published training runs share: rows as JSON objects, and one peak against one column.

use serde_json::{Map, Value};

use super::{Dataset, Scores, plan_of};
use planner::memory;
use planner::plan::Plan;
use planner::wire::{MemoryAnswer, RankClass};

/// One row of a dataset.
pub(super) struct Row<'a>(pub(super) &'a Map<String, Value>);

impl Row<'_> {
    /// A whole number.
    pub(super) fn size(&self, name: &str) -> Option<u64> {
        self.0.get(name).and_then(Value::as_u64)
    }

    /// A whole number, or 1.
    pub(super) fn degree(&self, name: &str) -> u64 {
        self.size(name).unwrap_or(1)
    }

    /// A whole number that planner can't do without.
    pub(super) fn need(&self, name: &str) -> Result<u64, String> {
        self.size(name).ok_or_else(|| format!("the row does not say {name}"))
    }

    /// A number.
    pub(super) fn real(&self, name: &str) -> Option<f64> {
        self.0.get(name).and_then(Value::as_f64)
    }

    /// A text, empty where there is none.
    pub(super) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// True where the row says so.
    pub(super) fn flag(&self, name: &str) -> bool {
        self.0.get(name).and_then(Value::as_bool).unwrap_or(false)
    }

    /// Its name in reports.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.text("id"), self.text("model"))
    }
}

/// What of a rank a column reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    /// The allocator's peak of allocated bytes.
    Allocated,
    /// Its peak of reserved bytes.
    Reserved,
    /// The peak of allocated bytes of the last stage, whose rank writes the log.
    AllocatedByLast,
}

impl Column {
    fn of(self, class: &RankClass) -> u64 {
        match self {
            Column::Allocated | Column::AllocatedByLast => class.peak_allocated_bytes,
            Column::Reserved => class.peak_reserved_bytes,
        }
    }

    fn range_of(self, plan: &Plan, class: &RankClass) -> [u64; 2] {
        let [allocated, reserved] = memory::peak_ranges(plan, class);
        if self == Column::Reserved { reserved } else { allocated }
    }

    /// The likely range of the rank that reports, or of the one that has the most.
    pub(super) fn range(self, plan: &Plan, answer: &MemoryAnswer) -> [u64; 2] {
        let most = self.most(answer);
        let reports = answer.rank_classes.iter().rev().find(|class| self.of(class) == most);
        reports.map_or([0, 0], |class| self.range_of(plan, class))
    }

    /// Of the rank that reports, or of the one that has the most.
    pub(super) fn most(self, answer: &MemoryAnswer) -> u64 {
        let last = answer.rank_classes.iter().map(|class| class.stage).max().unwrap_or(0);
        let reports = |class: &&RankClass| self != Column::AllocatedByLast || class.stage == last;
        answer.rank_classes.iter().filter(reports).map(|class| self.of(class)).max().unwrap_or(0)
    }
}

/// The rows of `{"rows": [...]}`.
pub(super) fn rows(name: &str, text: &str) -> Result<Vec<Map<String, Value>>, String> {
    let wrong = || format!("{name}.json is not a file of runs: it has no array `rows` of objects");
    let file: Value = serde_json::from_str(text).map_err(|error| format!("{name}.json: {error}"))?;
    let rows = file.get("rows").and_then(Value::as_array).ok_or_else(wrong)?;
    rows.iter().map(|row| row.as_object().cloned().ok_or_else(wrong)).collect()
}

/// Scores the peak of a column; `measured` gives a row's bytes, `plan` its plan file.
pub(super) fn score_peaks(
    name: &str,
    text: &str,
    column: Column,
    measured: impl Fn(&Row<'_>) -> Option<f64>,
    plan: impl Fn(&Row<'_>) -> Result<Value, String>,
) -> Result<Vec<Dataset>, String> {
    let mut scores = Scores::default();
    for row in rows(name, text)? {
        let row = Row(&row);
        let Some(bytes) = measured(&row) else {
            scores.excluded += 1;
            continue;
        };
        match plan(&row).and_then(|file| plan_of(&file)) {
            Err(reason) => scores.unmapped(&row.label(), &reason),
            Ok(plan) => {
                let answer = memory::answer(&plan);
                scores.row(&row.label(), column.most(&answer) as f64, bytes);
                scores.range(bytes, column.range(&plan, &answer));
            }
        }
    }
    Ok(vec![scores.into_dataset(name, "peak_bytes")])
}
