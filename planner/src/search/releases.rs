//! What a search that chooses leaves out for an older release of Megatron-LM that a plan names, from tags core_v0.9.0 to core_v0.16.0
//! (`megatron/training/arguments.py`): a plan would be timed with what its script leaves out. What a plan says itself stays, and the script speaks
//! of it: what people call a release was often one in the making, which had it.

use serde_json::Value;

use crate::plan::Plan;
use crate::settings::FlexBackend;

/// Paths of axes, a value of each, and the minor number of the first release that has it.
pub const SINCE: [(&str, &str, u32); 10] = [
    ("layout.cp_kind", "all_gather", 10),
    ("layout.cp_kind", "a2a", 10),
    ("training.cuda_graphs", "iteration", 15),
    ("training.dtype", "fp8_current", 12),
    ("training.dtype", "fp8_blockwise", 13),
    ("training.dtype", "mxfp8", 12),
    ("training.moe.dispatcher", "flex", 12),
    ("training.optimizer.offload_fraction", "0.5", 12),
    ("training.optimizer.offload_fraction", "1.0", 12),
    ("training.overlap.ep", "true", 14),
];
/// The first release with HybridEP behind that dispatcher.
const HYBRID_EP: u32 = 16;

/// Whether the release that a plan names has a value of an axis, as far as is known.
pub(super) fn has(plan: &Plan, path: &str, value: &Value) -> bool {
    let Some(release) = plan.software.megatron_release else { return true };
    let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let hybrid = word == "flex" && plan.training.moe.backend == FlexBackend::HybridEp;
    SINCE
        .iter()
        .filter(|(of, one, _)| (*of, *one) == (path, word.as_str()))
        .all(|(.., first)| release >= if hybrid { HYBRID_EP } else { *first })
}
