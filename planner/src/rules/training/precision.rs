//! Types of values: low-precision recipes, what they need of sizes, model and GPU, and gradients.

use super::is_megatron;
use crate::model::{Module, Role};
use crate::rules::{Broken, Shape};
use crate::settings::Implementation;
use crate::units::{Dtype, LowPrecision};

const FIELD: &str = "training.dtype";
const GATHER: &str = "training.fp8_param_gather";
const BLOCK_RULE: &str =
    "matrices and tokens of a rank come in whole blocks of the recipe (TransformerEngine quantizers)";

/// What a matrix's rows and columns must be multiples of.
fn block(recipe: LowPrecision) -> (u64, u64) {
    match recipe {
        LowPrecision::Mxfp8 => (32, 32),
        LowPrecision::Nvfp4 => (16, 16),
        LowPrecision::Fp8Delayed | LowPrecision::Fp8Current | LowPrecision::Fp8Blockwise => (8, 16),
    }
}

pub(super) fn with_layout(shape: &Shape<'_>, broken: &mut Broken) {
    let Some(recipe) = shape.training.low_precision else { return };
    let (layout, training) = (&shape.layout, shape.training);
    if !is_megatron(shape) || layout.tp == 0 || layout.cp == 0 || layout.etp == 0 {
        return;
    }
    if let Some(most) = shape.architecture.num_layers.checked_div(layout.pp) {
        for (field, layers) in [
            ("training.bf16_first_layers", training.bf16_first_layers),
            ("training.bf16_last_layers", training.bf16_last_layers),
        ] {
            let rule = "layers left in bf16 are on one pipeline stage (Megatron-Core transformer_config)";
            broken.require(layers <= most, field, layers, rule, || {
                format!("{layers} layers are left in bf16, and at pp {} a stage has {most}", layout.pp)
            });
        }
    }
    let (rows, columns) = block(recipe);
    let fits = |value: u64, unit: u64| value.is_multiple_of(unit);
    let name = recipe.name();
    let tokens = shape.seq_len.saturating_mul(shape.micro_batch_size)
        / layout.cp
        / if layout.sp { layout.tp } else { 1 };
    broken.require(fits(tokens, rows), "training.seq_len", shape.seq_len, BLOCK_RULE, || {
        format!("{name} takes tokens in multiples of {rows}, and a rank has {tokens} of a micro batch")
    });
    let mut wrong = None;
    for (kind, _) in shape.architecture.layer_kinds() {
        for parameter in shape.architecture.layer_parameters(kind) {
            let quantized = matches!(
                parameter.module,
                Module::Attention | Module::Mlp | Module::Expert | Module::SharedExpert
            );
            // Convolutions of recurrent mixers are no matrices of TransformerEngine's, and a gate of one row is multiplied by torch.
            if !quantized
                || parameter.shape.first() == Some(&1)
                || parameter.shape.len() < 2
                || !parameter.decays
                || parameter.is_convolution()
            {
                continue;
            }
            let local = &parameter.shape;
            let (axis, dim) = match parameter.role {
                Role::Column(dim) | Role::Row(dim) => (layout.tp, dim),
                Role::ExpertColumn(dim) | Role::ExpertRow(dim) => (layout.etp, dim),
                Role::Qkv => (layout.tp, 0),
                Role::Vocabulary | Role::Replicated | Role::SharedByHeads => (1, 0),
            };
            // Fewer kv groups than ranks are cut through; the product is what counts.
            let cut =
                local[dim].saturating_mul(if parameter.role == Role::Qkv { local[1] * local[2] } else { 1 });
            if !cut.is_multiple_of(axis) {
                continue; // the rule of that axis says so
            }
            // What a matrix gives is before what it takes: heads and their width are what an output projection takes.
            let takes = match parameter.role {
                Role::Row(dim) | Role::ExpertRow(dim) => dim,
                _ => local.len() - 1,
            };
            let (gives, takes) = local.split_at(takes);
            let (all, last) = (gives.iter().product::<u64>(), takes.iter().product::<u64>());
            let (height, width) = if dim >= gives.len() { (all, last / axis) } else { (all / axis, last) };
            if !(fits(height, rows) && fits(width, columns)) && wrong.is_none() {
                wrong = Some((
                    parameter.name.replace("layers.{layer}.", "").replace(".{expert}", ""),
                    height,
                    width,
                ));
            }
        }
    }
    if let Some((matrix, height, width)) = wrong {
        broken.require(false, FIELD, name, BLOCK_RULE, || {
            format!("{name} takes matrices in blocks of {rows} x {columns}, and a rank's {matrix} is {height} x {width}")
        });
    }
}

pub(super) fn alone(shape: &Shape<'_>, broken: &mut Broken) {
    let training = shape.training;
    let exact = matches!(training.dtype, Dtype::Fp32 | Dtype::Fp64);
    let rule = "gradients are at least as exact as what is trained in";
    let wide = !exact || training.grad_dtype.size() >= training.dtype.size();
    broken.require(wide, "training.grad_dtype", training.grad_dtype.name(), rule, || {
        format!("gradients of {} training can't be {}", training.dtype.name(), training.grad_dtype.name())
    });
    let recipe = training.low_precision;
    let rule =
        "parameters are kept in 8 or 4 bits only with such a recipe (Megatron-Core transformer_config)";
    broken.require(!training.fp8_param_gather || recipe.is_some(), GATHER, true, rule, || {
        "fp8_param_gather needs a recipe of 8 or 4 bits, and training.dtype names none".to_owned()
    });
    let rule = "attention and output layer are in 8 or 4 bits only with such a recipe (Megatron-Core transformer_config)";
    for (field, set) in
        [("training.fp8_attention", training.fp8_attention), ("training.fp8_output", training.fp8_output)]
    {
        broken.require(!set || recipe.is_some(), field, true, rule, || {
            format!("{field} needs a recipe of 8 or 4 bits, and training.dtype names none")
        });
    }
    let rule = "fp8 parameters need the distributed optimizer or FSDP (Megatron-LM validate_args)";
    let facts = shape.runtime.facts();
    let sharded = !facts.trains_megatron_core || facts.shards_parameters || training.optimizer.distributed;
    broken.require(!training.fp8_param_gather || sharded, GATHER, true, rule, || {
        "fp8_param_gather needs the distributed optimizer, which is off".to_owned()
    });
    let Some(recipe) = recipe else { return };
    let name = recipe.name();
    let taken = facts.low_precision.contains(&recipe);
    let rule = "recipes of a runtime: megatron and megatron_fsdp all (TransformerEngine), fsdp2 fp8_current and mxfp8 (torchao), native none";
    broken.require(taken, FIELD, name, rule, || {
        format!("runtime {} has no GEMMs of the recipe {name}", shape.runtime.name())
    });
    if let Some(speeds) = &shape.gpu.speeds {
        let peak = if recipe.bits() == 4 { speeds.fp4_tflops } else { speeds.fp8_tflops };
        // Scales per 32 values came to NVIDIA's tensor cores together with 4 bits.
        let blocks = recipe != LowPrecision::Mxfp8 || speeds.fp4_tflops.is_some();
        let rule = "GEMMs of the recipe need tensor cores of that type (GPU catalogue)";
        broken.require(peak.is_some() && blocks, FIELD, name, rule, || {
            format!("{} has no tensor cores for {name}", shape.gpu.title)
        });
    }
    if !is_megatron(shape) {
        return;
    }
    let rule = "low precision needs TransformerEngine's layers (Megatron-LM)";
    broken.require(training.implementation == Implementation::TransformerEngine, FIELD, name, rule, || {
        format!("{name} needs implementation transformer_engine, and it is local")
    });
    for (field, layers) in [
        ("training.bf16_first_layers", training.bf16_first_layers),
        ("training.bf16_last_layers", training.bf16_last_layers),
    ] {
        let rule = "delayed scaling leaves no layers in bf16 (Megatron-Core transformer_config)";
        broken.require(recipe != LowPrecision::Fp8Delayed || layers == 0, field, layers, rule, || {
            format!("{name} can't leave {layers} layers in bf16; another recipe can")
        });
    }
    for mixer in shape.architecture.mixers() {
        if let Some(mamba) = mixer.mamba()
            && recipe.bits() == 8
        {
            let inner = mamba.heads * mamba.head_dim;
            let width = 2 * inner + 2 * mamba.groups * mamba.state + mamba.heads;
            let rule = "the width of Mamba's first projection is a multiple of 16 in 8 bits (Megatron-Core mamba_mixer)";
            broken.require(width.is_multiple_of(16), FIELD, name, rule, || {
                format!("Mamba's first projection is {width} wide, which is not a multiple of 16")
            });
        }
    }
}
