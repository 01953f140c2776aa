//! What launchers and terminals put around a line: colours, and the rank that printed it.

use std::borrow::Cow;

/// The text without escape sequences (ECMA-48: `ESC [ ... final`, `ESC ] ... BEL`, `ESC x`).
pub fn without_escapes(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        if character != '\u{1b}' {
            out.push(character);
            continue;
        }
        match characters.next() {
            Some('[') => {
                characters.by_ref().find(|character| ('\u{40}'..='\u{7e}').contains(character));
            }
            Some(']') => {
                characters.by_ref().find(|&character| character == '\u{7}');
            }
            _ => {}
        }
    }
    Cow::Owned(out)
}

/// Words before a rank's number: loggers' `[rank3]:` and `[Rank 3]`, and torchrun's `[default3]:`, which counts on its
/// node only.
const BRACKETED: &[(&str, bool)] = &[("rank", true), ("Rank ", true), ("RANK ", true), ("default", false)];

/// The rank that a prefix names (none where it names a place on a node only), and the text after all prefixes:
/// `3: ` of `srun --label`, `[rank3]:`, `[Rank 3]`, `[default3]:` of torchrun, `[1,3]<stdout>:` of mpirun.
pub fn split_rank(text: &str) -> (Option<u64>, &str) {
    let (mut rank, mut rest) = (None, text.trim_start());
    // A launcher's label may stand before a logger's; the inner one knows better.
    for _ in 0..3 {
        let Some((found, after)) = one_prefix(rest) else { break };
        rank = found.or(rank);
        rest = after.trim_start();
    }
    (rank, rest)
}

fn one_prefix(text: &str) -> Option<(Option<u64>, &str)> {
    if let Some(inner) = text.strip_prefix('[') {
        let (label, after) = inner.split_at_checked(inner.find(']')?)?;
        let after = &after[1..];
        if let Some((_, rank)) = label.split_once(',')
            && let Some(after) = after.strip_prefix("<stdout>:").or(after.strip_prefix("<stderr>:"))
        {
            return Some((Some(rank.parse().ok()?), after));
        }
        let (number, is_rank) = BRACKETED
            .iter()
            .find_map(|(word, is_rank)| Some((label.strip_prefix(word)?.parse::<u64>().ok()?, *is_rank)))?;
        return Some((is_rank.then_some(number), after.strip_prefix(':').unwrap_or(after)));
    }
    // `srun --label`: the task's number, as wide as the largest, a colon and a blank.
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let after = text.get(digits..)?.strip_prefix(": ")?;
    Some((Some(text.get(..digits)?.parse().ok()?), after))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_go() {
        let check = |text: &str, expected: &str| assert_eq!(without_escapes(text), expected, "{text:?}");
        check("plain", "plain");
        check("\u{1b}[31mstep: 1\u{1b}[39m  \u{1b}[38;2;180;60;0mgrad", "step: 1  grad");
        check("\u{1b}]0;title\u{7}x\u{1b}", "x");
        check("cut \u{1b}[3", "cut ");
    }

    #[test]
    fn prefixes_name_ranks() {
        let check = |text: &str, rank: Option<u64>, rest: &str| assert_eq!(split_rank(text), (rank, rest));
        check("step: 1", None, "step: 1");
        check(" 3: step: 1", Some(3), "step: 1");
        check("12: [rank4]: x", Some(4), "x");
        check("[default5]: x", None, "x");
        check("0: [default5]:[rank13]: x", Some(13), "x");
        check("[Rank 2] (after 1 iterations)", Some(2), "(after 1 iterations)");
        check("[1,7]<stdout>:x", Some(7), "x");
        check("[2026-01-01 00:00:00] iteration", None, "[2026-01-01 00:00:00] iteration");
        check("[rank", None, "[rank");
        check("12:30 x", None, "12:30 x");
        check("99999999999999999999: x", None, "99999999999999999999: x");
    }
}
