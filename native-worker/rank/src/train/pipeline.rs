//! A stage's part of a step: the planner's list, carried out.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, ensure};
use planner::Plan;
use planner::layout::{GroupKind, coordinates};
use planner::schedule::{self, Action, ActionKind, Payload, Pipeline, Transfer};
use planner::wire::{Trace, TracedStep};
use tch::Tensor;

use super::step::{Clock, Trainer};
use crate::collectives::{Collectives, GroupId};
use crate::model::Made;
use crate::tape::{Deferred, Place, Tape, TensorParallel};

/// Steps of a schedule that one record keeps; the longest takes some 110 bytes of a record's 256 KiB.
const MAX_TRACED: usize = 2000;

/// What a rank's stage does in every step.
pub(super) struct Stage {
    pipeline: Pipeline,
    stage: u64,
    group: GroupId,
    steps: Vec<schedule::Step>,
}

/// What came of one step's schedule.
pub(super) struct Ran {
    /// Sum of the losses of this rank's tokens, one fp64 number on the device; none without the head.
    pub(super) loss_sum: Option<Tensor>,
    /// The most bytes that were saved between forward and backward.
    pub(super) activations: u64,
    /// What was done when.
    pub(super) trace: Trace,
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
    arrived: BTreeMap<(Payload, u64, u64), Tensor>,
    in_flight: BTreeMap<Key, InFlight<'r>>,
    deferred: BTreeMap<Key, Deferred<'r>>,
    /// What the last action made for another stage.
    made: Option<Tensor>,
    loss_sum: Option<Tensor>,
    activations: u64,
}

/// The name of a payload's channel between two stages (`schedule::transfers`).
fn tag(payload: Payload) -> u64 {
    match payload {
        Payload::Activation => 0,
        Payload::Gradient => 1,
    }
}

impl Stage {
    /// The stage that this rank is in.
    ///
    /// # Errors
    /// When the planner made no pipeline group with this rank.
    pub(super) fn new(plan: &Plan, world: &dyn Collectives) -> anyhow::Result<Stage> {
        let pipeline = Pipeline::of(plan);
        let stage = coordinates(&plan.layout, world.rank() as u64).pp;
        let group = world.mine(GroupKind::Pp)?;
        ensure!(
            world.index(group)? as u64 == stage,
            "the planner puts rank {} on stage {stage}, but not there in its pipeline group",
            world.rank()
        );
        Ok(Stage { pipeline, stage, group, steps: schedule::steps(&pipeline, stage) })
    }

    /// Forward and backward of all micro batches.
    ///
    /// # Errors
    /// When anything fails.
    pub(super) fn run(&self, trainer: &Trainer<'_>, step: u64, clock: &mut Clock<'_>) -> anyhow::Result<Ran> {
        let start = Instant::now();
        let mut trace = Trace { step, stage: self.stage, steps: Vec::new(), left_out: 0 };
        let mut running = Running {
            stage: self,
            trainer,
            step,
            arrived: BTreeMap::new(),
            in_flight: BTreeMap::new(),
            deferred: BTreeMap::new(),
            made: None,
            loss_sum: None,
            activations: 0,
        };
        for did in &self.steps {
            let began = start.elapsed().as_secs_f64();
            running.carry_out(did, clock)?;
            if trace.steps.len() < MAX_TRACED {
                let seconds = start.elapsed().as_secs_f64() - began;
                trace.steps.push(TracedStep { did: *did, start: began, seconds });
            } else {
                trace.left_out += 1;
            }
        }
        let Running { loss_sum, activations, .. } = running;
        Ok(Ran { loss_sum, activations, trace })
    }
}

impl<'r> Running<'r, '_> {
    fn carry_out(&mut self, did: &schedule::Step, clock: &mut Clock<'_>) -> anyhow::Result<()> {
        let (world, group) = (self.trainer.world, self.stage.group);
        match did {
            schedule::Step::Receive(Transfer { payload, microbatch, chunk, peer }) => {
                let mut data = self.trainer.model.empty_stream(world, self.trainer.device)?;
                clock.time(world, phase(*payload), || {
                    world.receive(group, usize::try_from(*peer)?, tag(*payload), &mut data)
                })?;
                self.arrived.insert((*payload, *chunk, *microbatch), data);
            }
            schedule::Step::Compute(action) => self.compute(action, clock)?,
            schedule::Step::Send(Transfer { payload, peer, .. }) => {
                let data = self.made.take().context("a stage sends what it did not make")?;
                clock.time(world, phase(*payload), || {
                    world.send(group, usize::try_from(*peer)?, tag(*payload), &data)
                })?;
                drop(data);
                self.note_saved();
            }
        }
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
                let deferred = self.deferred.remove(&(chunk, microbatch));
                let deferred = deferred.context("weight gradients before those of the input")?;
                clock.time(world, "backward", || deferred.run())
            }
        }
    }

    fn forward(
        &mut self,
        chunk: u64,
        microbatch: u64,
        clock: &mut Clock<'_>,
    ) -> anyhow::Result<Option<Tensor>> {
        let Running { trainer, step, .. } = *self;
        let world = trainer.world;
        let place = usize::try_from(chunk)?;
        let batch = match trainer.model.reads_tokens(place) {
            true => Some(clock.time(world, "data", || trainer.batch(step, microbatch))?),
            false => None,
        };
        let group = TensorParallel { world, group: world.mine(GroupKind::Tp)? };
        let mut tape = Tape::new(group, &trainer.state);
        let stream =
            self.arrived.remove(&(Payload::Activation, chunk, microbatch)).map(|data| tape.input(data));
        let input = stream.as_ref().map(crate::tape::Flow::place);
        let scale = 1.0 / trainer.tokens() as f64;
        let mut activations = self.activations;
        let made = clock.time(world, "forward", || {
            let saved = || activations = activations.max(trainer.saved_bytes());
            trainer.model.forward(&mut tape, place, stream, batch.as_ref(), scale, saved)
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
        self.in_flight.insert((chunk, microbatch), InFlight { tape, input, output });
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
            return tape.backward(input);
        }
        let (gradient, deferred) = tape.backward_input(input)?;
        self.deferred.insert((chunk, microbatch), deferred);
        Ok(gradient)
    }

    /// To the next step of the list, which sends it, or to the neighbouring chunk, where that is on this stage too.
    fn hand_over(&mut self, payload: Payload, action: &Action, data: Option<Tensor>) -> anyhow::Result<()> {
        let Action { microbatch, chunk, .. } = *action;
        let after = payload == Payload::Activation;
        let Some((peer, there)) = self.stage.pipeline.neighbour(self.stage.stage, chunk, after) else {
            // What a split backward keeps for weight gradients can be more than forward saved.
            if !after {
                self.note_saved();
            }
            return Ok(());
        };
        let data = data.with_context(|| format!("chunk {chunk} made no {payload:?} for the next one"))?;
        if peer == self.stage.stage {
            self.arrived.insert((payload, there, microbatch), data);
            self.note_saved();
        } else {
            self.made = Some(data);
        }
        Ok(())
    }

    fn note_saved(&mut self) {
        self.activations = self.activations.max(self.trainer.saved_bytes());
    }
}

/// The phase that a transfer's own time (copies to and from the host) counts to.
fn phase(payload: Payload) -> &'static str {
    match payload {
        Payload::Activation => "forward",
        Payload::Gradient => "backward",
    }
}
