//! `shardplan wrap` around a real torchrun of PyTorch's own, and what the hub shows of it.

use anyhow::{Context, Result, ensure};
use planner::wire::{Event, PlanOrigin, RunInfo};
use run_folder::RunFolder;
use system_tests::programs::{expect_code, shardplan, torch_python};
use system_tests::run_folder::{info, records};
use system_tests::runs::Runs;

/// The job's options, which are Megatron-LM's.
const OPTIONS: &str = "--num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 64 --micro-batch-size 1 \
                       --max-position-embeddings 64 --global-batch-size 8 --train-iters 6";

fn job(runs: &Runs, more: &[&str], code: i32) -> Result<(RunInfo, Vec<Event>)> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/python/small_job.py");
    let mut command = shardplan()?;
    command
        .args(["wrap", "--id", "job", "--interval", "0.2", "--runs"])
        .arg(runs.path())
        .arg("--")
        .arg(torch_python()?);
    command.args(["-u", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", script]);
    command.args(OPTIONS.split_whitespace()).args(more);
    expect_code(&mut command, code)?;
    let folder = runs.path().join("job");
    let info = info(&folder)?;
    let logs = RunFolder::of(&folder).launcher_logs();
    let records = records(logs.first().context("no log")?)?;
    Ok((info, records.into_iter().map(|record| record.event).collect()))
}

#[test]
fn a_job_under_torchrun_is_recorded_beside_its_plan() -> Result<()> {
    let runs = Runs::new()?;
    let (info, events) = job(&runs, &[], 0)?;
    let source = info.source.context("no source")?;
    ensure!(source.framework == "megatron" && source.plan == PlanOrigin::Recovered, "{source:?}");
    ensure!(info.world_size == 2, "{} ranks", info.world_size);
    let steps: Vec<u64> = events
        .iter()
        .filter_map(|event| match event {
            Event::Iteration(iteration) if iteration.loss.is_some() && iteration.seconds.is_some() => {
                Some(iteration.step)
            }
            _ => None,
        })
        .collect();
    ensure!(steps == [1, 2, 3, 4, 5, 6], "{steps:?}");
    let most = events
        .iter()
        .filter_map(|event| match event {
            Event::Host(host) => host.tree_processes,
            _ => None,
        })
        .max();
    ensure!(most >= Some(3), "the launcher and its two workers are a tree of {most:?} processes");
    ensure!(runs.path().join("job").join("comparison.json").is_file(), "no comparison");
    Ok(())
}

#[test]
fn a_worker_that_fails_is_the_reason() -> Result<()> {
    let runs = Runs::new()?;
    let (_, events) = job(&runs, &["--fail-at", "3"], 1)?;
    match events.last() {
        Some(Event::Ended { reason, .. }) => ensure!(reason.contains("exit code 1"), "{reason}"),
        other => anyhow::bail!("{other:?}"),
    }
    Ok(())
}
