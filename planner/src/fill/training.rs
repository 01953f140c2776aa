//! Defaults and ranges of `training` and `software`.

use crate::fill::batch::usual_batch;
use crate::fill::filler::Filler;
use crate::finding::{Finding, clip};
use crate::layout::Layout;
use crate::model::{Architecture, MixerRef};
use crate::plan::WherePossible;
use crate::plan::{LossScale, MoeTraining, Optimizer, Software, Training};
use crate::runtime::Runtime;
use crate::settings::{CudaGraphs, Granularity, OptimizerKind};
use crate::software::{Named, Product, Program, megatron_release};
use crate::units::Dtype;
use crate::wire::{
    Filling, LossScaleFile, MAX_COUNT, MoeFile, OfFile, OptimizerFile, RecomputeFile, Setting, SoftwareFile,
    TrainingFile,
};

/// Longest name of software, in bytes.
const MAX_NAME: usize = 200;

/// `failed` GPUs of the cluster are out of order, and a pipeline has at least so many micro batches.
pub(super) fn fill_training(
    fill: &mut Filler<'_>,
    training: &mut TrainingFile,
    program: Option<&Program>,
    (model, layout): (&Architecture, &Layout),
    (failed, least): (u64, u64),
) -> Training {
    let dtype = training.dtype.unwrap_or_else(|| Setting::usual_of("training.dtype")).dtype();
    let wide = dtype.exact();
    // Who says how tokens spread has made a statement, be it 1.0.
    let unsaid = training.moe.load_imbalance.is_none() && training.moe.force_balance != Some(true);
    let micro = training.micro_batch_size.unwrap_or_else(|| Setting::usual_of("training.micro_batch_size"));
    // What holds where nothing is said and its row leaves it to the rest of the plan.
    let mut rules = TrainingFile {
        // No longer than the model's learned positions.
        seq_len: model.learned_positions.map(|most| most.min(Setting::usual_of("training.seq_len"))),
        global_batch_size: Some(usual_batch(layout, micro, (failed, least))),
        grad_dtype: Some(match program {
            Some(program) if program.half_gradients && dtype == Dtype::Fp16 => Dtype::Fp16,
            _ => wide,
        }),
        attention_backend: program.and_then(|program| program.attention),
        fused_gradient_accumulation: program.and_then(|program| program.fuses_gradients),
        moe: MoeFile {
            load_may_grow: Some(unsaid),
            fused_activation: program.and_then(|program| program.fuses_activation).or(Some(model.gated)),
            ..MoeFile::default()
        },
        ..TrainingFile::default()
    };
    rules.cuda_graph_modules = Some(captured(training, model));
    let [optimizer, overlap] = ["optimizer", "overlap"].map(TrainingFile::place);
    fill.fields(training, &rules, 0..optimizer);
    fill_loss_scale(fill, &mut training.loss_scale, dtype);
    rules.optimizer = usual_optimizer(&training.optimizer, dtype, training.grad_dtype);
    rules.optimizer.distributed = program.and_then(|program| program.distributed);
    fill_optimizer(fill, &mut training.optimizer, &rules.optimizer);
    fill_recompute(fill, &mut training.recompute, program);
    fill.real("training.train_tokens", training.train_tokens);
    // Without a distributed optimizer there is nothing to gather.
    let reduces =
        training.overlap.grad_reduce.unwrap_or_else(|| Setting::usual_of("training.overlap.grad_reduce"));
    rules.overlap.param_gather = Some(reduces && training.optimizer.distributed == Some(true));
    fill.fields(training, &rules, [overlap]);
    let behind = TrainingFile::places_from("offload").filter(|place| *place != overlap);
    fill.fields(training, &rules, behind);
    let filled = Training::read(training, &rules, &[]);
    let (length, sequences) = (filled.seq_len, filled.micro_batch_size);
    if length.saturating_mul(sequences) > MAX_COUNT {
        let message = format!(
            "a micro batch of {sequences} x {length} tokens is more than {MAX_COUNT}; lower one of them"
        );
        fill.findings.push(Finding::error("training.micro_batch_size", sequences, message));
    }
    filled
}

/// What is captured of layers with experts where nobody says it: what has fixed sizes, which experts have with a capacity alone. Of other
/// layers, and none named, whole ones (Megatron-Core cuda_graph_config).
fn captured(training: &TrainingFile, model: &Architecture) -> Vec<String> {
    let moe = MoeTraining::read(&training.moe, &MoeFile::default(), &[]);
    let fixed = moe.captures_experts();
    // Counts that come to the host are no part of a graph.
    let counted = moe.waits_for_capacities();
    let scoped = training.cuda_graphs == Some(CudaGraphs::Scoped) && model.moe.is_some() && !fixed;
    let recomputed = training.recompute.modules.iter().flatten().any(|module| module == "moe");
    let mamba = model.mixers().iter().any(|mixer| matches!(mixer, MixerRef::Mamba2(_)));
    [
        ("attn", true),
        ("moe_router", !recomputed),
        ("moe_preprocess", !recomputed && !counted),
        ("mamba", mamba),
    ]
    .into_iter()
    .filter(|(_, captured)| scoped && *captured)
    .map(|(module, _)| module.to_owned())
    .collect()
}

fn fill_recompute(fill: &mut Filler<'_>, recompute: &mut RecomputeFile, program: Option<&Program>) {
    // What is said of modules or layers goes with a granularity that is said.
    let said = recompute.modules.is_some() || recompute.method.is_some() || recompute.num_layers.is_some();
    let usual = program.filter(|_| !said).and_then(|program| program.recompute);
    let granularity = fill.or(
        "training.recompute.granularity",
        &mut recompute.granularity,
        usual.unwrap_or_else(|| Setting::usual_of("training.recompute.granularity")),
    );
    fill.names("training.recompute.modules", &mut recompute.modules);
    if let Some(layers) = recompute.num_layers {
        fill.checked("training.recompute.num_layers", layers);
    }
    if granularity == Granularity::Full {
        usual_method(fill, recompute);
    } else if recompute.method.is_some() {
        method(fill, recompute);
    }
    fill.usual(
        "training.recompute.distribute_saved_activations",
        &mut recompute.distribute_saved_activations,
    );
}

/// How whole layers are recomputed where nobody says: each is a checkpoint, which is all that FSDP2 has.
fn usual_method(fill: &mut Filler<'_>, recompute: &mut RecomputeFile) {
    // How many layers of a stage the other method recomputes is a choice that nobody can make for the plan.
    if method(fill, recompute) == "uniform" {
        fill.or("training.recompute.num_layers", &mut recompute.num_layers, 1);
    }
}

fn method(fill: &mut Filler<'_>, recompute: &mut RecomputeFile) -> String {
    fill.choice("training.recompute.method", &mut recompute.method)
}

/// What of an optimizer follows from the rest of a plan.
fn usual_optimizer(said: &OptimizerFile, dtype: Dtype, grad_dtype: Option<Dtype>) -> OptimizerFile {
    let kind = said.kind.unwrap_or_else(|| Setting::usual_of("training.optimizer.kind"));
    let [master, moment] = Optimizer::usual_types(dtype, grad_dtype, said.master_dtype);
    let [.., (_, momentum)] = Optimizer::usual(kind);
    OptimizerFile {
        master_dtype: Some(master),
        exp_avg_dtype: Some(moment),
        exp_avg_sq_dtype: Some(moment),
        // State on the host needs it.
        precision_aware: Some(
            kind == OptimizerKind::Adam && said.offload_fraction.is_some_and(|share| share > 0.0),
        ),
        momentum,
        ..OptimizerFile::default()
    }
}

/// Types come first, then the constants of the update; those that the kind has not stay open.
fn fill_optimizer(fill: &mut Filler<'_>, optimizer: &mut OptimizerFile, rules: &OptimizerFile) {
    let [distributed, types, behind, constants] =
        ["distributed", "master_dtype", "offload_fraction", "beta1"].map(OptimizerFile::place);
    fill.fields(optimizer, rules, (types..behind).chain(0..distributed));
    let kind = optimizer.kind.unwrap_or(OptimizerKind::Adam);
    let said = [optimizer.beta1, optimizer.beta2, optimizer.eps, optimizer.momentum];
    let usual = Optimizer::usual(kind);
    for ((name, usual), said) in usual.into_iter().zip(said) {
        if usual.or(said).is_some() {
            fill.fields(optimizer, rules, [OptimizerFile::place(name)]);
        }
    }
    let last = OptimizerFile::places_from("momentum").skip(1);
    fill.fields(optimizer, rules, (distributed..types).chain(behind..constants).chain(last));
}

/// In other types than fp16 nothing is scaled, whatever a file says.
fn fill_loss_scale(fill: &mut Filler<'_>, file: &mut LossScaleFile, dtype: Dtype) {
    let (rules, window) = (LossScaleFile::default(), LossScaleFile::place("window"));
    if dtype != Dtype::Fp16 {
        return;
    }
    if file.fixed.is_some() {
        return fill.fields(file, &rules, [LossScaleFile::place("fixed")]);
    }
    fill.fields(file, &rules, 0..window);
    if let LossScale::Dynamic { initial, min, .. } = LossScale::of(file)
        && min > initial
    {
        let message = format!("the smallest loss scale, {min}, is larger than the first, {initial}");
        let finding = Finding::error("training.loss_scale.min", min, message);
        fill.findings.push(finding.rule("loss scaling").nearest([initial]));
    }
    fill.fields(file, &rules, LossScaleFile::places_from("window"));
}

/// The framework that a text names, and whether its recipes go by release and the text says none, or one of which nothing is known.
fn fill_framework(fill: &mut Filler<'_>, text: &str, runtime: Runtime) -> Option<(Named, bool)> {
    let Some((named, known)) = Named::parse(text) else {
        fill.findings.push(Named::unknown(text));
        return None;
    };
    if !known {
        fill.findings.push(named.taken_for(text));
    }
    if !named.product.runtimes().contains(&runtime) {
        fill.findings.push(named.against(runtime));
    }
    let by_release = matches!(named.product, Product::Bridge | Product::Nemo);
    Some((named, by_release && !(known && text.contains(' '))))
}

pub(super) fn fill_software(
    fill: &mut Filler<'_>,
    software: &mut SoftwareFile,
    runtime: Runtime,
) -> Software {
    for (field, name) in [("software.profile", &software.profile), ("software.torch", &software.torch)] {
        if let Some(name) = name
            && (name.is_empty() || name.len() > MAX_NAME || name.chars().any(char::is_control))
        {
            fill.findings.push(Finding::error(
                field,
                clip(name),
                format!("{field} is a name of 1 to {MAX_NAME} bytes without control characters, or null"),
            ));
        }
    }
    let framework = software.framework.as_deref().and_then(|text| fill_framework(fill, text, runtime));
    let named = framework.map(|(named, _)| named);
    let filled = Software {
        profile: software.profile.clone(),
        torch: software.torch.clone(),
        framework: named.and_then(Named::options),
        named,
        megatron_release: software.framework.as_deref().and_then(megatron_release),
        where_possible: WherePossible::default(),
        others_recipe: framework.is_some_and(|(_, other)| other),
        set: Vec::new(),
        cublas_workspace_bytes: software
            .cublas_workspace_bytes
            .map(|bytes| fill.checked("software.cublas_workspace_bytes", bytes)),
        expandable_segments: fill.usual("software.expandable_segments", &mut software.expandable_segments),
    };
    if let Some(torch) = filled.torch.as_deref()
        && filled.torch_version().is_none()
    {
        let message = format!(
            "software.torch is `{}`, which reads like no version, so nothing follows from it; write one such as 2.11.0",
            clip(torch)
        );
        fill.findings.push(Finding::warning("software.torch", clip(torch), message));
    }
    filled
}
