//! The control plane with as many ranks as a large cluster has, each a thread, in a few processes of at most 1,024 open files.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use planner::layout::{Group, GroupKind};
use run_folder::Key;
use shardplan_rank::collectives::Collectives;
use shardplan_rank::collectives::control::Meeting;
use shardplan_rank::collectives::host::HostCollectives;
use shardplan_rank::collectives::link::identity::Identity;
use shardplan_rank::collectives::link::roster::FAN_OUT;
use shardplan_rank::stop::{self, Boundary};
use tch::Tensor;

use crate::harness::free_port;

/// Ranks of the test command; `SHARDPLAN_RANKS` asks for others, in whole processes.
const WORLD: usize = 512;
/// Each process has the ranks of this many hosts; but the first rank, which takes in all others, has one of its own, as every rank
/// has in a run: its files are what is limited.
const HOSTS: usize = 16;
const RANKS_OF_A_HOST: usize = 8;
const FILES: usize = 1024;
/// What tells a process which ranks it has, where they meet, and in which folder.
const PART: &str = "SHARDPLAN_PART_OF_A_WORLD";

fn world_size() -> usize {
    std::env::var("SHARDPLAN_RANKS").ok().and_then(|value| value.parse().ok()).unwrap_or(WORLD)
}

/// The rank that fails.
fn fails() -> usize {
    3 * world_size() / 4 + 1
}

fn identity(rank: usize) -> Identity {
    Identity {
        run: "many".to_owned(),
        binary: "0.1.0".to_owned(),
        torch: "2.11.0".to_owned(),
        plan_sha256: "aa".to_owned(),
        rank,
        world_size: world_size(),
        host: format!("host{}", rank / RANKS_OF_A_HOST),
        pid: std::process::id(),
        port: 0,
    }
}

/// Seconds of this machine's clock, which all processes have.
fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs_f64()
}

/// When a rank had joined, had done a step's exchanges, and knew of the failure.
struct Moments {
    joined: f64,
    stepped: [f64; 2],
    failed: f64,
}

fn live(rank: usize, port: u16, folder: &std::path::Path) -> Moments {
    let of = |kind, ranks: Vec<u64>| Group { kind, index: 0, ranks };
    let (size, fails) = (world_size(), fails());
    let pair = rank as u64 / 2 * 2;
    let groups =
        vec![of(GroupKind::World, (0..size as u64).collect()), of(GroupKind::Tp, vec![pair, pair + 1])];
    let meeting = Meeting {
        members: (0..size).collect(),
        address: "127.0.0.1".to_owned(),
        port,
        key: Some(Key::from_bytes([7; 32])),
        timeout: Duration::from_secs(120),
        last_resort: None,
    };
    let world = HostCollectives::join(identity(rank), meeting, groups).unwrap();
    let joined = now();
    let control = world.control();
    let everyone = world.mine(GroupKind::World).unwrap();
    world.barrier(everyone).unwrap();
    // As NCCL's ranks are: nobody has linked with anybody but in the tree.
    let before = control.counts();
    assert_eq!(before.data_links, 0);
    assert!((1..=2 * FAN_OUT + 1).contains(&before.tree_links), "rank {rank}: {before:?}");
    // What a step has: whether to go on, losses and norms, tokens counted.
    let began = now();
    let agreed = stop::agree(&world, everyone, folder, rank == 0, rank == 77).unwrap();
    assert_eq!(agreed, Boundary { stop: None, save: true, saving: true });
    for _ in 0..2 {
        // What is large goes again, and leaves what is small as it was.
        let mut sums = [rank as f64 + 0.5, [1e300, 0.5, -1e300, 0.25][rank % 4]];
        world.sum_numbers(&mut sums).unwrap();
        assert_eq!(sums, [(size * size) as f64 / 2.0, size as f64 / 4.0 * 0.75]);
    }
    let stepped = [began, now()];
    // One message for each neighbour and exchange.
    assert_eq!(control.counts().frames - before.frames, 3 * before.tree_links as u64, "rank {rank}");
    // As ranks on CPUs are: each has links with those of its groups, and only with them.
    world.link_groups().unwrap();
    let mut sum = Tensor::from_slice(&[rank as f64]);
    let group = world.mine(GroupKind::Tp).unwrap();
    world.all_reduce(group, shardplan_rank::collectives::Reduce::Sum, &mut sum).unwrap();
    assert_eq!(sum.double_value(&[0]), 2.0 * pair as f64 + 1.0);
    assert_eq!((control.counts().data_links, control.counts().tree_links), (1, before.tree_links));
    let come = world.barrier(everyone);
    let reason = format!("rank {fails} has lost its data");
    if rank == fails {
        come.unwrap();
        world.abort(&reason);
    } else {
        // The news may be here before the other end of the barrier.
        let error = come.and_then(|()| world.barrier(everyone)).unwrap_err();
        assert_eq!(error.to_string(), reason, "rank {rank}");
    }
    Moments { joined, stepped, failed: now() }
}

/// A process of the world below.
#[test]
#[ignore = "the test below starts it"]
#[expect(clippy::print_stdout, reason = "the figures, for the test below")]
fn a_part_of_a_world() {
    let part = std::env::var(PART).expect("the test below says which part");
    let words: Vec<&str> = part.splitn(4, ' ').collect();
    let [first, end] = [0, 1].map(|word| words[word].parse::<usize>().unwrap());
    let (port, folder) = (words[2].parse::<u16>().unwrap(), std::path::Path::new(words[3]));
    let limit = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).unwrap();
    assert_eq!(limit.1, FILES as u64);
    let moments: Vec<Moments> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (first..end).map(|rank| scope.spawn(move || live(rank, port, folder))).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let last = |moment: fn(&Moments) -> f64| moments.iter().map(moment).fold(0.0, f64::max);
    let began = moments.iter().map(|moments| moments.stepped[0]).fold(f64::MAX, f64::min);
    println!(
        "\nmoments {} {began} {} {}",
        last(|moments| moments.joined),
        last(|moments| moments.stepped[1]),
        last(|moments| moments.failed)
    );
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
fn many_ranks_join_step_and_learn_of_a_failure_within_a_thousand_files_a_process() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    let (began, start) = (now(), Instant::now());
    let whole = HOSTS * RANKS_OF_A_HOST;
    let parts: Vec<_> = std::iter::once((0, 1))
        .chain((0..world_size()).step_by(whole).map(|first| (first.max(1), first + whole)))
        .map(|(first, end)| {
            let mut part = Command::new("prlimit");
            part.arg(format!("--nofile={FILES}:{FILES}")).arg(std::env::current_exe().unwrap());
            part.args(["--exact", "control::a_part_of_a_world", "--ignored", "--nocapture"]);
            part.env(PART, format!("{first} {end} {port} {}", folder.path().display()));
            part.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let ended: Vec<_> = parts.into_iter().map(|part| part.wait_with_output().unwrap()).collect();
    // Who began may be in any of them.
    let errors: Vec<_> = ended
        .iter()
        .filter(|part| !part.status.success())
        .map(|part| String::from_utf8_lossy(&part.stderr))
        .collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
    let mut moments = Vec::new();
    for part in ended {
        let said = String::from_utf8_lossy(&part.stdout);
        let line = said.lines().find_map(|line| line.strip_prefix("moments ")).unwrap();
        moments.push(line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<f64>>());
    }
    let last = |number: usize| moments.iter().map(|moments| moments[number]).fold(0.0, f64::max);
    let stepping = moments.iter().map(|moments| moments[1]).fold(f64::MAX, f64::min);
    println!(
        "{} ranks: joined after {:.1} s, a step's exchanges {:.2} s, all over after {:.1} s",
        world_size(),
        last(0) - began,
        last(2) - stepping,
        start.elapsed().as_secs_f64()
    );
}
