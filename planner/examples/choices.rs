//! How long a choice takes by itself: model and cluster named, everything else left to a search, two threads. `choices GPU NODES
//! [MODEL...] [--choose AXES] [--runtime NAME] [--threads NUMBER] [--plans]` prints for each model (all of the catalogue where none is named) seconds of the
//! space, of its parts, of the simulation and of the answer, with `--plans` what is chosen and nothing of clocks, and in the end what most
//! of them take. One thread does the same work each time, so its instructions can be counted (`valgrind --tool=callgrind`).

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it measures, and its figures are its data"
)]

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use planner::model::presets;
use planner::search::{Choice, Partial, Scored, Search, Simulated};
use serde_json::json;

/// Parts that a thread takes at once, as the command's threads do.
const PARTS_AT_ONCE: usize = 8;

fn main() {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut axes = vec!["all".to_owned()];
    if let Some(at) = arguments.iter().position(|one| one == "--choose") {
        axes.extend(arguments.get(at + 1).expect("axes").split(',').map(str::to_owned));
        arguments.drain(at..at + 2);
    }
    let mut runtime = None;
    if let Some(at) = arguments.iter().position(|one| one == "--runtime") {
        runtime = Some(arguments.get(at + 1).expect("a runtime").clone());
        arguments.drain(at..at + 2);
    }
    let mut threads = 2;
    if let Some(at) = arguments.iter().position(|one| one == "--threads") {
        threads = arguments.get(at + 1).and_then(|one| one.parse().ok()).expect("a number of threads");
        arguments.drain(at..at + 2);
    }
    let plans = arguments.iter().position(|one| one == "--plans").map(|at| arguments.remove(at)).is_some();
    let [gpu, nodes, named @ ..] = &arguments[..] else {
        panic!("choices GPU NODES [MODEL...] [--choose AXES] [--runtime NAME] [--threads NUMBER] [--plans]")
    };
    let nodes: u64 = nodes.parse().expect("nodes are a number");
    let known: Vec<String> = presets().iter().map(|preset| preset.id.to_owned()).collect();
    let models = if named.is_empty() { &known } else { named };
    let mut all = Vec::new();
    for model in models {
        let mut file = json!({"version": 1, "model": {"preset": model}, "cluster": {"gpu": gpu, "nodes": nodes},
            "choose": axes});
        if let Some(runtime) = &runtime {
            file["runtime"] = json!(runtime);
        }
        let mut file = planner::parse_plan(&file.to_string()).expect("a plan file");
        // The framework goes with the runtime that is chosen.
        if axes.iter().all(|axis| axis != "runtime") {
            file = planner::software::with_usual_framework(&file);
        }
        let (begun, spent) = (Instant::now(), processor_seconds());
        let choice = Choice::of(&file).expect("it can be read").expect("something is open");
        let search = Search::new(&choice.request).expect("it can be searched");
        let space = begun.elapsed().as_secs_f64();
        let partial = parts(&search, threads);
        let parts = begun.elapsed().as_secs_f64();
        let shortlist = search.shortlist(&partial);
        let mut simulated = Vec::new();
        loop {
            let next = search.ranking().next_round(&shortlist, &simulated);
            if next.is_empty() {
                break;
            }
            simulated.extend(simulate(&search, &next, threads));
        }
        let simulation = begun.elapsed().as_secs_f64();
        let answer = search.finish(&partial, &simulated);
        let whole = begun.elapsed().as_secs_f64();
        let spent = processor_seconds() - spent;
        all.push((whole, spent));
        if plans {
            let row = answer.rows.first().map(|row| (&row.settings, row.step_seconds, row.peak_bytes));
            println!("{model} {}", serde_json::to_string(&row).expect("plain data"));
            continue;
        }
        println!(
            "{model:<34} {whole:>6.3} s ({spent:.2} of the processor): space {space:.3}, {} parts {:.3}, {} simulated {:.3}, answer {:.3}; {} candidates, {} computed, {}",
            search.parts(),
            parts - space,
            simulated.len(),
            simulation - parts,
            whole - simulation,
            search.candidates(),
            partial.computed,
            answer.rows.first().map_or("nothing fits".to_owned(), |row| format!("{:.6} s", row.step_seconds)),
        );
    }
    if plans {
        return;
    }
    let within = all.iter().filter(|(seconds, _)| *seconds <= 0.3).count();
    println!("{gpu}, {nodes} nodes: {} choices, {within} of them within 0.3 s", all.len());
    let mut print = |what: &str, of: fn(&(f64, f64)) -> f64| {
        all.sort_by(|one, other| of(one).total_cmp(&of(other)));
        let at = |share: f64| of(&all[((all.len() - 1) as f64 * share) as usize]);
        println!("{what}: median {:.3} s, 95 % {:.3} s, longest {:.3} s", at(0.5), at(0.95), at(1.0));
    };
    print("on the clock", |one| one.0);
    print("of the processor", |one| one.1);
}

/// Seconds that this process has had of all processors, where Linux tells.
fn processor_seconds() -> f64 {
    let told = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = told.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
    fields.filter_map(|ticks| ticks.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// What `work` gives on each of so many threads, which share a counter.
fn on_threads<T: Send>(threads: usize, work: impl Fn(&AtomicUsize) -> T + Sync) -> Vec<T> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let handles: Vec<_> = (0..threads).map(|_| scope.spawn(|| work(&next))).collect();
        handles.into_iter().map(|handle| handle.join().expect("no thread panics")).collect()
    })
}

fn parts(search: &Search, threads: usize) -> Partial {
    let told = Mutex::new(Partial::default());
    let found = on_threads(threads, |next| {
        let (mut worker, mut found, mut computed) = (search.worker(), Partial::default(), 0);
        loop {
            let from = next.fetch_add(PARTS_AT_ONCE, Ordering::Relaxed) as u64;
            if from >= search.parts().max(1) {
                return found;
            }
            (from..from + PARTS_AT_ONCE as u64).for_each(|part| worker.run(part, &mut found));
            if found.computed != computed {
                search.exchange(&mut found, &mut told.lock().expect("no thread panics"));
                computed = found.computed;
            }
        }
    });
    let mut partial = Partial::default();
    found.iter().for_each(|found| search.merge(&mut partial, found));
    partial
}

fn simulate(search: &Search, candidates: &[Scored], threads: usize) -> Vec<Simulated> {
    let of_thread = |next: &AtomicUsize| {
        let taken = std::iter::from_fn(|| candidates.get(next.fetch_add(1, Ordering::Relaxed)));
        taken.map(|scored| search.simulate(scored)).collect::<Vec<_>>()
    };
    on_threads(threads, of_thread).into_iter().flatten().collect()
}
