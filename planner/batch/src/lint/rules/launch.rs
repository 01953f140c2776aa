//! Launchers: who spawns how many processes, and where they meet.

use super::super::facts::{Call, is_remote};
use super::super::launcher::{Count, Kind, Launcher};
use super::super::notes::Notes;
use super::super::text::{Certainty, HoleKind};
use super::super::walk::{Field, is_rank};
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
    addresses(context, notes);
}

const ENDPOINT: &[&str] = &["master_addr", "rdzv_endpoint", "main_process_ip"];
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

fn processes(context: &Context<'_>, launcher: &Launcher, call: &Call, notes: &mut Notes<'_>) {
    let Count::Known(processes) = launcher.count(PROCESSES, context.job) else { return };
    let Some((_, value, at, end)) = launcher.option(PROCESSES) else { return };
    if value.as_ref().is_some_and(|value| value.text.certainty == Certainty::Maybe) {
        return;
    }
    let gpus = match context.step_of(call) {
        Some(step) => step.gpus_per_node,
        None => context.job.gpus_per_node,
    };
    let Some(gpus) = gpus.filter(|gpus| *gpus > 0) else { return };
    if context.step_of(call).and_then(|step| step.tasks_per_node).is_some_and(|tasks| tasks > 1) {
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

/// The address at which ranks meet, wherever it is set.
fn addresses(context: &Context<'_>, notes: &mut Notes<'_>) {
    let several = context.job.is_multi_node()
        || context.launchers.iter().any(|launcher| launcher.is_multi_node(context.job));
    for assigned in &context.facts.assigned {
        match assigned.name.as_str() {
            "MASTER_ADDR" | "PET_MASTER_ADDR" | "head_node_ip" | "MAIN_PROCESS_IP" => {
                let field = Field {
                    text: assigned.value.clone(),
                    at: assigned.at,
                    end: assigned.value.place(assigned.value.len()).max(assigned.at + 1),
                    quoted: true,
                    split: false,
                };
                address(&field, several && !assigned.place.conditional, notes);
            }
            "MASTER_PORT" | "PET_MASTER_PORT" => {
                let end = assigned.value.place(assigned.value.len()).max(assigned.at + 1);
                port(context, &assigned.value, (assigned.at, end), notes);
            }
            _ => {}
        }
    }
    for launcher in &context.launchers {
        let multi = launcher.is_multi_node(context.job);
        if let Some((_, Some(value), at, end)) = launcher.option(ENDPOINT) {
            let field = Field { at: *at, end: *end, ..value.clone() };
            address(&field, multi, notes);
            if let Some((_, after)) = value.text.known().and_then(|text| text.rsplit_once(':')) {
                let text = super::super::text::Text::known_at(after, *at);
                port(context, &text, (*at, *end), notes);
            }
        }
        if let Some((_, Some(value), at, end)) = launcher.option(&["master_port", "main_process_port"]) {
            port(context, &value.text, (*at, *end), notes);
        }
    }
}

fn address(field: &Field, several: bool, notes: &mut Notes<'_>) {
    let fix = "take the job's first host: MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\", in the batch script";
    let text = field.text.beginning();
    let host = text.split(':').next().unwrap_or_default();
    if several
        && matches!(host, "localhost" | "127.0.0.1" | "0.0.0.0" | "::1")
        && field.text.certainty == Certainty::Sure
    {
        notes.note(
            "loopback-address",
            field.at,
            field.end,
            format!("{host} is another machine on every node: the nodes never meet"),
            fix.to_owned(),
        );
    }
    for (_, hole) in field.text.holes() {
        if several
            && hole.on_task
            && ((hole.kind == HoleKind::Command && &*hole.name == "hostname")
                || matches!(&*hole.name, "HOSTNAME" | "SLURMD_NODENAME"))
        {
            notes.note(
                "address-of-each-node",
                field.at,
                field.end,
                "each task asks its own host for a name, so that every node waits at itself".to_owned(),
                fix.to_owned(),
            );
        }
        if &*hole.name == "SLURM_LAUNCH_NODE_IPADDR" {
            notes.note(
                "launch-node-address",
                field.at,
                field.end,
                "SLURM_LAUNCH_NODE_IPADDR is the host where srun was called, which need not be a node of the job".to_owned(),
                fix.to_owned(),
            );
        }
    }
}

fn port(context: &Context<'_>, text: &super::super::text::Text, place: (u32, u32), notes: &mut Notes<'_>) {
    let job = context.job;
    if let Some(port) = text.number() {
        if port > 65535 || port == 0 {
            notes.note(
                "port-range",
                place.0,
                place.1,
                format!("there is no port {port}: ports go up to 65535"),
                "use a number from 10000 to 60000".to_owned(),
            );
        } else if port < 1024 {
            notes.note(
                "port-range",
                place.0,
                place.1,
                format!("port {port} is one of those that only root may open"),
                "use a number from 10000 to 60000".to_owned(),
            );
        } else if job.option("array").is_some() && text.certainty == Certainty::Sure {
            notes.note(
                "fixed-port",
                place.0,
                place.1,
                format!("all jobs of the array use port {port}, and two of them may share a node"),
                "derive it from the job: $((15000 + SLURM_JOB_ID % 10000))".to_owned(),
            );
        }
    }
    let bare_id = text.len() == 1
        && text.holes().any(|(_, hole)| matches!(&*hole.name, "SLURM_JOB_ID" | "SLURM_JOBID"));
    if bare_id {
        notes.note(
            "port-range",
            place.0,
            place.1,
            "the number of a job soon is larger than any port".to_owned(),
            "write $((15000 + SLURM_JOB_ID % 10000))".to_owned(),
        );
    }
    let differs = text.holes().any(|(_, hole)| {
        hole.on_task
            && (&*hole.name == "RANDOM"
                || is_rank(&hole.name)
                || (hole.kind == HoleKind::Arithmetic && hole.name.contains("RANDOM"))
                || (hole.kind == HoleKind::Command && &*hole.name == "shuf"))
    });
    if differs {
        notes.note(
            "port-of-each-task",
            place.0,
            place.1,
            "each task draws a port of its own, and they never meet".to_owned(),
            "choose the port in the batch script, from the job's number".to_owned(),
        );
    }
}
