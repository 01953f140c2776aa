//! How many processes are started on this machine.

use super::settings::Processes;
use super::spec::Gpus;
use planner::finding::Finding;

/// What a machine has to compute on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Devices {
    /// That many GPUs of NVIDIA are visible; at least one.
    Gpus(u64),
    /// Devices that only torch counts: AMD's, which it calls `gpu`, or Intel's, which it calls `xpu`.
    Named(&'static str),
    /// The CPU alone.
    None,
}

/// What stands behind every number of processes without a GPU.
const GLOO: &str = "process groups must be gloo's there: init_process_group() chooses it, and \"nccl\" fails";

/// Processes under torchrun on this machine, and what a person should know of it. `asked` is a number that was asked
/// for itself and stands; `said` is the number of GPUs that the script says, which the machine may not have.
pub fn processes_here(
    asked: Option<&Processes>,
    said: Option<Gpus>,
    devices: Devices,
) -> (Processes, Vec<Finding>) {
    match asked {
        Some(asked) => (asked.clone(), of_asked(asked, devices).into_iter().collect()),
        None => of_said(said, devices),
    }
}

fn of_asked(asked: &Processes, devices: Devices) -> Option<Finding> {
    match (asked, devices) {
        (Processes::Each(word), Devices::None) if word == "gpu" => Some(Finding::warning(
            "nproc",
            word.as_str(),
            "torchrun is to start one process per GPU, and no GPU is visible here, so it will refuse; give a number \
             with --nproc",
        )),
        (Processes::Count(count), Devices::Gpus(gpus)) if *count > gpus => {
            let message = format!("torchrun is to start {count} processes, and {gpus} GPUs are visible here");
            Some(Finding::warning("nproc", *count, message).nearest([gpus]))
        }
        _ => None,
    }
}

fn of_said(said: Option<Gpus>, devices: Devices) -> (Processes, Vec<Finding>) {
    let each = |word: &str| Processes::Each(word.to_owned());
    let field = "resources.gpus_per_node";
    match (said, devices) {
        (Some(Gpus::Count(said)), Devices::Gpus(gpus)) if said > gpus => {
            let message = format!(
                "this script is for {said} GPUs a node, and {gpus} are visible here: {} started; --nproc {said} starts \
                 {said} all the same",
                processes(gpus)
            );
            (Processes::Count(gpus), vec![Finding::warning(field, said, message).nearest([gpus])])
        }
        (Some(Gpus::Count(said)), Devices::None) if said > 1 => {
            let message = format!(
                "this script is for {said} GPUs a node, and no GPU is visible here: {} started on the CPU; {GLOO}; \
                 --nproc 1 starts one",
                processes(said)
            );
            (Processes::Count(said), vec![Finding::warning(field, said, message)])
        }
        (Some(Gpus::Count(said)), _) => (Processes::Count(said.max(1)), Vec::new()),
        (_, Devices::Gpus(_)) => (each("gpu"), Vec::new()),
        (_, Devices::Named(word)) => (each(word), Vec::new()),
        (_, Devices::None) => {
            let message = format!(
                "one process for each GPU is started, and no GPU is visible here: one process is started on the CPU; \
                 {GLOO}; --nproc N starts more"
            );
            (Processes::Count(1), vec![Finding::warning(field, "gpu", message)])
        }
    }
}

fn processes(count: u64) -> String {
    if count == 1 { "one process is".to_owned() } else { format!("{count} processes are") }
}
