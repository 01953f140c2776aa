//! Seconds of a step against published ones: rows as cases that the fit and the scores share.

pub(super) mod bridge;
mod fsdp;
mod layer_bench;
mod megatron;
mod nanotron;
pub(super) mod row;
mod scores;

use bridge::Told;

use crate::time::{Setup, StepTime, Terms};

pub use scores::{Splits, score, train_keys, values_of};

/// Datasets with times.
pub const DATASETS: &[&str] = &[
    "kempnerforge_h200",
    "korthikanti_2022",
    "megatron_bridge_memory_studies",
    "megatron_bridge_model_cards",
    "megatron_bridge_perf",
    "megatron_moe_layer_bench",
    "nanotron_ultrascale_bench",
    "simumax_results",
    "torchtitan_benchmarks",
    "vtrain_ground_truth",
];

/// What was measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quantity {
    /// Seconds of a step, also where the source prints tokens/s.
    Step,
    /// Forward and backward of one layer's experts.
    Experts,
}

/// One published row.
#[derive(Debug, Clone)]
pub struct Case {
    /// The row's id.
    pub id: String,
    /// Its dataset.
    pub dataset: String,
    /// Family of the model, for scores of families that a fit has not seen.
    pub family: String,
    /// GPU.
    pub gpu: &'static str,
    /// How many of them.
    pub gpus: u64,
    /// Everything that a split must not tear apart: model, GPU, layout, batch, sequence, recomputation.
    pub key: String,
    /// Rows that were run to be compared: model, GPUs, batch, sequence.
    pub group: String,
    /// Whether the source prints tokens/s per GPU rather than seconds.
    pub printed_tokens: bool,
    /// What was measured.
    pub quantity: Quantity,
    /// Seconds.
    pub measured: f64,
    /// Why it is scored apart, if it is.
    pub excluded: Option<&'static str>,
    /// Class of residuals, which says how wide the likely range is.
    pub class: String,
    /// What is predicted from.
    pub setup: Setup,
}

impl Case {
    /// Seconds under these values of the constants.
    pub fn predict(&self, values: &[f64]) -> f64 {
        match self.quantity {
            Quantity::Step => self.step(values).total(),
            Quantity::Experts => {
                let machine = self.setup.machine(values);
                let terms = Terms::new(&machine, &self.setup.split, &self.setup.manner, &self.setup.shape);
                terms.kinds.first().map_or(0.0, |kind| kind.total())
            }
        }
    }

    /// Seconds of a step by what they are spent on.
    pub fn step(&self, values: &[f64]) -> StepTime {
        self.setup.predict(values)
    }

    /// |ln(predicted / measured)|.
    pub fn residual(&self, values: &[f64]) -> f64 {
        libm::log(self.predict(values) / self.measured).abs()
    }

    /// Whether a constant has a part in it.
    pub fn reads(&self, constant: usize) -> bool {
        self.setup.chosen.iter().any(|&chosen| usize::from(chosen) == constant)
    }
}

/// The cases of a dataset.
#[derive(Debug, Default)]
pub struct Cases {
    /// Rows with a time that can be predicted.
    pub cases: Vec<Case>,
    /// Rows that planner can't plan, with the reason.
    pub unmapped: Vec<String>,
    /// Rows without a time.
    pub without: u64,
}

impl Cases {
    fn push(&mut self, id: &str, case: Result<Option<Case>, String>) {
        match case {
            Ok(Some(case)) => self.cases.push(case),
            Ok(None) => self.without += 1,
            Err(reason) => self.unmapped.push(format!("{id}: {reason}")),
        }
    }
}

/// Reads a dataset.
///
/// # Errors
/// A sentence, when the text is not in its dataset's format.
pub fn cases(name: &str, text: &str) -> Result<Cases, String> {
    cases_as(name, text, Told::All)
}

/// The same of rows told as a user would, where their dataset can be told so.
pub(super) fn cases_as(name: &str, text: &str, told: Told) -> Result<Cases, String> {
    let rows = row::rows(name, text)?;
    let mut found = Cases::default();
    for row in &rows {
        let case = match name {
            "megatron_bridge_perf" => bridge::performance(row, told),
            "megatron_bridge_model_cards" => bridge::card(row),
            "megatron_bridge_memory_studies" => bridge::study(row),
            "nanotron_ultrascale_bench" => nanotron::case(row),
            "vtrain_ground_truth" => megatron::vtrain(row),
            "korthikanti_2022" => megatron::korthikanti(row),
            "simumax_results" => megatron::simumax(row),
            "torchtitan_benchmarks" => fsdp::torchtitan(row),
            "kempnerforge_h200" => fsdp::kempnerforge(row),
            "megatron_moe_layer_bench" => layer_bench::case(row),
            _ => return Ok(found),
        };
        found.push(&row.id(), case);
    }
    for case in &mut found.cases {
        case.dataset = name.to_owned();
    }
    Ok(found)
}
