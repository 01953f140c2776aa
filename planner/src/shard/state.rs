//! In which types an element's optimizer state is kept: the one rule for what memory sums and for what a rank lists.

use crate::plan::Plan;
use crate::settings::OptimizerKind;
use crate::units::{Dtype, LowPrecision};

/// Types of the state of one element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateTypes {
    /// Type of the master weight; none when the weight itself serves (fp32 and fp64 training, and bf16 where nothing is kept beside it).
    pub master: Option<Dtype>,
    /// Whether of an fp32 master only the lower half is kept, the upper one being the bf16 weight.
    pub master_remainder: bool,
    /// Type of the first moment.
    pub first_moment: Dtype,
    /// Type of the second moment, where there is one.
    pub second_moment: Option<Dtype>,
}

/// Bytes of a master weight, of which the upper half may be the weight itself.
pub(super) fn master_bytes(master: Option<Dtype>, remainder: bool) -> u64 {
    master.map_or(0, |dtype| if remainder { dtype.size() / 2 } else { dtype.size() })
}

/// Whether Megatron-Core keeps the fp32 master weights of a precision-aware optimizer and hands it gradients in fp32, as it
/// does for 8-bit weights that are cast from them (`use_precision_aware_optimizer_no_fp8_or_ds_fp8` of its
/// `optimizer_config.py`, when that is off).
pub(crate) fn core_keeps_master(plan: &Plan) -> bool {
    let optimizer = &plan.training.optimizer;
    let cast = matches!(
        plan.training.low_precision,
        Some(LowPrecision::Fp8Current | LowPrecision::Fp8Blockwise | LowPrecision::Mxfp8)
    );
    optimizer.precision_aware
        && optimizer.master_dtype == Dtype::Fp32
        && optimizer.offload_fraction <= 0.0
        && optimizer.core_master.unwrap_or(cast)
}

/// Whether bf16 weights themselves are updated and all state is bf16: NeMo's `distributed_fused_adam` with its `dtype` that of the model,
/// whose weights are not in 8 bits (`store_params` of `megatron_base_model.py`).
pub(crate) fn updates_weights_alone(plan: &Plan) -> bool {
    let training = &plan.training;
    training.optimizer.master_dtype == Dtype::Bf16 && !training.fp8_param_gather && fused_adam(plan)
}

/// Whether NeMo's `distributed_fused_adam` updates a plan's weights.
pub(crate) fn fused_adam(plan: &Plan) -> bool {
    plan.software.updates_by_fused_adam(&plan.training.optimizer)
}

/// Types of the state of an element that `kind` updates, by Megatron-Core's rules and by the worker's.
pub(crate) fn state_types(plan: &Plan, kind: OptimizerKind) -> StateTypes {
    let (training, optimizer) = (&plan.training, &plan.training.optimizer);
    let two_bytes = matches!(training.dtype, Dtype::Bf16 | Dtype::Fp16);
    // The worker keeps masters in fp32, and moments in the gradient's type or wider.
    let wide = if training.grad_dtype.size() >= 4 { training.grad_dtype } else { Dtype::Fp32 };
    let as_said = plan.runtime.facts().state_as_said;
    let (master, first, second) = match as_said {
        true => (optimizer.master_dtype, optimizer.exp_avg_dtype, optimizer.exp_avg_sq_dtype),
        false => (Dtype::Fp32, wide, wide),
    };
    // With bf16 weights an fp32 master keeps only the lower half, which the weights lack (`store_param_remainders`): TransformerEngine's
    // optimizer, and the one that NeMo had before Megatron-Core's.
    let halves = optimizer.precision_aware || fused_adam(plan);
    let remainder = as_said
        && two_bytes
        && halves
        && master == Dtype::Fp32
        && !training.fp8_param_gather
        && !core_keeps_master(plan);
    StateTypes {
        master: (two_bytes && !updates_weights_alone(plan)).then_some(master),
        master_remainder: remainder,
        first_moment: first,
        second_moment: (kind.moments() > 1).then_some(second),
    }
}
