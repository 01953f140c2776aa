//! Figures of PyTorch's out-of-memory message.
//!
//! CUDACachingAllocator.cpp: 1.x and 2.0 write `(GPU 0; 79.15 GiB total capacity; ... already allocated; ... free; ...
//! reserved in total by PyTorch)`, later versions sentences.

use serde::{Deserialize, Serialize};

/// What an out-of-memory message says, in bytes; they are as exact as two decimals of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutOfMemory {
    /// Asked for.
    pub tried_bytes: Option<u64>,
    /// The GPU's memory.
    pub capacity_bytes: Option<u64>,
    /// Left on the GPU.
    pub free_bytes: Option<u64>,
    /// Used by this process, with what is outside the allocator.
    pub in_use_bytes: Option<u64>,
    /// Tensors.
    pub allocated_bytes: Option<u64>,
    /// Taken from the GPU by the allocator and not in tensors.
    pub unused_bytes: Option<u64>,
    /// Taken from the GPU by the allocator.
    pub reserved_bytes: Option<u64>,
}

/// Reads the message; none where it has no figures.
pub(super) fn read(text: &str) -> Option<OutOfMemory> {
    let before = |words: &str| text.find(words).and_then(|place| last_size(&text[..place]));
    let after = |words: &str| text.find(words).and_then(|place| first_size(&text[place + words.len()..]));
    let mut found = OutOfMemory {
        tried_bytes: after("Tried to allocate"),
        capacity_bytes: before("total capacity;")
            .or_else(|| after("total capacity of"))
            .or_else(|| after("total capacty of")),
        free_bytes: before("is free").or_else(|| before(" free;")),
        in_use_bytes: before("memory in use"),
        allocated_bytes: before("is allocated by PyTorch").or_else(|| before("already allocated")),
        unused_bytes: before("is reserved by PyTorch but unallocated"),
        reserved_bytes: before("reserved in total by PyTorch"),
    };
    if found.reserved_bytes.is_none() {
        found.reserved_bytes =
            found.allocated_bytes.zip(found.unused_bytes).map(|(used, unused)| used.saturating_add(unused));
    }
    (found != OutOfMemory::default()).then_some(found)
}

/// The GPU that the message names.
pub(super) fn gpu(text: &str) -> Option<String> {
    let rest = &text[text.find("GPU ")? + 4..];
    let digits: String = rest.chars().take_while(char::is_ascii_digit).take(4).collect();
    (!digits.is_empty()).then_some(digits)
}

/// `12.50 MiB` at the start.
fn first_size(text: &str) -> Option<u64> {
    let text = text.trim_start();
    let number = text.bytes().take_while(|byte| byte.is_ascii_digit() || *byte == b'.').count();
    bytes_of(&text[..number], &text[number..])
}

/// The last size of a text.
fn last_size(text: &str) -> Option<u64> {
    let text = text.trim_end();
    let unit_at = text.rfind(' ')?;
    // `22.90 GiB`, `0 bytes`
    let number_at = text[..unit_at].rfind([' ', '(']).map_or(0, |place| place + 1);
    bytes_of(&text[number_at..unit_at], &text[unit_at..])
}

fn bytes_of(number: &str, unit: &str) -> Option<u64> {
    let unit = unit.trim_start();
    let scale: u64 = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("TiB", 1 << 40), ("bytes", 1)]
        .into_iter()
        .find(|(name, _)| unit.starts_with(name))?
        .1;
    let value: f64 = number.parse().ok()?;
    // At most a few petabytes: beyond is no memory of a GPU.
    (value.is_finite() && (0.0..1e6).contains(&value) || scale == 1).then_some(())?;
    Some((value * scale as f64) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: f64 = (1u64 << 30) as f64;

    #[test]
    fn sentences() {
        let found = read(
            "CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 79.11 GiB of which 1.25 GiB is free. \
             Including non-PyTorch memory, this process has 77.80 GiB memory in use. Of the allocated memory 70.00 GiB is \
             allocated by PyTorch, and 512.00 MiB is reserved by PyTorch but unallocated.",
        )
        .expect("figures");
        let gib = |value: f64| Some((value * GIB) as u64);
        assert_eq!(found.tried_bytes, gib(2.5));
        assert_eq!(found.capacity_bytes, gib(79.11));
        assert_eq!(found.free_bytes, gib(1.25));
        assert_eq!(found.in_use_bytes, gib(77.8));
        assert_eq!(found.allocated_bytes, gib(70.0));
        assert_eq!(found.reserved_bytes, gib(70.5));
    }

    #[test]
    fn brackets() {
        let found = read(
            "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 39.59 GiB total capacity; 37.10 GiB already allocated; 0 bytes \
             free; 38.00 GiB reserved in total by PyTorch)",
        )
        .expect("figures");
        assert_eq!(found.tried_bytes, Some(20 << 20));
        assert_eq!(found.capacity_bytes, Some((39.59 * GIB) as u64));
        assert_eq!(found.free_bytes, Some(0));
        assert_eq!(found.reserved_bytes, Some(38 << 30));
    }

    #[test]
    fn none() {
        assert_eq!(read("CUDA out of memory"), None);
        assert_eq!(read("Tried to allocate 9e999 GiB"), None);
    }
}
