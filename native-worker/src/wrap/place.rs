//! Where a watched command's record goes: which folder, which log, who writes what of the whole run.
//!
//! One process that watches alone makes a folder of its own. Where a launcher starts several (srun, torchrun), all
//! write into one, whose name each works out from what the launcher gave it.

use std::collections::BTreeMap;

use crate::run::folder::{is_id, new_id};

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
}

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
        let slurm_job = variables.get("SLURM_JOB_ID").filter(|job| crate::hub::is_job_id(job)).cloned();
        let mut place = Place {
            id: String::new(),
            writer: 0,
            writers: 1,
            first_here: true,
            slurm_job: slurm_job.clone(),
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
                (true, Some((time, parent))) => Some(format!("{time}-torchrun-{parent}{restart}")),
                _ => Some(format!("torchrun-{}{restart}", plain(run))),
            };
        } else if let (Some(job), Some(task), Some(tasks), Some(step)) =
            (&slurm_job, number("SLURM_PROCID"), number("SLURM_STEP_NUM_TASKS"), number("SLURM_STEP_ID"))
            && tasks > 1
        {
            (place.writer, place.writers) = (task, tasks);
            place.first_here = number("SLURM_LOCALID").is_none_or(|task| task == 0);
            let time =
                number("SLURM_JOB_START_TIME").and_then(utc).map_or(String::new(), |time| format!("{time}-"));
            shared = Some(format!("{time}slurm-{job}-{step}"));
        }
        place.id = match id.map(str::to_owned).or(shared).filter(|id| is_id(id)) {
            Some(id) => id,
            None => new_id()?,
        };
        Ok(place)
    }

    /// Name of this process's log.
    pub fn log(&self, host: &str) -> String {
        match self.writers {
            1 => format!("launcher-{}.log", plain(host)),
            _ => format!("rank-{:05}.log", self.writer),
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

/// When the parent was started, and its number: the same for all that it started.
fn parent_start() -> Option<(String, u32)> {
    let parent = std::os::unix::process::parent_id();
    let started = crate::run::process::started_unix(parent)?;
    Some((utc(started)?, parent))
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
    }
}
