//! Batch, precision, optimizer, recomputation, runtime, and what the worker does.

use leptos::prelude::*;
use planner::runtime::Runtime;
use planner::settings::{Granularity, LrSchedule, OptimizerKind, Precision};
use planner::units::Dtype;

use planner::plan::{Named, RECOMPUTE_MODULES};

use super::Section;
use super::data::{DataChoice, DocumentsFields, HeldOutFields, WeightsField};
use super::training_more::TrainingMore;
use crate::fields::{Choice, Decimal, FieldRow, Modules, Number, Select, Toggle, shown};
use crate::format;
use crate::state::paths::{element_id, field};
use crate::state::store;

const PRECISIONS: &[(Precision, &str)] = &[
    (Precision::Bf16, "bf16"),
    (Precision::Fp16, "fp16"),
    (Precision::Fp32, "fp32"),
    (Precision::Fp64, "fp64"),
    (Precision::Fp8Delayed, "fp8_delayed"),
    (Precision::Fp8Current, "fp8_current"),
    (Precision::Fp8Blockwise, "fp8_blockwise"),
    (Precision::Mxfp8, "mxfp8"),
    (Precision::Nvfp4, "nvfp4"),
];
const DTYPES: &[(Dtype, &str)] =
    &[(Dtype::Bf16, "bf16"), (Dtype::Fp16, "fp16"), (Dtype::Fp32, "fp32"), (Dtype::Fp64, "fp64")];

const SHOWN: &[&str] = &[
    "runtime",
    "software.framework",
    "training.seq_len",
    "training.micro_batch_size",
    "training.global_batch_size",
    "training.dtype",
    "training.grad_dtype",
    "training.optimizer.kind",
    "training.optimizer.distributed",
    "training.recompute.granularity",
    "training.recompute.modules",
    "training.recompute.method",
    "training.recompute.num_layers",
    "run.steps",
    "run.seed",
    "run.lr",
    "run.weight_decay",
    "training.optimizer.beta1",
    "training.optimizer.beta2",
    "training.optimizer.eps",
    "training.optimizer.momentum",
    "training.loss_scale.fixed",
    "training.loss_scale.initial",
    "training.loss_scale.min",
    "training.loss_scale.window",
    "training.loss_scale.hysteresis",
    "run.clip_grad",
    "run.warmup_steps",
    "run.lr_schedule",
    "run.lr_decay_steps",
    "run.min_lr",
    "run.data",
    "run.weights",
    "run.documents.reset_positions",
    "run.documents.reset_attention",
    "run.documents.mask_eod_loss",
    "run.documents.eod_token",
    "run.evaluation.data",
    "run.evaluation.every_steps",
    "run.evaluation.sequences",
    "run.checkpoint.every_steps",
    "run.checkpoint.every_s",
    "run.checkpoint.keep",
];

/// All runtimes with their names.
const RUNTIMES: &[(Runtime, &str)] = &{
    let mut named = [(Runtime::OF_WORKER, ""); Runtime::ALL.len()];
    let mut next = 0;
    while next < named.len() {
        named[next] = (Runtime::ALL[next], Runtime::ALL[next].name());
        next += 1;
    }
    named
};

/// The section.
#[component]
pub fn TrainingSection() -> impl IntoView {
    let store = store();
    let summary = Signal::derive(move || {
        let filled = store.answer.with(|answer| answer.plan.clone());
        let plan = filled.unwrap_or_else(|| (*store.plan()).clone());
        let training = &plan.training;
        let mut parts = Vec::new();
        parts.extend(plan.runtime.map(|runtime| runtime.name().to_owned()));
        parts.extend(training.dtype.map(|dtype| dtype.name().to_owned()));
        parts.extend(training.seq_len.map(|tokens| format!("{} tokens", format::exact(tokens))));
        parts.extend(training.global_batch_size.map(|size| format!("GBS {}", format::exact(size))));
        parts.join(", ")
    });
    let granularity = Memo::new(move |_| shown(store, field!(training.recompute.granularity)).0);
    let hidden = Signal::derive(move || unused(granularity.get()));
    view! {
        <Section id="training" title="Training" summary=summary shown=SHOWN more=super::training_more::FIELDS hidden=hidden>
            <Choice field=field!(runtime) label="Runtime" hint="The framework whose rules hold"
                options=RUNTIMES/>
            <FrameworkChoice/>
            <Number field=field!(training.seq_len) label="Sequence length"/>
            <Number field=field!(training.micro_batch_size) label="Micro batch" steps=true/>
            <Number field=field!(training.global_batch_size) label="Global batch" steps=true/>
            <Choice field=field!(training.dtype) label="Precision" options=PRECISIONS/>
            <Choice field=field!(training.grad_dtype) label="Gradients" hint="Type of the main gradient buffers" options=DTYPES/>
            <Choice field=field!(training.optimizer.kind) label="Optimizer"
                options=&[(OptimizerKind::Adam, "adam"), (OptimizerKind::Sgd, "sgd"), (OptimizerKind::Muon, "muon")]/>
            <Toggle field=field!(training.optimizer.distributed) label="Distributed optimizer"
                hint="Its state is split over the data-parallel group"/>
            <Choice field=field!(training.recompute.granularity) label="Recompute"
                options=&[(Granularity::None, "none"), (Granularity::Selective, "selective"), (Granularity::Full, "full")]/>
            <RecomputeFields/>
            <TrainingMore/>
            <h3 class="subheading">"When it is run here"</h3>
            <Number field=field!(run.steps) label="Steps"/>
            <Decimal field=field!(run.lr) label="Learning rate"/>
            <Number field=field!(run.warmup_steps) label="Warm-up steps"/>
            <Choice field=field!(run.lr_schedule) label="Then it"
                options=&[(LrSchedule::Constant, "stays"), (LrSchedule::Linear, "falls linearly"), (LrSchedule::Cosine, "falls as a cosine")]/>
            <Number field=field!(run.lr_decay_steps) label="Falls until step"/>
            <Decimal field=field!(run.min_lr) label="Down to"/>
            <Decimal field=field!(run.weight_decay) label="Weight decay"/>
            <Decimal field=field!(run.clip_grad) label="Clip gradient norm" hint="0 for no clipping"/>
            <Decimal field=field!(training.optimizer.beta1) label="Beta 1" hint="Decay of Adam's first moment"/>
            <Decimal field=field!(training.optimizer.beta2) label="Beta 2" hint="Decay of Adam's second moment"/>
            <Decimal field=field!(training.optimizer.eps) label="Epsilon" hint="What Adam adds to the root of the second moment"/>
            <Decimal field=field!(training.optimizer.momentum) label="Momentum" hint="Of SGD and Muon"/>
            <LossScaleFields/>
            <Number field=field!(run.seed) label="Seed"/>
            <DataChoice/>
            <DocumentsFields/>
            <WeightsField/>
            <HeldOutFields/>
            <Number field=field!(run.checkpoint.every_steps) label="Save every steps"
                hint="Data of your own is saved by time where this is empty; made-up data is not"/>
            <Decimal field=field!(run.checkpoint.every_s) label="Save every seconds"/>
            <Number field=field!(run.checkpoint.keep) label="Checkpoints kept" hint="The newest; 0 for all"/>
        </Section>
    }
}

/// Fields of recomputation that its granularity does not have.
fn unused(granularity: Option<Granularity>) -> &'static [&'static str] {
    match granularity {
        Some(Granularity::Selective) => &["training.recompute.method", "training.recompute.num_layers"],
        Some(Granularity::Full) => &["training.recompute.modules"],
        Some(Granularity::None) | None => {
            &["training.recompute.modules", "training.recompute.method", "training.recompute.num_layers"]
        }
    }
}

/// What losses are multiplied by, which fp16 alone needs.
#[component]
fn LossScaleFields() -> impl IntoView {
    let store = store();
    let dtype = Memo::new(move |_| shown(store, field!(training.dtype)).0);
    let fixed = Memo::new(move |_| store.said().training.loss_scale.fixed.is_some());
    let following = move || {
        view! {
            <Decimal field=field!(training.loss_scale.initial) label="First loss scale"/>
            <Decimal field=field!(training.loss_scale.min) label="Smallest loss scale"/>
            <Number field=field!(training.loss_scale.window) label="Loss scale grows after"
                hint="Steps without an overflow after which it doubles"/>
            <Number field=field!(training.loss_scale.hysteresis) label="Loss scale falls after"
                hint="Overflows before it halves"/>
        }
    };
    move || {
        (dtype.get() == Some(Precision::Fp16)).then(|| {
            view! {
                <Decimal field=field!(training.loss_scale.fixed) label="Fixed loss scale"
                    hint="Empty: it halves when gradients overflow"/>
                {move || (!fixed.get()).then(following)}
            }
        })
    }
}

/// What is recomputed, as far as the granularity asks.
#[component]
fn RecomputeFields() -> impl IntoView {
    const METHOD: &str = "training.recompute.method";
    let store = store();
    let granularity = Memo::new(move |_| shown(store, field!(training.recompute.granularity)).0);
    let method = Signal::derive(move || store.said().training.recompute.method.clone().unwrap_or_default());
    let choose = move |name: String| {
        store.edit(METHOD, |plan| plan.training.recompute.method = (!name.is_empty()).then_some(name));
    };
    let methods = || {
        let options = [("", "choose"), ("uniform", "uniform"), ("block", "block")];
        options.map(|(value, text)| (value.to_owned(), text.to_owned())).to_vec()
    };
    move || {
        match granularity.get() {
        Some(Granularity::Selective) => view! {
            <Modules field=field!(training.recompute.modules) label="Recomputed modules" known=RECOMPUTE_MODULES/>
        }
        .into_any(),
        Some(Granularity::Full) => view! {
            <FieldRow path=METHOD label="Method" hint="uniform: a checkpoint every so many layers; block: so many layers of each chunk">
                <Select path=METHOD hook=element_id(METHOD) options=methods() current=method choose=Callback::new(choose)/>
            </FieldRow>
            <Number field=field!(training.recompute.num_layers) label="Layers" hint="Layers of a checkpoint (uniform), or checkpointed layers of a chunk (block)"/>
        }
        .into_any(),
        Some(Granularity::None) | None => ().into_any(),
    }
    }
}

/// The framework that trains, with its version.
#[component]
fn FrameworkChoice() -> impl IntoView {
    const PATH: &str = "software.framework";
    let store = store();
    let current = Signal::derive(move || store.said().software.framework.clone().unwrap_or_default());
    let choose = move |name: String| {
        store.edit(PATH, |plan| plan.software.framework = (!name.is_empty()).then_some(name));
    };
    let named = Named::known().into_iter().map(|name| (name.clone(), name));
    let options = std::iter::once((String::new(), "none".to_owned())).chain(named).collect::<Vec<_>>();
    view! {
        <FieldRow path=PATH label="Framework" hint="What its recipe for this model, GPU, count and precision sets holds where the plan says nothing">
            <Select path=PATH hook=element_id(PATH) options=options current=current choose=Callback::new(choose)/>
        </FieldRow>
    }
}
