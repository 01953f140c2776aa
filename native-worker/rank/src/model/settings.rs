//! What all parts of a rank's model share: settings of the plan, and what is known of one micro batch.

use std::rc::Rc;

use anyhow::Context;
use planner::Plan;
use planner::layout::GroupKind;
use planner::model::Rotation;
use tch::{Device, Kind, Tensor};

use super::documents::Documents;
use super::functions::add_bias;
use super::recompute::Recompute;
use super::rotary::Rotary;
use crate::collectives::{Collectives, GroupId};
use crate::state::kind_of;
use crate::tape::{Exchange, Flow, Tape};

/// Settings of the plan.
pub struct Settings {
    /// Whether the residual stream is cut along the sequence over tensor parallelism.
    pub sequence_parallel: bool,
    /// Type of activations.
    pub compute: Kind,
    /// What is recomputed.
    pub recompute: Recompute,
    /// The context-parallel group.
    pub cp: GroupId,
    seq_len: u64,
    rotations: Vec<Rotation>,
    balance_scale: f64,
}

impl Settings {
    /// The plan's.
    ///
    /// # Errors
    /// When the planner made no context-parallel group with this rank.
    pub fn new(plan: &Plan, world: &dyn Collectives) -> anyhow::Result<Settings> {
        let training = &plan.training;
        Ok(Settings {
            sequence_parallel: plan.layout.sp && plan.layout.tp > 1,
            compute: kind_of(training.dtype),
            recompute: Recompute::of(plan),
            cp: world.mine(GroupKind::Cp)?,
            seq_len: training.seq_len,
            rotations: plan.model.rotations(),
            // The balancing loss is a mean over the micro batches of all replicas.
            balance_scale: training.micro_batch_size as f64 / plan.sequences() as f64,
        })
    }

    /// From a row-parallel sum to the residual stream.
    fn exchange(&self) -> Exchange {
        if self.sequence_parallel { Exchange::SumScatter } else { Exchange::Sum }
    }

    /// Brings a part of a sum onto the residual stream; a bias is added to the sum.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn onto_stream(
        &self,
        tape: &mut Tape<'_>,
        partial: Flow,
        bias: Option<usize>,
    ) -> anyhow::Result<Flow> {
        let whole = tape.exchange(self.exchange(), partial)?;
        match bias {
            Some(bias) => add_bias(tape, &whole, bias),
            None => Ok(whole),
        }
    }

    /// What is known of a micro batch before it is run, whose tokens are at `places` of these documents and whose losses are
    /// multiplied by `scale`.
    ///
    /// # Errors
    /// When libtorch fails, or a rotation lacks what its rule needs.
    pub fn pass(
        &self,
        places: Vec<i64>,
        documents: Option<&Rc<Documents>>,
        device: Device,
        scale: f64,
    ) -> anyhow::Result<Pass> {
        let apart = documents.and_then(|documents| documents.positions(&places));
        let positions = apart.unwrap_or_else(|| places.clone());
        let mut tables = Vec::with_capacity(self.rotations.len());
        for rotation in &self.rotations {
            let rotary = Rotary::new(rotation, self.seq_len)?;
            let (cos, sin) = rotary.tables(&positions, places.len(), self.compute, device)?;
            tables.push(Tables { rotation: rotation.clone(), rotary, cos, sin });
        }
        Ok(Pass {
            tables,
            places,
            positions,
            apart: documents.filter(|documents| documents.keep_attention_apart()).cloned(),
            balance_scale: self.balance_scale * scale,
        })
    }
}

/// Cosines and sines of the positions that a rank holds.
pub struct Tables {
    rotation: Rotation,
    rotary: Rotary,
    cos: Tensor,
    sin: Tensor,
}

impl Tables {
    /// Rotates `heads`, `[s, b, heads, d]`.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn rotate(&self, heads: &Tensor) -> anyhow::Result<Tensor> {
        self.rotary.rotate(heads, &self.cos, &self.sin)
    }
}

/// What is known of a micro batch before it is run.
pub struct Pass {
    tables: Vec<Tables>,
    /// Places in the sequence that this rank attends from: all, or its chunks under context parallelism.
    places: Vec<i64>,
    /// Their positions, as rotations, tables and temperatures count them: those places, or of each place one for each sequence,
    /// whose documents begin elsewhere.
    pub positions: Vec<i64>,
    /// Documents that don't see each other; none where tokens see all before them.
    pub apart: Option<Rc<Documents>>,
    /// What the gradient of the balancing loss of one micro batch is multiplied by.
    pub balance_scale: f64,
}

impl Pass {
    /// Cosines and sines of a rotation; none for heads that are not rotated.
    pub fn tables(&self, rotation: Option<&Rotation>) -> Option<&Tables> {
        let rotation = rotation?;
        self.tables.iter().find(|tables| tables.rotation == *rotation)
    }

    /// Places in the sequence of the residual stream's tokens on this rank.
    ///
    /// # Errors
    /// When this rank is in no tensor-parallel group.
    pub fn stream_places(&self, settings: &Settings, tape: &Tape<'_>) -> anyhow::Result<&[i64]> {
        of_stream(&self.places, settings, tape)
    }

    /// Their positions, as learned embeddings count them.
    ///
    /// # Errors
    /// When this rank is in no tensor-parallel group.
    pub fn stream_positions(&self, settings: &Settings, tape: &Tape<'_>) -> anyhow::Result<&[i64]> {
        of_stream(&self.positions, settings, tape)
    }
}

/// Of numbers of a rank's tokens those of the residual stream's.
fn of_stream<'n>(numbers: &'n [i64], settings: &Settings, tape: &Tape<'_>) -> anyhow::Result<&'n [i64]> {
    if !settings.sequence_parallel {
        return Ok(numbers);
    }
    let group = tape.group();
    let (size, index) = (group.size(), group.world.index(group.group)?);
    let each = numbers.len() / size.max(1);
    numbers.get(index * each..(index + 1) * each).context("a slice of the sequence")
}
