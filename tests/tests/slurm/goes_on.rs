//! Trainings that are interrupted: whatever ends an attempt, the next goes on from the job's own folder, and nothing is lost.
//!
//! `trainer.py` stands in for the frameworks: it takes their options, saves only when told and leaves their files.
//! `SHARDPLAN_INTERRUPTIONS=all` has every framework interrupted in every way, as `cargo xtask soak` does; ways by their names
//! (`Preemption,Node`) in these.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use batch::launch::{Body, GpuRequest, Mode};
use system_tests::slurm::{NODES, PREEMPTION, Slurm, succeeded};
use system_tests::wait::{Attempt, LONG, until};

use super::stand_ins::Job;

/// Steps of a run, and between checkpoints.
const STEPS: u64 = 30;
const EVERY: u64 = 4;

/// What ends an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum By {
    /// Somebody queues it again.
    Requeue,
    /// A rank is killed, and the site wants another try.
    Kill,
    /// The rank that saves is killed while it notes its newest checkpoint, and the site wants another try.
    Torn,
    /// A job that comes first takes its nodes.
    Preemption,
    /// Its time is up.
    TimeLimit,
    /// The time that the framework was given is up, and the site wants another try.
    Duration,
    /// A node is gone.
    Node,
    /// Nothing; another job of the same script runs beside it.
    Twice,
    /// It is cancelled, and another job is submitted to go on in its folder.
    Another,
}

/// All of them.
const WAYS: [By; 9] = [
    By::Requeue,
    By::Kill,
    By::Torn,
    By::Duration,
    By::Twice,
    By::Another,
    By::TimeLimit,
    By::Preemption,
    By::Node,
];

/// Frameworks that train.
const BODIES: [Body; 4] = [Body::Mlm, Body::Bridge, Body::Automodel, Body::Torchtitan];

/// Whether a framework saves when an attempt is told to end.
fn saves_on_signal(body: Body, mode: Mode) -> bool {
    mode == Mode::Srun && body != Body::Torchtitan
}

/// Whether this can happen to it.
fn happens(by: By, body: Body, mode: Mode) -> bool {
    by != By::Duration || (mode == Mode::Torchrun && matches!(body, Body::Mlm | Body::Bridge))
}

struct Training {
    job: Job,
    by: By,
}

impl Training {
    fn new(by: By, body: Body, mode: Mode) -> Result<Training> {
        let mut job = Job::new(&format!("goes-on-{by:?}-{}-{}", mode.name(), body.name()), mode, body)?;
        job.steps = STEPS;
        job.site.save_every = Some(EVERY);
        // Several run side by side.
        job.site.exclusive = Some(false);
        job.site.gpus = GpuRequest::Nothing;
        job.site.retries = if matches!(by, By::Kill | By::Torn | By::Duration) { 4 } else { 0 };
        job.variables.extend([("STUB_TRAINER", TRAINER), ("TRAINER_OPTIONS", OPTIONS)]);
        let step = match by {
            // Slurm looks at limits each half minute.
            By::TimeLimit => "1.5",
            By::Preemption | By::Node => "0.4",
            // Others are submitted, start and end while it runs.
            By::Another => "0.7",
            _ => "0.15",
        };
        job.variables.push(("TRAINER_STEP", step));
        match by {
            By::Kill => job.variables.push(("TRAINER_DIES", "0:11")),
            By::Torn => job.variables.push(("TRAINER_TORN", "0:12")),
            // 27 of these minutes are well before the last step.
            By::Duration => job.variables.push(("TRAINER_MINUTE", "0.12")),
            By::Preemption => job.site.partition = Some(PREEMPTION[0].into()),
            _ => {}
        }
        // Leaked once a test: variables live as long as it.
        let ledger: &'static str =
            Box::leak(job.folder.join("ledger").display().to_string().into_boxed_str());
        job.variables.push(("TRAINER_LEDGER", ledger));
        Ok(Training { job, by })
    }

    /// Steps of a job in the order in which they were done, each with its attempt.
    fn ledger(&self, number: &str) -> Vec<(u64, u64)> {
        let text = std::fs::read_to_string(self.job.folder.join("ledger").join(number)).unwrap_or_default();
        let pair = |line: &str| {
            let (attempt, step) = line.split_once(' ')?;
            Some((attempt.parse().ok()?, step.parse().ok()?))
        };
        text.lines().filter_map(pair).collect()
    }

    async fn has_done(&self, number: &str, steps: usize) -> Result<()> {
        until("steps", LONG, async || {
            let done = self.ledger(number);
            let said = || format!("{done:?}; {}", self.job.printed());
            Ok(if done.len() >= steps { Attempt::Ready(()) } else { Attempt::NotYet(said()) })
        })
        .await
        .with_context(|| self.job.slurm.logs())
    }

    fn scontrol(&self, arguments: &[&str]) -> Result<()> {
        succeeded(self.job.slurm.command("scontrol")?.args(arguments)).map(|_| ())
    }

    /// Starts a job before those of other tests that want all nodes for themselves; one that runs already has none to pass.
    fn is_next(&self, number: &str) {
        let _ = self.scontrol(&["update", &format!("JobId={number}"), "Priority=4294967293"]);
    }

    async fn completed(&self, number: &str) -> Result<()> {
        let (state, code) = self.job.slurm.finished(number, LONG).await?;
        ensure!(state == "COMPLETED" && code == "0:0", "{state} {code}: {}", self.job.printed());
        Ok(())
    }

    /// Interrupts a job, and has it go on to its end.
    async fn run(&mut self) -> Result<()> {
        let number = self.job.submit()?;
        let folder = |number: &str| self.job.folder.join(format!("runs/shardplan-{number}"));
        if self.by == By::Twice {
            let second = self.job.submit()?;
            self.completed(&number).await?;
            let before = files(&folder(&number))?;
            self.completed(&second).await?;
            for number in [&number, &second] {
                self.nothing_is_lost(&self.ledger(number), 1)?;
            }
            ensure!(files(&folder(&number))? == before, "the second job changed the first one's folder");
            return Ok(());
        }
        if self.by == By::Another {
            return self.another(&number).await;
        }
        if !matches!(self.by, By::Duration | By::Kill | By::Torn) {
            self.has_done(&number, 6).await?;
        }
        match self.by {
            By::Requeue => self.scontrol(&["requeue", &number])?,
            By::Kill | By::Torn | By::Duration | By::Twice | By::Another => {}
            By::Preemption => {
                let mut sbatch = self.job.slurm.command("sbatch")?;
                sbatch.args(["--parsable", "--exclusive", "--nodes=2", "--output=/dev/null"]);
                sbatch.arg(format!("--partition={}", PREEMPTION[1])).arg("--wrap=sleep 1");
                let first = succeeded(&mut sbatch)?.trim().to_owned();
                self.job.slurm.finished(&first, LONG).await?;
            }
            By::TimeLimit => {
                let signals = saves_on_signal(self.job.options.body, self.job.options.mode);
                // Into the time of the signal, or past the end.
                let end = if signals { "EndTime=now+120" } else { "EndTime=now+1" };
                let which = format!("JobId={number}");
                self.scontrol(&["update", &which, end])?;
                let (state, _) = self.job.slurm.finished(&number, LONG).await?;
                ensure!(
                    state == if signals { "COMPLETED" } else { "TIMEOUT" },
                    "{state}: {}",
                    self.job.printed()
                );
                self.scontrol(&["requeue", &number])?;
                self.scontrol(&["update", &which, "TimeLimit=30"])?;
            }
            By::Node => {
                self.job.slurm.lose_node(NODES[1])?;
                until("a requeued job", LONG, async || {
                    let restarts = self.job.slurm.job_field(&number, "Restarts")?;
                    let state = self.job.slurm.job_field(&number, "JobState")?;
                    let said = format!("{restarts} restarts, {state}");
                    let again = restarts == "1" || state == "PENDING";
                    Ok(if again { Attempt::Ready(()) } else { Attempt::NotYet(said) })
                })
                .await?;
                self.job.slurm.start_node(NODES[1])?;
            }
        }
        self.completed(&number).await?;
        let attempts = self.ledger(&number);
        self.nothing_is_lost(&attempts, 2)?;
        let first: Vec<u64> =
            attempts.iter().filter(|(attempt, _)| *attempt == 0).map(|(_, step)| *step).collect();
        let done = first.last().copied().unwrap_or_default();
        let again = attempts.iter().find(|(attempt, _)| *attempt > 0).map_or(0, |(_, step)| *step);
        // One that was told to end in time has saved all.
        let told = match self.by {
            By::Duration => true,
            By::TimeLimit | By::Preemption => saves_on_signal(self.job.options.body, self.job.options.mode),
            _ => false,
        };
        ensure!(!told || again == done + 1, "step {done} is followed by {again}: {}", self.job.printed());
        Ok(())
    }

    /// While a job runs nobody else gets its folder; when it has ended, who asks for it.
    async fn another(&mut self, first: &str) -> Result<()> {
        self.has_done(first, 6).await?;
        let name: &'static str = Box::leak(format!("shardplan-{first}").into_boxed_str());
        self.job.variables.push(("SHARDPLAN_RESUME", name));
        // A filter of whoever submits, which would hide jobs that run.
        self.job.variables.push(("SQUEUE_STATES", "PD"));
        let early = self.job.submit()?;
        self.is_next(&early);
        let (state, code) = self.job.slurm.finished(&early, LONG).await?;
        ensure!(state == "FAILED" && code == "1:0", "{state} {code}: {}", self.job.printed());
        ensure!(self.job.printed().contains(&format!("job {first} still has")), "{}", self.job.printed());
        // Held in the queue it keeps the first from nothing.
        self.scontrol(&["requeuehold", &early])?;
        self.scontrol(&["requeue", first])?;
        self.is_next(first);
        let begun = self.ledger(first).len();
        self.has_done(first, begun + 3).await?;
        succeeded(self.job.slurm.command("scancel")?.arg(&early))?;
        succeeded(self.job.slurm.command("scancel")?.arg(first))?;
        self.job.slurm.finished(first, LONG).await?;
        let last = self.job.submit()?;
        self.completed(&last).await?;
        let mut done = self.ledger(first);
        done.extend(self.ledger(&last).into_iter().map(|(attempt, step)| (attempt + 2, step)));
        self.nothing_is_lost(&done, 2)
    }

    /// Each step was trained, and only what was done since the last checkpoint twice.
    fn nothing_is_lost(&self, done: &[(u64, u64)], least_attempts: usize) -> Result<()> {
        let steps: BTreeSet<u64> = done.iter().map(|(_, step)| *step).collect();
        ensure!(steps == (1..=STEPS).collect(), "it has done {done:?}: {}", self.job.printed());
        let mut attempts: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for (attempt, step) in done {
            attempts.entry(*attempt).or_default().push(*step);
        }
        ensure!(attempts.len() >= least_attempts, "there are {} attempts", attempts.len());
        let mut last = 0;
        for (attempt, steps) in &attempts {
            let first = steps.first().copied().unwrap_or_default();
            ensure!(steps.windows(2).all(|pair| pair[1] == pair[0] + 1), "attempt {attempt}: {steps:?}");
            ensure!(first > last || last - first < EVERY, "{first} is done again after {last}");
            ensure!(first <= last + 1, "{first} follows {last}");
            last = steps.last().copied().unwrap_or_default();
        }
        Ok(())
    }
}

const TRAINER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/slurm/trainer.py");
const OPTIONS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../planner/frameworks/tests/options");

/// Every file of a folder with what is in it.
fn files(folder: &Path) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).with_context(|| format!("{} is gone", folder.display()))? {
            let path = entry?.path();
            if path.is_symlink() {
                found.insert(path.clone(), path.read_link()?.into_os_string().into_encoded_bytes());
            } else if path.is_dir() {
                folders.push(path);
            } else {
                found.insert(path.clone(), std::fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

/// Runs all at once, and says of each that fails what it was.
async fn all(trainings: Vec<(By, Body, Mode)>) -> Result<()> {
    let mut tasks = Vec::new();
    for (by, body, mode) in trainings {
        let task = tokio::spawn(async move {
            let mut training = Training::new(by, body, mode)?;
            training.run().await
        });
        tasks.push((format!("{by:?} {} {}", mode.name(), body.name()), task));
    }
    let mut failed = Vec::new();
    for (name, task) in tasks {
        if let Err(error) = task.await? {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    if failed.is_empty() { Ok(()) } else { bail!("{}", failed.join("\n\n")) }
}

/// Ways in which every framework is to be interrupted; none where a few cases are enough.
fn wanted() -> Vec<By> {
    let named = std::env::var("SHARDPLAN_INTERRUPTIONS").unwrap_or_default();
    let is_named = |by: &By| named == "all" || named.split(',').any(|name| name == format!("{by:?}"));
    WAYS.into_iter().filter(is_named).collect()
}

#[tokio::test]
async fn every_framework_goes_on_after_what_ends_an_attempt_and_nothing_is_lost() -> Result<()> {
    let ways = wanted();
    if ways.is_empty() {
        all(vec![
            (By::Requeue, Body::Mlm, Mode::Srun),
            (By::Torn, Body::Bridge, Mode::Srun),
            (By::Torn, Body::Mlm, Mode::Srun),
            (By::Requeue, Body::Automodel, Mode::Srun),
            (By::Kill, Body::Torchtitan, Mode::Torchrun),
            (By::Duration, Body::Mlm, Mode::Torchrun),
            (By::Twice, Body::Bridge, Mode::Torchrun),
        ])
        .await?;
        // By itself: while it runs another job has to start beside it.
        return all(vec![(By::Another, Body::Torchtitan, Mode::Srun)]).await;
    }
    for by in ways {
        let began = std::time::Instant::now();
        let mut of = Vec::new();
        for body in BODIES {
            of.extend(
                [Mode::Srun, Mode::Torchrun]
                    .into_iter()
                    .filter(|mode| happens(by, body, *mode))
                    .map(|mode| (by, body, mode)),
            );
        }
        let count = of.len();
        // A job that comes first, or a lost node, ends all that run.
        let alone = matches!(by, By::Preemption | By::Node);
        let groups: Vec<Vec<_>> =
            if alone { of.into_iter().map(|one| vec![one]).collect() } else { vec![of] };
        for group in groups {
            all(group).await.with_context(|| format!("{by:?}"))?;
            Slurm::shared()?.wait_until_idle(LONG)?;
        }
        // For whoever reads what a soak says.
        eprintln!("{by:?}: {count} trainings in {:.0} s", began.elapsed().as_secs_f64());
    }
    Ok(())
}
