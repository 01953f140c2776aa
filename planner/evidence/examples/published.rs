//! What would have been chosen where a layout was published: `published [SOURCE]` prints a line for each row of Megatron
//! Bridge's tables, or of another source of the evidence, and what they come to.

#![expect(clippy::print_stdout, reason = "the lines are this program's data")]

use evidence::BUNDLED;
use evidence::chosen::against;
use planner::wire::Verdict;

fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "megatron_bridge_perf".to_owned());
    let (_, text) = BUNDLED.iter().find(|(known, _)| *known == name).expect("a file of the evidence");
    let found = against(&name, text).expect("a source of published steps");
    let seconds = |seconds: Option<f64>| seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.3}"));
    for one in &found {
        println!(
            "{:<44} {:<34} {:?} {} s ({:.3} s measured); chosen {:<34} {} s, {} %",
            one.row,
            one.published,
            one.verdict,
            seconds(one.seconds),
            one.measured,
            one.chosen.as_deref().unwrap_or("nothing"),
            seconds(one.chosen_seconds),
            one.shorter().map_or("-".to_owned(), |share| format!("{:.1}", 100.0 * share)),
        );
    }
    let count = |verdict: Verdict| found.iter().filter(|one| one.verdict == verdict).count();
    println!(
        "{} rows: {} fit, {} tight, {} do not, {} invalid; a plan is chosen for {}",
        found.len(),
        count(Verdict::Fits),
        count(Verdict::Tight),
        count(Verdict::No),
        count(Verdict::Invalid),
        found.iter().filter(|one| one.chosen.is_some()).count()
    );
    let fits = |verdict: Verdict| matches!(verdict, Verdict::Fits | Verdict::Tight);
    let mut shares: Vec<f64> =
        found.iter().filter(|one| fits(one.verdict)).filter_map(|one| one.shorter()).collect();
    shares.sort_by(f64::total_cmp);
    let at = |share: f64| {
        shares.get(((shares.len().max(1) - 1) as f64 * share) as usize).map_or(0.0, |share| 100.0 * share)
    };
    println!(
        "of {} that fit, the chosen plan's predicted step is shorter by {:.1} % (median), {:.1} % (95 % of them less), {:.1} % at least",
        shares.len(),
        at(0.5),
        at(0.95),
        at(0.0)
    );
    let alike = found.iter().filter(|one| one.chosen.as_ref() == Some(&one.published)).count();
    println!("for {alike} rows the published sizes are the chosen ones");
}
