//! What is read and checked before a rank meets the others: its seat, the plan, the device, libtorch, room.

use std::path::Path;

use anyhow::{Context, anyhow, ensure};
use planner::layout::Group;
use planner::rules::executor_limits;
use planner::shard::BufferShard;
use planner::shard::fsdp::{computed_with, groups};
use planner::wire::RankRole;
use planner::{Finding, Plan, Severity};
use sha2::{Digest, Sha256};
use tch::Device;

use crate::arguments::Arguments;
use crate::environment::{Environment, Variables, derive};
use crate::{device, notice, sys};

/// The most bytes that a plan file may have.
const MAX_PLAN_BYTES: u64 = 64 * 1024 * 1024;

/// A plan file, checked.
pub(super) struct Reading {
    /// What ranks compute with.
    pub(super) plan: Plan,
    /// What they keep, where the plan is for FSDP2 or Megatron-FSDP.
    pub(super) fsdp: Option<Plan>,
    pub(super) sha256: String,
}

impl Reading {
    /// The plan whose shards ranks keep: the one that is executed.
    pub(super) fn kept(&self) -> &Plan {
        self.fsdp.as_ref().unwrap_or(&self.plan)
    }

    /// The groups of the ranks, in the order in which all make them.
    pub(super) fn groups(&self) -> Vec<Group> {
        match &self.fsdp {
            Some(fsdp) => groups(fsdp, &self.plan),
            None => self.plan.groups(),
        }
    }
}

/// The variables of the environment; one that is no text is none that a rank reads.
fn variables() -> Variables {
    let text = |value: std::ffi::OsString| value.into_string().ok();
    std::env::vars_os().filter_map(|(name, value)| Some((text(name)?, text(value)?))).collect()
}

/// A rank that may meet the others.
pub(super) struct Ready {
    /// Which rank this is, by the numbers of the whole world.
    pub(super) environment: Environment,
    /// What it runs.
    pub(super) reading: Reading,
    /// On what, or why that can't be used, which the others are told.
    pub(super) device: anyhow::Result<Device>,
}

/// Reads and checks everything that a rank needs; none where the plan leaves its slot out.
pub(super) fn preflight(arguments: &Arguments, cuda: Result<(), String>) -> anyhow::Result<Option<Ready>> {
    let environment = derive(&variables())?;
    for warning in &environment.warnings {
        notice(warning);
    }
    let reading = read_plan(&arguments.plan)?;
    let environment = seat(&reading.plan, environment)?;
    if reading.plan.role_of(environment.rank as u64) == Some(RankRole::Inactive) {
        notice(&format!("rank {} is on a slot that the plan leaves out, so it ends here", environment.rank));
        return Ok(None);
    }
    check_torch()?;
    let device = usable(arguments, &environment, reading.kept(), cuda);
    if let Ok(Device::Cpu) = device {
        check_room(reading.kept(), &environment)?;
    }
    if environment.world_size > 1 && std::env::var_os("OMP_NUM_THREADS").is_none() {
        // Ranks that share a machine would otherwise each start a thread per core.
        tch::set_num_threads(1);
    }
    Ok(Some(Ready { environment, reading, device }))
}

/// The rank's device, with room for what the plan has on it.
fn usable(
    arguments: &Arguments,
    environment: &Environment,
    plan: &Plan,
    cuda: Result<(), String>,
) -> anyhow::Result<Device> {
    let rank = environment.rank;
    let found = device::take(arguments, plan, environment, cuda).and_then(|device| {
        // Ranks that share a GPU are others to each other.
        if let (Device::Cuda(index), 1) = (device, arguments.ranks_per_gpu) {
            device::gpu::check_free(&*sys::cuda::Cuda::loaded()?, index, predicted_peak(plan, rank as u64))?;
        }
        Ok(device)
    });
    found.with_context(|| format!("rank {rank}"))
}

/// Bytes that the allocator gives out at the plan's peak on a rank; 0 where the planner does not say.
fn predicted_peak(plan: &Plan, rank: u64) -> u64 {
    let stage = plan.place_of(rank).pp;
    let classes = planner::estimate(&plan.file).memory.map(|memory| memory.rank_classes).unwrap_or_default();
    let peaks = classes.iter().filter(|class| class.stage == stage).map(|class| class.peak_allocated_bytes);
    peaks.max().unwrap_or(0)
}

/// Reads a plan that ranks can run.
pub(super) fn read_plan(path: &Path) -> anyhow::Result<Reading> {
    let failed = || format!("reading the plan {}", path.display());
    let length = std::fs::metadata(path).with_context(failed)?.len();
    ensure!(
        length <= MAX_PLAN_BYTES,
        "the plan {} has {length} bytes; a plan has at most {MAX_PLAN_BYTES}",
        path.display()
    );
    let text = std::fs::read_to_string(path).with_context(failed)?;
    let sha256 = hex::encode(Sha256::digest(text.as_bytes()));
    let file = planner::parse_plan(&text).map_err(|findings| refusal(path, &findings))?;
    let resolved = Plan::resolve(&file);
    let Some(plan) = resolved.plan else { return Err(refusal(path, &resolved.findings)) };
    let executed = Plan::resolve(&plan.executed());
    let Some(executed) = executed.plan else { return Err(refusal(path, &executed.findings)) };
    let (plan, fsdp) = match executed.runtime.facts().shards_parameters {
        true => {
            let computed = Plan::resolve(&computed_with(&executed));
            let Some(computed) = computed.plan else { return Err(refusal(path, &computed.findings)) };
            (computed, Some(executed))
        }
        false => (executed, None),
    };
    let limits = executor_limits(&plan);
    if !limits.is_empty() {
        return Err(refusal(path, &limits));
    }
    Ok(Reading { plan, fsdp, sha256 })
}

/// The environment with the rank's number in the whole world. Where GPUs failed, all ranks of the world may have been started,
/// of which some end at once, or only those that go on, numbered without gaps.
fn seat(plan: &Plan, environment: Environment) -> anyhow::Result<Environment> {
    let (whole, started) = (plan.world_size(), environment.world_size as u64);
    if started == whole {
        return Ok(environment);
    }
    let active = if plan.nonuniform.is_some() { plan.active_ranks() } else { Vec::new() };
    ensure!(
        started == active.len() as u64,
        "the plan is for {whole} ranks ({} nodes of {} GPUs{}), but WORLD_SIZE is {started}; start as many ranks as the plan has GPUs{}",
        plan.cluster.nodes,
        plan.cluster.gpus_per_node,
        if active.is_empty() { String::new() } else { format!(", {} of which go on", active.len()) },
        if active.is_empty() { "" } else { ", or as many as go on" }
    );
    let rank = active.get(environment.rank).copied().context("a rank beyond those that go on")?;
    Ok(Environment { rank: usize::try_from(rank)?, world_size: usize::try_from(whole)?, ..environment })
}

fn refusal(path: &Path, findings: &[Finding]) -> anyhow::Error {
    let errors: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Error)
        .map(|finding| {
            if finding.field.is_empty() {
                finding.message.clone()
            } else {
                format!("{}: {}", finding.field, finding.message)
            }
        })
        .collect();
    anyhow!("the plan {} can't be run: {}", path.display(), errors.join("; "))
}

fn check_torch() -> anyhow::Result<()> {
    let version = sys::torch_version();
    ensure!(
        version == "2.11.0" || version.starts_with("2.11."),
        "this program is built for torch 2.11, but the libtorch that was loaded is {version}; point LD_LIBRARY_PATH at the torch/lib folder of torch 2.11"
    );
    Ok(())
}

/// Refuses a plan whose static state this machine can't hold, before the kernel ends a process for it. On a GPU the
/// allocator says so itself.
fn check_room(plan: &Plan, environment: &Environment) -> anyhow::Result<()> {
    let Some(host) = host_memory() else { return Ok(()) };
    let shards = plan.rank_shards(environment.rank as u64);
    let rank: u64 = shards.buffers.iter().map(BufferShard::gpu_bytes).sum();
    let here = environment.local_world_size as u64;
    ensure!(
        rank.saturating_mul(here) <= host,
        "rank {} keeps {rank} bytes of weights, gradients and optimizer state, and {here} ranks share this machine's {host} bytes; take more machines, a smaller model, or more tensor or pipeline parallelism",
        environment.rank
    );
    Ok(())
}

/// The memory of this machine in bytes, or of the cgroup that this process is in; none where Linux does not say.
fn host_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.split_whitespace().next()?.parse::<u64>().ok()? * 1024;
    let limit =
        std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok().and_then(|text| text.trim().parse().ok());
    Some(limit.unwrap_or(total).min(total))
}
