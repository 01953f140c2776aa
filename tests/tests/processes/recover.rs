//! Runs that go on after ranks were killed, with real ranks: how long that takes, and that they train what they would have trained.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use planner::Plan;
use planner::runtime::Runtime;
use planner::wire::{Event, Recovered, Recovering};
use run_folder::RunFolder;
use serde_json::{Value, json};
use system_tests::plans::four_ranks;
use system_tests::process::Guarded;
use system_tests::programs::expect_code;
use system_tests::run_folder::{all_records, log_of, only_run, records, steps};
use system_tests::runs::Runs;
use system_tests::wait::{Attempt, LONG, until};

use crate::worker::run_command;

/// How far losses in fp64 may be apart in another layout.
const NEAR: f64 = 1e-10;

/// A plan of two replicas of two slots that saves often.
fn plan(steps: u64, every: u64) -> Value {
    let mut plan = four_ranks("fp64", steps);
    plan["training"]["seq_len"] = 32.into();
    plan["run"]["checkpoint"] = json!({"every_steps": every});
    plan
}

/// Losses by step, the last that were recorded of each.
fn losses(run: &Path, rank: u64) -> Result<Vec<(u64, f64)>> {
    let all = all_records(run)?;
    let last: BTreeMap<u64, f64> = steps(&all, rank).iter().map(|step| (step.step, step.loss)).collect();
    Ok(last.into_iter().collect())
}

/// Losses of the same plan when nobody is killed. Several tests ask for those of one plan, which are the same to the bit each time.
fn undisturbed(plan: &Value) -> Result<Vec<(u64, f64)>> {
    static KNOWN: Mutex<BTreeMap<String, Vec<(u64, f64)>>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(&plan.to_string()) {
        return Ok(found.clone());
    }
    let runs = Runs::new()?;
    expect_code(&mut run_command(plan, &runs)?, 0)?;
    let found = losses(&only_run(runs.path())?, 0)?;
    known.insert(plan.to_string(), found.clone());
    Ok(found)
}

fn check_losses(plan: &Value, run: &Path) -> Result<()> {
    check_losses_of(plan, run, 0)
}

/// As a rank that was never lost has recorded them.
fn check_losses_of(plan: &Value, run: &Path, rank: u64) -> Result<()> {
    let (expected, found) = (undisturbed(plan)?, losses(run, rank)?);
    ensure!(expected.len() == found.len(), "{} steps instead of {}", found.len(), expected.len());
    for ((step, expected), (also, found)) in expected.into_iter().zip(found) {
        ensure!(
            step == also && (expected - found).abs() <= NEAR,
            "step {step}: {found} instead of {expected}"
        );
    }
    Ok(())
}

/// A run that goes on after failures.
struct Going {
    runs: Runs,
    launcher: Guarded,
    said: tempfile::NamedTempFile,
}

impl Going {
    fn start(plan: &Value, arguments: &[&str]) -> Result<Going> {
        let runs = Runs::new()?;
        let said = tempfile::NamedTempFile::new()?;
        let mut command = run_command(plan, &runs)?;
        command.args(arguments).stdout(Stdio::null()).stderr(said.reopen()?);
        Ok(Going { launcher: Guarded::start(&mut command)?, runs, said })
    }

    fn run(&self) -> Result<PathBuf> {
        only_run(self.runs.path())
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.said.path()).unwrap_or_default()
    }

    /// Waits for what a look at the run finds.
    async fn see<T>(&self, what: &str, look: impl Fn(&Path) -> Result<Option<T>>) -> Result<T> {
        until(what, LONG, async || {
            let found = self.run().ok().and_then(|run| look(&run).ok().flatten());
            Ok(found.map_or_else(|| Attempt::NotYet(self.said()), Attempt::Ready))
        })
        .await
    }

    /// Waits until rank 0 has recorded so many steps, over all starts.
    async fn trained(&self, wanted: usize) -> Result<()> {
        self.see("training", |run| Ok((steps(&all_records(run)?, 0).len() >= wanted).then_some(()))).await
    }

    /// The processes of the latest start, by rank.
    fn pids(&self) -> Result<Vec<Pid>> {
        let mut pids = Vec::new();
        for event in launcher_events(&self.run()?)? {
            match event {
                // From here on the ranks before are gone, whether or not others have started yet.
                Event::Recovering(_) => pids.clear(),
                Event::Started { rank, pid } => pids.push((rank, Pid::from_raw(i32::try_from(pid)?))),
                _ => {}
            }
        }
        Ok(pids.into_iter().map(|(_, pid)| pid).collect())
    }

    /// Kills ranks of the latest start, at once.
    fn kill(&self, ranks: &[usize]) -> Result<Instant> {
        let pids = self.pids()?;
        for &rank in ranks {
            kill(*pids.get(rank).context("no such rank")?, Signal::SIGKILL)?;
        }
        Ok(Instant::now())
    }

    /// Waits for the first step after the latest of so many recoveries, and prints how long it took since the kill.
    async fn recovered(&self, count: usize, killed: Instant, what: &str) -> Result<Recovered> {
        let done = self
            .see("a recovery", |run| {
                let all: Vec<Recovered> = launcher_events(run)?
                    .into_iter()
                    .filter_map(|event| if let Event::Recovered(done) = event { Some(done) } else { None })
                    .collect();
                Ok(all.into_iter().nth(count - 1))
            })
            .await?;
        let took = killed.elapsed();
        eprintln!(
            "{what}: step {} is done {:.2} s after the kill (the launcher counts {:.2} s, of which {:.2} s to the start)",
            done.step,
            took.as_secs_f64(),
            done.seconds,
            done.restart_seconds
        );
        Ok(done)
    }

    fn ends(&mut self, code: i32) -> Result<()> {
        let status = self.launcher.wait(LONG)?;
        ensure!(status.code() == Some(code), "it ended with {status}: {}", self.said());
        Ok(())
    }
}

fn launcher_events(run: &Path) -> Result<Vec<Event>> {
    let logs = RunFolder::of(run).launcher_logs();
    let records = records(logs.first().context("no log of a launcher")?)?;
    Ok(records.into_iter().map(|record| record.event).collect())
}

fn began(run: &Path) -> Result<Vec<Recovering>> {
    let of = |event| if let Event::Recovering(began) = event { Some(began) } else { None };
    Ok(launcher_events(run)?.into_iter().filter_map(of).collect())
}

#[tokio::test]
async fn a_replica_is_lost_and_the_losses_are_those_of_a_run_that_never_failed() -> Result<()> {
    let plan = plan(24, 4);
    let mut going = Going::start(&plan, &["--on-failure", "drop"])?;
    going.trained(10).await?;
    let killed = going.kill(&[1])?;
    let done = going.recovered(1, killed, "drop, rank 1 of 4 killed").await?;
    going.ends(0)?;
    let run = going.run()?;
    let began = began(&run)?;
    ensure!(
        began.len() == 1 && began[0].dead == [1] && began[0].world_size == 2 && began[0].dp == 1,
        "{began:?}"
    );
    ensure!((began[0].global_batch, began[0].instead_of) == (4, None), "{began:?}");
    ensure!(began[0].from_step.is_some_and(|step| step + 1 == done.step), "{began:?} {done:?}");
    // What is said in the end is of the survivors' plan, which takes longer than the whole one.
    let said = going.said();
    let beside = said.lines().find_map(|line| line.split("the last step took ").nth(1)).unwrap_or_default();
    let predicted = beside.split(" s (").nth(1).and_then(|rest| rest.split(' ').next());
    let predicted: f64 = predicted.with_context(|| said.clone())?.parse()?;
    let [left, whole] = [began[0].predicted_step_seconds, began[0].predicted_whole_step_seconds]
        .map(Option::unwrap_or_default);
    ensure!((predicted / left - 1.0).abs() < 1e-3 && left > 1.1 * whole, "{predicted}: {left}, {whole}");
    check_losses(&plan, &run)
}

/// A plan for FSDP2 of so many ranks, whose shards are uneven on three.
fn sharded(ranks: u64) -> Value {
    let mut plan = plan(24, 4);
    plan["runtime"] = "fsdp2".into();
    plan["layout"] = json!({});
    plan["cluster"]["gpus_per_node"] = ranks.into();
    plan["training"]["global_batch_size"] = 12.into();
    plan
}

/// Bytes of weights, gradients and optimizer state that a rank has allocated, at each start.
fn allocated(run: &Path, rank: u64) -> Result<Vec<[u64; 3]>> {
    let of = |event| match event {
        Event::Allocated(bytes) => Some([bytes.weights_bytes, bytes.gradients_bytes, bytes.optimizer_bytes]),
        _ => None,
    };
    let all = records(&run.join(log_of(rank)))?;
    Ok(all.into_iter().filter_map(|record| of(record.event)).collect())
}

/// What is predicted of a plan as the worker executes it.
fn predicted(plan: &Value) -> Result<[u64; 3]> {
    let resolved = Plan::resolve(&planner::parse_plan(&plan.to_string()).map_err(|all| anyhow!("{all:?}"))?);
    let executed = resolved.plan.context("a plan")?.executed();
    ensure!(executed.runtime == Some(Runtime::Fsdp2), "{:?}", executed.runtime);
    let memory = planner::estimate(&executed).memory.context("an answer")?;
    let class = memory.rank_classes.first().context("a rank")?;
    Ok([class.weights_bytes, class.gradients_bytes, class.optimizer_bytes])
}

#[tokio::test]
async fn what_fsdp2_shards_goes_on_over_the_ranks_that_are_left() -> Result<()> {
    let plan = sharded(4);
    for lost in [2, 0] {
        let mut going = Going::start(&plan, &["--on-failure", "drop"])?;
        going.trained(10).await?;
        let killed = going.kill(&[lost])?;
        let done = going.recovered(1, killed, &format!("drop, rank {lost} of 4 of FSDP2 killed")).await?;
        going.ends(0)?;
        let run = going.run()?;
        let began = began(&run)?;
        ensure!(began.len() == 1 && began[0].dead == [lost as u64] && began[0].world_size == 3, "{began:?}");
        ensure!((began[0].dp, began[0].global_batch, began[0].instead_of) == (3, 12, None), "{began:?}");
        ensure!(began[0].from_step.is_some_and(|step| step + 1 == done.step), "{began:?} {done:?}");
        // Each keeps a fourth of everything, then a third: under its own rules ranks would keep whole weights.
        let (before, after) = (predicted(&plan)?, predicted(&sharded(3))?);
        ensure!(before[0] < after[0], "{before:?} {after:?}");
        ensure!(allocated(&run, 1)? == [before, after], "{:?}, {before:?}, {after:?}", allocated(&run, 1)?);
        check_losses_of(&plan, &run, 1)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_replica_goes_on_with_fewer_slots_and_the_losses_are_those_of_a_run_that_never_failed() -> Result<()>
{
    let plan = plan(24, 4);
    for lost in [1, 0] {
        let mut going = Going::start(&plan, &["--on-failure", "ntp"])?;
        going.trained(10).await?;
        let killed = going.kill(&[lost])?;
        let done = going.recovered(1, killed, &format!("ntp, rank {lost} of 4 killed")).await?;
        going.ends(0)?;
        let run = going.run()?;
        let began = began(&run)?;
        ensure!(began.len() == 1 && began[0].dead == [lost as u64] && began[0].world_size == 3, "{began:?}");
        ensure!((began[0].dp, began[0].global_batch, began[0].instead_of) == (2, 4, None), "{began:?}");
        ensure!(began[0].from_step.is_some_and(|step| step + 1 == done.step), "{began:?} {done:?}");
        check_losses_of(&plan, &run, 3)?;
    }
    Ok(())
}

#[tokio::test]
async fn a_spare_stands_in_for_rank_zero_to_the_bit() -> Result<()> {
    let plan = plan(24, 4);
    let mut going = Going::start(&plan, &["--on-failure", "spare", "--spares", "1"])?;
    going.trained(10).await?;
    // It holds the store, and writes the checkpoints' indexes.
    let killed = going.kill(&[0])?;
    going.recovered(1, killed, "spare, rank 0 of 4 killed").await?;
    going.ends(0)?;
    let run = going.run()?;
    ensure!(began(&run)?.iter().all(|one| one.world_size == 4), "{:?}", began(&run)?);
    ensure!(undisturbed(&plan)? == losses(&run, 0)?, "the losses are not the same");
    Ok(())
}

#[tokio::test]
async fn ranks_are_killed_again_while_the_run_recovers() -> Result<()> {
    let plan = plan(24, 4);
    let mut going = Going::start(&plan, &["--on-failure", "spare", "--spares", "3"])?;
    going.trained(6).await?;
    going.kill(&[2])?;
    // As soon as they are started again, before they have joined or while they load.
    for (count, rank) in [(1, 0), (2, 3)] {
        going.see("another start", |run| Ok((began(run)?.len() >= count).then_some(()))).await?;
        let all = async |going: &Going| {
            going.see("all ranks", |_| Ok((going.pids()?.len() == 4).then_some(()))).await
        };
        all(&going).await?;
        tokio::time::sleep(Duration::from_millis(400 * (count as u64 - 1))).await;
        going.kill(&[rank])?;
    }
    going.ends(0)?;
    let run = going.run()?;
    let began = began(&run)?;
    ensure!(began.len() == 3, "{began:?}");
    ensure!(undisturbed(&plan)? == losses(&run, 0)?, "the losses are not the same");
    Ok(())
}

#[tokio::test]
async fn a_whole_replica_is_lost_and_then_what_is_left_of_the_other() -> Result<()> {
    let plan = plan(100_000, 2);
    let mut going = Going::start(&plan, &["--on-failure", "drop"])?;
    going.trained(5).await?;
    let killed = going.kill(&[2, 3])?;
    going.recovered(1, killed, "drop, ranks 2 and 3 of 4 killed").await?;
    ensure!(began(&going.run()?)?[0].dead == [2, 3], "{:?}", began(&going.run()?)?);
    going.kill(&[1])?;
    going.ends(1)?;
    let said = going.said();
    for part in [
        "Rank 1 was ended by signal 9",
        "Rank 1 is lost, and a replica needs 2 GPUs",
        "to go on: shardplan run --resume",
    ] {
        ensure!(said.contains(part), "{part:?} in {said}");
    }
    Ok(())
}

#[tokio::test]
async fn a_kill_amid_a_save_costs_that_checkpoint_alone() -> Result<()> {
    // Every step is saved, so that one is being saved nearly always.
    let plan = plan(20, 1);
    let mut going = Going::start(&plan, &["--on-failure", "drop"])?;
    going.trained(5).await?;
    let staged = |run: &Path| {
        let names = std::fs::read_dir(run.join("checkpoints"))?.flatten().map(|entry| entry.file_name());
        Ok(names.into_iter().any(|name| name.to_string_lossy().starts_with(".new-")).then_some(()))
    };
    going.see("a save", staged).await?;
    let killed = going.kill(&[3])?;
    going.recovered(1, killed, "drop, rank 3 of 4 killed amid a save").await?;
    going.ends(0)?;
    check_losses(&plan, &going.run()?)
}

#[tokio::test]
async fn a_run_returns_to_its_whole_plan_when_it_is_told_that_the_gpu_is_back() -> Result<()> {
    let plan = plan(40, 4);
    let mut going = Going::start(&plan, &["--on-failure", "drop"])?;
    going.trained(8).await?;
    let killed = going.kill(&[3])?;
    going.recovered(1, killed, "drop, rank 3 of 4 killed").await?;
    let run = going.run()?;
    RunFolder::of(&run).ask_for_whole()?;
    going.recovered(2, Instant::now(), "the whole plan again").await?;
    going.ends(0)?;
    let began = began(&run)?;
    ensure!(began.len() == 2 && began[1].dead.is_empty() && began[1].world_size == 4, "{began:?}");
    let now: Value = serde_json::from_str(&std::fs::read_to_string(run.join("plan.json"))?)?;
    ensure!(now["cluster"]["gpus_per_node"] == 4, "{now}");
    check_losses(&plan, &run)
}

#[tokio::test]
async fn what_follows_from_plan_and_data_is_not_gone_on_with() -> Result<()> {
    let mut plan = plan(24, 1);
    plan["run"]["lr"] = 1e300.into();
    plan["run"]["clip_grad"] = 0.into();
    let mut going = Going::start(&plan, &["--on-failure", "drop"])?;
    going.ends(1)?;
    let said = going.said();
    ensure!(said.contains("look at the data") && said.contains("That follows from plan and data"), "{said}");
    ensure!(began(&going.run()?)?.is_empty(), "{:?}", began(&going.run()?)?);
    Ok(())
}
