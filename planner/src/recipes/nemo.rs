//! What NeMo's recipes set.

use super::Recipe;
use crate::settings::{CrossEntropy, CudaGraphs};
use crate::units::Dtype;

/// NeMo's performance recipes: gradients are summed in bf16, tensor-parallel communication hides.
pub(crate) fn recipe(precision: &'static str) -> Recipe {
    Recipe {
        name: "performance recipes".to_owned(),
        source: "NVIDIA/NeMo, scripts/performance",
        graphs: Some(CudaGraphs::None),
        overlap_tp: true,
        gradients: Some(Dtype::Bf16),
        loss: Some(CrossEntropy::Te),
        low_gather: precision != "bf16",
        ..Recipe::default()
    }
}
