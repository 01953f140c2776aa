//! The training settings that a command line describes.

use serde_json::{Map, Value, json};

use super::super::Arguments;
use super::{Job, names};
use crate::model::Architecture;
use crate::wire::{AttentionBackend, Precision};

/// The training section of a plan file.
///
/// # Errors
/// What can't be read, as a sentence.
pub fn training(
    arguments: &mut Arguments,
    job: &Job<'_>,
    model: &Architecture,
    fsdp: bool,
) -> Result<Map<String, Value>, String> {
    let mut section = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            section.insert(name.to_owned(), value);
        }
    };
    set("seq_len", arguments.number("seq-length")?.or(arguments.number("encoder-seq-length")?).into());
    let sequences = arguments.number("micro-batch-size")?.unwrap_or(1);
    set("micro_batch_size", sequences.into());
    set("global_batch_size", arguments.number("global-batch-size")?.into());
    set("mtp_layers", model.mtp_layers.into());
    let (bf16, fp16) = (arguments.flag("bf16"), arguments.flag("fp16"));
    set("dtype", precision(arguments, bf16, fp16)?);
    let low = arguments.flag("grad-reduce-in-bf16");
    let wide = arguments.flag("accumulate-allreduce-grads-in-fp32");
    let main_grads = arguments.word("megatron-fsdp-main-grads-dtype");
    let grad = match (bf16, fp16) {
        // Main gradients of Megatron-FSDP follow the parameters unless told otherwise.
        _ if fsdp => main_grads.as_deref().map_or(if bf16 { "bf16" } else { "fp32" }, dtype_name),
        (true, _) if low => "bf16",
        (_, true) if !wide => "fp16",
        _ => "fp32",
    };
    set("grad_dtype", grad.into());
    if arguments.flag("fp8-param-gather") | arguments.flag("fp4-param-gather") {
        set("fp8_param_gather", true.into());
    }
    if arguments.flag("first-last-layers-bf16") {
        set("bf16_first_layers", arguments.number("num-layers-at-start-in-bf16")?.unwrap_or(1).into());
        set("bf16_last_layers", arguments.number("num-layers-at-end-in-bf16")?.unwrap_or(1).into());
    }
    set("optimizer", optimizer(arguments, fsdp)?);
    set("recompute", recompute(arguments)?);
    set("offload", offload(arguments)?);
    set("attention_dropout", arguments.real("attention-dropout")?.unwrap_or(0.1).into());
    set("hidden_dropout", arguments.real("hidden-dropout")?.unwrap_or(0.1).into());
    set("attention_backend", backend(arguments, job).into());
    let local = arguments.word("transformer-impl").as_deref() == Some("local");
    set("implementation", if local { "local" } else { "transformer_engine" }.into());
    let fused = arguments.flag("cross-entropy-loss-fusion");
    let kernel = arguments.word("cross-entropy-fusion-impl");
    let loss = match (fused, kernel.as_deref()) {
        (false, _) => "unfused",
        (true, Some("te")) => "te",
        (true, _) => "native",
    };
    set("cross_entropy", loss.into());
    set("fused_gradient_accumulation", (!arguments.flag("no-gradient-accumulation-fusion")).into());
    cuda_graphs(arguments, &mut set)?;
    let no_p2p = arguments.flag("no-overlap-p2p-communication");
    set(
        "overlap",
        json!({
            "grad_reduce": arguments.flag("overlap-grad-reduce"),
            "param_gather": arguments.flag("overlap-param-gather"),
            "tp": arguments.flag("tp-comm-overlap"),
            "ep": arguments.flag("overlap-moe-expert-parallel-comm"),
            "p2p": !no_p2p,
            "delay_wgrad": arguments.flag("delay-wgrad-compute"),
        }),
    );
    set("moe", moe(arguments, model)?);
    set("attention_mask", (!arguments.flag("no-create-attention-mask-in-dataloader")).into());
    rare(arguments, &mut set)?;
    Ok(section)
}

fn dtype_name(text: &str) -> &'static str {
    names::dtype_of(text).name()
}

fn precision(arguments: &mut Arguments, bf16: bool, fp16: bool) -> Result<Value, String> {
    let recipe = arguments.word("fp8-recipe");
    let fp8 = arguments.word("fp8-format").or(arguments.word("fp8")).is_some();
    let fp4 = arguments.word("fp4-format").or(arguments.word("fp4")).is_some();
    arguments.take("fp4-recipe");
    if fp4 {
        return Ok(Precision::Nvfp4.name().into());
    }
    if fp8 {
        let word = recipe.as_deref().unwrap_or("delayed");
        return names::fp8_precision(word).map(|precision| precision.name().into()).ok_or_else(|| {
            format!("--fp8-recipe is `{word}`; there are delayed, tensorwise, blockwise and mxfp8")
        });
    }
    let plain = if bf16 {
        Precision::Bf16
    } else if fp16 {
        Precision::Fp16
    } else {
        Precision::Fp32
    };
    Ok(plain.name().into())
}

fn optimizer(arguments: &mut Arguments, fsdp: bool) -> Result<Value, String> {
    let name = arguments.word("optimizer").unwrap_or_else(|| "adam".to_owned());
    let layer_wise = name.starts_with("dist_") || arguments.flag("use-layer-wise-distributed-optimizer");
    let kind = match name.trim_start_matches("dist_") {
        "adam" => "adam",
        "sgd" => "sgd",
        "muon" => "muon",
        other => return Err(format!("--optimizer {other} is not planned; there are adam, sgd and muon")),
    };
    let distributed = arguments.flag("use-distributed-optimizer") || layer_wise || fsdp;
    let mut section = json!({"kind": kind, "distributed": distributed});
    let mut set = |name: &str, value: Value| section[name] = value;
    let types = [
        ("main-params-dtype", "master_dtype"),
        ("exp-avg-dtype", "exp_avg_dtype"),
        ("exp-avg-sq-dtype", "exp_avg_sq_dtype"),
    ];
    let aware = arguments.flag("use-precision-aware-optimizer");
    for (option, field) in types {
        if let Some(value) = arguments.word(option).filter(|_| aware) {
            set(field, dtype_name(&value).into());
        }
    }
    if aware {
        set("precision_aware", true.into());
    }
    arguments.take("megatron-fsdp-main-params-dtype");
    arguments.take("megatron-fsdp-grad-comm-dtype");
    let fraction = arguments.real("optimizer-offload-fraction")?.unwrap_or(1.0);
    if arguments.flag("optimizer-cpu-offload") {
        set("offload_fraction", fraction.into());
    }
    if let Some(instances) =
        arguments.number("num-distributed-optimizer-instances")?.filter(|&count| count > 1)
    {
        set("instances", instances.into());
    }
    Ok(section)
}

fn recompute(arguments: &mut Arguments) -> Result<Value, String> {
    let simple = arguments.flag("recompute-activations");
    let granularity = arguments.word("recompute-granularity");
    // An older name for one of the modules.
    let experts = arguments.flag("moe-layer-recompute");
    let modules = arguments.take("recompute-modules");
    let method = arguments.word("recompute-method");
    let layers = arguments.number("recompute-num-layers")?;
    let split = arguments.flag("distribute-saved-activations");
    Ok(match granularity.as_deref() {
        Some("full") if layers == Some(0) => json!({"granularity": "none"}),
        Some("full") if split => json!({
            "granularity": "full", "method": method, "num_layers": layers, "distribute_saved_activations": true
        }),
        Some("full") => json!({"granularity": "full", "method": method, "num_layers": layers}),
        Some("selective") => {
            let mut modules = modules.unwrap_or_else(|| vec!["core_attn".to_owned()]);
            if experts && !modules.iter().any(|module| module == "moe") {
                modules.push("moe".to_owned());
            }
            json!({"granularity": "selective", "modules": modules})
        }
        None if experts => json!({"granularity": "selective", "modules": ["moe"]}),
        None if simple => json!({"granularity": "selective", "modules": ["core_attn"]}),
        _ => json!({"granularity": "none"}),
    })
}

fn offload(arguments: &mut Arguments) -> Result<Value, String> {
    let on = arguments.flag("fine-grained-activation-offloading");
    let modules = arguments.take("offload-modules").unwrap_or_default();
    let fraction = arguments.real("activation-offload-fraction")?.unwrap_or(1.0);
    Ok(if on && !modules.is_empty() {
        json!({"modules": modules, "fraction": fraction})
    } else {
        Value::Null
    })
}

/// What plans seldom say, and only when it is not the default.
fn rare(arguments: &mut Arguments, set: &mut impl FnMut(&str, Value)) -> Result<(), String> {
    if arguments.flag("deterministic-mode") {
        set("deterministic", true.into());
    }
    if arguments.flag("no-masked-softmax-fusion") {
        set("fused_softmax", false.into());
    }
    let limit = arguments.number("wgrad-deferral-limit")?.unwrap_or(0);
    if arguments.flag("defer-embedding-wgrad-compute") {
        set("deferred_head_gradients", limit.into());
    }
    Ok(())
}

/// The kernel, from the option or from TransformerEngine's variables.
fn backend(arguments: &mut Arguments, job: &Job<'_>) -> &'static str {
    let off = |name: &str| job.variable(name) == Some("0");
    let flash = arguments.flag("use-flash-attn");
    let said = arguments.word("attention-backend").and_then(|word| names::backend_of(&word));
    match said.filter(|backend| *backend != AttentionBackend::Auto) {
        Some(backend) => backend.name(),
        None if flash => "flash",
        None => match (off("NVTE_FLASH_ATTN"), off("NVTE_FUSED_ATTN")) {
            (true, true) => "unfused",
            (true, false) => "fused",
            (false, true) => "flash",
            (false, false) => "auto",
        },
    }
}

fn cuda_graphs(arguments: &mut Arguments, set: &mut impl FnMut(&str, Value)) -> Result<(), String> {
    let kind = arguments.word("cuda-graph-impl");
    let modules = arguments.take("cuda-graph-modules").or_else(|| arguments.take("cuda-graph-scope"));
    let old = arguments.flag("enable-cuda-graph") | arguments.flag("external-cuda-graph");
    let whole =
        modules.as_ref().is_some_and(|modules| modules.iter().any(|module| module == "full_iteration"));
    let found = match kind.as_deref() {
        Some("full_iteration") => "iteration",
        Some("local" | "transformer_engine") if whole => "iteration",
        Some("local" | "transformer_engine") => "scoped",
        None if old => "scoped",
        _ => return Ok(()),
    };
    set("cuda_graphs", found.into());
    if found == "scoped" {
        set("cuda_graph_modules", modules.unwrap_or_default().into());
    }
    Ok(())
}

fn moe(arguments: &mut Arguments, model: &Architecture) -> Result<Value, String> {
    let deepep = arguments.flag("moe-enable-deepep");
    let kind = arguments.word("moe-token-dispatcher-type");
    let backend = arguments.word("moe-flex-dispatcher-backend");
    let capacity = arguments.real("moe-expert-capacity-factor")?.filter(|&factor| factor >= 0.0);
    let padded = arguments.flag("moe-pad-expert-input-to-capacity");
    let grouped = arguments.flag("moe-grouped-gemm");
    let permute = arguments.flag("moe-permute-fusion");
    let fuser = arguments.flag("use-transformer-engine-op-fuser");
    let squared = arguments.flag("use-fused-weighted-squared-relu");
    let overlap = arguments.flag("moe-shared-expert-overlap");
    let loose = arguments.flag("no-bias-swiglu-fusion") && model.gated;
    // Neither the interleaved order nor TransformerEngine's own activation goes with the fused product.
    let apart =
        arguments.take("moe-mlp-glu-interleave-size").is_some() | arguments.flag("use-te-activation-func");
    if model.moe.is_none() {
        return Ok(if loose { json!({"fused_activation": false}) } else { Value::Null });
    }
    let dispatcher = match kind.as_deref() {
        Some("alltoall") => "alltoall",
        Some("flex") => "flex",
        _ if deepep => "flex",
        _ => "allgather",
    };
    let mut section = json!({
        "dispatcher": dispatcher,
        "grouped_gemm": grouped,
        "permute_fusion": permute,
        "pad_to_capacity": padded,
        "fused_activation": (model.gated && !loose && !apart) || squared || fuser,
        "shared_expert_overlap": overlap,
    });
    if let Some(capacity) = capacity {
        section["capacity_factor"] = capacity.into();
    }
    if dispatcher == "flex" {
        section["backend"] =
            backend.filter(|name| name == "hybridep").map_or("deepep", |_| "hybridep").into();
    }
    Ok(section)
}
