//! The part of YAML that configurations are written in: block mappings and sequences by indentation, flow ones on a
//! line, plain and quoted scalars, comments. Anchors, tags, documents and texts over several lines are refused.

use serde_json::{Map, Value};

/// Mappings and sequences inside each other.
const DEEPEST: usize = 32;
/// Lines that are read.
const MOST_LINES: usize = 20_000;

/// Reads a document into a value.
///
/// # Errors
/// The line and what is wrong with it.
pub(crate) fn read(text: &str) -> Result<Value, String> {
    let mut lines = Vec::new();
    for (number, line) in text.lines().take(MOST_LINES).enumerate() {
        let content = without_comment(line).trim_end();
        let indent = content.len() - content.trim_start_matches(' ').len();
        let content = content.trim_start_matches(' ');
        if content.starts_with('\t') {
            return Err(format!("line {}: a tab can't indent", number + 1));
        }
        if !content.is_empty() && content != "---" {
            lines.push(Line { number: number + 1, indent, content: content.to_owned() });
        }
    }
    let mut reader = Reader { lines, at: 0 };
    let value = match reader.lines.first() {
        Some(first) => reader.block(first.indent, 0)?,
        None => Value::Null,
    };
    match reader.lines.get(reader.at) {
        Some(line) => Err(line.wrong("stands out of line")),
        None => Ok(value),
    }
}

struct Line {
    number: usize,
    indent: usize,
    content: String,
}

impl Line {
    fn wrong(&self, what: &str) -> String {
        format!("line {} {what}", self.number)
    }
}

struct Reader {
    lines: Vec<Line>,
    at: usize,
}

impl Reader {
    /// The mapping, sequence or scalar whose lines stand at `indent`.
    fn block(&mut self, indent: usize, depth: usize) -> Result<Value, String> {
        let Some(line) = self.lines.get(self.at) else { return Ok(Value::Null) };
        if depth > DEEPEST {
            return Err(line.wrong("is too deep"));
        }
        if line.content == "-" || line.content.starts_with("- ") {
            return self.sequence(indent, depth);
        }
        if split_key(&line.content).is_none() {
            self.at += 1;
            return scalar(&self.lines[self.at - 1]);
        }
        let mut map = Map::new();
        while let Some(line) = self.lines.get(self.at).filter(|line| line.indent == indent) {
            let Some((key, rest)) = split_key(&line.content) else { return Err(line.wrong("has no `key:`")) };
            let (key, rest) = (unquoted(key), rest.to_owned());
            self.at += 1;
            let value = if rest.is_empty() { self.inner(indent, depth)? } else { self.rest(&rest)? };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }

    fn sequence(&mut self, indent: usize, depth: usize) -> Result<Value, String> {
        let mut list = Vec::new();
        while let Some(line) = self.lines.get_mut(self.at).filter(|line| line.indent == indent) {
            let Some(rest) = line.content.strip_prefix('-') else { break };
            let rest = rest.trim_start().to_owned();
            if rest.is_empty() {
                self.at += 1;
                list.push(self.inner(indent, depth)?);
            } else {
                // What follows the dash stands at its own column.
                line.indent += line.content.len() - rest.len();
                line.content = rest;
                let indent = line.indent;
                list.push(self.block(indent, depth + 1)?);
            }
        }
        Ok(Value::Array(list))
    }

    /// The value of a key that has none on its line.
    fn inner(&mut self, indent: usize, depth: usize) -> Result<Value, String> {
        match self.lines.get(self.at) {
            Some(line) if line.indent > indent => self.block(line.indent, depth + 1),
            // A sequence may stand at its key's own column.
            Some(line)
                if line.indent == indent && (line.content == "-" || line.content.starts_with("- ")) =>
            {
                self.sequence(indent, depth + 1)
            }
            _ => Ok(Value::Null),
        }
    }

    fn rest(&self, text: &str) -> Result<Value, String> {
        let number = self.lines.get(self.at.saturating_sub(1)).map_or(0, |line| line.number);
        scalar(&Line { number, indent: 0, content: text.to_owned() })
    }
}

/// A key and what follows its colon.
fn split_key(text: &str) -> Option<(&str, &str)> {
    if text.starts_with(['[', '{']) {
        return None;
    }
    let quoted = text.chars().next().filter(|first| matches!(first, '"' | '\''));
    let from = match quoted {
        Some(quote) => text[1..].find(quote)? + 2,
        None => 0,
    };
    let at = text[from..]
        .match_indices(':')
        .map(|(at, _)| from + at)
        .find(|at| text[at + 1..].is_empty() || text[at + 1..].starts_with(' '))?;
    Some((text[..at].trim_end(), text[at + 1..].trim_start()))
}

fn unquoted(text: &str) -> String {
    let inner = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    match (inner('"'), inner('\'')) {
        (Some(inner), _) => inner.replace("\\\"", "\"").replace("\\n", "\n").replace("\\\\", "\\"),
        (_, Some(inner)) => inner.replace("''", "'"),
        _ => text.to_owned(),
    }
}

/// A comment begins with `#` at the start or after a blank, outside quotes.
fn without_comment(line: &str) -> &str {
    let mut quote = None;
    let mut before = ' ';
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (None, '"' | '\'') if " :[{,-".contains(before) || before == character => quote = Some(character),
            (None, '#') if before.is_whitespace() => return &line[..at],
            _ => {}
        }
        before = character;
    }
    line
}

fn scalar(line: &Line) -> Result<Value, String> {
    let text = line.content.trim();
    match text.chars().next() {
        Some('&' | '*' | '!' | '|' | '>') => {
            Err(line.wrong("has an anchor, a tag or a long text, which are not read"))
        }
        Some('[' | '{') => {
            let mut flow = Flow { text, at: 0 };
            let value =
                flow.value(0).ok_or_else(|| line.wrong("has a list or map that does not end on it"))?;
            if flow.text[flow.at..].trim().is_empty() {
                Ok(value)
            } else {
                Err(line.wrong("has text behind a list or map"))
            }
        }
        _ => Ok(plain(text)),
    }
}

/// YAML 1.2's core types, and the words that PyYAML takes for truth.
fn plain(text: &str) -> Value {
    if text.starts_with(['"', '\'']) {
        return Value::String(unquoted(text));
    }
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Value::Null,
        "true" | "True" | "TRUE" | "yes" | "on" => return Value::Bool(true),
        "false" | "False" | "FALSE" | "no" | "off" => return Value::Bool(false),
        _ => {}
    }
    if let Ok(whole) = text.replace('_', "").parse::<i64>() {
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

/// A list or map on one line.
struct Flow<'a> {
    text: &'a str,
    at: usize,
}

impl Flow<'_> {
    fn peek(&mut self) -> Option<char> {
        let rest = &self.text[self.at..];
        self.at += rest.len() - rest.trim_start().len();
        self.text[self.at..].chars().next()
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        let open = self.peek()?;
        if depth > DEEPEST {
            return None;
        }
        match open {
            '[' | '{' => {
                self.at += 1;
                let (close, mut list, mut map) =
                    (if open == '[' { ']' } else { '}' }, Vec::new(), Map::new());
                loop {
                    match self.peek()? {
                        found if found == close => {
                            self.at += 1;
                            return Some(if open == '[' { Value::Array(list) } else { Value::Object(map) });
                        }
                        ',' => self.at += 1,
                        _ if open == '[' => list.push(self.value(depth + 1)?),
                        _ => {
                            let key = self.word(":")?;
                            self.at += 1;
                            map.insert(unquoted(&key), self.value(depth + 1)?);
                        }
                    }
                }
            }
            // The end of something else: nothing would be taken, again and again.
            ']' | '}' => None,
            _ => Some(plain(&self.word(",]}")?)),
        }
    }

    /// The text up to one of `ends`, outside quotes.
    fn word(&mut self, ends: &str) -> Option<String> {
        let rest = &self.text[self.at..];
        let quote = rest.chars().next().filter(|first| matches!(first, '"' | '\''));
        let from = match quote {
            Some(quote) => rest[1..].find(quote)? + 2,
            None => 0,
        };
        let length = from + rest[from..].find(|character| ends.contains(character))?;
        self.at += length;
        Some(rest[..length].trim().to_owned())
    }
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
    }

    #[test]
    fn what_is_refused_says_where() {
        for (text, expected) in [
            ("a: |\n  b", "line 1"),
            ("a: 1\n   b: 2", "line 2"),
            ("a: *b", "line 1"),
            ("a: [1", "line 1"),
            ("a: [}]", "line 1"),
            ("a: {b: ]}", "line 1"),
            ("a: 1\n\tb: 2", "line 2"),
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
