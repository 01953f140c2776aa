//! How each rank stands, and what ranks printed.

use leptos::prelude::*;
use planner::run::{RankEnd, RankStanding};
use planner::wire::RunSummary;

use super::dead::{ConfirmDead, Marking};
use super::map::RunMap;
use crate::hub::hub;
use crate::testid;

/// Ranks that are listed one by one; of the others those that failed are.
const LISTED: usize = 64;

/// States of the ranks, with the last words of those that failed. A rank of a run that a hub started can be taken for lost.
#[component]
pub fn RankStates(summary: Memo<Option<RunSummary>>) -> impl IntoView {
    let hub = hub();
    let ranks = Memo::new(move |_| hub.record.with(|known| known.present()));
    let marking = Marking::new(summary, ranks);
    // By number, so that a button stays the same while its rank trains.
    let listed = Memo::new(move |_| {
        ranks.with(|ranks| {
            let all = ranks.iter().enumerate();
            let told =
                all.filter(|(place, (_, known))| *place < LISTED || known.standing == RankStanding::Failed);
            told.map(|(_, (rank, _))| *rank).collect::<Vec<u64>>()
        })
    });
    let cell = move |rank: u64| {
        let told = Memo::new(move |_| {
            ranks.with(|ranks| {
                let known = ranks.get(&rank)?;
                let place = known.place.as_ref().map(|(host, device)| format!("{host}, {device}"));
                let step = known.last_step.as_ref().map(|step| format!("step {}", step.step));
                Some((known.standing, place.unwrap_or_default(), step))
            })
        });
        let word = move || {
            // Until its process is known to have ended.
            let lost = marking.lost().contains(&rank);
            let standing = told.with(|told| told.as_ref().map_or("", |(standing, ..)| standing.word()));
            if lost { "lost" } else { standing }
        };
        let may_end = Memo::new(move |_| marking.may(rank));
        view! {
            <li class="rank-state" title=move || told.with(|told| told.as_ref().map(|(_, place, _)| place.clone()))>
                <span>"Rank "{rank}</span>
                <span class=move || format!("state {}", word())>{word}</span>
                <span class="quiet-text">{move || told.with(|told| told.as_ref().and_then(|(.., step)| step.clone()))}</span>
                <Show when=move || may_end.get()>
                    <button data-testid=testid::MARK_DEAD data-rank=rank aria-label=format!("Mark rank {rank} dead")
                        disabled=move || !marking.is_heard()
                        on:click=move |_| marking.ask(rank)>"Mark dead"</button>
                </Show>
            </li>
        }
    };
    let words = move || {
        ranks.with(|ranks| {
            ranks
                .iter()
                .filter(|(_, known)| known.standing == RankStanding::Failed)
                .filter_map(|(_, known)| known.exit.as_ref())
                .take(LISTED)
                .map(|RankEnd { exit, .. }| {
                    view! {
                        <h4>"Rank "{exit.rank}" "{exit.how()}</h4>
                        <pre class="code" tabindex="0">{exit.last_lines.join("\n")}</pre>
                    }
                })
                .collect_view()
        })
    };
    let any = move || !ranks.with(|ranks| ranks.is_empty());
    view! {
        <section hidden=move || !any() aria-label="Ranks">
            <h3>"Ranks"</h3>
            <RunMap summary=summary ranks=ranks marking=marking/>
            <ConfirmDead marking=marking/>
            <ul class="rank-states"><For each=move || listed.get() key=|rank| *rank children=cell/></ul>
            {words}
        </section>
    }
}

/// The latest lines of output.
#[component]
pub fn Output() -> impl IntoView {
    let hub = hub();
    let text = Memo::new(move |_| {
        hub.record.with(|known| {
            let lines: Vec<String> =
                known.output.iter().map(|(rank, _, line)| format!("[{rank}] {line}")).collect();
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
