//! What each srun asks for, and what the job has.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::options::{self, PYXIS};
use super::super::step::Step;
use super::super::walk::body_index;
use super::Context;

/// Looks at the steps.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for step in &context.steps {
        let call = context.call(step.call);
        pyxis(call, notes);
        size(context, step, call, notes);
        tasks(context, step, call, notes);
        nodelist(context, call, notes);
        exports(call, notes);
        cpus(context, step, call, notes);
        if options::last(&call.options, "pty").is_some() && context.job.is_batch() {
            notes.note(
                "pty-in-batch",
                call.at,
                call.end,
                "a batch job has no terminal for --pty".to_owned(),
                "use it in salloc, and leave it out here".to_owned(),
            );
        }
    }
    // Not steps of the batch script's own: what a task starts.
    for call in context.facts.calls.iter().filter(|call| call.name() == "srun" && !call.payload) {
        nested(context, call, notes);
    }
    gpus(context, notes);
    export_none(context, notes);
}

fn pyxis(call: &Call, notes: &mut Notes<'_>) {
    let given = &call.options;
    let find = |name: &str| options::last(given, name);
    for (one, other) in [
        ("container-mount-home", "no-container-mount-home"),
        ("container-writable", "container-readonly"),
        ("container-remap-root", "no-container-remap-root"),
        ("container-entrypoint", "no-container-entrypoint"),
    ] {
        if let (Some(_), Some(second)) = (find(one), find(other)) {
            notes.note(
                "pyxis-conflict",
                second.at,
                second.end,
                format!("pyxis refuses --{one} and --{other} together"),
                "keep one of them".to_owned(),
            );
        }
    }
    for (name, _) in PYXIS {
        let mut uses = given.iter().filter(|option| option.name == *name);
        let first = uses.next();
        if let (Some(_), Some(second)) = (first, uses.next())
            && matches!(*name, "container-image" | "container-workdir" | "container-name" | "container-save")
        {
            notes.note(
                "pyxis-conflict",
                second.at,
                second.end,
                format!("pyxis refuses --{name} given twice"),
                "keep one of them".to_owned(),
            );
        }
    }
    for given in given.iter().filter(|option| option.name == "container-mounts") {
        let Some(value) = &given.value else { continue };
        let Some(text) = value.text.known() else { continue };
        for mount in text.split(',').filter(|mount| !mount.is_empty()) {
            let mut parts = mount.split(':');
            let source = parts.next().unwrap_or_default();
            let target = parts.next();
            let flags = parts.next();
            let is_source = source.starts_with('/')
                || source.starts_with("./")
                || source == "tmpfs"
                || source == "umount"
                || source.starts_with('<');
            let is_target = target.is_none_or(|target| target.starts_with('/') || target.starts_with('<'));
            if !is_source
                || !is_target
                || parts.next().is_some()
                || flags.is_some_and(|flags| flags.contains('/'))
            {
                let shown: String = mount.chars().take(80).collect();
                notes.note(
                    "pyxis-mount",
                    given.at,
                    given.end,
                    format!("pyxis refuses the mount `{shown}`"),
                    "write SOURCE:TARGET[:FLAGS] with paths from / and flags joined by +".to_owned(),
                );
            }
        }
    }
    if let Some(name) =
        find("container-name").filter(|given| given.value.as_ref().is_some_and(|value| value.text.is_empty()))
    {
        notes.note(
            "pyxis-conflict",
            name.at,
            name.end,
            "pyxis refuses an empty --container-name".to_owned(),
            "give it a name, or leave it out".to_owned(),
        );
    }
}

/// A step that is larger than its job.
fn size(context: &Context<'_>, step: &Step, call: &Call, notes: &mut Notes<'_>) {
    let job = context.job;
    if job.is_heterogeneous() {
        return;
    }
    if let (Some(there), Some(asked)) = (job.nodes, options::number(&call.options, "nodes"))
        && asked > there
        && let Some(given) = options::last(&call.options, "nodes")
    {
        notes.note(
            "step-too-large",
            given.at,
            given.end,
            format!("the step wants {asked} nodes, and the job has {there}"),
            format!("ask for at most {there}"),
        );
    }
    if let (Some(there), Some(asked)) = (job.gpus_per_node, super::super::job::gpus_of(&call.options))
        && asked > there
    {
        notes.note(
            "step-too-large",
            call.at,
            call.at + 4,
            format!("the step wants {asked} GPUs of a node, and the job has {there}"),
            format!("ask for at most {there}"),
        );
    }
    let _ = step;
}

/// An srun that tasks of another start.
fn nested(context: &Context<'_>, call: &Call, notes: &mut Notes<'_>) {
    let Some(outer) = context.step_of(call) else { return };
    let tasks = outer.tasks.filter(|tasks| *tasks > 1);
    if call.place.guarded || call.place.in_else || (tasks.is_none() && !outer.container) {
        return;
    }
    let message = match tasks {
        Some(tasks) => format!("each of {tasks} tasks of the outer srun starts this step again"),
        None => "an image has no srun that knows this job".to_owned(),
    };
    let fix = "start it by one srun, from the batch script".to_owned();
    notes.note("double-spawn", call.at, call.at + 4, message, fix);
}

/// One task for each GPU, where Slurm starts the ranks.
fn tasks(context: &Context<'_>, step: &Step, call: &Call, notes: &mut Notes<'_>) {
    let (Some(tasks), Some(gpus)) = (step.tasks_per_node, step.gpus_per_node) else { return };
    let launched =
        context.launchers.iter().any(|launcher| context.call(launcher.call).step == Some(step.call));
    let given = options::last(&call.options, "gpus-per-task").or_else(|| context.job.option("gpus-per-task"));
    // GPUs that so many tasks are given; as many as they are where nothing is said of one.
    let each = match given {
        None => Some(1),
        Some(given) => given.value.as_ref().and_then(|value| value.text.number()),
    };
    let Some(used) = each.and_then(|each| each.checked_mul(tasks)) else { return };
    if launched || tasks <= 1 || gpus == 0 || used == gpus || !runs_python(context, step) {
        return;
    }
    let (rule, message) = if used > gpus {
        // More than there are for each is Slurm's to refuse.
        if given.is_some() {
            return;
        }
        (
            "tasks-and-gpus",
            format!("{tasks} tasks of a node share {gpus} GPUs: NCCL refuses two ranks on one"),
        )
    } else {
        ("idle-gpus", format!("a node's {tasks} tasks leave {} of its {gpus} GPUs idle", gpus - used))
    };
    let own = |name: &str| options::last(&call.options, name);
    let by_total = own("ntasks-per-node").is_none().then(|| own("ntasks")).flatten();
    let wanted = gpus / each.unwrap_or(1).max(1);
    let (place, fix) =
        match (by_total, own("ntasks-per-node").or_else(|| context.job.option("ntasks-per-node"))) {
            (Some(total), _) => {
                let all = step.nodes.map_or(wanted, |nodes| nodes * wanted);
                ((total.at, total.end), format!("--ntasks={all}, or leave it out"))
            }
            (None, Some(each)) => ((each.at, each.end), format!("--ntasks-per-node={wanted}")),
            (None, None) => ((call.at, call.at + 4), format!("--ntasks-per-node={wanted}")),
        };
    notes.note(rule, place.0, place.1, message, format!("start one task for each GPU: {fix}"));
}

/// Whether tasks of a step start Python.
pub(super) fn runs_python(context: &Context<'_>, step: &Step) -> bool {
    context.facts.calls.iter().any(|call| {
        call.step == Some(step.call)
            && call.fields.iter().take(12).any(|field| field.base().starts_with("python"))
    })
}

/// `-w HOST` inside of a job that asked for other hosts, or for none.
fn nodelist(context: &Context<'_>, call: &Call, notes: &mut Notes<'_>) {
    let Some(given) = options::last(&call.options, "nodelist") else { return };
    let Some(hosts) = given.value.as_ref().and_then(|value| value.text.known()) else { return };
    if hosts.is_empty() || context.job.text("nodelist") == Some(hosts) || !context.job.is_batch() {
        return;
    }
    let shown: String = hosts.chars().take(60).collect();
    notes.note(
        "nodelist-in-step",
        given.at,
        given.end,
        format!("the job may run on other nodes than {shown}, and then this step can't be made (Requested node configuration is not available)"),
        "leave -w out, or take a host from scontrol show hostnames".to_owned(),
    );
}

fn exports(call: &Call, notes: &mut Notes<'_>) {
    let Some(given) = options::last(&call.options, "export") else { return };
    let Some(text) = given.value.as_ref().map(|value| value.text.shown()) else { return };
    let all = text.split(',').any(|part| part.trim() == "ALL");
    if !all && !text.starts_with('$') && !text.is_empty() {
        notes.note(
            "export-drops-environment",
            given.at,
            given.end,
            "without ALL the tasks get these variables and no others".to_owned(),
            "write --export=ALL,NAME=value".to_owned(),
        );
    }
}

fn export_none(context: &Context<'_>, notes: &mut Notes<'_>) {
    let Some(given) = context.job.option("export") else { return };
    let Some(text) = context.job.text("export") else { return };
    let all = text.split(',').any(|part| part == "ALL");
    if all || context.steps.is_empty() || context.facts.sets("SLURM_EXPORT_ENV") {
        return;
    }
    let passes = |step: &Step| options::last(&context.call(step.call).options, "export").is_some();
    if context.steps.iter().all(passes) {
        return;
    }
    notes.note(
        "export-drops-environment",
        given.at,
        given.end,
        "srun inherits this: what the script exports does not reach the tasks".to_owned(),
        "write --export=ALL, or give srun --export=ALL".to_owned(),
    );
}

/// Since Slurm 22.05 srun no longer takes --cpus-per-task from the job.
fn cpus(context: &Context<'_>, step: &Step, call: &Call, notes: &mut Notes<'_>) {
    let Some(cpus) = context.job.option("cpus-per-task") else { return };
    let count = cpus.value.as_ref().and_then(|value| value.text.number());
    let says = ["cpus-per-task", "exclusive", "cpu-bind", "cpus-per-gpu"]
        .iter()
        .any(|name| options::last(&call.options, name).is_some());
    let lends = context.facts.sets("SRUN_CPUS_PER_TASK") || context.facts.sets("SLURM_CPU_BIND");
    if count == Some(1) || says || lends || !step.is_parallel() || needs_one_core(context, step) {
        return;
    }
    notes.note(
        "cpus-not-inherited",
        call.at,
        call.at + 4,
        "since Slurm 22.05 srun does not take --cpus-per-task from the job: each task is bound to one core"
            .to_owned(),
        "add --cpus-per-task=$SLURM_CPUS_PER_TASK to srun, or export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK"
            .to_owned(),
    );
}

/// Commands that are as quick on one core, or wait for something else than cores.
const ON_ONE_CORE: [&str; 62] = [
    "hostname",
    "nvidia-smi",
    "rocm-smi",
    "rm",
    "rmdir",
    "mkdir",
    "cp",
    "mv",
    "ln",
    "ls",
    "cat",
    "echo",
    "printf",
    "date",
    "env",
    "printenv",
    "true",
    "false",
    ":",
    "sleep",
    "touch",
    "test",
    "[",
    "[[",
    "pwd",
    "uname",
    "chmod",
    "chown",
    "lscpu",
    "df",
    "du",
    "free",
    "whoami",
    "id",
    "ulimit",
    "kill",
    "pkill",
    "killall",
    "uptime",
    "ibstat",
    "ibv_devinfo",
    "ibstatus",
    "cd",
    "set",
    "export",
    "unset",
    "exit",
    "head",
    "tail",
    "grep",
    "wc",
    "stat",
    "find",
    "tar",
    "rsync",
    "sync",
    "ip",
    "getent",
    "ping",
    "scontrol",
    "sbcast",
    "nvcc",
];

/// Whether a step's tasks do only what one core does as well: show something, or tidy up.
fn needs_one_core(context: &Context<'_>, step: &Step) -> bool {
    let calls: Vec<&Call> = context.facts.calls.iter().filter(|call| call.step == Some(step.call)).collect();
    let is_small = |call: &&Call| {
        // A shell whose script was read is what that does; an assignment is nothing.
        let reads = body_index(&call.fields).is_some() && calls.len() > 1;
        call.fields.is_empty() || reads || ON_ONE_CORE.contains(&call.name())
    };
    !calls.is_empty() && calls.iter().all(is_small)
}

/// A job that trains and asks for no GPU.
fn gpus(context: &Context<'_>, notes: &mut Notes<'_>) {
    let job = context.job;
    if !job.is_batch() || job.is_exclusive() || job.is_heterogeneous() {
        return;
    }
    let names = ["gpus", "gpus-per-node", "gpus-per-task", "gpus-per-socket", "gres", "tres-per-task"];
    let asks = |given: &[options::Given]| names.iter().any(|name| options::last(given, name).is_some());
    if asks(&job.given) || context.steps.iter().any(|step| asks(&context.call(step.call).options)) {
        return;
    }
    let trains = context.launchers.first();
    if let Some(launcher) = trains {
        notes.note(
            "gpus-not-requested",
            launcher.at,
            launcher.end,
            "the job asks for no GPU; where nodes are not given whole it has none (Cannot find GPU specification)".to_owned(),
            "add #SBATCH --gpus-per-node=8, or --gres=gpu:8 where the site wants that".to_owned(),
        );
    }
}
