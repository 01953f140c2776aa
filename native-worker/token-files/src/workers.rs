//! A batch of text to tokens.

use serde_json::Value;

use crate::Tokenize;
use crate::documents::{Batch, Document, Kind};

/// What became of a batch: of each document its tokens, or why it is none.
pub(crate) struct Done {
    pub documents: Vec<Result<Vec<u32>, String>>,
    /// Bytes of files that it was.
    pub read: u64,
}

/// Makes tokens of a batch.
pub(crate) fn work(wanted: &Tokenize<'_>, batch: Batch) -> Done {
    let tokens = |document: Document| {
        let named = |reason: String| format!("{}: {reason}", document.place);
        let bytes = document.bytes.as_ref().map_err(|reason| named(reason.clone()))?;
        let text = match document.kind {
            Kind::Lines => field(bytes, wanted.field).map_err(named)?,
            Kind::Text => whole(bytes).map_err(named)?.to_owned(),
        };
        let tokens = wanted.vocabulary.encode(&text, wanted.special_tokens).map_err(named)?;
        Ok(with_end(tokens, wanted.end))
    };
    Done { documents: batch.documents.into_iter().map(tokens).collect(), read: batch.read }
}

/// A document's tokens and the one behind it, which alone is no document.
fn with_end(mut tokens: Vec<u32>, end: Option<u32>) -> Vec<u32> {
    if !tokens.is_empty() {
        tokens.extend(end);
    }
    tokens
}

/// The text of a JSON line.
fn field(line: &[u8], name: &str) -> Result<String, String> {
    let line = std::str::from_utf8(line)
        .map_err(|error| format!("the line is not UTF-8 from its byte {} on", error.valid_up_to() + 1))?;
    let value: Value = serde_json::from_str(line)
        .map_err(|error| format!("the line is no JSON ({error}); give JSON lines, or a .txt file"))?;
    let Value::Object(mut fields) = value else {
        return Err("the line is no JSON object".to_owned());
    };
    match fields.remove(name) {
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(format!("the field {name:?} is {}, not a string", kind_of(&other))),
        None => {
            let mut known: Vec<&str> = fields.keys().take(5).map(String::as_str).collect();
            known.sort_unstable();
            Err(format!("there is no field {name:?} (it has {}); --field names another", known.join(", ")))
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// The text of a whole file.
fn whole(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| {
        let line = bytes.iter().take(error.valid_up_to()).filter(|byte| **byte == b'\n').count() + 1;
        format!("the file is not UTF-8 in line {line}, at its byte {}", error.valid_up_to() + 1)
    })
}
