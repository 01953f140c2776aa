//! What NeMo's recipes set.

use super::Recipe;
use super::bridge::number;
use crate::settings::{CrossEntropy, CudaGraphs};
use crate::units::Dtype;

/// The first release whose recipes name TransformerEngine's loss (`scripts/performance/utils.py`, v2.3.0). Those of v2.1.0 and v2.2.1, in the
/// containers 24.12 and 25.02, have Megatron-Core's (`GPTConfig.cross_entropy_loss_fusion`, whose kernel is its own unless another is
/// named).
const TE_LOSS: &str = "25.04";

/// NeMo's performance recipes: gradients are summed in bf16, tensor-parallel communication hides.
pub(crate) fn recipe(precision: &'static str, release: u32) -> Recipe {
    Recipe {
        name: "performance recipes".to_owned(),
        source: "NVIDIA/NeMo, scripts/performance",
        graphs: Some(CudaGraphs::None),
        overlap_tp: true,
        gradients: Some(Dtype::Bf16),
        loss: Some(if release < number(TE_LOSS) { CrossEntropy::Native } else { CrossEntropy::Te }),
        low_gather: precision != "bf16",
        ..Recipe::default()
    }
}
