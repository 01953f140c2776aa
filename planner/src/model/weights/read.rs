//! The index of a model's safetensors files, and the header of one of them.

use serde_json::{Map, Value};

use super::{Tensor, WeightFiles};
use crate::finding::{Finding, clip};

/// Bytes before a header, which say its length.
pub const HEADER_LENGTH: u64 = 8;

/// Longest header that is read: the format's own limit (`MAX_HEADER_SIZE` of the safetensors library), beyond which nobody else reads
/// a file either. One with 100,000 tensors has about 12 MB.
pub const MOST_HEADER_BYTES: u64 = 100_000_000;

const FIELD: &str = "model.weights";

fn refused(value: impl Into<Value>, message: String) -> Box<Finding> {
    Box::new(Finding::error(FIELD, value, message).rule("safetensors"))
}

/// What an index says: the value of a `model.safetensors.index.json`.
///
/// # Errors
/// A finding that says what it is not.
pub fn read_index(index: &Map<String, Value>) -> Result<WeightFiles, Box<Finding>> {
    let Some(map) = index.get("weight_map").and_then(Value::as_object) else {
        let message = "this JSON has no `weight_map` of tensors, so it is no index of safetensors files; give model.safetensors.index.json";
        return Err(refused(Value::Null, message.to_owned()));
    };
    if let Some((name, file)) = map.iter().find(|(_, file)| !file.is_string()) {
        let message = format!(
            "the index has {} in the place of `{}`'s file; it must be a name",
            clip(&file.to_string()),
            clip(name)
        );
        return Err(refused(clip(name), message));
    }
    let total_bytes = index.get("metadata").and_then(|data| data.get("total_size")).and_then(Value::as_f64);
    let tensors =
        map.keys().map(|name| Tensor { name: name.clone(), elements: None, packed: false }).collect();
    Ok(WeightFiles {
        tensors,
        total_bytes: total_bytes.filter(|bytes| (1.0..1e18).contains(bytes)).map(|bytes| bytes as u64),
    })
}

/// Bytes of the header whose length the first eight bytes of a file say.
///
/// # Errors
/// A finding where no header is so long.
pub fn header_bytes(first: [u8; 8]) -> Result<u64, Box<Finding>> {
    let length = u64::from_le_bytes(first);
    if (2..=MOST_HEADER_BYTES).contains(&length) {
        return Ok(length);
    }
    let message = format!(
        "this file begins with a header of {length} bytes, and those of safetensors files have 2 to {MOST_HEADER_BYTES}; it is likely of another kind"
    );
    Err(refused(length, message))
}

/// What the beginning of a file of weights, or the text of an index, says; eight bytes of length may stand before it.
///
/// # Errors
/// A finding that says what it is not.
pub(super) fn read_start(text: &str) -> Result<WeightFiles, Box<Finding>> {
    // The length of a header has bytes of zero, and may have one that is a bracket.
    let length = text.chars().take(HEADER_LENGTH as usize).any(|sign| sign == '\0');
    let from = text.find(if length { "{\"" } else { "{" }).unwrap_or(text.len());
    let text = text.get(from..).unwrap_or_default();
    match serde_json::Deserializer::from_str(text).into_iter::<Map<String, Value>>().next() {
        Some(Ok(object)) if object.contains_key("weight_map") => read_index(&object),
        Some(Ok(header)) => of_header(&header, None),
        Some(Err(error)) if error.is_eof() => {
            let read = text.len();
            let message = format!(
                "the header of this file does not end in the {read} bytes that were read of it; `shardplan plan --model FOLDER` reads longer ones"
            );
            Err(refused(read, message))
        }
        _ => Err(refused(Value::Null, "this is neither a safetensors file nor the index of some".to_owned())),
    }
}

/// What a header says: its text, and the bytes of the file behind it where they are known.
///
/// # Errors
/// A finding that names the tensor whose sizes contradict each other, or says that it is no header.
pub fn read_header(text: &[u8], behind: Option<u64>) -> Result<WeightFiles, Box<Finding>> {
    let header: Map<String, Value> = serde_json::from_slice(text).map_err(|error| {
        refused(Value::Null, format!("the header of this safetensors file is no JSON: {error}"))
    })?;
    of_header(&header, behind)
}

fn of_header(header: &Map<String, Value>, behind: Option<u64>) -> Result<WeightFiles, Box<Finding>> {
    let mut weights = WeightFiles::default();
    for (name, entry) in header.iter().filter(|(name, _)| *name != "__metadata__") {
        let Some((tensor, end)) = tensor(name, entry) else {
            let message = format!(
                "tensor `{}` says that it is {}; a shape, a type and the bytes from where to where must agree",
                clip(name),
                clip(&entry.to_string())
            );
            return Err(refused(clip(name), message));
        };
        if let Some(behind) = behind.filter(|&behind| end > behind) {
            let message = format!(
                "tensor `{}` ends at byte {end} of the data, and the file has {behind}: it is cut short, or its header is another's",
                clip(name)
            );
            return Err(refused(end, message));
        }
        weights.tensors.push(tensor);
    }
    weights.tensors.sort();
    Ok(weights)
}

/// A tensor of a header and where its data ends; none where its sizes contradict each other.
fn tensor(name: &str, entry: &Value) -> Option<(Tensor, u64)> {
    let dtype = entry.get("dtype")?.as_str()?;
    let shape = entry.get("shape")?.as_array()?;
    let elements = shape.iter().try_fold(1u64, |all, dim| all.checked_mul(dim.as_u64()?))?;
    let offsets = entry.get("data_offsets")?.as_array()?;
    let [from, to] = offsets.as_slice() else { return None };
    let bytes = to.as_u64()?.checked_sub(from.as_u64()?)?;
    let bits = bits(dtype)?;
    if u128::from(elements) * u128::from(bits) != u128::from(bytes) * 8 {
        return None;
    }
    let packed = matches!(dtype, "I32" | "U32" | "I64" | "U8" | "I8");
    Some((Tensor { name: name.to_owned(), elements: Some(elements), packed }, to.as_u64()?))
}

/// Bits of an element.
fn bits(dtype: &str) -> Option<u64> {
    Some(match dtype {
        "F64" | "I64" | "U64" => 64,
        "F32" | "I32" | "U32" => 32,
        "F16" | "BF16" | "I16" | "U16" => 16,
        "BOOL" | "U8" | "I8" => 8,
        _ if dtype.starts_with("F8") => 8,
        _ if dtype.starts_with("F6") => 6,
        _ if dtype.starts_with("F4") => 4,
        _ => return None,
    })
}
