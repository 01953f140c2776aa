//! Collectives by NCCL, against a small library of our own with its functions: results, the order of calls, aborts and
//! timeouts. No GPU and no real NCCL is needed, and none was ever used on several GPUs.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::Plan;
use planner::layout::{Group, GroupKind};
use planner::wire::Outcome;
use serde_json::Value;

use crate::harness::{Run, Start, free_port, set, tiny};

/// The library, compiled once.
fn library() -> &'static str {
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

/// Starts all ranks with NCCL; `variables` are those of rank 1 besides.
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

fn groups(plan: &Value) -> Vec<Group> {
    Plan::resolve(&planner::parse_plan(&plan.to_string()).unwrap()).plan.unwrap().groups()
}

/// A communicator: whether it carries messages, and its members.
type Made = (bool, Vec<u64>);

/// The members of each communicator that a rank should make, in order: of each distinct set of ranks in the planner's
/// order, then one for each direction between neighbours.
fn expected_communicators(groups: &[Group], rank: u64) -> Vec<Made> {
    let mut all: Vec<Made> = Vec::new();
    let mine = |group: &&Group| group.ranks.len() > 1 && group.ranks.contains(&rank);
    for group in groups.iter().filter(mine) {
        let made = (false, group.ranks.clone());
        if !all.contains(&made) {
            all.push(made);
        }
    }
    for group in
        groups.iter().filter(mine).filter(|group| [GroupKind::Pp, GroupKind::Cp].contains(&group.kind))
    {
        let mut seen = Vec::new();
        for member in 0..group.ranks.len() {
            let next = (member + 1) % group.ranks.len();
            for (from, to) in [(member, next), (next, member)] {
                let pair = vec![group.ranks[from], group.ranks[to]];
                if pair.contains(&rank) && !seen.contains(&pair) {
                    seen.push(pair.clone());
                    all.push((true, pair));
                }
            }
        }
    }
    all
}

/// Runs a plan by TCP and by NCCL: the gradients must be equal to the bit, and all members of a communicator must have
/// made the same calls in the same order.
#[track_caller]
fn check(world: u64, tp: u64, change: impl Fn(&mut Value)) {
    let mut plan = tiny(world, tp);
    set(&mut plan, "run.steps", 2);
    change(&mut plan);
    let by_host = Run::complete_with_dumps(&plan);
    let mut by_nccl = start(&plan, &["--dump"], &[]);
    let pids: Vec<i32> = (0..world as usize).map(|rank| by_nccl.pid(rank)).collect();
    by_nccl.succeed();
    for step in 1..=2 {
        for what in ["gradients", "weights"] {
            assert!(by_host.dumped(what, step) == by_nccl.dumped(what, step), "{what} of step {step} differ");
        }
    }
    let groups = groups(&plan);
    let mut by_members: BTreeMap<Made, Vec<Vec<String>>> = BTreeMap::new();
    for (rank, &pid) in pids.iter().enumerate() {
        let calls = calls(&by_nccl, pid);
        let expected = expected_communicators(&groups, rank as u64);
        let made: Vec<String> = calls.iter().filter(|call| call.starts_with("init")).cloned().collect();
        let wanted: Vec<String> = expected
            .iter()
            .enumerate()
            .map(|(number, (_, members))| {
                let member = members.iter().position(|&member| member == rank as u64).unwrap();
                format!("init {number} rank {member} of {}", members.len())
            })
            .collect();
        assert_eq!(made, wanted, "rank {rank}");
        let destroyed = calls.iter().filter(|call| call.starts_with("destroy")).count();
        assert_eq!(destroyed, expected.len(), "rank {rank} frees what it made");
        assert!(!calls.iter().any(|call| call.starts_with("abort")), "rank {rank} aborted");
        for (number, made) in expected.iter().enumerate() {
            let sequence: Vec<String> = calls
                .iter()
                .filter_map(|call| {
                    let mut words = call.split(' ');
                    let name = words.next()?;
                    let own = words.next()? == number.to_string();
                    // Where one sends the other receives, and the peer is another.
                    let name = if ["send", "recv"].contains(&name) { "message" } else { name };
                    let rest: Vec<&str> = words.take_while(|&word| word != "peer").collect();
                    let counted = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "message"];
                    (own && counted.contains(&name)).then(|| format!("{name} {}", rest.join(" ")))
                })
                .collect();
            by_members.entry(made.clone()).or_default().push(sequence);
        }
    }
    assert!(by_members.values().flatten().any(|sequence| !sequence.is_empty()));
    for ((_, members), sequences) in by_members {
        assert!(
            sequences.windows(2).all(|pair| pair[0] == pair[1]),
            "the ranks {members:?} made different calls: {sequences:?}"
        );
    }
}

#[test]
fn data_and_tensor_parallel() {
    check(4, 2, |_| {});
    check(2, 1, |plan| set(plan, "training.optimizer.distributed", false));
    check(2, 2, |plan| set(plan, "training.dtype", "bf16"));
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
        assert_eq!(of("abort"), of("init"), "rank {rank} aborts what it made");
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
    let mut run = start(&endless(2, 2), &["--timeout-s", "2"], &[]);
    run.wait_for_steps(2);
    let pids = pids(&run, 2);
    let stopped = Pid::from_raw(pids[1]);
    kill(stopped, Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_secs(5));
    kill(stopped, Signal::SIGCONT).unwrap();
    check_failed(
        &mut run,
        &pids,
        Some(1),
        Duration::from_secs(10),
        &["was not done within 2 s: rank 1 does not answer", "number "],
    );
}

#[test]
fn what_nccl_reports_later_ends_all_ranks() {
    let mut run = start(&endless(2, 1), &[], &[("FAKE_NCCL_FAIL_AFTER", "40")]);
    let pids = pids(&run, 2);
    let expected = ["NCCL failed in ", "on rank 1: remote process exited"];
    check_failed(&mut run, &pids, None, Duration::from_secs(60), &expected);
}

#[test]
fn a_library_that_is_none_is_named() {
    let plan = tiny(2, 1);
    for (name, expected) in [("/nowhere/libnccl.so", "can't be opened"), ("libc.so.6", "is no NCCL")] {
        let mut run = Run::start(&plan, &["--collectives", "nccl", "--nccl-library", name]);
        for finished in run.finish(Duration::from_secs(30)) {
            assert!(!finished.success && finished.stderr.contains(expected), "{}", finished.stderr);
        }
    }
    let mut run = Run::start(&plan, &["--collectives", "nccl"]);
    for finished in run.finish(Duration::from_secs(30)) {
        assert!(finished.stderr.contains("NCCL needs one per rank"), "{}", finished.stderr);
    }
}
