//! What NeMo Automodel sets where its recipe file says nothing.

use super::Recipe;
use crate::model::Architecture;
use crate::settings::{Dispatcher, FlexBackend};
use crate::units::Dtype;

/// Automodel's defaults (36044ad3d139): models are made in bf16 and shards, gradients and moments stay so (`_transformers/auto_model.py`,
/// `torch_dtype`); gradients are reduced after the last micro batch (`components/distributed/config.py`, `defer_fsdp_grad_sync`). Its models
/// with experts keep layers gathered (`MoEParallelizerConfig`) and send tokens by DeepEP, which its container has
/// (`components/models/common/utils.py`, `BackendConfig`). Nothing is recomputed or compiled unless a recipe file says so.
pub(crate) fn recipe(model: &Architecture) -> Recipe {
    let experts = model.moe.is_some();
    Recipe {
        name: "defaults".to_owned(),
        source: "NVIDIA-NeMo/Automodel, components/distributed/config.py and components/models/common/utils.py",
        sharded: Some(Dtype::Bf16),
        reduces_last: true,
        // What is recomputed by parts are matrix products, and no modules by name.
        every_second: true,
        keeps_gathered: experts,
        dispatcher: experts.then_some(Dispatcher::Flex),
        backend: experts.then_some(FlexBackend::DeepEp),
        ..Recipe::default()
    }
}
