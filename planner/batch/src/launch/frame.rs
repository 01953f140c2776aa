//! The script around a framework's command: where things are, the environment, one or two phases, the end.

use super::footer;
use super::measure;
use super::options::Mode;
use super::payload::{Entry, Payload};
use super::site::{Container, Environment};
use super::step::Step;
use super::writer::Writer;
use crate::shell;

/// Caches that a container would take with it when it ends.
pub(super) const CACHES: [&str; 3] = ["HF_HOME", "NEMO_HOME", "UV_CACHE_DIR"];
/// Where ranks meet.
const ENDPOINT: [&str; 2] = ["MASTER_ADDR", "MASTER_PORT"];

/// A whole batch script.
pub fn batch(writer: &mut Writer<'_>, payload: &Payload) -> String {
    let mut out = writer.header();
    out.push_str(&surroundings(writer, payload));
    out.push_str(&prepare(writer, payload));
    out.push_str(&run(writer, payload));
    out
}

/// Definitions and exports, before anything is started.
pub fn surroundings(writer: &mut Writer<'_>, payload: &Payload) -> String {
    let mut out = String::from("\n# Where things are\n");
    out.push_str(&writer.shared_dir());
    out.push_str(&format!("WORKDIR={}\n", payload.workdir));
    for line in &payload.definitions {
        out.push_str(&format!("{line}\n"));
    }
    out.push_str(&writer.container_variables());
    if payload.run_folder {
        out.push_str(&writer.run_folder());
        out.push_str(&writer.saved_steps(payload));
        out.push_str(&writer.minutes());
    }
    out.push_str(
        "\n# Inherited by every task. Caches lie on the shared filesystem: those of a container die with it\n",
    );
    for (name, value) in &payload.exports {
        out.push_str(&format!("export {name}={value}\n"));
    }
    out.push_str(&caches(writer));
    out.push_str(cores(writer));
    out.push_str(&writer.environment());
    out.push_str(writer.endpoint());
    out.push_str(&measure::definitions(writer));
    out
}

/// Cores of a task, where the site says how many.
pub fn cores(writer: &Writer<'_>) -> &'static str {
    match writer.site.cpus_per_task {
        None => "",
        Some(_) => {
            "# srun does not take it over from sbatch since Slurm 22.05\nexport SRUN_CPUS_PER_TASK=\"${SLURM_CPUS_PER_TASK:-1}\"\n"
        }
    }
}

fn caches(writer: &mut Writer<'_>) -> String {
    let mut out = String::new();
    let site = writer.site;
    for (variable, field, value, default) in [
        ("HF_HOME", "hf_home", &site.hf_home, "cache/huggingface"),
        ("UV_CACHE_DIR", "uv_cache_dir", &site.uv_cache_dir, "cache/uv"),
        ("NEMO_HOME", "nemo_home", &site.nemo_home, "cache/nemo"),
    ] {
        let value = match value.as_deref().or_else(|| site.env.get(variable).map(String::as_str)) {
            Some(value) => writer.shell(field, Some(value), None, &format!("<{variable}>")),
            None => format!("\"$SHARED_DIR/{default}\""),
        };
        out.push_str(&format!("export {variable}={value}\n"));
    }
    out.push_str("mkdir -p \"$HF_HOME\" \"$UV_CACHE_DIR\" \"$NEMO_HOME\"\n");
    out
}

/// Phase 1: what one task does for all; empty when there is nothing to do.
pub fn prepare(writer: &mut Writer<'_>, payload: &Payload) -> String {
    let syncs = writer.environment_kind() == Environment::Shared && uses_python(payload);
    if !syncs && payload.prepare.is_none() {
        return String::new();
    }
    let mut step = Step::new();
    step.line("set -e");
    step.line("cd \"$1\"");
    if writer.array().is_some() {
        // Elements of an array start together.
        step.line("exec 9>> .shardplan-sync.lock");
        step.line("flock 9");
    }
    let mut variables = CACHES.to_vec();
    let mut words = String::from("\"$WORKDIR\"");
    match &payload.prepare {
        None => step.line("uv sync"),
        Some(commands) => {
            step.line("eval \"$2\" || exit \"$?\"");
            words.push_str(&format!(" \\\n  {commands}"));
            variables.push("VIRTUAL_ENV");
        }
    }
    let flags = writer.container_flags(&variables);
    let prefix = writer.container_prefix();
    let mpi = writer.mpi();
    let mut out = String::from("\n# Phase 1: one task prepares the environment for all\n");
    let quoted = step.single_quoted();
    out.push_str(&format!(
        "# shellcheck disable=SC2016 # expanded by the task\nsrun {mpi}-N 1 --ntasks=1 --ntasks-per-node=1 \\\n{flags}{prefix}  bash -c {quoted} bash {words}\n"
    ));
    out
}

fn uses_python(payload: &Payload) -> bool {
    !matches!(payload.entry, Entry::Words(_))
}

/// Phase 2: the run, and what comes after it.
pub fn run(writer: &mut Writer<'_>, payload: &Payload) -> String {
    let torchrun = writer.options.mode == Mode::Torchrun;
    let step = task(writer, payload);
    let node_local = writer.environment_kind() == Environment::NodeLocal && uses_python(payload);
    let shared = writer.environment_kind() == Environment::Shared && uses_python(payload);
    let mut out = String::from(match (shared, node_local) {
        (true, _) => {
            "\n# Phase 2: every task runs; none syncs, for concurrent syncs of one environment break it\n"
        }
        (_, true) => {
            "\n# Phase 2: on every node one task syncs, under a lock, and the others wait for its marker\n"
        }
        _ => "\n# Every task runs the command\n",
    });
    out.push_str(&writer.notes());
    let mut variables: Vec<&str> = ENDPOINT.to_vec();
    variables.extend(CACHES);
    variables.extend(payload.exports.iter().map(|(name, _)| *name));
    let flags = writer.container_flags(&variables);
    let prefix = writer.container_prefix();
    let mpi = writer.mpi();
    let command = if torchrun {
        out.push_str(&format!("TRAIN_CMD={}\n", step.double_quoted()));
        out.push_str(&log_definition(writer));
        "\"$TRAIN_CMD\"".to_owned()
    } else {
        step.single_quoted()
    };
    // A rank that leaves early ends no job with reduced replicas, and the node of one that fails is given back to nobody.
    let ends = match writer.reduced {
        Some(_) => "--no-kill --kill-on-bad-exit=1 --wait=0",
        None => "--kill-on-bad-exit=1 --wait=60",
    };
    let groups = writer.het_groups();
    let how = if torchrun {
        format!("--no-kill --ntasks-per-node=1 {ends}")
    } else {
        format!("{groups}{ends} --distribution=block --label")
    };
    let interactive = writer.options.mode == Mode::Salloc;
    if !interactive {
        out.push_str(&footer::before(writer));
    }
    if !torchrun || payload.startup.is_some() {
        out.push_str("# shellcheck disable=SC2016 # expanded by each task\n");
    }
    out.push_str(&format!("srun {mpi}{how} \\\n{flags}{prefix}  bash -c {command} bash \"$WORKDIR\""));
    if let Some(variable) = payload.python_path {
        out.push_str(&format!(" \"${variable}\""));
    }
    if let Some(startup) = &payload.startup {
        out.push_str(&format!(" \\\n  {startup}"));
    }
    // A rank that binds itself is no Python of torchrun's anyway.
    out.push_str(&words(payload, torchrun && !writer.site.numa_bind));
    if torchrun {
        out.push_str(" \\\n  2>&1 | tee -a \"$LOG\" || status=\"${PIPESTATUS[0]}\"\n");
    } else if interactive {
        out.push('\n');
    } else {
        out.push_str(" \\\n  || status=$?\n");
    }
    if !interactive {
        out.push_str(&footer::footer(
            writer,
            torchrun && payload.prints_losses,
            payload.saved_steps.is_some(),
        ));
    }
    out
}

fn log_definition(writer: &mut Writer<'_>) -> String {
    let name = writer.job_name();
    format!("LOG=\"$SHARED_DIR/logs/{name}_${{SLURM_JOB_ID}}.${{SLURM_RESTART_COUNT:-0}}.train.log\"\n")
}

/// What each task does before it becomes the command.
fn task(writer: &Writer<'_>, payload: &Payload) -> Step {
    let torchrun = writer.options.mode == Mode::Torchrun;
    let mut step = Step::new();
    step.line("set -e");
    measure::watch(writer, &mut step);
    step.line("cd \"$1\"");
    let mut taken = 1;
    if payload.python_path.is_some() {
        taken += 1;
        step.line("export PYTHONPATH=\"$2:${PYTHONPATH:-}\"");
    }
    if payload.startup.is_some() {
        taken += 1;
        step.line(&format!("startup=\"${taken}\""));
    }
    match taken {
        1 => step.line("shift"),
        taken => step.line(&format!("shift {taken}")),
    }
    for (name, value) in &payload.task_exports {
        step.line(&format!("export {name}={value}"));
    }
    if payload.wants_ranks && !torchrun {
        step.line("export RANK=\"$SLURM_PROCID\" LOCAL_RANK=\"$SLURM_LOCALID\" WORLD_SIZE=\"$SLURM_NTASKS\"");
    }
    if payload.startup.is_some() {
        // `set -e` looks away from a failure in the middle of a list.
        step.line("eval \"$startup\" || exit \"$?\"");
    }
    let environment = writer.environment_kind();
    if environment == Environment::NodeLocal && uses_python(payload) {
        step.sync_once_per_node(writer.container() == Some(Container::Apptainer));
    }
    let bind = |local: &str| {
        if !writer.site.numa_bind || writer.reduced.is_some() {
            return String::new();
        }
        let domains = writer.plan.cluster.gpus_per_node.div_ceil(2).max(1);
        format!("numactl --cpunodebind=\"$(({local} / {domains}))\" --membind=\"$(({local} / {domains}))\" ")
    };
    let python = match environment {
        Environment::Shared | Environment::NodeLocal => "uv run --no-sync python",
        Environment::None => "python",
    };
    let nodes = writer.plan.cluster.nodes;
    if torchrun {
        let endpoint = if nodes > 1 {
            "--nnodes=${SLURM_JOB_NUM_NODES} --node_rank=${SLURM_NODEID} \
             --master_addr=${MASTER_ADDR} --master_port=${MASTER_PORT}"
        } else {
            "--nnodes=1 --standalone"
        };
        let processes = writer.plan.cluster.gpus_per_node;
        let launcher = format!("{python} -m torch.distributed.run --nproc_per_node={processes} {endpoint}");
        if writer.site.numa_bind {
            // torchrun starts the ranks, so each binds itself, by the number that torchrun gives it.
            let rank = if uses_python(payload) { "python " } else { "" };
            let escaped =
                format!("exec {}{rank}\"$@\"", bind("LOCAL_RANK")).replace('$', "\\$").replace('"', "\\\"");
            step.line(&format!("exec {launcher} --no-python bash -c \"{escaped}\" bash \"$@\""));
        } else {
            step.line(&format!("exec {launcher} \"$@\""));
        }
    } else if uses_python(payload) {
        step.line(&format!("exec {}{python} \"$@\"", bind("SLURM_LOCALID")));
    } else {
        step.line(&format!("exec {}\"$@\"", bind("SLURM_LOCALID")));
    }
    step
}

/// The command's own words, a line for the entry and for each option.
fn words(payload: &Payload, torchrun: bool) -> String {
    let mut out = String::new();
    match &payload.entry {
        Entry::Script(script) => out.push_str(&format!(" \\\n  {script}")),
        Entry::Module(module) => out.push_str(&format!(" \\\n  -m {module}")),
        Entry::Words(words) => {
            let no_python = if torchrun { "--no-python " } else { "" };
            out.push_str(&format!(" \\\n  {no_python}{}", words.join(" ")));
        }
    }
    for argument in payload.arguments.iter().chain(&payload.closing) {
        out.push_str(&format!(" \\\n  {argument}"));
    }
    out
}

impl Writer<'_> {
    /// The seed as a word: elements of a job array count on from the plan's.
    pub fn seed(&self) -> String {
        let seed = self.plan.run.seed;
        match self.array() {
            // Bash counts in 64 bits with a sign.
            Some(_) if seed < 1 << 62 => format!("\"$(({seed} + SLURM_ARRAY_TASK_ID))\""),
            _ => seed.to_string(),
        }
    }

    /// The flag that joins the components of a heterogeneous job in one step; empty for a plain job.
    pub fn het_groups(&mut self) -> String {
        match self.components().len() {
            0 | 1 => String::new(),
            count => format!("--het-group=0-{} ", count - 1),
        }
    }

    /// The folder that the command starts in: as the site says, or where the framework lies in its images.
    pub fn workdir(&mut self) -> String {
        let default = self.options.body.facts().code.filter(|_| self.container().is_some());
        self.shell("workdir", self.site.workdir.as_deref(), default, "<WORKDIR>")
    }

    /// A word of the plan, quoted. Plans hold none that can't be; if one did, it is left out.
    pub fn word(&mut self, field: &str, value: &str) -> String {
        shell::quoted(value).unwrap_or_else(|| {
            self.note(planner::finding::Finding::error(
                field,
                shell::comment(value),
                "this can't stand in a command line",
            ));
            "''".to_owned()
        })
    }
}
