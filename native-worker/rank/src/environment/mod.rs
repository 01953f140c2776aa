//! Who this rank is: torchrun's variables, or Slurm's own.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use planner::cluster::first_node;

/// The variables of a process.
pub type Variables = BTreeMap<String, String>;

/// A rank's place in the world and the way to rank 0.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Environment {
    /// This rank.
    pub rank: usize,
    /// Ranks in all.
    pub world_size: usize,
    /// This rank's number on its node, which picks its GPU.
    pub local_rank: usize,
    /// Ranks on its node; 1 where nobody says.
    pub local_world_size: usize,
    /// Host of rank 0.
    pub master_addr: String,
    /// Port on which rank 0 gathers the others.
    pub master_port: u16,
    /// The Slurm job, with its restart count, so that two runs of one job are told apart.
    pub job: String,
    /// Which start of the run this is, from 1: Slurm counts a job's restarts, torchrun its own.
    pub attempt: u64,
    /// What had to be assumed, as sentences.
    pub warnings: Vec<String>,
}

struct Reader<'a> {
    variables: &'a Variables,
    slurm: bool,
    warnings: Vec<String>,
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// The first of `name` and (among Slurm's tasks) `slurm_name` that is set.
    fn number(&self, name: &str, slurm_name: &str) -> anyhow::Result<Option<usize>> {
        let slurm_name = if self.slurm { slurm_name } else { "" };
        self.first_number([name, slurm_name])
    }

    fn first_number<const N: usize>(&self, names: [&str; N]) -> anyhow::Result<Option<usize>> {
        for name in names {
            if let Some(value) = self.get(name) {
                let number =
                    value.parse().with_context(|| format!("{name} is {value:?}, which is not a number"))?;
                return Ok(Some(number));
            }
        }
        Ok(None)
    }

    /// What stands for a variable that neither `name` nor Slurm's own say, or that Slurm's say for an unknown number of tasks or in
    /// another form.
    fn assume<T: std::fmt::Display>(
        &mut self,
        name: &str,
        slurm_names: &[&str],
        found: Option<T>,
        default: T,
    ) -> T {
        found.unwrap_or_else(|| {
            let set = slurm_names.iter().find(|name| self.get(name).is_some());
            let why = match set {
                None => format!("neither is {}", slurm_names.join(" or ")),
                Some(set) if self.slurm => format!("{set} does not end in digits"),
                Some(set) => format!("{set} does not count without {TASKS}"),
            };
            self.warnings.push(format!("{name} is not set, and {why}; taking {default}"));
            default
        })
    }

    /// Refuses a task that is not Slurm's first where nobody says how many there are: each would train alone, as the first.
    fn refuse_lost_tasks(&self, world_size: Option<usize>) -> anyhow::Result<()> {
        if world_size.is_some() {
            return Ok(());
        }
        for name in ["SLURM_PROCID", "SLURM_LOCALID"] {
            let number = self.first_number([name])?.unwrap_or(0);
            ensure!(
                number == 0,
                "{name} is {number}, so Slurm has started more than one task, but neither WORLD_SIZE nor {TASKS} says how many; start \
                 ranks by srun with --ntasks, or set RANK and WORLD_SIZE for each"
            );
        }
        Ok(())
    }
}

/// How many tasks Slurm has started: without it, what else Slurm says is of a shell or of a batch script, which is no rank of several.
const TASKS: &str = "SLURM_NTASKS";

/// The environment of a rank: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT where they are set, else what
/// Slurm says of the task.
///
/// # Errors
/// When a variable is malformed, or rank and world don't fit.
pub fn derive(variables: &Variables) -> anyhow::Result<Environment> {
    let mut reader = Reader { variables, slurm: false, warnings: Vec::new() };
    reader.slurm = reader.get(TASKS).is_some();
    // Slurm numbers tasks whoever says how many there are.
    let rank = reader.first_number(["RANK", "SLURM_PROCID"])?;
    let world_size = reader.number("WORLD_SIZE", TASKS)?;
    reader.refuse_lost_tasks(world_size)?;
    let local_rank = reader.number("LOCAL_RANK", "SLURM_LOCALID")?.unwrap_or(0);
    let local_world_size = reader.number("LOCAL_WORLD_SIZE", "SLURM_NTASKS_PER_NODE")?.unwrap_or(1);
    let master_addr = master_addr(&reader)?;
    let master_port = master_port(&reader)?;
    let job = ["SLURM_JOB_ID", "SLURM_RESTART_COUNT"]
        .iter()
        .filter_map(|name| reader.get(name))
        .collect::<Vec<_>>();
    let job = job.join(".");
    let restarts = reader.number("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")?.unwrap_or(0);
    let rank = reader.assume("RANK", &["SLURM_PROCID"], rank, 0);
    let world_size = reader.assume("WORLD_SIZE", &[TASKS], world_size, 1);
    let master_addr = reader.assume("MASTER_ADDR", &NODES, master_addr, "localhost".to_owned());
    let master_port = reader.assume("MASTER_PORT", &["SLURM_JOB_ID"], master_port, 29500);
    ensure!(world_size > 0, "WORLD_SIZE is 0; set it to the number of ranks, at least 1");
    ensure!(
        rank < world_size,
        "RANK is {rank} but WORLD_SIZE is {world_size}; ranks count from 0, so set RANK below WORLD_SIZE"
    );
    Ok(Environment {
        rank,
        world_size,
        local_rank,
        local_world_size,
        master_addr,
        master_port,
        job,
        attempt: (restarts as u64).saturating_add(1),
        warnings: reader.warnings,
    })
}

/// Variables with the list of a step's or a job's nodes.
const NODES: [&str; 2] = ["SLURM_NODELIST", "SLURM_JOB_NODELIST"];

fn master_addr(reader: &Reader<'_>) -> anyhow::Result<Option<String>> {
    if let Some(address) = reader.get("MASTER_ADDR") {
        return Ok(Some(address.to_owned()));
    }
    if !reader.slurm {
        return Ok(None);
    }
    let Some(list) = NODES.iter().find_map(|name| reader.get(name)) else {
        return Ok(None);
    };
    let host = first_node(list).with_context(|| {
        format!("no host can be read from Slurm's node list {list:?}; set MASTER_ADDR to rank 0's host")
    })?;
    Ok(Some(host))
}

fn master_port(reader: &Reader<'_>) -> anyhow::Result<Option<u16>> {
    if let Some(value) = reader.get("MASTER_PORT") {
        let port: u16 = value
            .parse()
            .with_context(|| format!("MASTER_PORT is {value:?}, which is not a port (1 to 65535)"))?;
        ensure!(port > 0, "MASTER_PORT is 0, which is not a port (1 to 65535)");
        // torchrun's agent keeps its own store on MASTER_PORT and passes the number on.
        let agent_store = reader
            .get("TORCHELASTIC_USE_AGENT_STORE")
            .is_some_and(|value| value.eq_ignore_ascii_case("true"));
        return Ok(Some(if agent_store { port.checked_add(1).unwrap_or(port - 1) } else { port }));
    }
    let Some(job) = reader.get("SLURM_JOB_ID").filter(|_| reader.slurm) else {
        return Ok(None);
    };
    // All ranks see the same number, so those of a job whose number is none meet at the usual port all the same.
    let tail = job.get(job.len().saturating_sub(4)..);
    let tail = tail.filter(|tail| tail.bytes().all(|byte| byte.is_ascii_digit()));
    Ok(tail.and_then(|tail| tail.parse::<u16>().ok()).map(|tail| 15_000 + tail))
}

#[cfg(test)]
mod tests;
