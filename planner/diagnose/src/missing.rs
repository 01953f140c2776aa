//! Whom the ranks that waited in vain waited for: they say it themselves, or it is who does not complain.

use super::attempt::Attempt;
use super::book::Key;
use super::causes::PEER_GONE;
use super::origin::{Origin, digits};
use super::scan::SCANNER;

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

/// The rank that this line of the worker says is gone: `rank 1 (process 4711 on node1) is gone: its connection closed`, `rank 1 does
/// not answer, so it is stopped`.
pub(super) fn gone(text: &str) -> Option<u32> {
    [(" is gone: ", " (process "), (" does not answer, so it is stopped", " does not")].into_iter().find_map(
        |(words, behind)| {
            text.match_indices(words).find_map(|(place, _)| {
                let (start, _) = text[..place].rsplit_once("rank ")?;
                digits(&text[start.len() + 5..])
                    .filter(|(_, rest)| rest.starts_with(behind))
                    .map(|(rank, _)| rank)
            })
        },
    )
}

/// Whose end the last word of a rank tells of, where that names it: `shardplan-rank: rank 1: there is no such file`.
pub(super) fn told_of(word: &str) -> Option<u32> {
    let rest = word.strip_prefix(planner::wire::WORKER_SAYS)?.strip_prefix("rank ")?;
    digits(rest).filter(|(_, rest)| rest.starts_with(": ")).map(|(rank, _)| rank)
}

/// The rank that others waited for, and how it was found.
pub(super) fn rank(attempt: &Attempt, cause: &str) -> (Option<Origin>, String) {
    if cause == "nccl-init-wait" {
        let words = "The ranks that report this wait for rank 0".to_owned();
        return (Some(Origin { rank: Some(0), ..Origin::default() }), words);
    }
    if cause == PEER_GONE {
        // Who says it of another has lost that one, and may be lost to a third.
        let first = attempt.gone.iter().find(|rank| is_gone_first(attempt, **rank)).or(attempt.gone.first());
        return match first {
            Some(&rank) => (
                Some(Origin { rank: Some(rank), ..Origin::default() }),
                format!("It is rank {rank} that others say is gone; nothing here says how it ended"),
            ),
            None => (None, String::new()),
        };
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

/// Whether a rank is gone for a reason of its own: others say that it is, and it says so of none.
pub(super) fn is_gone_first(attempt: &Attempt, rank: u32) -> bool {
    let is =
        |key: &Key| matches!(key, Key::Cause(cause) if SCANNER.causes[usize::from(*cause)].id == PEER_GONE);
    attempt.gone.contains(&rank)
        && !attempt.seen.iter().any(|(key, seen)| is(key) && seen.ranks.contains(&rank))
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
    use super::{accused, gone, told_of};

    #[test]
    fn whose_end_a_rank_tells_of() {
        let lost = "rank 12 (process 4711 on node1) is gone: its connection closed without a goodbye";
        assert_eq!(gone(lost), Some(12));
        assert_eq!(
            gone("after 3 s rank 7 does not answer, so it is stopped or its machine is not reachable"),
            Some(7)
        );
        assert_eq!(gone("the launcher (process 4711) is gone: it was killed or crashed"), None);
        assert_eq!(gone("rank 3 says that the disk is gone: why"), None);
        assert_eq!(told_of("shardplan-rank: rank 1: there is no such file"), Some(1));
        assert_eq!(told_of(&format!("shardplan-rank: {lost}")), None);
        assert_eq!(told_of("shardplan-rank: there is no such file"), None);
    }

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
