//! A training that ended goes on from its checkpoint: in the same layout as if nothing had been, in another with the same
//! mathematics.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::{Event, Outcome, Resumed, Saved};
use serde_json::{Value, json};

use crate::harness::{PATIENCE, Run, set, tiny, wait_until};
use crate::kills::{asked, random};
use crate::survive::limit_files;

/// Steps before the checkpoint, and in all.
pub const HALF: u64 = 3;
pub const ALL: u64 = 6;
/// How far losses in fp64 may be apart in another layout.
const APART: f64 = 1e-10;

pub fn saving(plan: &Value, steps: u64) -> Value {
    let mut plan = plan.clone();
    set(&mut plan, "run.steps", steps);
    // A falling rate, so that it matters which step is the next.
    set(&mut plan, "run.lr_schedule", "cosine");
    set(&mut plan, "run.lr_decay_steps", ALL);
    set(&mut plan, "run.checkpoint", json!({"save": true}));
    plan
}

pub fn losses(run: &Run) -> Vec<(u64, f64)> {
    run.first_steps().iter().map(|step| (step.step, step.loss)).collect()
}

fn checkpoints(run: &Run) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(run.folder().join("checkpoints")) else { return Vec::new() };
    let mut found: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("step-"))
        .collect();
    found.sort();
    found
}

fn events<T>(run: &Run, rank: usize, of: impl Fn(Event) -> Option<T>) -> Vec<T> {
    run.records(rank).into_iter().filter_map(|record| of(record.event)).collect()
}

fn saved(run: &Run, rank: usize) -> Vec<Saved> {
    events(run, rank, |event| if let Event::Saved(saved) = event { Some(saved) } else { None })
}

fn resumed(run: &Run, rank: usize) -> Vec<Resumed> {
    events(run, rank, |event| if let Event::Resumed(resumed) = event { Some(resumed) } else { None })
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_folder(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).unwrap();
        }
    }
}

/// A run of `plan` whose folder has the checkpoints of another.
pub fn gone_on(plan: &Value, from: &Run) -> Run {
    let run = Run::prepare(plan);
    copy_folder(&from.folder().join("checkpoints"), &run.folder().join("checkpoints"));
    let world = plan["cluster"]["gpus_per_node"].as_u64().unwrap();
    crate::kept::carry_out(&run, world, true).unwrap_or_else(|failed| panic!("{failed}: {plan}"));
    run
}

/// The second half of a training, begun in one layout and gone on in others, is that of one that was never interrupted.
fn check_over(first: &Value, others: &[Value]) {
    let whole = Run::complete_with_dumps(&saving(first, ALL));
    let half = Run::complete(&saving(first, HALF));
    let same = gone_on(&saving(first, ALL), &half);
    assert_eq!(losses(&same), losses(&whole)[HALF as usize..], "{first}");
    assert_eq!(same.dumped("weights", ALL), whole.dumped("weights", ALL), "{first}");
    for other in others {
        let run = gone_on(&saving(other, ALL), &half);
        for ((step, loss), (expected_step, expected)) in
            losses(&run).into_iter().zip(losses(&whole).into_iter().skip(HALF as usize))
        {
            assert_eq!(step, expected_step);
            assert!(
                (loss - expected).abs() <= APART * expected.abs(),
                "step {step}: {loss:e} and {expected:e} in {other}"
            );
        }
        assert_eq!(losses(&run).len() as u64, ALL - HALF);
    }
}

fn with(mut plan: Value, fields: &[(&str, Value)]) -> Value {
    for (path, value) in fields {
        set(&mut plan, path, value.clone());
    }
    plan
}

#[test]
fn dense_models_go_on_in_any_layout() {
    // A vocabulary that every tensor-parallel size pads otherwise.
    let odd = |world, tp| with(tiny(world, tp), &[("model.architecture.vocab_size", json!(250))]);
    check_over(
        &odd(4, 2),
        &[
            odd(1, 1),
            odd(4, 4),
            odd(2, 1),
            with(odd(4, 1), &[("layout.pp", json!(2))]),
            with(odd(2, 1), &[("layout.cp", json!(2)), ("training.optimizer.distributed", json!(false))]),
            with(odd(4, 2), &[("layout.pp", json!(2)), ("layout.sp", json!(true))]),
        ],
    );
}

#[test]
fn more_ranks_than_groups_of_heads_go_on() {
    let few = |world, tp| with(tiny(world, tp), &[("model.architecture.attention.kv_heads", json!(2))]);
    check_over(&few(2, 2), &[few(4, 4), few(1, 1)]);
    check_over(&few(4, 4), &[few(2, 1), few(2, 2)]);
}

#[test]
fn tied_embeddings_go_on_over_stages() {
    let tied = |world, tp| {
        with(
            tiny(world, tp),
            &[
                ("model.architecture.tied_embeddings", json!(true)),
                ("model.architecture.num_layers", json!(4)),
            ],
        )
    };
    check_over(
        &with(tied(2, 1), &[("layout.pp", json!(2))]),
        &[tied(2, 2), with(tied(2, 1), &[("layout.pp", json!(2)), ("layout.vpp", json!(2))]), tied(1, 1)],
    );
}

/// Experts whose choice a bias balances.
fn moe(world: u64, tp: u64, layout: &[(&str, u64)]) -> Value {
    let mut plan = with(
        tiny(world, tp),
        &[(
            "model.architecture.moe",
            json!({"experts": 8, "top_k": 4, "ffn_hidden_size": 16, "shared_ffn_hidden_size": 16, "router_bias_buffer": 8,
                   "routing": {"score": "sigmoid", "scale": 2.5, "groups": 4, "group_top_k": 2, "bias_update_rate": 0.01}}),
        )],
    );
    for (name, size) in layout {
        set(&mut plan, &format!("layout.{name}"), *size);
    }
    plan
}

#[test]
fn experts_go_on_in_any_grid() {
    check_over(
        &moe(4, 2, &[("ep", 2), ("etp", 2)]),
        &[moe(1, 1, &[]), moe(4, 1, &[("ep", 4)]), moe(4, 2, &[("ep", 4)]), moe(2, 1, &[("pp", 2)])],
    );
}

#[test]
fn other_optimizers_and_types_go_on() {
    for (kind, dtype) in [("sgd", "fp32"), ("muon", "fp64"), ("adam", "bf16")] {
        let plan =
            with(tiny(2, 1), &[("training.optimizer.kind", json!(kind)), ("training.dtype", json!(dtype))]);
        check_over(&plan, &[]);
    }
}

#[test]
fn another_global_batch_goes_on_with_the_sequences_that_follow() {
    let half = Run::complete(&saving(&tiny(1, 1), HALF));
    let larger = with(saving(&tiny(1, 1), ALL), &[("training.global_batch_size", json!(8))]);
    let run = gone_on(&larger, &half);
    let index: Value = serde_json::from_slice(
        &std::fs::read(checkpoints(&run).last().unwrap().join("checkpoint.json")).unwrap(),
    )
    .unwrap();
    // Four sequences a step, then eight.
    assert_eq!(index["samples"], json!(4 * HALF + 8 * (ALL - HALF)));
}

#[test]
fn data_of_ones_own_is_saved_unasked_and_read_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let source = |name: &str, seed: u64, tokens: u64| {
        let path = folder.path().join(name);
        let bytes: Vec<u8> =
            (0..tokens).flat_map(|at| (random(seed ^ at, 256) as u16).to_le_bytes()).collect();
        std::fs::write(&path, bytes).unwrap();
        json!({"kind": "tokens", "path": path})
    };
    // The first has fewer windows than the training needs, so that an epoch ends within it.
    let parts = json!([{"weight": 1.0, "data": source("one", 1, 100)}, {"weight": 2.0, "data": source("two", 2, 5000)}]);
    let of = |steps: u64| {
        with(
            tiny(2, 1),
            &[("run.data", json!({"kind": "blend", "parts": parts})), ("run.steps", json!(steps))],
        )
    };
    let (whole, half) = (Run::complete(&of(ALL)), Run::complete(&of(HALF)));
    let rest = gone_on(&of(ALL), &half);
    assert_eq!(losses(&rest), losses(&whole)[HALF as usize..]);
}

/// Each element once, and as many bytes as the plan's view says before anything runs.
#[test]
fn what_is_saved_is_told_and_each_element_is_saved_once() {
    let of = |plan: &Value, kind: &str, dtype: &str| {
        with(plan.clone(), &[("training.optimizer.kind", json!(kind)), ("training.dtype", json!(dtype))])
    };
    let small_moments = with(
        of(&tiny(2, 1), "adam", "bf16"),
        &[
            ("training.optimizer.exp_avg_dtype", json!("bf16")),
            ("training.optimizer.exp_avg_sq_dtype", json!("bf16")),
        ],
    );
    let experts = moe(4, 2, &[("ep", 2), ("etp", 2)]);
    let hybrid = crate::fsdp2::checkpoints::fsdp2(tiny(1, 1), 4, json!({"dp_replicate": 2}));
    let plans = [
        of(&tiny(2, 2), "muon", "fp64"),
        of(&tiny(2, 1), "sgd", "fp32"),
        small_moments,
        of(&experts, "muon", "bf16"),
        of(&hybrid, "adam", "bf16"),
        experts,
    ];
    for plan in plans.map(|plan| saving(&plan, HALF)) {
        let run = Run::complete(&plan);
        let asked = planner::Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap()).plan.unwrap();
        let world = planner::Plan::resolve(&asked.executed()).plan.unwrap();
        let expected = planner::time::checkpoint_bytes(&world) as u64;
        let all: Vec<Saved> = (0..world.world_size()).flat_map(|rank| saved(&run, rank as usize)).collect();
        assert!(
            all.len() as u64 == world.world_size()
                && all.iter().all(|saved| saved.step == HALF && saved.failed.is_none()),
            "{all:?}"
        );
        assert_eq!(all.iter().map(|saved| saved.bytes).sum::<u64>(), expected, "{plan}");
        assert!(
            all.iter().all(|saved| saved.all_bytes > expected && saved.all_bytes < expected + 200_000),
            "{all:?}"
        );
    }
}

#[test]
fn a_stop_and_a_signal_save() {
    let plan = saving(&with(tiny(2, 2), &[]), 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(3);
    kill(Pid::from_raw(run.pid(1)), Signal::SIGUSR1).unwrap();
    let finished = run.finish(PATIENCE);
    assert!(finished.iter().all(|finished| finished.success), "{finished:?}");
    let (outcome, reason) = run.ended(0);
    let done = run.steps(0).len();
    assert_eq!(outcome, Outcome::Stopped);
    assert!(
        reason.ends_with(&format!(
            "after {done} of 100000 steps; step {done} is saved, from which it can go on"
        )),
        "{reason}"
    );
    // The next attempt goes on there; an order to stop that comes at once saves nothing twice.
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    run.restart(2, &[]);
    run.succeed();
    assert_eq!(run.steps(0).len(), done);
    assert_eq!(resumed(&run, 1).iter().map(|resumed| resumed.step).collect::<Vec<_>>(), [done as u64]);
    assert_eq!(checkpoints(&run).len(), 1);
}

#[test]
fn ranks_that_lose_their_launcher_save() {
    let plan = saving(&tiny(2, 1), 100_000);
    let mut run = Run::start(&plan, &["--launcher", "4242"]);
    run.wait_for_steps(2);
    run.let_go();
    run.finish(PATIENCE);
    let (outcome, reason) = run.ended(0);
    assert_eq!(outcome, Outcome::Failed);
    assert!(reason.contains("is saved, from which it can go on"), "{reason}");
    assert_eq!(checkpoints(&run).len(), 1);
}

/// Ranks are killed at random moments, one or all of them, in the middle of a save too: what has a checkpoint's name is whole,
/// and the training is that of one that was never interrupted.
#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
fn a_kill_at_any_moment_leaves_a_whole_checkpoint_and_the_same_training() {
    let (kills, seed) = asked();
    let plan = with(tiny(2, 1), &[("run.checkpoint", json!({"every_steps": 1, "keep": 3}))]);
    let endless = with(plan.clone(), &[("run.steps", json!(1_000_000))]);
    let mut run = Run::prepare(&endless);
    let mut half_written = 0;
    for number in 0..kills {
        let dice = seed.wrapping_mul(1000) + number;
        let before = run.steps(0).len();
        run.restart(2, &[]);
        run.wait_for_steps(before + 2);
        std::thread::sleep(Duration::from_millis(random(dice, 300)));
        let victims = match random(dice ^ 0x5eed, 3) {
            2 => vec![0, 1],
            one => vec![one as usize],
        };
        victims.iter().for_each(|&rank| kill(Pid::from_raw(run.pid(rank)), Signal::SIGKILL).unwrap());
        run.finish(PATIENCE);
        half_written += usize::from(staged(&run) > 0);
        let found = run_folder::Checkpoints::of_run(run.folder()).all();
        assert!(!found.is_empty(), "kill {number}");
        for one in found {
            let index = one.index().unwrap_or_else(|reason| panic!("kill {number}: {reason}"));
            index.files.iter().for_each(|file| one.check(file).unwrap());
        }
    }
    run.restart(2, &[]);
    run.wait_for_steps(run.steps(0).len() + 2);
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    run.succeed();
    let trained: Vec<(u64, f64)> = losses(&run);
    let last = trained.iter().map(|(step, _)| *step).max().unwrap();
    let whole =
        Run::complete(&with(plan, &[("run.steps", json!(last)), ("run.checkpoint.save", json!(false))]));
    let expected = losses(&whole);
    let mut seen = BTreeSet::new();
    for &(step, loss) in &trained {
        assert_eq!(loss, expected[step as usize - 1].1, "step {step}");
        seen.insert(step);
    }
    assert_eq!(seen.len() as u64, last);
    assert_eq!(resumed(&run, 0).len() as u64, kills);
    assert!(checkpoints(&run).len() == 3 && staged(&run) == 0, "{:?}", checkpoints(&run));
    println!(
        "{kills} kills, seed {seed}: {} steps trained for {last}, {half_written} times a checkpoint was half written, none was lost",
        trained.len()
    );
}

/// Checkpoints that are half written.
fn staged(run: &Run) -> usize {
    let entries = std::fs::read_dir(run.folder().join("checkpoints")).unwrap().flatten();
    entries.filter(|entry| entry.file_name().to_str().unwrap().starts_with(".new")).count()
}

#[test]
fn a_damaged_checkpoint_is_passed_over_and_kept() {
    let plan = with(saving(&tiny(2, 1), HALF), &[("run.checkpoint", json!({"every_steps": 1}))]);
    let mut run = Run::prepare(&plan);
    run.restart(2, &[]);
    run.succeed();
    let newest = checkpoints(&run).pop().unwrap();
    let file = newest.join("rank-00001.safetensors");
    let mut bytes = std::fs::read(&file).unwrap();
    let last = bytes.len() - 9;
    bytes[last] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let before = losses(&run);
    run.restart(2, &[]);
    run.succeed();
    let gone_on = resumed(&run, 0);
    assert!(gone_on[0].step < HALF && gone_on[0].passed_over.len() == 1, "{gone_on:?}");
    assert!(
        resumed(&run, 1)[0].passed_over[0].contains("damaged: its checksum is"),
        "{:?}",
        resumed(&run, 1)
    );
    assert_eq!(losses(&run).last(), before.last());
    let names: Vec<String> =
        checkpoints(&run).iter().map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    assert!(names.iter().any(|name| name.starts_with("step-00000003.replaced-")), "{names:?}");

    // Where none is whole, nothing is begun anew in silence.
    for folder in checkpoints(&run) {
        std::fs::write(folder.join("rank-00000.safetensors"), b"short").unwrap();
    }
    run.restart(2, &[]);
    let finished = run.finish(PATIENCE);
    assert!(finished.iter().all(|finished| !finished.success), "{finished:?}");
    assert!(finished[0].stderr.contains("can be gone on from"), "{}", finished[0].stderr);
}

#[test]
fn a_full_disk_costs_the_checkpoint_and_not_the_training() {
    let plan = with(saving(&tiny(2, 1), 100_000), &[("run.checkpoint", json!({"every_steps": 5}))]);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(7);
    limit_files(&run, 2, "100000");
    let wait = |until: &dyn Fn() -> bool| wait_until(until, || format!("{:?}", saved(&run, 0)));
    wait(&|| saved(&run, 0).iter().any(|saved| saved.failed.is_some()));
    let before = checkpoints(&run);
    limit_files(&run, 2, "unlimited");
    let failed = saved(&run, 0).len();
    wait(&|| saved(&run, 0).iter().skip(failed).any(|saved| saved.failed.is_none()));
    assert!(
        !before.is_empty() && before.iter().all(|path| path.join("checkpoint.json").exists()),
        "{before:?}"
    );
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    run.succeed();
    let reasons: Vec<String> = saved(&run, 0).into_iter().filter_map(|saved| saved.failed).collect();
    assert!(reasons.iter().any(|reason| reason.contains("File too large")), "{reasons:?}");
}

#[test]
fn what_is_of_another_model_or_optimizer_is_named() {
    let half = Run::complete(&saving(&tiny(1, 1), HALF));
    let folder = half.folder().join("checkpoints").display().to_string();
    let refused = |plan: Value, expected: &str| {
        let mut run = Run::start(&saving(&plan, ALL), &["--resume", &folder]);
        let finished = run.finish(PATIENCE);
        assert!(
            !finished[0].success && finished[0].stderr.contains(expected),
            "{expected}: {}",
            finished[0].stderr
        );
    };
    let of = |path: &str, value: Value| with(tiny(1, 1), &[(path, value)]);
    refused(of("model.architecture.num_layers", json!(1)), "which the plan's model does not have");
    refused(of("model.architecture.num_layers", json!(3)), "there is no weight of layers.2");
    refused(of("model.architecture.hidden_size", json!(32)), "and the plan's has");
    refused(of("training.optimizer.kind", json!("sgd")), "has no momentum_buffer");
    let mut run = Run::start(&saving(&tiny(1, 1), ALL), &["--resume", "/nowhere"]);
    assert!(run.finish(PATIENCE)[0].stderr.contains("no checkpoint in /nowhere"));
    // As a folder of checkpoints, as a run and as the one checkpoint.
    for path in
        [folder.clone(), half.folder().display().to_string(), checkpoints(&half)[0].display().to_string()]
    {
        let mut run = Run::start(&saving(&tiny(1, 1), ALL), &["--resume", &path]);
        run.succeed();
        assert_eq!(run.steps(0).first().map(|step| step.step), Some(HALF + 1));
    }
}

#[test]
fn two_runs_do_not_write_into_one_folder() {
    let plan = saving(&tiny(1, 1), 100_000);
    let mut run = Run::start(&plan, &[]);
    run.wait_for_steps(1);
    // The log of the first is its own too; another world finds the checkpoints held.
    run.restart_beside(1);
    let finished = run.finish_last(PATIENCE);
    assert!(
        !finished.success && finished.stderr.contains("another run writes checkpoints"),
        "{}",
        finished.stderr
    );
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    run.succeed();
}
