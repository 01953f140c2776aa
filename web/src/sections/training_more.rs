//! Training settings behind the line that opens: types, optimizer, activations, overlaps, experts, CUDA graphs.

use leptos::prelude::*;
use planner::Dtype;
use planner::plan::{GRAPH_MODULES, OFFLOAD_MODULES};
use planner::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Implementation,
};

use super::more::More;
use crate::fields::{Choice, Decimal, Modules, Number, Toggle};
use crate::state::paths::field;
use crate::state::store;

/// Id of the part.
pub const MORE: &str = "training-more";

/// Its fields.
pub const FIELDS: &[&str] = &[
    "training.fp8_param_gather",
    "training.bf16_first_layers",
    "training.bf16_last_layers",
    "training.fp8_attention",
    "training.fp8_output",
    "training.optimizer.precision_aware",
    "training.optimizer.master_dtype",
    "training.optimizer.exp_avg_dtype",
    "training.optimizer.exp_avg_sq_dtype",
    "training.optimizer.offload_fraction",
    "training.optimizer.instances",
    "training.attention_backend",
    "training.implementation",
    "training.cross_entropy",
    "training.attention_dropout",
    "training.hidden_dropout",
    "training.offload.modules",
    "training.offload.fraction",
    "training.offload.layers",
    "training.overlap.grad_reduce",
    "training.overlap.param_gather",
    "training.overlap.tp",
    "training.overlap.p2p",
    "training.overlap.ep",
    "training.overlap.delay_wgrad",
    "training.moe.dispatcher",
    "training.moe.backend",
    "training.moe.load_imbalance",
    "training.moe.capacity_factor",
    "training.moe.pad_to_capacity",
    "training.moe.shared_expert_overlap",
    "training.cuda_graphs",
    "training.cuda_graph_modules",
    "software.expandable_segments",
];

const STATE: &[(Dtype, &str)] =
    &[(Dtype::Fp32, "fp32"), (Dtype::Bf16, "bf16"), (Dtype::Fp16, "fp16"), (Dtype::Fp8, "fp8")];
const MASTER: &[(Dtype, &str)] = &[(Dtype::Fp32, "fp32"), (Dtype::Fp16, "fp16")];

/// What of the plan decides which fields there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shown {
    megatron: bool,
    low_precision: bool,
    experts: bool,
    flex: bool,
    graphs: bool,
}

/// The fields.
#[component]
pub fn TrainingMore() -> impl IntoView {
    let store = store();
    let seen = Memo::new(move |_| {
        store.answer.with(|answer| {
            let file = answer.plan.as_ref();
            let training = file.map(|file| &file.training);
            let runtime = file.and_then(|file| file.runtime).unwrap_or_default();
            Shown {
                megatron: runtime.facts().trains_megatron_core,
                low_precision: training
                    .and_then(|training| training.dtype)
                    .is_some_and(|dtype| dtype.low_precision().is_some()),
                experts: answer.parameters.as_ref().is_some_and(|counts| counts.active != counts.total),
                flex: training.and_then(|training| training.moe.dispatcher) == Some(Dispatcher::Flex),
                graphs: training
                    .and_then(|training| training.cuda_graphs)
                    .is_some_and(|kind| kind != CudaGraphs::None),
            }
        })
    });
    view! {
        <More id=MORE fields=FIELDS>
            {move || seen.get().low_precision.then(recipe)}
            {move || seen.get().megatron.then(optimizer)}
            <h3 class="subheading">"Activations"</h3>
            <Choice field=field!(training.attention_backend) label="Attention kernel" options=&[
                (AttentionBackend::Auto, "auto"), (AttentionBackend::Flash, "flash"),
                (AttentionBackend::Fused, "fused"), (AttentionBackend::Unfused, "unfused")]/>
            <Choice field=field!(training.cross_entropy) label="Loss kernel" options=&[
                (CrossEntropy::Unfused, "unfused"), (CrossEntropy::Native, "native"), (CrossEntropy::Te, "te")]/>
            <Decimal field=field!(training.attention_dropout) label="Attention dropout" hint="Probability"/>
            <Decimal field=field!(training.hidden_dropout) label="Hidden dropout" hint="Probability"/>
            {move || seen.get().megatron.then(activations)}
            <h3 class="subheading">"Communication behind compute"</h3>
            <Toggle field=field!(training.overlap.grad_reduce) label="Gradients" hint="training.overlap.grad_reduce: reduced behind backward"/>
            <Toggle field=field!(training.overlap.param_gather) label="Parameters" hint="training.overlap.param_gather: gathered behind forward"/>
            <Toggle field=field!(training.overlap.tp) label="Tensor parallel" hint="training.overlap.tp: collectives behind the GEMMs next to them"/>
            <Toggle field=field!(training.overlap.p2p) label="Pipeline sends" hint="training.overlap.p2p"/>
            {move || { let seen = seen.get(); (seen.megatron && seen.experts).then(expert_overlap) }}
            {move || seen.get().experts.then(|| experts(seen))}
            {move || seen.get().megatron.then(|| graphs(seen))}
            <Toggle field=field!(software.expandable_segments) label="Expandable segments" hint="torch's allocator: expandable_segments:True"/>
        </More>
    }
}

fn recipe() -> impl IntoView {
    view! {
        <h3 class="subheading">"Low precision"</h3>
        <Toggle field=field!(training.fp8_param_gather) label="Parameters too" hint="training.fp8_param_gather: kept and gathered in the recipe's type"/>
        <Number field=field!(training.bf16_first_layers) label="First layers in bf16"/>
        <Number field=field!(training.bf16_last_layers) label="Last layers in bf16"/>
        <Toggle field=field!(training.fp8_attention) label="Attention too" hint="training.fp8_attention"/>
        <Toggle field=field!(training.fp8_output) label="Output layer too" hint="training.fp8_output"/>
    }
}

fn optimizer() -> impl IntoView {
    view! {
        <h3 class="subheading">"Optimizer state"</h3>
        <Toggle field=field!(training.optimizer.precision_aware) label="Precision-aware" hint="State in the types below"/>
        <Choice field=field!(training.optimizer.master_dtype) label="Master weights" options=MASTER/>
        <Choice field=field!(training.optimizer.exp_avg_dtype) label="First moment" options=STATE/>
        <Choice field=field!(training.optimizer.exp_avg_sq_dtype) label="Second moment" options=STATE/>
        <Decimal field=field!(training.optimizer.offload_fraction) label="Part on the host" hint="training.optimizer.offload_fraction: 0 to 1"/>
        <Number field=field!(training.optimizer.instances) label="Instances" hint="Groups of data parallelism with a whole set of state each"/>
    }
}

fn activations() -> impl IntoView {
    view! {
        <Choice field=field!(training.implementation) label="Layers" options=&[
            (Implementation::TransformerEngine, "transformer_engine"), (Implementation::Local, "local")]/>
        <Modules field=field!(training.offload.modules) label="Waiting on the host" known=OFFLOAD_MODULES/>
        <Decimal field=field!(training.offload.fraction) label="Part of their bytes" hint="training.offload.fraction: 0 to 1"/>
        <Number field=field!(training.offload.layers) label="Whole layers on the host"/>
    }
}

fn expert_overlap() -> impl IntoView {
    view! {
        <Toggle field=field!(training.overlap.ep) label="Expert parallel" hint="training.overlap.ep: all-to-all behind another micro batch"/>
        <Toggle field=field!(training.overlap.delay_wgrad) label="Delayed gradients" hint="training.overlap.delay_wgrad: weight gradients wait for the all-to-all"/>
    }
}

fn experts(seen: Memo<Shown>) -> impl IntoView {
    view! {
        <h3 class="subheading">"Experts"</h3>
        <Decimal field=field!(training.moe.load_imbalance) label="Load imbalance" hint="Tokens of the busiest rank over the mean, from 1"/>
        {move || seen.get().megatron.then(|| view! {
            <Choice field=field!(training.moe.dispatcher) label="Dispatcher" options=&[
                (Dispatcher::AllToAll, "alltoall"), (Dispatcher::AllGather, "allgather"), (Dispatcher::Flex, "flex")]/>
            {move || seen.get().flex.then(|| view! {
                <Choice field=field!(training.moe.backend) label="Flex library" options=&[
                    (FlexBackend::DeepEp, "deepep"), (FlexBackend::HybridEp, "hybridep")]/>
            })}
            <Decimal field=field!(training.moe.capacity_factor) label="Capacity factor" hint="Tokens that an expert takes over the mean; empty drops none"/>
            <Toggle field=field!(training.moe.pad_to_capacity) label="Pad to capacity"/>
            <Toggle field=field!(training.moe.shared_expert_overlap) label="Overlap shared" hint="Shared experts run while tokens travel"/>
        })}
    }
}

fn graphs(seen: Memo<Shown>) -> impl IntoView {
    view! {
        <h3 class="subheading">"CUDA graphs and memory"</h3>
        <Choice field=field!(training.cuda_graphs) label="CUDA graphs" options=&[
            (CudaGraphs::None, "none"), (CudaGraphs::Scoped, "scoped"), (CudaGraphs::Iteration, "iteration")]/>
        {move || seen.get().graphs.then(|| view! {
            <Modules field=field!(training.cuda_graph_modules) label="Captured" known=GRAPH_MODULES/>
        })}
    }
}
