//! A stage's part of a step: the planner's list, carried out.

use std::collections::BTreeMap;
use std::rc::Rc;

use anyhow::{Context, ensure};
use planner::Plan;
use planner::layout::GroupKind;
use planner::schedule::{self, Action, ActionKind, Payload, Pipeline, StageStep, Transfer};
use tch::Tensor;

use super::clock::{Clock, Traced};
use super::step::Trainer;
use crate::collectives::{Collectives, Expected, GroupId};
use crate::model::Made;
use crate::state::units::Units;
use crate::tape::{Deferred, Place, Tape, TensorParallel};

/// What a rank's stage does in every step.
pub(super) struct Stage {
    pipeline: Pipeline,
    stage: u64,
    group: GroupId,
    steps: Vec<StageStep>,
    /// Whether there are forwards alone, of data that is held out.
    evaluates: bool,
}

/// What came of one step's schedule.
pub(super) struct Ran {
    /// Sum of the losses of this rank's tokens, one fp64 number on the device; none without the head.
    pub(super) loss_sum: Option<Tensor>,
    /// The most bytes that were saved between forward and backward.
    pub(super) activations: u64,
    /// What was done when.
    pub(super) trace: Traced,
}

/// A chunk of a micro batch between its forward and its backward.
struct InFlight<'a> {
    tape: Tape<'a>,
    /// What came in, where it did not come from tokens.
    input: Option<Place>,
    /// What went out, where it was not the loss.
    output: Option<Place>,
}

/// Chunk and micro batch.
type Key = (u64, u64);

/// A step under way.
struct Running<'r, 'a> {
    stage: &'r Stage,
    trainer: &'r Trainer<'a>,
    step: u64,
    /// What other stages were asked for.
    expected: BTreeMap<(Payload, u64, u64), Expected>,
    arrived: BTreeMap<(Payload, u64, u64), Tensor>,
    in_flight: BTreeMap<Key, InFlight<'r>>,
    deferred: BTreeMap<Key, Deferred<'r>>,
    /// Backwards done of each chunk.
    backwards: BTreeMap<u64, u64>,
    /// What the last action made for another stage.
    made: Option<Tensor>,
    loss_sum: Option<Tensor>,
    activations: u64,
}

impl Stage {
    /// The stage that this rank is in.
    ///
    /// # Errors
    /// When the planner made no pipeline group with this rank.
    pub(super) fn new(plan: &Plan, world: &dyn Collectives) -> anyhow::Result<Stage> {
        Stage::of(plan.pipeline(), false, plan, world)
    }

    /// What it does to evaluate, with so many micro batches.
    ///
    /// # Errors
    /// When the planner made no pipeline group with this rank.
    pub(super) fn evaluating(
        plan: &Plan,
        world: &dyn Collectives,
        microbatches: u64,
    ) -> anyhow::Result<Stage> {
        Stage::of(Pipeline { microbatches, ..plan.pipeline() }, true, plan, world)
    }

    fn of(
        pipeline: Pipeline,
        evaluates: bool,
        plan: &Plan,
        world: &dyn Collectives,
    ) -> anyhow::Result<Stage> {
        let stage = plan.place_of(world.rank() as u64).pp;
        let group = world.mine(GroupKind::Pp)?;
        ensure!(
            world.index(group)? as u64 == stage,
            "the planner puts rank {} on stage {stage}, but not there in its pipeline group",
            world.rank()
        );
        let steps = if evaluates { schedule::forward_steps } else { schedule::steps };
        Ok(Stage { pipeline, stage, group, steps: steps(&pipeline, stage), evaluates })
    }

    /// Forward, and backward where it trains, of all micro batches.
    ///
    /// # Errors
    /// When anything fails.
    pub(super) fn run(&self, trainer: &Trainer<'_>, step: u64, clock: &mut Clock<'_>) -> anyhow::Result<Ran> {
        let mut trace = Traced::new(step, self.stage, clock.now()?);
        let mut running = Running {
            stage: self,
            trainer,
            step,
            expected: BTreeMap::new(),
            arrived: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            deferred: BTreeMap::new(),
            backwards: BTreeMap::new(),
            made: None,
            loss_sum: None,
            activations: 0,
        };
        let mut left = self.steps.as_slice();
        while let Some(first) = left.first() {
            // Messages that follow each other go side by side.
            let messages = left
                .iter()
                .take_while(|step| matches!(step, StageStep::Send(_) | StageStep::Expect(_)))
                .count();
            let (did, after) = left.split_at(messages.max(1));
            left = after;
            let began = Rc::new(clock.now()?);
            match first {
                StageStep::Send(_) | StageStep::Expect(_) => running.exchange(did, clock)?,
                StageStep::Receive(transfer) => running.receive(transfer, clock)?,
                StageStep::Compute(action) => running.compute(action, clock)?,
            }
            // To expect takes no time, and goes with the send before it.
            let ended = Rc::new(clock.now()?);
            for did in did.iter().filter(|did| !matches!(did, StageStep::Expect(_))) {
                trace.add(*did, &began, &ended);
            }
        }
        if let Some(units) = trainer.state.units() {
            units.end(&trainer.state.buffers, trainer.world)?;
        }
        let Running { loss_sum, activations, .. } = running;
        Ok(Ran { loss_sum, activations, trace })
    }
}

impl<'r> Running<'r, '_> {
    /// Sends and expects.
    fn exchange(&mut self, messages: &[StageStep], clock: &mut Clock<'_>) -> anyhow::Result<()> {
        let (world, group) = (self.trainer.world, self.stage.group);
        let form = self.trainer.model.stream_form(world, self.trainer.device);
        let (mut sends, mut froms, mut expects) = (Vec::new(), Vec::new(), Vec::new());
        let mut payloads = Vec::new();
        for message in messages {
            match message {
                StageStep::Send(Transfer { payload, peer, .. }) => {
                    let data = self.made.take().context("a stage sends what it did not make")?;
                    sends.push((usize::try_from(*peer)?, data));
                    payloads.push(*payload);
                }
                StageStep::Expect(Transfer { payload, microbatch, chunk, peer }) => {
                    froms.push(usize::try_from(*peer)?);
                    expects.push((*payload, *chunk, *microbatch));
                    payloads.push(*payload);
                }
                StageStep::Receive(_) | StageStep::Compute(_) => {}
            }
        }
        // A send comes first, and is what takes time.
        let counts = payloads.first().map_or("forward", |&payload| phase(payload));
        let found = clock.time(world, counts, || world.exchange(group, sends, &froms, &form))?;
        self.expected.extend(expects.into_iter().zip(found));
        self.note_saved()?;
        Ok(())
    }

    /// Takes what was expected.
    fn receive(&mut self, transfer: &Transfer, clock: &mut Clock<'_>) -> anyhow::Result<()> {
        let Transfer { payload, microbatch, chunk, .. } = *transfer;
        let world = self.trainer.world;
        let expected = self.expected.remove(&(payload, chunk, microbatch));
        let expected = expected.context("a stage receives what it did not expect")?;
        let data = clock.time(world, phase(payload), || world.receive(expected))?;
        self.arrived.insert((payload, chunk, microbatch), data);
        Ok(())
    }

    fn compute(&mut self, action: &Action, clock: &mut Clock<'_>) -> anyhow::Result<()> {
        let Action { kind, microbatch, chunk } = *action;
        let (world, step, number) = (self.trainer.world, self.step, microbatch + 1);
        match kind {
            ActionKind::Forward => {
                world.note(&format!("in forward of micro batch {number} of step {step}"));
                let made = self.forward(chunk, microbatch, clock)?;
                self.hand_over(Payload::Activation, action, made)
            }
            ActionKind::Backward | ActionKind::BackwardInput => {
                world.note(&format!("in backward of micro batch {number} of step {step}"));
                let whole = kind == ActionKind::Backward;
                let gradient = clock.time(world, "backward", || self.backward(chunk, microbatch, whole))?;
                self.hand_over(Payload::Gradient, action, gradient)
            }
            ActionKind::BackwardWeight => {
                world.note(&format!("in weight gradients of micro batch {number} of step {step}"));
                clock.time(world, "backward", || self.weight_gradients(chunk, microbatch))
            }
        }
    }

    fn forward(
        &mut self,
        chunk: u64,
        microbatch: u64,
        clock: &mut Clock<'_>,
    ) -> anyhow::Result<Option<Tensor>> {
        let trainer = self.trainer;
        let world = trainer.world;
        let place = usize::try_from(chunk)?;
        let batch = match trainer.model.reads_tokens(place) {
            true if self.stage.evaluates => Some(trainer.held_out(microbatch)?),
            true => Some(clock.time(world, "data", || trainer.batch(microbatch))?),
            false => None,
        };
        let group = TensorParallel { world, group: world.mine(GroupKind::Tp)? };
        if let Some(units) = trainer.state.units() {
            clock.time(world, "forward", || units.begin(&trainer.state.buffers, world))?;
        }
        let new = if self.stage.evaluates { Tape::evaluating } else { Tape::new };
        let mut tape = new(group, &trainer.state);
        let stream =
            self.arrived.remove(&(Payload::Activation, chunk, microbatch)).map(|data| tape.input(data));
        let input = stream.as_ref().map(crate::tape::Flow::place);
        let scale = trainer.gradient_scale();
        let mut activations = self.activations;
        let made = clock.time(world, "forward", || {
            let saved = || {
                let units = trainer.state.units();
                units.map_or(Ok(()), Units::end_forward)?;
                activations = activations.max(trainer.saved_bytes()?);
                Ok(())
            };
            trainer.model.forward(&mut tape, place, stream, batch.as_ref(), &scale, saved)
        })?;
        let (output, data) = match made {
            Made::Loss(loss) => {
                // Read at the end of the step: reading it here would let the device run dry in every micro batch.
                self.loss_sum = Some(match self.loss_sum.take() {
                    Some(sum) => sum.f_add(&loss)?,
                    None => loss,
                });
                // Behind the head more is alive than is saved.
                self.activations = activations;
                (None, None)
            }
            Made::Stream(stream) => {
                let (place, data) = stream.split();
                (Some(place), Some(data))
            }
        };
        if !self.stage.evaluates {
            self.in_flight.insert((chunk, microbatch), InFlight { tape, input, output });
        }
        Ok(data)
    }

    fn backward(&mut self, chunk: u64, microbatch: u64, whole: bool) -> anyhow::Result<Option<Tensor>> {
        let in_flight = self.in_flight.remove(&(chunk, microbatch));
        let InFlight { mut tape, input, output } = in_flight.context("backward before forward")?;
        if let Some(output) = output {
            let gradient = self.arrived.remove(&(Payload::Gradient, chunk, microbatch));
            tape.seed(output, gradient.context("backward without the gradient of what was made")?);
        }
        if whole {
            self.begin_last_part(chunk);
            let gradient = tape.backward(input)?;
            self.end_last_part()?;
            return Ok(gradient);
        }
        let (gradient, deferred) = tape.backward_input(input)?;
        if let Some(units) = self.trainer.state.units() {
            units.end_backward_of_inputs()?;
        }
        self.deferred.insert((chunk, microbatch), deferred);
        Ok(gradient)
    }

    /// What was put off in a split backward.
    fn weight_gradients(&mut self, chunk: u64, microbatch: u64) -> anyhow::Result<()> {
        let deferred = self.deferred.remove(&(chunk, microbatch));
        let deferred = deferred.context("weight gradients before those of the input")?;
        self.begin_last_part(chunk);
        deferred.run()?;
        self.end_last_part()
    }

    /// What makes gradients of weights begins; whether it is the last of its chunk says when they are whole.
    fn begin_last_part(&mut self, chunk: u64) {
        let done = self.backwards.entry(chunk).or_default();
        *done += 1;
        self.trainer.state.begin_backward(*done == self.stage.pipeline.microbatches);
    }

    fn end_last_part(&self) -> anyhow::Result<()> {
        let Pipeline { chunks, microbatches, .. } = self.stage.pipeline;
        let of_stage = self.backwards.len() as u64 == chunks
            && self.backwards.values().all(|&done| done == microbatches);
        self.trainer.state.end_backward(of_stage, self.trainer.world)
    }

    /// To the next step of the list, which sends it, or to the neighbouring chunk, where that is on this stage too.
    fn hand_over(&mut self, payload: Payload, action: &Action, data: Option<Tensor>) -> anyhow::Result<()> {
        let Action { microbatch, chunk, .. } = *action;
        let after = payload == Payload::Activation;
        let Some((peer, there)) = self.stage.pipeline.neighbour(self.stage.stage, chunk, after) else {
            // What a split backward keeps for weight gradients can be more than forward saved.
            if !after {
                self.note_saved()?;
            }
            return Ok(());
        };
        let data = data.with_context(|| format!("chunk {chunk} made no {payload:?} for the next one"))?;
        if peer == self.stage.stage {
            self.arrived.insert((payload, there, microbatch), data);
            self.note_saved()?;
        } else {
            self.made = Some(data);
        }
        Ok(())
    }

    fn note_saved(&mut self) -> anyhow::Result<()> {
        self.activations = self.activations.max(self.trainer.saved_bytes()?);
        Ok(())
    }
}

/// The phase that a transfer's own time (copies to and from the host) counts to.
fn phase(payload: Payload) -> &'static str {
    match payload {
        Payload::Activation => "forward",
        Payload::Gradient => "backward",
    }
}
