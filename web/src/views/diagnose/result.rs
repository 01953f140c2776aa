//! The answer on screen: what ended the run, its evidence, what to do, and what was looked at.

use std::sync::Arc;

use diagnose::{Answer, Evidence, Part, Verdict};
use leptos::prelude::*;
use planner::units::capital;

use crate::findings::coded;
use crate::format::{bytes, exact};
use crate::testid;

/// The whole answer.
#[component]
pub fn ResultView(answer: Arc<Answer>) -> impl IntoView {
    let verdicts = |part: Part| -> Vec<Verdict> {
        answer.verdicts.iter().filter(|verdict| verdict.part == part).cloned().collect()
    };
    let exit = answer.exit.as_ref().filter(|_| answer.found).map(|end| {
        let signal = end.signal.as_ref().map(|signal| format!(" ({signal})")).unwrap_or_default();
        let code = end.code.map_or_else(|| "unknown".to_owned(), |code| code.to_string());
        format!(
            "First process to end: {}, exit code {code}{signal}, told by {}",
            end.origin.in_words(),
            end.told_by
        )
    });
    view! {
        <section class="file" data-testid=testid::DIAGNOSE_RESULT data-found=answer.found.to_string()>
            {(!answer.found).then(|| view! { <h3>"Nothing found"</h3> })}
            {verdicts(Part::Cause).into_iter().map(|verdict| view! { <Full verdict=verdict/> }).collect_view()}
            {exit.map(|exit| view! { <p>{exit}</p> })}
            <Others title="Also seen" verdicts=verdicts(Part::Also)/>
            <Others title="What followed" verdicts=verdicts(Part::Consequence)/>
            {answer.notes.iter().map(|note| view! { <p class="note">{coded(note)}</p> }).collect_view()}
            <p class="note" data-testid=testid::DIAGNOSE_LOOKED>{format!("Looked at {}", answer.looked_at.in_words())}</p>
        </section>
    }
}

/// The cause.
#[component]
fn Full(verdict: Verdict) -> impl IntoView {
    let title = format!("{} ({})", capital(&verdict.title), verdict.sure.name());
    let ranks = if verdict.rank_count > 1 {
        format!("; {} ranks report it", verdict.rank_count)
    } else {
        String::new()
    };
    let time = verdict.time.as_ref().map(|time| format!(" at {time}")).unwrap_or_default();
    let place = format!("{}{time}{ranks}", capital(&verdict.culprit.in_words()));
    let figures = verdict.out_of_memory.as_ref().map(|memory| {
        [
            ("Tried", memory.tried_bytes),
            ("Capacity", memory.capacity_bytes),
            ("Free", memory.free_bytes),
            ("In use", memory.in_use_bytes),
            ("Allocated", memory.allocated_bytes),
            ("Reserved", memory.reserved_bytes),
        ]
        .into_iter()
        .filter_map(|(name, count)| count.map(|count| (name, bytes(count))))
        .map(|(name, count)| view! { <div><dt>{name}</dt><dd>{count}</dd></div> })
        .collect_view()
    });
    let against = verdict.against_plan.as_ref().map(|against| capital(&against.said));
    view! {
        <h3 data-testid=testid::DIAGNOSE_CAUSE data-cause=verdict.cause.clone()
            data-rank=verdict.culprit.rank.map(|rank| rank.to_string())>{title}</h3>
        <p>{coded(&verdict.meaning)}</p>
        <p><strong>{place}</strong></p>
        <p class="note">{coded(&format!("Why {}: {}", verdict.sure.name(), verdict.why))}</p>
        {figures.map(|figures| view! { <dl class="facts">{figures}</dl> })}
        {against.map(|said| view! { <p data-testid=testid::DIAGNOSE_AGAINST>{coded(&said)}</p> })}
        <Lines lines=verdict.evidence.clone()/>
        <ol>{verdict.next.iter().map(|step| view! { <li>{coded(step)}</li> }).collect_view()}</ol>
    }
}

/// Lines of logs.
#[component]
fn Lines(lines: Vec<Evidence>) -> impl IntoView {
    let text: String =
        lines.iter().map(|line| format!("{}:{}: {}\n", line.file, line.line, line.text)).collect();
    (!text.is_empty()).then(|| {
        view! { <pre class="code" tabindex="0" aria-label="Lines of the logs" data-testid=testid::DIAGNOSE_EVIDENCE>{text}</pre> }
    })
}

/// What else there was, each closed until somebody wants it.
#[component]
fn Others(title: &'static str, verdicts: Vec<Verdict>) -> impl IntoView {
    (!verdicts.is_empty()).then(|| {
        let items = verdicts
            .into_iter()
            .map(|verdict| {
                let times = if verdict.count == 1 {
                    "once".to_owned()
                } else {
                    format!("{} times", exact(verdict.count))
                };
                let line = format!(
                    "{} ({}), {times}, first {}",
                    capital(&verdict.title),
                    verdict.sure.name(),
                    verdict.culprit.in_words()
                );
                view! {
                    <details data-cause=verdict.cause.clone()>
                        <summary>{line}</summary>
                        <p class="note">{coded(&verdict.meaning)}</p>
                        <Lines lines=verdict.evidence.clone()/>
                    </details>
                }
            })
            .collect_view();
        view! { <h4>{title}</h4>{items} }
    })
}
