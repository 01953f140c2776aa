//! Runspecs: how a training script says, in a comment at its top, what it needs and how it is started; and the command
//! that starts it.
//!
//! The header is a PEP 723 block with a table `[tool.runspec]`. Beside it stand a stage's `pyproject.toml` and a
//! person's `env.toml`. Everything here is a function of those texts and of what was found on the machine, so a
//! command can be shown, tested and compared without running anything. Rules come from NVIDIA-NeMo/Nemotron
//! (`src/nemo_runspec` and pull request 165) and from astral-sh/uv (`crates/uv-torch`), except where they are said to
//! differ.

mod accelerator;
mod block;
mod command;
mod config;
mod container;
mod cuda;
mod document;
mod header;
mod here;
mod packages;
mod profile;
mod requirement;
mod settings;
mod spec;
mod stage;
mod torch;

pub use accelerator::{Accelerator, Detected, OperatingSystem, Source, detect};
pub use block::Block;
pub use command::{
    Invocation, Plain, Repo, UvRun, launcher_arguments, own_command, plain, shell_line, shown_variables,
    sync, uv_run, without_secrets,
};
pub use config::{ConfigFile, config_file};
pub use container::{InContainer, container_project, container_steps, start_in};
pub use cuda::{Choice, DriverVersion, choose_extra, needs_detection, pinned_backend, supports};
pub use header::{Header, Packages, header, parse};
pub use here::{Devices, Wanted, processes_here};
pub use packages::{From as PackagesFrom, Installation, batch_commands, installation};
pub use profile::{LaidProfile, profile};
pub use requirement::{allows, requirement_of};
pub use settings::{Executor, Processes, Settings, settings};
pub use spec::{ConfigFormat, Gpus, Launch, Runspec, USUAL_GPUS};
pub use stage::{DEFAULT_EXCLUDED, Stage, read_stage, switched_extras};
pub use torch::{locked_mismatch, mismatch};

#[cfg(test)]
mod tests;
