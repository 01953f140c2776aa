//! Configurations in YAML, as Python's programs read them: `saphyr-parser` reads the language, and what a word is, a number, truth or
//! text, is what PyYAML and OmegaConf take it for.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};
use serde_json::{Map, Value};

/// Mappings and sequences inside each other.
const DEEPEST: usize = 32;
/// Values of a document, with those that aliases stand for: a few lines can name millions.
const MOST_VALUES: usize = 200_000;

/// Reads a document into a value.
///
/// # Errors
/// The line and what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let parser = Parser::new_from_str(text);
    let mut reader = Reader { parser, anchors: BTreeMap::new(), values: 0 };
    let mut document = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => return Ok(document.unwrap_or_default()),
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if document.is_some() => return Err(at(span, "begins a second document, and one is read")),
            event => document = Some(reader.value(event, span, 0)?),
        }
    }
}

fn at(span: Span, what: &str) -> String {
    format!("line {} {what}", span.start.line())
}

/// What an anchor names, with the number of values in it.
type Anchored = (Value, usize);

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: BTreeMap<usize, Anchored>,
    values: usize,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Result<(Event<'a>, Span), String> {
        let wrong = |error: ScanError| format!("line {}: {}", error.marker().line(), error.info());
        match self.parser.next() {
            Some(event) => event.map_err(wrong),
            None => Err("it ends before its document does".to_owned()),
        }
    }

    /// The value that begins with an event.
    fn value(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Value, String> {
        if depth > DEEPEST {
            return Err(at(span, &format!("lies more than {DEEPEST} lists and maps deep")));
        }
        let before = self.values;
        self.count(1, span)?;
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, tag) => (anchor, scalar(&text, style, tag.as_deref(), span)?),
            Event::SequenceStart(anchor, tag) => {
                core(tag.as_deref(), &["seq"], span)?;
                (anchor, self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                core(tag.as_deref(), &["map"], span)?;
                (anchor, self.map(depth)?)
            }
            Event::Alias(anchor) => {
                let Some((value, values)) = self.anchors.get(&anchor).cloned() else {
                    return Err(at(span, "names an anchor that it stands in"));
                };
                self.count(values, span)?;
                return Ok(value);
            }
            _ => return Err(at(span, "ends before its value")),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, (value.clone(), self.values - before));
        }
        Ok(value)
    }

    fn count(&mut self, values: usize, span: Span) -> Result<(), String> {
        self.values += values;
        if self.values > MOST_VALUES {
            return Err(at(span, &format!("makes more than {MOST_VALUES} values of the document")));
        }
        Ok(())
    }

    fn list(&mut self, depth: usize) -> Result<Value, String> {
        let mut list = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Value::Array(list)),
                (event, span) => list.push(self.value(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Value, String> {
        let mut map = Map::new();
        // What `<<` brings along, of which what the map says itself is not taken.
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let key = match event {
                Event::MappingEnd => break,
                // A key is the word that it is, whatever it would be as a value.
                Event::Scalar(text, ..) => text.into_owned(),
                _ => return Err(at(span, "has a list or a map for a key")),
            };
            let (event, span) = self.next()?;
            let value = self.value(event, span, depth + 1)?;
            match (key.as_str(), value) {
                ("<<", Value::Object(other)) => merged.push(other),
                ("<<", Value::Array(others)) => {
                    merged.extend(others.into_iter().filter_map(|other| match other {
                        Value::Object(other) => Some(other),
                        _ => None,
                    }));
                }
                (_, value) => {
                    map.insert(key, value);
                }
            }
        }
        for (key, value) in merged.into_iter().flatten() {
            map.entry(key).or_insert(value);
        }
        Ok(Value::Object(map))
    }
}

/// Refuses a tag that is none of these of YAML itself: what another would make of a value, only Python knows.
fn core(tag: Option<&Tag>, known: &[&str], span: Span) -> Result<(), String> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && known.contains(&tag.suffix.as_str())) => {
            Err(at(span, &format!("has the tag {tag}, which is not read")))
        }
        _ => Ok(()),
    }
}

fn scalar(text: &str, style: ScalarStyle, tag: Option<&Tag>, span: Span) -> Result<Value, String> {
    core(tag, &["str", "int", "float", "bool", "null"], span)?;
    let is_text = style != ScalarStyle::Plain || tag.is_some_and(|tag| tag.suffix == "str");
    Ok(if is_text { Value::String(text.to_owned()) } else { plain(text) })
}

/// YAML 1.2's core types, and the words that PyYAML takes for truth.
fn plain(text: &str) -> Value {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => {
            return Value::Bool(false);
        }
        _ => {}
    }
    if let Ok(whole) = text.replace('_', "").parse::<i64>() {
        return whole.into();
    }
    if let Some(Ok(whole)) = text.strip_prefix("0x").map(|digits| i64::from_str_radix(digits, 16)) {
        return whole.into();
    }
    let number = text
        .parse::<f64>()
        .ok()
        .filter(|_| text.starts_with(|c: char| c.is_ascii_digit() || "+-.".contains(c)));
    number
        .and_then(serde_json::Number::from_f64)
        .map_or_else(|| Value::String(text.to_owned()), Value::Number)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Value) {
        assert_eq!(read(text), Ok(expected), "{text}");
    }

    #[test]
    fn what_configurations_use() {
        check(
            "a: 1\nb:\n  c: x y  # no\n  d: 'it''s: #1'\ne:",
            json!({"a": 1, "b": {"c": "x y", "d": "it's: #1"}, "e": null}),
        );
        check("a:\n- 1\n- b: 2\n  c: 3\n-\n  - 4\nf: 5", json!({"a": [1, {"b": 2, "c": 3}, [4]], "f": 5}));
        check(
            "a: [1, 2.5e-3, \"x, y\", [t]]\nb: {c: true, d: none}",
            json!({"a": [1, 0.0025, "x, y", ["t"]], "b": {"c": true, "d": "none"}}),
        );
        check("# only\n---\n\n", Value::Null);
        check(
            "_target_: a.b.C\nurl: http://x:1/y\nt: 1_000",
            json!({"_target_": "a.b.C", "url": "http://x:1/y", "t": 1000}),
        );
        check("1.0e-5", json!(1e-5));
        check("nan", json!("nan"));
        check("0x1F", json!(31));
    }

    #[test]
    fn what_else_the_language_has() {
        check("a: |\n  b\n  c\nd: >-\n  e\n  f", json!({"a": "b\nc\n", "d": "e f"}));
        check(
            "a: &x {b: 1}\nc: *x\nd:\n  <<: *x\n  e: 2",
            json!({"a": {"b": 1}, "c": {"b": 1}, "d": {"b": 1, "e": 2}}),
        );
        check(
            "a: &x {b: 1, c: 2}\nd: {<<: [*x, {b: 3, e: 4}], c: 5}",
            json!({"a": {"b": 1, "c": 2}, "d": {"c": 5, "b": 1, "e": 4}}),
        );
        check("a: [1,\n  2,\n  3]\nb: {c: 1,\n  d: 2}", json!({"a": [1, 2, 3], "b": {"c": 1, "d": 2}}));
        check(
            "a: \"tab\\tand \\u00e9\"\nb: !!str 5\n1: yes",
            json!({"a": "tab\tand é", "b": "5", "1": true}),
        );
        check("%YAML 1.2\n---\na: 1\n...\n", json!({"a": 1}));
    }

    #[test]
    fn few_lines_are_no_endless_document() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned();
        for number in 1..12 {
            let last = number - 1;
            text += &format!("a{number}: &a{number} [{}]\n", vec![format!("*a{last}"); 8].join(", "));
        }
        assert!(read(&text).is_err_and(|error| error.contains("values")));
        assert!(read("a: &x [*x]").is_err());
    }

    #[test]
    fn what_is_refused_says_where() {
        for (text, expected) in [
            ("a: 1\n   b: 2", "line 2"),
            ("a: *b", "line 1"),
            ("a: [1", "flow sequence"),
            ("a: [}]", "line 1"),
            ("a: {b: ]}", "line 1"),
            ("a: 1\n\tb: 2", "a tab"),
            ("a: !Ref b", "line 1"),
            ("a: 1\nb: !!python/tuple [1]", "line 2"),
            ("[a]: 1", "line 1"),
            ("a: 1\n---\nb: 2", "line 3"),
        ] {
            assert!(read(text).is_err_and(|error| error.contains(expected)), "{text}: {:?}", read(text));
        }
        assert!(read(&"- ".repeat(100_000)).is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "([ \\-a-c:\\[\\]{},'\"#|&\té]{0,12}\n){0,12}") {
            let _ = read(&text);
        }
    }
}
