//! Where a watched command's record goes: which folder, which log, who writes what of the whole run.
//!
//! One process that watches alone makes a folder of its own. Where a launcher starts several (srun, torchrun), all
//! write into one, whose name each works out from what the launcher gave it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use crate::run::new_id;
use run_folder::{LogWriter, is_id, is_job_id};

/// This process's place among those that watch one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The run's id.
    pub id: String,
    /// This one's number, from 0.
    pub writer: u64,
    /// How many there are.
    pub writers: u64,
    /// Whether it is the first on its host, which looks at GPUs and host.
    pub first_here: bool,
    /// The Slurm job.
    pub slurm_job: Option<String>,
    /// When the launcher was started, in seconds since 1970, where it gives every one of its runs the same id.
    pub same_id_since: Option<u64>,
}

/// How far apart the launchers of one run start on their nodes, at most.
const APART: Duration = Duration::from_secs(15 * 60);
/// Runs of one id that are told apart.
const MOST_RUNS: u32 = 10_000;

/// The variables that launchers set.
pub type Variables = BTreeMap<String, String>;

/// The variables of this process that are looked at.
pub fn variables() -> Variables {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

impl Place {
    /// The place of this process. `id` is the id that was asked for.
    ///
    /// # Errors
    /// When the system gives no random bytes.
    pub fn find(id: Option<&str>, variables: &Variables) -> anyhow::Result<Place> {
        let number = |name: &str| variables.get(name).and_then(|value| value.parse::<u64>().ok());
        let slurm_job = variables.get("SLURM_JOB_ID").filter(|job| is_job_id(job)).cloned();
        let mut place = Place {
            id: String::new(),
            writer: 0,
            writers: 1,
            first_here: true,
            slurm_job: slurm_job.clone(),
            same_id_since: None,
        };
        let mut shared = None;
        let elastic = variables.get("TORCHELASTIC_RUN_ID");
        if let (Some(run), Some(rank), Some(world)) = (elastic, number("RANK"), number("WORLD_SIZE")) {
            (place.writer, place.writers) = (rank, world);
            place.first_here = number("LOCAL_RANK").is_none_or(|rank| rank == 0);
            let restart = number("TORCHELASTIC_RESTART_COUNT").filter(|&count| count > 0);
            let restart = restart.map_or(String::new(), |count| format!("-restart-{count}"));
            let one_node = number("GROUP_WORLD_SIZE").is_none_or(|nodes| nodes <= 1);
            shared = match (one_node, parent_start()) {
                (true, Some((started, parent))) => {
                    utc(started).map(|time| format!("{time}-torchrun-{parent}{restart}"))
                }
                _ => match step_name(variables) {
                    Some(step) => Some(format!("{step}{restart}")),
                    // What nodes have in common here, every run of the same words has too.
                    None => {
                        place.same_id_since = Some(parent_start().map_or(0, |(started, _)| started));
                        Some(format!("torchrun-{}{restart}", plain(run)))
                    }
                },
            };
        } else if let (Some(task), Some(tasks), Some(step)) =
            (number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS"), step_name(variables))
            && tasks > 1
        {
            (place.writer, place.writers) = (task, tasks);
            place.first_here = number("SLURM_LOCALID").is_none_or(|task| task == 0);
            shared = Some(step);
        }
        if id.is_some() {
            place.same_id_since = None;
        }
        place.id = match id.map(str::to_owned).or(shared).filter(|id| is_id(id)) {
            Some(id) => id,
            None => new_id()?,
        };
        Ok(place)
    }

    /// Makes this the only one that watches: the others of its launcher do not.
    pub fn stand_alone(&mut self) {
        (self.writer, self.writers, self.first_here) = (0, 1, true);
    }

    /// Numbers the id where every run of its launcher has the same: the first number under which this process has not
    /// written yet, and nothing else has changed for long before its launcher was started.
    pub fn number_among(&mut self, runs: &Path, host: &str) {
        let Some(since) = self.same_id_since else { return };
        let since = UNIX_EPOCH + Duration::from_secs(since);
        let first = self.id.clone();
        for number in 1..=MOST_RUNS {
            let id = if number == 1 { first.clone() } else { format!("{first}-{number}") };
            let folder = runs.join(&id);
            let is_this_run = match std::fs::metadata(&folder).and_then(|metadata| metadata.modified()) {
                Ok(changed) => !folder.join(self.log(host)).exists() && changed + APART >= since,
                Err(_) => true,
            };
            if is_this_run {
                self.id = id;
                return;
            }
        }
    }

    /// Name of this process's log.
    pub fn log(&self, host: &str) -> String {
        match self.writers {
            1 => LogWriter::Launcher(&plain(host)).log(),
            _ => LogWriter::Rank(self.writer).log(),
        }
    }
}

/// What may stand in a run's id.
fn plain(text: &str) -> String {
    let good = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '-' };
    text.chars().take(64).map(good).collect()
}

/// Seconds since 1970 as `20260301T100007Z`.
fn utc(seconds: u64) -> Option<String> {
    let time = jiff::Timestamp::from_second(i64::try_from(seconds).ok()?).ok()?;
    Some(time.strftime("%Y%m%dT%H%M%SZ").to_string())
}

/// A name for this start of a step of a Slurm job: the same for all of its tasks, on all nodes.
fn step_name(variables: &Variables) -> Option<String> {
    let number = |name: &str| variables.get(name).and_then(|value| value.parse::<u64>().ok());
    let job = variables.get("SLURM_JOB_ID").filter(|job| is_job_id(job))?;
    let step = number("SLURM_STEP_ID")?;
    let time = number("SLURM_JOB_START_TIME").and_then(utc).map_or(String::new(), |time| format!("{time}-"));
    let requeued = number("SLURM_RESTART_COUNT").filter(|&count| count > 0);
    let requeued = requeued.map_or(String::new(), |count| format!("-start-{}", count + 1));
    Some(format!("{time}slurm-{job}-{step}{requeued}"))
}

/// When the parent was started, in seconds since 1970, and its number: the same for all that it started.
fn parent_start() -> Option<(u64, u32)> {
    let parent = std::os::unix::process::parent_id();
    Some((crate::process::started_unix(parent)?, parent))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(id: Option<&str>, variables: &[(&str, &str)]) -> Place {
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Place::find(id, &variables).expect("a place")
    }

    #[test]
    fn alone() {
        let place = find(None, &[]);
        assert_eq!(
            (place.writer, place.writers, place.first_here, place.slurm_job.as_deref()),
            (0, 1, true, None)
        );
        assert_eq!(place.log("node.1"), "launcher-node.1.log");
        assert_ne!(place.id, find(None, &[]).id);
        assert_eq!(find(Some("mine"), &[]).id, "mine");
    }

    #[test]
    fn one_of_several_may_watch_alone() {
        let variables = [
            ("SLURM_JOB_ID", "42"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "7"),
            ("SLURM_STEP_NUM_TASKS", "8"),
        ];
        let mut place = find(None, &variables);
        place.stand_alone();
        assert_eq!((place.writer, place.writers, place.first_here), (0, 1, true));
        // The folder is the step's all the same, so that a job's runs are found by its number.
        assert_eq!((place.id.as_str(), place.log("n1").as_str()), ("slurm-42-0", "launcher-n1.log"));
    }

    #[test]
    fn tasks_of_slurm_share_a_folder() {
        let task = |number| {
            find(
                None,
                &[
                    ("SLURM_JOB_ID", "42"),
                    ("SLURM_STEP_ID", "1"),
                    ("SLURM_PROCID", number),
                    ("SLURM_LOCALID", number),
                    ("SLURM_STEP_NUM_TASKS", "2"),
                    ("SLURM_JOB_START_TIME", "1767225600"),
                ],
            )
        };
        assert_eq!(task("0").id, "20260101T000000Z-slurm-42-1");
        assert_eq!(task("0").id, task("1").id);
        assert_eq!(
            (task("1").writer, task("1").first_here, task("1").log("x").as_str()),
            (1, false, "rank-00001.log")
        );
        let alone =
            find(None, &[("SLURM_JOB_ID", "42"), ("SLURM_PROCID", "0"), ("SLURM_STEP_NUM_TASKS", "1")]);
        assert_eq!((alone.writers, alone.slurm_job.as_deref()), (1, Some("42")));
        assert_eq!(find(None, &[("SLURM_JOB_ID", "4; rm")]).slurm_job, None);
    }

    #[test]
    fn workers_of_torchrun_share_a_folder() {
        let worker = |rank, restarts| {
            find(
                None,
                &[
                    ("TORCHELASTIC_RUN_ID", "none"),
                    ("RANK", rank),
                    ("LOCAL_RANK", rank),
                    ("WORLD_SIZE", "4"),
                    ("GROUP_WORLD_SIZE", "1"),
                    ("TORCHELASTIC_RESTART_COUNT", restarts),
                ],
            )
        };
        assert_eq!(worker("0", "0").id, worker("3", "0").id);
        assert_ne!(worker("0", "0").id, worker("0", "1").id);
        assert_eq!((worker("3", "0").writer, worker("3", "0").writers), (3, 4));
        let far = find(
            None,
            &[
                ("TORCHELASTIC_RUN_ID", "my/job"),
                ("RANK", "9"),
                ("WORLD_SIZE", "16"),
                ("GROUP_WORLD_SIZE", "2"),
            ],
        );
        assert_eq!(far.id, "torchrun-my-job");
        assert!(far.same_id_since.is_some());
        let step = find(
            None,
            &[
                ("TORCHELASTIC_RUN_ID", "none"),
                ("RANK", "9"),
                ("WORLD_SIZE", "16"),
                ("GROUP_WORLD_SIZE", "2"),
                ("SLURM_JOB_ID", "42"),
                ("SLURM_STEP_ID", "0"),
                ("SLURM_RESTART_COUNT", "1"),
            ],
        );
        assert_eq!((step.id.as_str(), step.same_id_since), ("slurm-42-0-start-2", None));
    }

    #[test]
    fn runs_of_the_same_id_have_folders_of_their_own() {
        let runs = tempfile::tempdir().expect("a folder");
        let now = run_folder::unix_ms() / 1000;
        let join = |writer: u64, since: u64| {
            let mut place = find(None, &[]);
            (place.id, place.writer, place.writers) = ("torchrun-none".to_owned(), writer, 16);
            place.same_id_since = Some(since);
            place.number_among(runs.path(), "node");
            let folder = runs.path().join(&place.id);
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join(place.log("node")), "").expect("a log");
            place.id
        };
        assert_eq!([join(0, now), join(9, now + 60), join(3, now)], ["torchrun-none"; 3]);
        // The next run, whose last rank never wrote in the first.
        assert_eq!([join(9, now + 5), join(0, now)], ["torchrun-none-2"; 2]);
        // One that starts long after.
        let later = now + 3 * APART.as_secs();
        assert_eq!(join(5, later), "torchrun-none-3");
    }
}
