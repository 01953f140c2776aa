//! One valid layout.

use leptos::prelude::*;
use planner::rules::LayoutChoice;

use super::estimates::Estimates;
use super::{AXES, Key, key};
use crate::format;
use crate::frame::VerdictMark;
use crate::kit::Line;
use crate::state::Store;
use crate::testid;

/// The layout in a few words, such as `TP 2, PP 4, DP 8`.
fn in_words(choice: &LayoutChoice) -> String {
    let sizes = AXES.iter().filter(|(id, ..)| *id != "edp").filter(|(.., read)| read(choice) != 1);
    let words: Vec<String> = sizes
        .map(|(id, _, read)| format!("{} {}", id.to_ascii_uppercase(), format::exact(read(choice))))
        .collect();
    if words.is_empty() { "One GPU".to_owned() } else { words.join(", ") }
}

/// Its line.
pub fn layout_line(
    store: Store,
    choice: &LayoutChoice,
    current: Memo<Option<Key>>,
    estimates: Estimates,
) -> Line {
    let (key, words) = (key(choice), in_words(choice));
    let is_current = Signal::derive(move || current.get() == Some(key));
    let chosen = *choice;
    let choose = move || {
        // Memory and verdict of the row are of the plan as it is with this layout: what else was chosen is held.
        let held = store.held_now();
        store.replace(chosen.apply(&store.plan_now()));
        store.notify(format!("{} is the plan now{held}", in_words(&chosen)));
    };
    let button = move || {
        let words = words.clone();
        let label = move || match is_current.get() {
            true => format!("{words}, the plan"),
            false => format!("Use {words}"),
        };
        let text = move || if is_current.get() { "Plan" } else { "Use" };
        view! { <button class="link" aria-label=label>{text}</button> }.into_any()
    };
    let verdict = move || {
        let mark = move || {
            let estimate = estimates.of(key)?;
            Some(view! { <VerdictMark verdict=Signal::stored(estimate.verdict)/> })
        };
        mark.into_any()
    };
    let peak = move || {
        let peak = move || match estimates.of(key) {
            Some(estimate) => estimate.peak_bytes.map_or_else(|| "-".to_owned(), format::gib),
            None => "\u{2026}".to_owned(),
        };
        peak.into_any()
    };
    let line = Line::new().text("").shows(button).text("").shows(verdict).text("").shows(peak);
    AXES.iter()
        .fold(line, |line, (.., read)| line.exact(read(choice)))
        .hook(testid::LAYOUT_ROW, key.map(|size| size.to_string()).join("-"))
        .current(is_current)
        .click(choose)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_is_said_in_few_words() {
        let one = LayoutChoice { tp: 1, cp: 1, pp: 1, vpp: 1, ep: 1, etp: 1, dp: 1, edp: 1 };
        assert_eq!(in_words(&one), "One GPU");
        assert_eq!(in_words(&LayoutChoice { tp: 2, dp: 1024, edp: 7, ..one }), "TP 2, DP 1,024");
    }
}
