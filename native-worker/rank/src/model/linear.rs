//! One square matrix in the place of attention or of an MLP (Nemotron-NAS): it mixes no tokens.

use super::functions::column_linear;
use super::names::Names;
use super::parallel::columns_to_stream;
use super::settings::Settings;
use crate::tape::{Flow, Tape};

/// Number of the matrix `[hidden, hidden]`, which tensor parallelism cuts by its outputs.
pub struct Linear {
    matrix: usize,
}

impl Linear {
    /// Finds the matrix of the part with this name.
    ///
    /// # Errors
    /// When it is missing.
    pub fn find(names: &Names<'_>, name: &str) -> anyhow::Result<Linear> {
        Ok(Linear { matrix: names.take(&format!("{name}.linear.weight"))? })
    }

    /// What it adds to the residual stream.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward(&self, tape: &mut Tape<'_>, settings: &Settings, normed: Flow) -> anyhow::Result<Flow> {
        let parallel = settings.sequence_parallel;
        let columns = column_linear(tape, &normed, &[self.matrix], parallel)?;
        drop(normed);
        columns_to_stream(tape, columns, parallel)
    }
}
