//! `shardplan search PLAN`.

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use planner::search::{
    ALIKE, Choice, FitGroup, Margin, Objective, Own, Partial, Relief, Request, Row, Scored, Search,
    SearchAnswer, Simulated, WhyNot, parse_prices,
};
use planner::software::for_runtimes;
use planner::wire::{PlanFile, Verdict};

use super::numbers::whole;
use super::source::Source;
use crate::report::{self, Exit, Failure, notice, text};

/// Parts that a thread takes at a time.
const PARTS_AT_ONCE: u64 = 8;
/// Time between lines of progress.
const PROGRESS: Duration = Duration::from_millis(500);

/// Find the best layouts and settings for a plan's model, cluster and batch
///
/// Every valid layout is tried: its memory and its step's time are computed, the best are simulated, and the simulation
/// has the last word. The plan's own layout is not looked at; every other setting is taken as it is.
#[derive(Debug, clap::Args)]
pub struct SearchCommand {
    #[command(flatten)]
    source: Source,
    /// What is best: fastest, cheapest, fewest_gpus, most_headroom or deadline
    #[arg(long, value_parser = objective)]
    objective: Option<Objective>,
    /// Days within which training.train_tokens must be done; the objective is deadline then, unless another is given
    #[arg(long, value_name = "DAYS")]
    deadline_days: Option<f64>,
    /// Prices of a GPU for an hour, such as h100-sxm=2.5,b200=4; the plan's own price is that of its own GPU
    #[arg(long, value_name = "GPU=PRICE,...", value_parser = parse_prices)]
    price: Option<BTreeMap<String, f64>>,
    /// Axes with their values, such as tp=8,recompute=none|full
    #[arg(long, value_name = "AXIS=VALUE", value_delimiter = ',')]
    fix: Vec<String>,
    /// Axes with their bounds, such as pp=1..16,nodes=8..64
    #[arg(long, value_name = "AXIS=MIN..MAX", value_delimiter = ',')]
    bound: Vec<String>,
    /// What must stay free of a GPU's memory, such as 4GiB or 5%; plans that leave less stand with the tight ones
    ///
    /// Without it, and beside it, a plan fits when the upper end of its likely range is within the GPU's memory.
    #[arg(long, value_parser = Margin::parse, allow_hyphen_values = true)]
    margin: Option<Margin>,
    /// Rows of the answer: so many that fit, and so many tight ones
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = whole(0..=u64::MAX))]
    top: u64,
    /// Plans that are simulated
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = whole(0..=u64::MAX))]
    simulate: u64,
    /// Candidates that are looked at, at most
    #[arg(long, value_name = "N", value_parser = whole(1..=u64::MAX))]
    most: Option<u64>,
    /// Print the plan file of row K instead of the answer
    #[arg(long = "plan", value_name = "K", value_parser = whole(1..=u64::MAX))]
    row: Option<u64>,
    /// Say why a plan is not the best: of all plans that are as this says, such as tp=4,pp=2, the best is compared with the first row
    #[arg(long, value_name = "SETTINGS")]
    why: Option<String>,
    /// Threads; one for each core
    #[arg(long, value_name = "N", value_parser = whole(1..=1024))]
    threads: Option<u64>,
}

/// Reads an objective by its name, or by another word that plan files take for it.
pub fn objective(text: &str) -> Result<Objective, String> {
    let file = serde_json::json!({"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"}, "objective": text.replace('-', "_")});
    let read = planner::parse_plan(&file.to_string()).ok().and_then(|file| file.objective);
    let names: Vec<&str> = Objective::ALL.iter().map(|objective| objective.name()).collect();
    read.ok_or_else(|| format!("it must be one of {}", names.join(", ")))
}

impl SearchCommand {
    /// Prints the answer; no when nothing fits.
    pub fn run(self, json: bool) -> anyhow::Result<Exit> {
        let file = self.source.file()?;
        let search = Search::new(&self.request(&file)?).map_err(Failure::Findings)?;
        let asked = self.threads.and_then(|threads| usize::try_from(threads).ok());
        let threads = asked.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let started = Instant::now();
        let (mut answer, computed) = find(&search, threads.clamp(1, 1024));
        notice(&format!(
            "{} candidates, {} valid: {} computed, {} dismissed by bounds, {} simulated in {:.2} s",
            text::thousands(answer.counts.candidates),
            text::thousands(answer.counts.valid),
            text::thousands(computed),
            text::thousands(answer.counts.valid.saturating_sub(computed)),
            text::thousands(answer.counts.simulated),
            started.elapsed().as_secs_f64()
        ));
        // What leaves fields open is no plan yet.
        answer.own = file.choose.is_none().then(|| answer.own_of(&search.request().plan)).flatten();
        if let Some(wanted) = &self.why {
            let best = answer.rows.first();
            let why =
                search.why_not(wanted, best).map_err(|error| Failure::usage(format!("--why: {error}")))?;
            if json {
                report::print_json(&why)?;
            } else {
                report::print(&reasons(&why))?;
            }
            return Ok(if answer.rows.is_empty() { Exit::No } else { Exit::Yes });
        }
        if let Some(place) = self.row {
            let Some(row) = answer.rows.iter().find(|row| row.place == place) else {
                return Err(Failure::usage(format!("--plan {place}: there are {} rows", answer.rows.len())));
            };
            if row.group == FitGroup::Tight {
                notice(&format!("row {place}: {}", answer.tight_in_words()));
            }
            report::print_json(&row.apply(&search.request().plan))?;
        } else if json {
            report::print_json(&answer)?;
        } else {
            report::print(&readable(&answer))?;
        }
        Ok(if answer.rows.is_empty() { Exit::No } else { Exit::Yes })
    }

    fn request(&self, file: &PlanFile) -> anyhow::Result<Request> {
        let mut request = match Choice::of(file).map_err(Failure::Findings)? {
            // Here all rows are wanted.
            Some(choice) => Request { only_first: false, ..choice.request },
            None => Request::new(file.clone()),
        };
        let asked = PlanFile {
            objective: self.objective.or(file.objective),
            deadline_days: self.deadline_days.or(file.deadline_days),
            ..PlanFile::default()
        };
        (request.objective, request.deadline_days) = (asked.aim(), asked.deadline_days);
        request.margin = self.margin;
        request.prices.extend(self.price.iter().flatten().map(|(gpu, price)| (gpu.clone(), *price)));
        // A row that the answer has keeps its number: those of one group come first, so many, and then the other's.
        let beyond = self.row.filter(|&row| row > self.top.saturating_mul(2));
        request.limits.rows = beyond.unwrap_or(self.top);
        request.limits.simulated = self.simulate;
        request.limits.candidates = self.most.unwrap_or(request.limits.candidates);
        let pair = |option: &str, text: &str| {
            let pair =
                text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
            pair.ok_or_else(|| Failure::usage(format!("{option} {text}: it must be of the form axis=value")))
        };
        for text in &self.fix {
            let (name, value) = pair("--fix", text)?;
            request.axes.fix(&name, &value).map_err(|error| Failure::usage(format!("--fix: {error}")))?;
        }
        for text in &self.bound {
            let (name, value) = pair("--bound", text)?;
            request.axes.bound(&name, &value).map_err(|error| Failure::usage(format!("--bound: {error}")))?;
        }
        if let Some(runtimes) = &request.axes.runtime {
            request.plan = for_runtimes(&request.plan, runtimes);
        }
        Ok(request)
    }
}

/// Works on all parts on so many threads, simulates the best on them, and puts the answer together. Beside it, how many plans
/// had their memory and step computed.
pub fn find(search: &Search, threads: usize) -> (SearchAnswer, u64) {
    let next = AtomicU64::new(0);
    let parts = search.parts();
    let mut partial = Partial::default();
    let known = Mutex::new(Partial::default());
    std::thread::scope(|scope| {
        let work = || {
            let mut worker = search.worker();
            let mut found = Partial::default();
            let mut told = 0;
            loop {
                let from = next.fetch_add(PARTS_AT_ONCE, Ordering::Relaxed);
                if from >= parts.max(1) {
                    return found;
                }
                (from..from + PARTS_AT_ONCE).for_each(|part| worker.run(part, &mut found));
                // Where the first row alone is wanted, what one thread knows spares the others the most of their work.
                if search.request().only_first
                    && found.computed != told
                    && let Ok(mut known) = known.lock()
                {
                    search.exchange(&mut found, &mut known);
                    told = found.computed;
                }
            }
        };
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        if std::io::stderr().is_terminal() {
            while handles.iter().any(|handle| !handle.is_finished()) {
                std::thread::park_timeout(PROGRESS);
                let done = next.load(Ordering::Relaxed).min(parts);
                notice(&format!("{done} of {parts} parts"));
            }
        }
        for handle in handles {
            // A thread that panicked has said so; what the others found is still true of their parts.
            if let Ok(found) = handle.join() {
                search.merge(&mut partial, &found);
            }
        }
    });
    let shortlist = search.shortlist(&partial);
    let mut simulated = Vec::new();
    loop {
        let next = search.ranking().next_round(&shortlist, &simulated);
        if next.is_empty() {
            break;
        }
        simulated.extend(simulate(search, &next, threads));
    }
    (search.finish(&partial, &simulated), partial.computed)
}

/// Simulates candidates on so many threads, each of which takes the next one.
fn simulate(search: &Search, candidates: &[Scored], threads: usize) -> Vec<Simulated> {
    let next = AtomicUsize::new(0);
    let work = || {
        std::iter::from_fn(|| candidates.get(next.fetch_add(1, Ordering::Relaxed)))
            .map(|scored| search.simulate(scored))
            .collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        handles.into_iter().filter_map(|handle| handle.join().ok()).flatten().collect()
    })
}

fn readable(answer: &SearchAnswer) -> String {
    let mut out = String::new();
    for (objective, row) in answer.bests() {
        out.push_str(&format!(
            "{:<12} {}{} s, {} GiB, {} GPUs: {}\n",
            in_words(objective),
            if row.simulated { "" } else { "~" },
            text::seconds(row.step_seconds),
            text::gib(row.peak_bytes),
            text::thousands(row.gpus),
            text::one_line(&settings(&row.settings))
        ));
    }
    out.push_str(if answer.rows.is_empty() { "" } else { "\n" });
    out.push_str(&format!("{}\n", text::one_line(&answer.scope.in_words())));
    for (place, (heading, rows)) in answer.by_group().into_iter().enumerate() {
        out.push_str(if place > 0 { "\n" } else { "" });
        if let Some(heading) = heading {
            out.push_str(&text::one_line(&heading));
            out.push('\n');
        }
        out.push_str(&table(rows));
    }
    if answer.rows.iter().chain(answer.bests().into_iter().map(|best| best.1)).any(|row| !row.simulated) {
        out.push_str("~ by the closed form: only the best are simulated, and steps of many thousand micro batches are not\n");
    }
    let passed_over = |rows: &[Row]| {
        rows.first().is_some_and(|first| {
            rows.iter().any(|row| row.gpus == first.gpus && row.step_seconds < first.step_seconds)
        })
    };
    let quickest = matches!(answer.objective, Objective::Fastest | Objective::Cheapest);
    if quickest && answer.by_group().iter().any(|(_, rows)| passed_over(rows)) {
        out.push_str(&format!(
            "of plans within {} % of the best, which the time model can't tell apart, the simplest stands first\n",
            100.0 * ALIKE
        ));
    }
    if let Some(nearest) = &answer.nearest {
        out.push_str(&format!(
            "\nnearest     {}: {:.1} % faster, but it needs {}\n",
            text::one_line(&settings(&nearest.settings)),
            100.0 * (1.0 - 1.0 / nearest.speedup),
            nearest.needs
        ));
    }
    if let Some(relief) = &answer.relief {
        if answer.rows.is_empty() {
            let looked_at = if answer.left_out.is_empty() {
                "nothing fits"
            } else {
                "nothing of what was looked at fits"
            };
            out.push_str(&format!("{looked_at}\n"));
        }
        if let Some(smallest) = &relief.smallest {
            out.push_str(&format!(
                "smallest    {}: it needs {}\n",
                text::one_line(&settings(&smallest.settings)),
                smallest.needs
            ));
        }
        out.push_str(&helps(relief, "--fix"));
    }
    let counts = &answer.counts;
    out.push_str(&format!(
        "\ncandidates  {}: {} refused by rules, {} too large, {} tight, {} fit\n",
        text::thousands(counts.candidates),
        text::thousands(counts.refused),
        text::thousands(counts.too_large),
        text::thousands(counts.tight),
        text::thousands(counts.fitting)
    ));
    for rule in &counts.rules {
        out.push_str(&format!(
            "  {:>14}  {}\n",
            text::thousands(rule.candidates),
            text::one_line(&rule.rule)
        ));
    }
    for note in &answer.notes {
        out.push_str(&format!("note        {}\n", text::one_line(note)));
    }
    for left in &answer.left_out {
        out.push_str(&format!("left out    {}\n", text::one_line(left)));
    }
    out.push_str(&answer.own.as_ref().map(own_plan).unwrap_or_default());
    out
}

/// Where the file's own plan stands, in a line.
fn own_plan(own: &Own) -> String {
    let next = match (own.place, own.verdict) {
        (Some(_), _) => "",
        (None, Verdict::Invalid) => ", and `shardplan estimate` says why",
        (None, _) => "; --top shows more, and --why says of a plan why it is not the best",
    };
    format!("the file's   {}{next}\n", own.in_words())
}

/// What would help, each in a line, with the options that make it so.
pub fn helps(relief: &Relief, option: &str) -> String {
    let mut out = String::new();
    for said in &relief.suggestions {
        let remedy = relief.remedies.iter().find(|remedy| remedy.said == *said);
        let star = if remedy.is_some_and(|remedy| remedy.changes_training) { " *" } else { "" };
        let kind = if remedy.is_some() { "would help" } else { "why" };
        out.push_str(&format!("{kind:<11} {}{star}\n", text::one_line(said)));
        if let Some(remedy) = remedy {
            out.push_str(&format!("{:<11} {}\n", "", text::one_line(&remedy.options(option))));
        }
    }
    if relief.remedies.iter().any(|remedy| remedy.changes_training) {
        out.push_str("* changes the numbers that training computes\n");
    }
    out
}

fn in_words(objective: Objective) -> &'static str {
    match objective {
        Objective::Fastest | Objective::Deadline => "first",
        Objective::Cheapest => "cheapest",
        Objective::MostHeadroom => "roomiest",
        Objective::FewestGpus => "fewest GPUs",
    }
}

fn table(rows: &[Row]) -> String {
    let header = [
        "place",
        "seconds",
        "likely",
        "tokens/s/GPU",
        "GPUs",
        "tp",
        "cp",
        "pp",
        "vpp",
        "ep",
        "etp",
        "dp",
        "mbs",
        "GiB",
        "likely GiB",
        "left",
        "fits",
        "schedule",
        "recompute",
        "stages",
    ];
    // A column for what is an axis of few searches, and for all else that tells rows apart.
    let sharded = rows.iter().any(|row| row.settings.fsdp_strategy.is_some());
    let plans: Vec<&planner::search::Settings> = rows.iter().map(|row| &row.settings).collect();
    let mut apart = planner::search::Settings::apart(&plans);
    apart.retain(|(name, _)| !["stages", "fsdp"].contains(&name.as_str()));
    let mut header = header.map(str::to_owned).to_vec();
    header.extend(sharded.then(|| "fsdp".to_owned()));
    header.extend(apart.iter().map(|(name, _)| name.clone()));
    let mut all = vec![header];
    for (place, row) in rows.iter().enumerate() {
        let chosen = &row.settings;
        let sizes = [chosen.tp, chosen.cp, chosen.pp, chosen.vpp, chosen.ep, chosen.etp, chosen.dp];
        let mut cells = vec![
            row.place.to_string(),
            format!("{}{}", if row.simulated { "" } else { "~" }, text::seconds(row.step_seconds)),
            row.interval_seconds.map(text::seconds).join("-"),
            format!("{:.0}", row.tokens_per_second_per_gpu),
            row.gpus.to_string(),
        ];
        cells.extend(sizes.map(|size| size.to_string()));
        cells.push(chosen.micro_batch_size.to_string());
        cells.push(text::gib(row.peak_bytes));
        cells.push(row.interval_bytes.map(text::gib).join("-"));
        cells.push(row.left_share().map_or("unknown".to_owned(), |share| format!("{:.1} %", 100.0 * share)));
        cells.push(fits(row).to_owned());
        cells.push(chosen.schedule.name().to_owned());
        cells.push(text::one_line(&chosen.recompute.0));
        cells.push(chosen.stages_in_words());
        if sharded {
            cells.push(chosen.fsdp_strategy.map_or("as in the plan", |strategy| strategy.name()).to_owned());
        }
        cells.extend(apart.iter().map(|(_, values)| text::one_line(&values[place])));
        all.push(cells);
    }
    text::table(&all)
}

/// Whether a row's plan fits, in a word.
fn fits(row: &Row) -> &'static str {
    match (row.headroom_bytes, row.verdict, row.group) {
        (None, ..) => "unknown",
        (_, Verdict::Tight, _) => "tight",
        (_, _, FitGroup::Tight) => "less left",
        _ => "yes",
    }
}

fn settings(chosen: &planner::search::Settings) -> String {
    format!(
        "tp {} cp {} pp {} vpp {} ep {} etp {} micro batch {} {} recompute {} on {} nodes of {}",
        chosen.tp,
        chosen.cp,
        chosen.pp,
        chosen.vpp,
        chosen.ep,
        chosen.etp,
        chosen.micro_batch_size,
        chosen.schedule.name(),
        chosen.recompute.0,
        chosen.nodes,
        chosen.gpu
    ) + &chosen.fsdp_strategy.map_or(String::new(), |strategy| format!(", {}", strategy.name()))
}

fn reasons(why: &WhyNot) -> String {
    let head = why.settings.as_ref().map(|found| format!("{}\n", text::one_line(&settings(found))));
    let mut out = head.unwrap_or_default();
    for reason in &why.reasons {
        out.push_str(&format!("  {}\n", text::one_line(reason)));
    }
    out
}
