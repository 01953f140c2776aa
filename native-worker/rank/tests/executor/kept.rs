//! Ranks that carry out one plan after the other: starting a process on libtorch takes longer than most plans here.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::harness::{PATIENCE, Run, Start, command, free_port};

/// How long the others may take to say what they know of a rank that has failed.
const LAST_WORDS: Duration = Duration::from_secs(15);

/// The ranks of one world size.
struct Ranks(Vec<Rank>);

struct Rank {
    child: Child,
    /// A message for each plan that it has done; closed when it has ended.
    done: Receiver<()>,
}

/// Those that wait for a plan, by the size of their world. One plan at a time is carried out by each.
static KEPT: Mutex<BTreeMap<u64, Arc<Mutex<Option<Ranks>>>>> = Mutex::new(BTreeMap::new());

fn of_world(world: u64) -> Arc<Mutex<Option<Ranks>>> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner).entry(world).or_default().clone()
}

/// Carries out the plan in a run's folder; what the ranks said when that failed.
pub fn carry_out(run: &Run, world: u64, dumps: bool) -> Result<(), String> {
    let kept = of_world(world);
    let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
    let mut ranks = kept.take().unwrap_or_else(|| Ranks::start(world));
    ranks.carry_out(run, dumps)?;
    // Ranks that failed are not kept.
    *kept = Some(ranks);
    Ok(())
}

impl Ranks {
    fn start(world: u64) -> Ranks {
        let (port, arguments) = (free_port(), ["--batch", "/dev/stdin"]);
        let rank = |rank| {
            let start =
                Start { rank, world, port, arguments: &arguments, program: None, plan: None, variables: &[] };
            let mut child = command(&start).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
            let lines = BufReader::new(child.stdout.take().unwrap()).lines();
            let (sender, done) = sync_channel(1);
            std::thread::spawn(move || {
                for _ in lines.map_while(Result::ok) {
                    if sender.send(()).is_err() {
                        break;
                    }
                }
            });
            Rank { child, done }
        };
        Ranks((0..world).map(rank).collect())
    }

    fn carry_out(&mut self, run: &Run, dumps: bool) -> Result<(), String> {
        let path = |name: &str| run.folder().join(name).display().to_string();
        let mut line = format!("{}\t{}", path("plan.json"), run.folder().display());
        if dumps {
            line += &format!("\t{}", path("dump"));
        }
        for rank in &mut self.0 {
            // A rank that has ended is noticed below.
            let _ = writeln!(rank.child.stdin.as_mut().unwrap(), "{line}");
        }
        let deadline = Instant::now() + PATIENCE;
        for number in 0..self.0.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            let what = match self.0[number].done.recv_timeout(left) {
                Ok(()) => continue,
                Err(RecvTimeoutError::Timeout) => "was not done in time",
                Err(RecvTimeoutError::Disconnected) => "failed",
            };
            return Err(format!("rank {number} of {} {what}: {}", self.0.len(), self.last_words()));
        }
        Ok(())
    }

    /// Ends all and gives what they said.
    fn last_words(&mut self) -> String {
        let deadline = Instant::now() + LAST_WORDS;
        let mut said = String::new();
        for rank in &mut self.0 {
            while Instant::now() < deadline && rank.child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = rank.child.kill();
            rank.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        }
        said
    }
}

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}
