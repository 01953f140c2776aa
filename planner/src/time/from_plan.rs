//! The time model's inputs, as a plan says them.

use super::by_runtime;
use super::choices::Choices;
use super::constants::{Profile, table};
use super::flops::recomputed_layers;
use super::host_copies::{HostBytes, saved_bytes};
use super::layer::Recompute;
use super::machine::{Machine, Numbers};
use super::setup::{Inputs, Setup, SoftwareFacts};
use super::shape::ModelShape;
use super::stages::Stages;
use crate::cluster::Generation;
use crate::layout::Reshard;
use crate::layout::Strides;
use crate::model::{Activation, Balance};
use crate::plan::Plan;
use crate::settings::Strategy;
use crate::settings::{AttentionBackend, CrossEntropy, Dispatcher, Granularity, Implementation};
use crate::shard::megatron::recipe_layers;
use crate::shard::padded_vocabulary;
use crate::software::{Named, Product};
use crate::units::{Dtype, LowPrecision};
use crate::wire::{RankRole, Setting};

/// The profile that holds without a name in the plan: that of the framework which the plan names, or of its runtime.
pub(crate) fn default_profile(plan: &Plan) -> &'static str {
    if by_bridges_recipe(plan) {
        let fused = plan.software.where_possible.flex || plan.training.moe.dispatcher == Dispatcher::Flex;
        return match (&plan.model.moe, fused) {
            (None, _) => "bridge-dense",
            (Some(_), true) => "bridge-moe-scoped",
            (Some(_), false) => "bridge-moe-alltoall",
        };
    }
    (by_runtime::of(plan).profile)(plan)
}

/// Whether a recipe of Megatron Bridge or NeMo holds: the constants are theirs, and all else is said by the plan's settings.
fn by_bridges_recipe(plan: &Plan) -> bool {
    let recipes = |named: Named| matches!(named.product, Product::Bridge | Product::Nemo);
    plan.software.profile.is_none()
        && plan.runtime.facts().trains_megatron_core
        && plan.software.named.is_some_and(recipes)
}

/// The profile of a plan.
pub fn profile(plan: &Plan) -> Option<&'static Profile> {
    let name = plan.software.profile.as_deref().unwrap_or_else(|| default_profile(plan));
    table().profile(name)
}

/// The numbers of a valid plan.
///
/// # Errors
/// What the data file lacks.
pub fn setup(plan: &Plan) -> Result<Setup, String> {
    let profile = profile(plan).ok_or("no such software profile")?;
    let inputs = inputs(plan, profile);
    let shape = ModelShape::of(&plan.model, inputs.vocabulary, &recipe_layers(plan));
    let stages = Stages::of(&shape, &plan.layout);
    let mut setup = Setup::new(&inputs, shape, stages)?;
    super::calibrated::calibrate(&mut setup, plan);
    Ok(setup)
}

/// Share of host time that a plan's graphs leave.
pub(crate) fn host_share(plan: &Plan, profile: &Profile, machine: &Machine) -> f64 {
    super::setup::host_share(facts(plan, profile).graphs, machine)
}

/// What a plan says, in the time model's words.
fn inputs<'a>(plan: &'a Plan, profile: &'a Profile) -> Inputs<'a> {
    let mut inputs = inputs_at_least(plan, profile);
    inputs.host.saved = saved_bytes(plan);
    inputs
}

/// The same with no activations copied to the host, so that a step takes no longer than with [`inputs`]: what is copied takes
/// longer to find out than all the rest.
pub(crate) fn inputs_at_least<'a>(plan: &'a Plan, profile: &'a Profile) -> Inputs<'a> {
    let (layout, training, cluster) = (&plan.layout, &plan.training, &plan.cluster);
    let runtime = plan.runtime.facts();
    let fsdp = runtime.shards_parameters;
    let strategy = layout.fsdp.strategy;
    let whole = fsdp && strategy == Strategy::OptimGradsParams;
    // With a pipeline, torch keeps parameters gathered from the first to the last micro batch.
    let kept = layout.fsdp.reshard == Reshard::Never || layout.pp > 1;
    let numbers = numbers(plan);
    let low = !matches!(numbers, Numbers::Bf16 | Numbers::Quantity);
    let dtype_bytes = training.dtype.size() as f64;
    let gradient = if fsdp { layout.fsdp.reduce_dtype } else { training.grad_dtype };
    // As reduced replicas see it, all of them are reduced: as many of them, with a smaller batch each.
    let (world, gbs) = match (plan.role, &plan.nonuniform) {
        (Some(RankRole::Reduced), Some(nonuniform)) => {
            (layout.tp * layout.cp * layout.pp * layout.dp, nonuniform.reduced_batch * layout.dp)
        }
        _ => (cluster.world_size(), training.global_batch_size),
    };
    let gathers = match (whole, kept) {
        (true, false) => 2.0,
        (true, true) if layout.pp == 1 => 1.0,
        _ => 0.0,
    };
    let split = fsdp && matches!(strategy, Strategy::OptimGrads | Strategy::OptimGradsParams);
    let gradient_bytes = gradient.size() as f64;
    let parameter_bytes = if low && training.fp8_param_gather { 1.0 } else { dtype_bytes.min(4.0) };
    Inputs {
        model: &plan.model,
        vocabulary: padded_vocabulary(plan),
        gpu: cluster.gpu,
        domain: cluster.nvlink_domain,
        nic_gbps: cluster.nic_gbps / cluster.oversubscription,
        world,
        tp: layout.tp,
        sp: layout.sp,
        cp: layout.cp,
        cp_kind: layout.cp_kind,
        pp: layout.pp,
        vpp: layout.vpp,
        schedule: layout.schedule,
        ep: layout.ep,
        etp: layout.etp,
        strides: strides(plan),
        replicas: if fsdp { layout.dp_replicate } else { 1 },
        gathers,
        // Without a pipeline the one measured plan that reduces once a step and whose network matters (KempnerForge's 70B on 96 GPUs) takes as
        // long as if each micro batch was reduced.
        reduces: if split && !(layout.pp > 1 && layout.fsdp.sync_last) { 1.0 } else { 0.0 },
        gathered_again_from: layout
            .fsdp
            .post_forward_ranks()
            .filter(|_| runtime.reshards_as_said)
            .map(|ranks| ranks as f64),
        by_layer: [whole || reduces_by_layer(plan), whole || gathers_by_layer(plan)],
        seq_len: training.seq_len,
        mbs: training.micro_batch_size,
        gbs,
        numbers,
        gradient_bytes,
        parameter_bytes,
        optimizer_bytes: super::update::bytes(plan),
        update_flops: super::update::flops(plan),
        distributed: training.optimizer.distributed || (fsdp && strategy != Strategy::NoShard),
        recompute: recompute(plan),
        loss: if compiles_loss(plan) { CrossEntropy::Te } else { training.cross_entropy },
        loss_bytes: if Setting::is_read("layout.fsdp.loss_dtype", runtime) {
            layout.fsdp.loss_dtype.size() as f64
        } else {
            4.0
        },
        whole_logits: plan.gathers_logits_for_the_loss(),
        low_attention: training.fp8_attention && training.low_precision.is_some(),
        low_head: training.fp8_output && low,
        squares_apart: squares_apart(plan),
        imbalance: training.moe.load().clamp(0.0, 1e6),
        choices: choices(plan),
        stops_early: plan.stops_recomputing_early(),
        frozen: false,
        gathered_share: match runtime.low_precision_by_torchao && numbers == Numbers::Fp8 {
            true => FLOAT8_GATHERED,
            false => 1.0,
        },
        host: HostBytes::of_state(plan, gathers, parameter_bytes, gradient_bytes),
        software: facts(plan, profile),
    }
}

/// Which experts tokens choose. NeMo Automodel's gate that forces balance counts on from token to token
/// (`FakeBalancedGate`, components/moe/layers.py, 36044ad3d139); Megatron-Core's draws scores at random.
fn choices(plan: &Plan) -> Choices {
    let forced = plan.model.moe.as_ref().is_some_and(|moe| moe.routing.balance == Balance::Forced);
    if forced && plan.software.is_automodels() { Choices::Neighbours } else { Choices::Any }
}

/// Whether the worker reduces gradients layer by layer beside a backward: its ranks talk by NCCL on GPUs alone.
fn reduces_by_layer(plan: &Plan) -> bool {
    plan.is_reduced_by_layer() && plan.cluster.gpu.speeds.is_some()
}

/// Whether weights that the worker's own optimizer updates in parts come back layer by layer beside the next forward.
fn gathers_by_layer(plan: &Plan) -> bool {
    let runtime = plan.runtime.facts();
    runtime.is_workers_own && !runtime.shards_parameters && reduces_by_layer(plan)
}

/// Bytes of gathered activations with torch's float8 tensors over bf16's: one of two matrix inputs is gathered in 8 bits.
pub(crate) const FLOAT8_GATHERED: f64 = 0.75;
/// Compute that checkpoints of every second matrix product do again, attention apart.
pub(crate) const EVERY_SECOND: f64 = 0.5;

/// Whether the loss is compiled with the layers, which makes as few passes of it as one kernel: torchtitan does (`compile.components`), others compile
/// layers.
fn compiles_loss(plan: &Plan) -> bool {
    plan.layout.fsdp.compiled && names_torchtitan(plan)
}

/// Whether a squared ReLU runs operation by operation: NeMo's function is neither compiled nor scripted (`nemo/collections/llm/fn/activation.py`, v2.1.0 to
/// v2.5.0), and its models switch the fusion of activations off (`gpt/model/nemotron.py`); Megatron-Core's own is compiled (`activations.py`).
fn squares_apart(plan: &Plan) -> bool {
    let nemo = plan.software.named.is_some_and(|named| named.product == Product::Nemo);
    nemo && plan.model.activation == Activation::SquaredRelu && !plan.model.gated
}

fn names_torchtitan(plan: &Plan) -> bool {
    plan.software.named.is_some_and(|named| named.product == Product::Torchtitan)
}

fn numbers(plan: &Plan) -> Numbers {
    match (plan.training.dtype, plan.training.low_precision) {
        (_, Some(LowPrecision::Fp8Delayed | LowPrecision::Fp8Current)) => Numbers::Fp8,
        (_, Some(LowPrecision::Fp8Blockwise)) => Numbers::Fp8Rows,
        (_, Some(LowPrecision::Mxfp8)) => Numbers::Mxfp8,
        (_, Some(LowPrecision::Nvfp4)) => Numbers::Nvfp4,
        (Dtype::Fp32 | Dtype::Fp64, None) => Numbers::Quantity,
        (Dtype::Bf16 | Dtype::Fp16, None) => Numbers::Bf16,
        (Dtype::Fp8, None) => Numbers::Fp8,
    }
}

/// Where a named profile has no say, and where none is named, the plan's own settings are the facts.
fn facts<'a>(plan: &Plan, profile: &'a Profile) -> SoftwareFacts<'a> {
    let (training, runtime) = (&plan.training, plan.runtime.facts());
    let mut facts = SoftwareFacts::of(profile);
    let unfused = training.attention_backend == AttentionBackend::Unfused
        || (Setting::is_counted("training.implementation", runtime)
            && training.implementation == Implementation::Local);
    facts.unfused |= unfused;
    // FlashAttention 2, none of whose kernels is Hopper's own (FlashAttention-3's paper), where cuDNN's would be chosen; on Ampere it is what
    // TransformerEngine chooses, as torch does.
    let (generation, backend) = (plan.cluster.gpu.generation, training.attention_backend);
    if facts.attention == "te" && generation == Generation::Hopper && backend == AttentionBackend::Flash {
        facts.attention = "flash";
    }
    if facts.attention == "te" && generation == Generation::Ampere && backend != AttentionBackend::Fused {
        facts.attention = "fa2";
    }
    // FlashAttention-3 or cuDNN's where torch would take FlashAttention 2: as fast as each other, by the former's paper.
    let newer = matches!(plan.cluster.gpu.generation, Generation::Hopper | Generation::Blackwell);
    if facts.attention == "fa2" && newer && training.attention_backend == AttentionBackend::Fused {
        facts.attention = "te";
    }
    if runtime.overlaps_tensor_parallel_as_said {
        facts.overlap_tp |= training.overlap.tp || hides_where_possible(plan);
    }
    if plan.layout.pp > 1 && plan.layout.fsdp.sync_last && !plan.is_computed_by_the_worker() {
        // Gradients are added up whole and reduced after the last backward (torch 2.6, distributed/pipelining/stage.py).
        (facts.overlap_reduce, facts.fused_gradients) = (false, false);
    }
    let free = by_bridges_recipe(plan);
    if profile.graphs.is_none() || free {
        facts.graphs = training.cuda_graphs;
    }
    if profile.dispatcher.is_none() || free {
        facts.fused_dispatch = plan.dispatcher() == Dispatcher::Flex;
        facts.gathers_tokens = plan.dispatcher() == Dispatcher::AllGather;
    }
    if plan.is_computed_by_the_worker() {
        let beside = reduces_by_layer(plan);
        facts.overlap_reduce &= beside;
        // Units that are gathered for each use are so ahead of it, and of what flat units keep all comes back at once.
        facts.overlap_gather = match runtime.shards_parameters {
            true => beside && plan.layout.fsdp.strategy == Strategy::OptimGradsParams,
            false => gathers_by_layer(plan),
        };
    }
    if profile.overlap.is_none() || free {
        let (overlap, possible) = (&training.overlap, plan.software.where_possible);
        facts.overlap_tp = overlap.tp || hides_where_possible(plan);
        facts.overlap_ep = overlap.ep || possible.ep;
        facts.overlap_reduce = overlap.grad_reduce;
        facts.overlap_gather = overlap.param_gather;
        facts.overlap_p2p = overlap.p2p;
    }
    facts
}

/// Whether the recipe's overlap of tensor-parallel communication is on in this layout.
fn hides_where_possible(plan: &Plan) -> bool {
    plan.software.where_possible.tp && plan.layout.sp && plan.layout.tp_is_within(plan.cluster.nvlink_domain)
}

fn strides(plan: &Plan) -> Strides {
    let layout = &plan.layout;
    match plan.runtime.facts().uses_device_mesh {
        true => Strides::usual(plan.world_size(), layout.tp, layout.pp, layout.etp, layout.ep),
        false => Strides::of(layout),
    }
}

/// What a plan computes again.
pub(crate) fn recompute(plan: &Plan) -> Recompute {
    let training = &plan.training;
    let mut recompute = Recompute::default();
    match training.recompute {
        Granularity::None => {}
        Granularity::Full => {
            let layers = plan.model.num_layers.max(1) as f64;
            let again = match training.recompute_method.as_deref() {
                Some("block") => recomputed_layers(plan).len() as f64,
                _ => layers,
            };
            recompute.layer = again / layers;
        }
        Granularity::Selective => {
            if plan.checkpoints_operators() {
                (recompute.projections, recompute.mlp) = (EVERY_SECOND, EVERY_SECOND);
                (recompute.shared, recompute.grouped) = (EVERY_SECOND, 1.0);
                return recompute;
            }
            for module in &training.recompute_modules {
                select(&mut recompute, module);
            }
        }
    }
    recompute
}

/// Adds a module to what is computed again.
pub fn select(recompute: &mut Recompute, module: &str) {
    match module {
        "core_attn" => recompute.core = 1.0,
        "mlp" => recompute.mlp = 1.0,
        "moe" => recompute.moe = 1.0,
        "shared_experts" => recompute.shared = 1.0,
        "mla_up_proj" => recompute.up_projections = 1.0,
        // A pass over what is saved, of several.
        "layernorm" | "moe_act" => recompute.memory = 0.5,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::parse::parse_plan;
    use crate::time::StepTime;
    use crate::time::terms::Terms;

    /// The step of a dense model without a gate, with this activation and framework.
    fn step_with(activation: &str, framework: &str) -> StepTime {
        let file = json!({"version": 1,
            "model": {"architecture": {"num_layers": 8, "hidden_size": 4096, "ffn_hidden_size": 16_384, "vocab_size": 32_000,
                "attention": {"kind": "gqa", "heads": 32, "kv_heads": 8, "head_dim": 128}, "gated": false,
                "activation": activation}},
            "cluster": {"gpu": "h100-sxm", "nodes": 1}, "training": {"global_batch_size": 8, "seq_len": 4096},
            "software": {"framework": framework}});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        setup(&plan).unwrap().predict(&table().values())
    }

    #[test]
    fn a_squared_relu_is_six_passes_under_nemo_alone() {
        let memory = |activation: &str, framework: &str| step_with(activation, framework).parts.memory;
        for framework in ["bridge 26.08", "megatron-lm core_v0.19"] {
            assert_eq!(memory("squared_relu", framework), memory("gelu", framework), "{framework}");
        }
        let more = memory("squared_relu", "nemo 25.02") - memory("gelu", "nemo 25.02");
        // 28 bytes for each element of eight layers, where one kernel each way moves 10 and what its software adds.
        let elements = 8.0 * 4096.0 * 16_384.0;
        let bytes = 28.0
            - 10.0
                * table().values()
                    [table().constants.iter().position(|one| one.name == "traffic_bridge").unwrap()];
        let share =
            table().values()[table().constants.iter().position(|one| one.name == "memory_share").unwrap()];
        let expected = elements * bytes / (3350e9 * share);
        assert!((more / expected - 1.0).abs() < 1e-6, "{more} {expected}");
    }

    /// Seconds of attention on a GPU with this setting and framework.
    fn attention(gpu: &str, backend: Option<&str>, framework: &str) -> f64 {
        let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": gpu, "nodes": 1},
            "training": {"global_batch_size": 8, "seq_len": 8192, "attention_backend": backend},
            "software": {"framework": framework}});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        setup(&plan).unwrap().predict(&table().values()).parts.attention
    }

    #[test]
    fn experts_in_16_bits_are_launched_with_half_the_kernels() {
        let values = table().values();
        let [sixteen, eight] = ["bf16", "mxfp8"].map(|dtype| {
            let file = json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": "b200", "nodes": 1},
                "layout": {"ep": 8}, "training": {"seq_len": 4096, "global_batch_size": 8, "dtype": dtype}});
            let setup = setup(&Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap()).unwrap();
            let machine = setup.machine(&values);
            Terms::new(&machine, &setup.split, &setup.options, &setup.shape).kinds[0].host
        });
        let each = values[table().constants.iter().position(|one| one.name == "host_expert").unwrap()];
        // Two thirds of the launches, those of backward, run ahead; a rank has 16 experts.
        assert!(((eight - sixteen) / (16.0 * each / 3.0) - 1.0).abs() < 1e-6, "{eight} {sixteen}");
    }

    /// Seconds of a step of a mixture on eight GPUs whose experts are on all of them.
    fn mixture(software: &serde_json::Value, recompute: &str, forced: bool) -> StepTime {
        let file = json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1},
            "runtime": "fsdp2", "layout": {"ep": 8}, "software": software,
            "training": {"seq_len": 4096, "global_batch_size": 8, "recompute": {"granularity": recompute},
                "moe": {"dispatcher": "flex", "force_balance": forced}}});
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        setup(&plan).unwrap().predict(&table().values())
    }

    #[test]
    fn automodels_checkpoints_end_where_backward_has_what_it_needs() {
        let plan = |recompute: &str| {
            let file = json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "cluster": {"gpu": "h100-sxm", "nodes": 1},
                "runtime": "fsdp2", "layout": {"ep": 8}, "software": {"framework": "automodel 0.7"},
                "training": {"global_batch_size": 8, "recompute": {"granularity": recompute}}});
            Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap()
        };
        let values = table().values();
        let setup = setup(&plan("full")).unwrap();
        let machine = setup.machine(&values);
        let layer = Terms::new(&machine, &setup.split, &setup.options, &setup.shape).kinds[0];
        // Tokens are sent there again; nothing needs what comes back.
        assert!((layer.again.ep / layer.forward.ep - 0.5).abs() < 1e-9);
        assert_eq!(layer.again.gemm, layer.forward.gemm);
    }

    /// The step of a plan file, and a layer of it.
    fn predicted(file: &serde_json::Value) -> (StepTime, crate::time::LayerTime) {
        let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
        let (setup, values) = (setup(&plan).unwrap(), table().values());
        let terms = Terms::new(&setup.machine(&values), &setup.split, &setup.options, &setup.shape);
        (setup.predict(&values), terms.kinds[0])
    }

    #[test]
    fn layers_left_in_the_compute_type_take_its_time() {
        let step = |pp: u64, dtype: &str, first: u64, last: u64| {
            predicted(
                &json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "b200", "nodes": 1},
                "software": {"framework": "megatron-lm core_v0.19"}, "layout": {"pp": pp},
                "training": {"micro_batch_size": 1, "global_batch_size": 64, "dtype": dtype, "bf16_first_layers": first, "bf16_last_layers": last}}),
            )
        };
        let [wide, low, all] =
            [("bf16", 0), ("mxfp8", 0), ("mxfp8", 32)].map(|(dtype, first)| step(1, dtype, first, 0).1);
        assert!(low.forward.gemm < wide.forward.gemm);
        assert_eq!(all.forward.gemm, wide.forward.gemm);
        // The last of four stages is as long as if all were; the pipeline waits for it.
        let [wide, low, last] =
            [("bf16", 0), ("mxfp8", 0), ("mxfp8", 8)].map(|(dtype, last)| step(4, dtype, 0, last).0.total());
        assert!(last - low > 0.7 * (wide - low) && last < wide, "{low} {last} {wide}");
    }

    #[test]
    fn operators_that_are_not_kept_are_computed_again_whatever_modules_are_named() {
        let again = |modules: serde_json::Value| {
            let (_, layer) = predicted(
                &json!({"version": 1, "model": {"preset": "qwen3-30b-a3b"}, "runtime": "fsdp2",
                "cluster": {"gpu": "h100-sxm", "nodes": 1}, "layout": {"ep": 8}, "software": {"framework": "torchtitan 0.3"},
                "training": {"global_batch_size": 8, "recompute": {"granularity": "selective", "modules": modules}}}),
            );
            assert_eq!(layer.again.ep, 0.0);
            (layer.again.gemm / layer.forward.gemm, layer.again.gemm)
        };
        let named = [json!([]), json!(["mlp"]), json!(["moe"])].map(again);
        assert!(named.iter().all(|one| *one == named[0]), "{named:?}");
        // All products of experts, half of the projections.
        assert!(named[0].0 > 0.7 && named[0].0 < 1.0, "{named:?}");
    }

    #[test]
    fn gathered_tokens_all_go_to_every_rank() {
        let sent = |dispatcher: &str, load: f64| {
            let (step, _) = predicted(&json!({"version": 1, "model": {"preset": "mixtral-8x7b"},
                "cluster": {"gpu": "h100-sxm", "nodes": 1}, "layout": {"ep": 8},
                "training": {"global_batch_size": 64, "moe": {"dispatcher": dispatcher, "load_imbalance": load}}}));
            step.parts.ep
        };
        // A rank gets all tokens of seven others, and by all-to-all a quarter of them, for a token has two of eight experts.
        assert!(sent("allgather", 1.0) > 2.0 * sent("alltoall", 1.0));
        assert_eq!(sent("allgather", 1.0), sent("allgather", 2.0));
        assert!(sent("alltoall", 1.0) < sent("alltoall", 2.0));
    }

    #[test]
    fn automodels_forced_balance_sends_tokens_to_one_rank() {
        let parts = |software: serde_json::Value| {
            [true, false].map(|forced| mixture(&software, "none", forced).parts.ep)
        };
        // Eight neighbours of 128 experts are on one of eight ranks, any eight on 5.25; starting takes the same.
        let [neighbours, any] = parts(json!({"framework": "automodel 0.7"}));
        assert!(any / neighbours > 4.5 && any / neighbours < 5.25, "{any} {neighbours}");
        let [forced, any] = parts(json!({}));
        assert_eq!(forced, any);
    }

    #[test]
    fn fsdp2_with_fused_attention_has_the_rate_of_cudnns() {
        let value = |name: &str| table().constants.iter().find(|one| one.name == name).unwrap().value;
        let [usual, fused] = [None, Some("fused")].map(|backend| {
            let file = json!({"version": 1, "model": {"preset": "llama-3-8b"}, "cluster": {"gpu": "h200", "nodes": 1},
                "runtime": "fsdp2", "training": {"seq_len": 65_536, "micro_batch_size": 1, "global_batch_size": 8, "attention_backend": backend,
                "recompute": {"granularity": "full"}}});
            let plan = Plan::resolve(&parse_plan(&file.to_string()).unwrap()).plan.unwrap();
            setup(&plan).unwrap().predict(&table().values()).parts.attention
        });
        let expected = value("attention_te_hopper") / value("attention_fa2_hopper");
        assert!((usual / fused / expected - 1.0).abs() < 0.05, "{} {expected}", usual / fused);
    }

    #[test]
    fn flash_attention_2_is_slower_than_cudnns_on_hopper() {
        let value = |name: &str| table().constants.iter().find(|one| one.name == name).unwrap().value;
        let ratio = |gpu: &str, framework: &str| {
            attention(gpu, Some("flash"), framework) / attention(gpu, Some("fused"), framework)
        };
        let hopper = value("attention_te_hopper") / value("attention_flash_hopper");
        for framework in ["megatron-lm core_v0.19", "bridge 26.08", "nemo 25.02"] {
            // Clocks rise a little while less multiplies.
            assert!((ratio("h100-sxm", framework) / hopper - 1.0).abs() < 0.02, "{framework}");
        }
        assert!((ratio("a100-80gb-sxm", "megatron-lm core_v0.19") - 1.0).abs() < 1e-9);
        // NeMo's launcher kept cuDNN's off.
        let launcher = attention("h100-sxm", None, "nemo 24.07");
        assert_eq!(launcher, attention("h100-sxm", Some("flash"), "nemo 24.07"));
        assert!(launcher > 1.5 * attention("h100-sxm", None, "nemo 24.12"));
    }
}
