//! Directives: values that Slurm does not read as they look.

use super::super::notes::Notes;
use super::super::options::{self, Given};
use super::{Context, clip};
use crate::shell::{is_time_limit, limit_seconds};
use planner::finding::nearest_names;

/// Looks at the directives.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let job = context.job;
    for given in &job.given {
        name(given, notes);
        expansion(given, notes);
        placeholder(given, notes);
        let value = given.value.as_ref().and_then(|value| value.text.known());
        if matches!(given.name.as_str(), "time" | "time-min")
            && let Some(value) = value
            && !is_time_limit(value)
            && !value.contains(['$', '<'])
        {
            let at = given.value.as_ref().map_or(given.at, |value| value.at);
            notes.note(
                "time-format",
                at,
                given.end,
                format!("`{}` is not a time that Slurm reads", clip(value)),
                "write M, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED, as in --time=1-12:00:00".to_owned(),
            );
        }
        tiny(given, notes);
        if options::PYXIS.iter().any(|(known, _)| *known == given.name) {
            notes.note(
                "pyxis-in-directive",
                given.at,
                given.end,
                format!("--{} in a directive puts the batch script itself into the container, where srun is missing", given.name),
                "give it to srun".to_owned(),
            );
        }
    }
    // What a component says again is said of other resources.
    job.parts().for_each(|given| repeated(given, notes));
    output(context, notes);
    counts(context, notes);
}

/// Seconds of a limit in which no training begins.
const SHORT: u64 = 120;
/// Megabytes that are less than a Python that has torch takes.
const SMALL: u64 = 1024;

/// A limit in units that nobody may have meant.
fn tiny(given: &Given, notes: &mut Notes<'_>) {
    let Some((value, text)) = given.value.as_ref().and_then(|value| Some((value, value.text.known()?)))
    else {
        return;
    };
    let (what, fix) = match given.name.as_str() {
        "time" => {
            // 0 is no limit.
            let Some(seconds) = limit_seconds(text).filter(|seconds| (1..SHORT).contains(seconds)) else {
                return;
            };
            (format!("{seconds} seconds"), "write H:M:S, as in --time=0:30:00 for half an hour".to_owned())
        }
        "mem" | "mem-per-gpu" | "mem-per-cpu" => {
            // 0 is all that a node has.
            let Some(megabytes) = text.parse().ok().filter(|megabytes| (1..SMALL).contains(megabytes)) else {
                return;
            };
            (format!("{megabytes} MB"), format!("say the unit, as in --{}={megabytes}G", given.name))
        }
        _ => return,
    };
    let message = format!("--{}={} is {what}", given.name, clip(text));
    notes.note("tiny-limit", value.at, value.end, message, fix);
}

fn name(given: &Given, notes: &mut Notes<'_>) {
    if given.name.starts_with('-') || options::long(&given.name).is_some() {
        return;
    }
    // sbatch takes any beginning that only one option has.
    let begins = options::SLURM.iter().filter(|(known, _, _)| known.starts_with(given.name.as_str()));
    if begins.count() > 0 && given.name.len() > 2 {
        return;
    }
    let known = options::SLURM
        .iter()
        .map(|(known, _, _)| *known)
        .chain(options::PYXIS.iter().map(|(known, _)| *known));
    let nearest = nearest_names(&given.name, known, 1).first().copied().unwrap_or_default();
    notes.note(
        "unknown-option",
        given.at,
        given.end,
        format!(
            "neither sbatch nor pyxis has an option --{}, and sbatch refuses what no plugin of the site adds",
            clip(&given.name)
        ),
        format!("the nearest name is --{nearest}"),
    );
}

fn expansion(given: &Given, notes: &mut Notes<'_>) {
    let Some(value) = &given.value else { return };
    let text = value.text.shown();
    let name = given.name.as_str();
    if matches!(name, "wrap" | "comment") {
        return;
    }
    let home = matches!(name, "output" | "error" | "input" | "chdir") && text.starts_with("~/");
    let dollar = text.find('$').filter(|at| {
        text.as_bytes()
            .get(at + 1)
            .is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, b'_' | b'{' | b'('))
    });
    if dollar.is_some() || text.contains('`') {
        let fix = match name {
            "output" | "error" => {
                "write the path itself; Slurm has %j for the job, %x for its name, %u for the user"
            }
            _ => "write the value itself, or give the option on sbatch's command line",
        };
        notes.note(
            "directive-expansion",
            value.at,
            value.end,
            format!("sbatch does not expand `{}`: directives are not read by a shell", clip(&text)),
            fix.to_owned(),
        );
    } else if home {
        notes.note(
            "directive-expansion",
            value.at,
            value.end,
            "sbatch does not expand ~: it means a folder of that name".to_owned(),
            "write the path of your home folder".to_owned(),
        );
    }
}

fn placeholder(given: &Given, notes: &mut Notes<'_>) {
    let Some(value) = &given.value else { return };
    let text = value.text.shown();
    if let Some(name) = placeholder_in(&text) {
        notes.note(
            "placeholder",
            value.at,
            value.end,
            format!("{name} is still to be filled in"),
            "write your site's value".to_owned(),
        );
    }
}

/// `<NAME>` in a text.
pub(super) fn placeholder_in(text: &str) -> Option<&str> {
    let start = text.find('<')?;
    let end = start + text.get(start..)?.find('>')?;
    let name = text.get(start + 1..end)?;
    let is_name = !name.is_empty()
        && name.len() <= 60
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b" _-/.".contains(&byte))
        && name.bytes().any(|byte| byte.is_ascii_alphabetic());
    is_name.then(|| text.get(start..=end))?
}

fn repeated(given: &[Given], notes: &mut Notes<'_>) {
    let mut seen: std::collections::HashMap<&str, &Given> = std::collections::HashMap::new();
    for option in given {
        let value = |given: &Given| given.value.as_ref().map(|value| value.text.shown());
        if let Some(before) = seen.insert(option.name.as_str(), option)
            && value(before) != value(option)
        {
            notes.note(
                "directive-repeated",
                option.at,
                option.end,
                format!(
                    "--{} was given another value on line {}, which does not count",
                    option.name,
                    notes.line_of(before.at)
                ),
                "keep one of them".to_owned(),
            );
        }
    }
}

fn output(context: &Context<'_>, notes: &mut Notes<'_>) {
    let job = context.job;
    let array = job.option("array").is_some();
    for name in ["output", "error"] {
        let Some(given) = job.option(name) else { continue };
        let Some(value) = given.value.as_ref() else { continue };
        let Some(path) = value.text.known() else { continue };
        if path == "/dev/null" || path.contains('$') {
            continue;
        }
        if let Some(folder) = path
            .rfind('/')
            .and_then(|end| path.get(..end))
            .filter(|folder| !folder.is_empty() && *folder != ".")
        {
            notes.note(
                "output-folder",
                value.at,
                value.end,
                format!(
                    "Slurm does not make {}, and a job whose log can't be opened fails without a word",
                    clip(folder)
                ),
                format!("before sbatch: mkdir -p {}", clip(folder)),
            );
        }
        let unique = ["%j", "%J", "%A", "%x_%j", "%N"].iter().any(|sign| path.contains(sign));
        if array && !path.contains("%a") && !path.contains("%j") && !path.contains("%J") {
            notes.note(
                "array-output",
                value.at,
                value.end,
                "all jobs of the array write this one file".to_owned(),
                "use %A_%a in its name".to_owned(),
            );
        } else if !array && !unique && job.text("open-mode") != Some("append") {
            notes.note(
                "output-overwritten",
                value.at,
                value.end,
                "every job writes over the log of the one before".to_owned(),
                "use %j in its name".to_owned(),
            );
        }
    }
}

/// Counts that contradict each other.
fn counts(context: &Context<'_>, notes: &mut Notes<'_>) {
    let job = context.job;
    if job.is_heterogeneous() {
        return;
    }
    if let (Some(nodes), Some(tasks), Some(each)) = (job.nodes, job.tasks, job.tasks_per_node)
        && nodes.checked_mul(each) != Some(tasks)
        && let Some(given) = job.option("ntasks")
    {
        notes.note(
            "task-counts",
            given.at,
            given.end,
            format!("{nodes} nodes of {each} tasks are {}, not {tasks}; Slurm then takes --ntasks-per-node as a limit", nodes.saturating_mul(each)),
            "leave --ntasks out".to_owned(),
        );
    }
    let total = job.text("gpus").and_then(super::super::job::count);
    let gres = job
        .option("gres")
        .is_some()
        .then(|| super::super::job::gpus_of(&without(&job.given, "gpus-per-node")))
        .flatten();
    let each = job.text("gpus-per-node").and_then(super::super::job::count);
    if let (Some(each), Some(gres)) = (each, gres)
        && each != gres
        && let Some(given) = job.option("gres")
    {
        notes.note(
            "gpu-counts",
            given.at,
            given.end,
            format!("--gres asks for {gres} GPUs of a node, and --gpus-per-node for {each}"),
            "keep one of them".to_owned(),
        );
    }
    if let (Some(nodes), Some(each), Some(total)) = (job.nodes, each.or(gres), total)
        && nodes.checked_mul(each) != Some(total)
        && let Some(given) = job.option("gpus")
    {
        notes.note(
            "gpu-counts",
            given.at,
            given.end,
            format!("{nodes} nodes of {each} GPUs are {}, not {total}", nodes.saturating_mul(each)),
            "leave --gpus out: it counts the GPUs of the whole job".to_owned(),
        );
    }
}

fn without(given: &[Given], name: &str) -> Vec<Given> {
    given.iter().filter(|option| option.name != name && option.name != "gpus-per-task").cloned().collect()
}
