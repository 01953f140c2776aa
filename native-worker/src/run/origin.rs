//! What `--resume` names: a run, a folder of checkpoints, or one checkpoint.

use std::path::{Path, PathBuf};
use std::time::Duration;

use planner::wire::{CheckpointIndex, PlanFile, RunInfo};
use run_folder::{Checkpoint, Checkpoints, RunFolder, is_id};

use crate::process::{Liveness, liveness};
use crate::report::{Failure, notice};

/// Something to go on from.
#[derive(Debug)]
pub struct Origin {
    folder: PathBuf,
    checkpoints: Checkpoints,
    /// The one checkpoint that is named.
    one: Option<Checkpoint>,
}

impl Origin {
    /// Finds it: a run's id in `runs`, or a path.
    ///
    /// # Errors
    /// When there is no such folder.
    pub fn find(runs: &Path, named: &Path) -> anyhow::Result<Origin> {
        let of_id =
            named.to_str().filter(|id| is_id(id)).map(|id| runs.join(id)).filter(|path| path.is_dir());
        let folder = of_id.unwrap_or_else(|| named.to_owned());
        let Ok(folder) = folder.canonicalize() else {
            let message =
                format!("there is no run {} in {}, and no such folder", named.display(), runs.display());
            return Err(Failure::of_named(named, message));
        };
        let one = Checkpoint::at(&folder).filter(Checkpoint::has_index);
        let (at, of_run) = (Checkpoints::at(&folder), Checkpoints::of_run(&folder));
        // A run's folder whose description is lost still has its checkpoints.
        let is_run =
            folder.join(run_folder::INFO).is_file() || at.all().is_empty() && !of_run.all().is_empty();
        let checkpoints = if one.is_none() && is_run { of_run } else { at };
        Ok(Origin { folder, checkpoints, one })
    }

    /// The folder that its checkpoints are in, or the one that is named.
    ///
    /// # Errors
    /// When there is none, or the one that is named can't be gone on from.
    pub fn checkpoints(&self) -> anyhow::Result<PathBuf> {
        if let Some(one) = &self.one {
            one.index().map_err(Failure::environment)?;
            return Ok(one.path.clone());
        }
        if self.checkpoints.all().is_empty() {
            return Err(Failure::environment(format!(
                "there is no checkpoint in {}: a run saves when its plan says so (run.checkpoint), or trains on data of your own",
                self.checkpoints.folder().display()
            )));
        }
        Ok(self.checkpoints.folder().to_owned())
    }

    /// The newest checkpoint that is whole, read to its last byte.
    ///
    /// # Errors
    /// When there is none.
    pub fn newest_whole(&self) -> anyhow::Result<(Checkpoint, CheckpointIndex)> {
        self.checkpoints()?;
        let all = self.one.clone().map_or_else(|| self.checkpoints.all(), |one| vec![one]);
        let mut last = String::new();
        for checkpoint in all {
            let index = checkpoint.index();
            let checked = index.and_then(|index| {
                index.files.iter().try_for_each(|part| checkpoint.check(part)).map(|()| index)
            });
            match checked {
                Ok(index) => return Ok((checkpoint, index)),
                Err(reason) if self.one.is_some() => return Err(Failure::environment(reason)),
                Err(reason) => {
                    notice(&format!("the checkpoint of step {} is passed over: {reason}", checkpoint.step));
                    last = reason;
                }
            }
        }
        Err(Failure::environment(format!("no checkpoint in {} is whole: {last}", self.folder.display())))
    }

    /// The plan of the run, the whole one where failures have left it with less; else that of its newest checkpoint.
    ///
    /// # Errors
    /// When there is none.
    pub fn plan(&self) -> anyhow::Result<PlanFile> {
        self.checkpoints()?;
        let of_run = self
            .one
            .is_none()
            .then(|| self.run_folder().and_then(|run| run.whole_plan().or_else(|| run.plan())))
            .flatten();
        let newest = self.one.clone().or_else(|| self.checkpoints.all().into_iter().next());
        match (of_run, newest.map(|one| one.index())) {
            (Some(plan), _) => Ok(plan),
            (None, Some(Ok(index))) => Ok(index.plan),
            (None, Some(Err(reason))) => Err(Failure::environment(reason)),
            (None, None) => Err(Failure::environment(format!("{} has no plan", self.folder.display()))),
        }
    }

    /// The run's id, where a run is named.
    pub fn id(&self) -> Option<&str> {
        let is_run = self.one.is_none() && self.folder.join(run_folder::INFO).is_file();
        self.folder.file_name()?.to_str().filter(|_| is_run)
    }

    fn run_folder(&self) -> Option<RunFolder> {
        let (runs, id) = (self.folder.parent()?, self.folder.file_name()?.to_str()?);
        RunFolder::at(runs, id)
    }

    /// The run that is named, which nobody trains now, or once whoever does has ended within `patience`.
    ///
    /// # Errors
    /// When it is no run, somebody trains it, or others may write into it.
    pub fn run(&self, patience: Duration) -> anyhow::Result<(RunFolder, RunInfo)> {
        let refused = |reason: String| Failure::environment(reason);
        if let Some(one) = &self.one {
            // With a plan beside it there is no going on either.
            one.index().map_err(refused)?;
        }
        let found = self.run_folder().and_then(|folder| Some((folder.info()?, folder)));
        let Some((info, folder)) = found.filter(|_| self.one.is_none()) else {
            let info = self.folder.join(run_folder::INFO);
            let is_lost = self.one.is_none() && self.checkpoints.folder() != self.folder && !info.exists();
            if is_lost {
                let own = self.folder.join("plan.json");
                let plan = if own.is_file() { own.display().to_string() } else { "PLAN".to_owned() };
                return Err(Failure::usage(format!(
                    "{} is missing, without which a run is not gone on with; its checkpoints are there, so begin a new run from them: \
                     shardplan run {plan} --resume {}",
                    info.display(),
                    self.folder.display()
                )));
            }
            return Err(Failure::usage(format!(
                "{} is no run, so give a plan beside --resume: a new run is begun from there",
                self.folder.display()
            )));
        };
        if let Some(reason) = folder.refusal() {
            return Err(refused(reason));
        }
        run_folder::check_written_by_us(&folder.info_path()).map_err(|error| refused(error.to_string()))?;
        if info.source.is_some() {
            let message = format!("{} was another framework's run, which goes on by its own script", info.id);
            return Err(refused(message));
        }
        let trains = info.launcher.as_ref().map(|launcher| (liveness(launcher, &info.host), launcher.pid));
        match trains {
            Some((Liveness::Alive, pid)) => {
                let message = format!("run {} is still trained (process {pid}); stop it first", info.id);
                Err(refused(message))
            }
            Some((Liveness::Elsewhere, _)) => Err(refused(format!(
                "run {} was started on {}, and whether it still trains can't be seen from here; go on there, or give a plan for a \
                 run of its own",
                info.id, info.host
            ))),
            // Ranks that Slurm has started have no launcher; they say by their lock that they train.
            Some((Liveness::Gone, _)) | None => match self.checkpoints.wait_for(patience) {
                Err(error) if error.kind() == std::io::ErrorKind::ResourceBusy => {
                    Err(refused(format!("run {} is still trained: {error}", info.id)))
                }
                _ => Ok((folder, info)),
            },
        }
    }
}
