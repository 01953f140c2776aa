//! Steps: what an srun starts, and on how many nodes.

use super::facts::{Call, Facts};
use super::job::{self, Job};
use super::options;

/// Steps that are looked at closely; a real script has a handful.
const MOST_STEPS: usize = 200;

/// One srun.
#[derive(Debug)]
pub(super) struct Step {
    /// Its call.
    pub call: usize,
    /// Nodes, when known.
    pub nodes: Option<u64>,
    /// Tasks of a node, when known.
    pub tasks_per_node: Option<u64>,
    /// Tasks in all, when known.
    pub tasks: Option<u64>,
    /// GPUs of a node.
    pub gpus_per_node: Option<u64>,
    /// Whether its tasks are in a container of pyxis.
    pub container: bool,
    /// GPUs that Slurm gives each of its tasks for its own; none where a task sees all of its node.
    pub gpus_of_task: Option<u64>,
}

impl Step {
    /// Whether Slurm gives each of its tasks one GPU of its own.
    pub(super) fn gives_one_gpu(&self) -> bool {
        self.gpus_of_task == Some(1)
    }

    /// Whether more than one task runs for certain, or may.
    pub(super) fn is_parallel(&self) -> bool {
        self.tasks.is_none_or(|tasks| tasks > 1)
    }
}

/// All steps of a script.
pub(super) fn steps(facts: &Facts, job: &Job) -> Vec<Step> {
    let calls = facts.calls.iter().enumerate().filter(|(_, call)| call.is_step());
    calls.take(MOST_STEPS).map(|(index, call)| step(index, call, job)).collect()
}

fn step(index: usize, call: &Call, job: &Job) -> Step {
    let given = &call.options;
    let says = |name: &str| options::last(given, name).is_some();
    let resolve = |name: &str| {
        let text = &options::last(given, name)?.value.as_ref()?.text;
        let slurm = || match (text.len(), text.holes().next()) {
            (1, Some((_, hole))) => job.slurm_number(&hole.name),
            _ => None,
        };
        text.number().or_else(slurm)
    };
    // On several components nothing of the job's counts holds for the step.
    let several = Job::default();
    let (job, unknown) = job.component_of(given).map_or((&several, true), |component| (component, false));
    let nodes = if says("nodes") { resolve("nodes") } else { job.nodes };
    let each = if says("ntasks-per-node") { resolve("ntasks-per-node") } else { job.tasks_per_node };
    let total = if says("ntasks") { resolve("ntasks") } else { None };
    let unknown_total = says("ntasks") && total.is_none();
    let job_total = if says("nodes") || says("ntasks-per-node") { None } else { job.tasks };
    let (tasks, tasks_per_node) = match (total.or(job_total), nodes, each) {
        _ if unknown_total || unknown => (None, None),
        (Some(total), Some(nodes), _) if nodes > 0 => {
            (Some(total), Some(total.div_ceil(nodes.min(total.max(1)))))
        }
        (Some(total), _, each) => {
            (Some(total), each.map(|each| each.min(total)).or((total == 1).then_some(1)))
        }
        (None, Some(nodes), Some(each)) => (nodes.checked_mul(each), Some(each)),
        (None, None, Some(each)) => (None, Some(each)),
        // Without a word about tasks Slurm starts one on each node.
        (None, nodes, None) => {
            let silent = !says("ntasks-per-node")
                && job.option("ntasks-per-node").is_none()
                && job.option("ntasks").is_none();
            let by_gpu = says("ntasks-per-gpu") || job.option("ntasks-per-gpu").is_some();
            if silent && !by_gpu && job.is_batch() { (nodes, Some(1)) } else { (None, None) }
        }
    };
    let nodes = match (nodes, tasks) {
        (Some(nodes), Some(tasks)) => Some(nodes.min(tasks.max(1))),
        (None, Some(1)) => Some(1),
        (nodes, _) => nodes,
    };
    let gpus_per_node = job::gpus_of(given).or(job.gpus_per_node);
    let container = says("container-image") || says("container-name");
    let gpus_of_task = gpus_of_task(given, job);
    Step { call: index, nodes, tasks_per_node, tasks, gpus_per_node, container, gpus_of_task }
}

/// GPUs to which options of a step, or else those of its job, have Slurm bind each task.
fn gpus_of_task(given: &[options::Given], job: &Job) -> Option<u64> {
    let text = |name: &str| {
        let given = options::last(given, name).or_else(|| job.option(name))?;
        given.value.as_ref()?.text.known()
    };
    let counts = ["gpus", "gpus-per-node", "gres"].iter().any(|name| options::last(given, name).is_some());
    // `verbose,` may stand before what is bound.
    let bound = text("gpu-bind").map(|bind| bind.trim_start_matches("verbose,"));
    match bound {
        Some(bind) if bind.starts_with("single:") => Some(1),
        Some(bind) => bind.strip_prefix("per_task:")?.parse().ok(),
        // What the step counts for itself need not be dealt out as the job's are.
        None if counts && options::last(given, "gpus-per-task").is_none() => None,
        None => text("gpus-per-task")
            .and_then(job::count)
            .or_else(|| text("ntasks-per-gpu").is_some().then_some(1)),
    }
}
