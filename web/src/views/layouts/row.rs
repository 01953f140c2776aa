//! One valid layout.

use leptos::prelude::*;
use planner::rules::LayoutChoice;
use planner::wire::Verdict;

use super::estimates::Estimates;
use super::{AXES, Key, key};
use crate::format;
use crate::frame::VerdictMark;
use crate::state::store;
use crate::testid;

/// The layout in a few words, such as `TP 2, PP 4, DP 8`.
fn in_words(choice: &LayoutChoice) -> String {
    let sizes = AXES.iter().filter(|(id, ..)| *id != "edp").filter(|(.., read)| read(choice) != 1);
    let words: Vec<String> =
        sizes.map(|(id, _, read)| format!("{} {}", id.to_uppercase(), format::exact(read(choice)))).collect();
    if words.is_empty() { "One GPU".to_owned() } else { words.join(", ") }
}

/// The row.
#[component]
pub fn LayoutRow(choice: LayoutChoice, current: Memo<Option<Key>>, estimates: Estimates) -> impl IntoView {
    let store = store();
    let key = key(&choice);
    let is_current = Memo::new(move |_| current.get() == Some(key));
    let estimate = Memo::new(move |_| estimates.of(key));
    let choose = move |_| {
        store.replace(choice.apply(&store.said_now()));
        store.say(format!("{} is the plan now", in_words(&choice)));
    };
    let cells =
        AXES.iter().map(|(.., read)| view! { <td>{format::exact(read(&choice))}</td> }).collect_view();
    let peak = move || match estimate.get() {
        Some(estimate) => estimate.peak_bytes.map_or_else(|| "-".to_owned(), format::gib),
        None => "\u{2026}".to_owned(),
    };
    let verdict = move || {
        estimate.get().map(|estimate| {
            let verdict: Verdict = estimate.verdict;
            view! { <VerdictMark verdict=Signal::stored(verdict)/> }
        })
    };
    view! {
        // The click on the button reaches the row.
        <tr class="choosable" data-testid=testid::LAYOUT_ROW data-layout=key.map(|size| size.to_string()).join("-")
            aria-current=move || is_current.get().then_some("true") on:click=choose>
            <td class="word">
                <button class="link" aria-label=move || if is_current.get() { format!("{}, the plan", in_words(&choice)) } else { format!("Use {}", in_words(&choice)) }>
                    {move || if is_current.get() { "Plan" } else { "Use" }}
                </button>
            </td>
            <td class="word">{verdict}</td>
            <td>{peak}</td>
            {cells}
        </tr>
    }
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
