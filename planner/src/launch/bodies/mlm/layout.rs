//! The layout as flags.

use super::super::super::writer::Writer;
use super::Flags;
use crate::import::megatron_names;
use crate::wire::Runtime;

/// Appends the layout's flags.
pub fn flags(writer: &mut Writer<'_>, flags: &mut Flags) {
    let plan = writer.plan;
    let (layout, file) = (&plan.layout, &plan.file.layout);
    flags.set("tensor-model-parallel-size", layout.tp);
    flags.flag_if("sequence-parallel", layout.sp && layout.tp > 1);
    flags.set("context-parallel-size", layout.cp);
    flags.set("cp-comm-type", megatron_names::cp_comm_type(layout.cp_kind));
    flags.set("pipeline-model-parallel-size", layout.pp);
    if let Some(text) = &file.pipeline_layout {
        let text = writer.word("layout.pipeline_layout", text);
        flags.set("pipeline-model-parallel-layout", text);
    } else if layout.vpp > 1 {
        flags.set("num-virtual-stages-per-pipeline-rank", layout.vpp);
    }
    if let Some(layers) = layout.first_stage_layers {
        flags.set("decoder-first-pipeline-num-layers", layers);
    }
    if let Some(layers) = layout.last_stage_layers {
        flags.set("decoder-last-pipeline-num-layers", layers);
    }
    flags.flag_if("account-for-embedding-in-pipeline-split", layout.account_for_embedding);
    flags.flag_if("account-for-loss-in-pipeline-split", layout.account_for_loss);
    if layout.microbatch_group_size != layout.pp {
        flags.set("microbatch-group-size-per-virtual-pipeline-stage", layout.microbatch_group_size);
    }
    flags.set("expert-model-parallel-size", layout.ep);
    // Frameworks differ in its default.
    flags.set("expert-tensor-parallel-size", layout.etp);
    flags.flag_if("use-tp-pp-dp-mapping", file.order.as_deref() == Some("tp-cp-ep-pp-dp"));
    flags.set("make-vocab-size-divisible-by", layout.vocab_divisible_by);
    if plan.runtime == Runtime::MegatronFsdp {
        megatron_fsdp(writer, flags);
    }
    cannot(writer);
}

fn megatron_fsdp(writer: &mut Writer<'_>, flags: &mut Flags) {
    let fsdp = &writer.plan.file.layout.fsdp;
    flags.flag("use-megatron-fsdp");
    let strategy = fsdp.strategy.as_deref().unwrap_or("optim_grads_params");
    let strategy = writer.word("layout.fsdp.strategy", strategy);
    flags.set("data-parallel-sharding-strategy", strategy);
    let outer = fsdp.outer_strategy.as_deref().unwrap_or("no_shard");
    let outer = writer.word("layout.fsdp.outer_strategy", outer);
    flags.set("outer-dp-sharding-strategy", outer);
    let replicas = writer.plan.layout.dp_replicate;
    if replicas > 1 {
        flags.set("num-distributed-optimizer-instances", replicas);
    }
    flags.flag_if("fsdp-double-buffer", fsdp.double_buffer == Some(true));
    flags.flag_if("use-nccl-ub", fsdp.nccl_ub == Some(true));
    flags.flag_if("keep-fp8-transpose-cache", fsdp.keep_fp8_transpose == Some(true));
    flags.flag_if("init-model-with-meta-device", fsdp.init_meta == Some(true));
    if let Some(elements) = fsdp.communication_unit {
        flags.set("suggested-communication-unit-size", elements);
    }
    flags.set("ckpt-format", "fsdp_dtensor");
    if fsdp.preserve_fp32_weights == Some(false) {
        let what = "the optimizer works on copies of the parameters in a type of its own (--megatron-fsdp-main-params-dtype)";
        writer.cannot("layout.fsdp.preserve_fp32_weights", false, what);
    }
}

/// What of a layout Megatron-Core has no setting for.
pub fn cannot(writer: &mut Writer<'_>) {
    let layout = &writer.plan.layout;
    if !layout.schedule.kind().in_megatron {
        let what = "Megatron-Core has 1F1B and its interleaved form only";
        writer.cannot("layout.schedule", layout.schedule.name(), what);
    }
    let order = writer.plan.file.layout.order.as_deref().unwrap_or("tp-cp-ep-dp-pp");
    if !["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"].contains(&order) {
        writer.cannot("layout.order", order, "ranks count along tp-cp-ep-dp-pp or tp-cp-ep-pp-dp");
    }
    if writer.plan.nonuniform.is_some() {
        let what = "replicas of reduced tensor parallelism have no flags; leave the failed GPUs' nodes out";
        writer.cannot("cluster.failed", writer.plan.cluster.failed.len() as u64, what);
    }
}
