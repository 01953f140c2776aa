//! A plan's twin: small enough to be run here, and cut by the same axes under the same rules. Every axis above 1 stays
//! above 1, every kind of layer stays, and what is made smaller is said.

use serde_json::{Map, Value};

use crate::cluster::{FailedGpu, is_cpu};
use crate::finding::{Finding, has_error};
use crate::json::value_of;
use crate::model::{Architecture, Attention, LayerKind, Moe, fold};
use crate::plan::Plan;
use crate::reduced::failed_slots;
use crate::runtime::Runtime;
use crate::settings::Precision;
use crate::wire::{CheckpointFile, DataFile, DocumentsFile, EvaluationFile, ModelFile, PlanFile};

/// Widths of a twin at most. Large enough that what a formula counts outweighs a few bytes a token that it does not,
/// small enough for seconds a step on two cores.
const HIDDEN: u64 = 256;
const MLP_WIDTH: u64 = 512;
const EXPERT_WIDTH: u64 = 128;
const HEAD_WIDTH: u64 = 32;
const LATENT_WIDTH: u64 = 64;
const KV_HEADS: u64 = 4;
const QUERIES_PER_KV_HEAD: u64 = 4;
const EXPERTS: u64 = 8;
const TOP_K: u64 = 4;
const GROUPS: u64 = 4;
const VOCABULARY: u64 = 2048;
const SEQUENCE: u64 = 128;
const SEQUENCES: u64 = 2;
/// Size of an axis above 1.
const AXIS: u64 = 2;
/// Micro batches of a step at most.
const MICRO_BATCHES: u64 = 4;
/// Layers that are tried beyond those needed, until stages come out even.
const MORE_LAYERS: u64 = 16;
/// Ranks of a twin at most where there is no GPU, unless somebody says otherwise: processes that a few cores carry.
pub const RANKS_WITHOUT_GPU: u64 = 16;
/// Steps that it runs: in the first, libraries set themselves up.
const STEPS: u64 = 2;

/// A field that differs.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Scaled {
    /// Its path in the plan file; `dp` for the data-parallel size, which follows from the others.
    pub field: String,
    /// In the plan.
    pub from: Value,
    /// In the twin.
    pub to: Value,
}

/// A plan's twin.
#[derive(Debug, Clone, PartialEq)]
pub struct Twin {
    /// The plan file, as the worker executes it: of the plan's runtime where the worker knows it, else native.
    pub file: PlanFile,
    /// What was scaled, in the order of the file.
    pub scaled: Vec<Scaled>,
}

/// Where the twin of `plan` runs on a machine with `gpus` GPUs: GPU type (`cpu` without any), and ranks at most.
pub fn device(plan: &Plan, gpus: u64) -> (&'static str, u64) {
    match gpus {
        0 => ("cpu", RANKS_WITHOUT_GPU),
        _ => (plan.cluster.gpu.id, gpus),
    }
}

/// The twin of `plan` on the GPU type `gpu` (`cpu` for none), with at most `most_ranks` ranks. It runs as the plan itself would
/// (FSDP2 as FSDP2); where its sizes can't, natively.
///
/// # Errors
/// With findings, when the axes need more ranks, or planner refuses the small sizes.
pub fn twin(plan: &Plan, gpu: &str, most_ranks: u64) -> Result<Twin, Vec<Finding>> {
    let executed = plan.executed();
    let own = executed.runtime != Some(Runtime::OF_WORKER);
    // Without the failed GPUs it is the twin of the healthy plan, which is better than none, and is said.
    for failing in [true, false].into_iter().filter(|failing| !failing || !plan.cluster.failed.is_empty()) {
        let of = |file: PlanFile| smaller(plan, file, gpu, most_ranks, failing).ok();
        let as_it_runs = if own { of(executed.clone()) } else { None };
        let twin = as_it_runs.or_else(|| of(plan.native()));
        if let Some(twin) = twin {
            return Ok(twin);
        }
    }
    smaller(plan, plan.native(), gpu, most_ranks, false)
}

/// Failed GPUs of a twin of this shape: one of each tensor-parallel group that lost some, where its place still is.
fn failed(plan: &Plan, tp: u64, cp: u64, pp: u64, dp: u64) -> Option<Vec<FailedGpu>> {
    let slots = failed_slots(&plan.layout, &plan.cluster, &plan.cluster.failed).ok()?;
    let mut failed: Vec<FailedGpu> = Vec::new();
    for ((replica, slice, stage), slots) in slots {
        let last = |place: u64, count: u64| place.min(count.saturating_sub(1));
        let slot = last(slots.first().copied().unwrap_or(0), tp);
        let (dp, cp, pp) = (last(replica, dp), last(slice, cp), last(stage, pp));
        let same = |other: &FailedGpu| matches!(*other, FailedGpu::Coordinates { dp: of_dp, cp: of_cp, pp: of_pp, .. } if (of_dp, of_cp, of_pp) == (dp, cp, pp));
        if !failed.iter().any(same) {
            failed.push(FailedGpu::Coordinates { dp, cp, pp, tp: slot });
        }
    }
    Some(failed)
}

/// The twin of `plan` that runs as `file`, which is how the worker executes it, says.
fn smaller(
    plan: &Plan,
    mut file: PlanFile,
    gpu: &str,
    most_ranks: u64,
    failing: bool,
) -> Result<Twin, Vec<Finding>> {
    let dp = scale_axes(plan, &mut file, most_ranks)?;
    file.cluster.gpu = gpu.to_owned();
    file.cluster.nodes = Some(1);
    (file.cluster.nvlink_domain, file.cluster.nic_gbps) = (None, None);
    file.cluster.oversubscription = None;
    let axis = |size: Option<u64>| size.unwrap_or(1);
    let fields = &file.layout;
    let left = failing.then(|| failed(plan, axis(fields.tp), axis(fields.cp), axis(fields.pp), dp)).flatten();
    file.cluster.failed = left;
    if is_cpu(gpu) {
        // Processes of a CPU have no links by which TP's communication could overlap.
        file.training.overlap.tp = Some(false);
    }
    file.name = file.name.map(|name| format!("twin of {name}"));
    scale_training(plan, &mut file, dp);
    let kinds = distinct_kinds(&plan.model);
    let stages = file.layout.pp.unwrap_or(1).saturating_mul(file.layout.vpp.unwrap_or(1));
    let least = stages.max(kinds.len() as u64);
    let mut refusal = Vec::new();
    for layers in least..=least.saturating_add(MORE_LAYERS) {
        let model = scaled_model(&plan.model, &kinds, layers, plan.layout.tp);
        file.model = ModelFile { architecture: Some(Box::new(model)), ..ModelFile::default() };
        let resolved = Plan::resolve(&file);
        match resolved.plan {
            Some(small) => {
                let executed = small.executed();
                // Smaller sizes may be what the worker can't carry out as that runtime.
                if executed.runtime == file.runtime {
                    return Ok(Twin { scaled: differences(plan, &small), file: executed });
                }
            }
            None if refusal.is_empty() => refusal = resolved.findings,
            None => {}
        }
    }
    refusal.retain(|finding| has_error(std::slice::from_ref(finding)));
    Err(refusal)
}

fn cut(size: u64) -> u64 {
    size.min(AXIS)
}

/// Scales the axes, and gives dp.
fn scale_axes(plan: &Plan, file: &mut PlanFile, most_ranks: u64) -> Result<u64, Vec<Finding>> {
    let layout = &plan.layout;
    let (tp, cp, pp) = (cut(layout.tp), cut(layout.cp), cut(layout.pp));
    let (ep, etp) = (cut(layout.ep), cut(layout.etp));
    let without_dp = tp * cp * pp;
    // The expert grid must divide the same ranks.
    let folds = |dp: u64| (tp * cp * dp).is_multiple_of(ep * etp);
    // Replicas of shards are one axis and shards another; natively there is dp alone.
    let natively = file.runtime == Some(Runtime::OF_WORKER);
    let whole_replicas = if natively { 1 } else { layout.dp_replicate.max(1) };
    let replicas = cut(whole_replicas);
    let least = replicas * cut(layout.dp / whole_replicas);
    let wanted = (least..).find(|&dp| folds(dp) && dp.is_multiple_of(replicas)).unwrap_or(1);
    let fits = |dp: &u64| without_dp * dp <= most_ranks && folds(*dp);
    let Some(dp) = [wanted, 1].into_iter().find(fits) else {
        let needed = without_dp * (1..).find(|&dp| folds(dp)).unwrap_or(1);
        return Err(vec![
            Finding::error(
                "cluster.gpus_per_node",
                most_ranks,
                format!(
                    "the smallest twin with every axis of this plan above 1 has {needed} ranks, and {most_ranks} are allowed here; allow more, or verify a plan with fewer axes"
                ),
            )
            .rule("an axis above 1 stays above 1"),
        ]);
    };
    file.cluster.gpus_per_node = Some(without_dp * dp);
    let fields = &mut file.layout;
    (fields.tp, fields.cp, fields.pp) = (Some(tp), Some(cp), Some(pp));
    (fields.ep, fields.etp) = (Some(ep), plan.model.moe.is_some().then_some(etp));
    fields.vpp = Some(cut(layout.vpp));
    fields.sp = Some(layout.sp && tp > 1);
    // A string or counts of layers speak of the layers of the plan.
    fields.pipeline_layout = None;
    fields.first_stage_layers = fields.first_stage_layers.map(|layers| layers.min(1));
    fields.last_stage_layers = fields.last_stage_layers.map(|layers| layers.min(1));
    fields.microbatch_group_size = fields.microbatch_group_size.map(|_| pp);
    fields.dp_replicate = fields.dp_replicate.map(|_| if dp == 1 { 1 } else { replicas });
    if natively {
        (fields.dp_replicate, fields.tp_plan, fields.tp_plan_path) = (None, None, None);
    }
    Ok(dp)
}

fn scale_training(plan: &Plan, file: &mut PlanFile, dp: u64) {
    let fields = &mut file.training;
    let sequences = plan.training.micro_batch_size.min(SEQUENCES);
    // Enough for every chunk of every stage to be busy, where the plan has as many.
    let busy = file.layout.pp.unwrap_or(1) * file.layout.vpp.unwrap_or(1);
    let microbatches = plan.microbatches().min(MICRO_BATCHES.max(busy)).max(1);
    fields.seq_len = Some(plan.training.seq_len.min(SEQUENCE));
    fields.micro_batch_size = Some(sequences);
    fields.global_batch_size = Some(sequences * dp * microbatches);
    if let Some(dtype) = fields.dtype
        && ![Precision::Bf16, Precision::Fp16, Precision::Fp32, Precision::Fp64].contains(&dtype)
    {
        // The executor has no 8-bit kernels; the bytes of bf16 are those beneath them.
        fields.dtype = Some(Precision::Bf16);
        (fields.fp8_param_gather, fields.bf16_first_layers, fields.bf16_last_layers) = (None, None, None);
    }
    fields.recompute.num_layers = fields.recompute.num_layers.map(|layers| layers.min(1));
    file.run.steps = Some(STEPS);
    file.run.data = Some(DataFile::Synthetic);
    file.run.checkpoint = CheckpointFile::default();
    // What is read for them has words that the twin's model does not know.
    file.run.evaluation = EvaluationFile::default();
    file.run.documents = DocumentsFile::default();
    file.run.weights = None;
}

/// The kinds of layers, each once, in order of their first appearance.
fn distinct_kinds(model: &Architecture) -> Vec<LayerKind> {
    let mut kinds = Vec::new();
    for layer in 0..model.num_layers {
        let kind = model.layer_kind(layer);
        if !kinds.contains(&kind) {
            kinds.push(kind);
        }
    }
    kinds
}

fn scaled_model(model: &Architecture, kinds: &[LayerKind], layers: u64, tp: u64) -> Architecture {
    let common =
        |kind: &LayerKind| (0..model.num_layers).filter(|&layer| model.layer_kind(layer) == *kind).count();
    let filling = kinds.iter().copied().max_by_key(common).unwrap_or(LayerKind::DENSE);
    let mut sequence = kinds.to_vec();
    for kind in &mut sequence {
        kind.ffn = kind.ffn.map(|width| width.min(MLP_WIDTH));
    }
    sequence.resize(usize::try_from(layers).unwrap_or(kinds.len()).max(kinds.len()), filling);
    let plain = kinds.len() == 1 && kinds.iter().all(|kind| kind.ffn.is_none());
    let pattern = if plain { model.pattern.clone() } else { fold(&sequence) };
    Architecture {
        num_layers: layers,
        hidden_size: model.hidden_size.min(HIDDEN),
        ffn_hidden_size: model.ffn_hidden_size.min(MLP_WIDTH),
        vocab_size: model.vocab_size.min(VOCABULARY),
        attention: scaled_attention(&model.attention, tp),
        pattern,
        moe: model.moe.as_ref().map(scaled_experts),
        mtp_layers: model.mtp_layers.min(1),
        mtp_pattern: model.mtp_pattern.clone(),
        ..model.clone()
    }
}

/// As many even widths as the whole has, of a part that has `part` of `whole`.
fn share(part: u64, whole: u64, scaled: u64) -> u64 {
    (part.saturating_mul(scaled) / whole.max(1) / 2 * 2).max(2)
}

fn scaled_attention(attention: &Attention, tp: u64) -> Attention {
    let mut scaled = attention.clone();
    match &mut scaled {
        Attention::Gqa { heads, kv_heads, head_dim, rotary_dim, .. } => {
            let shared = (*heads / (*kv_heads).max(1)).clamp(1, QUERIES_PER_KV_HEAD);
            // Fewer than tensor-parallel ranks stay fewer.
            *kv_heads = if *kv_heads < tp { 1 } else { (*kv_heads).min(KV_HEADS) };
            *heads = *kv_heads * if *kv_heads == 1 { QUERIES_PER_KV_HEAD.min(*heads) } else { shared };
            let narrow = (*head_dim).min(HEAD_WIDTH);
            *rotary_dim = rotary_dim.map(|rotary| share(rotary, *head_dim, narrow).min(narrow));
            *head_dim = narrow;
        }
        Attention::Mla { heads, q_lora_rank, kv_lora_rank, qk_nope_dim, qk_rope_dim, v_dim, .. } => {
            *heads = (*heads).min(KV_HEADS * QUERIES_PER_KV_HEAD / 2);
            *q_lora_rank = q_lora_rank.map(|rank| rank.min(LATENT_WIDTH + HEAD_WIDTH));
            *kv_lora_rank = (*kv_lora_rank).min(LATENT_WIDTH);
            *qk_nope_dim = (*qk_nope_dim).min(HEAD_WIDTH);
            *qk_rope_dim = (*qk_rope_dim).min(HEAD_WIDTH / 2);
            *v_dim = (*v_dim).min(HEAD_WIDTH);
        }
        // What the executor does not run is refused by its limits, whatever its size.
        _ => {}
    }
    scaled
}

fn scaled_experts(moe: &Moe) -> Moe {
    let mut scaled = moe.clone();
    scaled.experts = moe.experts.min(EXPERTS);
    scaled.top_k = moe.top_k.min(TOP_K).min(scaled.experts);
    scaled.ffn_hidden_size = moe.ffn_hidden_size.min(EXPERT_WIDTH);
    scaled.shared_ffn_hidden_size = moe.shared_ffn_hidden_size.min(EXPERT_WIDTH);
    scaled.latent_size = moe.latent_size.map(|size| size.min(LATENT_WIDTH));
    scaled.router_bias_buffer = moe.router_bias_buffer.min(scaled.experts);
    if moe.routing.groups > 1 {
        scaled.routing.groups = moe.routing.groups.min(GROUPS);
        scaled.routing.group_top_k = moe.routing.group_top_k.min(scaled.routing.groups / 2).max(1);
        let held = (scaled.experts / scaled.routing.groups).max(1);
        scaled.routing.group_experts = moe.routing.group_experts.map(|together| together.min(held));
    }
    scaled
}

/// Fields of the plan files that differ, but for the name and what a run does besides training.
fn differences(plan: &Plan, small: &Plan) -> Vec<Scaled> {
    let (before, after) = (flat(plan), flat(small));
    let mut scaled =
        vec![Scaled { field: "dp".to_owned(), from: plan.layout.dp.into(), to: small.layout.dp.into() }];
    let mut fields: Vec<&String> = before.keys().chain(after.keys()).collect();
    crate::order::sort(&mut fields);
    fields.dedup();
    for field in fields {
        let of = |leaves: &Map<String, Value>| leaves.get(field).cloned().unwrap_or(Value::Null);
        scaled.push(Scaled { field: field.clone(), from: of(&before), to: of(&after) });
    }
    scaled.retain(|one| one.from != one.to);
    scaled
}

/// The leaves of a plan's file by their paths, with the model in planner's own words.
fn flat(plan: &Plan) -> Map<String, Value> {
    let mut file = plan.file.clone();
    file.runtime = Some(Runtime::OF_WORKER);
    let mut whole = value_of(&file);
    if let Some(whole) = whole.as_object_mut() {
        whole.remove("name");
        whole.remove("run");
        whole.insert("model".to_owned(), value_of(&**plan.model));
    }
    let mut leaves = Map::new();
    gather(&mut leaves, String::new(), whole);
    leaves
}

fn gather(leaves: &mut Map<String, Value>, path: String, value: Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = if path.is_empty() { name } else { format!("{path}.{name}") };
                gather(leaves, path, value);
            }
        }
        Value::Null => {}
        leaf => {
            leaves.insert(path, leaf);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::executor_limits;

    fn plan(model: Value, gpus: u64, layout: Value, training: Value) -> Plan {
        let text = json!({"version": 1, "model": model, "layout": layout, "training": training,
                          "cluster": {"gpu": "h100-sxm", "nodes": gpus / 8, "gpus_per_node": 8}});
        let resolved = Plan::resolve(&crate::parse_plan(&text.to_string()).unwrap());
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    fn of_runtime(runtime: &str, layout: Value, training: Value) -> Plan {
        let mut file = plan(json!({"preset": "llama-3-8b"}), 16, json!({}), training).file;
        file.runtime = serde_json::from_value(json!(runtime)).unwrap();
        file.layout = serde_json::from_value(layout).unwrap();
        let resolved = Plan::resolve(&file);
        resolved.plan.unwrap_or_else(|| panic!("{:?}", resolved.findings))
    }

    #[test]
    fn a_runtime_that_the_worker_knows_is_the_twins() {
        for (runtime, layout, dp, replicas) in [
            ("fsdp2", json!({}), 2, 1),
            ("fsdp2", json!({"tp": 4, "dp_replicate": 2}), 4, 2),
            ("fsdp2", json!({"dp_replicate": 8, "fsdp": {"reshard_after_forward": "always"}}), 4, 2),
            ("fsdp2", json!({"pp": 2, "cp": 2}), 2, 1),
            ("megatron_fsdp", json!({"tp": 2}), 2, 1),
        ] {
            let plan = of_runtime(runtime, layout, json!({"dtype": "bf16"}));
            let twin = twin(&plan, "cpu", 16).unwrap_or_else(|findings| panic!("{findings:?}"));
            let small = Plan::resolve(&twin.file).plan.unwrap();
            assert_eq!(small.runtime, plan.runtime, "{:?}", twin.file);
            assert_eq!(small.executed(), twin.file);
            assert_eq!((small.layout.dp, small.layout.dp_replicate), (dp, replicas));
            assert_eq!(small.layout.fsdp.reshard, plan.layout.fsdp.reshard);
            assert!(executor_limits(&small).is_empty());
        }
    }

    #[test]
    fn what_the_worker_runs_by_its_own_rules_has_a_native_twin() {
        // One data-parallel rank shards nothing.
        let alone = of_runtime("fsdp2", json!({"tp": 8, "pp": 2}), json!({}));
        assert_eq!(twin(&alone, "cpu", 16).map(|twin| twin.file.runtime), Ok(Some(Runtime::OF_WORKER)));
        // Eight ranks are too few for replicas, shards and all other axes above 1, and enough natively.
        let wide = of_runtime("fsdp2", json!({"tp": 2, "pp": 2, "dp_replicate": 2}), json!({}));
        assert_eq!(twin(&wide, "cpu", 16).map(|twin| twin.file.runtime), Ok(Some(Runtime::Fsdp2)));
        assert_eq!(twin(&wide, "cpu", 8).map(|twin| twin.file.runtime), Ok(Some(Runtime::OF_WORKER)));
    }

    /// The twin must be accepted, run by the executor, and have the axes `axes`: tp, cp, pp, vpp, ep, etp, dp.
    #[track_caller]
    fn check(plan: &Plan, axes: [u64; 7]) -> Twin {
        let twin = twin(plan, "cpu", 16).unwrap_or_else(|findings| panic!("{findings:?}"));
        let small = Plan::resolve(&twin.file).plan.unwrap();
        let limits = executor_limits(&small);
        assert!(limits.is_empty(), "{limits:?}");
        let l = &small.layout;
        assert_eq!([l.tp, l.cp, l.pp, l.vpp, l.ep, l.etp, l.dp], axes);
        assert_eq!(
            (l.sp, l.schedule, l.cp_kind),
            (plan.layout.sp, plan.layout.schedule, plan.layout.cp_kind)
        );
        let kinds = |plan: &Plan| -> std::collections::BTreeSet<LayerKind> {
            (0..plan.model.num_layers).map(|layer| plan.model.layer_kind(layer)).collect()
        };
        assert_eq!(kinds(&small), kinds(plan));
        assert!(small.model.num_layers <= 16, "{}", small.model.num_layers);
        assert!(planner_bytes(&twin.file) < 1 << 30, "{}", planner_bytes(&twin.file));
        twin
    }

    fn planner_bytes(file: &PlanFile) -> u64 {
        crate::estimate(file)
            .memory
            .unwrap()
            .rank_classes
            .iter()
            .map(|class| class.peak_allocated_bytes)
            .max()
            .unwrap()
    }

    #[test]
    fn failed_gpus_and_types_of_two_bytes_stay_what_they_are() {
        for (failed, axes, expected) in [
            (json!([{"rank": 3}]), json!({"tp": 8}), json!([{"dp": 0, "cp": 0, "pp": 0, "tp": 1}])),
            (
                json!([{"rank": 9}, {"rank": 11}]),
                json!({"tp": 8}),
                json!([{"dp": 1, "cp": 0, "pp": 0, "tp": 1}]),
            ),
            (json!([{"node": 2, "gpu": 0}]), json!({"tp": 4}), json!([{"dp": 1, "cp": 0, "pp": 0, "tp": 0}])),
        ] {
            let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "layout": axes,
                "cluster": {"gpu": "h100-sxm", "nodes": 4, "gpus_per_node": 8, "failed": failed},
                "training": {"dtype": "fp16", "global_batch_size": 64}});
            let plan = Plan::resolve(&crate::parse_plan(&file.to_string()).unwrap());
            let plan = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.findings));
            let twin = twin(&plan, "cpu", 16).unwrap();
            assert_eq!(json!(twin.file.cluster.failed), expected);
            assert_eq!(twin.file.training.dtype, Some(Precision::Fp16));
            let small = Plan::resolve(&twin.file).plan.unwrap();
            assert!(executor_limits(&small).is_empty(), "{:?}", executor_limits(&small));
        }
    }

    #[test]
    fn what_overlaps_over_nvlink_has_a_twin_without() {
        for nodes in [1, 2, 3, 8] {
            let file = json!({"version": 1, "model": {"preset": "llama-3-70b"}, "layout": {"tp": 4, "pp": 2},
                "cluster": {"gpu": "h100-sxm", "nodes": nodes}, "training": {"overlap": {"tp": true}, "global_batch_size": 96},
                "software": {"framework": "bridge 26.08"}});
            let plan = Plan::resolve(&crate::parse_plan(&file.to_string()).unwrap());
            let plan = plan.plan.unwrap_or_else(|| panic!("{:?}", plan.findings));
            assert!(plan.training.overlap.tp);
            let twin = twin(&plan, "cpu", 16).unwrap_or_else(|findings| panic!("{nodes}: {findings:?}"));
            assert_eq!(twin.file.training.overlap.tp, Some(false));
        }
    }

    #[test]
    fn axes_above_one_stay_above_one() {
        let llama = json!({"preset": "llama-3-70b"});
        check(&plan(llama.clone(), 64, json!({"tp": 8, "pp": 4}), json!({})), [2, 1, 2, 1, 1, 2, 2]);
        let all = json!({"tp": 8, "cp": 2, "pp": 4, "vpp": 5});
        check(&plan(llama.clone(), 128, all, json!({"seq_len": 8192})), [2, 2, 2, 2, 1, 2, 2]);
        check(&plan(llama, 8, json!({"tp": 8}), json!({})), [2, 1, 1, 1, 1, 2, 1]);
    }

    #[test]
    fn what_is_read_of_ones_own_is_not_read_for_the_twin() {
        let run = json!({
            "data": {"kind": "megatron", "path": "mine"}, "documents": {"reset_positions": true},
            "evaluation": {"data": {"kind": "megatron", "path": "held out"}},
        });
        let mut file = plan(json!({"preset": "llama-3-8b"}), 8, json!({"tp": 2}), json!({})).file;
        file.run = serde_json::from_value(run).unwrap();
        let twin = check(&Plan::resolve(&file).plan.unwrap(), [2, 1, 1, 1, 1, 2, 2]);
        let small = Plan::resolve(&twin.file).plan.unwrap();
        assert!(small.run.evaluation.is_none() && !small.run.documents.matter());
    }

    #[test]
    fn experts_fold_in_the_twin_too() {
        let deepseek = json!({"preset": "deepseek-v3"});
        let twin = check(
            &plan(
                deepseek,
                256,
                json!({"tp": 2, "pp": 4, "ep": 32, "etp": 1, "pipeline_layout": null, "account_for_embedding": false, "first_stage_layers": 15, "last_stage_layers": 14}),
                json!({}),
            ),
            [2, 1, 2, 1, 2, 1, 2],
        );
        let said = |field: &str| twin.scaled.iter().find(|scaled| scaled.field == field).cloned();
        assert_eq!(said("layout.ep").map(|one| (one.from, one.to)), Some((json!(32), json!(2))));
        assert_eq!(said("dp").map(|one| (one.from, one.to)), Some((json!(32), json!(2))));
        assert!(said("layout.etp").is_none());
        check(
            &plan(json!({"preset": "qwen3-235b-a22b"}), 64, json!({"tp": 4, "ep": 8, "etp": 2}), json!({})),
            [2, 1, 1, 1, 2, 2, 2],
        );
    }

    #[test]
    fn a_small_plan_is_its_own_twin() {
        let tiny = json!({"architecture": {"num_layers": 2, "hidden_size": 64, "ffn_hidden_size": 96, "vocab_size": 256,
                          "attention": {"kind": "gqa", "heads": 8, "kv_heads": 4, "head_dim": 8}}});
        let plan = plan(tiny, 8, json!({"tp": 2}), json!({"seq_len": 16, "global_batch_size": 8}));
        let twin = check(&plan, [2, 1, 1, 1, 1, 2, 2]);
        let fields: Vec<&str> = twin.scaled.iter().map(|scaled| scaled.field.as_str()).collect();
        assert!(
            !fields.iter().any(|field| field.starts_with("model.hidden") || field.contains("heads")),
            "{fields:?}"
        );
        assert!(fields.contains(&"dp") && fields.contains(&"cluster.gpu"), "{fields:?}");
    }

    #[test]
    fn too_few_ranks_are_refused_with_the_number_needed() {
        let plan = plan(json!({"preset": "llama-3-70b"}), 64, json!({"tp": 8, "pp": 4}), json!({}));
        let findings = twin(&plan, "cpu", 3).unwrap_err();
        assert!(findings[0].message.contains("has 4 ranks, and 3 are allowed"), "{findings:?}");
        assert_eq!(twin(&plan, "cpu", 4).map(|twin| twin.file.cluster.gpus_per_node), Ok(Some(4)));
    }
}
