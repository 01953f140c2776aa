//! The layout that a command line describes.

use serde_json::{Map, Value, json};

use super::super::Arguments;
use super::names;
use crate::model::Architecture;

/// The layout section of a plan file.
pub struct Described {
    /// The section.
    pub section: Map<String, Value>,
    /// Whether Megatron-FSDP shards the parameters.
    pub fsdp: bool,
}

/// Reads the layout; `stages` are the layers of each stage, where the model's pattern says so.
///
/// # Errors
/// What can't be read, as a sentence.
pub fn layout(
    arguments: &mut Arguments,
    model: &Architecture,
    stages: Option<Vec<u64>>,
) -> Result<Described, String> {
    let mut section = Map::new();
    let mut set = |name: &str, value: Value| {
        if !value.is_null() {
            section.insert(name.to_owned(), value);
        }
    };
    let tp = arguments.number("tensor-model-parallel-size")?.unwrap_or(1).max(1);
    let sp = arguments.flag("sequence-parallel") && tp > 1;
    let pipeline = arguments.word("pipeline-model-parallel-layout");
    let cuts = stages.as_ref().map(|stages| stages.len() as u64);
    let pp = arguments.number("pipeline-model-parallel-size")?.or(cuts).unwrap_or(1).max(1);
    let given = arguments.number("expert-tensor-parallel-size")?;
    let etp = given.unwrap_or(tp);
    set("tp", tp.into());
    set("sp", sp.into());
    set("pp", pp.into());
    set("cp", arguments.number("context-parallel-size")?.into());
    set("ep", arguments.number("expert-model-parallel-size")?.into());
    // Of a model without experts the expert grid is the dense one, unless it is said.
    set("etp", if model.moe.is_some() || given.is_some() { etp.into() } else { Value::Null });
    set("cp_kind", cp_kind(arguments)?);
    let per_chunk = arguments.number("num-layers-per-virtual-pipeline-stage")?;
    let vpp = match (arguments.number("num-virtual-stages-per-pipeline-rank")?, per_chunk) {
        (Some(vpp), _) => Some(vpp),
        (None, Some(layers)) if layers > 0 => Some((model.num_layers / pp / layers).max(1)),
        _ => None,
    };
    set("first_stage_layers", arguments.number("decoder-first-pipeline-num-layers")?.into());
    set("last_stage_layers", arguments.number("decoder-last-pipeline-num-layers")?.into());
    for (name, field) in [
        ("account-for-embedding-in-pipeline-split", "account_for_embedding"),
        ("account-for-loss-in-pipeline-split", "account_for_loss"),
    ] {
        if arguments.flag(name) {
            set(field, true.into());
        }
    }
    match (pipeline, stages) {
        (Some(text), _) => set("pipeline_layout", text.into()),
        (None, Some(stages)) => {
            set("pipeline_layout", layout_string(&stages, model.mtp_layers).into());
        }
        (None, None) => set("vpp", vpp.into()),
    }
    set(
        "microbatch_group_size",
        arguments.number("microbatch-group-size-per-virtual-pipeline-stage")?.into(),
    );
    if arguments.flag("use-tp-pp-dp-mapping") {
        set("order", "tp-cp-ep-pp-dp".into());
    }
    let unpadded = arguments.flag("no-pad-vocab-size") | arguments.flag("disable-pad-vocab-size");
    let multiple = arguments.number("make-vocab-size-divisible-by")?;
    set("vocab_divisible_by", if unpadded { 1.into() } else { multiple.into() });
    let fsdp = arguments.flag("use-megatron-fsdp") | arguments.flag("use-custom-fsdp");
    let strategy = arguments.word("data-parallel-sharding-strategy");
    let outer = arguments.word("outer-dp-sharding-strategy");
    // Registered buffers are the double ones (Megatron-LM `validate_args`).
    let registered = fsdp && arguments.flag("use-nccl-ub");
    let double = arguments.flag("fsdp-double-buffer") | registered;
    let unit = arguments.number("suggested-communication-unit-size")?;
    let transposed = arguments.flag("keep-fp8-transpose-cache");
    if fsdp {
        // Its instances are the replicas between which it shards nothing, or optimizer state alone.
        set("dp_replicate", arguments.number("num-distributed-optimizer-instances")?.into());
        set(
            "fsdp",
            json!({
                "strategy": strategy.unwrap_or_else(|| "optim_grads_params".to_owned()),
                "outer_strategy": outer.unwrap_or_else(|| "no_shard".to_owned()),
                "double_buffer": double, "nccl_ub": registered, "communication_unit": unit,
                "keep_fp8_transpose": transposed, "init_meta": arguments.flag("init-model-with-meta-device"),
            }),
        );
    }
    Ok(Described { section, fsdp })
}

fn cp_kind(arguments: &mut Arguments) -> Result<Value, String> {
    let Some(word) = arguments.word("cp-comm-type") else { return Ok(Value::Null) };
    match names::cp_kind(&word) {
        Some(kind) => Ok(kind.name().into()),
        None => Err(format!("--cp-comm-type is `{word}`; there are p2p, a2a, allgather and a2a+p2p")),
    }
}

/// Stages of so many layers each, as Megatron writes a layout.
fn layout_string(stages: &[u64], modules: u64) -> String {
    let mut text = String::from("E");
    for (number, layers) in stages.iter().enumerate() {
        if number > 0 {
            text.push('|');
        }
        text.push_str(&format!("t*{layers}"));
    }
    for _ in 0..modules {
        text.push('m');
    }
    text.push('L');
    text
}
