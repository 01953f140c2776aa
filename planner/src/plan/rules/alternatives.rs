//! Values worth trying for a setting that breaks a rule: nearest values are found by the rules themselves.

use serde_json::Value;

use crate::finding::divisors;
use crate::layout::Shape;
use crate::plan::Training;
use crate::settings::{
    CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Implementation, OptimizerKind, Precision,
};
use crate::units::Dtype;

/// A value of a field, and the settings with it.
type Alternative = (Value, Training);

/// Other values of `field`, the likeliest first; none for a field that has no such list.
pub(crate) fn alternatives(shape: &Shape<'_>, field: &str) -> Vec<Alternative> {
    let training = shape.training;
    match field {
        "training.dtype" => each(
            training,
            &Precision::ALL,
            |precision| precision.name(),
            |training, precision| {
                training.dtype = precision.dtype();
                training.low_precision = precision.low_precision();
            },
        ),
        "training.grad_dtype" => {
            each(training, &DTYPES, |dtype| dtype.name(), |training, dtype| training.grad_dtype = dtype)
        }
        "training.optimizer.master_dtype" => each(
            training,
            &DTYPES,
            |dtype| dtype.name(),
            |training, dtype| training.optimizer.master_dtype = dtype,
        ),
        "training.optimizer.exp_avg_dtype" => each(
            training,
            &DTYPES,
            |dtype| dtype.name(),
            |training, dtype| training.optimizer.exp_avg_dtype = dtype,
        ),
        "training.optimizer.exp_avg_sq_dtype" => each(
            training,
            &DTYPES,
            |dtype| dtype.name(),
            |training, dtype| {
                training.optimizer.exp_avg_sq_dtype = dtype;
            },
        ),
        "training.optimizer.kind" => {
            let kinds = [OptimizerKind::Adam, OptimizerKind::Sgd, OptimizerKind::Muon];
            each(training, &kinds, |kind| kind.name(), |training, kind| training.optimizer.kind = kind)
        }
        "training.optimizer.offload_fraction" => {
            number(training, [0], |training, _| training.optimizer.offload_fraction = 0.0)
        }
        "training.optimizer.instances" => {
            let sizes = divisors(shape.dp().unwrap_or(1));
            let at = training.optimizer.instances;
            number(training, crate::finding::nearest_values(at, sizes, 8), |training, size| {
                training.optimizer.instances = size;
            })
        }
        "training.bf16_first_layers" => {
            let most = shape.architecture.num_layers / shape.layout.pp.max(1);
            number(training, [most, 0], |training, layers| training.bf16_first_layers = layers)
        }
        "training.bf16_last_layers" => {
            let most = shape.architecture.num_layers / shape.layout.pp.max(1);
            number(training, [most, 0], |training, layers| training.bf16_last_layers = layers)
        }
        "training.offload.layers" => {
            let most = shape.architecture.num_layers.saturating_sub(1);
            number(training, [most, 0], |training, layers| training.offload.layers = layers)
        }
        "training.moe.dispatcher" => {
            let all = [Dispatcher::AllToAll, Dispatcher::AllGather, Dispatcher::Flex];
            each(
                training,
                &all,
                |dispatcher| dispatcher.name(),
                |training, dispatcher| {
                    training.moe.dispatcher = dispatcher;
                },
            )
        }
        "training.moe.backend" => {
            let all = [FlexBackend::DeepEp, FlexBackend::HybridEp];
            each(training, &all, |backend| backend.name(), |training, backend| training.moe.backend = backend)
        }
        "training.cross_entropy" => {
            let all = [CrossEntropy::Unfused, CrossEntropy::Native, CrossEntropy::Te];
            each(training, &all, |kernel| kernel.name(), |training, kernel| training.cross_entropy = kernel)
        }
        "training.implementation" => {
            let all = [Implementation::TransformerEngine, Implementation::Local];
            each(training, &all, |name| name.name(), |training, name| training.implementation = name)
        }
        "training.cuda_graphs" => {
            let all = [CudaGraphs::None, CudaGraphs::Scoped, CudaGraphs::Iteration];
            each(training, &all, |graphs| graphs.name(), |training, graphs| training.cuda_graphs = graphs)
        }
        "training.recompute.granularity" => {
            use crate::settings::Granularity::{Full, None, Selective};
            each(
                training,
                &[Selective, None, Full],
                |granularity| granularity.name(),
                |training, granularity| {
                    training.recompute = granularity;
                },
            )
        }
        _ => switch(training, field),
    }
}

const DTYPES: [Dtype; 5] = [Dtype::Fp32, Dtype::Bf16, Dtype::Fp16, Dtype::Fp64, Dtype::Fp8];

fn each<T: Copy>(
    training: &Training,
    values: &[T],
    name: impl Fn(T) -> &'static str,
    set: impl Fn(&mut Training, T),
) -> Vec<Alternative> {
    let changed = |value: &T| {
        let mut training = training.clone();
        set(&mut training, *value);
        (Value::from(name(*value)), training)
    };
    values.iter().map(changed).collect()
}

fn number(
    training: &Training,
    values: impl IntoIterator<Item = u64>,
    set: impl Fn(&mut Training, u64),
) -> Vec<Alternative> {
    let changed = |value: u64| {
        let mut training = training.clone();
        set(&mut training, value);
        (Value::from(value), training)
    };
    values.into_iter().map(changed).collect()
}

/// The other position of a switch.
fn switch(training: &Training, field: &str) -> Vec<Alternative> {
    let mut changed = training.clone();
    let slot = match field {
        "training.fp8_param_gather" => &mut changed.fp8_param_gather,
        "training.fp8_attention" => &mut changed.fp8_attention,
        "training.fp8_output" => &mut changed.fp8_output,
        "training.optimizer.distributed" => &mut changed.optimizer.distributed,
        "training.optimizer.precision_aware" => &mut changed.optimizer.precision_aware,
        "training.recompute.distribute_saved_activations" => &mut changed.distribute_saved_activations,
        "training.fused_gradient_accumulation" => &mut changed.fused_gradient_accumulation,
        "training.overlap.grad_reduce" => &mut changed.overlap.grad_reduce,
        "training.overlap.param_gather" => &mut changed.overlap.param_gather,
        "training.overlap.tp" => &mut changed.overlap.tp,
        "training.overlap.ep" => &mut changed.overlap.ep,
        "training.overlap.p2p" => &mut changed.overlap.p2p,
        "training.overlap.delay_wgrad" => &mut changed.overlap.delay_wgrad,
        "training.moe.pad_to_capacity" => &mut changed.moe.pad_to_capacity,
        "training.moe.grouped_gemm" => &mut changed.moe.grouped_gemm,
        "training.moe.shared_expert_overlap" => &mut changed.moe.shared_expert_overlap,
        _ => return Vec::new(),
    };
    *slot = !*slot;
    let value = Value::from(*slot);
    vec![(value, changed)]
}
