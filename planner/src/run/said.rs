//! What ranks say of their end: whose number stands before it, and which ranks say the same.

/// What a rank says of its end, which is all that the others hear of it: with the rank's number, unless it names one. That is then
/// the culprit, this rank or another.
pub fn said_by(rank: u64, reason: &str) -> String {
    if names_a_rank(reason) { reason.to_owned() } else { format!("rank {rank}: {reason}") }
}

/// Whether a sentence names a rank by its number.
pub(super) fn names_a_rank(reason: &str) -> bool {
    reason.split("rank ").skip(1).any(|rest| rest.starts_with(|first: char| first.is_ascii_digit()))
}

/// What a rank said, without the number that `said_by` has put before it.
fn own_words(rank: u64, said: &str) -> &str {
    said.strip_prefix(&format!("rank {rank}: ")).unwrap_or(said)
}

/// The ranks that said of their own end what this one did, by number and word, ascending; and those words.
pub(super) fn together<'a>(first: (u64, &'a str), all: &[(u64, &str)]) -> (Vec<u64>, &'a str) {
    let words = own_words(first.0, first.1);
    let alike = all.iter().filter(|&&(rank, said)| own_words(rank, said) == words);
    let mut alike: Vec<u64> = alike.map(|(rank, _)| *rank).collect();
    alike.sort_unstable();
    (alike, words)
}

/// Ranks in words, ascending: `rank 3`, `ranks 0 and 1`, `ranks 0-7 and 9`.
pub(super) fn ranks(numbers: &[u64]) -> String {
    let mut runs: Vec<[u64; 2]> = Vec::new();
    for &number in numbers {
        match runs.last_mut() {
            Some([_, last]) if *last + 1 == number => *last = number,
            _ => runs.push([number; 2]),
        }
    }
    let words: Vec<String> = runs
        .iter()
        .flat_map(|&[first, last]| match last - first {
            0 => vec![first.to_string()],
            1 => vec![first.to_string(), last.to_string()],
            _ => vec![format!("{first}-{last}")],
        })
        .collect();
    match words.as_slice() {
        [] => "no rank".to_owned(),
        [one] if numbers.len() == 1 => format!("rank {one}"),
        [all] => format!("ranks {all}"),
        [others @ .., last] => format!("ranks {} and {last}", others.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_have_words() {
        for (numbers, words) in [
            (&[3][..], "rank 3"),
            (&[0, 1], "ranks 0 and 1"),
            (&[0, 1, 2], "ranks 0-2"),
            (&[0, 1, 2, 3, 4, 5, 6, 7, 9], "ranks 0-7 and 9"),
            (&[0, 2, 3, 7], "ranks 0, 2, 3 and 7"),
        ] {
            assert_eq!(ranks(numbers), words);
        }
    }

    #[test]
    fn a_sentence_that_names_a_rank_has_no_other_before_it() {
        assert_eq!(said_by(3, "no disk"), "rank 3: no disk");
        assert_eq!(said_by(3, "rank 1: no disk"), "rank 1: no disk");
        assert_eq!(said_by(3, "a rank binary is missing"), "rank 3: a rank binary is missing");
        assert_eq!(own_words(3, &said_by(3, "no disk")), "no disk");
        assert_eq!(own_words(3, "rank 1: no disk"), "rank 1: no disk");
    }

    #[test]
    fn ranks_that_fail_by_the_same_are_named_together() {
        let of = |all: &[&'static str]| {
            let said: Vec<(u64, &'static str)> = (0..).zip(all.iter().copied()).collect();
            let (who, words) = together(said[0], &said);
            format!("{}: {words}", ranks(&who))
        };
        assert_eq!(of(&["rank 0: no disk", "rank 1: no disk", "rank 2: no disk"]), "ranks 0-2: no disk");
        assert_eq!(of(&["rank 0: no disk", "rank 1: no network", "rank 0: no disk"]), "rank 0: no disk");
    }
}
