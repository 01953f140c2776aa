//! What a job asks of Slurm, as its directives say.

use super::forms;
use super::options::{self, Given};

/// The directives of a job and what follows from them.
#[derive(Debug, Default)]
pub(super) struct Job {
    /// Options in order.
    pub given: Vec<Given>,
    /// Where each component after the first begins among the options; empty for a plain job.
    pub seams: Vec<usize>,
    /// Components of a heterogeneous job, each with resources of its own; empty for a plain one, whose counts stand below.
    pub components: Vec<Self>,
    /// Nodes, when they are one number.
    pub nodes: Option<u64>,
    /// Tasks in all.
    pub tasks: Option<u64>,
    /// Tasks of a node.
    pub tasks_per_node: Option<u64>,
    /// GPUs of a node.
    pub gpus_per_node: Option<u64>,
}

impl Job {
    /// Whether the script says anything to Slurm.
    pub(super) fn is_batch(&self) -> bool {
        !self.given.is_empty()
    }

    /// The last option of a name.
    pub(super) fn option(&self, name: &str) -> Option<&Given> {
        options::last(&self.given, name)
    }

    /// Its value as text, when all of it is known.
    pub(super) fn text(&self, name: &str) -> Option<&str> {
        self.option(name)?.value.as_ref()?.text.known()
    }

    fn number(&self, name: &str) -> Option<u64> {
        options::number(&self.given, name)
    }

    /// Whether it has more than one node for certain.
    pub(super) fn is_multi_node(&self) -> bool {
        self.nodes.is_some_and(|nodes| nodes > 1)
    }

    /// Whether nodes are its alone.
    pub(super) fn is_exclusive(&self) -> bool {
        self.option("exclusive").is_some()
    }

    /// Whether it has components with resources of their own, so that no count holds for all of it.
    pub(super) fn is_heterogeneous(&self) -> bool {
        !self.seams.is_empty()
    }

    /// Options of each component, in order; of a plain job all of them.
    pub(super) fn parts(&self) -> impl Iterator<Item = &[Given]> {
        let begins = std::iter::once(0).chain(self.seams.iter().copied());
        let ends = self.seams.iter().copied().chain(std::iter::once(self.given.len()));
        begins.zip(ends).map(|(begin, end)| self.given.get(begin..end).unwrap_or_default())
    }

    /// The component that a step of these options runs on: the first, unless `--het-group` names another. None when it
    /// runs on several, or when nobody can tell.
    pub(super) fn component_of(&self, step: &[Given]) -> Option<&Self> {
        if !self.is_heterogeneous() {
            return Some(self);
        }
        let named = options::last(step, "het-group").or_else(|| options::last(step, "pack-group"));
        let index = match named {
            None => 0,
            Some(named) => named.value.as_ref()?.text.known()?.parse().ok()?,
        };
        self.components.get(index)
    }

    /// WorkTables out counts.
    pub(super) fn conclude(&mut self) {
        if self.is_heterogeneous() {
            let component = |given: &[Given]| {
                let mut component = Self { given: given.to_vec(), ..Self::default() };
                component.conclude();
                component
            };
            self.components = self.parts().map(component).collect();
            return;
        }
        self.tasks = self.number("ntasks");
        self.tasks_per_node = self.number("ntasks-per-node");
        self.nodes = self.number("nodes").or_else(|| {
            // Of a range the least is what a script can count on; more than one is all that matters here.
            match (self.option("nodes"), self.tasks, self.tasks_per_node) {
                (None, Some(tasks), Some(each)) if each > 0 => Some(tasks.div_ceil(each)),
                _ => None,
            }
        });
        self.gpus_per_node = gpus_of(&self.given).or_else(|| {
            let total = self.option("gpus").and_then(|given| count(given.value.as_ref()?.text.known()?))?;
            let nodes = self.nodes.filter(|nodes| *nodes > 0)?;
            total.is_multiple_of(nodes).then_some(total / nodes)
        });
    }

    /// The number behind a variable that Slurm sets in the batch script.
    pub(super) fn slurm_number(&self, name: &str) -> Option<u64> {
        match name {
            "SLURM_NNODES" | "SLURM_JOB_NUM_NODES" => self.nodes,
            "SLURM_NTASKS" | "SLURM_NPROCS" => {
                self.tasks.or_else(|| self.nodes?.checked_mul(self.tasks_per_node?))
            }
            "SLURM_NTASKS_PER_NODE" => self.tasks_per_node,
            "SLURM_GPUS_ON_NODE" | "SLURM_GPUS_PER_NODE" => self.gpus_per_node,
            _ => None,
        }
    }
}

/// Variables that the shell of whoever submits has exported already.
pub(super) fn is_ambient(name: &str) -> bool {
    matches!(
        name,
        "PATH"
            | "HOME"
            | "USER"
            | "SHELL"
            | "PWD"
            | "LANG"
            | "TMPDIR"
            | "LD_LIBRARY_PATH"
            | "PYTHONPATH"
            | "CUDA_HOME"
            | "_"
    ) || name.starts_with("SLURM_")
}

/// GPUs of a node that options ask for.
pub(super) fn gpus_of(given: &[Given]) -> Option<u64> {
    let text = |name: &str| options::last(given, name)?.value.as_ref()?.text.known();
    if let Some(each) = text("gpus-per-node").and_then(count) {
        return Some(each);
    }
    if let Some(each) = text("gres").and_then(gres) {
        return Some(each);
    }
    let tasks = options::number(given, "ntasks-per-node")?;
    text("gpus-per-task").and_then(count)?.checked_mul(tasks)
}

/// The number of `[TYPE:]COUNT`.
pub(super) fn count(text: &str) -> Option<u64> {
    text.split(',')
        .map(|part| part.rsplit(':').next()?.parse::<u64>().ok())
        .try_fold(0u64, |sum, part| sum.checked_add(part?))
}

/// GPUs among generic resources: `gpu`, `gpu:8`, `gpu:h100:8`, `gpu:8(S:0-1)`.
fn gres(text: &str) -> Option<u64> {
    text.split(',')
        .filter_map(|part| {
            let rest = forms::bare_resource(part).strip_prefix("gpu")?;
            match rest.strip_prefix([':', '=']) {
                None if rest.is_empty() => Some(1),
                None => None,
                Some(rest) => match rest.rsplit([':', '=']).next().unwrap_or_default().parse() {
                    Ok(count) => Some(count),
                    Err(_) => Some(1),
                },
            }
        })
        .next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpus() {
        for (text, expected) in [
            ("gpu:8", Some(8)),
            ("gpu", Some(1)),
            ("gpu:h100:4", Some(4)),
            ("gpu:h100:4(S:0-1)", Some(4)),
            ("lscratch:100,gpu:2", Some(2)),
            ("craynetwork:1", None),
            ("gpu:a100", Some(1)),
        ] {
            assert_eq!(gres(text), expected, "{text}");
        }
        assert_eq!(count("h100:8"), Some(8));
        assert_eq!(count("h100"), None);
    }
}
