//! What a run uses: the profile before the script's header before defaults.

use std::collections::BTreeMap;

use serde::Serialize;

use super::document::Fields;
use super::profile::LaidProfile;
use super::spec::{self, Gpus, MAX_NODES, Runspec};
use planner::finding::{Finding, nearest_names};

/// Who starts a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Executor {
    /// This machine.
    Local,
    /// Slurm.
    Slurm,
}

/// Executors of env.toml. The last three are known and not run from here.
const EXECUTORS: [&str; 5] = ["local", "docker", "slurm", "dgxcloud", "lepton"];

/// Processes that torchrun starts on a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Processes {
    /// That many.
    Count(u64),
    /// `gpu`, `cpu`, `xpu` or `auto`: as many as there are devices.
    Each(String),
}

/// Words that torchrun takes for a number of processes (`torch/distributed/run.py`).
const PROCESS_WORDS: [&str; 4] = ["gpu", "cpu", "xpu", "auto"];

impl Processes {
    /// Reads a number or one of torchrun's words.
    ///
    /// # Errors
    /// When it is neither.
    pub fn parse(text: &str) -> Result<Self, Box<Finding>> {
        let refuse = |message: String| {
            Box::new(Finding::error("nproc", text, message).nearest(nearest_names(text, PROCESS_WORDS, 2)))
        };
        if PROCESS_WORDS.contains(&text) {
            return Ok(Processes::Each(text.to_owned()));
        }
        match text.parse() {
            Ok(count) if (1..=spec::MAX_GPUS).contains(&count) => Ok(Processes::Count(count)),
            _ => Err(refuse(format!(
                "the number of processes is {text:?}, and must be from 1 to {} or one of: {}",
                spec::MAX_GPUS,
                PROCESS_WORDS.join(", ")
            ))),
        }
    }

    /// As torchrun takes it.
    pub fn word(&self) -> String {
        match self {
            Processes::Count(count) => count.to_string(),
            Processes::Each(word) => word.clone(),
        }
    }

    /// Whether more than one process may come of it.
    pub fn may_be_several(&self) -> bool {
        *self != Processes::Count(1)
    }
}

/// What a run uses.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Settings {
    /// Who starts it.
    pub executor: Executor,
    /// Nodes.
    pub nodes: u64,
    /// GPUs of each; none where neither profile nor header says.
    pub gpus_per_node: Option<Gpus>,
    /// Processes of each node under torchrun.
    pub processes: Processes,
    /// Processes that the profile asks for by their own number, whatever GPUs there are.
    #[serde(skip)]
    pub asked_processes: Option<Processes>,
    /// GPUs of a node that profile or header says; none where the format's usual number stands.
    #[serde(skip)]
    pub said_gpus: Option<Gpus>,
    /// Container image.
    pub image: Option<String>,
    /// Shell commands before the run, in order.
    pub startup_commands: Vec<String>,
    /// Variables: the header's, then the profile's.
    pub env: BTreeMap<String, String>,
    /// What Slurm is asked for; only with that executor.
    pub slurm: SlurmSettings,
}

/// What a profile says for Slurm. What it does not say is left to the site's own file.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct SlurmSettings {
    /// Account.
    pub account: Option<String>,
    /// Partition.
    pub partition: Option<String>,
    /// Time limit.
    pub time: Option<String>,
    /// Memory of a node.
    pub mem: Option<String>,
    /// Tasks of a node.
    pub ntasks_per_node: Option<u64>,
    /// Cores of a task.
    pub cpus_per_task: Option<u64>,
    /// Whether nodes are shared with no other job; only when asked for.
    pub exclusive: bool,
    /// Container mounts.
    pub mounts: Vec<String>,
    /// Folder on the shared filesystem.
    pub shared_dir: Option<String>,
}

/// Merges profile and header. `batch` says whether the job waits in a queue (the batch partition) or somebody waits
/// for it (the run partition).
///
/// # Errors
/// When a value of the profile is of the wrong kind, or it names an executor that does not exist or is not run here.
pub fn settings(
    spec: &Runspec,
    profile: Option<&LaidProfile>,
    batch: bool,
) -> Result<Settings, Box<Finding>> {
    let empty = toml::Table::new();
    let fields = profile.map_or(Fields::new(&empty, "profile"), LaidProfile::fields);
    let of_profile = spec::gpus(fields, "gpus_per_node")?;
    let gpus_per_node = of_profile.or(Some(spec.gpus_per_node));
    let asked = fields.loose_text("nproc_per_node")?.map(|text| Processes::parse(&text)).transpose()?;
    let processes = asked.clone().unwrap_or(match gpus_per_node {
        Some(Gpus::All(_)) => Processes::Each("gpu".to_owned()),
        Some(Gpus::Count(count)) => Processes::Count(count.max(1)),
        None => Processes::Count(1),
    });
    let mut env = spec.env.clone();
    env.extend(spec::variables(fields, "env_vars")?);
    let found = Settings {
        executor: executor(fields)?,
        nodes: fields.number("nodes", 1, MAX_NODES)?.unwrap_or(spec.nodes),
        gpus_per_node,
        processes,
        asked_processes: asked,
        said_gpus: of_profile.or(spec.says_gpus.then_some(spec.gpus_per_node)),
        image: fields.text("container_image")?.or(fields.text("container")?).or_else(|| spec.image.clone()),
        startup_commands: fields.texts("startup_commands")?.unwrap_or_default(),
        env,
        slurm: slurm(fields, gpus_per_node, batch)?,
    };
    refuse_references(&found)?;
    Ok(found)
}

fn executor(fields: Fields<'_>) -> Result<Executor, Box<Finding>> {
    match fields.text("executor")?.as_deref() {
        None | Some("local") => Ok(Executor::Local),
        Some("slurm") => Ok(Executor::Slurm),
        Some(other) if EXECUTORS.contains(&other) => Err(Box::new(Finding::error(
            "profile.executor",
            other,
            format!("profile.executor is {other}, which is not started from here; local and slurm are"),
        ))),
        Some(other) => Err(fields.unknown_word("executor", other, &EXECUTORS)),
    }
}

fn slurm(fields: Fields<'_>, gpus: Option<Gpus>, batch: bool) -> Result<SlurmSettings, Box<Finding>> {
    let partition = if batch { "batch_partition" } else { "run_partition" };
    let tasks = match gpus {
        Some(Gpus::Count(count)) => Some(count.max(1)),
        _ => None,
    };
    let shared_dir = fields.text("remote_job_dir")?;
    let mut mounts = fields.texts("mounts")?.unwrap_or_default();
    let has_profile = fields.get("executor").is_some();
    // Lustre is mounted unless the profile says otherwise; an empty text is the way to say so.
    match fields.text("lustre_mount")? {
        Some(mount) if mount.is_empty() => {}
        Some(mount) => mounts.push(mount),
        None if has_profile => mounts.push("/lustre:/lustre".to_owned()),
        None => {}
    }
    if let Some(folder) = &shared_dir {
        mounts.push(format!("{folder}/ray_temp:/ray-cluster"));
    }
    Ok(SlurmSettings {
        account: fields.text("account")?,
        partition: fields.text(partition)?.or(fields.text("partition")?),
        time: fields.text("time")?.or_else(|| has_profile.then(|| "04:00:00".to_owned())),
        mem: fields.loose_text("mem")?,
        ntasks_per_node: fields.number("ntasks_per_node", 1, 4096)?.or(tasks),
        cpus_per_task: fields.number("cpus_per_task", 1, 4096)?,
        exclusive: fields.flag("exclusive")?.unwrap_or(false),
        mounts,
        shared_dir,
    })
}

/// OmegaConf would resolve `${...}`; taken as it stands it would be a folder of that name. An image that nothing here opens is
/// only named.
fn refuse_references(settings: &Settings) -> Result<(), Box<Finding>> {
    let slurm = &settings.slurm;
    let image = settings.image.as_ref().filter(|_| settings.executor == Executor::Slurm);
    let texts = [
        ("container_image", image),
        ("account", slurm.account.as_ref()),
        ("partition", slurm.partition.as_ref()),
        ("time", slurm.time.as_ref()),
        ("mem", slurm.mem.as_ref()),
        ("remote_job_dir", slurm.shared_dir.as_ref()),
    ];
    let mounts = slurm.mounts.iter().map(|mount| ("mounts", mount));
    let env = settings.env.values().map(|value| ("env_vars", value));
    let mut texts = texts.into_iter().filter_map(|(name, text)| Some((name, text?))).chain(mounts).chain(env);
    match texts.find(|(_, text)| text.contains("${")) {
        None => Ok(()),
        // Shell commands may hold such references, and the shell resolves them.
        Some((name, text)) => Err(Box::new(Finding::error(
            &format!("profile.{name}"),
            text.split("${").next().unwrap_or_default(),
            format!(
                "{name} of profile or header holds a ${{...}} reference, which is not resolved here; write the value itself"
            ),
        ))),
    }
}
