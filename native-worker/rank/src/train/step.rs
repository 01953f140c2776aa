//! One step: micro batches forward and backward, gradients summed over ranks, clipped, applied.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use planner::Plan;
use planner::layout::GroupKind;
use planner::settings::Strategy;
use planner::shard::fsdp::{Handling, carried_out};
use planner::shard::{flat_units, unit_buffers};
use planner::wire::{LossScaleState, MeasuredMemory, Step, Trace};
use tch::{Device, Kind, Tensor};

use super::batch::Form;
use super::clock::{Clock, Marks, Measured};
use super::data::{Data, Ends, ReadAhead, StepTokens};
use super::evaluation::HeldOut;
use super::loss_scale::Scaler;
use super::optimizer::{Update, update};
use super::pipeline::{Ran, Stage};
use super::reduction::{Reduction, check_owned};
use super::totals::{NotFinite, Sums, Totals, not_finite};
use crate::WouldRepeat;
use crate::checkpoint::Source;
use crate::collectives::Collectives;
use crate::model::{Batch, GradientScale, Model};
use crate::state::units::Units;
use crate::state::{State, pretrained};
use crate::sys::memory::{Category, Reading, Tracker};

/// What a step gave.
#[derive(Debug, Clone)]
pub struct StepResult {
    /// What is recorded of it, but for its speed: the same on all ranks, but for memory and times.
    pub record: Step,
    /// The schedule as executed.
    pub trace: Trace,
}

/// What a step came to.
struct Outcome {
    /// The mean loss.
    loss: f64,
    /// The norm of the gradient; none where it overflowed, and the step is skipped.
    grad_norm: Option<f64>,
}

/// Everything that a rank needs for a step.
pub struct Trainer<'a> {
    pub(super) plan: &'a Plan,
    pub(super) world: &'a dyn Collectives,
    pub(super) tracker: &'a Tracker,
    pub(super) device: Device,
    /// What becomes of tokens that are trained on.
    form: Form,
    /// Reads them; none where this rank needs none.
    reader: Option<ReadAhead>,
    /// Those of the step that is going on.
    reading: Option<StepTokens>,
    /// Predictions of it that count, over all replicas: the model's own, then those of each module.
    counted: Vec<u64>,
    pub(super) held_out: Option<HeldOut>,
    /// The model, over the state.
    pub model: Model,
    stage: Stage,
    /// What the rank keeps.
    pub state: State,
    pub(super) reduction: Reduction<'a>,
    scaler: Scaler,
    pub(super) replica: u64,
    /// Steps and sequences that were trained before this process.
    before: (u64, u64),
    /// Live bytes of the rank at rest, which every step must return to.
    pub(super) at_rest: u64,
    /// Times of a device; none on a CPU.
    pub(super) marks: Option<Marks>,
    /// The same as a GPU's allocator counts them; none before the first step, and on a CPU.
    at_rest_on_gpu: Option<u64>,
}

fn check_leaks(step: u64, live: u64, at_rest: u64) -> anyhow::Result<()> {
    ensure!(
        live == at_rest,
        "{live} bytes are live after step {step}, but {at_rest} at rest: {} bytes were leaked",
        i128::from(live) - i128::from(at_rest)
    );
    Ok(())
}

/// Asks again and again for a second: what a device still works with is given back a moment later.
fn soon(mut so: impl FnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    for _ in 0..200 {
        if so()? {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Sequences that `step` steps have read, the first of which were before this process.
fn samples_after(plan: &Plan, (steps, samples): (u64, u64), step: u64) -> u64 {
    samples + step.saturating_sub(steps) * plan.sequences()
}

/// Reads what a replica trains on from the steps on that were done `before`. Which samples a micro batch of a rank holds depends on
/// its replica alone; all together, a step's micro batches hold the same samples in every layout.
fn read_ahead(
    plan: &Plan,
    data: Data,
    form: Form,
    replica: u64,
    before: (u64, u64),
) -> anyhow::Result<ReadAhead> {
    let own = plan.clone();
    let firsts = move |step: u64| {
        let begin = samples_after(&own, before, step - 1);
        let first = |microbatch| begin + own.first_sequence(replica, microbatch);
        (0..own.microbatches()).map(first).collect::<Vec<u64>>()
    };
    ReadAhead::start(before.0 + 1..=plan.run.steps, move |step| form.read(&data, firsts(step).into_iter()))
}

impl<'a> Trainer<'a> {
    /// Opens the data, allocates the planner's shards and makes the model: from its start, or from a checkpoint. With a plan for
    /// FSDP2 or Megatron-FSDP the rank keeps that plan's shards, and `plan` is what it computes with.
    ///
    /// # Errors
    /// When any of it fails.
    pub fn new(
        plan: &'a Plan,
        fsdp: Option<&Plan>,
        world: &'a dyn Collectives,
        tracker: &'a Tracker,
        device: Device,
        from: Option<&mut Source>,
    ) -> anyhow::Result<Trainer<'a>> {
        let data = Data::open(&plan.run.data, plan.run.seed, plan.model.vocab_size, plan.training.seq_len)?;
        let rank = world.rank() as u64;
        let shards = plan.rank_shards(rank);
        let model = Model::new(plan, &shards, world, device, tracker)?;
        let form = Form::new(plan, &model, Ends::of(&plan.run.data, plan.run.documents)?);
        let held_out = HeldOut::open(plan, &model, world)?;
        let given = plan.run.weights.as_deref().filter(|_| from.is_none());
        let seed = (from.is_none() && given.is_none()).then_some(plan.run.seed);
        let state = match fsdp {
            None => {
                let state = State::allocate(&shards, device, seed, tracker)?;
                let beside = world.goes_beside() && plan.is_reduced_by_layer();
                if beside { state.reduced_by_layer() } else { state }
            }
            Some(fsdp) if fsdp.runtime.facts().flat_units && fsdp.layout.fsdp.strategy <= Strategy::Optim => {
                let kept = unit_buffers(fsdp, &shards).map_err(|why| anyhow::anyhow!(why))?;
                let state = State::allocate_unit_buffers(&kept, &shards, device, seed, tracker)?;
                if fsdp.layout.dp_replicate > 1 {
                    state.replicated_over(GroupKind::DpReplicate)
                } else {
                    state
                }
            }
            Some(fsdp) => {
                let carried = match fsdp.runtime.facts().flat_units {
                    true => flat_units(fsdp, &shards),
                    false => carried_out(fsdp, &shards),
                };
                let carried = carried.map_err(|why| anyhow::anyhow!(why))?;
                let handling = Handling::of(fsdp);
                State::allocate_units(&carried, &shards, handling, device, seed, tracker, world)?
            }
        };
        if let Some(folder) = given {
            pretrained::fill(&state, &model, &plan.model, Path::new(folder))?;
        }
        let mut before = (0, 0);
        let mut scale = None;
        if let Some(source) = from {
            scale = source.index().loss_scale;
            before = (source.index().step, source.index().samples);
            source.fill(&state, &model, &plan.parameter_names())?;
        }
        let replica = plan.place_of(world.rank() as u64).dp;
        for buffer in state.buffers.iter().filter(|_| state.units().is_none()) {
            check_owned(&buffer.shard, world)?;
        }
        let reduction = Reduction::new(plan, world, device)?;
        match state.units() {
            // A rank has read or made what it updates.
            Some(_) => reduction.gather_weights(&state)?,
            None => reduction.hand_out_weights(&state)?,
        }
        soon(|| {
            world.let_go()?;
            Ok(tracker.read().live.of(Category::Step) == 0)
        })?;
        let live = tracker.read().live;
        ensure!(
            live.of(Category::Step) == 0,
            "{} bytes are live beside the planner's buffers after allocation",
            live.of(Category::Step)
        );
        let at_rest = live.total();
        let stage = Stage::new(plan, world)?;
        let reads = form.counts() || (0..model.chunks()).any(|chunk| model.reads_tokens(chunk));
        let reader = reads.then(|| read_ahead(plan, data, form, replica, before)).transpose()?;
        Ok(Trainer {
            plan,
            world,
            tracker,
            device,
            counted: form.all(plan.sequences()),
            form,
            reader,
            reading: None,
            held_out,
            model,
            stage,
            state,
            reduction,
            scaler: Scaler::new(plan.training.loss_scale, scale),
            replica,
            before,
            at_rest,
            marks: Marks::of(device, tracker)?,
            at_rest_on_gpu: None,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &'a Plan {
        self.plan
    }

    /// What a checkpoint must keep of the loss's scale.
    pub fn loss_scale(&self) -> Option<LossScaleState> {
        self.scaler.state()
    }

    /// What the gradients of this step's losses are multiplied by.
    pub(super) fn gradient_scale(&self) -> GradientScale {
        GradientScale { of_tokens: self.model.scales_of_tokens(&self.counted), all: self.scaler.scale() }
    }

    /// The ranks.
    pub fn world(&self) -> &'a dyn Collectives {
        self.world
    }

    /// Static memory by category, as the hook counted it.
    pub fn static_memory(&self) -> MeasuredMemory {
        let reading = self.tracker.read();
        MeasuredMemory {
            weights_bytes: reading.live.of(Category::Weights),
            gradients_bytes: reading.live.of(Category::Gradients),
            optimizer_bytes: reading.live.of(Category::Optimizer),
            activations_bytes: 0,
            transient_bytes: 0,
            peak_allocated_bytes: reading.live.total(),
            peak_reserved_bytes: reading.reserved_at_peak,
        }
    }

    /// Runs step `step` (from 1). `reduced` is called when gradients are final but neither clipped nor applied.
    ///
    /// # Errors
    /// When anything fails, the loss is not a number, or memory was leaked.
    pub fn step(
        &mut self,
        step: u64,
        reduced: impl FnOnce(&Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<StepResult> {
        let start = Instant::now();
        self.world.take_seconds();
        self.world.take_work();
        // Not the trainer's meanwhile, which is changed below.
        let marks = self.marks.take();
        let mut clock = Clock::new(self.tracker, marks.as_ref());
        self.state.zero_gradients()?;
        clock.time(self.world, "data", || self.take_tokens(step))?;
        let Ran { loss_sum, activations, trace } = self.stage.run(self, step, &mut clock)?;
        let world = self.world;
        clock.time(world, "optimizer", || self.reduction.reduce_gradients(&self.state))?;
        reduced(self)?;
        world.note(&format!("updating weights in step {step}"));
        let run = &self.plan.run;
        let (lr, optimizer) = (run.learning_rate(step), &self.plan.training.optimizer);
        let (scale, scales) = (self.scaler.scale(), self.scaler.scales());
        let (totals, known) = clock.time(world, "optimizer", || {
            let mut totals = self.reduction.totals(loss_sum, Some(&self.state))?;
            if scales {
                // Whether weights are updated hangs on them.
                totals = Totals::Known(totals.read(world)?);
            }
            let known = match &totals {
                Totals::Known(sums) => Some(self.outcome(sums, step)?),
                Totals::OnDevice { .. } => None,
            };
            if !matches!(known, Some(Outcome { grad_norm: None, .. })) {
                let settings = Update {
                    step,
                    lr,
                    weight_decay: run.weight_decay,
                    gradient_scale: totals.gradient_scale(run.clip_grad, scale)?,
                    beta1: optimizer.beta1,
                    beta2: optimizer.beta2,
                    eps: optimizer.eps,
                    momentum: optimizer.momentum,
                };
                update(&self.state, &settings, self.plan, world)?;
                self.reduction.gather_weights(&self.state)?;
            }
            self.model.end_step(world)?;
            Ok((totals, known))
        })?;
        // While a GPU updates weights. A step that ends the training has updated its weights, too, and nobody gets them.
        let Outcome { loss, grad_norm } = match known {
            Some(known) => known,
            None => self.outcome(&totals.read(world)?, step)?,
        };
        drop(totals);
        if !self.scaler.note(grad_norm.is_none()) {
            let why = format!(
                "gradients overflow fp16 in step {step}, and the loss scale of {scale} is the smallest that the plan allows; train in \
             bf16, lower run.lr or training.loss_scale, or look at the data"
            );
            return Err(WouldRepeat(why).into());
        }
        let Measured { phases, communication, peaks: phase_peaks, peak } = clock.end()?;
        self.marks = marks;
        let memory = self.measured(step, activations, &peak)?;
        let record = Step {
            step,
            loss,
            grad_norm: grad_norm.unwrap_or(0.0),
            loss_scale: scales.then_some(scale),
            skipped: grad_norm.is_none(),
            lr,
            tokens: self.tokens(),
            seconds: start.elapsed().as_secs_f64(),
            phases,
            communication,
            phase_peaks,
            memory,
            // Its speed is by the whole plan, of which this is one rank's view.
            ..Step::default()
        };
        Ok(StepResult { record, trace: trace.read() })
    }

    /// What a step came to.
    fn outcome(&self, sums: &Sums, step: u64) -> anyhow::Result<Outcome> {
        let loss = sums.mean_loss(self.world, step, self.counted.first().copied().unwrap_or(0))?;
        let grad_norm = match sums.gradient_norm(self.world)? {
            Ok(norm) => Some(norm / self.scaler.scale()),
            Err(_) if self.scaler.scales() => None,
            Err(NotFinite { rank, squares }) => {
                return Err(not_finite("gradient", squares, step, rank).into());
            }
        };
        Ok(Outcome { loss, grad_norm })
    }

    /// Sequences that `step` steps have read.
    pub fn samples_after(&self, step: u64) -> u64 {
        samples_after(self.plan, self.before, step)
    }

    pub(super) fn tokens(&self) -> u64 {
        self.plan.sequences() * self.plan.training.seq_len
    }

    /// Takes what was read for a step, and learns from the other replicas how many predictions count where not all do.
    fn take_tokens(&mut self, step: u64) -> anyhow::Result<()> {
        self.reading = self.reader.as_ref().map(|reader| reader.take(step)).transpose()?;
        if let Some(reading) = self.reading.as_ref().filter(|_| self.form.counts()) {
            self.counted = self.reduction.over_replicas(&reading.counted)?;
        }
        Ok(())
    }

    /// A micro batch of this rank.
    pub(super) fn batch(&self, microbatch: u64) -> anyhow::Result<Batch> {
        let read =
            self.reading.as_ref().and_then(|step| step.microbatches.get(usize::try_from(microbatch).ok()?));
        let tokens = read.with_context(|| format!("micro batch {microbatch} was not read"))?;
        self.form.batch(tokens, &self.model, self.device)
    }

    /// Live bytes beside what the rank keeps from step to step, and beside units, which come and go.
    pub(super) fn saved_bytes(&self) -> anyhow::Result<u64> {
        let units = self.state.units().map_or(Ok(0), Units::passing_bytes)?;
        Ok(self.tracker.read().live.total().saturating_sub(self.at_rest + units))
    }

    /// What the GPU's allocator has given out must be after a step what it was after the first, in which cuBLAS takes its
    /// workspaces. Autograd's own thread drops its last tensors a moment after backward has returned, and unseen by the hook,
    /// so the allocator is asked, and asked again.
    fn check_gpu_leaks(&mut self, step: u64) -> anyhow::Result<()> {
        let mut given_out = self.given_out()?;
        let at_rest = *self.at_rest_on_gpu.get_or_insert(given_out);
        soon(|| {
            self.world.let_go()?;
            given_out = self.given_out()?;
            Ok(given_out <= at_rest)
        })?;
        check_leaks(step, given_out.max(at_rest), at_rest)?;
        self.at_rest_on_gpu = Some(given_out);
        self.at_rest = self.tracker.read().live.total();
        Ok(())
    }

    /// Bytes that the GPU's allocator has given out, as it says itself when it is used.
    fn given_out(&self) -> anyhow::Result<u64> {
        drop(Tensor::f_empty([1], (Kind::Uint8, self.device))?);
        Ok(self.tracker.read().allocated)
    }

    fn measured(&mut self, step: u64, activations: u64, at_peak: &Reading) -> anyhow::Result<MeasuredMemory> {
        if self.device == Device::Cpu {
            // The message with which a step ends for a stage may be done for its other end first.
            let mut live = 0;
            soon(|| {
                self.world.let_go()?;
                live = self.tracker.read().live.total();
                Ok(live <= self.at_rest)
            })?;
            check_leaks(step, live, self.at_rest)?;
        } else {
            self.check_gpu_leaks(step)?;
        }
        let kept = self.static_memory();
        let others = kept.weights_bytes + kept.gradients_bytes + kept.optimizer_bytes + activations;
        Ok(MeasuredMemory {
            activations_bytes: activations,
            transient_bytes: at_peak.peak.saturating_sub(others),
            peak_allocated_bytes: at_peak.peak,
            peak_reserved_bytes: at_peak.reserved_at_peak,
            ..kept
        })
    }
}
