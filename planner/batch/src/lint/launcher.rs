//! Programs that start processes of their own: torchrun and accelerate.

use super::facts::{Call, Facts, is_remote};
use super::job::Job;
use super::text::Certainty;
use super::walk::Field;

/// Launchers that are looked at; a real script has a handful.
const MOST_LAUNCHERS: usize = 200;

/// Which.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// `torchrun`, `python -m torch.distributed.run` and its ancestor `torch.distributed.launch`.
    Torchrun,
    /// `accelerate launch`.
    Accelerate,
}

/// One launcher with its options.
#[derive(Debug)]
pub(super) struct Launcher {
    /// Its call.
    pub call: usize,
    /// Which.
    pub kind: Kind,
    /// Where its name begins.
    pub at: u32,
    /// Where its name ends.
    pub end: u32,
    /// Options, names with `_`.
    pub options: Vec<(String, Option<Field>, u32, u32)>,
    /// Whether there may be options that are not known.
    pub open: bool,
}

/// A count as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// Not given.
    Absent,
    /// So many.
    Known(u64),
    /// Given, and unknown.
    Unknown,
}

impl Launcher {
    /// The value of an option under any of its names.
    pub(super) fn option(&self, names: &[&str]) -> Option<&(String, Option<Field>, u32, u32)> {
        self.options.iter().rev().find(|(known, ..)| names.contains(&known.as_str()))
    }

    /// Whether any of the options is given.
    pub(super) fn has(&self, names: &[&str]) -> bool {
        self.option(names).is_some()
    }

    /// What an option counts.
    pub(super) fn count(&self, names: &[&str], job: &Job) -> Count {
        let Some((_, value, ..)) = self.option(names) else { return Count::Absent };
        let Some(text) = value.as_ref().map(|field| &field.text) else { return Count::Unknown };
        if text.certainty == Certainty::Maybe {
            return Count::Unknown;
        }
        let slurm = || match (text.len(), text.holes().next()) {
            (1, Some((_, hole))) => job.slurm_number(&hole.name),
            _ => None,
        };
        // Elastic: at least so many.
        let elastic = || text.known()?.split_once(':').and_then(|(low, _)| low.parse().ok());
        text.number().or_else(slurm).or_else(elastic).map_or(Count::Unknown, Count::Known)
    }

    /// Nodes.
    pub(super) fn nodes(&self, job: &Job) -> Count {
        self.count(self.names_of_nodes(), job)
    }

    /// The option that counts nodes.
    pub(super) fn names_of_nodes(&self) -> &'static [&'static str] {
        match self.kind {
            Kind::Torchrun => &["nnodes"],
            Kind::Accelerate => &["num_machines"],
        }
    }

    /// Whether it means several nodes: for certain, or as many as a job has that may have several.
    pub(super) fn is_multi_node(&self, job: &Job) -> bool {
        match self.nodes(job) {
            Count::Known(nodes) => nodes > 1,
            Count::Absent => false,
            Count::Unknown => {
                let value = self.option(self.names_of_nodes()).and_then(|(_, value, ..)| value.as_ref());
                value.is_some_and(|field| {
                    field.text.holes().any(|(_, hole)| {
                        matches!(&*hole.name, "SLURM_NNODES" | "SLURM_JOB_NUM_NODES" | "SLURM_STEP_NUM_NODES")
                    }) && job.is_batch()
                        && job.nodes.is_none()
                })
            }
        }
    }
}

/// All launchers of a script.
pub(super) fn launchers(facts: &Facts) -> Vec<Launcher> {
    let calls = facts.calls.iter().enumerate();
    calls
        .filter(|(_, call)| call.is_own() && !is_remote(call.name()))
        .filter_map(|(index, call)| launcher(index, call))
        .take(MOST_LAUNCHERS)
        .collect()
}

fn launcher(call: usize, words: &Call) -> Option<Launcher> {
    let fields = &words.fields;
    let (kind, first, last) = fields.iter().enumerate().find_map(|(index, field)| {
        if field.base() == "torchrun" {
            return Some((Kind::Torchrun, index, index));
        }
        if field.base() == "accelerate" && fields.get(index + 1).is_some_and(|next| next.is("launch")) {
            return Some((Kind::Accelerate, index, index + 1));
        }
        let module = field.text.known().unwrap_or_default();
        let is_module = matches!(module, "torch.distributed.run" | "torch.distributed.launch");
        let named = index > 0 && fields.get(index - 1).is_some_and(|before| before.is("-m"));
        (is_module && named).then_some((Kind::Torchrun, index, index))
    })?;
    let at = fields.get(first)?.at;
    let end = fields.get(last)?.end;
    let mut options = Vec::new();
    let mut open = false;
    let mut index = last + 1;
    while let Some(field) = fields.get(index) {
        let text = field.text.beginning();
        if text.is_empty() && field.text.holes().next().is_some() {
            // A variable whose value is not known: options, or the program.
            open |= field.is_open()
                || fields.get(index + 1).is_none_or(|next| next.text.beginning().starts_with("--"));
            if !open {
                break;
            }
            index += 1;
            continue;
        }
        if !text.starts_with('-') {
            break;
        }
        let short = !text.starts_with("--");
        let name = text.trim_start_matches('-');
        let (name, inline) = match name.split_once('=') {
            Some((name, _)) => (name, true),
            None => (name, false),
        };
        let name = name.replace('-', "_");
        if text == "-m" || name == "module" {
            break;
        }
        let flag = matches!(
            name.as_str(),
            "standalone"
                | "no_python"
                | "run_path"
                | "use_env"
                | "multi_gpu"
                | "use_deepspeed"
                | "use_fsdp"
                | "cpu"
                | "same_network"
                | "debug"
                | "quiet"
                | "tpu"
                | "mps"
                | "use_megatron_lm"
                | "dynamo_use_fullgraph"
                | "dynamo_use_dynamic"
        );
        let start = text.find('=').map_or(text.len(), |equals| equals + 1);
        index += 1;
        let (value, ends) = if inline {
            (Some(field.part(start, field.text.len())), field.end)
        } else if flag || (short && name.len() > 1) {
            (None, field.end)
        } else {
            let next = fields.get(index).cloned();
            index += 1;
            let ends = next.as_ref().map_or(field.end, |next| next.end);
            (next, ends)
        };
        options.push((name, value, field.at, ends));
    }
    Some(Launcher { call, kind, at, end, options, open })
}
