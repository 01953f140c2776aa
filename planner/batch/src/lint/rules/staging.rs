//! Data that the batch script puts on the first node's own disk, for tasks on all.

use super::super::facts::Call;
use super::super::notes::Notes;
use super::super::options;
use super::super::text::Text;
use super::super::walk::Field;
use super::Context;
use super::logs::local_root;

/// Commands that fill folders, and those that read them, which are looked at; a real script has a handful.
const MOST: usize = 50;
const MOST_READERS: usize = 2000;

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
    let batch =
        facts.calls.iter().filter(|call| call.step.is_none() && !call.place.function && !call.on_task);
    let filled: Vec<_> = batch
        .map(|call| (call, targets(call)))
        .filter(|(_, targets)| !targets.is_empty())
        .take(MOST)
        .collect();
    if filled.is_empty() {
        return;
    }
    let readers = readers(context);
    for (call, targets) in filled {
        for (path, root) in targets {
            let is_spread = by_steps.iter().any(|folder| is_under(&path, folder));
            let reads = |reader: &&Reader<'_>| reader.call.at > call.at && reader.reads(&path);
            let Some(reader) = readers.iter().find(reads).filter(|_| !is_spread) else { continue };
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
                    "{path} lies under {root}, which each node has for itself: this fills the first node's alone, and line {} reads it on {} nodes",
                    notes.line_of(reader.call.at),
                    reader.nodes
                ),
                format!("let every node do it, and make the folder: {instead}bash -c 'mkdir -p ... && ...'"),
                alone.then(|| ((call.at, call.at), instead.to_owned())),
            );
            break;
        }
    }
}

/// A command that several nodes run, with what may be paths among its words.
struct Reader<'a> {
    call: &'a Call,
    nodes: u64,
    paths: Vec<String>,
}

impl Reader<'_> {
    /// Whether it names a path, or files whose names begin so: data of several files is given by that.
    fn reads(&self, path: &str) -> bool {
        self.paths.iter().any(|known| {
            is_under(known, path)
                || path.strip_prefix(known.as_str()).is_some_and(|rest| rest.starts_with('.'))
        })
    }
}

/// Commands that several nodes run, and what their containers are given.
fn readers<'a>(context: &'a Context<'_>) -> Vec<Reader<'a>> {
    let of_call = |call: &'a Call| {
        let step = context.step_of(call).or_else(|| {
            context.steps.iter().find(|step| call.is_step() && std::ptr::eq(context.call(step.call), call))
        })?;
        let nodes = step.nodes.filter(|nodes| *nodes > 1 && !call.place.guarded)?;
        let paths = if call.is_step() {
            let mounts = options::last(&call.options, "container-mounts")?.value.as_ref()?.text.shown();
            mounts.split(',').filter_map(|mount| mount.split(':').next()).map(str::to_owned).collect()
        } else {
            let value =
                |text: String| text.split_once('=').map_or(text.clone(), |(_, value)| value.to_owned());
            call.fields.iter().map(|field| value(field.text.shown())).collect()
        };
        let only_tidies = matches!(call.name(), "rm" | "mkdir" | "ls");
        (!only_tidies).then_some(Reader { call, nodes, paths })
    };
    context.facts.calls.iter().filter_map(of_call).take(MOST_READERS).collect()
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
