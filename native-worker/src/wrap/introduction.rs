//! What a run is, in its folder: the plan and `run.json`. A disk that is full when the command starts gets them later.

use std::time::{Duration, Instant};

use planner::wire::{PlanFile, RunInfo};

use run_folder::RunFolder;

/// How long a disk is left alone that has refused them.
const RETRY: Duration = Duration::from_secs(1);

/// The plan and `run.json` of a run.
pub struct Introduction {
    folder: RunFolder,
    plan: Option<PlanFile>,
    info: RunInfo,
    tried: Option<Instant>,
    written: bool,
}

impl Introduction {
    /// Of the run in `folder`; nothing is written yet.
    pub fn new(folder: RunFolder, plan: Option<PlanFile>, info: RunInfo) -> Introduction {
        Introduction { folder, plan, info, tried: None, written: false }
    }

    /// Writes them, unless that was done or has just failed.
    pub fn write(&mut self) {
        if self.written || self.tried.is_some_and(|tried| tried.elapsed() < RETRY) {
            return;
        }
        self.tried = Some(Instant::now());
        let plan = self.plan.as_ref().map_or(Ok(()), |plan| self.folder.write_plan(plan));
        self.written = plan.and_then(|()| self.folder.write_info(&self.info)).is_ok();
    }

    /// Writes them if they never were, for the last time.
    pub fn write_at_last(&mut self) {
        self.tried = None;
        self.write();
    }
}
