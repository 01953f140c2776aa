//! One of eight ranks is killed at a random moment: all others end within ten seconds and name it.

use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::wire::{Event, Outcome};

use crate::harness::{Run, set, tiny, wait_until};

const RANKS: usize = 8;
/// Kills of the test command; `cargo xtask soak` sets more.
const KILLS: u64 = 3;
/// Joining, allocating and some steps of eight tiny ranks on two busy cores fall into this time after all have greeted.
const WITHIN_MS: u64 = 4000;

/// The kills that this process is to do, and the seed of their moments.
pub fn asked() -> (u64, u64) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse().ok());
    (number("SHARDPLAN_KILLS").unwrap_or(KILLS), number("SHARDPLAN_SEED").unwrap_or(0))
}

/// A number that depends on the seed alone.
pub fn random(seed: u64, below: u64) -> u64 {
    shardplan_rank::state::init::mix(seed) % below
}

fn joined(run: &Run, rank: usize) -> bool {
    run.records(rank).iter().any(|record| matches!(record.event, Event::Joined(_)))
}

#[test]
#[expect(clippy::print_stdout, reason = "the figures, for whoever runs it with --nocapture")]
fn a_rank_killed_at_a_random_moment_is_named_by_all_others_within_ten_seconds() {
    let (kills, seed) = asked();
    let mut slowest = Duration::ZERO;
    for number in 0..kills {
        let dice = seed.wrapping_mul(1000) + number;
        let victim = random(dice, RANKS as u64) as usize;
        let moment = Duration::from_millis(random(dice ^ 0x5eed, WITHIN_MS));
        let mut plan = tiny(RANKS as u64, 2);
        set(&mut plan, "training.global_batch_size", 8);
        set(&mut plan, "run.steps", 1_000_000);
        let mut run = Run::start(&plan, &[]);
        // A rank that dies before it has met another leaves no trace; the launcher's tests have that.
        wait_until(|| joined(&run, victim), || format!("rank {victim} to join"));
        std::thread::sleep(moment);
        let pid = run.pid(victim);
        kill(Pid::from_raw(pid), Signal::SIGKILL).unwrap();
        let killed = Instant::now();
        let finished = run.finish(Duration::from_secs(10));
        slowest = slowest.max(killed.elapsed());
        let culprit = format!("rank {victim} (process {pid} on ");
        for (rank, finished) in finished.iter().enumerate().filter(|&(rank, _)| rank != victim) {
            let label = format!("kill {number}, rank {rank} of victim {victim} after {moment:?}");
            assert!(!finished.success, "{label}");
            assert!(finished.stderr.contains(&culprit), "{label}: {}", finished.stderr);
            let (outcome, reason) = run.ended(rank);
            assert_eq!(outcome, Outcome::Failed, "{label}");
            assert!(reason.contains(&culprit), "{label}: {reason}");
        }
    }
    println!("{kills} kills, seed {seed}: all named, the slowest end took {:.1} s", slowest.as_secs_f64());
}
