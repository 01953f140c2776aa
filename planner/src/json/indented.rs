//! JSON for people.

use serde::Serialize;

/// A value as `serde_json::to_string_pretty` writes it: a field or an entry on each line, indented by two spaces.
///
/// Written by the serializer of messages and then set in lines: each serializer is compiled for every field of every format
/// again.
///
/// # Errors
/// Of a value that has no JSON form.
pub fn indented<T: Serialize>(value: &T) -> Result<String, serde_json::Error> {
    Ok(in_lines(&serde_json::to_string(value)?))
}

fn in_lines(json: &str) -> String {
    let mut text = String::with_capacity(2 * json.len());
    let mut depth = 0;
    let mut quoted = false;
    let mut escaped = false;
    // Whether an object or a list has just begun: an empty one ends on its line.
    let mut begun = false;
    for char in json.chars() {
        if quoted {
            text.push(char);
            quoted = escaped || char != '"';
            escaped = !escaped && char == '\\';
            continue;
        }
        let ends = matches!(char, '}' | ']');
        depth -= usize::from(ends);
        if begun != ends {
            line(&mut text, depth);
        }
        text.push(char);
        begun = matches!(char, '{' | '[');
        depth += usize::from(begun);
        match char {
            ',' => line(&mut text, depth),
            ':' => text.push(' '),
            _ => quoted = char == '"',
        }
    }
    text
}

fn line(text: &mut String, depth: usize) {
    text.push('\n');
    text.extend(std::iter::repeat_n("  ", depth));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::indented;

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            "[\\[\\]{},:\"\\\\a\n ]{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 40, 5, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
                prop::collection::btree_map("[\\[\\]{},:\"\\\\a]{0,3}", inner, 0..5)
                    .prop_map(|fields| json!(fields)),
            ]
        })
    }

    proptest! {
        #[test]
        fn it_is_what_serde_json_writes(value in value()) {
            prop_assert_eq!(indented(&value).unwrap(), serde_json::to_string_pretty(&value).unwrap());
        }
    }
}
