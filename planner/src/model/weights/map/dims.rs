//! Dims of parameters by letters, and where a box of a parameter lies in a tensor whose dims are in another order.

use std::ops::Range;

use super::parameters::Listed;
use super::table::Take;
use super::{BoxPart, Storage};
use crate::model::Attention;

/// Dims of parameters in the order of their shape, as `names.txt` calls them; a bias has those of the outputs alone.
const DIMS: &[(&str, &str)] = &[
    ("attention.qkv.weight", "kndh"),
    ("attention.qkv.bias", "knd"),
    ("attention.proj.weight", "hnd"),
    ("attention.proj.bias", "h"),
    ("attention.q.weight", "ndh"),
    ("attention.q_up.weight", "ndh"),
    ("attention.kv_up.weight", "ndh"),
    ("attention.kv_down.weight", "dh"),
    ("fc2.weight", "hf"),
    ("fc2.bias", "h"),
];

/// The letters of a parameter's dims.
pub(super) fn letters(parameter: &Listed<'_>) -> Option<&'static str> {
    let (part, rank) = (parameter.part.as_str(), parameter.shape.len());
    let norm = ["attention.q_norm.", "attention.k_norm."].iter().any(|norm| part.starts_with(norm));
    let first = part.ends_with("fc1.weight") || part.ends_with("fc1.bias");
    let found = match DIMS.iter().find(|(name, _)| part.ends_with(name)) {
        Some((_, letters)) => letters,
        None if norm => ["d", "nd"].get(rank.checked_sub(1)?)?,
        None if first => {
            // Gated by its rank.
            let all = if part.ends_with("bias") { ["f", "gf"] } else { ["fh", "gfh"] };
            *all.iter().find(|letters| letters.len() == rank)?
        }
        None => ["a", "ab", "abc"].get(rank.checked_sub(1)?)?,
    };
    (found.len() == rank).then_some(found)
}

/// The order of a tensor's dims where none is said: a matrix of outputs by inputs, or a vector.
pub(super) fn usual_order(letters: &str) -> &'static str {
    match letters {
        "kndh" => "(k n d) h",
        "knd" => "(k n d)",
        "hnd" => "h (n d)",
        "ndh" => "(n d) h",
        "nd" => "(n d)",
        "gfh" => "(g f) h",
        "gf" => "(g f)",
        "hf" => "h f",
        "dh" => "d h",
        "fh" => "f h",
        "ab" => "a b",
        "abc" => "a b c",
        "d" => "d",
        "h" => "h",
        "f" => "f",
        _ => "a",
    }
}

/// Indices of the dim that a part of a parameter is taken along; empty where the parameter has no such part.
pub(super) fn taken(take: Take, parameter: &Listed<'_>, letters: &str) -> Option<(usize, Range<u64>)> {
    let dim = letters.find(if matches!(take, Take::Gate | Take::Up) { 'g' } else { 'n' })?;
    let extent = *parameter.shape.get(dim)?;
    let (keys, gates) = match parameter.attention {
        Some(&Attention::Gqa { values_are_keys, output_gate, .. }) => {
            (2 - u64::from(values_are_keys), output_gate)
        }
        _ => (2, false),
    };
    let heads = extent.saturating_sub(keys);
    let queries = if gates { heads / 2 } else { heads };
    let range = match take {
        Take::Query => 0..queries,
        Take::QueryGate => queries..heads,
        Take::Key => heads..extent.min(heads + 1),
        Take::Value => extent.min(heads + 1)..extent,
        Take::Gate => 0..1,
        Take::Up => 1..extent,
    };
    Some((dim, range))
}

/// A box of a parameter that is a tensor of its own, or follows others in one: its extent there is `rows` along the first dim.
pub(super) struct Placed {
    pub hf_shape: Vec<u64>,
    pub offset: Vec<u64>,
    pub extent: Vec<u64>,
    pub strides: Vec<u64>,
    pub base: u64,
}

/// Lays a box of a parameter out in the order of a tensor's dims; letters that neither has are left out.
pub(super) fn placed(
    parameter: &Listed<'_>,
    letters: &str,
    order: &str,
    take: Option<(usize, Range<u64>)>,
) -> Placed {
    let mut offset = vec![0; parameter.shape.len()];
    let mut extent = parameter.shape.clone();
    if let Some((dim, range)) = take {
        offset[dim] = range.start;
        extent[dim] = range.end.saturating_sub(range.start);
    }
    let mut strides = vec![0; extent.len()];
    let (mut hf_shape, mut base, mut stride, mut width) = (Vec::new(), 0, 1_u64, None);
    // From the innermost dim: a bracket that closes begins one.
    let mut inside = false;
    for letter in order.chars().rev() {
        match letter {
            ')' => inside = true,
            '(' => {
                inside = false;
                hf_shape.extend(width.take());
            }
            ' ' => {}
            letter => {
                let of_expert = (letter == 'e').then_some(parameter.expert).flatten();
                let count = match (of_expert, letters.find(letter)) {
                    (Some((expert, experts)), _) => {
                        base = expert * stride;
                        experts
                    }
                    (None, Some(dim)) => {
                        strides[dim] = stride;
                        extent[dim]
                    }
                    (None, None) => continue,
                };
                stride *= count;
                match inside {
                    true => width = Some(width.unwrap_or(1) * count),
                    false => hf_shape.push(count),
                }
            }
        }
    }
    hf_shape.reverse();
    Placed { hf_shape, offset, extent, strides, base }
}

/// Rows of a head that are rotated, from the first, and along which dim; none for a parameter without such rows.
pub(super) fn rotated(
    parameter: &Listed<'_>,
    letters: &str,
    take: Option<Take>,
) -> Option<(usize, Range<u64>)> {
    let dim = letters.find('d')?;
    let stem = parameter.part.rsplit_once('.').map_or("", |(stem, _)| stem);
    let range = match (parameter.attention?, stem, take) {
        (Attention::Gqa { head_dim, rotary_dim, .. }, "attention.qkv", Some(Take::Query | Take::Key))
        | (Attention::Gqa { head_dim, rotary_dim, .. }, "attention.q_norm" | "attention.k_norm", None) => {
            0..rotary_dim.unwrap_or(*head_dim)
        }
        (Attention::Mla { qk_nope_dim, qk_rope_dim, .. }, "attention.q" | "attention.q_up", _) => {
            *qk_nope_dim..qk_nope_dim.saturating_add(*qk_rope_dim)
        }
        (Attention::Mla { kv_lora_rank, qk_rope_dim, .. }, "attention.kv_down", _) => {
            *kv_lora_rank..kv_lora_rank.saturating_add(*qk_rope_dim)
        }
        _ => return None,
    };
    Some((dim, range))
}

/// A part whose rotated rows are one half and the other here, and neighbours there; nothing where it has fewer rows than are
/// rotated.
pub(super) fn as_neighbours(part: &BoxPart, dim: usize, rows: &Range<u64>) -> Vec<BoxPart> {
    if rows.end > part.extent[dim] {
        return Vec::new();
    }
    let (step, half) = (part.strides[dim], (rows.end - rows.start) / 2);
    let turned = rows.start + 2 * half;
    let piece = |from: u64, to: u64, first: u64, step: u64| {
        let mut piece = part.clone();
        piece.offset[dim] = from;
        piece.extent[dim] = to.saturating_sub(from);
        piece.base = part.base + first * part.strides[dim];
        piece.strides[dim] = step;
        piece
    };
    let pieces = [
        piece(0, rows.start, 0, step),
        piece(rows.start, rows.start + half, rows.start, 2 * step),
        piece(rows.start + half, turned, rows.start + 1, 2 * step),
        piece(turned, part.extent[dim], turned, step),
    ];
    pieces.into_iter().filter(|piece| piece.extent[dim] > 0).collect()
}

impl Placed {
    /// Moves it behind `elements` of the tensor, whose shape it gets.
    pub(super) fn part(
        self,
        tensor: String,
        hf_shape: Vec<u64>,
        elements: u64,
        add: f64,
        storage: Storage,
    ) -> BoxPart {
        let Placed { offset, extent, strides, base, .. } = self;
        BoxPart { tensor, hf_shape, offset, extent, base: base + elements, strides, add, storage }
    }
}
