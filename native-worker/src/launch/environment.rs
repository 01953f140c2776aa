//! The environment of a program that is started.

use std::ffi::OsString;
use std::process::Command;

use batch::runspec::Invocation;

/// A process for `invocation`. Everything that it does not change is inherited.
pub fn command(invocation: &Invocation) -> Command {
    let mut words = invocation.command.iter();
    let mut command = Command::new(words.next().map_or("", String::as_str));
    command.args(words);
    if let Some(folder) = &invocation.folder {
        command.current_dir(folder);
    }
    for name in &invocation.unset {
        command.env_remove(name);
    }
    command.envs(&invocation.set);
    for (name, folder) in &invocation.prepend {
        // What is set for the child is before what is inherited.
        let present = invocation.set.get(name).map(OsString::from).or_else(|| std::env::var_os(name));
        let mut list = OsString::from(folder);
        if let Some(present) = present.filter(|present| !present.is_empty()) {
            list.push(":");
            list.push(present);
        }
        command.env(name, list);
    }
    command
}

/// Whether this process is one of several of one job on this node, as torchrun, Slurm and Open MPI say.
pub fn is_one_of_several() -> bool {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let number =
        |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok()).unwrap_or(1);
    set("LOCAL_RANK")
        || (set("SLURM_PROCID") && number("SLURM_STEP_NUM_TASKS").max(number("SLURM_NTASKS")) > 1)
        || number("OMPI_COMM_WORLD_SIZE") > 1
}
