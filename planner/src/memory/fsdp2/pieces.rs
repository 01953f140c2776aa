//! The units of a stage as the walk needs them: sizes, and what they save.

use crate::layout::chunks_of_stage;
use crate::model::{Architecture, LayerKind};
use crate::shard::fsdp::UnitKind;

use super::gathered::Gathered;
use super::layer::{TorchLayer, layer, mtp_module};
use crate::memory::live::live_of_chunk;
use crate::memory::parts::SavedBytes;
use crate::memory::recompute::of_layer;
use crate::memory::stage::LayerTerms;
use crate::plan::Plan;
use crate::schedule;
use crate::settings::{Granularity, Schedule};
use crate::units::Quantity;

/// What a piece is in the walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// The embedding, where it is a unit of its own.
    Embedding,
    /// A layer or a prediction module, its experts included.
    Layer,
    /// Final norm and output layer, where they are a unit of their own.
    Last,
}

/// One unit, or a layer's two, of the fullest rank.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    /// What it is.
    pub role: Role,
    /// Elements while gathered, padding included; 0 where nothing is gathered.
    pub gathered: Quantity,
    /// Bytes of them while gathered.
    pub gathered_bytes: Quantity,
    /// Of its largest parameter.
    pub largest: Quantity,
    /// Elements of this rank's shard, padding included.
    pub shard: Quantity,
    /// Of those, what is not wrapped.
    pub left_out: Quantity,
    /// Whether it stays gathered from forward to backward.
    pub stays: bool,
    /// Bytes of the part of it that does, where it is split over fewer ranks than it is sharded over in between.
    pub kept_part: Quantity,
    /// What it keeps and needs.
    pub bytes: TorchLayer,
}

/// The units of a stage in the order of the forward pass, and the root.
#[derive(Debug, Clone)]
pub(super) struct Pieces {
    /// All but the root.
    pub list: Vec<Piece>,
    /// Elements of the root while gathered.
    pub root: Quantity,
    /// Of its shard.
    pub root_shard: Quantity,
    /// Of the output layer in the root while gathered.
    pub root_head: Quantity,
    /// Of the output layer alone, where it is a unit with the norm.
    pub output: Quantity,
    /// Activations of micro batches in flight beside the one that is walked.
    pub others: SavedBytes,
    /// Where in the list each chunk begins whose gradients are reduced before the next chunk's are summed.
    apart: Vec<usize>,
}

impl Piece {
    /// Bytes of it while it is at work that are not there from its forward to its backward.
    pub(super) fn at_work(&self) -> Quantity {
        if self.stays { Quantity::ZERO } else { self.gathered_bytes.saturating_sub(self.kept_part) }
    }
}

impl Pieces {
    /// Those of `stage`, whose units these are.
    pub(super) fn of(terms: &LayerTerms<'_>, stage: u64, units: &[Gathered]) -> Pieces {
        let plan = terms.at.plan;
        let mut found = Pieces {
            list: Vec::with_capacity(units.len()),
            root: Quantity::ZERO,
            root_shard: Quantity::ZERO,
            root_head: Quantity::ZERO,
            output: Quantity::ZERO,
            others: SavedBytes::default(),
            apart: Vec::new(),
        };
        let param = Quantity::from(plan.training.dtype.size());
        // A layer's experts come before the rest of it, and are at work with it.
        let mut experts = [Quantity::ZERO; 5];
        let model: &Architecture = &plan.model;
        let chunks = chunks_of_stage(&plan.layout, model.num_layers, stage).unwrap_or_default();
        let mut known: Vec<((LayerKind, Granularity), TorchLayer)> = Vec::new();
        let mut of_number = |number: u64| {
            let chunk = chunks.iter().find(|chunk| chunk.layers.contains(&number));
            let recompute = chunk.map_or(plan.training.recompute, |chunk| of_layer(plan, chunk, number));
            let kind = (model.layer_kind(number), recompute);
            match known.iter().find(|(known, _)| *known == kind) {
                Some((_, known)) => *known,
                None => {
                    let bytes = layer(terms, kind.0, kind.1);
                    known.push((kind, bytes));
                    bytes
                }
            }
        };
        for unit in units {
            let &Gathered { whole, shard: own, .. } = unit;
            let eighths = if in_8_bits(plan) { unit.linear } else { Quantity::ZERO };
            let bytes_of = param * (whole - eighths) + eighths;
            let (role, bytes) = match unit.kind {
                UnitKind::Experts => {
                    experts = [whole, own, bytes_of, param * unit.kept_part, unit.left_out];
                    continue;
                }
                UnitKind::Root => {
                    found.root = whole;
                    found.root_shard = own;
                    found.root_head = unit.head;
                    continue;
                }
                UnitKind::Layer => {
                    (Role::Layer, unit.number.map_or_else(TorchLayer::default, &mut of_number))
                }
                UnitKind::Mtp => (Role::Layer, mtp_module(terms)),
                UnitKind::Embedding => (Role::Embedding, TorchLayer::default()),
                UnitKind::Last => {
                    found.output = unit.head;
                    (Role::Last, TorchLayer::default())
                }
            };
            let [with, with_shard, with_bytes, with_kept, left_out] =
                if role == Role::Layer { experts } else { Default::default() };
            experts = Default::default();
            found.list.push(Piece {
                role,
                gathered: whole + with,
                gathered_bytes: bytes_of + with_bytes,
                largest: unit.largest,
                shard: own + with_shard,
                left_out,
                stays: !unit.reshard,
                kept_part: param * unit.kept_part + with_kept,
                bytes,
            });
        }
        found.others = others(terms, stage, &found.list);
        found.apart = apart(plan, stage, &found.list);
        found
    }

    /// The first of the pieces whose gradients are summed whole while piece `count - 1` is at work.
    pub(super) fn summed_from(&self, count: usize) -> usize {
        self.apart.iter().copied().filter(|&start| start < count).max().unwrap_or(0)
    }
}

/// Whether parameters are gathered in 8 bits (torchao's float8 all-gather).
fn in_8_bits(plan: &Plan) -> bool {
    plan.training.fp8_param_gather && plan.training.low_precision.is_some()
}

/// torch's interleaved schedule reduces a chunk's gradients when its last micro batch has gone back. With one round of
/// micro batches that is before the next chunk's first, so one chunk's sums are alive at a time.
fn apart(plan: &Plan, stage: u64, list: &[Piece]) -> Vec<usize> {
    let layout = &plan.layout;
    let one_round = plan.microbatches() <= layout.microbatch_group_size.max(1);
    if layout.schedule != Schedule::Interleaved || layout.vpp < 2 || !one_round {
        return Vec::new();
    }
    let layers = list.iter().enumerate().filter(|(_, piece)| piece.role == Role::Layer);
    let places: Vec<usize> = layers.map(|(place, _)| place).collect();
    let chunks = chunks_of_stage(layout, plan.model.num_layers, stage).unwrap_or_default();
    let mut before = 0;
    let starts = chunks.iter().map(|chunk| {
        let start = before;
        before += chunk.layers.end - chunk.layers.start;
        start
    });
    starts.filter_map(|start| places.get(start as usize).copied()).collect()
}

/// Saved by the micro batches in flight beside one.
fn others(terms: &LayerTerms<'_>, stage: u64, list: &[Piece]) -> SavedBytes {
    let plan = terms.at.plan;
    if plan.layout.pp == 1 {
        return SavedBytes::default();
    }
    let pipeline = plan.pipeline();
    let most = schedule::live_chunks(&pipeline, stage);
    let chunks = chunks_of_stage(&plan.layout, plan.model.num_layers, stage).unwrap_or_default();
    let mut layers = list.iter().filter(|piece| piece.role == Role::Layer);
    let mut sum = SavedBytes::default();
    for (number, chunk) in chunks.iter().enumerate() {
        let live = live_of_chunk(&pipeline, most, number as u64).saturating_sub(1);
        let modules = if chunk.mtp { plan.model.mtp_layers } else { 0 };
        let count = chunk.layers.end - chunk.layers.start + modules;
        for piece in layers.by_ref().take(count as usize) {
            sum += piece.bytes.saved.times(Quantity::from(live));
        }
    }
    sum
}
