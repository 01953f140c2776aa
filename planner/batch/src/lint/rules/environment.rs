//! Variables of the libraries.

use super::super::notes::Notes;
use super::super::text::{Certainty, Text};
use super::super::walk::Field;
use super::Context;

/// Looks at what is set for NCCL, CUDA and Megatron.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let several = context.job.is_multi_node();
    let mut settings: Vec<(&str, &super::super::text::Text, u32)> = Vec::new();
    for assigned in &context.facts.assigned {
        settings.push((&assigned.name, &assigned.value, assigned.at));
    }
    for call in context.facts.calls.iter().filter(|call| !call.fields.is_empty() && call.is_own()) {
        settings.extend(call.assigns.iter().map(|(name, field)| (name.as_str(), &field.text, field.at)));
    }
    for (name, value, at) in settings {
        let Some(text) = value.known() else { continue };
        let end = value.place(value.len()).max(at + 1);
        match (name, text) {
            ("NCCL_SOCKET_IFNAME" | "GLOO_SOCKET_IFNAME", "lo" | "=lo") if several => notes.note(
                "loopback-interface",
                at,
                end,
                "over lo no node reaches another".to_owned(),
                "name the network's interface, or leave the variable out".to_owned(),
            ),
            ("NCCL_IB_DISABLE" | "NCCL_P2P_DISABLE" | "NCCL_SHM_DISABLE" | "CUDA_LAUNCH_BLOCKING", "1") => {
                notes.note(
                    "debug-setting",
                    at,
                    end,
                    format!("{name}=1 helps to find faults and costs much speed"),
                    "remove it for real runs".to_owned(),
                )
            }
            ("CUDA_VISIBLE_DEVICES", _) => visible(context, text, value.certainty, (at, end), notes),
            _ => {}
        }
    }
    of_task(context, notes);
    connections(context, notes);
    shadowed(context, notes);
}

/// A GPU that is chosen by the task's number on its node, where Slurm gives each task one of its own.
fn of_task(context: &Context<'_>, notes: &mut Notes<'_>) {
    const NAME: &str = "CUDA_VISIBLE_DEVICES";
    let is_number =
        |text: &Text| text.len() == 1 && text.holes().any(|(_, hole)| &*hole.name == "SLURM_LOCALID");
    for (index, call) in context.facts.calls.iter().enumerate() {
        let own = context.steps.iter().find(|step| Some(step.call) == call.step || step.call == index);
        // What the batch script itself sets is for every step behind it.
        let later = || context.steps.iter().find(|step| step.gpu_of_task && step.call > index);
        let set = || call.assigns.iter().find(|(name, field)| name == NAME && is_number(&field.text));
        let as_word = |field: &Field| {
            let text = &field.text;
            let of_option = text.beginning().rsplit(',').next().and_then(|last| last.strip_suffix('='));
            of_option == Some(NAME) && is_number(&text.slice(text.beginning().len(), text.len()))
        };
        let word = || {
            let given = call.options.iter().filter(|option| option.name == "export");
            let mut words = given.filter_map(|option| option.value.as_ref()).chain(
                // A step's words are those of its command, which is a call of its own.
                call.fields.iter().filter(|_| call.is_own()),
            );
            words.find(|field| as_word(field))
        };
        let Some(at) = set().map(|(_, field)| field.at).or_else(|| word().map(|field| field.at)) else {
            continue;
        };
        if own.or_else(later).is_some_and(|step| step.gpu_of_task) {
            notes.note(
                "visible-devices-of-task",
                at,
                at + NAME.len() as u32,
                "Slurm gives each task of this step one GPU, and this chooses among several by the task's number".to_owned(),
                format!("leave {NAME} out: each task sees its own GPU"),
            );
        }
    }
}

fn visible(
    context: &Context<'_>,
    text: &str,
    certainty: Certainty,
    place: (u32, u32),
    notes: &mut Notes<'_>,
) {
    let count = text.split(',').filter(|part| !part.trim().is_empty()).count() as u64;
    if certainty != Certainty::Sure
        || count == 0
        || !text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',' || byte == b' ')
    {
        return;
    }
    for launcher in &context.launchers {
        if let super::super::launcher::Count::Known(processes) =
            launcher.count(&["nproc_per_node"], context.job)
            && processes > count
        {
            notes.note(
                "visible-devices",
                place.0,
                place.1,
                format!(
                    "{count} GPUs are visible, and line {} starts {processes} processes",
                    notes.line_of(launcher.at)
                ),
                "leave the variable out: Slurm shows each job its GPUs".to_owned(),
            );
            return;
        }
    }
}

/// Megatron-LM wants CUDA_DEVICE_MAX_CONNECTIONS=1 for sequence parallelism before Blackwell (megatron/training/arguments.py).
fn connections(context: &Context<'_>, notes: &mut Notes<'_>) {
    if context.facts.sets("CUDA_DEVICE_MAX_CONNECTIONS") || context.facts.sources {
        return;
    }
    for call in context.facts.calls.iter().filter(|call| call.is_own()) {
        let is_megatron = call
            .fields
            .iter()
            .any(|field| field.base().starts_with("pretrain_") && field.base().ends_with(".py"));
        let Some(flag) = call.fields.iter().find(|field| field.is("--sequence-parallel")) else { continue };
        if is_megatron {
            notes.note(
                "max-connections",
                flag.at,
                flag.end,
                "Megatron-LM refuses --sequence-parallel on GPUs before Blackwell unless CUDA_DEVICE_MAX_CONNECTIONS is 1".to_owned(),
                "export CUDA_DEVICE_MAX_CONNECTIONS=1".to_owned(),
            );
            return;
        }
    }
}

/// A checkout of Megatron-LM inside of Bridge is behind the image's own megatron-core.
fn shadowed(context: &Context<'_>, notes: &mut Notes<'_>) {
    for call in context.facts.calls.iter().filter(|call| call.is_own()) {
        let script = call.fields.iter().find(|field| {
            field.text.beginning().contains("3rdparty/Megatron-LM/pretrain_")
                || field.text.shown().contains("3rdparty/Megatron-LM/pretrain_")
        });
        if let Some(script) = script
            && !context.facts.sets("PYTHONPATH")
        {
            notes.note(
                "megatron-shadowed",
                script.at,
                script.end,
                "the image's megatron-core is found before this checkout's (No module named 'megatron.core...')".to_owned(),
                "set PYTHONPATH=$WORKDIR/3rdparty/Megatron-LM:${PYTHONPATH:-} before the command".to_owned(),
            );
            return;
        }
    }
}
