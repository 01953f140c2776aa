//! Variables of the libraries.

use super::super::launcher::Count;
use super::super::notes::Notes;
use super::super::step::Step;
use super::super::text::{Certainty, Hole, Text};
use super::super::walk::Field;
use super::Context;
use super::steps::runs_python;

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
    for_all_tasks(context, notes);
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
        let later = || context.steps.iter().find(|step| step.gives_one_gpu() && step.call > index);
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
        if own.or_else(later).is_some_and(|step| step.gives_one_gpu()) {
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

/// Choices of GPUs that are looked at; a real script has one.
const MOST_CHOICES: usize = 20;

/// GPUs that the batch script chooses once, where several processes of a node need one each.
fn for_all_tasks(context: &Context<'_>, notes: &mut Notes<'_>) {
    const NAMES: [&str; 3] = ["CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"];
    let facts = context.facts;
    let is_set_there = |name: &str| {
        let sets = |field: &Field| {
            field.text.beginning().strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
        };
        facts.assigned.iter().any(|one| one.name == name && one.place.depth > 0)
            || facts.calls.iter().filter(|call| call.step.is_some()).any(|call| {
                call.assigns.iter().any(|(known, _)| known == name) && !call.payload
                    || call.fields.iter().any(sets)
            })
    };
    let is_taken_back = |name: &str, from: u32, to: u32| {
        facts.calls.iter().any(|call| {
            call.name() == "unset"
                && (from..to).contains(&call.at)
                && call.arguments().iter().any(|field| field.is(name))
        })
    };
    let exported =
        facts.assigned.iter().filter(|one| one.place.depth == 0 && facts.exported.contains(&one.name));
    let exported = exported.map(|one| (one.name.as_str(), &one.value, one.at, None));
    let given = context.steps.iter().flat_map(|step| {
        let assigns = context.call(step.call).assigns.iter();
        assigns.map(move |(name, field)| (name.as_str(), &field.text, field.at, Some(step.call)))
    });
    // Each step, whether a launcher starts its processes, and how many a node has where that is known.
    let steps = context.steps.iter().filter(|step| !step.gives_one_gpu());
    let wanting: Vec<(&Step, bool, Option<u64>)> = steps
        .map(|step| {
            let mut launchers = context.launchers.iter();
            match launchers.find(|launcher| context.call(launcher.call).step == Some(step.call)) {
                Some(launcher) => match launcher.count(&["nproc_per_node"], context.job) {
                    Count::Known(processes) => (step, true, Some(processes)),
                    _ => (step, true, None),
                },
                None => (step, false, step.tasks_per_node.filter(|_| runs_python(context, step))),
            }
        })
        .collect();
    let of_devices = exported.chain(given).filter(|(name, ..)| NAMES.contains(name)).take(MOST_CHOICES);
    for (name, value, at, only) in of_devices {
        let Some((count, is_of_first)) = chosen(value).filter(|_| !is_set_there(name)) else {
            continue;
        };
        for (step, launched, wanted) in &wanting {
            let call = context.call(step.call);
            // Of a list of numbers and a launcher it is said elsewhere.
            let Some(wanted) = wanted.filter(|wanted| *wanted > count && (is_of_first || !launched)) else {
                continue;
            };
            if !only.map_or(call.at > at && !is_taken_back(name, at, call.at), |only| only == step.call) {
                continue;
            }
            let what = if is_of_first {
                "the first task's number, which the batch script's shell puts here once".to_owned()
            } else {
                format!("{count} of a node's GPUs")
            };
            let whose = if *launched { "processes" } else { "tasks" };
            notes.note(
                "visible-devices-for-all",
                at,
                at + name.len() as u32,
                format!("all {wanted} {whose} of a node on line {} are told {what}", notes.line_of(call.at)),
                format!("leave {name} out: each process takes the GPU of its number on the node"),
            );
            break;
        }
    }
}

/// How many GPUs a value names for all tasks, and whether it is the number of the first.
fn chosen(value: &Text) -> Option<(u64, bool)> {
    if value.certainty != Certainty::Sure {
        return None;
    }
    let is_number = |hole: &Hole| !hole.on_task && matches!(&*hole.name, "SLURM_LOCALID" | "SLURM_PROCID");
    if value.len() == 1 && value.holes().any(|(_, hole)| is_number(hole)) {
        return Some((1, true));
    }
    let text = value.known()?;
    let is_list = !text.is_empty()
        && text.split(',').all(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    is_list.then(|| (text.split(',').count() as u64, false))
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
