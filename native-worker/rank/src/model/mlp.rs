//! A dense MLP, and what shared experts are.

use planner::Plan;
use planner::model::Activation;

use super::activation::Unit;
use super::functions::{column_linear, row_linear, unit};
use super::names::Names;
use super::settings::Settings;
use super::xielu::xielu;
use crate::tape::{Flow, Tape};

/// Numbers of an MLP's parameters.
#[derive(Debug, Clone)]
pub struct Mlp {
    first: Vec<usize>,
    second: usize,
    second_bias: Option<usize>,
    unit: Unit,
    /// The scalars of an activation that learns two: of its positive and of its negative side.
    scalars: Option<[usize; 2]>,
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
        let scalars = (plan.model.activation == Activation::Xielu)
            .then(|| anyhow::Ok([names.take(&named("alpha_p"))?, names.take(&named("alpha_n"))?]))
            .transpose()?;
        let first = [Some(matrix), names.optional(bias, &named("fc1.bias"))?].into_iter().flatten().collect();
        Ok(Mlp {
            first,
            second: names.take(&named("fc2.weight"))?,
            second_bias: names.optional(bias, &named("fc2.bias"))?,
            unit: Unit::new(&plan.model),
            scalars,
        })
    }

    /// This rank's part of the sum that `finish` makes.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn partial(&self, tape: &mut Tape<'_>, settings: &Settings, normed: Flow) -> anyhow::Result<Flow> {
        let both = column_linear(tape, &normed, &self.first, settings.sequence_parallel)?;
        drop(normed);
        let activated = match self.scalars {
            Some(scalars) => xielu(tape, &both, scalars)?,
            None => unit(tape, &both, self.unit)?,
        };
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
