//! How tensors keep their elements, by what stands beside them in the files.

use serde_json::{Map, Value};

use super::{BoxPart, Present, Storage, refused};
use crate::finding::{Finding, clip};

/// Rows and columns of a block of 8-bit floats where config.json says none.
const BLOCK: u64 = 128;

/// Elements that share an exponent in MXFP4, and the bytes that they take.
const SHARED: (u64, u64) = (32, 16);

/// Rows and columns of a block of 8-bit floats, as config.json says them.
pub(super) fn block_of(config: &Map<String, Value>) -> [u64; 2] {
    let block = config.get("quantization_config").and_then(|said| said.get("weight_block_size"));
    let side = |at: usize| {
        let side = block.and_then(|block| block.get(at)).and_then(Value::as_u64);
        side.filter(|side| *side > 0).unwrap_or(BLOCK)
    };
    [side(0), side(1)]
}

fn shape_is(present: &Present, name: &str, wanted: &[u64]) -> Result<(), Box<Finding>> {
    let found = present.get(name).map_or(&[][..], Vec::as_slice);
    if found == wanted {
        return Ok(());
    }
    let message = format!("tensor `{}` is of shape {found:?}, and {wanted:?} is planned", clip(name));
    Err(refused(clip(name), message))
}

/// How a part's tensor is kept.
///
/// # Errors
/// A finding where a shape is not the planned one, or where elements have factors that can't be read.
pub(super) fn storage(part: &BoxPart, present: &Present, block: [u64; 2]) -> Result<Storage, Box<Finding>> {
    if let Some(plain) = part.tensor.strip_suffix("_blocks") {
        let scales = format!("{plain}_scales");
        let mut shape = part.hf_shape.clone();
        let last = shape.pop().unwrap_or(0);
        if !last.is_multiple_of(SHARED.0) {
            let message = format!(
                "tensor `{}` has rows of {last}, which blocks of {} do not divide",
                clip(&part.tensor),
                SHARED.0
            );
            return Err(refused(clip(&part.tensor), message));
        }
        shape.push(last / SHARED.0);
        shape_is(present, &scales, &shape)?;
        shape.push(SHARED.1);
        shape_is(present, &part.tensor, &shape)?;
        return Ok(Storage::Mxfp4 { scales });
    }
    shape_is(present, &part.tensor, &part.hf_shape)?;
    let scales = format!("{}_scale_inv", part.tensor);
    if let (true, [rows, columns]) = (present.contains_key(&scales), part.hf_shape.as_slice()) {
        shape_is(present, &scales, &[rows.div_ceil(block[0]), columns.div_ceil(block[1])])?;
        return Ok(Storage::Fp8Blocks { scales, block });
    }
    let others = ["_scale", "_scale_inv", "_scale_2"].map(|end| format!("{}{end}", part.tensor));
    if let Some(other) = others.iter().find(|name| present.contains_key(*name)) {
        let message = format!(
            "tensor `{}` is kept with factors in `{}`, in a way that can't be read: give the model's files in 16 bits, or in 8 bits with factors of blocks",
            clip(&part.tensor),
            clip(other)
        );
        return Err(refused(clip(other), message));
    }
    Ok(Storage::Plain)
}
