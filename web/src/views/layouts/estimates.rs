//! Memory of the layouts on screen, one after the other between two pictures, so that the page stays awake.

use std::collections::HashMap;

use leptos::prelude::*;
use planner::rules::LayoutChoice;
use planner::wire::{PlanFile, Verdict};

use super::{Key, key};
use crate::browser;
use crate::frame::verdict_of;

/// What planner says of a layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Estimate {
    /// Whether it fits.
    pub verdict: Verdict,
    /// Memory of the fullest rank; none when the plan is invalid for other reasons than its layout.
    pub peak_bytes: Option<u64>,
}

/// What planner says of `file` with this layout.
pub fn estimate(file: &PlanFile, choice: LayoutChoice) -> Estimate {
    let answer = planner::estimate(&choice.apply(file));
    Estimate {
        verdict: verdict_of(&answer),
        peak_bytes: answer.memory.as_ref().map(|memory| memory.peak_bytes),
    }
}

/// What is known so far.
#[derive(Clone, Copy)]
pub struct Estimates {
    known: RwSignal<HashMap<Key, Estimate>>,
}

impl Estimates {
    /// Estimates what is on screen, and forgets all when the question changes.
    pub fn new(question: Memo<PlanFile>, on_screen: Memo<Vec<LayoutChoice>>) -> Estimates {
        let known = RwSignal::new(HashMap::new());
        // Work for an earlier screen stops when there is a later one.
        let latest = RwSignal::new(0u64);
        Effect::new(move |asked_before: Option<PlanFile>| {
            let file = question.get();
            if asked_before.as_ref() != Some(&file) {
                known.set(HashMap::new());
            }
            let wanted = on_screen.get();
            let ticket = latest.get_untracked() + 1;
            latest.set(ticket);
            let of_plan = file.clone();
            leptos::task::spawn_local(async move {
                for choice in wanted {
                    browser::rest(0).await;
                    // None once the view is closed.
                    if latest.try_get_untracked() != Some(ticket) {
                        return;
                    }
                    if known.with_untracked(|known| known.contains_key(&key(&choice))) {
                        continue;
                    }
                    let estimate = estimate(&of_plan, choice);
                    known.update(|known| {
                        known.insert(key(&choice), estimate);
                    });
                }
            });
            file
        });
        Estimates { known }
    }

    /// What is known of a layout, tracked.
    pub fn of(self, key: Key) -> Option<Estimate> {
        self.known.with(|known| known.get(&key).copied())
    }
}
