//! The worker's script, as a user would paste it: ranks on two nodes, a hub beside them, signals, a requeue, a lost node.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use planner::wire::{Event, Joined, Outcome, Record};
use serde_json::json;
use system_tests::hub::Hub;
use system_tests::plans::four_ranks;
use system_tests::programs::{expect_code, program, shardplan, torch_python};
use system_tests::run_folder::{all_records, ended, info, log_of, loss_falls, only_run, records, steps};
use system_tests::slurm::{GPUS_PER_NODE, NODES, Slurm, succeeded};
use system_tests::wait::{Attempt, LONG, until};

const STEPS: u64 = 20;
/// Steps of a run that is to be interrupted: more than fit into the test's time.
pub const MANY_STEPS: u64 = 100_000;

/// A folder with a script of `steps` steps.
pub struct Job {
    pub slurm: &'static Slurm,
    pub shared: PathBuf,
    script: PathBuf,
}

impl Job {
    pub fn new(name: &str, steps: u64, more: &[(&str, serde_json::Value)]) -> Result<Job> {
        Job::of(name, four_ranks("fp32", steps), more)
    }

    /// A folder with the script of a plan for four ranks.
    pub fn of(name: &str, plan: serde_json::Value, more: &[(&str, serde_json::Value)]) -> Result<Job> {
        let slurm = Slurm::shared()?;
        let shared = slurm.shared_folder(name)?;
        let script = write_script(&shared, plan, more)?;
        Ok(Job { slurm, shared, script })
    }

    pub fn submit(&self, options: &[&str]) -> Result<String> {
        self.slurm.submit_with(&self.script, &self.shared, |sbatch: &mut Command| {
            sbatch.args(options);
        })
    }

    /// Waits until every rank of an attempt has done so many steps, and gives the run's folder.
    pub async fn under_way(&self, attempt: u64, wanted: usize) -> Result<PathBuf> {
        until("steps of all ranks", LONG, async || {
            let Ok(run) = only_run(&self.shared.join("runs")) else {
                return Ok(Attempt::NotYet(self.printed()));
            };
            let done: Vec<usize> = (0..4).map(|rank| steps_of_attempt(&run, rank, attempt)).collect();
            let all = done.iter().all(|done| *done >= wanted);
            Ok(if all {
                Attempt::Ready(run)
            } else {
                Attempt::NotYet(format!("{done:?}; {}", self.printed()))
            })
        })
        .await
        .with_context(|| self.slurm.logs())
    }

    /// What the job printed, for the error of a failed test.
    pub fn printed(&self) -> String {
        let logs = std::fs::read_dir(self.shared.join("logs")).into_iter().flatten().flatten();
        logs.map(|log| std::fs::read_to_string(log.path()).unwrap_or_default()).collect()
    }
}

/// The records of a rank in the order of its log.
pub fn records_of(run: &Path, rank: u64) -> Vec<Record> {
    records(&run.join(log_of(rank))).unwrap_or_default()
}

/// The attempts that a rank has joined.
fn joins(run: &Path, rank: u64) -> Vec<Joined> {
    let joined = |record: Record| match record.event {
        Event::Joined(joined) => Some(joined),
        _ => None,
    };
    records_of(run, rank).into_iter().filter_map(joined).collect()
}

/// Steps that a rank has recorded since it joined an attempt.
fn steps_of_attempt(run: &Path, rank: u64, attempt: u64) -> usize {
    let (mut current, mut count) = (0, 0);
    for record in records_of(run, rank) {
        match record.event {
            Event::Joined(joined) => current = joined.attempt,
            Event::Step(_) if current == attempt => count += 1,
            _ => {}
        }
    }
    count
}

/// Every rank's log has whole records only, counted without a gap.
pub fn no_record_is_missing(run: &Path) -> Result<()> {
    for rank in 0..4 {
        let numbers: Vec<u64> = records_of(run, rank).iter().map(|record| record.seq).collect();
        ensure!(numbers == (0..numbers.len() as u64).collect::<Vec<_>>(), "rank {rank} has {numbers:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_worker_script_runs_to_the_end_on_two_nodes() -> Result<()> {
    let job = Job::new("worker", STEPS, &[])?;
    // Nothing of this shell's; the tasks have what the script sets all the same.
    let number = job.submit(&["--export=NONE"])?;
    let (state, code) = job.slurm.finished(&number, LONG).await?;
    let said = job.printed();
    ensure!(
        state == "COMPLETED" && code == "0:0",
        "the job ended as {state} with {code} and printed: {said}"
    );

    let run = only_run(&job.shared.join("runs")).with_context(|| format!("the job printed: {said}"))?;
    let info = info(&run)?;
    ensure!(info.slurm_job.as_deref() == Some(&number), "run.json names the job {:?}", info.slurm_job);
    ensure!(info.world_size == 4, "run.json counts {} ranks", info.world_size);
    ensure!((info.attempts, info.host.as_str()) == (1, NODES[0]), "run.json: {info:?}");
    let records = all_records(&run)?;
    for rank in 0..4 {
        let done = steps(&records, rank);
        let numbers: Vec<u64> = done.iter().map(|step| step.step).collect();
        ensure!(numbers == (1..=STEPS).collect::<Vec<u64>>(), "rank {rank} did the steps {numbers:?}");
        loss_falls(&done.iter().map(|step| step.loss).collect::<Vec<f64>>())?;
        let end = ended(&records, &log_of(rank)).with_context(|| format!("rank {rank} has no end"))?;
        ensure!(end.0 == Outcome::Completed, "rank {rank} ended as {end:?}");
        // Ranks count node after node, and the nodes are separate machines as far as they can tell.
        let joined = joins(&run, rank);
        let host = NODES[usize::try_from(rank / GPUS_PER_NODE)?];
        ensure!(joined.len() == 1 && joined[0].host == host, "rank {rank} joined as {joined:?}");
    }
    no_record_is_missing(&run)
}

/// Without the script's help: rank 0's host and port from Slurm's own variables.
#[tokio::test]
async fn ranks_find_each_other_by_slurms_variables_alone() -> Result<()> {
    let job = Job::new("bare", STEPS, &[])?;
    let text = std::fs::read_to_string(&job.script)?;
    let ends = text.find("MASTER_ADDR=").context("the script names no address")?;
    let from = text.find("export MASTER_ADDR").context("the script exports no address")?;
    let from = from + text[from..].find('\n').context("the script ends early")?;
    std::fs::write(
        &job.script,
        format!("{}unset MASTER_ADDR MASTER_PORT\n{}", &text[..ends], &text[from..]),
    )?;
    let number = job.submit(&[])?;
    let (state, code) = job.slurm.finished(&number, LONG).await?;
    ensure!(state == "COMPLETED", "the job ended as {state} with {code} and printed: {}", job.printed());
    let run = only_run(&job.shared.join("runs"))?;
    ensure!((0..4).all(|rank| steps_of_attempt(&run, rank, 1) as u64 == STEPS), "steps are missing");
    ensure!(!job.printed().contains("is not set"), "something was assumed: {}", job.printed());
    Ok(())
}

/// A signal ends all ranks after the same step, and then the job goes on with a second attempt in the same run folder,
/// which a hub on the login node has shown all the while.
#[tokio::test]
async fn a_signal_ends_a_run_cleanly_and_a_requeue_goes_on_with_its_history() -> Result<()> {
    let job = Job::new("requeue", MANY_STEPS, &[])?;
    let hub = hub_of(job.slurm, &job.shared.join("runs"))?;
    let number = job.submit(&["--requeue", "--open-mode=append"])?;
    let run = job.under_way(1, 3).await?;
    let id = run.file_name().context("no name")?.to_string_lossy().into_owned();

    // As `--signal=USR1@SECONDS` does it: to the ranks, not to the batch shell.
    succeeded(job.slurm.command("scancel")?.args(["--signal=USR1", &number]))?;
    until("an end of all ranks", LONG, async || {
        let records = all_records(&run)?;
        let ends: Vec<_> = (0..4).filter_map(|rank| ended(&records, &log_of(rank))).collect();
        Ok(if ends.len() == 4 { Attempt::Ready(()) } else { Attempt::NotYet(format!("{ends:?}")) })
    })
    .await?;
    let (state, code) = job.slurm.finished(&number, LONG).await?;
    ensure!(state == "COMPLETED" && code == "0:0", "a stop is no failure: {state} {code}: {}", job.printed());
    let records = all_records(&run)?;
    let mut last_steps = Vec::new();
    for rank in 0..4 {
        let (outcome, reason) = ended(&records, &log_of(rank)).context("no end")?;
        ensure!(outcome == Outcome::Stopped, "rank {rank} ended as {outcome:?}: {reason}");
        ensure!(reason.contains("SIGUSR1") || reason.contains("a signal to rank"), "rank {rank}: {reason}");
        last_steps.push(steps(&records, rank).last().map(|step| step.step));
    }
    ensure!(
        last_steps.iter().all(|last| *last == last_steps[0]),
        "ranks ended after the steps {last_steps:?}"
    );

    succeeded(job.slurm.command("scontrol")?.args(["requeue", &number]))?;
    let again = job.under_way(2, 3).await?;
    ensure!(again == run, "the second attempt is in {}", again.display());
    no_record_is_missing(&run)?;
    let info = info(&run)?;
    ensure!(info.attempts == 2, "run.json counts {} attempts", info.attempts);
    for rank in 0..4 {
        let attempts: Vec<u64> = joins(&run, rank).iter().map(|joined| joined.attempt).collect();
        ensure!(attempts == [1, 2], "rank {rank} joined the attempts {attempts:?}");
    }

    // The hub has seen both attempts, from a network in which no rank listens.
    let joined_twice = |seen: &[planner::wire::LogRecord]| {
        let joins = seen
            .iter()
            .filter(|seen| matches!(&seen.record.event, Event::Joined(joined) if joined.attempt == 2));
        joins.count() == 4
    };
    let shown = job.slurm.in_its_network(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let mut session = hub.connect().await?;
            session.records_until(&id, |seen, _| joined_twice(seen)).await
        })
    })?;
    let first_ended = shown.iter().any(|seen| {
        matches!(&seen.record.event, Event::Ended { outcome: Outcome::Stopped, .. }) && seen.log == log_of(0)
    });
    ensure!(first_ended, "the hub does not show how the first attempt ended");
    succeeded(job.slurm.command("scancel")?.arg(&number))?;
    let (state, _) = job.slurm.finished(&number, LONG).await?;
    ensure!(state == "CANCELLED", "the job ended as {state}");
    // scancel's SIGTERM, too, ends ranks in good order.
    let records = all_records(&run)?;
    for rank in 0..4 {
        let last = records.iter().rfind(|(log, _)| *log == log_of(rank)).map(|(_, record)| &record.event);
        ensure!(
            matches!(last, Some(Event::Ended { outcome: Outcome::Stopped, .. })),
            "rank {rank}: {last:?}"
        );
    }
    Ok(())
}

/// A node without a word: the other node's ranks end, and the requeued job goes on when the node is back.
#[tokio::test]
async fn a_lost_node_ends_the_attempt_and_the_next_goes_on_when_it_is_back() -> Result<()> {
    let job = Job::new("lost", MANY_STEPS, &[])?;
    let number = job.submit(&["--requeue", "--open-mode=append"])?;
    let run = job.under_way(1, 2).await?;
    job.slurm.lose_node(NODES[1])?;
    // Slurm notices, and queues the job again.
    until("a requeued job", LONG, async || {
        let restarts = job.slurm.job_field(&number, "Restarts")?;
        let state = job.slurm.job_field(&number, "JobState")?;
        let said = format!("{restarts} restarts, {state}");
        Ok(if restarts == "1" || state == "PENDING" { Attempt::Ready(()) } else { Attempt::NotYet(said) })
    })
    .await
    .with_context(|| job.slurm.logs())?;
    job.slurm.start_node(NODES[1])?;
    let again = job.under_way(2, 2).await?;
    ensure!(again == run, "the second attempt is in {}", again.display());
    for rank in 0..4 {
        let attempts: Vec<u64> = joins(&run, rank).iter().map(|joined| joined.attempt).collect();
        ensure!(attempts == [1, 2], "rank {rank} joined the attempts {attempts:?}");
        let numbers: Vec<u64> = records_of(&run, rank).iter().map(|record| record.seq).collect();
        ensure!(numbers == (0..numbers.len() as u64).collect::<Vec<_>>(), "rank {rank} has {numbers:?}");
    }
    succeeded(job.slurm.command("scancel")?.arg(&number))?;
    job.slurm.finished(&number, LONG).await?;
    job.slurm.wait_until_idle(LONG)
}

/// A hub on the login node.
fn hub_of(slurm: &Slurm, runs: &Path) -> Result<Hub> {
    let mut command = slurm.unlimited(&program("shardplan")?.display().to_string())?;
    command.args(["serve", "--port", "0", "--runs"]).arg(runs);
    Hub::start_by(&mut command)
}

/// Writes the script as a user would: a plan, a site file, one command.
fn write_script(
    shared: &Path,
    mut plan: serde_json::Value,
    more: &[(&str, serde_json::Value)],
) -> Result<PathBuf> {
    plan["cluster"] = json!({"gpu": "h100-sxm", "nodes": NODES.len(), "gpus_per_node": GPUS_PER_NODE});
    let plan_file = shared.join("plan.json");
    std::fs::write(&plan_file, plan.to_string())?;
    // Slurm's GPUs are none here, and a rank takes the CPU for a plan of GPUs where it is told to alone.
    let rank = shared.join("rank-on-cpu");
    let program = program("shardplan-rank")?;
    std::fs::write(&rank, format!("#!/bin/sh\nexec '{}' --device cpu \"$@\"\n", program.display()))?;
    std::fs::set_permissions(&rank, std::fs::Permissions::from_mode(0o755))?;

    let site_file = shared.join("site.toml");
    let mut site = String::new();
    let values = [
        ("account", json!("research")),
        ("partition", json!("compute")),
        ("shared_dir", json!(shared)),
        ("rank_binary", json!(rank)),
        ("torch_lib", json!(torch_libraries()?)),
    ];
    for (name, value) in values.iter().chain(more) {
        let _ = writeln!(site, "{name} = {value}");
    }
    std::fs::write(&site_file, site)?;

    let output =
        expect_code(shardplan()?.args(["script", "--strict", "--site"]).arg(&site_file).arg(&plan_file), 0)?;
    let script = shared.join("job.sbatch");
    std::fs::write(&script, output.stdout)?;
    // As the script's own comment says: Slurm fails a job without a word when the folder of its log is not there.
    std::fs::create_dir(shared.join("logs"))?;
    Ok(script)
}

/// The folder of libtorch.
pub fn torch_libraries() -> Result<String> {
    let question = "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent / 'lib')";
    let output = expect_code(Command::new(torch_python()?).args(["-c", question]), 0)?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
