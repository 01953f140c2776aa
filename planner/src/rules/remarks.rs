//! What is worth saying of training settings besides broken rules: what has no effect, and what is not computed yet.

use serde_json::{Value, json};

use super::layout::broken_at;
use super::shape::Shape;
use crate::finding::Finding;
use crate::plan::{Optimizer, Plan};
use crate::runtime::{Counted, Readers};
use crate::settings::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, Granularity, OfRow, OptimizerKind, Precision,
    Usual,
};
use crate::software::Product;
use crate::units::LowPrecision;
use crate::wire::{DataFile, Given, Part, PlanFile, Setting};

/// Remarks on the settings of a filled plan.
pub(crate) fn remarks(plan: &Plan) -> Vec<Finding> {
    let mut findings = Vec::new();
    let training = &plan.training;
    let bridge =
        plan.software.named.is_some_and(|named| matches!(named.product, Product::Bridge | Product::Nemo));
    if training.cross_entropy == CrossEntropy::Te
        && Setting::is_counted("training.cross_entropy", plan.runtime.facts())
        && !bridge
    {
        findings.push(
            Finding::warning(
                "training.cross_entropy",
                "te",
                "recent Megatron-LM refuses TransformerEngine's loss kernel as unstable; older ones and Megatron Bridge take it",
            )
            .rule("Megatron-LM validate_args")
            .nearest(["native"]),
        );
    }
    if training.cuda_graphs == CudaGraphs::Scoped && plan.software.expandable_segments {
        findings.push(
            Finding::warning(
                "software.expandable_segments",
                true,
                "with CUDA graphs, expandable segments need NCCL_GRAPH_REGISTER=0 in the environment, which generated scripts set",
            )
            .rule("Megatron-LM validate_args"),
        );
    }
    findings.extend(without_effect(plan));
    findings
}

/// Settings that are set and that nothing reads or computes with, in this runtime or beside what else the plan says.
fn without_effect(plan: &Plan) -> Vec<Finding> {
    let (file, facts) = (&plan.file, plan.runtime.facts());
    let (runtime, experts) = (plan.runtime.name(), plan.model.moe.is_some());
    // What the worker alone does is looked at where it is filled.
    let said = json!({"layout": file.layout, "training": file.training, "software": file.software});
    let shape = Shape::of(plan);
    let idle = Setting::all().filter_map(|setting| {
        let Setting { path, readers, counted, given, .. } = *setting;
        let is_read = facts.reads(readers);
        let lacked = given.filter(|given| !holds(*given, file, experts));
        if is_read && lacked.is_none() && facts.counts(counted) {
            return None;
        }
        let value = path.split('.').try_fold(&said, |place, key| place.get(key))?;
        let is_set = match setting.usual {
            _ if value.is_null() => false,
            // They are filled for every runtime.
            _ if readers == Readers::StateTypes => !is_read && *value != usual_type(plan, path),
            // What one runtime is told is filled for that one alone.
            Usual::Rule => setting.usual_under.map_or(!is_read, |is_on| *value != is_on(facts)),
            usual => *value != Value::of(usual),
        };
        let why = if !is_set || (!is_read && !is_told(readers)) {
            return None;
        } else if !is_read || (lacked.is_none() && facts.is_workers_own) {
            // What is not counted of the worker it does not do.
            format!("changes nothing: runtime {runtime} does not read it")
        } else if let Some(given) = lacked {
            format!("changes nothing without {}", given.name())
        } else {
            "is counted in part or not at all: bytes or seconds of the answer are those of its default"
                .to_owned()
        };
        // Of what a rule refuses nothing more is said.
        let is_more = is_read
            && if lacked.is_none() { is_counted_alike(plan, counted) } else { broken_at(&shape, path) };
        (!is_more).then(|| Finding::warning(path, Value::Null, format!("{path} {why}")))
    });
    idle.collect()
}

/// The type of masters or moments, by the path of its setting, where nobody says.
fn usual_type(plan: &Plan, path: &str) -> Value {
    let training = &plan.training;
    // Moments that follow from what is said of masters were said by nobody.
    let masters = Some(training.optimizer.master_dtype);
    let [master, moment] = Optimizer::usual_types(training.dtype, Some(training.grad_dtype), masters);
    let dtype = if path.ends_with("master_dtype") { master } else { moment };
    dtype.name().into()
}

/// Whether it is said of a setting that a runtime does not read it; of the others rules or other fields say it.
fn is_told(readers: Readers) -> bool {
    !matches!(readers, Readers::Sharded | Readers::Grid | Readers::Pipelines)
}

/// Whether answers are right though nothing computes with what these count.
fn is_counted_alike(plan: &Plan, counted: Counted) -> bool {
    let (training, flat_units) = (&plan.training, plan.runtime.facts().flat_units);
    let eight_bits = training.low_precision.is_some_and(|recipe| recipe != LowPrecision::Nvfp4);
    match counted {
        // All but plain operators keep and take the same.
        Counted::AttentionKernels => training.attention_backend != AttentionBackend::Unfused,
        // Weights of flat buffers that are gathered in 8 bits are counted so.
        Counted::EightBits => {
            training.low_precision.is_none() || flat_units && training.fp8_param_gather && eight_bits
        }
        _ => false,
    }
}

/// Whether a plan has what a setting needs to change something; `experts` is whether the model has some.
pub(super) fn holds(given: Given, file: &PlanFile, experts: bool) -> bool {
    let training = &file.training;
    let (recompute, moe) = (training.recompute.granularity, &training.moe);
    let kind = training.optimizer.kind.unwrap_or(OptimizerKind::Adam);
    let scaled = training.dtype == Some(Precision::Fp16);
    match given {
        Given::Experts => experts,
        Given::Flex => experts && moe.dispatcher == Some(Dispatcher::Flex),
        Given::Capacity => experts && moe.capacity_factor.is_some(),
        Given::LowPrecision => training.dtype.is_some_and(|dtype| dtype.low_precision().is_some()),
        Given::Graphs => training.cuda_graphs.is_some_and(|graphs| graphs != CudaGraphs::None),
        Given::Selective => recompute == Some(Granularity::Selective),
        Given::Full => recompute == Some(Granularity::Full),
        Given::Moments => kind != OptimizerKind::Sgd,
        Given::Momentum => kind != OptimizerKind::Adam,
        Given::Scaled => scaled,
        Given::ScaledAnew => scaled && training.loss_scale.fixed.is_none(),
        Given::Chunks => file.layout.vpp.is_some_and(|chunks| chunks > 1),
        Given::Evaluation => file.run.evaluation.data.is_some(),
        Given::Documents => file.run.data.as_ref().is_some_and(|data| *data != DataFile::Synthetic),
    }
}

/// Whether the setting at a path changes nothing in a plan: the runtime does not read it, or the plan has not what it needs.
pub fn is_idle(plan: &Plan, path: &str) -> bool {
    let experts = plan.model.moe.is_some();
    Setting::at_path(path).is_some_and(|setting| {
        !plan.runtime.facts().reads(setting.readers)
            || setting.given.is_some_and(|given| !holds(given, &plan.file, experts))
    })
}

/// Whether a form has a setting for a plan: the runtime reads it, and nothing else that is said leaves it idle. `experts` is whether
/// the model has some.
pub fn is_asked(setting: &Setting, file: &PlanFile, experts: bool) -> bool {
    let facts = file.runtime.unwrap_or_default().facts();
    // No script carries what the worker does not compute with.
    let is_computed = !facts.is_workers_own || facts.counts(setting.counted);
    setting.part != Part::Apart
        && is_computed
        && facts.reads(setting.readers)
        && setting.given.is_none_or(|given| holds(given, file, experts))
}
