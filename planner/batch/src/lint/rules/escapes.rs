//! Names that one shell expands and another should.

use super::super::facts::Call;
use super::super::job::is_ambient;
use super::super::notes::Notes;
use super::super::text::Text;
use super::super::walk::{Field, body_index};
use super::Context;
use super::remedy;

/// Variables that differ between tasks: on the batch host they are those of node 0, task 0.
pub(super) fn is_of_task(name: &str) -> bool {
    matches!(
        name,
        "SLURM_NODEID"
            | "SLURM_PROCID"
            | "SLURM_LOCALID"
            | "SLURM_TASK_PID"
            | "SLURMD_NODENAME"
            | "SLURM_TOPOLOGY_ADDR"
    )
}

/// Looks at what is expanded where.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for call in &context.facts.calls {
        if call.payload && context.step_of(call).is_none_or(|step| step.is_parallel()) {
            let body = body_index(&call.fields);
            for (index, field) in call.fields.iter().enumerate() {
                let reader = match body {
                    Some(body) if body == index && call.place.depth == 0 => Reader::Shell,
                    Some(_) => Reader::Unknown,
                    None => Reader::Program(call),
                };
                on_host(&field.text, reader, is_of_task, context, notes);
            }
        }
        if call.step.is_none() {
            outside(call, context, notes);
        } else if body_index(&call.fields).is_none() {
            never(call, notes);
        }
        if call.payload {
            unquoted_body(call, context, notes);
        }
    }
    not_exported(context, notes);
    for_all_tasks(context, notes);
}

/// Variables by which programs are told which rank or node they are.
fn says_the_rank(name: &str) -> bool {
    matches!(name, "RANK" | "LOCAL_RANK" | "NODE_RANK" | "GROUP_RANK" | "MACHINE_RANK")
}

/// A rank that the batch script sets once, for all tasks.
fn for_all_tasks(context: &Context<'_>, notes: &mut Notes<'_>) {
    let first = |text: &Text| {
        text.holes()
            .map(|(_, hole)| hole)
            .find(|hole| !hole.on_task && is_of_task(&hole.name))
            .map(|hole| hole.name.clone())
    };
    let mut say = |name: &str, of: &str, (start, end): (u32, u32)| {
        let message =
            format!("{of} is expanded by the batch script: {name} is that of the first task in every task");
        let fix = format!("set it where each task runs: srun bash -c 'export {name}=${of}; ...'");
        notes.note("expanded-on-batch-host", start, end, message, fix);
    };
    // What a task sets itself is its own.
    let own = |name: &str| {
        context
            .facts
            .assigned
            .iter()
            .any(|one| one.name == name && one.value.holes().any(|(_, hole)| hole.on_task))
    };
    let parallel =
        || context.steps.iter().filter(|step| step.is_parallel()).map(|step| context.call(step.call));
    for assigned in &context.facts.assigned {
        let told = says_the_rank(&assigned.name)
            && context.facts.exported.contains(&assigned.name)
            && !own(&assigned.name)
            && parallel().any(|call| call.at > assigned.at);
        if let Some(of) = first(&assigned.value).filter(|_| told) {
            say(&assigned.name, &of, (assigned.at, assigned.at + assigned.name.len() as u32));
        }
    }
    for call in parallel() {
        for (name, field) in call.assigns.iter().filter(|(name, _)| says_the_rank(name) && !own(name)) {
            if let Some(of) = first(&field.text) {
                say(name, &of, (field.at, field.at + name.len() as u32));
            }
        }
        let given = call.options.iter().filter(|option| option.name == "export");
        for value in given.filter_map(|option| option.value.as_ref()) {
            let Some(of) = first(&value.text) else { continue };
            let shown = value.text.beginning();
            let last = shown.rsplit(',').next().and_then(|part| part.strip_suffix('='));
            if let Some(name) = last.filter(|name| says_the_rank(name) && !own(name)) {
                say(name, &of, (value.at, value.end));
            }
        }
    }
}

/// Who reads a text in which a name stands.
#[derive(Clone, Copy)]
pub(super) enum Reader<'a> {
    /// A shell, as its script.
    Shell,
    /// A shell, as its script, which a here-document says.
    Document,
    /// Python, as its source, which a here-document says.
    Source,
    /// A program, as one of its words.
    Program(&'a Call),
    /// A shell that hands it on, or one inside of another.
    Unknown,
}

/// Notes the names in a text that the batch script expands though each task has a value of its own; `differs` says of which.
pub(super) fn on_host(
    text: &Text,
    reader: Reader<'_>,
    differs: fn(&str) -> bool,
    context: &Context<'_>,
    notes: &mut Notes<'_>,
) {
    for (index, hole) in text.indexed_holes() {
        if hole.on_task || !differs(&hole.name) {
            continue;
        }
        let place = text.place(index);
        let (start, end, written) = expansion_at(context.source, place);
        let message =
            format!("{} is expanded by the batch script: every task gets the value of the first", hole.name);
        let is_plain = written.starts_with('$');
        let escaped = if is_plain { format!("\\{written}") } else { format!("\\${}", hole.name) };
        let (fix, instead) = match reader {
            Reader::Program(call) => (
                format!(
                    "let each task's shell expand it, in single quotes: srun bash -c '... ${} ...'",
                    hole.name
                ),
                remedy::wrapped(context, call, place).filter(|_| is_plain),
            ),
            Reader::Source => {
                (format!("let the program ask its environment: os.environ[\"{}\"]", hole.name), None)
            }
            Reader::Shell | Reader::Document | Reader::Unknown => {
                let mends = !matches!(reader, Reader::Unknown)
                    && is_plain
                    && remedy::may_be_escaped(context, text, index, place);
                let whose = match reader {
                    Reader::Document => "the here-document",
                    _ => "a string for bash -c",
                };
                (
                    format!("in {whose} write {escaped}, so that each task expands it"),
                    mends.then_some(((start, end), escaped)),
                )
            }
        };
        notes.replace_around("expanded-on-batch-host", (start, end), message, fix, instead);
    }
}

/// The `$NAME` or `${NAME...}` at a place.
pub(super) fn expansion_at(source: &str, place: u32) -> (u32, u32, String) {
    let start = place as usize;
    let rest = source.get(start..).unwrap_or_default();
    let length = if rest.starts_with("${") {
        rest.find(['}', '\n']).map_or(2, |end| end + 1)
    } else {
        1 + rest.bytes().skip(1).take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_').count()
    };
    let length = length.min(rest.len());
    let written = rest.get(..length).unwrap_or_default();
    (place, place + length as u32, written.to_owned())
}

/// Backslashes where no second shell takes them away.
fn outside(call: &Call, context: &Context<'_>, notes: &mut Notes<'_>) {
    if call.place.depth > 0
        || !matches!(call.name(), "echo" | "printf")
        || call.place.piped
        || !call.redirects.is_empty()
    {
        return;
    }
    for field in call.arguments() {
        let raw = context.source.get(field.at as usize..field.end as usize).unwrap_or_default();
        let quote = raw.starts_with("\\\"");
        let dollar = raw.find("\\$SLURM_").or_else(|| raw.find("\\${SLURM_"));
        if quote || (dollar.is_some() && !raw.starts_with('\'')) {
            let message = if quote {
                "a backslash before a quote outside of a string prints the quote, and the words are not kept together"
            } else {
                "a backslash before $ outside of a string for another shell prints the name, not the value"
            };
            let line_end = context.source.get(field.at as usize..).and_then(|rest| rest.find('\n'));
            let end = line_end.map_or(call.end, |length| field.at + length as u32).min(call.end);
            let rest = context.source.get(field.at as usize..end as usize).unwrap_or_default();
            let mended = rest.replace("\\\"", "\"").replace("\\$", "$");
            notes.replace(
                "escape-outside-string",
                (field.at, end),
                message.to_owned(),
                "take the backslashes away".to_owned(),
                mended,
            );
            return;
        }
    }
}

/// A `$NAME` that arrives at a program which is no shell.
fn never(call: &Call, notes: &mut Notes<'_>) {
    if matches!(call.name(), "echo" | "printf" | "envsubst" | "eval" | "awk" | "sed" | "grep")
        || super::super::facts::is_remote(call.name())
    {
        return;
    }
    let is_script = call
        .fields
        .iter()
        .any(|field| field.base().ends_with(".sh") || matches!(field.base(), "bash" | "sh"));
    if is_script {
        return;
    }
    for field in &call.fields {
        let bytes = field.text.bytes();
        let found = bytes
            .windows(7)
            .position(|window| window == b"$SLURM_")
            .or_else(|| bytes.windows(8).position(|window| window == b"${SLURM_"));
        if let Some(index) = found {
            let place = field.text.place(index);
            let name: String = String::from_utf8_lossy(bytes.get(index..).unwrap_or_default())
                .chars()
                .take_while(|character| {
                    character.is_ascii_alphanumeric() || matches!(character, '$' | '_' | '{' | '}')
                })
                .take(40)
                .collect();
            notes.note(
                "never-expanded",
                place,
                place + name.len() as u32,
                format!("no shell expands {name} here: the program gets these letters"),
                format!("run it through a shell: srun bash -c '... {name} ...'"),
            );
        }
    }
}

/// `bash -c $X`: of the words that $X becomes, only the first is the script.
fn unquoted_body(call: &Call, context: &Context<'_>, notes: &mut Notes<'_>) {
    let Some(shell) = call.fields.iter().position(|field| matches!(field.base(), "bash" | "sh")) else {
        return;
    };
    let Some(flag) = call.fields.get(shell + 1) else { return };
    let Some(body) = call.fields.get(shell + 2) else { return };
    let runs = flag
        .text
        .known()
        .is_some_and(|flag| flag.starts_with('-') && !flag.starts_with("--") && flag.ends_with('c'));
    let raw = context.source.get(body.at as usize..body.end as usize).unwrap_or_default();
    if runs && raw.starts_with('$') && !raw.starts_with("$(") && !body.quoted {
        notes.replace(
            "unquoted-body",
            (body.at, body.end),
            format!("{raw} is split into words, and bash -c takes only the first as its script"),
            format!("write \"{raw}\""),
            format!("\"{raw}\""),
        );
    }
}

/// Variables of the batch script that a body in single quotes would need.
fn not_exported(context: &Context<'_>, notes: &mut Notes<'_>) {
    let mut given = std::collections::HashSet::new();
    for call in &context.facts.calls {
        for (name, _) in &call.assigns {
            if !call.fields.is_empty() {
                given.insert(name.clone());
            }
        }
        let words = call.fields.iter().chain(
            call.options
                .iter()
                .filter(|option| option.name == "export")
                .filter_map(|option| option.value.as_ref()),
        );
        for field in words.filter(|field: &&Field| field.text.beginning().contains('=')) {
            for part in field.text.beginning().split(',') {
                if let Some((name, _)) = part.split_once('=') {
                    given.insert(name.to_owned());
                }
            }
        }
    }
    for (name, place, step) in &context.facts.unexported {
        if step.is_none() || context.facts.exported.contains(name) || given.contains(name) || is_ambient(name)
        {
            continue;
        }
        let (start, end, written) = expansion_at(context.source, *place);
        notes.note(
            "not-exported",
            start,
            end,
            format!("the task expands {written}, and the batch script sets {name} without exporting it: it is empty here"),
            format!("export {name} before srun, or hand it over: bash -c '... \"$1\" ...' bash \"${name}\""),
        );
    }
}
