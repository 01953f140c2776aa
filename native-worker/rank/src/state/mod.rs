//! What a rank keeps from step to step: exactly the planner's shards.
//!
//! Weights, main gradients, master weights and moments are flat buffers; a parameter is a view of them at the
//! planner's offset. Nothing here computes a shape, an offset or a size of its own.

pub mod buckets;
pub mod init;
mod partial;
pub mod pretrained;
pub mod sums;
pub mod units;

use anyhow::{Context, bail, ensure};
use planner::Dtype;
use planner::layout::GroupKind;
use planner::settings::OptimizerKind;
use planner::shard::fsdp::{CarriedOut, Handling, Section};
use planner::shard::{BufferShard, ParamShard, RankShards, StateShard, UnitBuffers};
use tch::{Device, Kind, Tensor};

use crate::collectives::Collectives;
use crate::sys::memory::{Category, Tracker};
use crate::tape::{Gradient, Moment, Weights};
use buckets::Buckets;
use units::Units;

/// libtorch's name of an element type.
pub fn kind_of(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::Bf16 => Kind::BFloat16,
        Dtype::Fp16 => Kind::Half,
        Dtype::Fp32 => Kind::Float,
        Dtype::Fp64 => Kind::Double,
        Dtype::Fp8 => Kind::Float8e4m3fn,
    }
}

/// One of the planner's buffers.
pub struct Buffer {
    /// The planner's description.
    pub shard: BufferShard,
    /// The range of it whose optimizer state this rank keeps.
    pub kept: Kept,
    /// Compute-dtype parameters.
    pub weights: Tensor,
    /// Main gradients: of all of it, or of the part whose state this rank keeps.
    pub gradients: Tensor,
    /// The first element that they are of.
    gradients_from: u64,
    /// Master weights of the owned range; none when the weights themselves serve.
    pub master: Option<Tensor>,
    /// Moments of the owned range.
    pub moments: Vec<Tensor>,
    /// Whether other ranks keep state of some of it, so that gradients come from them and weights go to them.
    split: bool,
    /// The ranks that keep the same of it; none where each keeps its own.
    alike: Option<GroupKind>,
    /// Of what is split, the ranks of other groups that keep the same part, over which gradients are summed behind the split.
    replicas: Option<GroupKind>,
}

/// Elements of a parameter that a rank updates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owned {
    /// The first, counted in the buffer.
    pub start: u64,
    /// The first, counted in the buffer's masters and moments.
    pub state: u64,
    /// How many.
    pub elements: u64,
}

/// A parameter's slice on this rank.
pub struct Parameter {
    /// The planner's description.
    pub shard: ParamShard,
    /// What of it this rank updates.
    pub owned: Option<Owned>,
    /// What the model computes with; none where that is gathered from what ranks keep.
    leaf: Option<Tensor>,
    /// Its part of the main gradient buffer, in its own shape; of a core of nonuniform tensor parallelism, what that computes.
    pub gradient: Tensor,
}

/// Everything that a rank keeps.
pub struct State {
    /// The buffers.
    pub buffers: Vec<Buffer>,
    /// The parameters, in the planner's order; under FSDP2 the parts of them that the rank keeps.
    pub parameters: Vec<Parameter>,
    /// What is gathered of them, under FSDP2.
    units: Option<Units>,
    /// Gradients that are summed over ranks layer by layer, beside the backward, and weights that come back so; none where all are
    /// summed behind it, or units are.
    buckets: Option<Buckets>,
}

/// A range of a buffer whose optimizer state a rank keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// The rule that updates it.
    pub optimizer: OptimizerKind,
    /// First element.
    pub start: u64,
    /// Elements.
    pub elements: u64,
}

impl Kept {
    /// Of a buffer, with the planner's description of the state.
    ///
    /// # Errors
    /// When the planner gives anything but one range.
    pub fn of(shard: &BufferShard) -> anyhow::Result<(Kept, &StateShard)> {
        let [state] = shard.states.as_slice() else {
            bail!("the planner gives {} kinds of optimizer state for one buffer", shard.states.len());
        };
        let start = state.offset.context("the planner gives optimizer state of whole tensors")?;
        let kept = Kept { optimizer: state.optimizer, start, elements: state.elements };
        ensure!(
            kept.end() <= shard.elements,
            "the planner gives state for elements {start} to {} of a buffer of {}",
            kept.end(),
            shard.elements
        );
        Ok((kept, state))
    }

    /// One past the last element.
    pub fn end(&self) -> u64 {
        self.start + self.elements
    }
}

fn length(elements: u64) -> anyhow::Result<i64> {
    i64::try_from(elements).with_context(|| format!("a buffer of {elements} elements"))
}

/// A one-dimensional view.
pub fn view(buffer: &Tensor, start: u64, elements: u64) -> anyhow::Result<Tensor> {
    Ok(buffer.f_narrow(0, length(start)?, length(elements)?)?)
}

impl Buffer {
    fn allocate(shard: &BufferShard, device: Device, tracker: &Tracker) -> anyhow::Result<Buffer> {
        let zeros = |category, elements: u64, dtype: Dtype| {
            tracker.allocate(category, || Ok(Tensor::f_zeros([length(elements)?], (kind_of(dtype), device))?))
        };
        let (kept, state) = Kept::of(shard)?;
        let of_state = |dtype| zeros(Category::Optimizer, kept.elements, dtype);
        let split = kept.elements < shard.elements;
        let gradients = shard.gradient_elements.unwrap_or(shard.elements);
        ensure!(
            gradients == shard.elements || gradients == kept.elements,
            "the planner gives gradients of {gradients} elements of a buffer of {}, and state of {}",
            shard.elements,
            kept.elements
        );
        Ok(Buffer {
            kept,
            split,
            gradients_from: if gradients < shard.elements { kept.start } else { 0 },
            alike: (!split).then_some(shard.group),
            replicas: None,
            weights: zeros(Category::Weights, shard.elements, shard.weight_dtype)?,
            gradients: zeros(Category::Gradients, gradients, shard.grad_dtype)?,
            master: state.master_dtype.map(of_state).transpose()?,
            moments: (0..state.moments).map(|_| of_state(state.moment_dtype)).collect::<Result<_, _>>()?,
            shard: shard.clone(),
        })
    }

    /// The owned range of a buffer-sized tensor.
    ///
    /// # Errors
    /// When the tensor is smaller.
    pub fn owned(&self, whole: &Tensor) -> anyhow::Result<Tensor> {
        view(whole, self.kept.start, self.kept.elements)
    }

    /// Elements of the main gradients, from an element of the buffer on.
    ///
    /// # Errors
    /// When this rank does not keep them.
    pub fn gradients_of(&self, start: u64, elements: u64) -> anyhow::Result<Tensor> {
        let first = start.checked_sub(self.gradients_from).context("gradients that another rank keeps")?;
        view(&self.gradients, first, elements)
    }

    /// Whether gradients of all of it are here, of which this rank keeps state of a part.
    pub fn has_more_gradients(&self) -> bool {
        self.gradients.numel() as u64 > self.kept.elements
    }

    /// Whether this rank updates any of it. An extra of nonuniform tensor parallelism does not: it gets weights from cores.
    pub fn keeps_state(&self) -> bool {
        self.kept.elements > 0
    }

    /// Whether other ranks keep state of it too.
    pub fn is_split(&self) -> bool {
        self.split
    }

    /// The ranks that keep the same part of what is split, where there are any.
    pub fn replicas(&self) -> Option<GroupKind> {
        self.replicas
    }
}

impl Buffer {
    /// The part of a parameter whose masters this rank keeps: its first element, counted in the slice, and they.
    fn master_of(&self, shard: &ParamShard) -> anyhow::Result<Option<(u64, Tensor)>> {
        let (Some(master), Some(owned)) = (&self.master, self.owned_of(shard)) else { return Ok(None) };
        let part = view(master, owned.state, owned.elements)?;
        Ok(Some((owned.start - shard.buffer_offset, part)))
    }

    /// What of a parameter lies in the range whose state this rank keeps.
    fn owned_of(&self, shard: &ParamShard) -> Option<Owned> {
        let start = shard.buffer_offset.max(self.kept.start);
        let end = (shard.buffer_offset + shard.elements()).min(self.kept.end());
        (start < end).then(|| Owned { start, state: start - self.kept.start, elements: end - start })
    }

    /// Sets elements of a parameter's slice from its element `first` on: of its weights, and of the masters that this rank keeps.
    ///
    /// # Errors
    /// When libtorch fails, or the slice has no such elements.
    pub fn set(&self, shard: &ParamShard, first: u64, values: &Tensor) -> anyhow::Result<()> {
        let count = values.numel() as u64;
        view(&self.weights, shard.buffer_offset + first, count)?.f_copy_(values)?;
        if let Some((start, master)) = self.master_of(shard)? {
            let (from, to) = (first.max(start), (first + count).min(start + master.numel() as u64));
            if from < to {
                view(&master, from - start, to - from)?.f_copy_(&view(values, from - first, to - from)?)?;
            }
        }
        Ok(())
    }
}

/// Starts a parameter's weights, and the part of them whose masters this rank keeps: masters start from the same fp64 values,
/// not from rounded weights.
fn start(buffer: &Buffer, shard: &ParamShard, seed: u64) -> anyhow::Result<()> {
    let mut weights = view(&buffer.weights, shard.buffer_offset, shard.elements())?;
    let mut master = buffer.master_of(shard)?;
    let mut parts = vec![init::Part { start: 0, into: &mut weights }];
    if let Some((start, master)) = &mut master {
        parts.push(init::Part { start: *start, into: master });
    }
    init::fill(shard, seed, &mut parts)
}

impl State {
    /// Allocates the planner's buffers, and starts from a seed every parameter that this rank updates; without one all is 0, for somebody to fill.
    ///
    /// # Errors
    /// When memory runs out, or the planner's description does not hold together.
    pub fn allocate(
        shards: &RankShards,
        device: Device,
        seed: Option<u64>,
        tracker: &Tracker,
    ) -> anyhow::Result<State> {
        let computed = shards.params.iter().map(|_| None);
        State::allocate_with(shards, computed, device, seed, tracker)
    }

    /// The same with the buffers of Megatron-FSDP's units, where weights and gradients stay whole.
    ///
    /// # Errors
    /// As above.
    pub fn allocate_unit_buffers(
        kept: &UnitBuffers,
        native: &RankShards,
        device: Device,
        seed: Option<u64>,
        tracker: &Tracker,
    ) -> anyhow::Result<State> {
        let computed =
            kept.computed_from.iter().zip(&native.params).map(|(&from, shard)| Some((from, shard)));
        State::allocate_with(&kept.shards, computed, device, seed, tracker)
    }

    /// With each parameter the first element of it that is computed with, and in which shape, where that is not all of it.
    fn allocate_with<'s>(
        shards: &RankShards,
        computed: impl Iterator<Item = Option<(u64, &'s ParamShard)>>,
        device: Device,
        seed: Option<u64>,
        tracker: &Tracker,
    ) -> anyhow::Result<State> {
        let buffers: Vec<Buffer> = shards
            .buffers
            .iter()
            .map(|shard| Buffer::allocate(shard, device, tracker))
            .collect::<Result<_, _>>()?;
        let mut parameters = Vec::with_capacity(shards.params.len());
        for (shard, computed) in shards.params.iter().zip(computed) {
            let buffer =
                buffers.get(shard.buffer).with_context(|| format!("{} is in no buffer", shard.name))?;
            let (from, of) = computed.unwrap_or((0, shard));
            let shape: Vec<i64> =
                of.local_shape.iter().map(|&extent| length(extent)).collect::<Result<_, _>>()?;
            let slice = |whole: &Tensor| -> anyhow::Result<Tensor> {
                let kept =
                    view(whole, shard.buffer_offset + from, of.elements())?.f_view(shape.as_slice())?;
                Ok(match shard.computed_rows() {
                    Some((dim, rows)) => kept.f_narrow(length(dim as u64)?, 0, length(rows)?)?,
                    None => kept,
                })
            };
            if let Some(seed) = seed.filter(|_| buffer.keeps_state()) {
                start(buffer, shard, seed)?;
            }
            let leaf = slice(&buffer.weights)?.f_detach()?.f_set_requires_grad(true)?;
            let gradient = slice(&buffer.gradients)?;
            let owned = buffer.owned_of(shard);
            parameters.push(Parameter { shard: shard.clone(), owned, leaf: Some(leaf), gradient });
        }
        Ok(State { buffers, parameters, units: None, buckets: None })
    }

    /// The same where ranks of this group keep the same parts of what is split.
    pub fn replicated_over(mut self, group: GroupKind) -> State {
        for buffer in self.buffers.iter_mut().filter(|buffer| buffer.split) {
            (buffer.alike, buffer.replicas) = (Some(group), Some(group));
        }
        self
    }

    /// The same where gradients are summed over ranks layer by layer, beside the backward.
    pub fn reduced_by_layer(mut self) -> State {
        self.buckets = Some(Buckets::of(&self.parameters));
        self
    }

    /// Allocates what a rank keeps under FSDP2, or under Megatron-FSDP where gradients are split, and starts from a seed as above what
    /// this rank updates.
    ///
    /// # Errors
    /// As above, and where a group is missing.
    pub fn allocate_units(
        carried: &CarriedOut,
        native: &RankShards,
        handling: Handling,
        device: Device,
        seed: Option<u64>,
        tracker: &Tracker,
        world: &dyn Collectives,
    ) -> anyhow::Result<State> {
        // FSDP2 sums over replicas unit by unit, Megatron-FSDP behind the last micro batch.
        let flat = carried.units.iter().any(|unit| unit.weights != planner::shard::fsdp::Weights::CopiedOut);
        let on = |shard: &BufferShard| if shard.on_host { Device::Cpu } else { device };
        let mut buffers: Vec<Buffer> = carried
            .buffers
            .iter()
            .map(|shard| Buffer::allocate(shard, on(shard), tracker))
            .collect::<Result<_, _>>()?;
        for buffer in &mut buffers {
            if flat {
                let replicated = buffer.shard.group != GroupKind::DpReplicate;
                buffer.alike = replicated.then_some(GroupKind::DpReplicate);
                buffer.replicas = buffer.alike;
            } else {
                // All of a slice is this rank's, but for padding.
                buffer.split = false;
                buffer.alike = (!buffer.shard.expert).then_some(GroupKind::DpReplicate);
            }
        }
        let mut parameters = Vec::with_capacity(carried.parts.len());
        for part in &carried.parts {
            let shard = &part.shard;
            let buffer =
                buffers.get(shard.buffer).with_context(|| format!("{} is in no buffer", shard.name))?;
            if let Some(seed) = seed {
                start(buffer, shard, seed)?;
            }
            let (start, elements) = (shard.buffer_offset, shard.elements());
            let owned = Owned { start, state: part.state_start, elements };
            let gradient = buffer.gradients_of(start, elements)?;
            parameters.push(Parameter { shard: shard.clone(), owned: Some(owned), leaf: None, gradient });
        }
        let units = Units::new(&carried.units, &native.params, &buffers, handling, device, tracker, world)?;
        Ok(State { buffers, parameters, units: Some(units), buckets: None })
    }

    /// What is gathered, under FSDP2.
    pub fn units(&self) -> Option<&Units> {
        self.units.as_ref()
    }

    /// Gradients that are summed layer by layer.
    pub fn buckets(&self) -> Option<&Buckets> {
        self.buckets.as_ref()
    }

    /// Says whether a backward that begins, and makes gradients of weights, is the last of the step for what it goes through.
    pub fn begin_backward(&self, last: bool) {
        self.units.iter().for_each(|units| units.begin_backward(last));
        self.buckets.iter().for_each(|buckets| buckets.begin_backward(last));
    }

    /// Ends it; `last` when nothing of the step follows.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn end_backward(&self, last: bool, world: &dyn Collectives) -> anyhow::Result<()> {
        self.buckets.iter().for_each(Buckets::end_backward);
        self.units.iter().try_for_each(|units| units.end_backward(last, &self.buffers, world))
    }

    /// The name of a parameter that the model computes with.
    pub fn name(&self, parameter: usize) -> &str {
        match &self.units {
            Some(units) => units.name(parameter),
            None => &self.parameters[parameter].shard.name,
        }
    }

    /// Of a parameter, the gradients that are here, one behind the other.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn kept_gradient(&self, parameter: &Parameter) -> anyhow::Result<Tensor> {
        let (shard, buffer) = (&parameter.shard, &self.buffers[parameter.shard.buffer]);
        buffer.gradients_of(shard.buffer_offset, shard.elements())
    }

    /// Whether this rank speaks for what it keeps of a parameter: over all ranks one does for each element.
    ///
    /// # Errors
    /// When the planner made no group that is asked for.
    pub fn answers_for(&self, parameter: &Parameter, world: &dyn Collectives) -> anyhow::Result<bool> {
        let first_of = |kind| -> anyhow::Result<bool> { Ok(world.index(world.mine(kind)?)? == 0) };
        let buffer = &self.buffers[parameter.shard.buffer];
        if let Some(alike) = buffer.alike
            && !first_of(alike)?
        {
            return Ok(false);
        }
        if let Some(group) = parameter.shard.shared_over
            && !first_of(group)?
        {
            return Ok(false);
        }
        // Every rank of the expert grid holds slices of its own.
        let replicated = parameter.shard.cut_by.is_none() && !buffer.shard.expert;
        Ok(!replicated || first_of(GroupKind::Tp)?)
    }

    /// Has what is computed next wait for weights that are on their way from the ranks that have updated them.
    ///
    /// # Errors
    /// When a collective fails.
    pub fn have_all_weights(&self, world: &dyn Collectives) -> anyhow::Result<()> {
        self.buckets.iter().try_for_each(|buckets| buckets.have_all_weights(world))
    }

    /// Sets all main gradients to zero.
    ///
    /// # Errors
    /// When libtorch fails.
    pub fn zero_gradients(&mut self) -> anyhow::Result<()> {
        for buffer in &mut self.buffers {
            let _ = buffer.gradients.f_zero_()?;
        }
        Ok(())
    }
}

impl Weights for State {
    fn leaf(&self, parameter: usize) -> Tensor {
        match (&self.units, self.parameters.get(parameter).and_then(|one| one.leaf.as_ref())) {
            (Some(units), _) => units.leaf(parameter),
            (None, Some(leaf)) => leaf.shallow_clone(),
            (None, None) => {
                unreachable!("parameters that are not gathered are computed with as they are kept")
            }
        }
    }

    fn add_gradients(&self, parameters: &[usize], gradients: Vec<Gradient>) -> anyhow::Result<()> {
        let mut left = parameters;
        for gradient in gradients {
            let (these, rest) =
                left.split_at_checked(gradient.parameters()).context("more gradients than parameters")?;
            left = rest;
            if let Some(units) = &self.units {
                let made = gradient.make()?;
                these.iter().zip(&made).try_for_each(|(&number, made)| units.add_gradient(number, made))?;
                continue;
            }
            let these: Vec<&Parameter> = these.iter().map(|&number| &self.parameters[number]).collect();
            match (gradient, these.as_slice()) {
                (Gradient::Product { of_outputs, inputs, .. }, [one])
                    if sums::sums_products(&one.gradient, of_outputs.kind()) =>
                {
                    sums::add_product(&one.gradient, &of_outputs, &inputs)?;
                }
                (Gradient::Stacked(all), these) => {
                    let mains: Vec<&Tensor> = these.iter().map(|one| &one.gradient).collect();
                    let in_one_buffer =
                        these.windows(2).all(|two| two[0].shard.buffer == two[1].shard.buffer);
                    sums::add_stacked(&mains, in_one_buffer, &all)?;
                }
                (gradient, these) => {
                    let made = gradient.make()?;
                    these.iter().zip(made).try_for_each(|(one, made)| sums::add(&one.gradient, &made))?;
                }
            }
        }
        Ok(())
    }

    fn gathers_gradients(&self) -> bool {
        self.units.is_some()
    }

    fn at(&self, moment: Moment, section: Section, world: &dyn Collectives) -> anyhow::Result<()> {
        if let Some(units) = &self.units {
            return units.at(moment, section, &self.buffers, world);
        }
        let Some(buckets) = &self.buckets else { return Ok(()) };
        if moment == Moment::BeforeForward {
            return buckets.have_weights(section, world);
        }
        let Some(whole) = buckets.whole_at(moment, section) else { return Ok(()) };
        let whole: Vec<&Parameter> = whole.iter().map(|&number| &self.parameters[number]).collect();
        self.sum_partial_gradients(&whole, world)?;
        buckets.begin(section, &self.buffers, world)
    }
}
