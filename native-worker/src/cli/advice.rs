//! Advice as lines of text.

use planner::wire::{Advice, AdviceAnswer, AdviceList, Verdict};

use crate::report::text;

/// Most pieces of advice of a kind that are printed; the JSON has all.
const MOST: usize = 12;

/// What would make a plan fit, and what its room could buy.
pub fn lines(advice: &AdviceAnswer) -> String {
    let mut out = String::new();
    if !advice.fits && !advice.makes_it_fit() {
        out.push_str("\nno change of this plan makes it fit; shardplan search looks at every layout, and says what would fit if none does\n");
    }
    let lists = advice.lists();
    for list in &lists {
        out.push_str(&format!("\n{}\n{}", list.title, table(list)));
    }
    let all = || lists.iter().flat_map(|list| list.rows);
    let mut notes: Vec<&str> = Vec::new();
    for note in all().flat_map(|advice| &advice.notes) {
        if !notes.contains(&note.as_str()) {
            notes.push(note);
        }
    }
    if all().any(|advice| advice.changes_training) {
        out.push_str("* changes the numbers that training computes\n");
    }
    for note in notes {
        out.push_str(&format!("note: {note}\n"));
    }
    out
}

fn table(list: &AdviceList<'_>) -> String {
    let advice = list.rows;
    let head = [
        if list.takes() { "takes GiB" } else { "saves GiB" },
        "peak GiB",
        "verdict",
        "step",
        "likely",
        "change",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(advice.iter().take(MOST).map(|one| row(one, list.takes())));
    let mut out = text::table(&rows);
    if let Some(more) = advice.len().checked_sub(MOST).filter(|&more| more > 0) {
        out.push_str(&format!("and {more} more, with --json\n"));
    }
    out
}

fn row(advice: &Advice, takes: bool) -> Vec<String> {
    let sign = if advice.saved_bytes < 0 && !takes { "-" } else { "" };
    let saved = format!("{sign}{}", text::gib(advice.saved_bytes.unsigned_abs()));
    let verdict = match advice.verdict {
        Verdict::Fits => "fits",
        Verdict::Tight => "tight",
        Verdict::No | Verdict::Invalid => "no",
    };
    let mut step =
        advice.step_seconds.map_or_else(|| "unknown".to_owned(), |step| format!("{} s", text::seconds(step)));
    if let Some(ratio) = advice.step_ratio {
        step.push_str(&format!(" ({:+.1} %)", 100.0 * (ratio - 1.0)));
    }
    let likely = advice.interval_seconds.map_or_else(
        || "unknown".to_owned(),
        |[low, high]| format!("{} to {} s", text::seconds(low), text::seconds(high)),
    );
    let star = if advice.changes_training { " *" } else { "" };
    vec![
        saved,
        text::gib(advice.peak_bytes),
        verdict.to_owned(),
        step,
        likely,
        format!("{}{star}", advice.title),
    ]
}
