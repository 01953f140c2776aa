//! `shardplan run --slurm`: ranks on the nodes of an allocation, and a run that goes on in it when some are lost.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use planner::wire::{Event, OnFailure, Outcome, Recovered, Recovering};
use run_folder::{LogWriter, RunFolder};
use serde_json::json;
use system_tests::plans::four_ranks;
use system_tests::programs::{expect_code, program, shardplan, torch_python};
use system_tests::run_folder::{all_records, only_run, steps};
use system_tests::slurm::{GPUS_PER_NODE, NODES, Slurm, succeeded};
use system_tests::wait::{Attempt, LONG, until};

use super::worker::torch_libraries;

struct Job {
    slurm: &'static Slurm,
    shared: PathBuf,
    number: String,
}

impl Job {
    /// A job on both nodes that keeps them when one fails, and runs a plan of so many nodes.
    fn submit(name: &str, (steps, nodes): (u64, u64), arguments: &str) -> Result<Job> {
        let slurm = Slurm::shared()?;
        let shared = slurm.shared_folder(name)?;
        let mut plan = four_ranks("fp64", steps);
        plan["training"]["seq_len"] = 32.into();
        plan["cluster"] = json!({"gpu": "cpu", "nodes": nodes, "gpus_per_node": GPUS_PER_NODE});
        plan["run"]["checkpoint"] = json!({"every_steps": 2});
        std::fs::write(shared.join("plan.json"), plan.to_string())?;
        let script = shared.join("job.sbatch");
        let text = format!(
            "#!/bin/bash\n#SBATCH --nodes={} --ntasks-per-node={GPUS_PER_NODE} --account=research --partition=compute --exclusive --no-kill\n\
             #SBATCH --output={}\nexec {} run plan.json --slurm --rank-binary {} --torch {} --runs runs {arguments}\n",
            NODES.len(),
            shared.join("said").display(),
            program("shardplan")?.display(),
            program("shardplan-rank")?.display(),
            torch_python()?.display()
        );
        std::fs::write(&script, text)?;
        let number = slurm.submit(&script, &shared)?;
        Ok(Job { slurm, shared, number })
    }

    /// A job by the script that `shardplan script` writes of a plan of both nodes, to go on as the arguments say.
    fn written(name: &str, arguments: &[&str]) -> Result<Job> {
        let slurm = Slurm::shared()?;
        let shared = slurm.shared_folder(name)?;
        let mut plan = four_ranks("fp64", 100_000);
        plan["training"]["seq_len"] = 32.into();
        plan["cluster"] = json!({"gpu": "cpu", "nodes": NODES.len(), "gpus_per_node": GPUS_PER_NODE});
        plan["run"]["checkpoint"] = json!({"every_steps": 2});
        let (plan_file, site_file) = (shared.join("plan.json"), shared.join("site.toml"));
        std::fs::write(&plan_file, plan.to_string())?;
        let values = [
            ("account", json!("research")),
            ("partition", json!("compute")),
            ("shared_dir", json!(shared)),
            ("rank_binary", json!(program("shardplan-rank")?)),
            ("torch_lib", json!(torch_libraries()?)),
        ];
        let site: Vec<String> = values.iter().map(|(name, value)| format!("{name} = {value}\n")).collect();
        std::fs::write(&site_file, site.concat())?;
        let mut command = shardplan()?;
        command.args(["script", "--strict", "--site"]).arg(&site_file).args(arguments).arg(&plan_file);
        let output = expect_code(&mut command, 0)?;
        let script = shared.join("job.sbatch");
        std::fs::write(&script, output.stdout)?;
        std::fs::create_dir(shared.join("logs"))?;
        let number = slurm.submit(&script, &shared)?;
        Ok(Job { slurm, shared, number })
    }

    fn said(&self) -> String {
        let logs = std::fs::read_dir(self.shared.join("logs")).into_iter().flatten().flatten();
        let said = logs.map(|entry| entry.path()).chain([self.shared.join("said")]);
        said.filter_map(|path| std::fs::read_to_string(path).ok()).collect()
    }

    async fn see<T>(&self, what: &str, look: impl Fn(&Path) -> Result<Option<T>>) -> Result<T> {
        until(what, LONG, async || {
            let found = only_run(&self.shared.join("runs")).ok().and_then(|run| look(&run).ok().flatten());
            Ok(found.map_or_else(|| Attempt::NotYet(self.said()), Attempt::Ready))
        })
        .await
        .with_context(|| self.slurm.logs())
    }

    async fn trained(&self, wanted: usize) -> Result<()> {
        self.see("training", |run| Ok((steps(&all_records(run)?, 0).len() >= wanted).then_some(()))).await
    }

    async fn recovered(&self) -> Result<(Recovering, Recovered)> {
        self.see("a recovery", |run| {
            let (mut began, mut done) = (None, None);
            for (_, record) in all_records(run)? {
                match record.event {
                    Event::Recovering(one) => began = Some(one),
                    Event::Recovered(one) => done = Some(one),
                    _ => {}
                }
            }
            Ok(began.zip(done))
        })
        .await
    }
}

#[tokio::test]
async fn a_killed_rank_of_another_node_is_gone_on_without() -> Result<()> {
    // So many that it is still at work when the signal comes, however busy the machine is.
    let job = Job::submit("recover", (200, 2), "--on-failure drop")?;
    job.trained(5).await?;
    // Each rank is a step of its own, numbered as they happen to start.
    succeeded(job.slurm.command("scancel")?.args(["--signal=KILL", &format!("{}.3", job.number)]))?;
    let (began, done) = job.recovered().await?;
    eprintln!(
        "under Slurm: step {} is done {:.2} s after the launcher saw the failure",
        done.step, done.seconds
    );
    ensure!(began.dead.len() == 1 && began.policy == OnFailure::Drop, "{began:?}; {}", job.said());
    ensure!((began.world_size, began.dp, began.global_batch) == (2, 1, 4), "{began:?}");
    let (state, code) = job.slurm.finished(&job.number, LONG).await?;
    ensure!(state == "COMPLETED" && code == "0:0", "{state} {code}: {}", job.said());
    Ok(())
}

/// As a user would: one command writes the script, and the batch shell hands the signal before the time limit to the launcher.
#[tokio::test]
async fn a_written_script_goes_on_when_a_rank_is_killed_and_ends_in_order_by_a_signal() -> Result<()> {
    let job = Job::written("written", &["--on-failure", "drop"])?;
    job.trained(5).await?;
    succeeded(job.slurm.command("scancel")?.args(["--signal=KILL", &format!("{}.3", job.number)]))?;
    let (began, done) = job.recovered().await?;
    ensure!(began.dead.len() == 1 && began.policy == OnFailure::Drop, "{began:?}; {}", job.said());
    ensure!((began.world_size, began.dp, began.global_batch) == (2, 1, 4), "{began:?}");
    succeeded(job.slurm.command("scancel")?.args(["--batch", "--signal=TERM", &job.number]))?;
    job.slurm.finished(&job.number, LONG).await?;
    let run = only_run(&job.shared.join("runs"))?;
    let ended = all_records(&run)?.into_iter().any(|(log, record)| {
        LogWriter::of(&log).is_some_and(LogWriter::is_launcher)
            && matches!(record.event, Event::Ended { outcome: Outcome::Stopped, .. })
    });
    ensure!(ended, "{}", job.said());
    let said = job.said();
    let saved = said
        .lines()
        .find_map(|line| line.split_once(" of 100000 steps are saved in ")?.0.parse::<u64>().ok());
    ensure!(saved.is_some_and(|saved| saved >= done.step), "{saved:?}, step {}: {said}", done.step);
    Ok(())
}

#[tokio::test]
async fn a_spare_node_stands_in_for_a_lost_one() -> Result<()> {
    let job = Job::submit("spare-node", (100_000, 1), "--on-failure spare")?;
    job.trained(5).await?;
    succeeded(job.slurm.command("scancel")?.args(["--signal=KILL", &format!("{}.0", job.number)]))?;
    let (began, _) = job.recovered().await?;
    ensure!(began.dead.len() == 1 && began.world_size == 2, "{began:?}");
    ensure!(began.policy == OnFailure::Spare, "{began:?}");
    let node_of = |step: u64| {
        let step = format!("{}.{step}", job.number);
        succeeded(job.slurm.command("scontrol")?.args(["--oneliner", "show", "step", &step]))
    };
    for step in [2, 3] {
        let shown = node_of(step)?;
        ensure!(shown.contains(&format!("NodeList={} ", NODES[1])), "{shown}");
    }
    let run = only_run(&job.shared.join("runs"))?;
    RunFolder::of(&run).ask_to_stop()?;
    job.slurm.finished(&job.number, LONG).await?;
    let ended = all_records(&run)?.into_iter().any(|(log, record)| {
        LogWriter::of(&log).is_some_and(LogWriter::is_launcher)
            && matches!(record.event, Event::Ended { outcome: Outcome::Stopped, .. })
    });
    ensure!(ended, "{}", job.said());
    Ok(())
}

/// A node without a word: the others notice, what is left of its srun is ended, and the run goes on in its allocation.
#[tokio::test]
async fn a_node_that_is_gone_without_a_word_is_gone_on_without() -> Result<()> {
    let job = Job::submit("gone", (100_000, 2), "--on-failure drop")?;
    job.trained(5).await?;
    let lost = std::time::Instant::now();
    job.slurm.lose_node(NODES[1])?;
    let (began, done) = job.recovered().await?;
    eprintln!(
        "a lost node: step {} is done {:.1} s after it was lost, {:.2} s after the launcher saw the failure",
        done.step,
        lost.elapsed().as_secs_f64(),
        done.seconds
    );
    ensure!(began.dead == [2, 3] && began.world_size == 2, "{began:?}; {}", job.said());
    let run = only_run(&job.shared.join("runs"))?;
    RunFolder::of(&run).ask_to_stop()?;
    job.slurm.finished(&job.number, LONG).await?;
    job.slurm.start_node(NODES[1])?;
    job.slurm.wait_until_idle(LONG)
}
