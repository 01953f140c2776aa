//! What a plan file leaves open, filled: by what the framework's recipe sets, else by the defaults of plan files.

mod batch;
mod checkpoints;
mod cluster;
mod defaults;
mod documents;
mod evaluation;
mod filler;
mod fsdp;
mod named_model;
mod recipe;
mod run;
mod training;

pub(crate) use batch::assumed_batch;
pub use cluster::usual_node;
pub(crate) use defaults::fill as with_defaults;
pub(crate) use named_model::{architecture, named_model};
pub(crate) use recipe::take_back;

use crate::cluster::{gpu, gpus};
use crate::finding::{Finding, clip, has_error, nearest_names};
use crate::plan::Plan;
use crate::recipes::Among;
use crate::rules::{self, Shape};
use crate::runtime::Runtime;
use crate::wire::{FrameworkAnswer, PlanFile, VERSION};

/// A plan file with defaults filled and no rule checked.
pub struct Filled {
    /// The plan, where model and cluster could be read.
    pub plan: Option<Plan>,
    /// What can't be read or is out of range.
    pub findings: Vec<Finding>,
    /// Paths of the fields that were filled by a default.
    pub assumed: Vec<String>,
    /// What the framework that the file names set.
    pub framework: Option<FrameworkAnswer>,
}

/// Fills every default of `file`, without a look at the rules.
pub fn fill(file: &PlanFile) -> Filled {
    fill_among(file, Among::All)
}

/// The same with a choice of recipes.
#[inline(never)]
pub(crate) fn fill_among(file: &PlanFile, among: Among) -> Filled {
    let mut findings = Vec::new();
    let mut assumed = Vec::new();
    let mut framework = None;
    if file.version != VERSION {
        findings.push(
            Finding::error(
                "version",
                file.version,
                format!("plan files are of version {VERSION}, and this one says {}", file.version),
            )
            .nearest([VERSION]),
        );
    }
    let model = named_model(file, &mut findings, &mut assumed);
    let gpu = gpu(&file.cluster.gpu);
    if gpu.is_none() {
        let ids: Vec<&str> = gpus().iter().map(|gpu| gpu.id).collect();
        let message = format!(
            "`{}` is not a GPU of the catalogue; known are {}",
            clip(&file.cluster.gpu),
            ids.join(", ")
        );
        let wanted = file.cluster.gpu.as_str();
        findings.push(
            Finding::error("cluster.gpu", clip(wanted), message).nearest(nearest_names(wanted, ids, 3)),
        );
    }
    let plan = match (model, gpu) {
        (Some((model, title)), Some(gpu)) => {
            let filled = defaults::fill((file, among), model, &title, gpu, &mut findings, &mut assumed);
            framework = filled.1;
            Some(filled.0)
        }
        _ => None,
    };
    Filled { plan, findings, assumed, framework }
}

/// The plan of a file that breaks no rule of those that know no more than the plan; none of another. Whoever asks for a plan that
/// follows from a valid one needs no more, and no finding.
#[inline(never)]
pub(crate) fn valid(file: &PlanFile) -> Option<Plan> {
    let Filled { plan, findings, .. } = fill(file);
    plan.filter(|plan| !has_error(&findings) && rules::check(&Shape::of(plan)).is_empty())
}

impl Plan {
    /// The same layout with runtime native, whatever the worker knows.
    pub fn native(&self) -> PlanFile {
        let mut file = self.file.clone();
        file.runtime = Some(Runtime::OF_WORKER);
        // What another framework's recipe sets is not the worker's.
        file.software.framework = None;
        take_back(&mut file.training, &self.software.set);
        file
    }
}
