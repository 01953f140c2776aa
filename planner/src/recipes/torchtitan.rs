//! What torchtitan's configurations set.

use super::{Among, Recipe, Recomputed};
use crate::model::Architecture;

/// torchtitan's configurations of Llama 3 (`models/llama3/config_registry.py`, train_configs before): 8B by operators, 70B and 405B
/// whole layers, the 405B compiled with asynchronous tensor parallelism and gathers in 8 bits. Other models have torchtitan's default, by
/// operators.
pub(crate) fn recipe(model: &Architecture, precision: &'static str, among: Among) -> Recipe {
    let dense = |layers, hidden| {
        among == Among::All
            && model.moe.is_none()
            && (model.num_layers, model.hidden_size) == (layers, hidden)
    };
    let (name, full, tuned) = match () {
        () if dense(126, 16_384) => ("llama3_405b", true, true),
        () if dense(80, 8192) => ("llama3_70b", true, false),
        () if dense(32, 4096) => ("llama3_8b", false, false),
        () => ("defaults of ActivationCheckpointConfig and CompileConfig", false, false),
    };
    Recipe {
        name: name.to_owned(),
        source: "pytorch/torchtitan, models/llama3/config_registry.py",
        others: name.starts_with("defaults"),
        recompute: Some(if full { Recomputed::Full } else { Recomputed::Selective }),
        every_second: true,
        compile: Some(tuned),
        overlap_tp: tuned,
        low_gather: tuned && precision == "cs",
        ..Recipe::default()
    }
}
