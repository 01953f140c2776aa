//! The worker's training under Slurm: it saves before its time is up, and goes on from what is whole, whatever was before.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use planner::wire::{Event, Outcome, Resumed};
use serde_json::json;
use system_tests::plans::four_ranks;
use system_tests::run_folder::ended;
use system_tests::run_folder::{all_records, log_of};
use system_tests::slurm::succeeded;
use system_tests::wait::{Attempt, LONG, until};

use super::worker::{Job, MANY_STEPS, no_record_is_missing, records_of};

/// Steps between checkpoints.
const EVERY: u64 = 4;

/// What rank 0 went on from, in the order of attempts.
fn resumed(run: &Path) -> Vec<Resumed> {
    let of = |event| if let Event::Resumed(resumed) = event { Some(resumed) } else { None };
    records_of(run, 0).into_iter().filter_map(|record| of(record.event)).collect()
}

/// Losses of rank 0 by step, each time that the step was trained.
fn losses(run: &Path) -> BTreeMap<u64, Vec<f64>> {
    let mut found: BTreeMap<u64, Vec<f64>> = BTreeMap::new();
    for record in records_of(run, 0) {
        if let Event::Step(step) = record.event {
            found.entry(step.step).or_default().push(step.loss);
        }
    }
    found
}

async fn all_ranks_have_ended(run: &Path) -> Result<u64> {
    until("an end of all ranks", LONG, async || {
        let records = all_records(run)?;
        let ends: Vec<_> = (0..4).filter_map(|rank| ended(&records, &log_of(rank))).collect();
        Ok(if ends.len() == 4 { Attempt::Ready(()) } else { Attempt::NotYet(format!("{ends:?}")) })
    })
    .await?;
    let (outcome, reason) = ended(&all_records(run)?, &log_of(0)).context("no end")?;
    ensure!(outcome == Outcome::Stopped && reason.contains("is saved, from which"), "{outcome:?}: {reason}");
    losses(run).keys().last().copied().context("no step")
}

/// A signal before the time limit saves; the next attempt passes over a checkpoint that the disk has spoiled, and trains what is
/// missing again to the bit; a job that is submitted anew goes on in the same folder.
#[tokio::test]
async fn a_training_goes_on_from_its_newest_whole_checkpoint() -> Result<()> {
    let mut plan = four_ranks("fp32", MANY_STEPS);
    plan["run"]["checkpoint"] = json!({"every_steps": EVERY, "keep": 5});
    let job = Job::of("resumes", plan, &[])?;
    let number = job.submit(&[])?;
    let run = job.under_way(1, 2 * EVERY as usize + 1).await?;
    succeeded(job.slurm.command("scancel")?.args(["--signal=TERM", &number]))?;
    let last = all_ranks_have_ended(&run).await?;
    let (state, code) = job.slurm.finished(&number, LONG).await?;
    ensure!(state == "COMPLETED" && code == "0:0", "the job ended as {state} {code}: {}", job.printed());
    ensure!(
        job.printed().contains(&format!("{last} of {MANY_STEPS} steps are saved")),
        "the script does not say how far it came: {}",
        job.printed()
    );

    // The file of a rank on the other node, spoiled.
    let newest = run.join(format!("checkpoints/step-{last:08}/rank-00003.safetensors"));
    let mut bytes = std::fs::read(&newest).with_context(|| newest.display().to_string())?;
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&newest, bytes)?;
    succeeded(job.slurm.command("scontrol")?.args(["requeue", &number]))?;
    ensure!(job.under_way(2, 1).await? == run, "another folder");
    let from = resumed(&run);
    ensure!(from.len() == 1 && from[0].step < last, "{from:?}");
    ensure!(from[0].passed_over.len() == 1, "{from:?}");
    // On a slow disk one checkpoint is written while the next is due, so more than `EVERY` steps may be missing.
    job.under_way(2, (last - from[0].step) as usize + 1).await?;
    succeeded(job.slurm.command("scancel")?.args(["--signal=USR1", &number]))?;
    job.slurm.finished(&number, LONG).await?;
    for (step, losses) in losses(&run) {
        ensure!(losses.iter().all(|loss| *loss == losses[0]), "step {step}: {losses:?}");
        let again = (from[0].step + 1..=last).contains(&step);
        ensure!(losses.len() == 1 + usize::from(again), "step {step} was trained {} times", losses.len());
    }
    let last = all_ranks_have_ended(&run).await?;

    // Another job, in the same folder.
    let name = run.file_name().context("no name")?.to_string_lossy().into_owned();
    let number = job.submit(&[&format!("--export=ALL,SHARDPLAN_RESUME={name}")])?;
    ensure!(job.under_way(3, 2).await? == run, "another folder");
    ensure!(resumed(&run).last().map(|resumed| resumed.step) == Some(last), "{:?}", resumed(&run));
    succeeded(job.slurm.command("scancel")?.arg(&number))?;
    job.slurm.finished(&number, LONG).await?;
    let saved = all_ranks_have_ended(&run).await?;
    ensure!(saved > last, "scancel's own signal saves, too: {saved}");
    no_record_is_missing(&run)
}
