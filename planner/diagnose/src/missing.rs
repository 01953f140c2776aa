//! Whom the ranks that waited in vain waited for: they say it themselves, or it is who does not complain.

use super::attempt::Attempt;
use super::origin::{Origin, digits};

/// Ranks that are listed.
const MOST_RANKS: usize = 16;

/// Ranks that a line of torch's monitored barrier accuses. Rank 0 asks every rank; what the others say of rank 0 is then only an
/// echo of what it found, so that is marked and stands last.
///
/// ProcessGroupGloo.cpp: `Rank 5 failed to pass monitoredBarrier`, `Ranks 4, 5 failed to pass`, `received errors while waiting for
/// send/recv from rank 5`.
pub(super) fn accused(text: &str) -> Vec<(bool, u32)> {
    let numbers = |mut rest: &str| {
        let mut ranks = Vec::new();
        while let Some((rank, after)) = digits(rest)
            && ranks.len() < MOST_RANKS
        {
            ranks.push((rank == 0, rank));
            rest = after.strip_prefix(", ").unwrap_or("");
        }
        ranks
    };
    if !text.contains("monitoredBarrier") {
        return Vec::new();
    }
    if let Some((_, rest)) = text.split_once("errors while waiting for send/recv from rank ") {
        return numbers(rest);
    }
    let Some((before, _)) = text.split_once(" failed to pass monitoredBarrier") else { return Vec::new() };
    ["Ranks ", "Rank "]
        .iter()
        .find_map(|word| before.rsplit_once(word))
        .map_or(Vec::new(), |(_, rest)| numbers(rest))
}

/// The rank that others waited for, and how it was found.
pub(super) fn rank(attempt: &Attempt, cause: &str) -> (Option<Origin>, String) {
    if cause == "nccl-init-wait" {
        let words = "The ranks that report this wait for rank 0".to_owned();
        return (Some(Origin { rank: Some(0), ..Origin::default() }), words);
    }
    if cause != "nccl-timeout" {
        return (None, String::new());
    }
    // The barrier's word is the plainest: who asks every rank names those that did not answer.
    if let Some(&(_, rank)) = attempt.accused.first() {
        let named: Vec<u32> = attempt
            .accused
            .iter()
            .filter(|(is_echo, _)| !is_echo)
            .map(|(_, rank)| *rank)
            .take(MOST_RANKS)
            .collect();
        let words = match named.is_empty() {
            true => format!("The others wait at a barrier for what rank {rank} says, which asks all ranks"),
            false => {
                format!("The barrier names who did not reach it: {}", list(&named, "did not", "did not"))
            }
        };
        return (Some(Origin { rank: Some(rank), ..Origin::default() }), words);
    }
    if attempt.waiting.is_empty() {
        return (None, String::new());
    }
    let absent: Vec<u32> = attempt.ranks.difference(&attempt.waiting).copied().take(MOST_RANKS).collect();
    let few = absent.len() * 2 <= attempt.waiting.len();
    if let Some(&first) = absent.first().filter(|_| few) {
        let words = format!("{} ranks report it; {} not", attempt.waiting.len(), list(&absent, "does", "do"));
        return (Some(Origin { rank: Some(first), ..Origin::default() }), words);
    }
    let least = attempt.enqueued.iter().min_by_key(|(rank, work)| (**work, **rank));
    let most = attempt.enqueued.values().max();
    if let (Some((rank, work)), Some(most)) = (least, most)
        && work < most
    {
        let words = format!("Rank {rank} had enqueued {work} collectives and others {most}: it is behind");
        return (Some(Origin { rank: Some(*rank), ..Origin::default() }), words);
    }
    (None, String::new())
}

fn list(ranks: &[u32], one: &str, many: &str) -> String {
    let names: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match names.len() {
        1 => format!("rank {} {one}", names[0]),
        _ => format!("ranks {} {many}", names.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::accused;

    #[test]
    fn a_barrier_names_who_is_late() {
        let check = |line: &str, ranks: &[u32]| {
            assert_eq!(
                accused(line).into_iter().map(|(_, rank)| rank).collect::<Vec<u32>>(),
                ranks,
                "{line}"
            );
        };
        check("[Rank 0]: Rank 5 failed to pass monitoredBarrier in 30000 ms", &[5]);
        check("[Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 2000000 ms", &[4, 5, 6, 7]);
        check(
            "Rank 0 successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 5. Please check",
            &[5],
        );
        for no in [
            "Rank 5 failed to pass",
            "monitoredBarrier from rank 5",
            "Ranks x failed to pass monitoredBarrier in",
            "",
        ] {
            check(no, &[]);
        }
    }
}
