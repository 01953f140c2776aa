//! Micro batches of a rank: its part of the tokens, and what counts of them.

use std::rc::Rc;

use planner::Plan;
use tch::{Device, Tensor};

use super::data::{Data, Ends, StepTokens};
use crate::device::bring;
use crate::model::{Ahead, Batch, Documents, Model};

/// What becomes of tokens: how many there are, and where documents end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Form {
    /// Tokens of a sequence.
    pub(super) sequence: u64,
    /// Sequences of a micro batch.
    pub(super) rows: u64,
    /// Modules that predict further tokens.
    pub(super) predictions: usize,
    /// Ends of documents; none where nothing is made of them.
    pub(super) ends: Option<Ends>,
}

impl Form {
    /// The plan's, over data whose documents end so.
    pub(super) fn new(plan: &Plan, model: &Model, ends: Option<Ends>) -> Form {
        let training = &plan.training;
        let predictions = model.predictions();
        Form { sequence: training.seq_len, rows: training.micro_batch_size, predictions, ends }
    }

    /// Whether it must be read which predictions count.
    pub(super) fn counts(&self) -> bool {
        self.ends.is_some_and(|ends| ends.asked.mask())
    }

    /// Predictions that count in so many sequences where nothing is masked: the model's own, then those of each module.
    pub(super) fn all(&self, sequences: u64) -> Vec<u64> {
        (0..=self.predictions as u64).map(|by| sequences * self.sequence.saturating_sub(by)).collect()
    }

    /// Reads the micro batches that begin with these sequences.
    ///
    /// # Errors
    /// When the data can't be read.
    pub(super) fn read(&self, data: &Data, firsts: impl Iterator<Item = u64>) -> anyhow::Result<StepTokens> {
        let mut reading = StepTokens { microbatches: Vec::new(), counted: vec![0; self.predictions + 1] };
        for first in firsts {
            let mut tokens = Vec::new();
            for row in 0..self.rows {
                let sample = data.sample(first + row, self.sequence)?;
                for (by, sum) in reading.counted.iter_mut().enumerate() {
                    *sum += self.counted(&sample, by).into_iter().filter(|&counts| counts).count() as u64;
                }
                tokens.extend(sample);
            }
            reading.microbatches.push(tokens);
        }
        Ok(reading)
    }

    /// Whether each prediction of a sequence counts: the model's own, or those of module `by`.
    fn counted(&self, tokens: &[i64], by: usize) -> Vec<bool> {
        match &self.ends {
            Some(ends) => ends.counted(tokens, by),
            None => (0..tokens.len().saturating_sub(1)).map(|place| place + by + 1 < tokens.len()).collect(),
        }
    }

    /// A micro batch of these tokens, at the places of the sequence that this rank holds.
    ///
    /// # Errors
    /// When libtorch fails.
    pub(super) fn batch(&self, tokens: &[i64], model: &Model, device: Device) -> anyhow::Result<Batch> {
        let (s, b) = (i64::try_from(self.sequence)?, i64::try_from(self.rows)?);
        let sequences = || tokens.chunks_exact(usize::try_from(s + 1).unwrap_or(usize::MAX));
        let documents = self.ends.filter(|ends| ends.asked.reset()).map(|ends| {
            let inputs = sequences().filter_map(|sequence| sequence.get(..sequence.len() - 1));
            Rc::new(Documents::of(inputs, ends.token, ends.asked))
        });
        let counted = |by: usize| -> anyhow::Result<Tensor> {
            let rows: Vec<Vec<bool>> = sequences().map(|sequence| self.counted(sequence, by)).collect();
            let mut here = Vec::with_capacity(model.positions().len() * rows.len());
            for &place in model.positions() {
                let place = usize::try_from(place)?;
                here.extend(rows.iter().map(|row| row.get(place).copied().unwrap_or(false)));
            }
            bring(&Tensor::f_from_slice(&here)?.f_view([-1, b])?, device)
        };
        let all = Tensor::f_from_slice(tokens)?.f_view([b, s + 1])?.f_transpose(0, 1)?;
        let places = Tensor::f_from_slice(model.positions())?;
        // The tokens at this rank's positions, `by` further on; of those beyond the sequence, the first.
        let part = |by: i64, beyond: Option<&Tensor>| -> anyhow::Result<Tensor> {
            let mut places = places.f_add_scalar(by)?;
            if let Some(beyond) = beyond {
                places = places.f_masked_fill(beyond, 0)?;
            }
            bring(&all.f_index_select(0, &places)?, device)
        };
        let mut ahead = Vec::new();
        for by in 1..=self.predictions {
            let further = by as i64;
            let beyond = places.f_ge(s - further)?;
            ahead.push(Ahead {
                inputs: part(further, Some(&beyond))?,
                targets: part(further + 1, Some(&beyond))?,
                counted: counted(by)?,
            });
        }
        let masked = self.ends.is_some_and(|ends| ends.asked.mask_eod_loss);
        Ok(Batch {
            inputs: part(0, None)?,
            targets: part(1, None)?,
            counted: masked.then(|| counted(0)).transpose()?,
            ahead,
            documents,
        })
    }
}
