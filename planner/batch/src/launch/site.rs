//! What a script must know of a cluster and planner can't: accounts, paths, habits of the site.

use std::collections::BTreeMap;

use planner::json::by_field::by_field;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::profile::Profile;
use crate::shell;

/// A site's values. All may be absent; what is needed and absent becomes a placeholder.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Site {
    /// A known launcher whose defaults hold where this site says nothing.
    pub profile: Option<Profile>,
    /// Slurm account.
    pub account: Option<String>,
    /// Partition; `batch`, for salloc `interactive`.
    pub partition: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Reservation.
    pub reservation: Option<String>,
    /// Features that nodes must have, as `--constraint` takes them.
    pub constraint: Option<String>,
    /// Nodes to leave out, as `--exclude` takes them.
    pub exclude: Option<String>,
    /// What to wait for, as `--dependency` takes it.
    pub dependency: Option<String>,
    /// Time limit; `00:30:00`, for salloc `04:00:00`.
    pub time: Option<String>,
    /// Job name; made from the plan's name.
    pub job_name: Option<String>,
    /// Whether Slurm may start the job again after a node failed or it was preempted; yes for what goes on from its
    /// checkpoints, else as the cluster is set.
    pub requeue: Option<bool>,
    /// How often a job that fails, or ends in good order before its last step, asks to be queued again; never.
    pub retries: u64,
    /// Signal to the ranks before the time limit, `SIGNAL@SECONDS`, or `none`; sent where what runs is told to save on it,
    /// or to end in good order. SIGTERM where a training saves on it.
    pub signal: Option<String>,
    /// Whether a training is watched by `shardplan wrap`, where that is at hand, and measured beside its plan; yes.
    pub measure: Option<bool>,
    /// Steps between checkpoints of a training; by the plan's checkpoint interval, else about every half hour of predicted
    /// steps, and some times before the time limit.
    pub save_every: Option<u64>,
    /// Folder on the shared filesystem, for run folders, logs and caches.
    pub shared_dir: Option<String>,
    /// Container image; none where programs run on the nodes themselves.
    pub image: Option<String>,
    /// What runs the image; pyxis.
    pub container: Option<Container>,
    /// Container mounts, `source:target[:flags]`.
    pub mounts: Vec<String>,
    /// Whether the container's own filesystem may be written.
    pub container_writable: bool,
    /// Variables whose value in the job wins over the image's, besides those that the script exports (pyxis).
    pub container_env: Vec<String>,
    /// How GPUs are asked for.
    pub gpus: GpuRequest,
    /// Type of GPU in the request, as the cluster calls it.
    pub gpu_type: Option<String>,
    /// MPI plugin of srun, or `none`; `pmix` for Megatron, none for the rest.
    pub mpi: Option<String>,
    /// Whether nodes are shared with no other job; yes.
    pub exclusive: Option<bool>,
    /// Memory of a node, as Slurm writes it; `0` is all of it.
    pub mem: Option<String>,
    /// Cores of a task.
    pub cpus_per_task: Option<u64>,
    /// Tasks of a node; the mode decides, and any other number is refused.
    pub ntasks_per_node: Option<u64>,
    /// Whether nodes of one NVLink domain are asked for together where the hardware has such; yes.
    pub segment: Option<bool>,
    /// Whether tasks are bound to the memory next to their GPU by numactl; no.
    pub numa_bind: bool,
    /// Environment modules to load.
    pub modules: Vec<String>,
    /// Variables to export. A value that is a secret does not belong here: name it in `required_env`.
    pub env: BTreeMap<String, String>,
    /// Variables that must be set when the job is submitted, such as `HF_TOKEN`.
    pub required_env: Vec<String>,
    /// File that sets secrets, readable by its owner alone: sourced untraced, and left where it is.
    pub secrets_file: Option<String>,
    /// Where the Python environment lies; the body decides.
    pub environment: Option<Environment>,
    /// `shardplan-rank`, as the nodes see it (body worker).
    pub rank_binary: Option<String>,
    /// Folder of libtorch 2.11, as the nodes see it (body worker).
    pub torch_lib: Option<String>,
    /// Folder that the command starts in, as the tasks see it; where the framework lies in its images.
    pub workdir: Option<String>,
    /// Recipe of Megatron Bridge (body bridge).
    pub recipe: Option<String>,
    /// Id of the model on Hugging Face, or its folder (conversion and generation by Megatron Bridge).
    pub hf_model: Option<String>,
    /// Folder of Megatron-LM under `workdir`; `3rdparty/Megatron-LM` (body mlm).
    pub megatron_lm: Option<String>,
    /// Data to train on: tokenized data without its ending for Megatron-LM and Megatron Bridge, where none is mock data and
    /// the recipe's; torchtitan's folder of a data set (bodies mlm, bridge, torchtitan).
    pub data_path: Option<String>,
    /// Checkpoint that a run which has none of its own begins with (bodies mlm, bridge, torchtitan).
    pub pretrained: Option<String>,
    /// Tokenizer on Hugging Face, or its folder, which alone torchtitan reads; none, with the plan's vocabulary, or what recipe
    /// and configuration say (bodies mlm, bridge, automodel, torchtitan).
    pub tokenizer: Option<String>,
    /// Recipe file of NeMo Automodel (body automodel).
    pub config: Option<String>,
    /// Module of torchtitan that holds the configuration, such as `llama3`; none for 0.2 (body torchtitan).
    pub titan_module: Option<String>,
    /// The configuration, such as `llama3_8b`; for torchtitan 0.2 its TOML file (body torchtitan).
    pub titan_config: Option<String>,
    /// Further arguments of the framework's command, a word each, behind those of the plan.
    pub extra_args: Vec<String>,
    /// Whether code that comes with a model or a tokenizer on Hugging Face may run; no (bodies mlm, bridge).
    pub trust_remote_code: bool,
    /// Shell commands that the script runs before it starts anything, a line each. The first that fails ends the job.
    pub prologue: Vec<String>,
    /// Names of nodes with failed GPUs, as `--nodelist` takes them, in the order in which the plan numbers them.
    pub failed_nodes: Option<String>,
    /// Cache of Hugging Face; under `shared_dir`.
    pub hf_home: Option<String>,
    /// Cache of uv; under `shared_dir`.
    pub uv_cache_dir: Option<String>,
    /// Home of NeMo; under `shared_dir`.
    pub nemo_home: Option<String>,
}

by_field! { Site {
    profile, account, partition, qos, reservation, constraint, exclude, dependency, time, job_name,
    requeue, retries, signal, measure, save_every, shared_dir, image, container, mounts,
    container_writable, container_env, gpus, gpu_type, mpi, exclusive, mem, cpus_per_task,
    ntasks_per_node, segment, numa_bind, modules, env, required_env, secrets_file, environment,
    rank_binary, torch_lib, workdir, recipe, hf_model, megatron_lm, data_path, pretrained, tokenizer,
    config, titan_module, titan_config, extra_args, trust_remote_code, prologue, failed_nodes, hf_home,
    uv_cache_dir, nemo_home
} }

impl Site {
    /// The site without what may be a secret, for places that outlive what is being done, such as a browser's storage.
    /// A value that only looks like one is left out, too.
    pub fn without_secrets(&self) -> Site {
        let Ok(Value::Object(mut fields)) = serde_json::to_value(self) else { return Site::default() };
        let gives = |value: &Value| value.as_str().is_some_and(shell::gives_secret);
        for value in fields.values_mut() {
            match value {
                Value::Array(items) => items.retain(|item| !gives(item)),
                Value::Object(variables) => variables
                    .retain(|name, value| !shell::may_be_secret(name, value.as_str().unwrap_or_default())),
                value if gives(value) => *value = Value::Null,
                _ => {}
            }
        }
        planner::json::read_value(Value::Object(fields)).unwrap_or_default()
    }
}

/// How a site wants GPUs to be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GpuRequest {
    /// `--gpus-per-node=N`.
    #[default]
    #[serde(rename = "gpus-per-node")]
    GpusPerNode,
    /// `--gres=gpu:N`.
    #[serde(rename = "gres")]
    Gres,
    /// Not at all: whole nodes are given anyway.
    #[serde(rename = "none")]
    Nothing,
}

impl GpuRequest {
    /// The name used in site files.
    pub const fn name(self) -> &'static str {
        match self {
            GpuRequest::GpusPerNode => "gpus-per-node",
            GpuRequest::Gres => "gres",
            GpuRequest::Nothing => "none",
        }
    }
}

/// What runs a container image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Container {
    /// srun itself, by the pyxis plugin and enroot.
    Pyxis,
    /// Apptainer, as a command of each task.
    Apptainer,
    /// Nothing: programs run on the nodes, whatever the image.
    None,
}

impl Container {
    /// The name used in site files.
    pub const fn name(self) -> &'static str {
        match self {
            Container::Pyxis => "pyxis",
            Container::Apptainer => "apptainer",
            Container::None => "none",
        }
    }
}

/// Where the Python environment of a framework lies, and so who may sync it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Environment {
    /// Made by uv on a filesystem that all nodes see: one task syncs it before the others start.
    Shared,
    /// Made by uv on each node, or in each container: one task of each node syncs it, the others wait.
    NodeLocal,
    /// There already: `python` is it.
    None,
}

impl Environment {
    /// The name used in site files.
    pub const fn name(self) -> &'static str {
        match self {
            Environment::Shared => "shared",
            Environment::NodeLocal => "node-local",
            Environment::None => "none",
        }
    }
}
