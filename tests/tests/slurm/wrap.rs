//! `shardplan wrap` under srun: a task for each GPU and a task for each node, on both nodes, all in one folder.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use planner::wire::{Event, Outcome};
use system_tests::programs::program;
use system_tests::run_folder::{ended, info, log_of, records};
use system_tests::slurm::{Slurm, succeeded};
use system_tests::wait::{Attempt, LONG, until};

/// What is watched: a few iterations as Megatron-LM prints them and an end of its own, or a wait for SIGTERM that
/// counts how often it comes.
const JOB: &str = r#"
if [ "$1" = steps ]; then
  for i in 1 2 3; do
    [ "$SLURM_PROCID" -eq 3 ] && printf ' iteration %8d/%8d | consumed samples: %12d | elapsed time per iteration (ms): 250.0 | learning rate: 1.000E-04 | global batch size:     8 | lm loss: 2.5E+00 | grad norm: 1.0 |\n' $i 3 $i
  done
  [ "$SLURM_PROCID" -eq 2 ] && { echo 'rank 2 gives up' >&2; exit 7; }
  exit 0
fi
caught=0
trap 'caught=$((caught + 1))' TERM
touch "$2/waiting-$SLURM_PROCID"
until [ "$caught" -gt 0 ]; do sleep 0.1; done
sleep 0.5
echo "caught $caught"
exit $((4 + caught))
"#;

fn script(shared: &Path, shardplan: &Path) -> String {
    let (shared, shardplan) = (shared.display(), shardplan.display());
    format!(
        "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=2\n#SBATCH --output={shared}/job.out\n\
         srun --ntasks-per-node=2 '{shardplan}' wrap --interval 0.5 --runs '{shared}/runs' -- bash '{shared}/job.sh' steps\n\
         echo \"ranks $?\" >> '{shared}/codes'\n\
         srun --ntasks=2 --ntasks-per-node=1 '{shardplan}' wrap --interval 0.5 --runs '{shared}/runs' -- bash '{shared}/job.sh' wait '{shared}'\n\
         echo \"nodes $?\" >> '{shared}/codes'\n"
    )
}

/// The folder of a step's run.
fn run_of(shared: &Path, job: &str, step: u64) -> Result<PathBuf> {
    let ends_so = format!("slurm-{job}-{step}");
    let mut found: Vec<PathBuf> = std::fs::read_dir(shared.join("runs"))?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.to_string_lossy().ends_with(&ends_so))
        .collect();
    ensure!(found.len() == 1, "runs of {ends_so}: {found:?}");
    found.pop().context("no run")
}

fn events(run: &Path, rank: u64) -> Result<Vec<Event>> {
    Ok(records(&run.join(log_of(rank)))?.into_iter().map(|record| record.event).collect())
}

fn exit_code(run: &Path, rank: u64) -> Result<Option<i32>> {
    let exited = events(run, rank)?.into_iter().find_map(|event| match event {
        Event::Exited(exit) => Some(exit.code),
        _ => None,
    });
    exited.with_context(|| format!("rank {rank} has no end in {}", run.display()))
}

fn logs(run: &Path) -> Result<Vec<String>> {
    let mut names: Vec<String> = std::fs::read_dir(run)?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| name.ends_with(".log"))
        .collect();
    names.sort();
    Ok(names)
}

#[tokio::test]
async fn tasks_of_both_nodes_are_watched_in_one_folder_and_end_as_they_would_alone() -> Result<()> {
    let slurm = Slurm::shared()?;
    let shared = slurm.shared_folder("wrap")?;
    std::fs::write(shared.join("job.sh"), JOB)?;
    let path = shared.join("batch.sh");
    std::fs::write(&path, script(&shared, &program("shardplan")?))?;
    let job = slurm.submit_with(&path, &shared, |sbatch: &mut Command| {
        sbatch.arg("--no-requeue");
    })?;
    let printed = || std::fs::read_to_string(shared.join("job.out")).unwrap_or_default();
    until("both tasks of the second step", LONG, async || {
        let waiting = (0..2).all(|rank| shared.join(format!("waiting-{rank}")).exists());
        Ok(if waiting { Attempt::Ready(()) } else { Attempt::NotYet(printed()) })
    })
    .await
    .with_context(|| slurm.logs())?;
    succeeded(slurm.command("scancel")?.args(["--signal=TERM", &job]))?;
    slurm.finished(&job, LONG).await.with_context(printed)?;

    let codes = std::fs::read_to_string(shared.join("codes"))?;
    ensure!(codes == "ranks 7\nnodes 5\n", "srun ended with {codes}: {}", printed());

    let ranks = run_of(&shared, &job, 0)?;
    ensure!(logs(&ranks)? == (0..4).map(log_of).collect::<Vec<_>>(), "{:?}", logs(&ranks)?);
    let info = info(&ranks)?;
    let writers = info.source.as_ref().map(|source| source.writers);
    ensure!(info.slurm_job.as_deref() == Some(job.as_str()) && writers == Some(4), "{info:?}");
    let steps: Vec<u64> = events(&ranks, 3)?
        .into_iter()
        .filter_map(|event| match event {
            Event::Iteration(iteration) => Some(iteration.step),
            _ => None,
        })
        .collect();
    ensure!(steps == [1, 2, 3], "iterations {steps:?}");
    let all = system_tests::run_folder::all_records(&ranks)?;
    for (rank, code, outcome) in
        [(0, 0, Outcome::Completed), (2, 7, Outcome::Failed), (3, 0, Outcome::Completed)]
    {
        ensure!(exit_code(&ranks, rank)? == Some(code), "rank {rank}: {:?}", exit_code(&ranks, rank)?);
        let (how, reason) = ended(&all, &log_of(rank)).context("no end")?;
        ensure!(how == outcome, "rank {rank} ended as {how:?}: {reason}");
    }

    let nodes = run_of(&shared, &job, 1)?;
    ensure!(logs(&nodes)? == [log_of(0), log_of(1)], "{:?}", logs(&nodes)?);
    for rank in 0..2 {
        ensure!(exit_code(&nodes, rank)? == Some(5), "rank {rank}: {:?}", exit_code(&nodes, rank)?);
        let caught = events(&nodes, rank)?
            .into_iter()
            .any(|event| matches!(event, Event::Output { text, .. } if text == "caught 1"));
        ensure!(caught, "rank {rank} was not signalled once: {}", printed());
    }
    Ok(())
}
