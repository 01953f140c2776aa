//! Variables as a person types them: `NAME=value, NAME=value`. Values keep their commas: one ends where a comma and the
//! next name with its `=` follow. What would be read otherwise stands between quotes.

use std::collections::BTreeMap;

/// Variables by their names.
pub type Variables = BTreeMap<String, String>;

/// Reads what was typed. A name without `=` has an empty value, for more may be on its way.
pub fn read(text: &str) -> Variables {
    let mut found = Variables::new();
    let mut rest = text.trim_start_matches(is_between);
    while !rest.is_empty() {
        let end = rest.find(['=', ',']).unwrap_or(rest.len());
        let name = rest[..end].trim().to_owned();
        let (value, after) = match rest[end..].strip_prefix('=') {
            Some(after) => value(after),
            None => (String::new(), &rest[end..]),
        };
        found.insert(name, value);
        rest = after.trim_start_matches(is_between);
    }
    found
}

/// Variables as [`read`] reads them back.
pub fn write(variables: &Variables) -> String {
    let items: Vec<String> =
        variables.iter().map(|(name, value)| format!("{name}={}", written(value))).collect();
    items.join(", ")
}

fn is_between(character: char) -> bool {
    character == ',' || character.is_whitespace()
}

/// A value, and what follows it.
fn value(text: &str) -> (String, &str) {
    let text = text.trim_start();
    quoted(text).unwrap_or_else(|| {
        let ends = |(at, _): &(usize, &str)| {
            let next = text[at + 1..].trim_start();
            next.is_empty() || begins_with_name(next)
        };
        let end = text.match_indices(',').find(ends).map_or(text.len(), |(at, _)| at);
        (text[..end].trim_end().to_owned(), &text[end..])
    })
}

/// Whether a variable's name and `=` come first.
fn begins_with_name(text: &str) -> bool {
    text.split_once('=').is_some_and(|(name, _)| batch::launch::is_variable(name.trim_end()))
}

/// A value between quotes, if it stands alone between them, and what follows it.
fn quoted(text: &str) -> Option<(String, &str)> {
    let quote = text.chars().next().filter(|first| matches!(first, '\'' | '"'))?;
    let mut value = String::new();
    let mut characters = text.char_indices().skip(1);
    while let Some((at, character)) = characters.next() {
        match character {
            '\\' if quote == '"' => value.push(characters.next()?.1),
            _ if character == quote => {
                let after = &text[at + 1..];
                return after
                    .trim_start()
                    .chars()
                    .next()
                    .is_none_or(|next| next == ',')
                    .then_some((value, after));
            }
            _ => value.push(character),
        }
    }
    None
}

/// A value as it is read back: as it stands where it can.
fn written(value: &str) -> String {
    let first = ("A".to_owned(), value.to_owned());
    let last = Variables::from([first.clone()]);
    let followed = Variables::from([first, ("B".to_owned(), String::new())]);
    // A quote in front may find its other half in what follows, whatever that is.
    let stands = !value.starts_with(['\'', '"']) && read(&format!("A={value}")) == last;
    if stands && read(&format!("A={value}, B=")) == followed {
        return value.to_owned();
    }
    if !value.contains('\'') {
        return format!("'{value}'");
    }
    format!("\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, expected: &[(&str, &str)]) {
        let expected: Variables =
            expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        assert_eq!(read(text), expected, "{text}");
        assert_eq!(read(&write(&expected)), expected, "{}", write(&expected));
    }

    #[test]
    fn values_keep_their_commas() {
        check("NCCL_IB_HCA=mlx5_0,mlx5_1", &[("NCCL_IB_HCA", "mlx5_0,mlx5_1")]);
        check(
            "NCCL_IB_HCA=mlx5_0,mlx5_1, NCCL_SOCKET_IFNAME==eth0,ib0,A=1",
            &[("A", "1"), ("NCCL_IB_HCA", "mlx5_0,mlx5_1"), ("NCCL_SOCKET_IFNAME", "=eth0,ib0")],
        );
        check("A=x, y, B=z", &[("A", "x, y"), ("B", "z")]);
        check("OPTIONS='a=1,b=2', B=3,", &[("B", "3"), ("OPTIONS", "a=1,b=2")]);
        check(r#"A="it's \"a\", B=1", B=2"#, &[("A", r#"it's "a", B=1"#), ("B", "2")]);
    }

    #[test]
    fn half_of_what_is_to_be_typed() {
        check("", &[]);
        check("A", &[("A", "")]);
        check("A=1, B", &[("A", "1, B")]);
        check("A=1, B=", &[("A", "1"), ("B", "")]);
        check("A='1", &[("A", "'1")]);
        check("A='1' and 2", &[("A", "'1' and 2")]);
        check(", A=1 ,", &[("A", "1")]);
        check(r#"A="\"#, &[("A", r#""\"#)]);
    }

    #[test]
    fn every_value_is_read_back() {
        let pieces = ["", "ä", ",", " ", "=", "'", "\"", "\\", "B=", ", C="];
        let mut values = vec![String::new()];
        for _ in 0..3 {
            values = values.iter().flat_map(|value| pieces.map(|piece| format!("{value}{piece}"))).collect();
        }
        for value in values {
            let variables: Variables =
                ["A", "B", "C"].map(|name| (name.to_owned(), value.clone())).into_iter().collect();
            assert_eq!(read(&write(&variables)), variables, "{}", write(&variables));
        }
    }
}
