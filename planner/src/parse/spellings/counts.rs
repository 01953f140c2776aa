//! Numbers that follow from others, or from which others follow: GPUs in all, replicas, shards, micro batches of a step.

use serde_json::Value;

use super::{Spelled, at, numbers, put};
use crate::finding::clip;
use crate::wire::MAX_WORLD;

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Count {
    /// GPUs in all.
    Gpus,
    /// GPUs before the name of one, as in 8xH100: of a node where the plan says how many nodes there are.
    GpusBeforeName,
    /// Data-parallel replicas.
    Replicas,
    /// GPUs over which FSDP shards.
    Shards,
    /// Micro batches of a step.
    Accumulation,
    /// Sequences of a replica at once, which torchtitan cuts up for a pipeline.
    Local,
    /// ZeRO's stage, which `zero` reads.
    Zero,
}

/// A count that a file says.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Said {
    pub(super) kind: Count,
    /// Where it stands.
    pub(super) path: String,
    pub(super) value: Value,
}

impl Said {
    /// The number before a GPU's name.
    pub(super) fn of_gpu(count: u64) -> Said {
        Said { kind: Count::GpusBeforeName, path: "cluster.gpu".to_owned(), value: count.into() }
    }
}

/// Settles all counts but ZeRO's: each is put into the fields that it means, or is what they say already, or is refused.
pub(super) fn settle(spelled: &mut Spelled) {
    let mut said = std::mem::take(&mut spelled.counts);
    // Replicas follow from GPUs, and micro batches from replicas and the size of one.
    let order = [
        Count::Gpus,
        Count::GpusBeforeName,
        Count::Replicas,
        Count::Shards,
        Count::Local,
        Count::Accumulation,
    ];
    crate::order::sort_by_key(&mut said, |said| order.iter().position(|kind| *kind == said.kind));
    for said in said {
        let Some(count) = counted(&said) else {
            let message = format!(
                "`{}` is {}; write a whole number of at least 1",
                clip(&said.path),
                clip(&said.value.to_string())
            );
            spelled.refuse(&clip(&said.path), &said.value, message);
            continue;
        };
        match said.kind {
            Count::Gpus | Count::GpusBeforeName => gpus(spelled, &said, count),
            Count::Replicas => replicas(spelled, &said, count),
            Count::Shards => shards(spelled, &said, count),
            Count::Local => local(spelled, &said, count),
            Count::Accumulation => accumulation(spelled, &said, count),
            Count::Zero => {}
        }
    }
}

/// A count from 1; torchtitan's -1, the rest, is 0.
fn counted(said: &Said) -> Option<u64> {
    let rest = said.kind == Count::Shards && said.value.as_i64() == Some(-1);
    if rest { Some(0) } else { numbers::whole(&said.value).filter(|count| (1..=MAX_WORLD).contains(count)) }
}

/// A whole number of the file, bounded so that products stay numbers.
fn number(spelled: &Spelled, field: &str) -> Option<u64> {
    numbers::whole(at(&spelled.root, field)?).filter(|number| (1..=MAX_WORLD).contains(number))
}

fn gpus(spelled: &mut Spelled, said: &Said, count: u64) {
    const NODES: &str = "cluster.nodes";
    const EACH: &str = "cluster.gpus_per_node";
    let (nodes, each) = (number(spelled, NODES), number(spelled, EACH));
    let of_a_node = said.kind == Count::GpusBeforeName;
    let set: Option<Vec<(&str, u64)>> = match (nodes, each) {
        (Some(nodes), Some(each)) => (nodes * each == count || (of_a_node && each == count)).then(Vec::new),
        (Some(_), None) if of_a_node => Some(vec![(EACH, count)]),
        (Some(nodes), None) => count.is_multiple_of(nodes).then(|| vec![(EACH, count / nodes)]),
        (None, Some(each)) => count.is_multiple_of(each).then(|| vec![(NODES, count / each)]),
        (None, None) if count < 8 => Some(vec![(NODES, 1), (EACH, count)]),
        (None, None) => count.is_multiple_of(8).then(|| vec![(NODES, count / 8), (EACH, 8)]),
    };
    match set {
        Some(fields) => {
            for (field, value) in fields {
                put(&mut spelled.root, field, value.into());
                let message = format!("{count} GPUs are read as {field} {value}");
                spelled.remark(field, &said.value, &value.into(), message);
            }
        }
        None => {
            let there = match (nodes, each) {
                (Some(nodes), Some(each)) => format!("{nodes} nodes of {each} GPUs"),
                (Some(nodes), None) => format!("{nodes} equal nodes"),
                (None, each) => format!("nodes of {} GPUs", each.unwrap_or(8)),
            };
            let message =
                format!("{count} GPUs are not {there}; write cluster.nodes and cluster.gpus_per_node");
            spelled.refuse(&clip(&said.path), &said.value, message);
        }
    }
}

/// Data-parallel replicas as they follow from the rest; none where the rest does not divide.
fn derived(spelled: &Spelled) -> Option<u64> {
    let nodes = number(spelled, "cluster.nodes").unwrap_or(1);
    let world = nodes * number(spelled, "cluster.gpus_per_node").unwrap_or(8);
    let one = |axis: &str| number(spelled, axis).unwrap_or(1);
    let split = one("layout.tp").saturating_mul(one("layout.cp")).saturating_mul(one("layout.pp"));
    world.is_multiple_of(split).then(|| world / split)
}

fn derived_in_words(spelled: &Spelled) -> String {
    derived(spelled).map_or_else(String::new, |dp| format!(", here {dp}"))
}

fn replicas(spelled: &mut Spelled, said: &Said, count: u64) {
    if derived(spelled) == Some(count) {
        return;
    }
    let message = format!(
        "`{}` is {count}, and follows from the rest: GPUs / (tp x cp x pp){}; set cluster.nodes and cluster.gpus_per_node for more or fewer, or layout.dp_replicate for replicas of HSDP",
        clip(&said.path),
        derived_in_words(spelled)
    );
    spelled.refuse(&clip(&said.path), &said.value, message);
}

fn shards(spelled: &mut Spelled, said: &Said, count: u64) {
    let replicate = number(spelled, "layout.dp_replicate").unwrap_or(1);
    if count == 0 || derived(spelled) == count.checked_mul(replicate) {
        return;
    }
    let message = format!(
        "`{}` is {count}, and follows from the rest: replicas{} / layout.dp_replicate {replicate}; leave it out, or set layout.dp_replicate",
        clip(&said.path),
        derived_in_words(spelled)
    );
    spelled.refuse(&clip(&said.path), &said.value, message);
}

fn local(spelled: &mut Spelled, said: &Said, count: u64) {
    const FIELD: &str = "training.micro_batch_size";
    if number(spelled, "layout.pp").unwrap_or(1) == 1 {
        let before = spelled.refusals.len();
        spelled.set(FIELD, count.into(), &clip(&said.path));
        if spelled.refusals.len() == before {
            spelled.remark(
                FIELD,
                &said.value,
                &count.into(),
                format!("`{}` is read as {FIELD}", clip(&said.path)),
            );
        }
        return;
    }
    let message = format!(
        "`{}` is cut into micro batches by a pipeline: write training.micro_batch_size for one of them (torchtitan's default is 1), and training.global_batch_size for a step",
        clip(&said.path)
    );
    spelled.refuse(&clip(&said.path), &said.value, message);
}

fn accumulation(spelled: &mut Spelled, said: &Said, count: u64) {
    const FIELD: &str = "training.global_batch_size";
    let micro = number(spelled, "training.micro_batch_size").unwrap_or(1);
    let Some(global) = derived(spelled).and_then(|dp| dp.checked_mul(micro)?.checked_mul(count)) else {
        let message = format!(
            "`{}` needs a number of replicas, and GPUs / (tp x cp x pp) is none; write {FIELD}",
            clip(&said.path)
        );
        return spelled.refuse(&clip(&said.path), &said.value, message);
    };
    let text =
        format!("{} (x micro batch {micro} x {} replicas)", clip(&said.path), derived(spelled).unwrap_or(1));
    let before = spelled.refusals.len();
    spelled.set(FIELD, global.into(), &text);
    if spelled.refusals.len() == before {
        let message = format!(
            "{count} micro batches of {micro} on {} replicas are read as {FIELD} {global}",
            derived(spelled).unwrap_or(1)
        );
        spelled.remark(FIELD, &said.value, &global.into(), message);
    }
}
