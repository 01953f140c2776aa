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
}
