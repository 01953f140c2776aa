//! Jobs that are queued again, end by a signal, or fail: what they find, and what they say.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use batch::launch::{Body, Mode};
use system_tests::slurm::{Slurm, succeeded};
use system_tests::wait::{Attempt, LONG, until};

use super::stand_ins::Job;

/// A stand-in saves and resumes as Megatron Bridge does; its second attempt goes on, and the next job begins anew.
#[tokio::test]
async fn a_bridge_job_that_is_queued_again_finds_its_files_and_another_job_does_not() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        let mut job = Job::new(&format!("again-{}", mode.name()), mode, Body::Bridge)?;
        job.site.requeue = Some(true);
        job.variables.extend([("STUB_SAVES", "yes"), ("STUB_SECONDS", "600")]);
        // What somebody else has trained where the recipe would look.
        let others = job.folder.join("work dir/nemo_experiments/default/checkpoints");
        std::fs::create_dir_all(&others)?;
        std::fs::write(others.join("latest"), "7000\n")?;

        let number = job.submit()?;
        job.says("has saved step 1\n", 1).await?;
        succeeded(job.slurm.command("scontrol")?.args(["requeue", &number]))?;
        job.says("resumes from step 1\n", 1).await?;
        job.says("has saved step 2\n", 1).await?;
        succeeded(job.slurm.command("scancel")?.arg(&number))?;
        job.slurm.finished(&number, LONG).await?;
        let run = job.folder.join(format!("runs/shardplan-{number}"));
        ensure!(std::fs::read_to_string(run.join("checkpoints/latest"))? == "2\n", "{}", run.display());
        ensure!(
            std::fs::read_to_string(run.join("tb_logs/events"))? == "step 1\nstep 2\n",
            "{}",
            run.display()
        );
        // The log of the first attempt is still there, and in torchrun's case its own.
        let printed = job.printed();
        let times = if mode == Mode::Torchrun { 2 } else { 1 };
        ensure!(printed.matches("resumes from step 0\n").count() == times, "{printed}");

        let second = job.submit()?;
        job.says("resumes from step 0\n", 2 * times).await?;
        succeeded(job.slurm.command("scancel")?.arg(&second))?;
        job.slurm.finished(&second, LONG).await?;
        ensure!(
            std::fs::read_to_string(others.join("latest"))? == "7000\n",
            "another's checkpoint has changed"
        );
        ensure!(
            std::fs::read_to_string(run.join("checkpoints/latest"))? == "2\n",
            "the first job's has changed"
        );
    }
    Ok(())
}

/// A folder of the same number, as another cluster's job has left it on the filesystem that both share.
#[tokio::test]
async fn a_job_takes_no_folder_that_was_there_before_its_first_attempt() -> Result<()> {
    let job = Job::new("same-number", Mode::Srun, Body::Bridge)?;
    let first = job.submit()?;
    job.slurm.finished(&first, LONG).await?;
    // Numbers are given one after the other, and other tests take some.
    let next: u64 = first.parse()?;
    for number in next + 1..next + 20 {
        let run = job.folder.join(format!("runs/shardplan-{number}/checkpoints"));
        std::fs::create_dir_all(&run)?;
    }
    let (_, state, code) = job.run().await?;
    ensure!(state == "FAILED" && code == "1:0", "{state} {code}: {}", job.printed());
    ensure!(job.printed().contains("is there already"), "{}", job.printed());
    Ok(())
}

/// One rank fails or is killed, the others would go on: Slurm ends them, and srun's status is theirs.
#[tokio::test]
async fn the_status_is_that_of_the_rank_that_failed_first() -> Result<()> {
    for mode in [Mode::Srun, Mode::Torchrun] {
        for (how, expected) in [("STUB_FAIL", "7:0"), ("STUB_KILLED", "137:0")] {
            let mut job = Job::new(&format!("first-{}-{how}", mode.name()), mode, Body::Bridge)?;
            job.variables.extend([(how, "2"), ("STUB_SECONDS", "600")]);
            let (_, state, code) = job.run().await?;
            ensure!(state == "FAILED" && code == expected, "{how}: {state} {code}: {}", job.printed());
        }
    }
    Ok(())
}

/// As `--signal=USR1@SECONDS` does it: to the ranks, which Megatron Bridge's option tells to save.
#[tokio::test]
async fn ranks_that_are_told_of_the_signal_save_and_end_well() -> Result<()> {
    for signal in ["USR1", "TERM"] {
        let mut job = Job::new(&format!("told-{signal}"), Mode::Srun, Body::Bridge)?;
        job.site.signal = Some(format!("{signal}@60"));
        job.variables.push(("STUB_SECONDS", "600"));
        let number = job.submit()?;
        job.says("lm loss: 1.5\n", 4).await?;
        // The loss is printed just before the handler is there.
        tokio::time::sleep(Duration::from_secs(1)).await;
        succeeded(job.slurm.command("scancel")?.args([&format!("--signal={signal}"), &number]))?;
        let (state, code) = job.slurm.finished(&number, LONG).await?;
        ensure!(state == "COMPLETED" && code == "0:0", "{signal}: {state} {code}: {}", job.printed());
        ensure!(job.printed().matches("saves on signal").count() == 4, "{signal}: {}", job.printed());
    }
    Ok(())
}

/// Who gets the signal before the time limit: without `B:` the tasks of the step alone, with it the batch shell alone.
#[tokio::test]
async fn slurm_sends_the_signal_to_tasks_or_with_b_to_the_batch_shell() -> Result<()> {
    let slurm = Slurm::shared()?;
    let folder = slurm.shared_folder("who-is-signalled")?;
    let mut numbers = Vec::new();
    for (name, signal) in [("tasks", "USR1@60"), ("shell", "B:USR1@60")] {
        let path = folder.join(name);
        let text = format!(
            "#!/bin/bash\n#SBATCH --nodes=1\n#SBATCH --ntasks=2\n#SBATCH --time=30\n#SBATCH --signal={signal}\n\
             #SBATCH --output={}.log\n\
             trap 'echo the shell has it' USR1\n\
             srun --ntasks=2 bash -c 'trap \"echo a task has it; exit 0\" USR1; echo ready; while :; do sleep 0.2; done' &\n\
             wait; wait\n",
            path.display()
        );
        std::fs::write(&path, text)?;
        numbers.push((name, slurm.submit(&path, &folder)?));
    }
    let printed =
        |name: &str| std::fs::read_to_string(folder.join(format!("{name}.log"))).unwrap_or_default();
    let wait_for = async |name: &str, text: &str, times: usize| {
        until(text, LONG, async || {
            let printed = printed(name);
            let there = printed.matches(text).count() == times;
            Ok(if there { Attempt::Ready(()) } else { Attempt::NotYet(printed) })
        })
        .await
        .with_context(|| slurm.logs())
    };
    for (name, number) in &numbers {
        wait_for(name, "ready", 2).await?;
        succeeded(slurm.command("scontrol")?.args(["update", &format!("JobId={number}"), "EndTime=now+55"]))?;
    }
    wait_for("tasks", "a task has it", 2).await?;
    wait_for("shell", "the shell has it", 1).await?;
    ensure!(!printed("tasks").contains("the shell"), "{}", printed("tasks"));
    ensure!(!printed("shell").contains("a task"), "{}", printed("shell"));
    let (tasks, shell) = (&numbers[0].1, &numbers[1].1);
    slurm.finished(tasks, LONG).await?;
    succeeded(slurm.command("scancel")?.arg(shell))?;
    slurm.finished(shell, LONG).await?;
    Ok(())
}
