//! What all parts of a rank's model share: settings of the plan, and what is known of one micro batch.

use std::rc::Rc;

use anyhow::Context;
use planner::Plan;
use planner::model::Rotation;
use tch::{Device, Kind, Tensor};

use super::documents::Documents;
use super::functions::add_bias;
use super::recompute::Recompute;
use super::rotary::Rotary;
use crate::collectives::GroupId;
use crate::state::kind_of;
use crate::sys::memory::{Category, Tracker};
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
    rotaries: Vec<(Rotation, Rc<Rotary>)>,
    /// Tables of the positions that all micro batches have; none where documents begin elsewhere in each.
    tables: Option<Rc<[Tables]>>,
    device: Device,
    balance_scale: f64,
}

impl Settings {
    /// The plan's, of a rank whose `context` it is: the context-parallel group, and the places of the sequence that the rank has in
    /// it. Tables of rotations stay on the device from here on.
    ///
    /// # Errors
    /// When a rotation lacks what its rule needs, or libtorch fails.
    pub fn new(
        plan: &Plan,
        (cp, places): (GroupId, &[i64]),
        device: Device,
        tracker: &Tracker,
    ) -> anyhow::Result<Settings> {
        let training = &plan.training;
        let compute = kind_of(training.dtype);
        let rotaries = plan
            .model
            .rotations()
            .into_iter()
            .map(|rotation| {
                let rotary = Rotary::new(&rotation, training.seq_len)?;
                Ok((rotation, Rc::new(rotary)))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let keep = |make: &dyn Fn() -> anyhow::Result<Tensor>| tracker.allocate(Category::Buffers, make);
        let kept = !plan.run.documents.reset_positions;
        let tables = kept.then(|| tables(&rotaries, places, places.len(), (compute, device), &keep));
        Ok(Settings {
            sequence_parallel: plan.layout.sp && plan.layout.tp > 1,
            compute,
            recompute: Recompute::of(plan),
            cp,
            rotaries,
            tables: tables.transpose()?,
            device,
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
    /// When libtorch fails.
    pub fn pass(
        &self,
        places: Vec<i64>,
        documents: Option<&Rc<Documents>>,
        scale: f64,
    ) -> anyhow::Result<Pass> {
        let apart = documents.and_then(|documents| documents.positions(&places));
        let of_all = self.tables.as_ref().filter(|_| apart.is_none());
        let positions = apart.unwrap_or_else(|| places.clone());
        let tables = match of_all {
            Some(tables) => tables.clone(),
            None => {
                let of = (self.compute, self.device);
                tables(&self.rotaries, &positions, places.len(), of, &|make| make())?
            }
        };
        Ok(Pass {
            tables,
            places,
            positions,
            apart: documents.filter(|documents| documents.keep_attention_apart()).cloned(),
            balance_scale: self.balance_scale * scale,
        })
    }
}

/// How a table of a rotation is made, by what makes its numbers.
type Making<'m> = &'m dyn Fn(&dyn Fn() -> anyhow::Result<Tensor>) -> anyhow::Result<Tensor>;

/// Tables of all rotations for the `positions` of `tokens` tokens.
fn tables(
    rotaries: &[(Rotation, Rc<Rotary>)],
    positions: &[i64],
    tokens: usize,
    (kind, device): (Kind, Device),
    made: Making<'_>,
) -> anyhow::Result<Rc<[Tables]>> {
    let of = |(rotation, rotary): &(Rotation, Rc<Rotary>)| {
        let angles = rotary.angles(positions, tokens, device)?;
        let cos = made(&|| rotary.cosines(&angles, kind))?;
        let sin = made(&|| rotary.sines(&angles, kind))?;
        Ok(Tables { rotation: rotation.clone(), rotary: rotary.clone(), cos, sin })
    };
    rotaries.iter().map(of).collect()
}

/// Cosines and sines of the positions that a rank holds.
pub struct Tables {
    rotation: Rotation,
    rotary: Rc<Rotary>,
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
    tables: Rc<[Tables]>,
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
