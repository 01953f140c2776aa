//! Multi-token prediction: a module joins what is known behind the last layer with the embedding of the next token, and
//! predicts the one after, through layers of its own and the model's output matrix (Megatron-Core
//! multi_token_prediction).

use std::rc::Rc;

use planner::Plan;
use tch::Tensor;

use super::functions::column_linear;
use super::layer::Layer;
use super::names::Names;
use super::norm::Norm;
use super::parallel::columns_to_stream;
use super::settings::{Pass, Settings};
use crate::collectives::Collectives;
use crate::tape::{Flow, Tape};

/// Weight of the modules' mean loss beside the model's own (Megatron-Core `mtp_loss_scaling_factor`).
pub const LOSS_SCALE: f64 = 0.1;

/// One module.
pub struct Prediction {
    /// Number of the embedding of words.
    pub words: usize,
    embedding_norm: Norm,
    hidden_norm: Norm,
    proj: usize,
    layers: Vec<Layer>,
    final_norm: Norm,
}

impl Prediction {
    /// Finds the parts of module `module`.
    ///
    /// # Errors
    /// When one is missing.
    pub fn find(
        plan: &Plan,
        names: &Names<'_>,
        module: u64,
        words: usize,
        world: &dyn Collectives,
    ) -> anyhow::Result<Prediction> {
        let (prefix, kinds) = (format!("mtp.{module}"), plan.model.mtp_kinds());
        let norm = |name: &str| Norm::of_stream(&plan.model, names, &format!("{prefix}.{name}"));
        let layers = kinds.iter().enumerate().map(|(place, &kind)| {
            let name = if kinds.len() == 1 { prefix.clone() } else { format!("{prefix}.{place}") };
            Layer::find(plan, kind, names, &name, world)
        });
        Ok(Prediction {
            words,
            embedding_norm: norm("embedding_norm")?,
            hidden_norm: norm("hidden_norm")?,
            proj: names.take(&format!("{prefix}.proj.weight"))?,
            layers: layers.collect::<Result<_, _>>()?,
            final_norm: norm("final_norm")?,
        })
    }

    /// Its layers.
    pub fn layers(&self) -> impl Iterator<Item = &Layer> {
        self.layers.iter()
    }

    /// What the output matrix reads, from what it read for the token before and the embedding of that token.
    ///
    /// # Errors
    /// When libtorch or a collective fails.
    pub fn forward<'a>(
        &'a self,
        tape: &mut Tape<'a>,
        settings: &'a Settings,
        pass: &Rc<Pass>,
        words: Flow,
        hidden: &Flow,
    ) -> anyhow::Result<Flow> {
        let words = self.embedding_norm.forward(tape, &words)?;
        let hidden = self.hidden_norm.forward(tape, hidden)?;
        let both = tape.segment(&[&words, &hidden], &[], |inputs, _| Ok(Tensor::f_cat(inputs, -1)?))?;
        drop((words, hidden));
        let parallel = settings.sequence_parallel;
        let columns = column_linear(tape, &both, &[self.proj], parallel)?;
        drop(both);
        let mut stream = columns_to_stream(tape, columns, parallel)?;
        for layer in &self.layers {
            stream = layer.forward(tape, settings, pass, stream)?;
        }
        self.final_norm.forward(tape, &stream)
    }
}
