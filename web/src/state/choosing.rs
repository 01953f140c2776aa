//! Open fields: the plan follows what a search chooses, after every edit.

use std::sync::Arc;

use gloo::timers::callback::Timeout;
use leptos::prelude::*;
use planner::finding::Finding;
use planner::search::{Choice, with_earlier};
use planner::wire::{self, PlanFile};
use serde_json::Value;
use web_sys::js_sys::Date;

use super::Store;
use crate::search::{Engine, Phase};

/// Milliseconds of quiet after an edit that comes soon after another before the search begins: a key that is held down asks once.
const QUIET: u32 = 30;
/// Milliseconds within which an edit comes soon after another.
const SOON: f64 = 150.0;

/// What a search chose.
#[derive(Debug, Clone, PartialEq)]
pub struct Chosen {
    /// For which plan file.
    pub said: Arc<PlanFile>,
    /// The same with nothing left open.
    pub file: Arc<PlanFile>,
    /// The fields, with what others would cost.
    pub chosen: Vec<wire::Chosen>,
    /// Paths of what was assumed before.
    pub assumed: Vec<String>,
    /// What stands in the way where nothing is valid, what would fit where nothing does, and what the search notes of its first row.
    pub findings: Vec<Finding>,
    /// Whether it fits, if only just.
    pub fits: bool,
    /// Whether what would fit is still looked for.
    pub helping: bool,
    /// Candidates that were looked at, and seconds that it took.
    pub looked_at: (u64, f64),
}

impl Chosen {
    /// Nothing, because of what was found.
    fn nothing(said: &Arc<PlanFile>, findings: Vec<Finding>) -> Chosen {
        Chosen {
            said: said.clone(),
            file: said.clone(),
            chosen: Vec::new(),
            assumed: Vec::new(),
            findings,
            fits: false,
            helping: false,
            looked_at: (0, 0.0),
        }
    }
}

/// The plan with what was chosen for it; where that was for an earlier plan, as far as it can still hold.
pub fn whole(said: &Arc<PlanFile>, chosen: Option<&Chosen>) -> Arc<PlanFile> {
    let Some(chosen) = chosen else { return said.clone() };
    if chosen.said == *said {
        return chosen.file.clone();
    }
    Arc::new(with_earlier(said, &chosen.said, &chosen.file))
}

/// Lets the plan follow what a search chooses of it.
pub fn follow(store: Store, engine: Engine) {
    let asked = StoredValue::new(None::<(Arc<PlanFile>, Choice)>);
    let timer = StoredValue::new_local(None::<Timeout>);
    let edited = StoredValue::new(0.0);
    Effect::new(move |_| {
        let said = store.said();
        store.unable.set(None);
        let now = Date::now();
        let quiet = if now - edited.get_value() < SOON { QUIET } else { 0 };
        edited.set_value(now);
        match Choice::of(&said) {
            Ok(Some(choice)) => {
                let request = choice.request.clone();
                asked.set_value(Some((said, choice)));
                engine.pause();
                match quiet {
                    // The workers begin while the page draws what it knows.
                    0 => {
                        timer.set_value(None);
                        engine.start(request);
                    }
                    quiet => timer.set_value(Some(Timeout::new(quiet, move || engine.start(request)))),
                }
            }
            Ok(None) => {
                asked.set_value(None);
                timer.set_value(None);
                engine.pause();
            }
            // The plan's own findings say what is wrong; those of the choice stand with them.
            Err(findings) => {
                asked.set_value(None);
                timer.set_value(None);
                let findings = findings.into_iter().filter(|finding| finding.field == "choose").collect();
                store.chosen.set(Some(Arc::new(Chosen::nothing(&said, findings))));
            }
        }
    });
    Effect::new(move |_| {
        let found = engine.state.with(|state| match state.phase {
            Phase::Done => state.answer.clone().map(|answer| (answer, state.seconds, state.helping)),
            _ => None,
        });
        let failed = engine.state.with(|state| (state.phase == Phase::Failed).then(|| state.said.clone()));
        if let Some(said) = failed {
            store.unable.set(Some(said.unwrap_or_default()));
        }
        let refused = engine.state.with(|state| state.findings.clone());
        let Some((said, choice)) = asked.get_value() else { return };
        let chosen = match found {
            Some((answer, seconds, helping)) => {
                let file = choice.plan(&answer);
                let relief = answer.relief.as_ref().filter(|_| answer.rows.is_empty());
                let mut findings = relief.map(|relief| relief.findings(file.is_some())).unwrap_or_default();
                let notes = answer.notes.iter();
                findings.extend(notes.map(|note| Finding::info("choose", Value::Null, note.as_str())));
                Chosen {
                    said: said.clone(),
                    file: file.map_or_else(|| said.clone(), Arc::new),
                    chosen: answer.chosen.clone(),
                    assumed: choice.assumed.clone(),
                    findings,
                    fits: !answer.rows.is_empty(),
                    helping,
                    looked_at: (answer.counts.candidates, seconds),
                }
            }
            None if !refused.is_empty() => Chosen::nothing(&said, refused),
            None => return,
        };
        store.chosen.set(Some(Arc::new(chosen)));
    });
}
