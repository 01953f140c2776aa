//! Data that the batch script puts on the first node's own disk, for tasks on all.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::options;
use super::super::step::Step;
use super::super::text::Text;
use super::super::walk::Field;
use super::Context;
use super::logs::local_root;

/// Looks at what is copied to a path that each node has for itself.
pub(super) fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    let facts = context.facts;
    let spreads =
        |call: &Call| matches!(call.name(), "sbcast" | "pdcp" | "pdsh" | "clush" | "ssh" | "scp" | "mpirun");
    if !context.job.is_multi_node() || facts.calls.iter().any(spreads) {
        return;
    }
    // What a step itself puts there is on its nodes.
    let by_steps: Vec<String> = facts
        .calls
        .iter()
        .filter(|call| call.step.is_some())
        .flat_map(targets)
        .map(|(path, _)| path)
        .collect();
    for call in facts.calls.iter().filter(|call| call.step.is_none() && !call.place.function && !call.on_task)
    {
        for (path, root) in targets(call) {
            let is_spread = by_steps.iter().any(|folder| is_under(&path, folder));
            let Some((reader, nodes)) = reader(context, call, &path).filter(|_| !is_spread) else { continue };
            let instead = "srun --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 ";
            // Deeper folders must be made on every node first, and what is moved is gone for the next.
            let is_shallow = path.strip_prefix(&root).is_some_and(|rest| rest.matches('/').count() == 1);
            let is_bare = call.place.depth == 0
                && call.assigns.is_empty()
                && call.redirects.is_empty()
                && !call.place.piped;
            let alone = is_shallow && is_bare && matches!(call.name(), "cp" | "rsync" | "wget" | "curl");
            notes.replace_around(
                "unshared-path",
                (call.at, call.end),
                format!(
                    "{path} lies under {root}, which each node has for itself: this fills the first node's alone, and line {} reads it on {nodes} nodes",
                    notes.line_of(reader.at)
                ),
                format!("let every node do it, and make the folder: {instead}bash -c 'mkdir -p ... && ...'"),
                alone.then(|| ((call.at, call.at), instead.to_owned())),
            );
            break;
        }
    }
}

/// The command of a later step that reads a path on several nodes.
fn reader<'a>(context: &'a Context<'_>, writer: &Call, path: &str) -> Option<(&'a Call, u64)> {
    let reads = |text: &str| {
        let value = text.split_once('=').map_or(text, |(_, value)| value);
        // Data of several files is named by what their names begin with.
        is_under(value, path) || path.strip_prefix(value).is_some_and(|rest| rest.starts_with('.'))
    };
    let of_step = |step: &'a Step| -> Option<(&'a Call, u64)> {
        let nodes = step.nodes.filter(|nodes| *nodes > 1)?;
        let own = context.call(step.call);
        let mounts = options::last(&own.options, "container-mounts").and_then(|given| given.value.as_ref());
        let mounts = mounts.map(|value| value.text.shown()).unwrap_or_default();
        if mounts.split(',').any(|mount| reads(mount.split(':').next().unwrap_or_default())) {
            return Some((own, nodes));
        }
        let mut calls = context.facts.calls.iter().filter(|call| {
            call.step == Some(step.call)
                && !call.place.guarded
                && !matches!(call.name(), "rm" | "mkdir" | "ls")
        });
        let call = calls.find(|call| call.fields.iter().any(|field| reads(&field.text.shown())))?;
        Some((call, nodes))
    };
    context.steps.iter().filter(|step| context.call(step.call).at > writer.at).find_map(of_step)
}

fn is_under(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Paths that a command fills, of those that each node has for itself, with the root of each.
fn targets(call: &Call) -> Vec<(String, String)> {
    let words = call.arguments();
    let behind = |options: &[&str]| -> Vec<Text> {
        words
            .iter()
            .enumerate()
            .filter_map(|(index, field)| {
                let text = field.text.beginning();
                if options.contains(&text) {
                    return words.get(index + 1).map(|next| next.text.clone());
                }
                let (name, _) = text.split_once('=')?;
                options.contains(&name).then(|| field.text.slice(name.len() + 1, field.text.len()))
            })
            .collect()
    };
    let operands: Vec<&Field> =
        words.iter().filter(|field| !field.text.beginning().starts_with('-')).collect();
    let extracts = || {
        words.first().is_some_and(|field| {
            let text = field.text.beginning();
            text == "--extract" || !text.starts_with("--") && text.contains('x')
        })
    };
    let found = match call.name() {
        "cp" | "mv" | "rsync" | "install" => match behind(&["-t", "--target-directory"]) {
            given if given.is_empty() && operands.len() > 1 => {
                operands.last().map(|field| field.text.clone()).into_iter().collect()
            }
            given => given,
        },
        "tar" if extracts() => behind(&["-C", "--directory"]),
        "unzip" => behind(&["-d"]),
        "wget" => behind(&["-O", "-P", "--output-document", "--directory-prefix"]),
        "curl" => behind(&["-o", "--output"]),
        _ => Vec::new(),
    };
    let mut targets = Vec::new();
    for text in found {
        let Some(root) = local_root(&text) else { continue };
        let path = text.shown();
        let path = path.trim_end_matches('/');
        if path != root {
            targets.push((path.to_owned(), root));
            continue;
        }
        // What is put right into the root has the names that it had.
        for source in operands.iter().take(operands.len().saturating_sub(1)) {
            let source = source.text.shown();
            let name = source.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
            if !name.is_empty() && !name.contains(['*', '?', '[']) {
                targets.push((format!("{path}/{name}"), root.clone()));
            }
        }
    }
    targets
}
