//! A dense MLP, and what shared experts are.

use planner::Plan;

use super::activation::Unit;
use super::functions::{column_linear, row_linear, unit};
use super::names::Names;
use super::settings::Settings;
use crate::tape::{Flow, Tape};

/// Numbers of an MLP's parameters.
#[derive(Debug, Clone)]
pub struct Mlp {
    first: Vec<usize>,
    second: usize,
    second_bias: Option<usize>,
    unit: Unit,
}

impl Mlp {
    /// Finds the parts of the MLP with this name.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find(plan: &Plan, names: &Names<'_>, name: &str) -> anyhow::Result<Mlp> {
        let named = |part: &str| format!("{name}.{part}");
        let bias = plan.model.mlp_bias;
        let matrix = names.take(&named("fc1.weight"))?;
        let first = [Some(matrix), names.optional(bias, &named("fc1.bias"))?].into_iter().flatten().collect();
        Ok(Mlp {
            first,
            second: names.take(&named("fc2.weight"))?,
            second_bias: names.optional(bias, &named("fc2.bias"))?,
            unit: Unit::new(&plan.model),
        })
    }

    /// This rank's part of the sum that `finish` makes.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn partial(&self, tape: &mut Tape<'_>, settings: &Settings, normed: Flow) -> anyhow::Result<Flow> {
        let both = column_linear(tape, &normed, &self.first, settings.sequence_parallel)?;
        drop(normed);
        let activated = unit(tape, &both, self.unit)?;
        drop(both);
        row_linear(tape, &activated, self.second)
    }

    /// What the MLP adds to the residual stream.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn finish(&self, tape: &mut Tape<'_>, settings: &Settings, partial: Flow) -> anyhow::Result<Flow> {
        settings.onto_stream(tape, partial, self.second_bias)
    }
}
