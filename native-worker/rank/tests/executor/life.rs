//! A run's life: it learns, stops when asked, goes on in the same folder.

use std::io::Write;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::{Event, Outcome};
use serde_json::json;

use crate::harness::{Run, set, tiny};

fn learns(dtype: &str) {
    let mut plan = tiny(4, 2);
    set(&mut plan, "training.dtype", dtype);
    set(&mut plan, "training.global_batch_size", 8);
    set(&mut plan, "run.steps", 40);
    set(&mut plan, "run.lr", 0.01);
    let run = Run::complete(&plan);
    let steps = run.steps(0);
    // 256 words know nothing at first: ln 256 = 5.55.
    assert!((steps[0].loss - 5.55).abs() < 0.1, "{}", steps[0].loss);
    assert!(steps[39].loss < 4.5, "{dtype}: {}", steps[39].loss);
    let phases = &steps[1].phases;
    for phase in [
        "data",
        "forward",
        "backward",
        "optimizer",
        "waiting",
        "comm.all_reduce",
        "comm.all_gather",
        "comm.reduce_scatter",
    ] {
        assert!(phases.contains_key(phase), "{phase} is missing in {phases:?}");
    }
    assert!(phases.values().sum::<f64>() <= steps[1].seconds);
    // Over TCP nothing goes on beside computing.
    let communication = steps[1].communication.unwrap();
    let transfers = phases.iter().filter(|(phase, _)| phase.starts_with("comm."));
    let transfers: f64 = transfers.map(|(_, seconds)| seconds).sum();
    assert!((communication.exposed_seconds - transfers).abs() < 1e-9, "{communication:?} in {phases:?}");
    assert_eq!(communication.hidden_seconds, 0.0);
    let (peaks, memory) = (&steps[1].phase_peaks, &steps[1].memory);
    // The step's peak is that of one of its phases; in each, at least what is kept is live.
    assert_eq!(peaks.values().max(), Some(&memory.peak_allocated_bytes), "{peaks:?}");
    let kept = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes;
    assert!(peaks.len() == 4 && peaks.values().all(|&peak| peak >= kept), "{peaks:?}");
    assert!(steps[1].model_tflops > 0.0 && steps[1].mfu.is_none(), "a CPU has no peak");
    assert_eq!(run.ended(3), (Outcome::Completed, "all 40 steps are done".to_owned()));
}

/// The time of a step that nothing else has held up: that of the fastest tenth.
fn undisturbed(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 10]
}

/// Measuring changes no number. With `SHARDPLAN_PAIRS` (`cargo xtask soak` sets it) also what it costs: runs with and
/// without in turn, the undisturbed step of each, and the median of their ratios.
#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
fn measuring_changes_nothing_but_time() {
    let pairs: usize =
        std::env::var("SHARDPLAN_PAIRS").ok().and_then(|value| value.parse().ok()).unwrap_or(0);
    let mut plan = tiny(1, 1);
    if pairs > 0 {
        // Small for a model, so that what is counted for each tensor weighs much; many short runs even out a busy machine.
        set(&mut plan, "model.architecture.hidden_size", 256);
        set(&mut plan, "model.architecture.ffn_hidden_size", 704);
        set(&mut plan, "model.architecture.num_layers", 4);
        set(&mut plan, "training.seq_len", 256);
        set(&mut plan, "training.dtype", "fp32");
        set(&mut plan, "run.steps", 40);
    }
    let run = |arguments: &[&str]| {
        let mut run = Run::start(&plan, arguments);
        run.succeed();
        let steps = run.steps(0);
        let losses: Vec<f64> = steps.iter().map(|step| step.loss).collect();
        (losses, undisturbed(steps.iter().map(|step| step.seconds).collect()))
    };
    let mut seen = Vec::new();
    for number in 0..pairs.max(1) {
        // Who goes first changes, or what slows down over time would count for one of them.
        let (measured, unmeasured) = if number % 2 == 0 {
            let measured = run(&[]);
            (measured, run(&["--unmeasured", "on"]))
        } else {
            let unmeasured = run(&["--unmeasured", "on"]);
            (run(&[]), unmeasured)
        };
        assert_eq!(measured.0, unmeasured.0);
        seen.push((measured.1 / unmeasured.1, unmeasured.1));
    }
    if pairs == 0 {
        return;
    }
    seen.sort_by(|a, b| a.0.total_cmp(&b.0));
    let percent = |ratio: f64| 100.0 * (ratio - 1.0);
    let at = |place: usize| percent(seen[place].0);
    println!(
        "measuring costs {:+.2}% of a step's time (median of {pairs} pairs; quartiles {:+.2}% and {:+.2}%; a step takes {:.1} ms)",
        percent(0.5 * (seen[(pairs - 1) / 2].0 + seen[pairs / 2].0)),
        at(pairs / 4),
        at(3 * pairs / 4),
        1e3 * seen[pairs / 2].1,
    );
}

#[test]
fn the_loss_falls_in_every_dtype() {
    for dtype in ["fp64", "fp32", "bf16"] {
        learns(dtype);
    }
}

#[test]
fn text_is_learned() {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for number in 0..400 {
        writeln!(file, "{number} bottles of beer on the wall").unwrap();
    }
    let mut plan = tiny(2, 1);
    set(&mut plan, "run", json!({"steps": 40, "lr": 0.01, "data": {"kind": "text", "path": file.path()}}));
    let run = Run::complete(&plan);
    let steps = run.steps(0);
    assert!(steps[39].loss < 0.6 * steps[0].loss, "{} then {}", steps[0].loss, steps[39].loss);
}

/// All ranks must have stopped after the same step.
fn check_stopped(run: &Run, ranks: usize, reason: &str) {
    let done = run.steps(0).len();
    assert!(done > 0 && done < 100_000);
    for rank in 0..ranks {
        let (outcome, said) = run.ended(rank);
        assert_eq!(outcome, Outcome::Stopped);
        assert!(said.contains(reason) && said.ends_with(&format!("after {done} of 100000 steps")), "{said}");
        assert_eq!(run.steps(rank).len(), done);
    }
}

#[test]
fn the_control_file_stops_all_ranks_after_the_same_step() {
    let mut plan = tiny(2, 2);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(2);
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    run.succeed();
    check_stopped(&run, 2, "control file");
}

#[test]
fn a_signal_to_any_rank_stops_all_and_the_log_goes_on_in_the_next_run() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "run.steps", 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(2);
    kill(Pid::from_raw(run.pid(1)), Signal::SIGTERM).unwrap();
    run.succeed();
    check_stopped(&run, 2, "to rank 1");
    // A torn record at the end of a log, as a kill leaves it.
    let path = run.folder().join("rank-00000.log");
    let mut log = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    log.write_all(b"0badc0de {\"seq\": 9").unwrap();
    let before = run.records(0).len();
    std::fs::write(run.folder().join("plan.json"), tiny(2, 1).to_string()).unwrap();
    run.restart(2, &[]);
    run.succeed();
    let records = run.records(0);
    assert!(records.iter().enumerate().all(|(index, record)| record.seq == index as u64));
    assert!(matches!(records[before].event, Event::Joined(_)), "{:?}", records[before]);
    assert_eq!(run.finish(Duration::ZERO).len(), 0);
}
