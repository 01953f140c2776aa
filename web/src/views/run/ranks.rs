//! How each rank stands, and what ranks printed.

use leptos::prelude::*;

use crate::hub::{RankStanding, hub};

/// Ranks that are listed one by one; of the others those that failed are.
const LISTED: usize = 64;

/// States of the ranks, with the last words of those that failed.
#[component]
pub fn RankStates() -> impl IntoView {
    let hub = hub();
    let ranks = Memo::new(move |_| hub.book.with(|book| book.present()));
    let cells = move || {
        ranks.with(|ranks| {
            ranks
                .iter()
                .enumerate()
                .filter(|(place, (_, book))| *place < LISTED || book.standing == RankStanding::Failed)
                .map(|(_, (rank, book))| {
                    let word = book.standing.word();
                    let place = book
                        .place
                        .as_ref()
                        .map(|(host, device)| format!("{host}, {device}"))
                        .unwrap_or_default();
                    let step = book.last_step.as_ref().map(|(step, _)| format!("step {step}"));
                    view! {
                        <li class="rank-state" title=place>
                            <span>"Rank "{*rank}</span>
                            <span class=format!("state {word}")>{word}</span>
                            <span class="quiet-text">{step}</span>
                        </li>
                    }
                })
                .collect_view()
        })
    };
    let words = move || {
        ranks.with(|ranks| {
            ranks
                .iter()
                .filter(|(_, book)| book.standing == RankStanding::Failed)
                .filter_map(|(rank, book)| book.last_words.as_ref().map(|words| (*rank, words.clone())))
                .take(LISTED)
                .map(|(rank, words)| {
                    view! {
                        <h4>"Rank "{rank}" "{words.how}</h4>
                        <pre class="code" tabindex="0">{words.lines.join("\n")}</pre>
                    }
                })
                .collect_view()
        })
    };
    let any = move || !ranks.with(|ranks| ranks.is_empty());
    view! {
        <section hidden=move || !any() aria-label="Ranks">
            <h3>"Ranks"</h3>
            <ul class="rank-states">{cells}</ul>
            {words}
        </section>
    }
}

/// The latest lines of output.
#[component]
pub fn Output() -> impl IntoView {
    let hub = hub();
    let text = Memo::new(move |_| {
        hub.book.with(|book| {
            let lines: Vec<String> =
                book.output.iter().map(|(rank, _, line)| format!("[{rank}] {line}")).collect();
            lines.join("\n")
        })
    });
    move || {
        (!text.with(String::is_empty)).then(|| {
            view! {
                <details class="output">
                    <summary>"Output"</summary>
                    <pre class="code" tabindex="0">{text}</pre>
                </details>
            }
        })
    }
}
