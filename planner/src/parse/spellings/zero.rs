//! ZeRO's stages, where the runtime has exactly such a split.

use serde_json::Value;

use super::counts::Count;
use super::values::DEEPSPEED;
use super::{Spelled, at, fold, numbers};
use crate::finding::clip;

/// Settles what a file says of ZeRO.
pub(super) fn settle(spelled: &mut Spelled) {
    let (zero, rest): (Vec<_>, Vec<_>) =
        std::mem::take(&mut spelled.counts).into_iter().partition(|said| said.kind == Count::Zero);
    spelled.counts = rest;
    for said in zero {
        let runtime = at(&spelled.root, "runtime").and_then(Value::as_str).map(str::to_owned);
        let path = clip(&said.path);
        let Some(stage) = stage(&said.value) else {
            let message = format!("`{path}` is no stage of ZeRO: {DEEPSPEED}");
            spelled.refuse(&path, &said.value, message);
            continue;
        };
        let split: Option<(&str, Value)> = match (runtime.as_deref(), stage) {
            (Some("megatron" | "native"), 0 | 1) => {
                Some(("training.optimizer.distributed", (stage == 1).into()))
            }
            (Some("megatron_fsdp"), _) => {
                let levels = ["no_shard", "optim", "optim_grads", "optim_grads_params"];
                levels.get(stage as usize).map(|level| ("layout.fsdp.strategy", (*level).into()))
            }
            (Some("fsdp2"), 3) => Some(("runtime", "fsdp2".into())),
            (Some("fsdp2"), 2) => {
                let message = format!(
                    "`{path}` is 2: write layout.fsdp.reshard_after_forward never, which keeps parameters from forward to backward, or runtime megatron_fsdp with layout.fsdp.strategy optim_grads"
                );
                spelled.refuse(&path, &said.value, message);
                continue;
            }
            _ => None,
        };
        match split {
            Some((field, value)) => {
                spelled.set(field, value.clone(), &format!("ZeRO {stage}"));
                let message = format!("ZeRO {stage} is read as {field} {value}");
                spelled.remark(field, &said.value, &value, message);
            }
            None => {
                let message = format!("`{path}` is ZeRO {stage}: {DEEPSPEED}");
                spelled.refuse(&path, &said.value, message);
            }
        }
    }
}

/// A stage: 2, "2", "zero-2", {"stage": 2}.
fn stage(value: &Value) -> Option<u64> {
    let value = value.get("stage").unwrap_or(value);
    let text = value.as_str().map(fold);
    let bare =
        text.as_deref().map(|text| Value::from(text.trim_start_matches("zero").trim_start_matches("stage")));
    numbers::whole(bare.as_ref().unwrap_or(value)).filter(|stage| *stage <= 3)
}
