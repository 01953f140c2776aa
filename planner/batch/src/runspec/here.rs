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

/// How many GPUs of a node a script is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// As many as its header, or a profile, says.
    Said(Gpus),
    /// As many as its header's format has where the header says none.
    Usual(u64),
    /// Nothing says it: the script has no runspec.
    Open,
}

/// What stands behind every number of processes without a GPU.
const GLOO: &str = "process groups must be gloo's there: init_process_group() chooses it, and \"nccl\" fails";

/// Processes under torchrun on this machine, and what a person should know of it. `asked` is a number that was asked
/// for itself and stands; `wanted` is the number of GPUs that the script is for, which the machine may not have.
pub fn processes_here(
    asked: Option<&Processes>,
    wanted: Wanted,
    devices: Devices,
) -> (Processes, Vec<Finding>) {
    match asked {
        Some(asked) => (asked.clone(), of_asked(asked, devices).into_iter().collect()),
        None => of_wanted(wanted, devices),
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
            let message = format!(
                "torchrun is to start {count} processes, and {} visible here",
                counted(gpus, "GPU is", "GPUs are")
            );
            Some(Finding::warning("nproc", *count, message).nearest([gpus]))
        }
        _ => None,
    }
}

fn of_wanted(wanted: Wanted, devices: Devices) -> (Processes, Vec<Finding>) {
    let each = |word: &str| Processes::Each(word.to_owned());
    let field = "resources.gpus_per_node";
    let count = match wanted {
        Wanted::Said(Gpus::Count(count)) | Wanted::Usual(count) => Some(count),
        Wanted::Said(Gpus::All(_)) | Wanted::Open => None,
    };
    let whose = match wanted {
        Wanted::Usual(_) => ", as a runspec is that says no number",
        _ => "",
    };
    match (count, devices) {
        (Some(said), Devices::Gpus(gpus)) if said > gpus => {
            let message = format!(
                "this script is for {said} GPUs a node{whose}, and {} visible here: {} started; --nproc {said} starts \
                 {said} all the same",
                counted(gpus, "is", "are"),
                processes(gpus)
            );
            (Processes::Count(gpus), vec![Finding::warning(field, said, message).nearest([gpus])])
        }
        (Some(said), Devices::None) if said > 1 => {
            let message = format!(
                "this script is for {said} GPUs a node{whose}, and no GPU is visible here: {} started on the CPU; {GLOO}; \
                 --nproc 1 starts one",
                processes(said)
            );
            (Processes::Count(said), vec![Finding::warning(field, said, message)])
        }
        // How many there are is torch's to count, and nobody said another number.
        (Some(_), Devices::Named(word)) if matches!(wanted, Wanted::Usual(_)) => (each(word), Vec::new()),
        (Some(said), _) => (Processes::Count(said.max(1)), Vec::new()),
        (_, Devices::Gpus(_)) => (each("gpu"), Vec::new()),
        (_, Devices::Named(word)) => (each(word), Vec::new()),
        (_, Devices::None) => {
            let message = format!(
                "one process for each GPU is started, and no GPU is visible here: one process is started on the CPU; \
                 {GLOO}; --nproc N starts more"
            );
            let finding = match wanted {
                Wanted::Open => Finding::warning("nproc", 1, message),
                _ => Finding::warning(field, "gpu", message),
            };
            (Processes::Count(1), vec![finding])
        }
    }
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn processes(count: u64) -> String {
    if count == 1 { "one process is".to_owned() } else { format!("{count} processes are") }
}
