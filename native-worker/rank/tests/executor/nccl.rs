//! Collectives by NCCL, against a small library of our own with its functions: results, the order of calls, aborts and
//! timeouts. No GPU and no real NCCL is needed, and none was ever used on several GPUs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::Plan;
use planner::layout::{Group, GroupKind};
use planner::runtime::Runtime;
use planner::shard::fsdp;
use planner::wire::{Outcome, PlanFile};
use serde_json::{Value, json};

use crate::gpu;
use crate::harness::{PATIENCE, Run, Start, free_port, set, tiny};

/// The library, compiled once.
pub fn library() -> &'static str {
    static BUILT: OnceLock<String> = OnceLock::new();
    BUILT.get_or_init(|| {
        let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fake_nccl/fake_nccl.c");
        let built = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("libfake_nccl.{}.so", std::process::id()));
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-pthread", "-Wall", "-Wextra", "-Werror", "-o"])
            .args([&built, &source])
            .output()
            .expect("cc, which building this program needed too");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        built.to_str().unwrap().to_owned()
    })
}

/// Starts all ranks with NCCL; `variables` are those of rank 1 besides, so that ranks differ.
fn start(plan: &Value, arguments: &[&str], variables: &[(&str, &str)]) -> Run {
    let mut run = Run::prepare(plan);
    let log = run.folder().join("calls").to_str().unwrap().to_owned();
    let mut all = vec!["--collectives", "nccl", "--nccl-library", library()];
    all.extend(arguments);
    let (world, port) = (plan["cluster"]["gpus_per_node"].as_u64().unwrap(), free_port());
    for rank in 0..world {
        let mut given = vec![("FAKE_NCCL_LOG", log.as_str())];
        given.extend(variables.iter().filter(|_| rank == 1));
        run.start_rank(&Start {
            rank,
            world,
            port,
            arguments: &all,
            program: None,
            plan: None,
            variables: &given,
        });
    }
    run
}

/// Calls of a rank, in order.
fn calls(run: &Run, pid: i32) -> Vec<String> {
    let text = std::fs::read_to_string(run.folder().join(format!("calls.{pid}"))).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The groups of a run, and the kinds of those whose collectives go beside computing.
fn groups(plan: &Value) -> (Vec<Group>, Vec<GroupKind>) {
    let resolved = |file: &PlanFile| Plan::resolve(file).plan.unwrap();
    let kept = resolved(&resolved(&planner::parse_plan(&plan.to_string()).unwrap()).executed());
    let groups = match kept.runtime {
        Runtime::Native => kept.groups(),
        _ => fsdp::groups(&kept, &resolved(&fsdp::computed_with(&kept))),
    };
    (groups, kept.beside())
}

/// The members of the communicators that all ranks together should make besides that of all ranks: of each distinct set of
/// ranks, then of each whose collectives go beside computing, and of each pair of neighbours in a pipeline.
fn expected_communicators(groups: &[Group], beside: &[GroupKind], all: &[u64]) -> Vec<Vec<u64>> {
    let mut sets: Vec<Vec<u64>> = groups.iter().map(|group| group.ranks.clone()).collect();
    sets.retain(|ranks| ranks.len() > 1 && ranks != all);
    sets.sort();
    sets.dedup();
    let goes = |group: &&Group| beside.contains(&group.kind);
    let mut beside: Vec<Vec<u64>> = groups.iter().filter(goes).map(|group| group.ranks.clone()).collect();
    beside.retain(|ranks| ranks.len() > 1);
    beside.sort();
    beside.dedup();
    sets.extend(beside);
    for group in groups.iter().filter(|group| group.kind == GroupKind::Pp) {
        let (ranks, size) = (&group.ranks, group.ranks.len());
        sets.extend(ranks.windows(2).map(<[u64]>::to_vec));
        if size > 2 {
            sets.push(vec![ranks[0], ranks[size - 1]]);
        }
    }
    sets.sort();
    sets
}

/// What a rank called of one of its communicators, in order. Where one sends the other receives, and the peer is another.
fn calls_of(calls: &[String], number: &str) -> Vec<String> {
    let counted = ["all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "message"];
    let call = |call: &String| {
        let mut words = call.split(' ');
        let (name, own) = (words.next()?, words.next()? == number);
        let name = if ["send", "recv"].contains(&name) { "message" } else { name };
        let rest: Vec<&str> = words.take_while(|&word| word != "peer").collect();
        (own && counted.contains(&name)).then(|| format!("{name} {}", rest.join(" ")))
    };
    calls.iter().filter_map(call).collect()
}

/// Communicators that a rank has made: number, place in it, and name, which all its members see.
fn made(calls: &[String]) -> Vec<(String, usize, String)> {
    let one = |call: &String| {
        let words: Vec<&str> = call.split(' ').collect();
        let (number, place, name) = match words[..] {
            ["init", number, "rank", place, ..] => (number, place, "all"),
            ["split", number, "rank", place, .., name] => (number, place, name),
            _ => return None,
        };
        Some((number.to_owned(), place.parse().unwrap(), name.to_owned()))
    };
    calls.iter().filter_map(one).collect()
}

/// Runs a plan by TCP and by NCCL: the gradients must be equal to the bit, and all members of a communicator must have
/// made the same calls in the same order, however late its streams are.
#[track_caller]
fn check(world: u64, tp: u64, change: impl Fn(&mut Value)) {
    let mut plan = tiny(world, tp);
    set(&mut plan, "run.steps", 2);
    change(&mut plan);
    let by_host = Run::complete_with_dumps(&plan);
    let mut by_nccl = start(&plan, &["--dump"], &[("FAKE_NCCL_DELAYS", "400")]);
    let pids: Vec<i32> = (0..world as usize).map(|rank| by_nccl.pid(rank)).collect();
    by_nccl.succeed();
    for step in 1..=2 {
        for what in ["gradients", "weights"] {
            assert!(by_host.dumped(what, step) == by_nccl.dumped(what, step), "{what} of step {step} differ");
        }
    }
    let mut by_name: BTreeMap<String, BTreeMap<usize, (u64, Vec<String>)>> = BTreeMap::new();
    for (rank, &pid) in pids.iter().enumerate() {
        let calls = calls(&by_nccl, pid);
        let made = made(&calls);
        let freed = calls.iter().filter(|call| call.starts_with("destroy")).count();
        assert_eq!(freed, made.len(), "rank {rank} frees what it made");
        assert!(!calls.iter().any(|call| call.starts_with("abort")), "rank {rank} aborted");
        for (number, place, name) in made {
            by_name.entry(name).or_default().insert(place, (rank as u64, calls_of(&calls, &number)));
        }
    }
    let (groups, beside) = groups(&plan);
    let all = &groups.iter().find(|group| group.kind == GroupKind::World).unwrap().ranks;
    let mut members: Vec<Vec<u64>> = Vec::new();
    for (name, of_members) in &by_name {
        let sequences: Vec<&Vec<String>> = of_members.values().map(|(_, calls)| calls).collect();
        assert!(sequences.windows(2).all(|pair| pair[0] == pair[1]), "different calls: {of_members:?}");
        let ranks: Vec<u64> = of_members.values().map(|(rank, _)| *rank).collect();
        if name == "all" {
            assert_eq!(&ranks, all);
        } else {
            members.push(ranks);
        }
    }
    members.sort();
    assert_eq!(members, expected_communicators(&groups, &beside, all));
    assert!(by_name.values().flat_map(BTreeMap::values).any(|(_, calls)| !calls.is_empty()));
}

#[test]
fn data_and_tensor_parallel() {
    check(4, 2, |_| {});
    check(2, 1, |plan| set(plan, "training.optimizer.distributed", false));
    check(2, 2, |plan| set(plan, "training.dtype", "bf16"));
}

/// Weights that come back beside the next forward are to the bit those that a gather behind the update gives, with no dump that waits
/// for them between steps.
#[test]
fn weights_that_come_back_layer_by_layer_train_the_same() {
    for (world, tp, layout) in gpu::LAYOUTS {
        let mut plan = tiny(world, tp);
        layout(&mut plan);
        set(&mut plan, "run", json!({"steps": 4, "lr": 0.05}));
        let by_host = Run::complete(&plan);
        let mut by_nccl = start(&plan, &[], &[("FAKE_NCCL_DELAYS", "400")]);
        by_nccl.succeed();
        let told =
            |run: &Run| run.steps(0).iter().map(|step| (step.loss, step.grad_norm)).collect::<Vec<_>>();
        assert_eq!(told(&by_host), told(&by_nccl), "{plan}");
    }
}

#[test]
fn units() {
    let fsdp = |runtime: &'static str, fsdp: Value| {
        move |plan: &mut Value| {
            set(plan, "runtime", runtime);
            set(plan, "layout.fsdp", fsdp.clone());
        }
    };
    check(2, 1, fsdp("fsdp2", json!({"reshard_after_forward": "always"})));
    // Each micro batch's gradients are reduced, and added to those before.
    check(2, 1, fsdp("fsdp2", json!({"gradient_sync": "every"})));
    // Sums over replicas, behind those over shards.
    check(4, 1, |plan| {
        fsdp("fsdp2", json!({}))(plan);
        set(plan, "layout.dp_replicate", 2);
    });
    check(4, 1, fsdp("fsdp2", json!({"reshard_after_forward": 2})));
    check(4, 2, |plan| {
        fsdp("fsdp2", json!({}))(plan);
        set(plan, "layout.pp", 2);
    });
    for strategy in ["no_shard", "optim", "optim_grads", "optim_grads_params"] {
        check(2, 1, fsdp("megatron_fsdp", json!({"strategy": strategy})));
    }
    check(4, 1, |plan| {
        fsdp("megatron_fsdp", json!({"strategy": "optim_grads_params", "double_buffer": true}))(plan);
        set(plan, "layout.dp_replicate", 2);
    });
}

#[test]
fn replicas_with_fewer_slots() {
    let failed = |ranks: &'static [u64]| {
        move |plan: &mut Value| {
            let failed: Vec<Value> = ranks.iter().map(|rank| serde_json::json!({"rank": rank})).collect();
            set(plan, "cluster.failed", failed);
        }
    };
    check(4, 2, failed(&[0]));
    check(4, 2, failed(&[3]));
    check(8, 2, |plan| {
        failed(&[1, 4])(plan);
        set(plan, "layout.pp", 2);
    });
}

#[test]
fn pipelines() {
    check(2, 1, |plan| set(plan, "layout.pp", 2));
    check(4, 1, |plan| {
        set(plan, "layout.pp", 2);
        set(plan, "model.architecture.num_layers", 4);
        set(plan, "layout.vpp", 2);
    });
}

#[test]
fn pipelines_whose_messages_wait_for_both_ends() {
    let of_stages = |stages: u64, schedule: &'static str| {
        move |plan: &mut Value| {
            set(plan, "layout.pp", stages);
            set(plan, "layout.schedule", schedule);
            set(plan, "model.architecture.num_layers", 2 * stages);
            set(plan, "training.global_batch_size", 8);
            if schedule == "zbv" || schedule == "interleaved" {
                set(plan, "layout.vpp", 2);
            }
        }
    };
    for schedule in ["1f1b", "gpipe", "zb-h1", "zbv", "interleaved"] {
        check(4, 1, of_stages(4, schedule));
    }
    check(4, 2, of_stages(2, "zbv"));
}

/// Every rank but `except` must have ended with `expected` in its error, and aborted its communicators.
fn check_failed(run: &mut Run, pids: &[i32], except: Option<usize>, within: Duration, expected: &[&str]) {
    let finished = run.finish(within);
    for (rank, finished) in finished.iter().enumerate().filter(|&(rank, _)| Some(rank) != except) {
        assert!(!finished.success, "rank {rank}");
        for part in expected {
            assert!(finished.stderr.contains(part), "rank {rank}: {part:?} in {}", finished.stderr);
        }
        assert_eq!(run.ended(rank).0, Outcome::Failed, "rank {rank}");
        let calls = calls(run, pids[rank]);
        let of = |name: &str| calls.iter().filter(|call| call.starts_with(name)).count();
        assert_eq!(of("abort"), of("init") + of("split"), "rank {rank} aborts what it made");
        assert_eq!(of("revoke"), of("abort"), "rank {rank} revokes what it aborts");
    }
}

fn endless(world: u64, tp: u64) -> Value {
    let mut plan = tiny(world, tp);
    set(&mut plan, "run.steps", 100_000);
    plan
}

fn pids(run: &Run, world: usize) -> Vec<i32> {
    (0..world).map(|rank| run.pid(rank)).collect()
}

/// Connections that a process has open.
fn connections(pid: i32) -> usize {
    let files = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().flatten();
    let names = files.filter_map(|file| std::fs::read_link(file.path()).ok()?.to_str().map(str::to_owned));
    let sockets: Vec<String> = names.collect();
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).unwrap();
    let open = table.lines().skip(1).filter(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        words[3] == "01" && sockets.contains(&format!("socket:[{}]", words[9]))
    });
    open.count()
}

#[test]
fn ranks_have_links_in_the_tree_alone() {
    let mut run = start(&endless(4, 2), &[], &[]);
    run.wait_for_steps(2);
    let links: Vec<usize> = pids(&run, 4).into_iter().map(connections).collect();
    // On one host all hang below the first.
    assert_eq!(links, [3, 1, 1, 1]);
    std::fs::write(run.folder().join("control"), "stop").unwrap();
    run.succeed();
}

#[test]
fn a_killed_rank_is_named_and_the_others_abort() {
    let mut run = start(&endless(4, 2), &[], &[]);
    run.wait_for_steps(2);
    let pids = pids(&run, 4);
    kill(Pid::from_raw(pids[2]), Signal::SIGKILL).unwrap();
    let culprit = format!("rank 2 (process {} on ", pids[2]);
    check_failed(&mut run, &pids, Some(2), Duration::from_secs(10), &[&culprit]);
}

#[test]
fn a_rank_that_does_not_join_is_named() {
    // Within this the ranks find each other first, on a busy machine, too.
    let mut run = start(&endless(2, 2), &["--timeout-s", "15"], &[]);
    run.wait_for_steps(2);
    let pids = pids(&run, 2);
    let stopped = Pid::from_raw(pids[1]);
    kill(stopped, Signal::SIGSTOP).unwrap();
    run.wait_for_end(0);
    kill(stopped, Signal::SIGCONT).unwrap();
    check_failed(
        &mut run,
        &pids,
        Some(1),
        PATIENCE,
        &["was not done within 15 s: rank 1 does not answer", "number "],
    );
}

#[test]
fn ranks_that_nccl_does_not_connect_end() {
    let mut run = start(&endless(2, 1), &["--timeout-s", "2"], &[("FAKE_NCCL_NEVER_CONNECT", "1")]);
    for finished in run.finish(PATIENCE) {
        assert!(!finished.success);
        assert!(
            finished.stderr.contains("NCCL, in connecting all ranks: not done within 2 s"),
            "{}",
            finished.stderr
        );
    }
}

#[test]
fn a_call_that_stays_in_progress_ends_all_ranks() {
    let mut run = start(&endless(2, 1), &["--timeout-s", "2"], &[("FAKE_NCCL_POLLS", "1000000000")]);
    let pids = pids(&run, 2);
    let expected = ["NCCL, in ", " number 1 of ", "on rank 1: not done within 2 s"];
    check_failed(&mut run, &pids, None, PATIENCE, &expected);
}

#[test]
fn what_nccl_reports_later_ends_all_ranks() {
    let mut run = start(&endless(2, 1), &[], &[("FAKE_NCCL_FAIL_AFTER", "40")]);
    let pids = pids(&run, 2);
    let expected = ["NCCL failed in ", "on rank 1: remote process exited"];
    check_failed(&mut run, &pids, None, PATIENCE, &expected);
}

/// Rank 1 fails, and what its NCCL then does hangs: all ranks end soon, with the reason, and every communicator is told to end.
#[track_caller]
fn check_hanging(hangs: &str, told: &[&str]) {
    let mut run = start(&endless(4, 2), &[], &[("FAKE_NCCL_FAIL_AFTER", "60"), ("FAKE_NCCL_HANGS", hangs)]);
    let pids = pids(&run, 4);
    let begin = Instant::now();
    let finished = run.finish(PATIENCE);
    // The ranks' lease: until then a launcher that is asked to end a run waits for them.
    assert!(begin.elapsed() < run_folder::LEASE, "{hangs}: {:?}", begin.elapsed());
    for (rank, finished) in finished.iter().enumerate() {
        let (outcome, reason) = run.ended(rank);
        let expected = "on rank 1: remote process exited";
        assert!(!finished.success && finished.stderr.contains(expected), "{hangs}: {}", finished.stderr);
        assert!(outcome == Outcome::Failed && reason.contains(expected), "{hangs}, rank {rank}: {reason}");
    }
    let calls = calls(&run, pids[1]);
    let of = |name: &str| calls.iter().filter(|call| call.starts_with(name)).count();
    assert!(of("init") + of("split") > 1);
    for name in told {
        assert_eq!(of(name), of("init") + of("split"), "{hangs}: {name}");
    }
}

#[test]
fn an_abort_that_hangs_ends_the_process_and_keeps_no_other_from_its_turn() {
    check_hanging("abort", &["revoke", "abort"]);
    // The lock of that one is held, so its abort is not called.
    check_hanging("revoke", &["revoke"]);
    check_hanging("exit", &["revoke", "abort"]);
}

#[test]
fn a_gpu_that_is_lost_is_the_reason() {
    let mut run = start(&endless(2, 1), &[], &[("FAKE_GPU_LOST_AFTER", "60")]);
    let pids = pids(&run, 2);
    check_failed(&mut run, &pids, None, PATIENCE, &["rank 1: the GPU failed", "(CUDA error 719)"]);
}

#[test]
fn a_library_that_is_none_is_named() {
    let plan = tiny(2, 1);
    for (name, expected) in [("/nowhere/libnccl.so", "can't be opened"), ("libc.so.6", "is no NCCL")] {
        let mut run = Run::start(&plan, &["--collectives", "nccl", "--nccl-library", name]);
        for finished in run.finish(PATIENCE) {
            assert!(!finished.success && finished.stderr.contains(expected), "{}", finished.stderr);
        }
    }
    let mut run = Run::start(&plan, &["--collectives", "nccl"]);
    for finished in run.finish(PATIENCE) {
        assert!(finished.stderr.contains("NCCL needs one per rank"), "{}", finished.stderr);
    }
}
