//! Patterns of one line: literal text with gaps, in a notation that reads like the line itself.
//!
//! `*` is any gap, `#` a number, whole or with a fraction, `^` at the start is the start of the message (behind rank and time), `$` at
//! the end is its end. Everything else stands for itself.

/// A piece of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Text(&'static str),
    Number,
    Gap,
}

/// A pattern, cut into pieces once.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    from_start: bool,
    to_end: bool,
    pieces: Vec<Piece>,
}

impl Pattern {
    /// Cuts the text of a pattern.
    pub(super) fn new(text: &'static str) -> Pattern {
        let (from_start, text) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let (to_end, text) = text.strip_suffix('$').map_or((false, text), |rest| (true, rest));
        let mut pieces = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let end = rest.find(['*', '#']).unwrap_or(rest.len());
            let (literal, after) = rest.split_at(end);
            if !literal.is_empty() {
                pieces.push(Piece::Text(literal));
            }
            if let Some(after) = after.strip_prefix('*') {
                pieces.push(Piece::Gap);
                rest = after;
            } else if let Some(after) = after.strip_prefix('#') {
                pieces.push(Piece::Number);
                rest = after;
            } else {
                rest = after;
            }
        }
        Pattern { from_start, to_end, pieces }
    }

    /// The longest literal: a line without it can't match.
    pub(super) fn anchor(&self) -> &'static str {
        let texts = self.pieces.iter().filter_map(|piece| match piece {
            Piece::Text(text) => Some(*text),
            _ => None,
        });
        // The first of equals, so that the order of the table alone decides.
        texts.rev().max_by_key(|text| text.len()).unwrap_or("")
    }

    /// Whether the line has it; `message` is where the message starts in the line.
    pub(super) fn matches(&self, line: &str, message: usize) -> bool {
        if self.from_start {
            return line.get(message..).is_some_and(|rest| self.at(&self.pieces, rest));
        }
        self.anywhere(&self.pieces, line)
    }

    fn anywhere(&self, pieces: &[Piece], text: &str) -> bool {
        match pieces.first() {
            Some(Piece::Text(first)) => text
                .match_indices(first)
                .any(|(place, _)| self.at(&pieces[1..], &text[place + first.len()..])),
            Some(Piece::Gap) => self.anywhere(&pieces[1..], text),
            Some(Piece::Number) => text
                .char_indices()
                .any(|(place, digit)| digit.is_ascii_digit() && self.at(pieces, &text[place..])),
            None => true,
        }
    }

    fn at(&self, pieces: &[Piece], text: &str) -> bool {
        match pieces.first() {
            None => !self.to_end || text.trim_end().is_empty(),
            Some(Piece::Text(literal)) => {
                text.strip_prefix(literal).is_some_and(|rest| self.at(&pieces[1..], rest))
            }
            Some(Piece::Number) => {
                let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
                let (rest, whole) = (&pieces[1..], digits(text));
                // A dot may also end a sentence, so the number is tried without it first.
                let with_fraction = || {
                    let fraction = text[whole..].strip_prefix('.').map_or(0, digits);
                    fraction > 0 && self.at(rest, &text[whole + 1 + fraction..])
                };
                whole > 0 && (self.at(rest, &text[whole..]) || with_fraction())
            }
            Some(Piece::Gap) if pieces.len() == 1 => true,
            Some(Piece::Gap) => self.anywhere(&pieces[1..], text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    fn check(pattern: &'static str, line: &str, expected: bool) {
        assert_eq!(Pattern::new(pattern).matches(line, 0), expected, "{pattern} in {line}");
    }

    #[test]
    fn pieces_stand_in_order() {
        check("a*b", "xx a yy b", true);
        check("a*b", "b a", false);
        check("Detected # oom_kill", "error: Detected 12 oom_kill event", true);
        check("Detected # oom_kill", "error: Detected oom_kill event", false);
        check("^Killed$", "Killed", true);
        check("^Killed$", "Killed \r", true);
        check("^Killed$", "Killed it", false);
        check("^Killed$", "was Killed", false);
        check("x#y*z", "x1q x22y and z", true);
        check("rank # of", "rank of rank 3 of", true);
        check("after # minutes", "exiting after 230.00421476364136 minutes", true);
        check("after # minutes", "exiting after 230. minutes", false);
        check("after # minutes", "exiting after .5 minutes", false);
        check("after #. Then", "after 3. Then", true);
        check("after #. Then", "after 3.25. Then", true);
        check("# ms", "in 3.5 ms", true);
    }

    #[test]
    fn the_anchor_is_the_longest_literal() {
        assert_eq!(Pattern::new("^ab*cdef#gh").anchor(), "cdef");
        assert_eq!(Pattern::new("ab*cd").anchor(), "ab");
    }
}
