//! What a script runs on every GPU, and what is true of each: a row for each program, in the terms of scripts. Who writes a part of a
//! script asks `body.facts()` and does not know which program it is; what each is started with is its framework's to say.

use planner::plan::Plan;
use planner::software::Product;
use serde::{Deserialize, Serialize};

use super::Task;
use super::images::{AUTOMODEL, BRIDGE};

/// What the script runs on every GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Body {
    /// `shardplan-rank`, Shardplan's own executor.
    #[default]
    Worker,
    /// A recipe, a conversion or a generation by Megatron Bridge.
    Bridge,
    /// Megatron-LM's `pretrain_gpt.py`.
    Mlm,
    /// A recipe of NeMo Automodel.
    Automodel,
    /// torchtitan.
    Torchtitan,
    /// Any command.
    Command,
}

/// Which signals a program saves and ends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hears {
    /// Any, as it is told.
    Any,
    /// These, and why no other.
    Only(&'static [&'static str], &'static str),
    /// None, and why.
    None(&'static str),
}

/// What is true of a program that a script runs.
#[derive(Debug)]
pub struct Program {
    /// The name used on the command line.
    pub name: &'static str,
    /// What a person calls it.
    pub title: &'static str,
    /// What it is, in a line of a list.
    pub about: &'static str,
    /// The framework that it is of, whose runtimes it trains with; none where any plan can be run, or nothing is known of it.
    pub product: Option<Product>,
    /// Whether it trains the plan's model.
    pub trains: bool,
    /// Whether it converts models and generates, too.
    pub converts: bool,
    /// Whether it is given the plan itself, which says when it saves and what is kept; `shardplan run` can start it again.
    pub takes_the_plan: bool,
    /// The option of its command, up to the number, by which it removes all checkpoints but the newest; none where it has none.
    pub keeps: Option<&'static str>,
    /// Whether it saves when it ends on a signal.
    pub saves_on_signal: bool,
    /// Which signals it saves and ends on, where Slurm starts it.
    pub hears: Hears,
    /// Whether it can be told to save and end after so many minutes.
    pub ends_by_itself: bool,
    /// Why torchrun can't start it; none where it can.
    pub without_torchrun: Option<&'static str>,
    /// The PMI plugin of its steps where a site names none.
    pub mpi: &'static str,
    /// Whether it reads data sets of Megatron.
    pub reads_megatron_data: bool,
    /// Whether losses are printed by the last rank, and not by the first.
    pub last_rank_prints: bool,
    /// Whether quotes and `${` in its overrides mean something to it.
    pub interpolates: bool,
    /// Whether its command says all of how experts are balanced, so that what a plan leaves out is off.
    pub balances_as_said: bool,
    /// Whether it trains on around failed GPUs, with fewer tensor-parallel ranks in some replicas.
    pub reduces_replicas: bool,
    /// Whether it is run in a container where a site says nothing.
    pub lives_in_images: bool,
    /// Where its code lies in its own images; none where an image does not have it.
    pub code: Option<&'static str>,
    /// Whether uv makes the environment of its code.
    pub is_synced: bool,
    /// Paths of a site that it uses when it trains, and those when it does something else.
    pub paths: [&'static [&'static str]; 2],
}

/// Paths of a site that some programs use and others don't.
const OF_SOME: [&str; 9] = [
    "rank_binary",
    "torch_lib",
    "megatron_lm",
    "tokenizer",
    "data_path",
    "pretrained",
    "hf_model",
    "config",
    "titan_config",
];

/// What holds of a program of which nothing is known.
const COMMAND: Program = Program {
    name: "command",
    title: "a command",
    about: "Any command",
    product: None,
    trains: false,
    converts: false,
    takes_the_plan: false,
    keeps: None,
    saves_on_signal: false,
    hears: Hears::Any,
    ends_by_itself: false,
    without_torchrun: None,
    mpi: "none",
    reads_megatron_data: false,
    last_rank_prints: false,
    interpolates: false,
    balances_as_said: false,
    reduces_replicas: false,
    lives_in_images: false,
    code: None,
    is_synced: false,
    paths: [&[], &[]],
};

const WORKER: Program = Program {
    name: "worker",
    title: "shardplan-rank",
    about: "Shardplan's own executor",
    trains: true,
    takes_the_plan: true,
    saves_on_signal: true,
    hears: Hears::Only(
        &["TERM", "INT", "USR1"],
        "shardplan-rank ends in good order by TERM, INT and USR1, and any other kills it",
    ),
    without_torchrun: Some("shardplan-rank takes its number from Slurm and needs no torchrun; choose srun"),
    paths: [&["rank_binary", "torch_lib"]; 2],
    ..COMMAND
};

const MEGATRON_BRIDGE: Program = Program {
    name: "bridge",
    title: "Megatron Bridge",
    about: "Megatron Bridge",
    product: Some(Product::Bridge),
    trains: true,
    keeps: Some("checkpoint.most_recent_k="),
    converts: true,
    saves_on_signal: true,
    ends_by_itself: true,
    mpi: "pmix",
    reads_megatron_data: true,
    last_rank_prints: true,
    interpolates: true,
    lives_in_images: true,
    code: Some(BRIDGE),
    is_synced: true,
    paths: [&["tokenizer", "data_path", "pretrained"], &["hf_model"]],
    ..COMMAND
};

const MEGATRON_LM: Program = Program {
    name: "mlm",
    title: "Megatron-LM",
    about: "Megatron-LM's pretrain_gpt.py",
    product: Some(Product::MegatronLm),
    trains: true,
    saves_on_signal: true,
    ends_by_itself: true,
    mpi: "pmix",
    reads_megatron_data: true,
    last_rank_prints: true,
    balances_as_said: true,
    reduces_replicas: true,
    code: Some(BRIDGE),
    is_synced: true,
    paths: [&["megatron_lm", "tokenizer", "data_path", "pretrained"]; 2],
    ..COMMAND
};

const NEMO_AUTOMODEL: Program = Program {
    name: "automodel",
    title: "NeMo Automodel",
    about: "A recipe of NeMo Automodel",
    product: Some(Product::Automodel),
    trains: true,
    keeps: Some("--checkpoint.max_recent_checkpoints "),
    saves_on_signal: true,
    code: Some(AUTOMODEL),
    is_synced: true,
    paths: [&["config", "tokenizer"]; 2],
    ..COMMAND
};

const TORCHTITAN: Program = Program {
    name: "torchtitan",
    title: "torchtitan",
    about: "torchtitan",
    product: Some(Product::Torchtitan),
    trains: true,
    keeps: Some("--checkpoint.keep_latest_k "),
    hears: Hears::None(
        "torchtitan handles no signal, and would end by it without saving; it saves every so many steps",
    ),
    paths: [&["tokenizer", "data_path", "pretrained", "titan_config"]; 2],
    ..COMMAND
};

impl Body {
    /// All of them.
    pub const ALL: [Body; 6] =
        [Body::Worker, Body::Bridge, Body::Mlm, Body::Automodel, Body::Torchtitan, Body::Command];

    /// What is true of it.
    pub const fn facts(self) -> &'static Program {
        match self {
            Body::Worker => &WORKER,
            Body::Bridge => &MEGATRON_BRIDGE,
            Body::Mlm => &MEGATRON_LM,
            Body::Automodel => &NEMO_AUTOMODEL,
            Body::Torchtitan => &TORCHTITAN,
            Body::Command => &COMMAND,
        }
    }

    /// What trains a plan where nobody says it: the framework that the plan names, NeMo's recipes being Megatron Bridge's now;
    /// Shardplan's worker where it names none.
    pub fn usual(plan: &Plan) -> Body {
        let product = plan.software.named.map(|named| match named.product {
            Product::Nemo => Product::Bridge,
            own => own,
        });
        let trains = |body: &Body| product.is_some() && body.facts().product == product;
        Body::ALL.into_iter().find(trains).unwrap_or_default()
    }

    /// The name used on the command line.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// What a person calls it.
    pub const fn title(self) -> &'static str {
        self.facts().title
    }
}

impl Program {
    /// Whether a task of it uses a path of a site.
    pub fn uses(&self, path: &str, task: Task) -> bool {
        match path {
            "shared_dir" => true,
            path if OF_SOME.contains(&path) => self.paths[usize::from(task != Task::Train)].contains(&path),
            _ => !self.takes_the_plan,
        }
    }
}
