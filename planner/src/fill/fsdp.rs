//! Defaults and ranges of `layout.fsdp` and `layout.tp_plan`.

use serde_json::Value;

use crate::fill::filler::{Filler, words_of};
use crate::finding::{Finding, clip, nearest_names};
use crate::layout::Style;
use crate::layout::{FsdpSettings, Reshard, TpPlanSource};
use crate::runtime::Runtime;
use crate::settings::Precision;
use crate::settings::Strategy;
use crate::units::Dtype;
use crate::wire::{FsdpFile, LayoutFile, TrainingFile};

/// Most entries of a tensor-parallel plan in a plan file.
const MAX_PLAN_ENTRIES: usize = 4096;

/// Fills the FSDP settings. What only the FSDP runtimes read stays unwritten for the others.
pub(super) fn fill_fsdp(
    fill: &mut Filler<'_>,
    layout: &mut LayoutFile,
    training: &TrainingFile,
    runtime: Runtime,
) -> FsdpSettings {
    let fsdp = &mut layout.fsdp;
    let named = fill.usual("layout.fsdp.strategy", &mut fsdp.strategy);
    let strategy = Strategy::parse(&named);
    if strategy.is_none() {
        fill.findings.push(unknown_strategy(&named));
    }
    let outer = fill.choice("layout.fsdp.outer_strategy", &mut fsdp.outer_strategy);
    let reshard = fill.usual("layout.fsdp.reshard_after_forward", &mut fsdp.reshard_after_forward);
    let mut settings = FsdpSettings {
        strategy: strategy.unwrap_or(Strategy::USUAL),
        outer_optim: outer == "optim",
        reshard: fill_reshard(fill, &reshard),
        ..FsdpSettings::default()
    };
    let dtype = training.dtype.map_or(Dtype::Bf16, Precision::dtype);
    let wide = dtype.exact();
    let facts = runtime.facts();
    if facts.shards_parameters {
        settings.sharded_dtype = wide;
        settings.reduce_dtype = training.grad_dtype.unwrap_or(wide);
        match facts.flat_units {
            true => fill_flat(fill, fsdp, &mut settings),
            false => {
                fill_torch(fill, fsdp, &mut settings, [wide, dtype], layout.pp.unwrap_or(1) > 1);
            }
        }
    }
    settings
}

/// How units that lie in flat buffers are kept and sent.
fn fill_flat(fill: &mut Filler<'_>, fsdp: &mut FsdpFile, settings: &mut FsdpSettings) {
    settings.nccl_ub = fill.usual("layout.fsdp.nccl_ub", &mut fsdp.nccl_ub);
    settings.double_buffer = fill.or("layout.fsdp.double_buffer", &mut fsdp.double_buffer, settings.nccl_ub);
    settings.preserve_fp32_weights =
        fill.usual("layout.fsdp.preserve_fp32_weights", &mut fsdp.preserve_fp32_weights);
    settings.keep_fp8_transpose = fill.usual("layout.fsdp.keep_fp8_transpose", &mut fsdp.keep_fp8_transpose);
    settings.init_meta = fill.usual("layout.fsdp.init_meta", &mut fsdp.init_meta);
    settings.communication_unit =
        fsdp.communication_unit.map(|elements| fill.checked("layout.fsdp.communication_unit", elements));
}

/// Types of what `fully_shard` keeps and reduces, and what trainers on it do differently and memory depends on.
fn fill_torch(
    fill: &mut Filler<'_>,
    fsdp: &mut FsdpFile,
    settings: &mut FsdpSettings,
    [wide, dtype]: [Dtype; 2],
    pipeline: bool,
) {
    settings.sharded_dtype = fill.dtype("layout.fsdp.sharded_dtype", &mut fsdp.sharded_dtype, wide);
    let reduced = settings.reduce_dtype;
    settings.reduce_dtype = fill.dtype("layout.fsdp.reduce_dtype", &mut fsdp.reduce_dtype, reduced);
    settings.offload = fill.choice("layout.fsdp.offload", &mut fsdp.offload) == "cpu";
    let scope = fill.choice("layout.fsdp.checkpoint_scope", &mut fsdp.checkpoint_scope);
    settings.checkpoints_language = matches!(scope.as_str(), "all" | "language" | "multimodal");
    settings.output_dtype = fill.dtype("layout.fsdp.output_dtype", &mut fsdp.output_dtype, dtype);
    let outer = fill.choice("layout.fsdp.outer_units", &mut fsdp.outer_units);
    settings.outer_apart = outer == "apart";
    let usual = if pipeline { "last" } else { "every" };
    let sync = fill.choice_or("layout.fsdp.gradient_sync", &mut fsdp.gradient_sync, usual.to_owned());
    settings.sync_last = sync == "last";
    settings.loss_dtype = fill.dtype("layout.fsdp.loss_dtype", &mut fsdp.loss_dtype, wide);
    settings.keeps_logits = fill.usual("layout.fsdp.keeps_logits", &mut fsdp.keeps_logits);
    let selects = fill.choice("layout.fsdp.checkpoint_selects", &mut fsdp.checkpoint_selects);
    settings.checkpoints_matmuls = selects == "matmuls";
    settings.compiled = fill.usual("layout.fsdp.compile", &mut fsdp.compile);
}

fn unknown_strategy(named: &str) -> Finding {
    let names = words_of("layout.fsdp.strategy");
    let meant = match named {
        "params" | "grads_params" => "optim_grads_params",
        "grads" => "optim_grads",
        other => {
            nearest_names(other, names.iter().copied(), 1).first().copied().unwrap_or("optim_grads_params")
        }
    };
    let hint = if matches!(named, "params" | "grads_params") {
        "; the name stands in old documentation, but no code takes it: each level splits what the one before does"
    } else {
        ""
    };
    Finding::error(
        "layout.fsdp.strategy",
        clip(named),
        format!(
            "layout.fsdp.strategy is `{}`; allowed are {} (levels 0 to 3){hint}",
            clip(named),
            names.join(", ")
        ),
    )
    .rule("sharding strategies of Megatron-FSDP")
    .nearest([meant])
}

fn fill_reshard(fill: &mut Filler<'_>, value: &Value) -> Reshard {
    match value {
        Value::String(name) if name == "default" => return Reshard::Default,
        Value::String(name) if name == "always" => return Reshard::Always,
        Value::String(name) if name == "never" => return Reshard::Never,
        Value::Bool(true) => return Reshard::Always,
        Value::Bool(false) => return Reshard::Never,
        Value::Number(size) => {
            // FSDP2 refuses 1: that is `never`.
            if let Some(size @ 2..=1_048_576) = size.as_u64() {
                return Reshard::To(size);
            }
        }
        _ => {}
    }
    fill.findings.push(
        Finding::error(
            "layout.fsdp.reshard_after_forward",
            clip(&value.to_string()),
            "reshard_after_forward must be default, always, never, or a group size from 2 that divides the sharding group",
        )
        .rule("torch fully_shard")
        .nearest(["default", "always", "never"]),
    );
    Reshard::Default
}

/// Reads `layout.tp_plan`: null, `hf`, or a map from module pattern to style.
pub(super) fn fill_tp_plan(fill: &mut Filler<'_>, layout: &LayoutFile) -> TpPlanSource {
    let field = "layout.tp_plan";
    if let Some(path) = &layout.tp_plan_path {
        fill.findings.push(
            Finding::error(
                "layout.tp_plan_path",
                clip(path),
                "only the command line reads layout.tp_plan_path; paste the file's content as layout.tp_plan",
            )
            .rule("plan file, version 1"),
        );
    }
    let map = match &layout.tp_plan {
        None | Some(Value::Null) => return TpPlanSource::Own,
        Some(Value::String(name)) if name == "hf" => return TpPlanSource::HuggingFace,
        Some(Value::Object(map)) if !map.is_empty() && map.len() <= MAX_PLAN_ENTRIES => map,
        Some(other) => {
            fill.findings.push(
                Finding::error(
                    field,
                    clip(&other.to_string()),
                    "tp_plan takes three forms: null for the runtime's own plan, \"hf\" for the plan of the model's class, or a map from module pattern to style, such as {\"model.layers.*.mlp.up_proj\": \"colwise\"}",
                )
                .rule("forms of a tensor-parallel plan")
                .nearest([Value::Null, Value::from("hf")]),
            );
            return TpPlanSource::Own;
        }
    };
    let mut entries = Vec::new();
    for (pattern, style) in map {
        match style.as_str().and_then(Style::parse_own) {
            Some(style) => entries.push((pattern.clone(), style)),
            None => {
                let named = style.as_str().map_or_else(|| style.to_string(), str::to_owned);
                let near = nearest_names(&named, Style::NAMES, 2);
                fill.findings.push(
                    Finding::error(
                        field,
                        clip(&named),
                        format!(
                            "style `{}` of `{}` is unknown; known are {} and ep_*",
                            clip(&named),
                            clip(pattern),
                            Style::NAMES.join(", ")
                        ),
                    )
                    .rule("styles of tensor-parallel plans")
                    .nearest(near),
                );
            }
        }
    }
    TpPlanSource::Map(entries)
}
