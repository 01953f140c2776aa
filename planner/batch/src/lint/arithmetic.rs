//! `$((...))` with whole numbers: sums, products and parentheses. What it can't compute is none.

/// Longest expression that is computed.
const LONGEST: usize = 256;

/// The value of an expression; `variable` gives those of names.
pub(super) fn value(text: &str, variable: &mut dyn FnMut(&str) -> Option<u64>) -> Option<u64> {
    if text.len() > LONGEST {
        return None;
    }
    let mut reader = Reader { text: text.as_bytes(), at: 0, depth: 0, variable };
    let value = reader.sum()?;
    reader.blanks();
    (reader.at == reader.text.len()).then_some(value)
}

/// Where the names stand that an expression gives a value: `n = 3`, `n += 1`, `n++`, `--n`.
pub(super) fn assigned(text: &str) -> impl Iterator<Item = std::ops::Range<usize>> + '_ {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut at = 0;
    let names = std::iter::from_fn(move || {
        let start = at + text.get(at..)?.find(is_name)?;
        let end = text[start..].find(|letter| !is_name(letter)).map_or(text.len(), |length| start + length);
        at = end;
        Some(start..end)
    });
    names.filter(|name| {
        let before = text[..name.start].trim_end();
        let behind = text[name.end..].trim_start();
        let counts = before.ends_with("++")
            || before.ends_with("--")
            || behind.starts_with("++")
            || behind.starts_with("--");
        let operator = behind.trim_start_matches(['+', '-', '*', '/', '%', '&', '^', '|']);
        let operator =
            operator.strip_prefix("<<").or_else(|| operator.strip_prefix(">>")).unwrap_or(operator);
        let is_set = operator.starts_with('=') && !operator.starts_with("==");
        let is_number = text[name.clone()].starts_with(|letter: char| letter.is_ascii_digit());
        (counts || is_set) && !is_number
    })
}

struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    depth: u8,
    variable: &'a mut dyn FnMut(&str) -> Option<u64>,
}

impl Reader<'_> {
    fn blanks(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn sign(&mut self, signs: &[u8]) -> Option<u8> {
        self.blanks();
        let sign = self.text.get(self.at).copied().filter(|byte| signs.contains(byte))?;
        self.at += 1;
        Some(sign)
    }

    fn sum(&mut self) -> Option<u64> {
        let mut value = self.product()?;
        while let Some(sign) = self.sign(b"+-") {
            let other = self.product()?;
            value = if sign == b'+' { value.checked_add(other)? } else { value.checked_sub(other)? };
        }
        Some(value)
    }

    fn product(&mut self) -> Option<u64> {
        let mut value = self.factor()?;
        while let Some(sign) = self.sign(b"*/%") {
            let other = self.factor()?;
            value = match sign {
                b'*' => value.checked_mul(other)?,
                b'/' => value.checked_div(other)?,
                _ => value.checked_rem(other)?,
            };
        }
        Some(value)
    }

    fn factor(&mut self) -> Option<u64> {
        if self.sign(b"(").is_some() {
            self.depth += 1;
            if self.depth > 32 {
                return None;
            }
            let value = self.sum()?;
            self.depth -= 1;
            self.sign(b")")?;
            return Some(value);
        }
        self.blanks();
        let dollar = self.sign(b"$").is_some();
        let brace = dollar && self.sign(b"{").is_some();
        let start = self.at;
        while self.text.get(self.at).is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'_') {
            self.at += 1;
        }
        let word = std::str::from_utf8(self.text.get(start..self.at)?).ok()?;
        if brace {
            self.sign(b"}")?;
        }
        if word.is_empty() {
            return None;
        }
        if word.bytes().all(|byte| byte.is_ascii_digit()) {
            return if dollar { None } else { word.parse().ok() };
        }
        (self.variable)(word)
    }
}

#[cfg(test)]
mod tests {
    fn check(text: &str, expected: Option<u64>) {
        let mut names = |name: &str| (name == "NODES").then_some(4);
        assert_eq!(super::value(text, &mut names), expected, "{text}");
    }

    #[test]
    fn expressions() {
        check("1 + 2 * 3", Some(7));
        check("(1 + 2) * 3", Some(9));
        check("NODES * 8", Some(32));
        check("$NODES*8", Some(32));
        check("${NODES} * 8", Some(32));
        check("15000 + OTHER % 10000", None);
        check("8 / 0", None);
        check("1 - 2", None);
        check("99999999999999999999", None);
        check("1 +", None);
        check("2 3", None);
        check(&"(".repeat(200), None);
    }

    #[test]
    fn names_that_get_a_value() {
        let names = |text: &'static str| super::assigned(text).map(|at| &text[at]).collect::<Vec<_>>();
        assert_eq!(names("i = 0; i < n; i++"), ["i", "i"]);
        assert_eq!(names("a += b, --c, d<<=1, e >>= 2, f|=1, _g2=3"), ["a", "c", "d", "e", "f", "_g2"]);
        assert!(names("a == b && c <= d || e >= 3 || f != 4 ? g : h").is_empty());
        assert!(names("").is_empty() && names("1 = 2").is_empty());
    }
}
