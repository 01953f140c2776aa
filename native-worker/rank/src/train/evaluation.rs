//! The loss on data that is held out.

use anyhow::{Context, ensure};
use planner::Plan;
use planner::wire::Evaluated;

use super::batch::Form;
use super::clock::{Clock, Marks};
use super::data::{Data, Ends};
use super::pipeline::Stage;
use super::step::Trainer;
use crate::collectives::Collectives;
use crate::model::{Batch, Model};

/// Data that is not trained on, and what is done with it.
pub(super) struct HeldOut {
    data: Data,
    form: Form,
    /// Sequences of an evaluation, over all replicas.
    sequences: u64,
    stage: Stage,
}

impl HeldOut {
    /// What the plan holds out, in whole micro batches of all replicas: at least as many sequences as it asks for, but none
    /// twice.
    ///
    /// # Errors
    /// When the data can't be opened, or is too short.
    pub(super) fn open(
        plan: &Plan,
        model: &Model,
        world: &dyn Collectives,
    ) -> anyhow::Result<Option<HeldOut>> {
        let Some(evaluation) = &plan.run.evaluation else { return Ok(None) };
        let training = &plan.training;
        // Made-up sequences are others than those that are trained on.
        let seed = plan.run.seed.wrapping_add(1);
        let data = Data::open(&evaluation.data, seed, plan.model.vocab_size, training.seq_len)
            .context("opening run.evaluation.data")?;
        let at_once = training.micro_batch_size * plan.layout.dp;
        let asked = evaluation.sequences.div_ceil(at_once);
        let microbatches = data.sequences().map_or(asked, |all| asked.min(all / at_once));
        ensure!(
            microbatches > 0,
            "run.evaluation.data has {} sequences of {} tokens, and the replicas take {at_once} at once; hold out more, or train \
             with fewer replicas or smaller micro batches",
            data.sequences().unwrap_or(0),
            training.seq_len
        );
        let stage = Stage::evaluating(plan, world, microbatches)?;
        let ends = Ends::of(&evaluation.data, plan.run.documents).context("opening run.evaluation.data")?;
        let form = Form::new(plan, model, ends);
        Ok(Some(HeldOut { data, form, sequences: microbatches * at_once, stage }))
    }

    /// The first sequence of a replica's micro batch.
    fn first(&self, replica: u64, replicas: u64, microbatch: u64) -> u64 {
        (microbatch * replicas + replica) * self.form.rows
    }
}

impl Trainer<'_> {
    /// The loss on data that is held out, where the plan asks for one after this step.
    ///
    /// # Errors
    /// When anything fails, or the loss is not a number.
    pub fn evaluate(&self, step: u64) -> anyhow::Result<Option<Evaluated>> {
        let due = self.plan.run.evaluation.as_ref().is_some_and(|one| one.is_due(step, self.plan.run.steps));
        let Some(held_out) = self.held_out.as_ref().filter(|_| due) else { return Ok(None) };
        self.world.note(&format!("evaluating after step {step}"));
        // Weights that come back are the training's time, and counted to its next step.
        let mut clock = Clock::new(self.tracker, self.marks.as_ref());
        clock.time(self.world, "optimizer", || self.state.have_all_weights(self.world))?;
        // What is given in an evaluation counts to no step.
        let marks = Marks::of(self.device, self.tracker)?;
        let mut clock = Clock::new(self.tracker, marks.as_ref());
        let start = clock.now()?;
        let ran = held_out.stage.run(self, step, &mut clock)?;
        let counted = self.counted_of(held_out)?;
        let totals = self.reduction.totals(ran.loss_sum, None)?;
        let end = clock.now()?;
        let loss = totals.read(self.world)?.mean_loss(self.world, step, counted)?;
        end.wait()?;
        let tokens = held_out.sequences * self.plan.training.seq_len;
        Ok(Some(Evaluated { step, loss, tokens, seconds: start.until(&end) }))
    }

    /// Predictions on held-out data that count, over all replicas.
    fn counted_of(&self, held_out: &HeldOut) -> anyhow::Result<u64> {
        let HeldOut { data, form, sequences, .. } = held_out;
        let counted = if form.counts() {
            let replicas = self.plan.layout.dp;
            let first = |microbatch| held_out.first(self.replica, replicas, microbatch);
            let own = form.read(data, (0..sequences / (form.rows * replicas)).map(first))?;
            self.reduction.over_replicas(&own.counted)?
        } else {
            form.all(*sequences)
        };
        Ok(counted.first().copied().unwrap_or(0))
    }

    /// A micro batch of an evaluation.
    pub(super) fn held_out(&self, microbatch: u64) -> anyhow::Result<Batch> {
        let held_out = self.held_out.as_ref().context("an evaluation without data")?;
        let first = held_out.first(self.replica, self.plan.layout.dp, microbatch);
        let reading = held_out.form.read(&held_out.data, std::iter::once(first))?;
        let tokens = reading.microbatches.first().context("a micro batch of an evaluation")?;
        held_out.form.batch(tokens, &self.model, self.device)
    }
}
