//! What kind of script is wanted.

use serde::{Deserialize, Serialize};

use planner::wire::GoingOn;

use super::Body;

/// How processes are spawned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// By Slurm: one task per GPU.
    #[default]
    Srun,
    /// By torchrun: one task per node, which starts a process per GPU.
    Torchrun,
    /// By hand: steps to paste into an interactive allocation, tasks as with srun.
    Salloc,
}

impl Mode {
    /// All of them.
    pub const ALL: [Mode; 3] = [Mode::Srun, Mode::Torchrun, Mode::Salloc];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Mode::Srun => "srun",
            Mode::Torchrun => "torchrun",
            Mode::Salloc => "salloc",
        }
    }

    /// What it is, in a line of a list.
    pub const fn about(self) -> &'static str {
        match self {
            Mode::Srun => "Slurm starts one task per GPU",
            Mode::Torchrun => "Slurm starts one task per node, and torchrun a process per GPU",
            Mode::Salloc => "Steps to paste into an interactive allocation",
        }
    }
}

/// What Megatron Bridge does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Task {
    /// Trains by a recipe.
    #[default]
    Train,
    /// Converts weights from Hugging Face and back, and compares.
    Convert,
    /// Generates text.
    Generate,
}

impl Task {
    /// All of them.
    pub const ALL: [Task; 3] = [Task::Train, Task::Convert, Task::Generate];

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Task::Train => "train",
            Task::Convert => "convert",
            Task::Generate => "generate",
        }
    }

    /// What it is, in a line of a list.
    pub const fn about(self) -> &'static str {
        match self {
            Task::Train => "Train by a recipe",
            Task::Convert => "Convert weights from Hugging Face and back, and compare",
            Task::Generate => "Generate text",
        }
    }
}

/// What kind of script is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScriptOptions {
    /// How processes are spawned.
    pub mode: Mode,
    /// What they run.
    pub body: Body,
    /// What Megatron Bridge does (body bridge).
    pub task: Task,
    /// Numbers of a job array, such as `0-3` or `0-7%2`.
    pub array: Option<String>,
    /// Components of a heterogeneous job, such as `2:left,6:right`: nodes, and the partition that they come from.
    pub het: Option<String>,
    /// Words of the command (body command).
    pub command: Vec<String>,
    /// Shell commands that each task runs before the command, in its own shell (body command). The first that fails
    /// ends the task.
    pub startup: Vec<String>,
    /// An environment that the job makes before its tasks start (body command).
    #[serde(skip)]
    pub environment: Option<TaskEnvironment>,
    /// What the run does when ranks die (body worker): go on in its allocation, by `shardplan run` on its first node, or end.
    #[serde(default)]
    pub going_on: GoingOn,
    /// Nodes beside the plan's that stand by for it.
    #[serde(default)]
    pub spare_nodes: u64,
    /// Whether of the plan the cluster alone is meant, because nobody knows what the command trains: its comments say nothing else of it.
    #[serde(skip)]
    pub cluster_alone: bool,
    /// A missing site value is an error instead of a placeholder to fill in.
    pub strict: bool,
}

impl ScriptOptions {
    /// Whether what they run trains the plan's model, as far as it is known.
    pub fn trains(&self) -> bool {
        self.body.facts().trains && self.task == Task::Train
    }
}

/// An environment that one task of a job makes for all.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskEnvironment {
    /// Its folder among the shared ones; of letters, digits and dashes.
    pub name: String,
    /// What makes it, for a shell in which `VIRTUAL_ENV` names the folder.
    pub commands: Vec<String>,
}
