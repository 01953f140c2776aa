//! A rank's slices by layer, in the order of the forward pass, and as comma-separated values.

use std::ops::Range;

use planner::json::value_of;
use planner::layout::GroupKind;
use planner::shard::{ParamShard, RankShards};

use crate::kit::Sheet;

/// Slices of one layer, which follow each other in the rank's list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The layer; none before and after the layers.
    pub layer: Option<u64>,
    /// Its slices in the list.
    pub slices: Range<usize>,
    /// Elements of them all.
    pub elements: u64,
    /// Bytes of their weights.
    pub bytes: u64,
}

impl Part {
    /// What it is called.
    pub fn title(&self) -> String {
        match self.layer {
            Some(layer) => format!("Layer {layer}"),
            None if self.slices.start == 0 => "Before the layers".to_owned(),
            None => "After the layers".to_owned(),
        }
    }
}

/// Bytes of a slice's weights.
pub fn bytes_of(shards: &RankShards, param: &ParamShard) -> u64 {
    shards.buffers.get(param.buffer).map_or(0, |buffer| param.elements() * buffer.weight_dtype.size())
}

/// The slices by layer.
pub fn parts(shards: &RankShards) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for (number, param) in shards.params.iter().enumerate() {
        if parts.last().is_none_or(|part| part.layer != param.layer) {
            parts.push(Part { layer: param.layer, slices: number..number, elements: 0, bytes: 0 });
        }
        if let Some(part) = parts.last_mut() {
            part.slices.end = number + 1;
            part.elements += param.elements();
            part.bytes += bytes_of(shards, param);
        }
    }
    parts
}

/// A group's name as in plan answers, such as `dp_cp`.
pub fn group_name(kind: GroupKind) -> String {
    value_of(&kind).as_str().unwrap_or_default().to_owned()
}

/// Which group cuts which dim, such as `tp dim 0`; `whole` for a slice that is the whole parameter.
pub fn cut_of(param: &ParamShard) -> String {
    let mut cuts: Vec<String> =
        param.cuts.iter().map(|cut| format!("{} dim {}", group_name(cut.group), cut.dim)).collect();
    if cuts.is_empty()
        && let Some(group) = param.cut_by
    {
        let dims = param.shape.iter().zip(&param.local_shape).enumerate();
        let cut: Vec<String> =
            dims.filter(|(_, (whole, here))| whole != here).map(|(dim, _)| dim.to_string()).collect();
        cuts.push(match cut.is_empty() {
            true => group_name(group),
            false => format!("{} dim {}", group_name(group), cut.join(" and ")),
        });
    }
    if cuts.is_empty() { "whole".to_owned() } else { cuts.join(", ") }
}

/// A shape as `[2, 4096]`.
pub fn shape(sizes: &[u64]) -> String {
    format!("{sizes:?}")
}

/// All slices, one a line.
pub fn write_slices(shards: &RankShards, sheet: &mut Sheet) {
    let joined = |sizes: &[u64]| sizes.iter().map(u64::to_string).collect::<Vec<_>>().join("x");
    sheet.row(&[
        &"name",
        &"layer",
        &"shape",
        &"local_shape",
        &"offset",
        &"cut_by",
        &"buffer",
        &"buffer_offset",
        &"elements",
        &"bytes",
    ]);
    for param in &shards.params {
        sheet.row(&[
            &param.name,
            &param.layer.map(|layer| layer.to_string()).unwrap_or_default(),
            &joined(&param.shape),
            &joined(&param.local_shape),
            &joined(&param.offset),
            &cut_of(param).replace(", ", " "),
            &param.buffer,
            &param.buffer_offset,
            &param.elements(),
            &bytes_of(shards, param),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use planner::{Plan, parse_plan};
    use serde_json::json;

    fn shards(runtime: &str, rank: u64) -> RankShards {
        let file = json!({"version": 1, "model": {"preset": "tiny-moe"}, "runtime": runtime,
            "cluster": {"gpu": "h100-sxm", "gpus_per_node": 4}, "layout": {"tp": 2}});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings)).rank_shards(rank)
    }

    #[test]
    fn parts_hold_every_slice_once() {
        for (runtime, rank) in [("megatron", 0), ("megatron", 3), ("fsdp2", 1)] {
            let shards = shards(runtime, rank);
            let parts = parts(&shards);
            let covered: Vec<usize> = parts.iter().flat_map(|part| part.slices.clone()).collect();
            assert_eq!(covered, (0..shards.params.len()).collect::<Vec<_>>(), "{runtime}");
            let elements: u64 = shards.params.iter().map(ParamShard::elements).sum();
            assert_eq!(parts.iter().map(|part| part.elements).sum::<u64>(), elements, "{runtime}");
            assert_eq!(parts[0].title(), "Before the layers");
        }
    }

    #[test]
    fn a_cut_names_its_group_and_dim() {
        let shards = shards("megatron", 1);
        let cut = |name: &str| cut_of(shards.params.iter().find(|param| param.name == name).unwrap());
        assert_eq!(cut("embedding.weight"), "tp dim 0");
        assert_eq!(cut("final_norm.weight"), "whole");
    }

    #[test]
    fn the_file_has_a_line_per_slice() {
        let shards = shards("megatron", 0);
        let mut sheet = Sheet::csv();
        write_slices(&shards, &mut sheet);
        let text = sheet.text();
        assert_eq!(text.lines().count(), shards.params.len() + 1);
        let columns = text.lines().next().unwrap().split(',').count();
        assert!(text.lines().all(|line| line.split(',').count() == columns), "{text}");
    }
}
