//! Other values worth trying where a plan breaks a rule: what the row of the field says of them, put into the plan file one by one, of
//! which those are offered that the same rules accept.

use serde_json::Value;

use crate::fill;
use crate::finding::{Finding, Severity, has_error, nearest_values};
use crate::json::value_of;
use crate::parse::place_of;
use crate::plan::Plan;
use crate::recipes::Among;
use crate::rules::{Shape, broken_at};
use crate::wire::{Kind, PlanFile, Setting, Values};

/// How many values are offered.
const OFFERED: usize = 2;
/// How many are tried at most, the nearest first: a plan is looked at after every keystroke.
const TRIED: usize = 32;

/// Offers other values at each error that has none yet, by the plan that was made of the file. Errors of one field get the same ones.
pub(super) fn offer(file: &PlanFile, among: Among, plan: &Plan, findings: &mut [Finding]) {
    let mut tries = None;
    let mut known: Vec<(&'static str, Vec<Value>)> = Vec::new();
    for finding in findings.iter_mut() {
        if finding.severity != Severity::Error || !finding.nearest.is_empty() {
            continue;
        }
        let Some(setting) = Setting::at_path(&finding.field) else { continue };
        let found = known.iter().find(|(path, _)| *path == setting.path);
        finding.nearest = match found {
            Some((_, values)) => values.clone(),
            None => {
                let Some(tries) = tries.get_or_insert_with(|| Tries::of(file, among, plan)) else { return };
                let values = tries.accepted(setting);
                known.push((setting.path, values.clone()));
                values
            }
        };
    }
}

/// Values of a whole number that leave the plan without an error, rising; when none do (something else is wrong), those that leave no
/// error at the field itself. For steppers.
pub fn valid_values(file: &PlanFile, field: &str) -> Vec<u64> {
    let Some(setting) = Setting::at_path(field) else { return Vec::new() };
    let Some(plan) = Plan::judge(file).plan_or_shape() else { return Vec::new() };
    let Some(mut tries) = Tries::of(file, Among::All, &plan) else { return Vec::new() };
    let mut values = Shape::of(&plan).values(setting.values, tries.now(field).as_u64().unwrap_or(1));
    values.retain(|&value| setting.has(value));
    crate::order::sort(&mut values);
    values.dedup();
    let (mut valid, mut local) = (Vec::new(), Vec::new());
    for value in values {
        let Some(changed) = tries.file_with(field, value.into()) else { continue };
        let findings = Plan::judge(&changed).findings;
        if !has_error(&findings) {
            valid.push(value);
        } else if !findings.iter().any(|finding| finding.field == field) {
            local.push(value);
        }
    }
    if valid.is_empty() { local } else { valid }
}

/// A plan file in which values are tried.
struct Tries<'a> {
    among: Among,
    plan: &'a Plan,
    /// The file as it was given, and with every default filled.
    given: Value,
    filled: Value,
    /// The model as the file names it: the plan's own may have been changed by settings.
    model: (crate::model::Architecture, String),
}

impl<'a> Tries<'a> {
    fn of(file: &PlanFile, among: Among, plan: &'a Plan) -> Option<Tries<'a>> {
        let model = fill::named_model(file, &mut Vec::new(), &mut Vec::new())?;
        Some(Tries { among, plan, given: value_of(file), filled: value_of(&plan.file), model })
    }

    /// What holds at a path.
    fn now(&mut self, path: &str) -> Value {
        place_of(&mut self.filled, path).cloned().unwrap_or_default()
    }

    /// The file with another value at a path; none where it does not go there.
    fn file_with(&self, path: &str, value: Value) -> Option<PlanFile> {
        let mut file = self.given.clone();
        *place_of(&mut file, path)? = value;
        PlanFile::read(file).ok()
    }

    /// The plan with another value at a path, where neither reader nor rules refuse it there.
    fn accepts(&self, path: &'static str, value: Value) -> Option<Plan> {
        let file = self.file_with(path, value)?;
        let (model, title) = &self.model;
        let mut findings = Vec::new();
        let gpu = self.plan.cluster.gpu;
        let (plan, _) = fill::with_defaults(
            (&file, self.among),
            model.clone(),
            title,
            gpu,
            &mut findings,
            &mut Vec::new(),
        );
        let refused = findings.iter().any(|one| one.severity == Severity::Error && one.field == path)
            || broken_at(&Shape::of(&plan), path);
        (!refused).then_some(plan)
    }

    /// The nearest values of a setting that are accepted.
    fn accepted(&mut self, setting: &Setting) -> Vec<Value> {
        let (path, now) = (setting.path, self.now(setting.path));
        // What holds where nothing is said is the likeliest word and fraction, and of all others the last resort.
        let usual_first =
            matches!(setting.kind, Kind::Word(_) | Kind::Real { .. }) && setting.values != Values::Scale;
        let usual = |tries: &Self| tries.usual(path).filter(|usual| *usual != now);
        let mut found = Vec::new();
        if usual_first {
            found.extend(usual(self));
        }
        for value in self.worth_trying(setting, &now).into_iter().take(TRIED) {
            if found.len() == OFFERED {
                break;
            }
            if value != now && !found.contains(&value) && self.accepts(path, value.clone()).is_some() {
                found.push(value);
            }
        }
        // Of a list it is the single words that are wrong.
        if found.is_empty() && !usual_first && !matches!(setting.kind, Kind::Words(_)) {
            found.extend(usual(self));
        }
        found
    }

    /// What holds where nothing is said, unless that is refused too; null where nothing does.
    fn usual(&self, path: &'static str) -> Option<Value> {
        let plan = self.accepts(path, Value::Null)?;
        let mut file = value_of(&plan.file);
        place_of(&mut file, path).cloned()
    }

    /// Values of a setting, the nearest or likeliest first.
    fn worth_trying(&self, setting: &Setting, now: &Value) -> Vec<Value> {
        let at = now.as_u64();
        let mut numbers = Shape::of(self.plan).values(setting.values, at.unwrap_or(1));
        if let (Kind::Whole { least, most }, Values::Any) = (setting.kind, setting.values) {
            let next = at.into_iter().flat_map(|at| [at.saturating_sub(1), at.saturating_add(1)]);
            numbers.extend(next.chain([least, most]).filter(|&value| setting.has(value)));
        }
        let numbers = nearest_values(at.unwrap_or(1), numbers, TRIED).into_iter().map(Value::from);
        match setting.kind {
            Kind::Whole { .. } => numbers.filter(|value| setting.has(value.as_u64().unwrap_or(0))).collect(),
            Kind::Switch => vec![true.into(), false.into()],
            Kind::Word(words) => {
                let mut sorted = words.to_vec();
                if setting.values == Values::Scale {
                    let place = |word: &str| words.iter().position(|known| *known == word).unwrap_or(0);
                    let from = place(now.as_str().unwrap_or_default());
                    crate::order::sort_by_key(&mut sorted, |word| place(word).abs_diff(from));
                }
                sorted.into_iter().map(Value::from).collect()
            }
            Kind::Json(words, _) => {
                numbers.filter(|_| at.is_some()).chain(words.iter().map(|word| Value::from(*word))).collect()
            }
            Kind::Real { .. } | Kind::Words(_) | Kind::Text => Vec::new(),
        }
    }
}
