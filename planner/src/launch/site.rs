//! What a script must know of a cluster and planner can't: accounts, paths, habits of the site.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A site's values. All may be absent; what is needed and absent becomes a placeholder.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Site {
    /// Slurm account.
    pub account: Option<String>,
    /// Partition; `batch`.
    pub partition: Option<String>,
    /// Quality of service.
    pub qos: Option<String>,
    /// Time limit; `00:30:00`.
    pub time: Option<String>,
    /// Job name; made from the plan's name.
    pub job_name: Option<String>,
    /// Folder on the shared filesystem, for run folders, logs and caches.
    pub shared_dir: Option<String>,
    /// Container image; none where programs run on the nodes themselves.
    pub image: Option<String>,
    /// Container mounts, `source:target[:flags]`.
    pub mounts: Vec<String>,
    /// Whether the container's own filesystem may be written.
    pub container_writable: bool,
    /// How GPUs are asked for.
    pub gpus: GpuRequest,
    /// MPI plugin of srun, or `none`; `pmix` for bridge, none for worker.
    pub mpi: Option<String>,
    /// Whether nodes are shared with no other job; yes.
    pub exclusive: Option<bool>,
    /// Memory of a node, as Slurm writes it; `0` is all of it.
    pub mem: Option<String>,
    /// Whether nodes of one NVLink domain are asked for together where the hardware has such; yes.
    pub segment: Option<bool>,
    /// Variables to export. A value that is a secret does not belong here: name it in `required_env`.
    pub env: BTreeMap<String, String>,
    /// Variables that must be set when the job is submitted, such as `HF_TOKEN`.
    pub required_env: Vec<String>,
    /// `shardplan-rank`, as the nodes see it (body worker).
    pub rank_binary: Option<String>,
    /// Folder of libtorch 2.11, as the nodes see it (body worker).
    pub torch_lib: Option<String>,
    /// Folder of Megatron Bridge, as the tasks see it; `/opt/Megatron-Bridge` (body bridge).
    pub workdir: Option<String>,
    /// Recipe of Megatron Bridge (body bridge).
    pub recipe: Option<String>,
    /// Cache of Hugging Face; under `shared_dir` (body bridge).
    pub hf_home: Option<String>,
    /// Cache of uv; under `shared_dir` (body bridge).
    pub uv_cache_dir: Option<String>,
    /// Home of NeMo; under `shared_dir` (body bridge).
    pub nemo_home: Option<String>,
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
