//! Filling of single fields, each recorded as assumed, and the range of every number.

use std::fmt::Display;

use serde_json::Value;

use crate::finding::{Finding, clip, nearest_names};
use crate::runtime::Facts;
use crate::settings::{ForRow, OfRow, Usual};
use crate::units::Dtype;
use crate::wire::{Fill, Filling, Kind, MOST_WORDS, Setting};

/// Fills what a plan file leaves open, and says what is out of its range.
pub(super) struct Filler<'a> {
    pub(super) findings: &'a mut Vec<Finding>,
    pub(super) assumed: &'a mut Vec<String>,
    pub(super) out_of_range: bool,
    /// Those of the runtime, once it is known.
    pub(super) facts: Option<&'static Facts>,
}

/// How much was said at some point: findings and assumed fields.
pub(super) type Mark = (usize, usize);

impl Fill for Filler<'_> {
    fn field<T: OfRow>(&mut self, row: &'static Setting, said: &mut Option<T>, rule: Option<&T>) {
        if said.is_none() {
            let usual = match (row.usual, row.usual_under, self.facts) {
                (_, Some(is_on), Some(facts)) => Usual::Switch(is_on(facts)),
                (usual, ..) => usual,
            };
            let is_filled = !matches!(usual, Usual::Nothing | Usual::Rule);
            let Some(value) = rule.cloned().or_else(|| is_filled.then(|| T::of(usual))) else { return };
            self.or(row.path, said, value);
        }
        match said.as_ref().map_or(ForRow::Any, T::said) {
            ForRow::Any => {}
            ForRow::Whole(value) => {
                self.hold_whole(row, value);
            }
            ForRow::Real(value) => {
                self.hold_real(row, value);
            }
            ForRow::Type(name) => self.hold_type(row, name, rule.map(T::said)),
            ForRow::Words(names) => self.hold_words(row, names),
        }
    }
}

impl<'a> Filler<'a> {
    /// One that says all to these.
    pub(super) fn new(findings: &'a mut Vec<Finding>, assumed: &'a mut Vec<String>) -> Filler<'a> {
        Filler { findings, assumed, out_of_range: false, facts: None }
    }

    /// Has the fields at these places of a part filled by their rows.
    pub(super) fn fields<P: Filling>(
        &mut self,
        part: &mut P,
        rules: &P,
        places: impl IntoIterator<Item = usize>,
    ) {
        for place in places {
            part.fill_field(rules, place, self);
        }
    }

    /// How much was said so far.
    pub(super) fn mark(&self) -> Mark {
        (self.findings.len(), self.assumed.len())
    }

    /// Takes back what was said after a mark.
    pub(super) fn after(&mut self, (findings, assumed): Mark) -> (Vec<Finding>, Vec<String>) {
        (self.findings.split_off(findings), self.assumed.split_off(assumed))
    }

    /// Says again what was taken back.
    pub(super) fn extend(&mut self, (findings, assumed): (Vec<Finding>, Vec<String>)) {
        self.findings.extend(findings);
        self.assumed.extend(assumed);
    }

    /// The value given, or the default, which is then written into the file and listed as assumed.
    pub(super) fn or<T: Clone>(&mut self, field: &str, slot: &mut Option<T>, default: T) -> T {
        match slot {
            Some(value) => value.clone(),
            None => {
                self.assumed.push(field.to_owned());
                *slot = Some(default.clone());
                default
            }
        }
    }

    /// The value given, or what its row says is usual.
    pub(super) fn usual<T: OfRow>(&mut self, field: &str, slot: &mut Option<T>) -> T {
        self.or(field, slot, Setting::usual_of(field))
    }

    /// A whole number within the bounds of its row; out of them it is a finding and the nearest bound.
    pub(super) fn number(&mut self, field: &str, slot: &mut Option<u64>) -> u64 {
        self.number_or(field, slot, Setting::usual_of(field))
    }

    /// The same with a default that follows from something.
    pub(super) fn number_or(&mut self, field: &str, slot: &mut Option<u64>, default: u64) -> u64 {
        let value = self.or(field, slot, default);
        self.checked(field, value)
    }

    /// The same of a number that is said.
    pub(super) fn checked(&mut self, field: &str, value: u64) -> u64 {
        row_of(field).map_or(value, |row| self.hold_whole(row, value))
    }

    /// A whole number, or the one nearest to it that its row takes.
    fn hold_whole(&mut self, row: &Setting, value: u64) -> u64 {
        match row.kind {
            Kind::Whole { least, most } => self.within(row.path, value, least, most),
            _ => value,
        }
    }

    /// The same within other bounds than its row's.
    pub(super) fn within(&mut self, field: &str, value: u64, least: u64, most: u64) -> u64 {
        self.within_as(field, value, (least, most), format!("between {least} and {most}"))
    }

    /// The same, the bounds said in these words.
    pub(super) fn within_as(
        &mut self,
        field: &str,
        value: u64,
        (least, most): (u64, u64),
        range: String,
    ) -> u64 {
        let nearest = value.clamp(least, most);
        if nearest != value {
            self.refuse(field, value, range, Some(nearest));
        }
        nearest
    }

    /// A number within the bounds of its row; the nearest of them where it is out.
    pub(super) fn real(&mut self, field: &str, value: Option<f64>) -> Option<f64> {
        let value = value?;
        Some(row_of(field).map_or(value, |row| self.hold_real(row, value)))
    }

    /// A number, or the one nearest to it that its row takes.
    fn hold_real(&mut self, row: &Setting, value: f64) -> f64 {
        let Kind::Real { least, most } = row.kind else { return value };
        let other = row.nearest(ForRow::Real(value)).map(f64::of);
        let nearest = other.unwrap_or(value);
        // Next to an end that it does not take there is no nearest number.
        let open = row.but == Some(nearest);
        if other.is_some() || open {
            let range = match (row.but, most) {
                (Some(end), f64::INFINITY) if end == least => format!("above {least}"),
                (Some(end), _) if end == least => format!("above {least} and at most {most}"),
                (Some(_), _) => format!("at least {least} and below {most}"),
                (None, f64::INFINITY) => format!("a number of at least {least}"),
                (None, most) => format!("between {least} and {most}"),
            };
            self.refuse(row.path, value, range, (!open).then_some(nearest));
        }
        nearest
    }

    /// The same of one that has a usual value.
    pub(super) fn fraction(&mut self, field: &str, slot: &mut Option<f64>) -> f64 {
        let value = self.usual(field, slot);
        self.real(field, Some(value)).unwrap_or(value)
    }

    /// What a number out of its range is told.
    fn refuse(
        &mut self,
        field: &str,
        value: impl Into<Value> + Display,
        range: String,
        nearest: Option<impl Into<Value>>,
    ) {
        self.out_of_range = true;
        let message = format!("{field} is {value}; it must be {range}");
        self.findings
            .push(Finding::error(field, value, message).rule("range of plan files").nearest(nearest));
    }

    /// One of the element types that this field takes.
    pub(super) fn dtype(&mut self, field: &str, slot: &mut Option<Dtype>, default: Dtype) -> Dtype {
        let value = self.or(field, slot, default);
        let Some(row) = row_of(field) else { return value };
        self.hold_type(row, value.name(), Some(ForRow::Type(default.name())));
        if row.words().contains(&value.name()) { value } else { default }
    }

    /// What an element type that its row does not take is told.
    fn hold_type(&mut self, row: &Setting, name: &'static str, rule: Option<ForRow<'_>>) {
        let (field, allowed) = (row.path, row.words());
        if !allowed.contains(&name) {
            let message = format!("{field} is {name}; allowed are {}", allowed.join(", "));
            let finding = Finding::error(field, name, message).rule("plan file, version 1");
            let usual = rule.and_then(|rule| if let ForRow::Type(usual) = rule { Some(usual) } else { None });
            self.findings.push(finding.nearest(usual));
        }
    }

    /// A list of names; empty by default.
    pub(super) fn names(&mut self, field: &str, slot: &mut Option<Vec<String>>) {
        let names = self.or(field, slot, Vec::new());
        if let Some(row) = row_of(field) {
            self.hold_words(row, &names);
        }
    }

    /// What a list that is too long, and each word of it that its row does not know, is told.
    fn hold_words(&mut self, row: &Setting, names: &[String]) {
        let (field, known) = (row.path, row.words());
        if names.len() > MOST_WORDS {
            self.out_of_range = true;
            self.findings.push(
                Finding::error(
                    field,
                    names.len() as u64,
                    format!("{field} has {} names, and at most {MOST_WORDS} are read", names.len()),
                )
                .rule("range of plan files"),
            );
        }
        for name in names.iter().take(MOST_WORDS).filter(|name| !known.contains(&name.as_str())) {
            let message = format!("{field} names `{}`; known are {}", clip(name), known.join(", "));
            let others = known.iter().copied().filter(|word| !names.iter().any(|name| name == word));
            let finding = Finding::error(field, clip(name), message).rule("plan file, version 1");
            self.findings.push(finding.nearest(nearest_names(name, others, 2)));
        }
    }

    /// One of the words that this field takes.
    pub(super) fn choice(&mut self, field: &str, slot: &mut Option<String>) -> String {
        self.choice_or(field, slot, Setting::usual_of(field))
    }

    /// The same with a default that follows from something.
    pub(super) fn choice_or(&mut self, field: &str, slot: &mut Option<String>, default: String) -> String {
        let value = self.or(field, slot, default);
        let allowed = words_of(field);
        if !allowed.contains(&value.as_str()) {
            self.findings.push(
                Finding::error(
                    field,
                    clip(&value),
                    format!("{field} is `{}`; allowed are {}", clip(&value), allowed.join(", ")),
                )
                .rule("plan file, version 1")
                .nearest(nearest_names(&value, allowed.iter().copied(), 2)),
            );
        }
        value
    }
}

/// The row of the field at this path.
fn row_of(field: &str) -> Option<&'static Setting> {
    let setting = Setting::at_path(field);
    debug_assert!(setting.is_some(), "{field} has no row");
    setting
}

/// The words that the field at this path takes.
pub(super) fn words_of(field: &str) -> &'static [&'static str] {
    Setting::at_path(field).map_or(&[], Setting::words)
}
