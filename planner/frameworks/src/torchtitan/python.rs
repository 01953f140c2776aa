//! A configuration that a Python function returns, as far as it is written out: nested calls with named arguments,
//! literals, a call of another such function, and assignments to fields of what that returned. Nothing is run.

use serde_json::{Map, Value};

/// Calls inside each other, and functions that build on another.
const DEEPEST: usize = 24;

/// Name under which a call's function is kept.
pub(super) const CALLED: &str = "()";

/// The configuration that `function` of a module returns. A call is an object of its named arguments, with positional
/// ones under `0`, `1` and so on; what is not written out is null.
///
/// # Errors
/// When there is no such function, or it returns nothing that is written out.
pub(super) fn returned(text: &str, function: &str) -> Result<Value, String> {
    of_function(text, function, 0)
}

fn of_function(text: &str, function: &str, depth: usize) -> Result<Value, String> {
    let body = body(text, function).ok_or_else(|| format!("there is no function `{function}`"))?;
    if depth > 4 {
        return Err(format!("`{function}` builds on too many others"));
    }
    let mut variable: Option<(String, Value)> = None;
    for statement in statements(&body) {
        if let Some(expression) = statement.strip_prefix("return ") {
            let name = expression.trim();
            if let Some((known, value)) = &variable
                && known == name
            {
                return Ok(value.clone());
            }
            let value = Tokens::of(expression).value(0).unwrap_or(Value::Null);
            return called_here(text, &value, depth).unwrap_or(Ok(value));
        }
        let Some((target, expression)) = statement.split_once('=').filter(|(_, rest)| !rest.starts_with('='))
        else {
            continue;
        };
        let value = Tokens::of(expression).value(0).unwrap_or(Value::Null);
        let mut path = target.trim().split('.');
        let name = path.next().unwrap_or_default();
        let path: Vec<&str> = path.collect();
        match &mut variable {
            Some((known, tree)) if known == name && !path.is_empty() => set(tree, &path, value),
            _ if path.is_empty() => {
                if let Some(Ok(tree)) = called_here(text, &value, depth) {
                    variable = Some((name.to_owned(), tree));
                } else if value.get(CALLED).is_some() {
                    variable = Some((name.to_owned(), value));
                }
            }
            _ => {}
        }
    }
    Err(format!("`{function}` returns nothing that is written out"))
}

/// The configuration of another function of the module, when the value is a call of one without arguments.
fn called_here(text: &str, value: &Value, depth: usize) -> Option<Result<Value, String>> {
    let name = value.get(CALLED)?.as_str()?;
    (value.as_object()?.len() == 1 && body(text, name).is_some()).then(|| of_function(text, name, depth + 1))
}

fn set(tree: &mut Value, path: &[&str], value: Value) {
    let Some((last, before)) = path.split_last() else { return };
    let mut place = tree;
    for name in before {
        if !place.get(name).is_some_and(Value::is_object) {
            place[*name] = Value::Object(Map::new());
        }
        place = &mut place[*name];
    }
    if place.is_object() {
        place[*last] = value;
    }
}

/// The lines of a function at the left margin.
fn body(text: &str, function: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| {
        !line
            .strip_prefix("def ")
            .and_then(|rest| rest.strip_prefix(function))
            .is_some_and(|rest| rest.starts_with('('))
    });
    lines.next()?;
    let indented = |line: &&str| line.is_empty() || line.starts_with([' ', '\t', ')', '#']);
    Some(lines.take_while(indented).collect::<Vec<_>>().join("\n"))
}

/// Statements: lines joined while a bracket is open.
fn statements(body: &str) -> Vec<String> {
    let mut statements: Vec<String> = Vec::new();
    let mut open = 0i64;
    for line in body.lines() {
        let line = without_comment(line);
        if open > 0 {
            if let Some(last) = statements.last_mut() {
                last.push(' ');
                last.push_str(line.trim());
            }
        } else if !line.trim().is_empty() {
            statements.push(line.trim().to_owned());
        }
        open += brackets(line);
    }
    statements
}

/// Brackets that a line opens, less those that it closes, outside quotes.
fn brackets(line: &str) -> i64 {
    let mut quote = None;
    let mut open = 0;
    for character in line.chars() {
        match (quote, character) {
            (Some(mark), _) if mark == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '(' | '[' | '{') => open += 1,
            (None, ')' | ']' | '}') => open -= 1,
            _ => {}
        }
    }
    open
}

fn without_comment(line: &str) -> &str {
    let mut quote = None;
    for (at, character) in line.char_indices() {
        match (quote, character) {
            (Some(mark), _) if mark == character => quote = None,
            (None, '"' | '\'') => quote = Some(character),
            (None, '#') => return &line[..at],
            _ => {}
        }
    }
    line
}

/// An expression as words, strings and marks.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Tokens<'a> {
    fn of(text: &'a str) -> Tokens<'a> {
        Tokens { rest: text }
    }

    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(mark);
        if found {
            self.rest = &self.rest[mark.len_utf8()..];
        }
        found
    }

    fn word(&mut self) -> &'a str {
        self.rest = self.rest.trim_start();
        let end = self
            .rest
            .find(|c: char| !(c.is_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// One value; null, up to the next comma or closing bracket, where it is more than a literal or a call.
    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEEPEST {
            return None;
        }
        let value = self.simple(depth)?;
        match self.peek() {
            None | Some(',' | ')' | ']' | '}' | ':') => Some(value),
            Some(_) => {
                self.skip();
                Some(Value::Null)
            }
        }
    }

    fn simple(&mut self, depth: usize) -> Option<Value> {
        match self.peek()? {
            '"' | '\'' => self.string().map(Value::String),
            '[' => self.list('[', ']', depth),
            '(' => self.list('(', ')', depth),
            '{' => self.map(depth),
            '-' => {
                self.take('-');
                let number: f64 = self.number()?;
                Some(json_number(-number))
            }
            digit if digit.is_ascii_digit() => self.number().map(json_number),
            letter if letter.is_alphabetic() || letter == '_' => {
                let word = self.word();
                match word {
                    "True" => Some(Value::Bool(true)),
                    "False" => Some(Value::Bool(false)),
                    "None" => Some(Value::Null),
                    name if self.peek() == Some('(') => self.call(name, depth),
                    name => Some(Value::String(name.to_owned())),
                }
            }
            _ => {
                self.skip();
                Some(Value::Null)
            }
        }
    }

    fn number(&mut self) -> Option<f64> {
        self.rest = self.rest.trim_start();
        let mut end = 0;
        let bytes = self.rest.as_bytes();
        while bytes.get(end).is_some_and(|&byte| {
            byte.is_ascii_digit()
                || b"._eE".contains(&byte)
                || (b"+-".contains(&byte) && end > 0 && b"eE".contains(&bytes[end - 1]))
        }) {
            end += 1;
        }
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        text.replace('_', "").parse().ok()
    }

    fn string(&mut self) -> Option<String> {
        let quote = self.peek()?;
        self.rest = &self.rest[1..];
        let end = self.rest.find(quote)?;
        let text = self.rest[..end].to_owned();
        self.rest = &self.rest[end + 1..];
        Some(text)
    }

    fn list(&mut self, open: char, close: char, depth: usize) -> Option<Value> {
        self.take(open);
        let mut list = Vec::new();
        while !self.take(close) {
            list.push(self.value(depth + 1)?);
            if !self.take(',') && self.peek() != Some(close) {
                return None;
            }
        }
        Some(Value::Array(list))
    }

    fn map(&mut self, depth: usize) -> Option<Value> {
        self.take('{');
        let mut map = Map::new();
        while !self.take('}') {
            let key = self.value(depth + 1)?;
            if !self.take(':') {
                return None;
            }
            let value = self.value(depth + 1)?;
            map.insert(key.as_str().map_or_else(|| key.to_string(), str::to_owned), value);
            if !self.take(',') && self.peek() != Some('}') {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    fn call(&mut self, name: &str, depth: usize) -> Option<Value> {
        self.take('(');
        let mut map = Map::from_iter([(CALLED.to_owned(), Value::String(name.to_owned()))]);
        let mut place = 0u32;
        while !self.take(')') {
            let before = self.rest;
            self.peek()?;
            let key = self.word();
            if !key.is_empty() && self.peek() == Some('=') && !self.rest.starts_with("==") {
                self.take('=');
                let value = self.value(depth + 1)?;
                map.insert(key.to_owned(), value);
            } else {
                self.rest = before;
                let value = self.value(depth + 1)?;
                map.insert(place.to_string(), value);
                place += 1;
            }
            if !self.take(',') && self.peek() != Some(')') {
                return None;
            }
        }
        Some(Value::Object(map))
    }

    /// Skips to the comma or bracket that ends this value.
    fn skip(&mut self) {
        let (mut open, mut quote) = (0u32, None);
        let end = self.rest.find(|character| {
            match (quote, character) {
                (Some(mark), _) if mark == character => quote = None,
                (Some(_), _) => {}
                (None, '"' | '\'') => quote = Some(character),
                (None, '(' | '[' | '{') => open += 1,
                (None, ')' | ']' | '}') if open > 0 => open -= 1,
                (None, ',' | ')' | ']' | '}') if open == 0 => return true,
                _ => {}
            }
            false
        });
        self.rest = &self.rest[end.unwrap_or(self.rest.len())..];
    }
}

fn json_number(number: f64) -> Value {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        Value::from(number as i64)
    } else {
        Value::from(number)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const MODULE: &str = r#"
from x import y

def small() -> T.Config:
    # A comment
    return T.Config(
        path="./a",  # with "one"
        spec=registry("8B"),
        training=Training(seq_len=8_192, lr=-3e-4, on=True, sum=1 + f(2, 3)),
        tags=["a", ('b', None)], d={"k": 1},
    )

def larger() -> T.Config:
    config = small()
    config.training.seq_len = 16
    config.extra = Other(1)
    return config
"#;

    #[test]
    fn what_is_written_out_is_read() {
        let small = returned(MODULE, "small").unwrap();
        assert_eq!(small["spec"], json!({"()": "registry", "0": "8B"}));
        assert_eq!(
            small["training"],
            json!({"()": "Training", "seq_len": 8192, "lr": -3e-4, "on": true, "sum": null})
        );
        assert_eq!((&small["tags"], &small["d"]), (&json!(["a", ["b", null]]), &json!({"k": 1})));
        let larger = returned(MODULE, "larger").unwrap();
        assert_eq!(
            (&larger["training"]["seq_len"], &larger["path"], &larger["extra"]["0"]),
            (&json!(16), &json!("./a"), &json!(1))
        );
        assert!(returned(MODULE, "none").is_err_and(|error| error.contains("no function `none`")));
        assert!(returned("def f():\n    return f()", "f").is_err());
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[a-c(\\[{}\\]),=.'\"\\-0-9e: \n#]{0,80}") {
            let _ = returned(&format!("def f():\n    return {text}"), "f");
            let _ = returned(&format!("def f():\n    x = {text}\n    return x"), "f");
        }
    }
}
