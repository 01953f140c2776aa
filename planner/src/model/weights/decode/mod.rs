//! Elements of tensors as 32-bit floats, and back: bytes of safetensors files, which are little-endian.
//!
//! A run is `out.len()` elements from element `first` of a tensor, `stride` apart. Functions answer `None`, and may have
//! written some of the run, where an element lies behind the bytes that they were given.

#[cfg(test)]
mod tests;

/// The type of a tensor's elements, as the header of a safetensors file says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// `F64`: read to the nearest 32-bit float.
    F64,
    /// `F32`.
    F32,
    /// `F16`.
    F16,
    /// `BF16`.
    Bf16,
    /// `F8_E4M3`: 4 bits of exponent, 3 of fraction, no infinities (the "fn" variant of OCP's 8-bit formats).
    Fp8E4m3,
}

impl Format {
    /// The format of a header's `dtype`; none for others.
    pub fn of(dtype: &str) -> Option<Format> {
        Some(match dtype {
            "F64" => Format::F64,
            "F32" => Format::F32,
            "F16" => Format::F16,
            "BF16" => Format::Bf16,
            "F8_E4M3" => Format::Fp8E4m3,
            _ => return None,
        })
    }

    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        match self {
            Format::F64 => 8,
            Format::F32 => 4,
            Format::F16 | Format::Bf16 => 2,
            Format::Fp8E4m3 => 1,
        }
    }
}

/// Reads a run of a tensor whose elements are kept one by one.
pub fn decode(format: Format, bytes: &[u8], first: u64, stride: u64, out: &mut [f32]) -> Option<()> {
    // The type is looked at once, and not for each element.
    match format {
        Format::F64 => each(bytes, first, stride, out, |element| f64::from_le_bytes(element) as f32),
        Format::F32 => each(bytes, first, stride, out, f32::from_le_bytes),
        Format::F16 => each(bytes, first, stride, out, |element| f16_to_f32(u16::from_le_bytes(element))),
        Format::Bf16 => each(bytes, first, stride, out, |element| bf16_to_f32(u16::from_le_bytes(element))),
        Format::Fp8E4m3 => each(bytes, first, stride, out, |[element]| e4m3_to_f32(element)),
    }
}

fn each<const N: usize>(
    bytes: &[u8],
    first: u64,
    stride: u64,
    out: &mut [f32],
    value: impl Fn([u8; N]) -> f32,
) -> Option<()> {
    let (elements, _) = bytes.as_chunks::<N>();
    let (mut at, stride) = (usize::try_from(first).ok()?, usize::try_from(stride).ok()?);
    if stride == 1 {
        // A slice of both lets the compiler see that nothing is out of bounds.
        let run = elements.get(at..at.checked_add(out.len())?)?;
        out.iter_mut().zip(run).for_each(|(out, element)| *out = value(*element));
        return Some(());
    }
    for out in out {
        *out = value(*elements.get(at)?);
        at = at.checked_add(stride)?;
    }
    Some(())
}

/// Reads a run of a matrix of `columns` columns of 8-bit floats, each to be multiplied by the factor of its block: `scales`
/// are 32-bit floats, a row of them for each row of blocks (DeepSeek-V3, `weight_scale_inv`).
pub fn decode_fp8_blocks(
    bytes: &[u8],
    scales: &[u8],
    columns: u64,
    block: [u64; 2],
    first: u64,
    stride: u64,
    out: &mut [f32],
) -> Option<()> {
    let [rows_of_block, columns_of_block] = block;
    if columns == 0 || block.contains(&0) {
        return None;
    }
    decode(Format::Fp8E4m3, bytes, first, stride, out)?;
    let (mut at, mut rest) = (first, out);
    while !rest.is_empty() {
        let (row, column) = (at / columns, at % columns);
        let scale = (row / rows_of_block).checked_mul(columns.div_ceil(columns_of_block))?
            + column / columns_of_block;
        let mut factor = [0.0];
        decode(Format::F32, scales, scale, 1, &mut factor)?;
        // Elements up to the end of the block or of the row have one factor.
        let behind = (column / columns_of_block + 1).saturating_mul(columns_of_block).min(columns);
        let count = usize::try_from((behind - column).div_ceil(stride.max(1))).ok()?.min(rest.len());
        let (same, others) = rest.split_at_mut(count);
        same.iter_mut().for_each(|out| *out *= factor[0]);
        at = at.checked_add(stride.checked_mul(count as u64)?)?;
        rest = others;
    }
    Some(())
}

/// Numbers that 4 bits stand for in MXFP4: sign, 2 bits of exponent, 1 of fraction.
const E2M1: [f32; 16] =
    [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0];

/// Reads a run of a tensor of 4-bit floats, two to a byte of `blocks`, the first in its low half; 32 elements in a row share a
/// byte of `scales`, an exponent of 2 with 127 added (OCP Microscaling Formats 1.0; 255 is no number).
pub fn decode_mxfp4(blocks: &[u8], scales: &[u8], first: u64, stride: u64, out: &mut [f32]) -> Option<()> {
    let mut at = first;
    for out in out {
        let byte = *blocks.get(usize::try_from(at / 2).ok()?)?;
        let bits = if at.is_multiple_of(2) { byte & 15 } else { byte >> 4 };
        let scale = *scales.get(usize::try_from(at / 32).ok()?)?;
        *out = E2M1[usize::from(bits)] * power_of_two(scale);
        at = at.checked_add(stride)?;
    }
    Some(())
}

/// 2 to the power of `exponent` - 127; no number for 255.
fn power_of_two(exponent: u8) -> f32 {
    match exponent {
        0 => f32::from_bits(1 << 22),
        255 => f32::NAN,
        exponent => f32::from_bits(u32::from(exponent) << 23),
    }
}

/// A bfloat16: the upper half of a 32-bit float.
pub fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// An IEEE half.
pub fn f16_to_f32(bits: u16) -> f32 {
    let (sign, bits) = (u32::from(bits & 0x8000) << 16, u32::from(bits & 0x7fff));
    let magnitude = match bits {
        // Subnormal numbers are multiples of 2 to the -24.
        0..0x400 => (bits as f32 * f32::from_bits((127 - 24) << 23)).to_bits(),
        0x400..0x7c00 => (bits << 13) + ((127 - 15) << 23),
        _ => 0x7f80_0000 | (bits << 13),
    };
    f32::from_bits(sign | magnitude)
}

/// An 8-bit float with 4 bits of exponent; all ones of exponent and fraction are no number.
pub(crate) fn e4m3_to_f32(bits: u8) -> f32 {
    let (sign, bits) = (u32::from(bits & 0x80) << 24, u32::from(bits & 0x7f));
    let magnitude = match bits {
        // Subnormal numbers are multiples of 2 to the -9.
        0..8 => (bits as f32 * f32::from_bits((127 - 9) << 23)).to_bits(),
        0x7f => f32::NAN.to_bits(),
        _ => (bits << 20) + ((127 - 7) << 23),
    };
    f32::from_bits(sign | magnitude)
}

/// The nearest bfloat16, of two as near the even one; what is no number stays none.
pub(crate) fn f32_to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + ((bits >> 16) & 1)) >> 16) as u16
}

/// The nearest IEEE half, of two as near the even one; what is too large is infinite, and what is no number stays none.
pub(crate) fn f32_to_f16(value: f32) -> u16 {
    let bits = value.to_bits();
    let (sign, bits) = ((bits >> 16) as u16 & 0x8000, bits & 0x7fff_ffff);
    let magnitude = if bits > 0x7f80_0000 {
        0x7e00 | ((bits >> 13) & 0x3ff) as u16
    } else if bits >= 0x4780_0000 {
        0x7c00
    } else if bits >= 0x3880_0000 {
        // The exponents' starts differ, and a carry into the exponent is right, infinity included.
        ((bits + 0xfff + ((bits >> 13) & 1) - ((127 - 15) << 23)) >> 13) as u16
    } else {
        // Adding a half lets the addition round to multiples of 2 to the -24.
        (f32::from_bits(bits) + 0.5).to_bits() as u16
    };
    sign | magnitude
}

/// Writes a run of a tensor whose elements are kept one by one: 64 and 32 bits as they are, 16 bits to the nearest, of two as
/// near the even one. `None` for 8 bits, too, which need factors.
pub fn encode(format: Format, values: &[f32], first: u64, stride: u64, bytes: &mut [u8]) -> Option<()> {
    match format {
        Format::F64 => put(values, first, stride, bytes, |value| f64::from(value).to_le_bytes()),
        Format::F32 => put(values, first, stride, bytes, f32::to_le_bytes),
        Format::F16 => put(values, first, stride, bytes, |value| f32_to_f16(value).to_le_bytes()),
        Format::Bf16 => put(values, first, stride, bytes, |value| f32_to_bf16(value).to_le_bytes()),
        Format::Fp8E4m3 => None,
    }
}

fn put<const N: usize>(
    values: &[f32],
    first: u64,
    stride: u64,
    bytes: &mut [u8],
    kept: impl Fn(f32) -> [u8; N],
) -> Option<()> {
    let (elements, _) = bytes.as_chunks_mut::<N>();
    let (mut at, stride) = (usize::try_from(first).ok()?, usize::try_from(stride).ok()?);
    for &value in values {
        *elements.get_mut(at)? = kept(value);
        at = at.checked_add(stride)?;
    }
    Some(())
}
