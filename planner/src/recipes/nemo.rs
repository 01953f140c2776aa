//! What NeMo's recipes set.

use super::{Recipe, Recomputed, number};
use crate::model::Architecture;
use crate::settings::{AttentionBackend, CrossEntropy, CudaGraphs};
use crate::units::Dtype;

/// The first release whose recipes name TransformerEngine's loss (`scripts/performance/utils.py`, v2.3.0). Those of v2.1.0 and v2.2.1, in the
/// containers 24.12 and 25.02, have Megatron-Core's (`GPTConfig.cross_entropy_loss_fusion`, whose kernel is its own unless another is
/// named).
const TE_LOSS: &str = "25.04";
/// The first release with recipes of its own. What came before was configured by NeMo's launcher (NVIDIA/NeMo-Framework-Launcher to 24.09, 35e43939), whose
/// `conf/config.yaml` keeps cuDNN's attention off.
const OWN_RECIPES: &str = "24.12";
/// Rows of the output layer from which the launcher's configurations fuse the loss: Llama 3 and Nemotron, not Llama 2 and GPT-3.
const LARGE_VOCABULARY: u64 = 100_000;
/// Hidden size from which they hide no tensor-parallel communication: GPT-3 175B and Nemotron-4 340B, while Llama 2 70B does.
const LARGE_HIDDEN: u64 = 12_288;

/// Layers and hidden size of Nemotron-4 340B, whose configuration alone keeps the optimizer's state in bf16 and no masters
/// (`optim.dtype`), and recomputes core attention.
const NEMOTRON_340B: (u64, u64) = (96, 18_432);
/// The first release that has it.
const NEMOTRON_SINCE: &str = "24.07";

/// NeMo's performance recipes: gradients are summed in bf16, tensor-parallel communication hides.
pub(crate) fn recipe(model: &Architecture, precision: &'static str, release: u32) -> Recipe {
    let recipe = Recipe {
        name: "performance recipes".to_owned(),
        source: "NVIDIA/NeMo, scripts/performance",
        graphs: Some(CudaGraphs::None),
        overlap_tp: true,
        gradients: Some(Dtype::Bf16),
        loss: Some(if release < number(TE_LOSS) { CrossEntropy::Native } else { CrossEntropy::Te }),
        low_gather: precision != "bf16",
        ..Recipe::default()
    };
    if release >= number(OWN_RECIPES) {
        return recipe;
    }
    let nemotron =
        (model.num_layers, model.hidden_size) == NEMOTRON_340B && release >= number(NEMOTRON_SINCE);
    Recipe {
        name: if nemotron { "nemotron_340b" } else { "configurations of the launcher" }.to_owned(),
        source: "NVIDIA/NeMo-Framework-Launcher, launcher_scripts/conf",
        overlap_tp: model.hidden_size < LARGE_HIDDEN && model.moe.is_none(),
        loss: (model.vocab_size >= LARGE_VOCABULARY).then_some(CrossEntropy::Native),
        attention: Some(AttentionBackend::Flash),
        // No pretraining configuration sets `fp8_params`.
        low_gather: false,
        masters: nemotron.then_some(Dtype::Bf16),
        recompute: nemotron.then(|| Recomputed::Modules(vec!["core_attn".to_owned()])),
        ..recipe
    }
}
