//! Seconds of a step against published ones: rows as cases that the fit and the scores share.

mod layer_bench;
mod scores;
mod unseen;

use super::asked::{self, Asked, Detail, List, source};
use super::plan_of;
use planner::parse::parse_plan;
use planner::plan::Plan;
use planner::time::{self, Said, Setup, StepTime, Terms};

pub use scores::{Splits, score, splits, train_keys, values_of};
pub use unseen::{Group, LeftOut, Row, derive, groups, left_out, unseen};

/// Datasets with times that constants are fitted to, and the layer benchmark, which is a short burst: an outside check, never fitted.
pub const DATASETS: &[&str] = &[
    "kempnerforge_h200",
    "korthikanti_2022",
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

/// How a plan stands to what was measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Standing {
    /// Its class.
    pub class: String,
    /// What it says of its software.
    pub said: Said,
    /// Half the widths of its likely range below and above the step, as logarithms, by how much would be said: as it is, and if its model
    /// had not been measured.
    pub half: [[f64; 2]; 2],
}

impl Standing {
    fn of(plan: &Plan) -> Result<Standing, String> {
        let said = Said::of(plan);
        let half = |said: Said| time::half_widths(plan, said);
        Ok(Standing { class: time::class_of(plan), said, half: [half(said)?, half(said.max(Said::Own))?] })
    }
}

/// One published row.
#[derive(Debug, Clone)]
pub struct Case {
    /// The row's id.
    pub id: String,
    /// Its name in reports.
    pub label: String,
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
    /// Layers, hidden size and routed experts of its model.
    pub model: [u64; 3],
    /// How its plan stands to what was measured; none for what is no plan.
    pub standing: Option<Standing>,
    /// Seconds of the plan's answer, whose pipeline is simulated, over the closed form's, which the constants are fitted for.
    pub simulated_share: f64,
    /// What is predicted from.
    pub setup: Setup,
}

impl Case {
    /// The case of a row, told so.
    fn of(asked: &Asked, dataset: &str, detail: Detail) -> Result<Case, String> {
        let file = asked.file_with(detail)?;
        let plan = match file.get("choose") {
            None => super::resolved(&file, detail.among())?,
            Some(_) => {
                let file =
                    parse_plan(&file.to_string()).map_err(|_| plan_of(&file).err().unwrap_or_default())?;
                let chosen = super::typed::chosen(file)?;
                Plan::resolve(&chosen).plan.ok_or("nothing is valid")?
            }
        };
        let (answer, _) = time::answer(&plan);
        let closed = answer.ok_or("no time can be told")?;
        let (world, gpu, training) = (plan.world_size(), plan.cluster.gpu.id, &plan.training);
        let (family, seconds) = (&asked.family, closed.step_seconds);
        Ok(Case {
            id: asked.id.clone(),
            label: asked.label.clone(),
            dataset: dataset.to_owned(),
            family: family.clone(),
            gpu,
            gpus: world,
            key: asked.key.clone(),
            group: format!("{family} {world} x {gpu} {} x {}", training.global_batch_size, training.seq_len),
            printed_tokens: asked.printed_tokens,
            quantity: Quantity::Step,
            measured: asked.measured,
            excluded: asked.excluded,
            model: time::sizes(&plan.model),
            standing: Some(Standing::of(&plan)?),
            simulated_share: time::simulated(&plan).map_or(1.0, |simulated| simulated / seconds),
            setup: time::setup(&plan)?,
        })
    }

    /// Seconds under these values of the constants.
    pub fn predict(&self, values: &[f64]) -> f64 {
        match self.quantity {
            Quantity::Step => self.step(values).total(),
            Quantity::Experts => {
                let machine = self.setup.machine(values);
                let terms = Terms::new(&machine, &self.setup.split, &self.setup.options, &self.setup.shape);
                terms.kinds.first().map_or(0.0, |kind| time::alone(&machine, kind))
            }
        }
    }

    /// Seconds of a step by what they are spent on.
    pub fn step(&self, values: &[f64]) -> StepTime {
        self.setup.predict(values)
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
    fn push(&mut self, id: &str, case: Result<Case, String>) {
        match case {
            Ok(case) => self.cases.push(case),
            Err(reason) => self.unmapped.push(format!("{id}: {reason}")),
        }
    }
}

/// Reads a dataset, of whose rows each plan file has all that it can say.
///
/// # Errors
/// A sentence, when the text is not in its dataset's format.
pub fn cases(name: &str, text: &str) -> Result<Cases, String> {
    cases_with(name, text, Detail::Run)
}

/// The same of rows told otherwise.
fn cases_with(name: &str, text: &str, detail: Detail) -> Result<Cases, String> {
    let mut found = Cases::default();
    let Some(source) = source(name) else {
        for row in asked::row::rows(name, text)? {
            if name != "megatron_moe_layer_bench" {
                return Ok(found);
            }
            match layer_bench::case(&row) {
                Ok(None) => found.without += 1,
                Ok(Some(case)) => found.push(&row.id(), Ok(Case { dataset: name.to_owned(), ..case })),
                Err(reason) => found.push(&row.id(), Err(reason)),
            }
        }
        return Ok(found);
    };
    let List { rows, without, repeated } = asked::list(source, text)?;
    found.without = without;
    found.unmapped.extend(repeated.iter().map(|label| format!("{label}: repeats a reading to the digit")));
    for row in &rows {
        found.push(&row.label, Case::of(row, name, detail));
    }
    Ok(found)
}
