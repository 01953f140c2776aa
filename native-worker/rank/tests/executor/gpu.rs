//! What ranks do on GPUs, on GPUs of host memory (tests/fake_gpu): the same training as on the CPU, nothing read or written
//! that no event orders, no byte leaked, times by the GPU's clock, and the host waits no oftener than is said here.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Instant;

use planner::run::StepParts;
use planner::wire::{Communication, Event};
use serde_json::{Value, json};

use crate::fsdp2::moments::ranks_have_noted;
use crate::harness::{PATIENCE, Run, Start, free_port, set, tiny};
use crate::parity::{self, STEPS, same};

fn compile(command: &mut Command) {
    let done = command.output().expect("a compiler, which building this program needed too");
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}

/// The library with GPUs, CUDA's runtime and NCCL, compiled once.
pub fn library() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
        let torch = Path::new(env!("TORCH_HOME"));
        let made = |name: &str| {
            PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}.{name}", std::process::id()))
        };
        let (streams, library) = (made("fake_streams.o"), made("libfake_gpu.so"));
        compile(
            Command::new("cc")
                .args(["-c", "-fPIC", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"])
                .args([&streams, &tests.join("fake_nccl/fake_nccl.c")]),
        );
        compile(
            Command::new("c++")
                .args(["-shared", "-fPIC", "-O0", "-std=c++17", "-pthread", "-Wall", "-Wextra", "-isystem"])
                .arg(torch.join("include"))
                .args([&tests.join("fake_gpu/fake_gpu.cpp"), &streams])
                .arg("-L")
                .arg(torch.join("lib"))
                // First of all libraries of a rank, but behind these.
                .args(["-ltorch_cpu", "-lc10", "-o"])
                .arg(&library),
        );
        library.to_str().unwrap().to_owned()
    })
}

/// Starts a rank for each GPU but the first of the machine: that is what a thread has which forgot to take its rank's.
pub fn start(plan: &Value, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    start_each(plan, arguments, |_| variables)
}

/// The same with variables of its own for each rank.
pub fn start_each<'v>(
    plan: &Value,
    arguments: &[&str],
    variables: impl Fn(u64) -> &'v [(&'v str, &'v str)],
) -> Run {
    let mut run = Run::prepare(plan);
    let (log, library) = (run.folder().join("calls").to_str().unwrap().to_owned(), library());
    let mut all = vec!["--device", "cuda", "--nccl-library", library];
    all.extend(arguments);
    let (world, port) = (plan["cluster"]["gpus_per_node"].as_u64().unwrap(), free_port());
    for rank in 0..world {
        let gpu = (rank + 1).to_string();
        let mut given = vec![
            ("LD_PRELOAD", library),
            ("LOCAL_RANK", gpu.as_str()),
            ("FAKE_NCCL_LOG", log.as_str()),
            ("FAKE_NCCL_DELAYS", "300"),
        ];
        given.extend(variables(rank));
        let start =
            Start { rank, world, port, arguments: &all, program: None, plan: None, variables: &given };
        run.start_rank(&start);
    }
    run
}

/// A plan of `world` ranks on GPUs against one process on the CPU.
#[track_caller]
fn check(world: u64, tp: u64, change: impl Fn(&mut Value), layout: impl Fn(&mut Value)) {
    let mut one = tiny(1, 1);
    change(&mut one);
    let mut many = tiny(world, tp);
    change(&mut many);
    layout(&mut many);
    let one = parity::on_one_process(&one);
    let mut run = start(&many, &["--dump"], &[]);
    run.succeed();
    parity::compare(one.get().expect("it was made"), &run, world, STEPS);
}

fn with(path: &'static str, value: impl Into<Value> + Clone) -> impl Fn(&mut Value) {
    move |plan| set(plan, path, value.clone())
}

/// Experts with a bias that follows their tokens, and a loss on how these are spread.
fn experts(balance: &str) -> impl Fn(&mut Value) {
    let routing =
        json!({"score": "sigmoid", "bias_update_rate": 0.01, "balance": balance, "aux_coefficient": 0.01});
    let moe = json!({
        "experts": 8, "top_k": 2, "ffn_hidden_size": 24, "router_bias_buffer": 8, "routing": routing
    });
    move |plan| set(plan, "model.architecture.moe", moe.clone())
}

#[test]
fn one_gpu_trains_what_a_cpu_trains() {
    check(1, 1, same, same);
    check(1, 1, experts("global_aux_loss"), same);
}

#[test]
fn replicas_and_slices() {
    check(2, 1, same, same);
    check(2, 2, same, same);
    check(2, 1, same, with("layout.cp", 2));
}

#[test]
fn pipelines() {
    check(2, 1, same, with("layout.pp", 2));
    check(2, 1, with("model.architecture.num_layers", 4), |plan| {
        set(plan, "layout.pp", 2);
        set(plan, "layout.vpp", 2);
        set(plan, "layout.schedule", "zbv");
    });
}

#[test]
fn experts_on_other_ranks() {
    check(2, 1, experts("aux_loss"), with("layout.ep", 2));
}

/// A plan whose ranks keep shards.
fn sharded(runtime: &'static str, fsdp: Value, replicas: u64) -> impl Fn(&mut Value) {
    move |plan| {
        set(plan, "runtime", runtime);
        set(plan, "layout.fsdp", fsdp.clone());
        set(plan, "layout.dp_replicate", replicas);
    }
}

#[test]
fn shards() {
    check(2, 1, same, with("runtime", "fsdp2"));
    check(
        2,
        1,
        same,
        sharded("fsdp2", json!({"reshard_after_forward": "always", "gradient_sync": "every"}), 1),
    );
    check(4, 1, same, sharded("fsdp2", json!({}), 2));
    check(4, 1, same, sharded("fsdp2", json!({"reshard_after_forward": 2}), 1));
    check(2, 1, experts("aux_loss"), |plan| {
        sharded("fsdp2", json!({}), 1)(plan);
        set(plan, "layout.ep", 2);
    });
}

/// What reductions beside computing have made is there until the next one, as it is predicted for GPUs.
#[test]
fn units_hold_what_is_predicted_for_gpus() {
    for fsdp in [json!({"gradient_sync": "every"}), json!({"gradient_sync": "every", "outer_units": "apart"})]
    {
        let mut plan = tiny(2, 1);
        set(&mut plan, "run.steps", 2);
        set(&mut plan, "training.dtype", "fp32");
        sharded("fsdp2", fsdp.clone(), 1)(&mut plan);
        let mut run = start(&plan, &["--dump"], &[]);
        run.succeed();
        let mut on_gpus = plan.clone();
        set(&mut on_gpus, "cluster.gpu", "h100-sxm");
        assert!(ranks_have_noted(&run, &on_gpus, |_| true, &format!("{fsdp}")) > 100);
    }
}

#[test]
fn flat_units() {
    for fsdp in [
        json!({"strategy": "optim_grads"}),
        json!({"strategy": "optim_grads_params"}),
        json!({"strategy": "optim_grads_params", "double_buffer": true}),
    ] {
        check(2, 1, same, sharded("megatron_fsdp", fsdp, 1));
    }
    check(4, 1, same, sharded("megatron_fsdp", json!({"strategy": "optim_grads_params"}), 2));
}

#[test]
fn replicas_with_fewer_slots() {
    // Rank 3 takes no part.
    let mut plan = tiny(4, 2);
    set(&mut plan, "cluster.failed", json!([{"rank": 3}]));
    let by_cpu = Run::complete(&plan);
    let mut run = start(&plan, &[], &[]);
    run.succeed();
    let (expected, found) = (by_cpu.steps(0), run.steps(0));
    assert_eq!(expected.len(), found.len());
    for (expected, found) in expected.iter().zip(&found) {
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-10 * a.abs();
        assert!(close(expected.loss, found.loss), "{expected:?} and {found:?}");
        assert!(close(expected.grad_norm, found.grad_norm), "{expected:?} and {found:?}");
    }
}

/// How often the hosts of a plan's ranks waited for their GPUs in so many steps of so many sequences.
fn waits(plan: &Value, steps: u64, sequences: u64) -> u64 {
    let mut plan = plan.clone();
    set(&mut plan, "run.steps", steps);
    set(&mut plan, "training.global_batch_size", sequences);
    let mut run = start(&plan, &[], &[]);
    run.succeed();
    let waits = |text: String| text.lines().filter(|line| line.starts_with("sync ")).count() as u64;
    run.calls().map(waits).sum()
}

/// How often a rank's host waits in a step, and for each micro batch besides.
#[track_caller]
fn check_waits(plan: &Value, in_a_step: u64, in_a_microbatch: u64) {
    let ranks = plan["cluster"]["gpus_per_node"].as_u64().unwrap();
    let replicas = if plan["layout"]["pp"].is_null() { ranks } else { 1 };
    let (few, more, larger) = (waits(plan, 2, 8), waits(plan, 4, 8), waits(plan, 2, 16));
    // What steps don't have in common is at the start.
    assert_eq!(larger - few, 2 * 8 / replicas * in_a_microbatch * ranks, "for micro batches");
    assert_eq!(more - few, 2 * (in_a_step + 8 / replicas * in_a_microbatch) * ranks, "for steps");
}

#[test]
fn the_host_waits_once_a_step_and_never_for_a_micro_batch() {
    check_waits(&tiny(1, 1), 1, 0);
    let mut stages = tiny(2, 1);
    set(&mut stages, "layout.pp", 2);
    check_waits(&stages, 1, 0);
    let mut shards = tiny(2, 1);
    set(&mut shards, "runtime", "fsdp2");
    check_waits(&shards, 1, 0);
}

/// A plan in bf16 on one GPU with experts of which the kernel takes all at once.
fn experts_at_once() -> Value {
    let mut plan = tiny(1, 1);
    set(&mut plan, "training.dtype", "bf16");
    set(&mut plan, "model.architecture.moe", json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24}));
    plan
}

#[test]
fn experts_of_one_rank_are_counted_on_the_gpu() {
    check_waits(&experts_at_once(), 1, 0);
    // Where there is a product for each expert, the host must know how large it is: in both layers.
    let mut plan = experts_at_once();
    set(&mut plan, "training.dtype", "fp32");
    check_waits(&plan, 1, 2);
}

#[test]
fn experts_at_once_train_what_a_cpu_trains() {
    let losses = |mut run: Run| {
        run.succeed();
        run.steps(0).iter().map(|step| step.loss).collect::<Vec<f64>>()
    };
    let plan = experts_at_once();
    let (by_cpu, by_gpu) = (losses(Run::start(&plan, &[])), losses(start(&plan, &[], &[])));
    assert_eq!(by_cpu.len(), by_gpu.len());
    for (one, other) in by_cpu.iter().zip(&by_gpu) {
        assert!((one - other).abs() < 1e-3 * one, "{by_gpu:?}, not {by_cpu:?}");
    }
}

#[test]
fn biases_of_experts_follow_without_the_host() {
    // Both layers have experts, and a bias that follows the step's counts; the host waits to know how many rows experts get.
    let mut plan = tiny(2, 1);
    experts("aux_loss")(&mut plan);
    set(&mut plan, "layout.ep", 2);
    check_waits(&plan, 1, 2);
}

#[test]
fn a_forgotten_event_is_found() {
    let mut stages = tiny(2, 1);
    set(&mut stages, "layout.pp", 2);
    let mut units = tiny(2, 1);
    set(&mut units, "runtime", "fsdp2");
    for plan in [stages, units] {
        for forgets in ["default", "side"] {
            let mut run = start(&plan, &["--timeout-s", "10"], &[("FAKE_GPU_FORGETS", forgets)]);
            let finished = run.finish(PATIENCE);
            assert!(
                finished
                    .iter()
                    .any(|rank| !rank.success && rank.stderr.contains("as no event is between them")),
                "{forgets}: {finished:?}"
            );
        }
    }
}

/// Ranks, those of a tensor-parallel group, and what else a plan of them says.
type Layout = (u64, u64, fn(&mut Value));

/// Layouts whose ranks each keep the optimizer's state of a part of what several have.
pub const LAYOUTS: [Layout; 6] = [
    (2, 1, |_| ()),
    (4, 2, |plan| set(plan, "layout.sp", true)),
    (4, 1, |plan| set(plan, "layout.pp", 2)),
    (4, 1, |plan| {
        set(plan, "layout.pp", 2);
        set(plan, "model.architecture.tied_embeddings", true);
    }),
    (2, 1, |plan| set(plan, "layout.cp", 2)),
    (4, 1, |plan| {
        experts("aux_loss")(plan);
        set(plan, "layout.ep", 2);
    }),
];

/// Weights come back on the stream of the sums: behind their update, and ahead of the next forward.
#[test]
fn a_forgotten_event_of_updated_weights_is_found() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "run.steps", 2);
    let mut whole = start(&plan, &[], &[]);
    whole.succeed();
    let calls = whole.calls().next().expect("a rank's calls");
    let (before, _) = calls.split_once("broadcast ").expect("weights that come back");
    for (stream, found) in
        [("default", "may still write that memory in broadcast"), ("side", "broadcast reads")]
    {
        // So often it has waited before; the last of the others has waited for the first of these.
        let waits = before.matches(&format!("wait {stream}\n")).count();
        let forgets = format!("{stream} {}", if stream == "side" { waits - 1 } else { waits });
        // What the host has seen to be done is waited for, too, so it must not be.
        let variables = [("FAKE_GPU_FORGETS", forgets.as_str()), ("FAKE_NCCL_SLOW", "300")];
        let mut run = start(&plan, &["--timeout-s", "60"], &variables);
        let finished = run.finish(PATIENCE);
        let is_found = finished.iter().any(|rank| !rank.success && rank.stderr.contains(found));
        assert!(is_found, "{forgets}: {finished:?}");
    }
}

/// Ranks that write nothing between steps train the same: what is dumped is waited for.
#[test]
fn updated_weights_come_back_beside_the_next_forward() {
    for (world, tp, layout) in LAYOUTS {
        let mut plan = tiny(world, tp);
        layout(&mut plan);
        let by_cpu = Run::complete(&plan);
        let mut run = start(&plan, &[], &[]);
        run.succeed();
        let told = |run: &Run| {
            run.steps(0).iter().flat_map(|step| [step.loss, step.grad_norm]).collect::<Vec<f64>>()
        };
        let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 1e-10 * a.abs();
        assert!(told(&by_cpu).iter().zip(&told(&run)).all(close), "{plan}");
        let mut calls = run.calls();
        assert!(calls.all(|calls| calls.contains("\nbroadcast ")), "{plan}");
    }
}

#[test]
fn phases_and_actions_are_told_by_the_gpus_clock() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "layout.pp", 2);
    let factor = 1000.0;
    let mut run = start(&plan, &[], &[("FAKE_GPU_CLOCK", "1000")]);
    run.succeed();
    for rank in 0..2 {
        let steps = run.steps(rank);
        for phase in ["forward", "backward", "comm.receive"] {
            assert!(steps.iter().all(|step| step.phases[phase] > 0.0), "{phase} in {steps:?}");
        }
        // One step's update is told with the next.
        assert!(steps[1].phases["optimizer"] > 0.0, "{steps:?}");
        // By the host's clock all phases together are no longer than the steps.
        let seconds: f64 = steps.iter().map(|step| step.seconds).sum();
        let told: f64 = steps.iter().flat_map(|step| step.phases.values()).sum();
        assert!(told > seconds && told < factor * seconds, "{told} of {seconds} s: {steps:?}");
        let traces = run.records(rank).into_iter();
        let traces = traces
            .filter_map(|record| if let Event::Trace(trace) = record.event { Some(trace) } else { None });
        for (trace, step) in traces.zip(&steps) {
            let last = trace.steps.last().unwrap();
            let told = last.start + last.seconds;
            assert!(told > step.seconds && told < factor * step.seconds, "{told} of {step:?}");
        }
    }
}

#[test]
fn evaluations_are_told_by_the_gpus_clock() {
    let mut plan = tiny(2, 1);
    set(
        &mut plan,
        "run.evaluation",
        json!({"data": {"kind": "synthetic"}, "every_steps": 1, "sequences": 8}),
    );
    let factor = 1000.0;
    let began = Instant::now();
    let mut run = start(&plan, &[], &[("FAKE_GPU_CLOCK", "1000")]);
    run.succeed();
    let all = began.elapsed().as_secs_f64();
    let records = run.records(0).into_iter();
    let seconds = records.filter_map(|record| match record.event {
        Event::Evaluated(evaluated) => Some(evaluated.seconds),
        _ => None,
    });
    let seconds: Vec<f64> = seconds.collect();
    let told: f64 = seconds.iter().sum();
    assert_eq!(seconds.len() as u64, STEPS);
    assert!(told > all && told < factor * all, "{seconds:?} in {all} s by the host's clock");
}

/// What a GPU's collectives and messages take longer in tests of their time.
const SLOW: [(&str, &str); 1] = [("FAKE_NCCL_SLOW", "20")];

/// Trains on two GPUs whose collectives take 20 ms more each, with seconds of them that are expected in each step.
fn communication(plan: &Value, expected: fn(&Communication) -> bool) {
    let mut run = start(plan, &[], &SLOW);
    run.succeed();
    for rank in 0..2 {
        let (mut counted, mut seconds) = (0.0, 0.0);
        for step in run.steps(rank) {
            let told = step.communication.expect("it is measured");
            assert!(expected(&told), "{told:?} on rank {rank}");
            let phases = step.phases.iter().filter(|(phase, _)| phase.starts_with("comm."));
            let waited: f64 = phases.map(|(_, seconds)| seconds).sum();
            assert!((told.exposed_seconds - waited).abs() < 1e-9, "{told:?} of {:?}", step.phases);
            counted += told.exposed_seconds + told.hidden_seconds;
            seconds += step.seconds;
        }
        // None is counted twice.
        assert!(counted <= seconds, "{counted} of {seconds} s on rank {rank}");
    }
}

#[test]
fn messages_of_a_pipeline_are_told_from_collectives() {
    let mut plan = tiny(2, 1);
    set(&mut plan, "layout.pp", 2);
    let mut run = start(&plan, &[], &SLOW);
    run.succeed();
    for rank in 0..2 {
        let (mut received, mut waiting, mut collectives) = (0.0, 0.0, 0.0);
        for step in run.steps(rank) {
            let (parts, told) = (StepParts::measured(&step).unwrap(), step.communication.unwrap());
            assert!((parts.communication_seconds - told.exposed_seconds).abs() < 1e-9, "{step:?}");
            assert_eq!(told.hidden_seconds, 0.0, "{step:?}");
            received += step.phases.get("comm.receive").copied().unwrap_or_default();
            waiting += parts.waiting_seconds;
            collectives += told.exposed_seconds;
        }
        // Stages wait for messages, and with them for each other's work: a GPU can't say how much of it the messages took. What is left are
        // collectives of the norm, which both stages have.
        assert!(received >= 0.02 && waiting >= received, "{received} {waiting} on rank {rank}");
        assert!(collectives < received, "{collectives} {received} on rank {rank}");
    }
}

#[test]
fn gradients_are_summed_while_backward_goes_on() {
    // Of the last layer behind the backward of the one before, with which the first sum goes on, and the last one is waited for.
    let both = |told: &Communication| told.hidden_seconds > 0.0 && told.exposed_seconds > 0.0;
    communication(&tiny(2, 1), both);
    let mut together = tiny(2, 1);
    set(&mut together, "training.optimizer.distributed", false);
    communication(&together, both);
}

#[test]
fn units_are_gathered_and_reduced_while_computing_goes_on() {
    let both = |told: &Communication| told.hidden_seconds > 0.0 && told.exposed_seconds > 0.0;
    for (runtime, fsdp) in [
        ("fsdp2", json!({"reshard_after_forward": "always"})),
        ("megatron_fsdp", json!({"strategy": "optim_grads_params"})),
        ("megatron_fsdp", json!({"strategy": "optim_grads"})),
    ] {
        let mut plan = tiny(2, 1);
        sharded(runtime, fsdp, 1)(&mut plan);
        communication(&plan, both);
    }
}

#[test]
fn sums_of_a_layer_begin_before_the_next_ones_backward() {
    let mut plan = tiny(4, 2);
    set(&mut plan, "layout.sp", true);
    let mut run = start(&plan, &[], &[]);
    run.succeed();
    for calls in run.calls() {
        // Each step ends with the wait for its totals.
        let (steps, _) = calls.rsplit_once("sync event").expect("steps");
        let steps: Vec<&str> = steps.split("sync event").collect();
        assert_eq!(steps.len() as u64, STEPS);
        for step in &steps {
            let lines: Vec<&str> = step.lines().collect();
            let is_sum = |line: &&str| line.starts_with("reduce ");
            let first = lines.iter().position(is_sum).expect("sums of gradients");
            let last = lines.iter().rposition(is_sum).unwrap();
            // Slices of the sequence are joined in a backward, whose sums of weights' gradients are all-reduced.
            let joins = lines[first..last].iter().filter(|line| line.starts_with("all_gather ")).count();
            assert!(joins >= 2, "{:?}", &lines[first..=last]);
        }
    }
}

#[test]
fn the_gpu_updates_weights_while_the_host_reads_their_step() {
    let mut run = start(&tiny(2, 1), &[], &[]);
    let pids = [0, 1].map(|rank| run.pid(rank));
    run.succeed();
    for pid in pids {
        let text = std::fs::read_to_string(run.folder().join(format!("calls.{pid}"))).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        // Loss and norm, which are summed on the GPUs.
        let is_sum = |line: &&str| line.starts_with("all_reduce ") && line.contains(" count 2 ");
        let mut steps = 0;
        for (at, _) in lines.iter().enumerate().filter(|(_, line)| **line == "sync event") {
            let sum = lines[..at].iter().rposition(is_sum).expect("sums before they are read");
            let update = lines[sum..at].iter().any(|line| line.starts_with("broadcast "));
            assert!(update, "{:?}", &lines[sum..=at]);
            steps += 1;
        }
        assert_eq!(steps, STEPS);
    }
}

/// A plan whose gradients are clipped in most steps, and change weights by their size.
fn clipped(dtype: &str, clip: f64) -> Value {
    let mut plan = tiny(2, 1);
    set(&mut plan, "training.dtype", dtype);
    set(&mut plan, "training.optimizer.eps", 1.0);
    set(&mut plan, "run", json!({"steps": STEPS, "lr": 0.3, "clip_grad": clip}));
    plan
}

#[test]
fn gradients_are_clipped_on_the_gpu() {
    let change = |plan: &mut Value| {
        set(plan, "training.optimizer", json!({"kind": "sgd", "distributed": true}));
        set(plan, "run", json!({"steps": STEPS, "lr": 0.5, "weight_decay": 0.2, "clip_grad": 0.3}));
    };
    check(2, 1, change, same);
    for dtype in ["fp32", "bf16"] {
        let losses = |mut run: Run| {
            run.succeed();
            run.steps(0).iter().map(|step| step.loss).collect::<Vec<f64>>()
        };
        let by_cpu = losses(Run::start(&clipped(dtype, 0.3), &[]));
        let by_gpu = losses(start(&clipped(dtype, 0.3), &[], &[]));
        let free = losses(start(&clipped(dtype, 0.0), &[], &[]));
        let off = |others: &[f64]| {
            let off = by_cpu.iter().zip(others).map(|(one, other)| (one - other).abs() / one);
            off.fold(0.0, f64::max)
        };
        let rounding = if dtype == "fp32" { 1e-5 } else { 1e-2 };
        assert!(off(&by_gpu) < rounding, "{dtype}: {by_gpu:?}, not {by_cpu:?}");
        assert!(off(&free) > 3.0 * rounding, "{dtype}: {free:?} as {by_cpu:?}, though nothing is clipped");
    }
}

#[test]
fn a_step_whose_numbers_are_none_ends_the_training() {
    for (lr, expected) in
        [(1e30, "the gradient is NaN in step 2 on rank 0"), (1e39, "the loss is NaN in step 2 on rank 0")]
    {
        let mut plan = tiny(2, 1);
        set(&mut plan, "training.dtype", "fp32");
        set(&mut plan, "run", json!({"steps": 50, "lr": lr, "checkpoint": {"every_steps": 1}}));
        let mut run = start(&plan, &[], &[]);
        for finished in run.finish(PATIENCE) {
            assert!(!finished.success && finished.stderr.contains(expected), "{}", finished.stderr);
        }
        assert_eq!(run.steps(0).len(), 1);
        let saved = std::fs::read_dir(run.folder().join("checkpoints")).unwrap();
        let names: Vec<String> =
            saved.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        assert!(!names.iter().any(|name| name.starts_with("step-") && name.ends_with('2')), "{names:?}");
    }
}

#[test]
fn a_step_that_overflows_changes_nothing() {
    let mut plan = tiny(1, 1);
    set(&mut plan, "training.dtype", "fp16");
    set(&mut plan, "training.loss_scale", json!({"initial": 2_f64.powi(21), "hysteresis": 1, "window": 2}));
    let told = |mut run: Run| {
        run.succeed();
        run.steps(0).iter().map(|step| (step.skipped, step.loss_scale)).collect::<Vec<_>>()
    };
    let by_gpu = told(start(&plan, &[], &[]));
    assert_eq!(by_gpu, told(Run::start(&plan, &[])));
    assert!(by_gpu[0].0 && by_gpu.iter().any(|(skipped, _)| !skipped), "{by_gpu:?}");
}
