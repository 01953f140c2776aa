//! What a run folder says of its steps: the plan as it ran, the device, the seconds.

use std::path::Path;

use planner::calibration::{Measured, as_it_ran, typical_seconds};
use planner::wire::Event;
use run_folder::{RunFolder, each};

use crate::report::Failure;

/// Steps of rank 0 that are read at most; a calibration needs a few.
const MOST_STEPS: usize = 100_000;

/// A run as a measured step, named by its id, by which the page knows the run that a profile was fitted to.
///
/// # Errors
/// When the folder is not that of a run, or has no step.
pub fn history(path: &Path) -> anyhow::Result<Measured> {
    let path = path.canonicalize().map_err(|error| {
        Failure::usage_of_file(path, &format!("this run folder can't be opened: {error}"))
    })?;
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let missing = |what: &str| Failure::usage(format!("{what}: {}", path.display()));
    let folder = path
        .parent()
        .and_then(|runs| RunFolder::at(runs, &name))
        .ok_or_else(|| missing("this is not a run folder"))?;
    if let Some(refusal) = folder.refusal() {
        return Err(Failure::usage(refusal));
    }
    let plan =
        folder.plan().ok_or_else(|| missing("there is no plan.json of this version in this folder"))?;
    let info = folder.info().ok_or_else(|| missing("there is no run.json of this version in this folder"))?;
    let (device, steps) = first_rank(&path.join(folder.first_log()));
    let seconds = typical_seconds(steps)
        .ok_or_else(|| missing("the first rank has recorded no step in this folder"))?;
    let file = as_it_ran(&plan, &device, info.slurm_job.is_none());
    Ok(Measured { name: info.id, file, seconds })
}

fn first_rank(path: &Path) -> (String, Vec<(u64, f64)>) {
    let (mut device, mut steps, mut plan) = (String::new(), Vec::new(), String::new());
    each(path, |record| match record.event {
        Event::Joined(joined) => {
            // Steps of another layout, before a failure or a return from one, are not of this plan.
            if joined.plan_sha256 != plan {
                steps.clear();
            }
            (device, plan) = (joined.device, joined.plan_sha256);
        }
        Event::Step(step) if steps.len() < MOST_STEPS => steps.push((step.step, step.seconds)),
        _ => {}
    });
    (device, steps)
}
