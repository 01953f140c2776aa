//! Names of hosts that come to nothing, or to the machine itself, without a word: fallbacks, /etc/hosts, containers, shortened
//! lists of nodes.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::text::{Certainty, HOLE, HoleKind, Text};
use super::super::walk::Field;
use super::Context;
use super::escapes::expansion_at;

/// Names by which every machine calls itself.
const LOOPBACK: [&str; 4] = ["localhost", "127.0.0.1", "0.0.0.0", "::1"];
/// Variables and options that say where ranks meet.
const ADDRESSES: [&str; 8] = [
    "MASTER_ADDR",
    "PET_MASTER_ADDR",
    "MAIN_PROCESS_IP",
    "head_node_ip",
    "RDZV_HOST",
    "RDZV_ENDPOINT",
    "PET_RDZV_ENDPOINT",
    "HEAD_NODE_IP",
];
const FIX: &str = "take the first host in the batch script, and let it fail: MASTER_ADDR=\"$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)\"";

/// Looks at what an address falls back to.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let several = context.job.is_multi_node()
        || context.launchers.iter().any(|launcher| launcher.is_multi_node(context.job));
    for call in &context.facts.calls {
        if call.name() == "scontrol"
            && call.arguments().first().is_some_and(|field| field.is("show"))
            && context.step_of(call).is_some_and(|step| step.container)
        {
            notes.note(
                "scontrol-in-container",
                call.at,
                call.end,
                "the container's image has no scontrol, so this gives no host".to_owned(),
                "run it in the batch script, export MASTER_ADDR, and use that here".to_owned(),
            );
        }
        if several {
            by_command(call, notes);
            by_piece(context, call, notes);
        }
    }
    if !several {
        return;
    }
    for assigned in &context.facts.assigned {
        if ADDRESSES.contains(&assigned.name.as_str()) && !assigned.place.conditional {
            by_default(&assigned.value, assigned.at, notes);
        }
        // What is set again is not what ranks are told.
        let is_last = context.facts.value(&assigned.name).is_some_and(|last| last.at == assigned.at);
        if ADDRESSES.contains(&assigned.name.as_str()) && is_last {
            by_list(context, &assigned.value, notes);
        }
    }
    for launcher in context.launchers.iter().filter(|launcher| launcher.is_multi_node(context.job)) {
        if let Some((_, Some(value), at, _)) =
            launcher.option(&["master_addr", "rdzv_endpoint", "main_process_ip"])
        {
            by_default(&value.text, *at, notes);
            by_list(context, &value.text, notes);
        }
    }
}

/// Whether a text is a host that is the machine itself, with or without a port.
fn is_loopback(text: &str) -> bool {
    let host = text.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    LOOPBACK.contains(&text) || host.is_some_and(|(host, _)| LOOPBACK.contains(&host))
}

/// `${NAME:-localhost}`.
fn by_default(value: &Text, at: u32, notes: &mut Notes<'_>) {
    let host = value.beginning().split(':').next().unwrap_or_default();
    if value.certainty == Certainty::Default && is_loopback(host) {
        notes.note(
            "silent-loopback",
            at,
            value.place(value.len()).max(at + 1),
            format!("where the name is not set this is {host}, and every node waits at itself"),
            FIX.to_owned(),
        );
    }
}

/// Variables that hold names of nodes as Slurm shortens them.
const NODES: [&str; 3] = ["SLURM_JOB_NODELIST", "SLURM_NODELIST", "SLURM_STEP_NODELIST"];

/// `MASTER_ADDR=$SLURM_JOB_NODELIST`, or a piece of it that the shell takes.
fn by_list(context: &Context<'_>, value: &Text, notes: &mut Notes<'_>) {
    let Some((place, hole)) = value.holes().find(|(_, hole)| NODES.contains(&&*hole.name)) else { return };
    if hole.kind != HoleKind::Variable || value.bytes().first() != Some(&HOLE) {
        return;
    }
    let (start, end, written) = expansion_at(context.source, place);
    let is_whole = written == format!("${}", hole.name) || written == format!("${{{}}}", hole.name);
    let message = if is_whole {
        format!("{written} is the list of all nodes as Slurm shortens it, and no host has that name")
    } else {
        "this takes a piece of the list of nodes as Slurm shortens it".to_owned()
    };
    let instead = "$(scontrol show hostnames \"$SLURM_JOB_NODELIST\" | sed -n 1p)".to_owned();
    let fix = format!("take the first host in the batch script: {instead}");
    // A task may be in a container, which has no scontrol.
    let mends = is_whole && !hole.on_task;
    notes.replace_around(
        "compressed-nodelist",
        (start, end),
        message,
        fix,
        mends.then_some(((start, end), instead)),
    );
}

/// `echo $SLURM_JOB_NODELIST | cut -d, -f1`.
fn by_piece(context: &Context<'_>, call: &Call, notes: &mut Notes<'_>) {
    let has_nodes = |field: &Field| field.text.holes().any(|(_, hole)| NODES.contains(&&*hole.name));
    let says = matches!(call.name(), "echo" | "printf") && call.arguments().iter().any(has_nodes);
    if !call.place.substituted || !says {
        return;
    }
    let of_pipeline = |other: &&Call| other.place.pipeline == call.place.pipeline && other.at > call.at;
    let cuts = |other: &Call| matches!(other.name(), "cut" | "awk" | "sed" | "tr" | "head" | "grep");
    let mut rest = context.facts.calls.iter().filter(of_pipeline);
    if let Some(cut) = rest.next().filter(|other| cuts(other)) {
        notes.note(
            "compressed-nodelist",
            call.at,
            cut.end,
            "this takes a piece of the list of nodes as Slurm shortens it".to_owned(),
            "take the first of scontrol show hostnames \"$SLURM_JOB_NODELIST\"".to_owned(),
        );
    }
}

/// `|| echo localhost` and `hostname --ip-address`, where their output becomes a value.
fn by_command(call: &Call, notes: &mut Notes<'_>) {
    if !call.place.substituted {
        return;
    }
    let says = |field: &Field| field.text.known().is_some_and(is_loopback);
    if matches!(call.name(), "echo" | "printf") && call.arguments().iter().any(says) {
        notes.note(
            "silent-loopback",
            call.at,
            call.end,
            "when what stands before fails, every node waits at itself".to_owned(),
            FIX.to_owned(),
        );
    }
    let program = call.fields.iter().position(|field| field.base() == "hostname");
    let by_address = |field: &Field| {
        field.is("-i") || field.is("-I") || field.is("--ip-address") || field.is("--all-ip-addresses")
    };
    if let Some(program) = program
        && matches!(call.name(), "hostname" | "srun")
        && call.fields.get(program + 1).is_some_and(by_address)
    {
        notes.note(
            "silent-loopback",
            call.fields[program].at,
            call.fields[program + 1].end,
            "this asks /etc/hosts, which on many nodes says 127.0.1.1, or several addresses at once"
                .to_owned(),
            FIX.to_owned(),
        );
    }
}
