//! Where the time of the last step went, by phase, of one rank; and how far its memory rose in each.

use leptos::prelude::*;
use planner::wire::Step;

use crate::format;
use crate::hub::hub;
use crate::kit::{Column, Line, Lines, ROWS, Table};
use crate::testid;

const COLUMNS: &[Column] =
    &[Column::new("Phase"), Column::new("Time"), Column::new("Of the step"), Column::new("Memory at most")];

/// Phases as people read them: what the rank computed, what it waited for, what it sent.
fn title(phase: &str) -> String {
    match phase.strip_prefix("comm.") {
        Some(kind) => format!("{} (transfer)", kind.replace('_', "-")),
        None if phase == "waiting" => "waiting for other ranks".to_owned(),
        None => phase.to_owned(),
    }
}

/// The table, of the lowest rank that is known.
#[component]
pub fn PhaseTable() -> impl IntoView {
    let hub = hub();
    let shown = Memo::new(move |_| {
        hub.record.with(|known| {
            let mut ranks =
                known.ranks.iter().filter_map(|(number, rank)| Some((*number, rank.last_step.as_ref()?)));
            ranks.find(|(_, step)| !step.phases.is_empty()).map(|(number, step)| (number, step.clone()))
        })
    });
    move || shown.get().map(|(rank, step)| table(rank, &step))
}

fn table(rank: u64, step: &Step) -> impl IntoView + use<> {
    let mut longest: Vec<(&String, f64)> =
        step.phases.iter().map(|(phase, seconds)| (phase, *seconds)).collect();
    planner::order::sort_by(&mut longest, |a, b| b.1.total_cmp(&a.1));
    let line = |(phase, seconds): (&String, f64)| {
        let share = seconds / step.seconds.max(1e-9);
        let peak = step.phase_peaks.get(phase).map(|&bytes| bytes as f64);
        Line::new()
            .head(title(phase))
            .number(seconds, format::seconds(seconds))
            .number(share, format!("{:.1}%", 100.0 * share))
            .number_or(peak, &|bytes| format::bytes(bytes as u64), "-")
    };
    let lines = Lines::of(COLUMNS, longest.into_iter().map(line).collect());
    let caption = format!("Step {} on rank {rank}, by phase", format::exact(step.step));
    Table::new("Time by phase", testid::PHASE_TABLE).caption(caption).pages("phases", ROWS).of(lines)
}

#[cfg(test)]
mod tests {
    use super::title;

    #[test]
    fn phases_have_titles() {
        assert_eq!(title("comm.all_reduce"), "all-reduce (transfer)");
        assert_eq!(title("waiting"), "waiting for other ranks");
        assert_eq!(title("forward"), "forward");
    }
}
