//! Out-of-memory errors of a GPU that others fill: who they are, and whether they are ranks of the run itself.

use std::collections::{BTreeMap, BTreeSet};

use super::oom::{self, OutOfMemory};
use super::scan::SCANNER;
use planner::units::Bytes;

/// The cause that such an error has.
pub(super) const CAUSE: &str = "gpu-memory-taken";
/// Processes, GPUs and ranks that are named.
const MOST_NAMED: usize = 8;
/// What to do where ranks share a GPU.
const OWN_GPU: &str = "give each rank a GPU of its own: torch.cuda.set_device(int(os.environ[\"LOCAL_RANK\"])) before the first CUDA \
                       call, one process for each GPU, and no CUDA_VISIBLE_DEVICES that is the same for all ranks of a node";

/// A rank that ran out of memory on a GPU that others hold a part of: node where it is known, GPU, rank.
pub(super) type Squeezed = (Option<String>, String, u32);

/// The cause of a line that shows this one: an out-of-memory error whose figures say that others fill the GPU is theirs.
pub(super) fn cause_of(cause: u16, text: &str) -> u16 {
    let is_memory = SCANNER.causes[usize::from(cause)].id == "cuda-oom";
    let taken = || oom::read(text)?.taken_by_others();
    let place = || SCANNER.causes.iter().position(|known| known.id == CAUSE);
    match is_memory.then(taken).flatten().and_then(|_| place()) {
        Some(place) => place as u16,
        None => cause,
    }
}

/// Who holds the GPU's memory, as the end of a title; empty where the message does not tell.
pub(super) fn holders(found: &OutOfMemory) -> String {
    let Some(held) = found.taken_by_others() else { return String::new() };
    let words = |bytes: u64| Bytes(bytes).in_words();
    // The largest first, and of one size as the message has them.
    let mut others: Vec<_> = found.others.iter().collect();
    others.sort_by_key(|other| std::cmp::Reverse(other.bytes));
    let mut named: Vec<String> = others
        .iter()
        .take(MOST_NAMED)
        .map(|other| format!("process {} has {}", other.pid, words(other.bytes)))
        .collect();
    let more = others.len().saturating_sub(MOST_NAMED);
    if more > 0 {
        named.push(format!("{more} more"));
    }
    if named.is_empty() {
        named.push(format!("{} that the message says no process of", words(held)));
    }
    format!(": {}", named.join(", "))
}

/// The figures that show it, as a sentence.
pub(super) fn figures(found: &OutOfMemory) -> Option<String> {
    let held = found.taken_by_others()?;
    let words = |bytes: u64| Bytes(bytes).in_words();
    let of = found.capacity_bytes.map(|all| format!(" of {}", words(all))).unwrap_or_default();
    let own = found
        .in_use_bytes
        .or(found.reserved_bytes)
        .map(|own| format!(" and this process {}", words(own)))
        .unwrap_or_default();
    let tried = found.tried_bytes.map(|tried| format!(", which asked for {} more", words(tried)));
    Some(format!("Others hold {}{of}{own}{}", words(held), tried.unwrap_or_default()))
}

/// Ranks that share a GPU.
pub(super) struct Shared {
    /// What is said of them.
    pub(super) said: String,
    /// What to do.
    pub(super) next: &'static str,
    /// Whether it is sure: else their node is not known, or each may see one GPU alone.
    pub(super) is_sure: bool,
}

/// Ranks that ran out of memory on one GPU of a node.
pub(super) fn shared(squeezed: &BTreeSet<Squeezed>) -> Option<Shared> {
    let mut ranks: BTreeMap<(&Option<String>, &String), Vec<u32>> = BTreeMap::new();
    for (node, gpu, rank) in squeezed {
        ranks.entry((node, gpu)).or_default().push(*rank);
    }
    let several = ranks.into_iter().filter(|(_, ranks)| ranks.len() > 1);
    let ((node, gpu), ranks) = several.max_by_key(|((node, _), ranks)| (node.is_some(), ranks.len()))?;
    let names: Vec<String> = ranks.iter().take(MOST_NAMED).map(u32::to_string).collect();
    let more = match ranks.len().saturating_sub(MOST_NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let of_node = node.as_ref().map(|node| format!(" of node {node}")).unwrap_or_default();
    let mut unless = Vec::new();
    if node.is_none() {
        unless.push("they are on different nodes");
    }
    // A rank that sees one GPU alone calls it 0.
    if gpu == "0" {
        unless.push("each sees one GPU alone, which is 0 to all of them");
    }
    let is_sure = unless.is_empty();
    let unless = if is_sure { String::new() } else { format!(", unless {}", unless.join(" or ")) };
    Some(Shared {
        said: format!(
            "Ranks {}{more} ran out of memory on GPU {gpu}{of_node}: these ranks of one run share it{unless}",
            names.join(", ")
        ),
        next: OWN_GPU,
        is_sure,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(squeezed: &[(Option<&str>, &str, u32)]) -> Option<(String, bool)> {
        let squeezed =
            squeezed.iter().map(|(node, gpu, rank)| (node.map(str::to_owned), (*gpu).to_owned(), *rank));
        shared(&squeezed.collect()).map(|shared| (shared.said, shared.is_sure))
    }

    #[test]
    fn ranks_share_a_gpu_of_one_node() {
        let (words, is_sure) = said(&[(Some("n1"), "3", 3), (Some("n1"), "3", 4)]).expect("shared");
        assert!(is_sure && words.contains("Ranks 3, 4") && words.contains("GPU 3 of node n1"), "{words}");
        let (words, is_sure) = said(&[(None, "3", 3), (None, "3", 11)]).expect("may be shared");
        assert!(!is_sure && words.contains("different nodes"), "{words}");
        let (words, is_sure) = said(&[(Some("n1"), "0", 0), (Some("n1"), "0", 1)]).expect("may be shared");
        assert!(!is_sure && words.contains("one GPU alone"), "{words}");
        for apart in [
            vec![(Some("n1"), "3", 3), (Some("n2"), "3", 11)],
            vec![(Some("n1"), "3", 3), (Some("n1"), "4", 4)],
            vec![(None, "3", 3)],
        ] {
            assert_eq!(said(&apart), None, "{apart:?}");
        }
    }
}
