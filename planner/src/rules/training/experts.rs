//! Routing, dispatch and capacity of experts.

use super::is_megatron;
use crate::model::Score;
use crate::rules::{Broken, Owner, Shape};
use crate::settings::{Dispatcher, FlexBackend};

const DISPATCHER: &str = "training.moe.dispatcher";
const PAD: &str = "training.moe.pad_to_capacity";
const SHARED: &str = "training.moe.shared_expert_overlap";

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let (layout, moe) = (&shape.layout, &shape.training.moe);
    if !shape.is_of(Owner::MegatronLm) || shape.architecture.moe.is_none() {
        return;
    }
    let ranks = layout.ep.saturating_mul(layout.etp);
    let rule = "the flex dispatcher needs ep x etp > 1 (Megatron-Core token_dispatcher)";
    broken.require(
        moe.dispatcher != Dispatcher::Flex || ranks > 1,
        DISPATCHER,
        moe.dispatcher.name(),
        rule,
        || "the flex dispatcher needs experts on more than one rank, and ep x etp is 1".to_owned(),
    );
}

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    let moe = &shape.training.moe;
    let rule = "padding to capacity needs a capacity factor (Megatron-Core transformer_config)";
    broken.require(!moe.pad_to_capacity || moe.capacity_factor.is_some(), PAD, true, rule, || {
        "there is no capacity to pad to: training.moe.capacity_factor is null".to_owned()
    });
    let Some(model) = &shape.architecture.moe else { return };
    if !is_megatron(shape) {
        return;
    }
    let deepep = moe.dispatcher == Dispatcher::Flex && moe.backend == FlexBackend::DeepEp;
    let rule = "DeepEP does not pad to capacity (Megatron-Core transformer_config)";
    broken.require(!moe.pad_to_capacity || !deepep, PAD, true, rule, || {
        "dispatcher flex with backend deepep can't pad experts to their capacity".to_owned()
    });
    if moe.shared_expert_overlap {
        let rule = "shared experts overlap with dispatch by alltoall or flex, without a latent stream (Megatron-Core transformer_config, moe_layer)";
        broken.require(model.shared_ffn_hidden_size > 0, SHARED, true, rule, || {
            "this model has no shared experts".to_owned()
        });
        broken.require(moe.dispatcher != Dispatcher::AllGather, SHARED, true, rule, || {
            "shared experts overlap with the dispatchers alltoall and flex only, and it is allgather"
                .to_owned()
        });
        broken.require(model.latent_size.is_none(), SHARED, true, rule, || {
            "shared experts can't overlap where routed experts work in a latent stream".to_owned()
        });
    }
    let routing = &model.routing;
    let softmax = routing.score == Score::Softmax;
    let rule =
        "a softmax over one chosen expert is 1 whatever the router says (Megatron-Core transformer_config)";
    broken.require(!(model.top_k == 1 && softmax && routing.normalize), "model", model.top_k, rule, || {
        "with top_k 1 and softmax scores, weights must not be normalized over the chosen experts (routing.normalize false, Megatron's pre-softmax)".to_owned()
    });
    let rule = "a balancing bias needs sigmoid scores (Megatron-Core transformer_config)";
    broken.require(
        model.router_bias_buffer == 0 || !softmax,
        "model",
        model.router_bias_buffer,
        rule,
        || {
            "the router has a balancing bias, which goes with sigmoid scores only, and its scores are softmax"
                .to_owned()
        },
    );
    let rule = "shared experts have no biases (Megatron-Core shared_experts)";
    let biased = shape.architecture.mlp_bias && model.shared_ffn_hidden_size > 0;
    broken.require(!biased, "model", model.shared_ffn_hidden_size, rule, || {
        "shared experts can't have biases, and this model's MLPs do".to_owned()
    });
}
