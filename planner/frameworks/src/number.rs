//! Numbers as command lines write them.

use std::borrow::Cow;

/// A number's text without the underscores that Python and Hydra take between two digits, as in `300_000_000`. Any other text
/// is left as it is.
pub(crate) fn plain_digits(text: &str) -> Cow<'_, str> {
    let text = text.trim();
    let letters = text.as_bytes();
    let is_digit = |at: Option<usize>| at.and_then(|at| letters.get(at)).is_some_and(u8::is_ascii_digit);
    let mut marks = text.match_indices('_').peekable();
    let is_number =
        marks.peek().is_some() && marks.all(|(at, _)| is_digit(at.checked_sub(1)) && is_digit(Some(at + 1)));
    if is_number { Cow::Owned(text.replace('_', "")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn underscores_stand_between_digits() {
        for (text, expected) in [
            ("300_000_000", "300000000"),
            ("1_0.5_0e1_0", "10.50e10"),
            (" 7 ", "7"),
            ("1__0", "1__0"),
            ("_1", "_1"),
            ("1_", "1_"),
            ("a_b", "a_b"),
        ] {
            assert_eq!(plain_digits(text), expected, "{text}");
        }
    }
}
