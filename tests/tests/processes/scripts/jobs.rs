//! Whose folder a job trains in: its own from its first attempt on, or that of an earlier job which has ended, and no other.

use std::collections::BTreeMap;
use std::process::Output;

use anyhow::{Context as _, Result, ensure};
use batch::launch::{Body, Mode, ScriptOptions};
use frameworks::script;
use planner::Plan;
use planner::wire::{GoingOn, OnFailure};

use super::stage::Stage;
use super::{kind, plan};

const BODIES: [Body; 5] = [Body::Mlm, Body::Bridge, Body::Automodel, Body::Torchtitan, Body::Worker];
const SEVEN: (&str, &str) = ("SLURM_JOB_ID", "7");
const LEFT: (&str, &str) = ("SLURM_CLUSTER_NAME", "left");
const RIGHT: (&str, &str) = ("SLURM_CLUSTER_NAME", "right");
const AGAIN: (&str, &str) = ("SLURM_RESTART_COUNT", "1");

fn saving() -> Result<Plan> {
    let mut file = plan("a plan")?.file;
    file.run.checkpoint.every_steps = Some(2);
    Plan::resolve(&file).plan.context("not a plan")
}

/// A script of a body on a stage where job 123456 of the cluster `left` has trained by it.
struct Trained {
    stage: Stage,
    text: String,
    body: Body,
    /// The folder's name.
    folder: String,
}

impl Trained {
    fn by(body: Body) -> Result<Trained> {
        let stage = Stage::new()?;
        let (text, _) = script(&saving()?, &stage.site(), &kind(Mode::Srun, body));
        let folder = match body {
            Body::Worker => "20260101T000000Z-slurm-123456",
            _ => "left-123456",
        };
        let trained = Trained { stage, text, body, folder: folder.to_owned() };
        ensure!(trained.trains(&trained.run(&[LEFT])?)?, "{body:?}: the first attempt does not train");
        Ok(trained)
    }

    fn run(&self, variables: &[(&str, &str)]) -> Result<Output> {
        self.stage.run(&self.text, variables)
    }

    /// As another job, which asks for the folder.
    fn resume(&self, variables: &[(&str, &str)]) -> Result<Output> {
        self.run(&[&[SEVEN, LEFT, ("SHARDPLAN_RESUME", self.folder.as_str())], variables].concat())
    }

    /// Whether anything was started, which then ended well.
    fn trains(&self, output: &Output) -> Result<bool> {
        let program = if self.body == Body::Worker { "train" } else { "python" };
        let trains =
            |call: &super::Call| call.program == program && !call.arguments.contains(&"--check".into());
        let started = self.stage.calls()?.iter().any(trains);
        ensure!(started == output.status.success(), "{:?}: {output:?}", self.body);
        Ok(started)
    }

    /// Asserts that it was refused with these words.
    fn refused(&self, output: &Output, words: &str) -> Result<()> {
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(!self.trains(output)? && said.contains(words), "{:?}: {output:?}", self.body);
        Ok(())
    }

    /// What is in the folder beside the list of jobs.
    fn kept(&self) -> Result<BTreeMap<String, String>> {
        let mut files = self.stage.files()?;
        let folder = self.stage.text(&format!("shared/runs/{}/", self.folder));
        files.retain(|path, _| path.starts_with(&folder) && !path.ends_with("/jobs"));
        Ok(files)
    }
}

#[test]
fn while_a_job_has_a_folder_nobody_else_trains_there() -> Result<()> {
    for body in BODIES {
        let trained = Trained::by(body)?;
        let before = trained.kept()?;
        let queued = ("QUEUED", "5 123456 8");
        for variables in [
            &[queued] as &[_],
            // The submitter's own habits are for the submitter's eyes.
            &[queued, ("SQUEUE_STATES", "PD"), ("SQUEUE_PARTITION", "other")],
        ] {
            trained.refused(&trained.resume(variables)?, "job 123456 still has")?;
        }
        // No answer is no permission; it is asked for some time.
        trained.refused(&trained.resume(&[("NO_ANSWER", "1")])?, "Slurm does not say")?;
        let asked = trained.stage.calls()?.iter().filter(|call| call.program == "squeue").count();
        ensure!(asked > 3, "{body:?}: asked {asked} times");
        ensure!(trained.kept()? == before, "{body:?}: the folder was changed");
        // Another cluster's squeue is asked on that cluster.
        trained.refused(&trained.resume(&[RIGHT, queued])?, "job 123456 still has")?;
        let calls = trained.stage.calls()?;
        let squeue = calls.iter().find(|call| call.program == "squeue").context("no squeue")?;
        ensure!(squeue.arguments.ends_with(&["-M".into(), "left".into()]), "{squeue:?}");
        // Who was refused does not keep the first from going on, though it is queued again.
        ensure!(trained.trains(&trained.run(&[LEFT, AGAIN, ("QUEUED", "7 123456")])?)?, "{body:?}");
        // When it has ended, others may; and then the first waits for them.
        ensure!(trained.trains(&trained.resume(&[("QUEUED", "12345 7")])?)?, "{body:?}");
        trained.refused(&trained.run(&[LEFT, AGAIN, ("QUEUED", "7 123456")])?, "job 7 still has")?;
    }
    Ok(())
}

#[test]
fn a_list_of_jobs_without_clusters_is_of_this_one() -> Result<()> {
    let trained = Trained::by(Body::Mlm)?;
    std::fs::write(trained.stage.path("shared/runs/left-123456/jobs"), "123456\n")?;
    trained.refused(&trained.resume(&[("QUEUED", "123456")])?, "job 123456 still has")?;
    ensure!(trained.trains(&trained.resume(&[("QUEUED", "7")])?)?);
    Ok(())
}

#[test]
fn a_folder_that_is_there_before_a_jobs_first_attempt_is_not_its_own() -> Result<()> {
    for body in BODIES {
        let trained = Trained::by(body)?;
        let before = trained.kept()?;
        // The number is given anew, by a controller that has lost its state; and by a job that inherits a count.
        for variables in [&[LEFT] as &[_], &[LEFT, AGAIN, ("RESTARTS", "0")]] {
            trained.refused(&trained.run(variables)?, "")?;
        }
        // On another cluster, which shares the filesystem, the same number is another job's.
        let other = trained.run(&[RIGHT, AGAIN])?;
        ensure!(trained.trains(&other)? != (body == Body::Worker), "{body:?}: {other:?}");
        // Slurm does not say whose count it is.
        trained.refused(&trained.run(&[LEFT, AGAIN, ("RESTARTS", "")])?, "Slurm does not say")?;
        ensure!(trained.kept()? == before, "{body:?}: the folder was changed");
        ensure!(trained.trains(&trained.run(&[LEFT, AGAIN])?)?, "{body:?}");
    }
    Ok(())
}

#[test]
fn a_run_that_has_no_list_of_jobs_is_its_descriptions_jobs() -> Result<()> {
    let trained = Trained::by(Body::Worker)?;
    let jobs = trained.stage.path(&format!("shared/runs/{}/jobs", trained.folder));
    std::fs::remove_file(&jobs)?;
    trained.refused(&trained.resume(&[("QUEUED", "123456")])?, "job 123456 still has")?;
    std::fs::remove_file(&jobs)?;
    ensure!(trained.trains(&trained.run(&[LEFT, AGAIN])?)?);
    ensure!(std::fs::read_to_string(&jobs)? == "left 123456\n");
    Ok(())
}

/// The worker's own programs say whether a plan can go on from what is saved, before it takes the place of the run's.
#[test]
fn a_plan_that_can_not_go_on_leaves_the_run_as_it_was() -> Result<()> {
    let mut trained = Trained::by(Body::Worker)?;
    let before = trained.kept()?;
    trained.text = trained.text.replace("\"seq_len\": 32", "\"seq_len\": 64");
    trained.refused(&trained.resume(&[("CHECK_EXIT", "1")])?, "")?;
    let mut after = trained.kept()?;
    after.retain(|path, _| !path.ends_with("/.plan.json"));
    ensure!(after == before, "{before:?} {after:?}");
    // Nor is it this job's then.
    ensure!(trained.trains(&trained.run(&[LEFT, AGAIN, ("QUEUED", "7")])?)?);
    ensure!(trained.trains(&trained.resume(&[("QUEUED", "7")])?)?);
    Ok(())
}

/// With a launcher, which makes the folder and goes on in it by the script's own plan.
#[test]
fn a_launcher_goes_on_in_a_folder_that_nobody_has() -> Result<()> {
    let stage = Stage::new()?;
    let going_on = GoingOn { on_failure: OnFailure::Drop, ..GoingOn::STOP };
    let (text, findings) =
        script(&saving()?, &stage.site(), &ScriptOptions { going_on, ..kind(Mode::Srun, Body::Worker) });
    let words = |variables: &[(&str, &str)]| -> Result<Option<Vec<String>>> {
        let output = stage.run(&text, variables)?;
        let call = stage.calls()?.into_iter().find(|call| call.program == "shardplan");
        ensure!(call.is_some() == output.status.success(), "{findings:?} {output:?}");
        Ok(call.map(|call| call.arguments.into_iter().take(5).collect()))
    };
    let name = "20260101T000000Z-slurm-123456";
    let begins = ["run", "-", "--id", name].map(str::to_owned);
    ensure!(words(&[LEFT])?.is_some_and(|words| words.starts_with(&begins) && words[4] != "--resume"));
    let run = stage.path("shared/runs").join(name);
    std::fs::create_dir_all(&run)?;
    // As the launcher writes it.
    let info = "{\n  \"slurm_job\": \"123456\",\n  \"slurm_cluster\": \"left\",\n  \"attempts\": 1\n}\n";
    std::fs::write(run.join("run.json"), info)?;
    let goes_on = |words: Option<Vec<String>>| {
        words.is_some_and(|words| words.starts_with(&begins) && words[4] == "--resume")
    };
    let resumed = [SEVEN, LEFT, ("SHARDPLAN_RESUME", name)];
    ensure!(words(&[&resumed as &[_], &[("QUEUED", "123456")]].concat())?.is_none());
    ensure!(goes_on(words(&[LEFT, AGAIN, ("QUEUED", "7")])?));
    ensure!(goes_on(words(&resumed)?));
    ensure!(words(&[LEFT, AGAIN, ("QUEUED", "7")])?.is_none());
    ensure!(std::fs::read_to_string(run.join("run.json"))? == info);
    Ok(())
}

#[test]
fn tries_are_counted_by_failures_alone() -> Result<()> {
    let stage = Stage::new()?;
    let site = batch::launch::Site { retries: 2, ..stage.site() };
    for body in [Body::Mlm, Body::Command] {
        let (text, _) = script(&plan("a plan")?, &site, &kind(Mode::Srun, body));
        // Slurm has queued it again often, for nodes that were lost.
        let fails = |restarts| -> Result<usize> {
            let program = if body == Body::Mlm { ("PYTHON_EXIT", "3") } else { ("CHECK_EXIT", "3") };
            stage.run(
                &text.replace("  train ", "  train --check "),
                &[LEFT, program, ("SLURM_RESTART_COUNT", restarts)],
            )?;
            let requeues = |call: &&super::Call| call.arguments.first().is_some_and(|word| word == "requeue");
            Ok(stage.calls()?.iter().filter(requeues).count())
        };
        let queued_again = ["0", "5", "6"].into_iter().map(fails).collect::<Result<Vec<usize>>>()?;
        ensure!(queued_again == [1, 1, 0], "{body:?}: {queued_again:?}");
    }
    Ok(())
}

#[test]
fn slurms_commands_and_tasks_have_none_of_the_submitters_habits() -> Result<()> {
    for body in BODIES.into_iter().chain([Body::Command]) {
        let stage = Stage::new()?;
        let (text, _) = script(&plan("a plan")?, &stage.site(), &kind(Mode::Srun, body));
        let habits = [
            ("SLURM_EXPORT_ENV", "NONE"),
            ("SLURM_TIME_FORMAT", "%a %d"),
            ("SLURM_CLUSTERS", "other"),
            ("SQUEUE_FORMAT", "%u"),
        ];
        let output = stage.run(&text, &habits)?;
        ensure!(output.status.success(), "{body:?}: {output:?}");
        let calls = stage.calls()?;
        let srun = calls.iter().rfind(|call| call.program == "srun").context("no srun")?;
        for (name, value) in [
            ("SLURM_EXPORT_ENV", Some("ALL")),
            ("SLURM_TIME_FORMAT", Some("standard")),
            ("SLURM_CLUSTERS", None),
            ("SQUEUE_FORMAT", None),
        ] {
            ensure!(srun.environment.get(name).map(String::as_str) == value, "{body:?}: {name}: {srun:?}");
        }
    }
    Ok(())
}

#[test]
fn an_automodel_checkpoint_that_is_marked_incomplete_is_no_end() -> Result<()> {
    let trained = Trained::by(Body::Automodel)?;
    let checkpoints = trained.stage.path("shared/runs/left-123456/checkpoints");
    let last = checkpoints.join("epoch_0_step_99999999");
    std::fs::create_dir_all(&last)?;
    std::os::unix::fs::symlink("epoch_0_step_99999999", checkpoints.join("LATEST"))?;
    std::fs::write(last.join(".incomplete"), "")?;
    ensure!(trained.trains(&trained.run(&[LEFT, AGAIN])?)?);
    std::fs::remove_file(last.join(".incomplete"))?;
    let done = trained.run(&[LEFT, AGAIN])?;
    ensure!(String::from_utf8_lossy(&done.stdout).contains("nothing is left to do"), "{done:?}");
    Ok(())
}
