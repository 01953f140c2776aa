//! Where ranks meet: the address, the port, and the name of the run.

use super::super::facts::Assigned;
use super::super::launcher::{Count, Launcher};
use super::super::notes::Notes;
use super::super::text::{Certainty, Hole, HoleKind, Text};
use super::super::walk::{Field, is_rank};
use super::launch::ENDPOINT;
use super::{Context, clip};

/// The address at which ranks meet, wherever it is set.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let several = context.job.is_multi_node()
        || context.launchers.iter().any(|launcher| launcher.is_multi_node(context.job));
    // Ranks of one node need only agree with each other.
    let alone =
        |launcher: &Launcher| launcher.nodes(context.job) == Count::Known(1) || launcher.has(&["standalone"]);
    let together = several && !context.launchers.iter().any(alone);
    let place_of =
        |assigned: &Assigned| (assigned.at, assigned.value.place(assigned.value.len()).max(assigned.at + 1));
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
                port(context, &assigned.value, place_of(assigned), together, notes);
            }
            "PET_RDZV_ENDPOINT" | "RDZV_ENDPOINT" => {
                if let Some(after) = port_of(&assigned.value) {
                    port(context, &after, place_of(assigned), together, notes);
                }
            }
            "PET_RDZV_ID" if together => id(context, &assigned.value, place_of(assigned), notes),
            _ => {}
        }
    }
    for launcher in &context.launchers {
        let multi = launcher.is_multi_node(context.job);
        if let Some((_, Some(value), at, end)) = launcher.option(ENDPOINT) {
            let field = Field { at: *at, end: *end, ..value.clone() };
            address(&field, multi, notes);
            if let Some(after) = port_of(&value.text) {
                port(context, &after, (*at, *end), multi, notes);
            }
        }
        if let Some((_, Some(value), at, end)) = launcher.option(&["master_port", "main_process_port"]) {
            port(context, &value.text, (*at, *end), multi, notes);
        }
        if let Some((_, Some(value), at, end)) = launcher.option(&["rdzv_id"]).filter(|_| multi) {
            id(context, &value.text, (*at, *end), notes);
        }
    }
}

/// What stands behind the last colon of an endpoint; none where that may be a part of an address.
fn port_of(endpoint: &Text) -> Option<Text> {
    let bytes = endpoint.bytes();
    let colon = bytes.iter().rposition(|byte| *byte == b':')?;
    let host = bytes.get(..colon)?;
    let is_one = !host.contains(&b':') || host.ends_with(b"]");
    is_one.then(|| endpoint.slice(colon + 1, endpoint.len()))
}

/// Names that mean something else in each task, whichever node it is on.
fn is_of_each_task(name: &str) -> bool {
    matches!(
        name,
        "RANDOM"
            | "SRANDOM"
            | "$"
            | "BASHPID"
            | "SLURM_TASK_PID"
            | "EPOCHREALTIME"
            | "SLURM_PROCID"
            | "SLURM_NODEID"
    )
}

/// Whether a part of a text that a task's shell fills in is another one in each task.
fn differs(context: &Context<'_>, place: u32, hole: &Hole) -> bool {
    if !hole.on_task {
        return false;
    }
    let written = || {
        let rest = context.source.get(place as usize..).unwrap_or_default();
        rest.split(')').next().unwrap_or_default()
    };
    match hole.kind {
        HoleKind::Variable => {
            is_of_each_task(&hole.name) || matches!(&*hole.name, "HOSTNAME" | "SLURMD_NODENAME")
        }
        HoleKind::Arithmetic => {
            let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            hole.name.contains("$$") || hole.name.split(|letter| !is_name(letter)).any(is_of_each_task)
        }
        HoleKind::Command => match &*hole.name {
            "uuidgen" | "hostname" | "shuf" | "mktemp" => true,
            "cat" => written().contains("/random/uuid"),
            "openssl" => written().contains(" rand"),
            // Two tasks may well begin in the same second.
            "date" => written().contains("%N"),
            _ => false,
        },
    }
}

/// The name of a run, by which nodes find each other.
fn id(context: &Context<'_>, text: &Text, (at, end): (u32, u32), notes: &mut Notes<'_>) {
    let Some((_, hole)) = text.holes().find(|(place, hole)| differs(context, *place, hole)) else { return };
    let shown = match hole.kind {
        HoleKind::Variable => format!("${}", hole.name),
        HoleKind::Command => format!("$({} ...)", hole.name),
        HoleKind::Arithmetic => format!("$(({}))", clip(&hole.name)),
    };
    let message = format!("{shown} is another id on each node: nodes of different ids never meet");
    let fix = "write $SLURM_JOB_ID, which is one for the job".to_owned();
    let written = context.source.get(at as usize..end as usize).unwrap_or_default();
    let name = written.split(['=', ' ']).next().unwrap_or_default();
    let is_whole = name.starts_with("--rdzv") && !written.contains(['\'', '\n', '\\']);
    let instead = is_whole.then(|| ((at, end), format!("{name}=$SLURM_JOB_ID")));
    notes.replace_around("id-of-each-node", (at, end), message, fix, instead);
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

/// A port; `together` says whether ranks of several nodes must agree on it.
fn port(context: &Context<'_>, text: &Text, place: (u32, u32), together: bool, notes: &mut Notes<'_>) {
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
    let rank = |hole: &Hole| hole.on_task && is_rank(&hole.name);
    if together && text.holes().any(|(place, hole)| rank(hole) || differs(context, place, hole)) {
        notes.note(
            "port-of-each-task",
            place.0,
            place.1,
            "each task draws a port of its own, and they never meet".to_owned(),
            "choose the port in the batch script, from the job's number".to_owned(),
        );
    }
}
