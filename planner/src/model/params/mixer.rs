//! How a mixer's parameters are put into the list.

use super::{List, Role};
use crate::model::{Init, Module};

/// The name of a mixer's parameter.
pub(in crate::model) fn of_mixer(part: &str) -> String {
    format!("layers.{{layer}}.attention.{part}")
}

impl List<'_> {
    pub(in crate::model) fn column(&mut self, part: &str, shape: &[u64]) {
        self.matrix(&of_mixer(part), Module::Attention, Role::Column(0), shape);
    }

    pub(in crate::model) fn whole(&mut self, part: &str, shape: &[u64]) {
        self.matrix(&of_mixer(part), Module::Attention, Role::Replicated, shape);
    }

    pub(in crate::model) fn out(&mut self, part: &str, shape: &[u64]) {
        self.residual_matrix(&of_mixer(part), Module::Attention, Role::Row(1), shape);
    }

    /// A vector with an entry for each head, that a rank has for its own heads.
    pub(in crate::model) fn per_head(&mut self, part: &str, shape: &[u64], init: Init) {
        self.push(&of_mixer(part), Module::Attention, Role::Column(0), shape, init, false);
    }
}
