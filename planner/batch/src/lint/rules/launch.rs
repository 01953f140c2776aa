//! Launchers: who spawns how many processes, on how many nodes.

use super::super::facts::{Call, is_remote};
use super::super::launcher::{Count, Kind, Launcher};
use super::super::notes::Notes;
use super::super::text::Certainty;
use super::super::walk::Field;
use super::Context;

/// Looks at torchrun and accelerate.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for launcher in &context.launchers {
        let call = context.call(launcher.call);
        double_spawn(context, launcher, call, notes);
        endpoint(context, launcher, notes);
        node_rank(context, launcher, call, notes);
        nodes(context, launcher, call, notes);
        processes(context, launcher, call, notes);
        shim(launcher, call, notes);
    }
    deepspeed(context, notes);
}

/// Options that say where ranks meet.
pub(super) const ENDPOINT: &[&str] = &["master_addr", "rdzv_endpoint", "main_process_ip"];
const NODE_RANK: &[&str] = &["node_rank", "machine_rank"];
/// Where the rank of a node is expanded.
const IN_TASK: &str =
    "where each task's shell expands it: srun bash -c '... $SLURM_NODEID ...', in single quotes";
const PROCESSES: &[&str] = &["nproc_per_node"];

fn double_spawn(context: &Context<'_>, launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    let Some(step) = context.step_of(call) else { return };
    let Some(tasks) = step.tasks_per_node.filter(|tasks| *tasks > 1) else { return };
    if call.place.guarded || launcher.kind == Kind::Accelerate {
        return;
    }
    let processes = launcher.count(PROCESSES, context.job);
    if matches!(processes, Count::Known(1)) || (processes == Count::Absent && !launcher.open) {
        return;
    }
    let each = match processes {
        Count::Known(each) => each.to_string(),
        _ => "several".to_owned(),
    };
    let total = match processes {
        Count::Known(each) => format!(" = {}", each.saturating_mul(tasks)),
        _ => String::new(),
    };
    let place = context.job.option("ntasks-per-node").filter(|_| {
        super::super::options::last(&context.call(step.call).options, "ntasks-per-node").is_none()
    });
    let directive = place.map_or(String::new(), |given| format!(" (line {})", notes.line_of(given.at)));
    notes.note(
        "double-spawn",
        launcher.at,
        launcher.end,
        format!("Slurm starts {tasks} tasks on each node{directive}, and each starts {each} processes: {tasks} x {each}{total} on a node, which collide on one port (EADDRINUSE)"),
        "with this launcher set --ntasks-per-node=1; or leave the launcher out and let Slurm start every rank".to_owned(),
    );
}

fn endpoint(context: &Context<'_>, launcher: &Launcher, notes: &mut Notes<'_>) {
    let set = |name: &str| context.facts.sets(name);
    let configured = launcher.has(&["config_file", "standalone"]);
    if launcher.is_multi_node(context.job)
        && launcher.kind == Kind::Torchrun
        && let Some((_, _, at, end)) = launcher.option(&["standalone"])
    {
        // It puts an endpoint of its own in the place of whatever else is given.
        notes.note(
            "no-endpoint",
            *at,
            *end,
            "--standalone has every node wait for the others at a port of its own, whatever endpoint is given"
                .to_owned(),
            "leave it out, and give --rdzv_backend=c10d --rdzv_endpoint=FIRST_HOST:PORT --rdzv_id=$SLURM_JOB_ID"
                .to_owned(),
        );
        return;
    }
    if !launcher.is_multi_node(context.job) || launcher.open || configured || launcher.has(ENDPOINT) {
        return;
    }
    if ["PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "ACCELERATE_CONFIG_FILE"].iter().any(|name| set(name)) {
        return;
    }
    let message = match launcher.kind {
        Kind::Torchrun => {
            "on several nodes every node dials its own 127.0.0.1:29500: torchrun takes the endpoint from its options or PET_ variables, never from MASTER_ADDR"
        }
        Kind::Accelerate => "on several machines no endpoint is given, so each waits for itself",
    };
    let fix = match launcher.kind {
        Kind::Torchrun => {
            "give --master_addr=FIRST_HOST --master_port=PORT, with FIRST_HOST from: scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p; and the node's rank, which only a task's shell knows: srun bash -c 'torchrun ... --node_rank=$SLURM_NODEID ...', in single quotes"
        }
        Kind::Accelerate => {
            "give --main_process_ip and --main_process_port; and the machine's rank, which only a task's shell knows: srun bash -c 'accelerate launch ... --machine_rank=$SLURM_NODEID ...', in single quotes"
        }
    };
    notes.note("no-endpoint", launcher.at, launcher.end, message.to_owned(), fix.to_owned());
}

fn is_static(launcher: &Launcher) -> bool {
    let backend = launcher.option(&["rdzv_backend"]).and_then(|(_, value, ..)| value.as_ref());
    backend.is_none_or(|value| value.is("static")) && !launcher.has(&["rdzv_endpoint"])
}

fn node_rank(context: &Context<'_>, launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    if !launcher.is_multi_node(context.job) {
        return;
    }
    let given = launcher.option(NODE_RANK);
    let rank = match launcher.kind {
        Kind::Torchrun => "node_rank",
        Kind::Accelerate => "machine_rank",
    };
    if given.is_none()
        && !launcher.open
        && launcher.has(ENDPOINT)
        && is_static(launcher)
        && !context.facts.sets("PET_NODE_RANK")
        && !launcher.has(&["config_file"])
    {
        notes.note(
            "no-node-rank",
            launcher.at,
            launcher.end,
            "every node says that it is node 0: with a static rendezvous the rank of the node must be given"
                .to_owned(),
            format!("add --{rank}=$SLURM_NODEID {IN_TASK}"),
        );
    }
    let Some((_, Some(value), at, end)) = given else { return };
    let constant = value.text.number().filter(|_| value.text.certainty == Certainty::Sure);
    if let Some(constant) = constant
        && context.spans_nodes(call)
        && !call.place.looped
        && is_static(launcher)
    {
        notes.note(
            "constant-node-rank",
            *at,
            *end,
            format!("every node says that it is node {constant}"),
            format!("write $SLURM_NODEID {IN_TASK}"),
        );
    }
}

fn nodes(context: &Context<'_>, launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    let job = context.job;
    let asked = launcher.nodes(job);
    let step_nodes = context.step_of(call).map_or(job.nodes, |step| step.nodes);
    let spans = context.spans_nodes(call) && !call.place.looped && !call.place.guarded;
    if asked == Count::Absent
        && !launcher.open
        && spans
        && launcher.kind == Kind::Torchrun
        && !context.facts.sets("PET_NNODES")
    {
        notes.note(
            "nodes-not-given",
            launcher.at,
            launcher.end,
            "without --nnodes each node trains on its own, as a world of one node".to_owned(),
            "add --nnodes=$SLURM_JOB_NUM_NODES and an endpoint".to_owned(),
        );
    }
    if let (Count::Known(asked), Some(there)) = (asked, step_nodes)
        && asked != there
        && job.is_batch()
        && let Some((_, _, at, end)) = launcher.option(launcher.names_of_nodes())
        && (spans || call.step.is_none() || asked > 1)
        && !call.place.looped
    {
        let message = if asked > there {
            format!("it waits for {asked} nodes, and {there} of them start it")
        } else {
            format!("{there} nodes start it, and it takes {asked}")
        };
        // Of a job with fewer nodes than the launcher wants nothing else needs saying.
        notes.note(
            "nodes-mismatch",
            *at,
            *end,
            message,
            "write $SLURM_JOB_NUM_NODES, or the same number".to_owned(),
        );
        return;
    }
    if call.step.is_none()
        && launcher.is_multi_node(job)
        && job.is_multi_node()
        && !call.place.looped
        && !is_remote(call.name())
        && !call.place.function
    {
        notes.note(
            "not-under-srun",
            launcher.at,
            launcher.end,
            "the batch script runs on the first node only: the others never start this, and it waits for them".to_owned(),
            "start it with srun --ntasks-per-node=1".to_owned(),
        );
    }
    alone(context, launcher, call, notes);
}

/// A launcher on the first node of several, where nothing starts on the others.
fn alone(context: &Context<'_>, launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    let Some(nodes) = context.job.nodes.filter(|nodes| *nodes > 1) else { return };
    let elsewhere = context.facts.sources
        || !context.steps.is_empty()
        || context
            .facts
            .calls
            .iter()
            .any(|call| is_remote(call.name()) && !matches!(call.name(), "echo" | "printf"));
    if context.job.is_batch()
        && !elsewhere
        && call.step.is_none()
        && !launcher.open
        && !launcher.is_multi_node(context.job)
        && !call.place.function
    {
        notes.note(
            "idle-gpus",
            launcher.at,
            launcher.end,
            format!("the job has {nodes} nodes, and the batch script runs on the first alone: nothing starts on the others"),
            "start it with srun --ntasks-per-node=1 and --nnodes=$SLURM_JOB_NUM_NODES, or ask for one node".to_owned(),
        );
    }
}

/// DeepSpeed's launcher on several nodes. It is no [`Launcher`]: one of them starts all nodes, by a list of hosts, and without
/// that it knows of its own machine alone.
fn deepspeed(context: &Context<'_>, notes: &mut Notes<'_>) {
    for call in context.facts.calls.iter().filter(|call| call.is_own() && !is_remote(call.name())) {
        let Some(program) = call.fields.get(call.program).filter(|field| field.base() == "deepspeed") else {
            continue;
        };
        // Options of the launcher stand before the program that it starts.
        let own = call.arguments().iter().take_while(|field| !field.base().ends_with(".py"));
        let is_told = |field: &Field| {
            let text = field.text.beginning();
            let name = text.split('=').next().unwrap_or_default();
            // What a variable brings along may tell it anything.
            text.is_empty()
                || name == "-H"
                || ["--hostfile", "--no_ssh", "--launcher", "--node_rank"].contains(&name)
        };
        if context.spans_nodes(call)
            && !call.place.guarded
            && !call.place.looped
            && !own.into_iter().any(is_told)
            && !context.facts.sets("DLTS_HOSTFILE")
        {
            notes.note(
                "nodes-not-given",
                program.at,
                program.end,
                "without --hostfile deepspeed knows of its own node alone, so that each node trains on its own"
                    .to_owned(),
                "start torchrun or one task for each GPU by srun; or deepspeed once, in the batch script, with --hostfile"
                    .to_owned(),
            );
        }
    }
}

fn processes(context: &Context<'_>, launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    let Count::Known(processes) = launcher.count(PROCESSES, context.job) else { return };
    let Some((_, value, at, end)) = launcher.option(PROCESSES) else { return };
    if value.as_ref().is_some_and(|value| value.text.certainty == Certainty::Maybe) {
        return;
    }
    let step = context.step_of(call);
    let is_one = step.is_some_and(|step| step.tasks_per_node.is_none_or(|tasks| tasks == 1));
    if let Some(share) = step.and_then(|step| step.gpus_of_task).filter(|share| is_one && processes > *share)
    {
        notes.note(
            "processes-and-gpus",
            *at,
            *end,
            format!("{processes} processes share what Slurm gives their task: {share} of the node's GPUs (invalid device ordinal, duplicate GPU)"),
            format!("leave out the option that binds GPUs to tasks, or write --gpus-per-task={processes}"),
        );
        return;
    }
    let gpus = match step {
        Some(step) => step.gpus_per_node,
        None => context.job.gpus_per_node,
    };
    let Some(gpus) = gpus.filter(|gpus| *gpus > 0) else { return };
    if step.and_then(|step| step.tasks_per_node).is_some_and(|tasks| tasks > 1) {
        return;
    }
    if processes > gpus {
        notes.note(
            "processes-and-gpus",
            *at,
            *end,
            format!("{processes} processes share {gpus} GPUs: NCCL refuses two ranks on one (invalid device ordinal, duplicate GPU)"),
            format!("start {gpus}"),
        );
    } else if processes < gpus && processes > 0 {
        notes.note(
            "idle-gpus",
            *at,
            *end,
            format!("the job has {gpus} GPUs on a node, and {processes} processes use them"),
            format!("start {gpus}, or ask for {processes} GPUs"),
        );
    }
}

fn shim(launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    let index = call.fields.iter().position(|field| field.at == launcher.at);
    let before = index.and_then(|index| index.checked_sub(1)).and_then(|index| call.fields.get(index));
    let is_uv = call.fields.iter().take(8).any(|field| field.base() == "uv");
    if launcher.kind == Kind::Torchrun
        && is_uv
        && before.is_some()
        && index.and_then(|index| call.fields.get(index)).is_some_and(|field| field.is("torchrun"))
    {
        notes.replace(
            "torchrun-shim",
            (launcher.at, launcher.end),
            "uv takes the first torchrun of PATH, which may belong to another Python than the environment's"
                .to_owned(),
            "write python -m torch.distributed.run".to_owned(),
            "python -m torch.distributed.run".to_owned(),
        );
    }
}
