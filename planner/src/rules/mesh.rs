//! Rules of FSDP runtimes: each once, against a shape. World, sequence, stage and batch rules are those of all.

use crate::finding::divisors;
use crate::layout::parse_order;
use crate::layout::{Reshard, TpPlanSource};
use crate::model::{Attention, MixerRef};
use crate::rules::layout::Broken;
use crate::rules::owner::{Owned, Owner};
use crate::rules::shape::Shape;
use crate::rules::torchtitan;
use crate::settings::Strategy;

const REPLICATES: Owned = &[
    (Owner::Automodel, "dp is a multiple of dp_replicate, which is below dp unless it is 1 (NeMo Automodel)"),
    (Owner::Plans, "dp is a multiple of dp_replicate, which is below dp unless it is 1 (hybrid sharding)"),
];
const HEADS: Owned = &[
    (Owner::Automodel, "kv heads, then heads, are a multiple of tp (NeMo Automodel validate_tp)"),
    (Owner::Torchtitan, "kv heads, then heads, are a multiple of tp (torchtitan models/common/decoder)"),
    (Owner::Plans, "kv heads, then heads, are a multiple of tp (plans on a device mesh)"),
];
const EXPERTS: Owned = &[
    (Owner::Automodel, "ep divides dp x cp x tp, and the experts (NeMo Automodel)"),
    (Owner::Torchtitan, "ep divides dp_shard x cp x tp, and the experts (torchtitan parallel_dims)"),
    (Owner::MegatronLm, "ep divides dp_shard x cp x tp, and the experts (Megatron-Core mcore_fsdp_adapter)"),
    (Owner::Plans, "ep divides the ranks that experts are split over, and the experts"),
];
/// Megatron-LM's Megatron-FSDP and the worker have both at once.
const PREDICTION_OR_CONTEXT: Owned = &[
    (Owner::Automodel, "context parallelism without multi-token prediction (NeMo Automodel)"),
    (
        Owner::Torchtitan,
        "multi-token prediction without context parallelism or pipelines (torchtitan deepseek_v3)",
    ),
];
const EXPERT_SHARD_RULE: &str =
    "FSDP cuts a dim other than the first only into equal parts (torch fully_shard)";

pub(super) fn mesh_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    replicate_rules(shape, broken);
    head_rules(shape, broken);
    expert_rules(shape, broken);
    let usual = parse_order("tp-cp-ep-dp-pp").unwrap_or_default();
    broken.require(
        layout.order == usual,
        "layout.order",
        "",
        "mesh axes are pp, dp_replicate, dp_shard, cp, tp, the last fastest",
        || "the device mesh has one order of axes, tp-cp-ep-dp-pp".to_owned(),
    );
    if let Reshard::To(size) = layout.fsdp.reshard {
        let shards = shape.sharding_ranks();
        broken.require(
            shards.is_some_and(|shards| shards.is_multiple_of(size) && size < shards),
            "layout.fsdp.reshard_after_forward",
            size,
            "reshard_after_forward divides the sharding group (torch fully_shard)",
            || {
                format!(
                    "resharding to groups of {size} needs a sharding group that is a larger multiple of it, and this one has {} ranks",
                    shards.unwrap_or(0)
                )
            },
        );
        let whole = layout.tp == 1 && layout.ep == 1;
        broken.require(
            whole || !shape.runtime.facts().reshards_as_said,
            "layout.fsdp.reshard_after_forward",
            size,
            "parameters that tensor or expert parallelism cuts are not resharded to smaller groups (torch fully_shard)",
            || {
                format!(
                    "resharding to groups of {size} goes with tp 1 and ep 1: say \"always\" instead of a number"
                )
            },
        );
    }
    // Its models of experts keep attention and routers whole on every tensor-parallel rank, alike only where all begin with the same weights.
    let mixture = shape.software.is_automodels() && shape.architecture.moe.is_some();
    let rule = "a mixture is split by ep, not by tp (NeMo Automodel moe/parallelizer)";
    broken.require(layout.tp == 1 || !mixture, "layout.tp", layout.tp, rule, || {
        format!(
            "tp is {}, and NeMo Automodel keeps attention and experts of a mixture whole on each of those ranks: say tp 1, and split experts with ep",
            layout.tp
        )
    });
    if let Some(rule) = shape.rule(PREDICTION_OR_CONTEXT) {
        let alone = shape.architecture.mtp_layers == 0;
        broken.require(layout.cp == 1 || alone, "layout.cp", layout.cp, rule, || {
            format!("cp {} does not go with multi-token-prediction modules in this runtime", layout.cp)
        });
        let staged = layout.pp > 1 && shape.is_of(Owner::Torchtitan);
        broken.require(!staged || alone, "layout.pp", layout.pp, rule, || {
            format!("pp {} does not go with multi-token-prediction modules in torchtitan", layout.pp)
        });
    }
    torchtitan::rules(shape, broken);
    match shape.runtime.facts().flat_units {
        true => flat_unit_rules(shape, broken),
        false => fully_shard_rules(shape, broken),
    }
}

/// `fully_shard` has no levels: parameters, gradients and optimizer state are cut over one group, and replicas hold the
/// same. What it leaves open is when gathered parameters are given back.
fn fully_shard_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let settings = &shape.layout.fsdp;
    let rule = "FSDP2 shards parameters, gradients and optimizer state alike (torch fully_shard)";
    let name = settings.strategy.name();
    let whole = settings.strategy == Strategy::OptimGradsParams;
    broken.require(whole, "layout.fsdp.strategy", name, rule, || {
        format!(
            "FSDP2 has no strategy {name}: strategies belong to runtime megatron_fsdp; to keep gathered parameters through backward, set layout.fsdp.reshard_after_forward to never"
        )
    });
    broken.require(!settings.outer_optim, "layout.fsdp.outer_strategy", "optim", rule, || {
        "FSDP2's replicas hold the same optimizer state: outer strategy optim belongs to runtime megatron_fsdp".to_owned()
    });
}

fn replicate_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let Some(dp) = shape.dp() else { return };
    let replicate = shape.layout.dp_replicate;
    let field = "layout.dp_replicate";
    let rule = shape.rule(REPLICATES).unwrap_or_default();
    let divides = replicate > 0 && dp.is_multiple_of(replicate);
    if broken.require(divides, field, replicate, rule, || {
        format!("dp {dp} can't be split into {replicate} replicas")
    }) {
        broken.require(replicate == 1 || replicate < dp, field, replicate, rule, || {
            format!(
                "{replicate} replicas of dp {dp} leave nothing to shard; plain data parallelism is not FSDP"
            )
        });
    }
}

/// The rule of models that a runtime's own plans know no class of.
pub const OF_CLASS: &str = "a tensor-parallel plan for the model's class";

fn head_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let tp = shape.layout.tp;
    if tp == 1 {
        return;
    }
    let rule = shape.rule(HEADS).unwrap_or_default();
    let mixers = shape.architecture.mixers();
    // Layers may differ (Nemotron-NAS): each is looked at.
    for attention in mixers.iter().filter_map(|mixer| mixer.attention()) {
        attention_heads(tp, attention, rule, broken);
    }
    // The runtimes' own plans know grouped attention, alone or beside Mamba, which stays whole, and leave a single matrix
    // alone; what mixes tokens otherwise needs a plan that says how.
    let known = |mixer: &MixerRef<'_>| {
        *mixer == MixerRef::Linear || matches!(mixer.attention(), Some(Attention::Gqa { .. }))
    };
    let other = !mixers.iter().all(known);
    let own = shape.layout.tp_plan == TpPlanSource::Own;
    broken.require(!(other && own), "layout.tp", tp, OF_CLASS, || {
        "there is no tensor-parallel plan for latent or linear attention, Mamba and the like: set tp to 1, or give layout.tp_plan as \"hf\", where transformers has one for the model's class, or as a map from module pattern to style".to_owned()
    });
}

fn attention_heads(tp: u64, attention: &Attention, rule: &'static str, broken: &mut Broken) {
    let (heads, kv_heads) = (attention.heads(), attention.kv_heads());
    let whole = |count: u64| tp > 0 && count.is_multiple_of(tp);
    let valid = || {
        let sizes = divisors(heads).into_iter().filter(|&size| kv_heads.is_multiple_of(size));
        sizes.map(|size| size.to_string()).collect::<Vec<_>>().join(", ")
    };
    if broken.require(whole(kv_heads), "layout.tp", tp, rule, || {
        format!("{kv_heads} key-value heads can't be split over tp {tp}; valid are {}", valid())
    }) {
        broken.require(whole(heads), "layout.tp", tp, rule, || {
            format!("{heads} attention heads can't be split over tp {tp}; valid are {}", valid())
        });
    }
}

fn expert_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    let Some(moe) = &shape.architecture.moe else {
        broken.require(layout.ep == 1, "layout.ep", layout.ep, "expert parallel needs experts", || {
            format!("ep {} needs a model with experts, and this one has none", layout.ep)
        });
        return;
    };
    broken.require(
        layout.etp == 1,
        "layout.etp",
        layout.etp,
        "no expert tensor parallel is planned in FSDP runtimes",
        || match shape.runtime.facts().flat_units {
            // It has a mesh of its own for them, whose shards nothing here counts yet; Megatron-LM's usual etp is tp.
            true => format!(
                "Megatron-FSDP can cut experts by tensor parallelism, which is not planned yet, and etp is {}; Megatron-LM takes tp where --expert-tensor-parallel-size is left out",
                layout.etp
            ),
            false => {
                format!("experts are not cut by tensor parallelism in this runtime, and etp is {}", layout.etp)
            }
        },
    );
    let top_k_fits = moe.top_k >= 1 && moe.top_k <= moe.experts;
    broken.require(top_k_fits, "model", moe.top_k, "1 <= top_k <= experts", || {
        format!("top_k {} must be between 1 and the {} experts", moe.top_k, moe.experts)
    });
    let ep = layout.ep;
    let whole = ep > 0 && moe.experts.is_multiple_of(ep);
    let rule = shape.rule(EXPERTS).unwrap_or_default();
    broken.require(whole, "layout.ep", ep, rule, || {
        format!("{} experts can't be split over ep {ep}", moe.experts)
    });
    if layout.pp == 0 || !shape.world.is_multiple_of(layout.pp) {
        return;
    }
    let facts = shape.runtime.facts();
    let (ranks, what) = match facts.experts_within_replica || shape.is_of(Owner::Torchtitan) {
        true => {
            let replicas = layout.pp.saturating_mul(layout.dp_replicate.max(1));
            (shape.world / replicas, "a replica (dp_shard x cp x tp)")
        }
        false => (shape.world / layout.pp, "a stage (dp x cp x tp)"),
    };
    let fits = broken.require(ep > 0 && ranks.is_multiple_of(ep), "layout.ep", ep, rule, || {
        format!("ep {ep} does not divide the {ranks} ranks of {what}")
    });
    if fits && ep > 1 && !facts.flat_units {
        let shards = shape.world / layout.pp / ep;
        let dims = [shape.architecture.hidden_size, moe.ffn_hidden_size];
        let even = dims.iter().all(|dim| dim.is_multiple_of(shards));
        broken.require(even, "layout.ep", ep, EXPERT_SHARD_RULE, || {
            format!(
                "each expert's matrices ({} and {}) are cut over {shards} ranks (dp x cp x tp / ep), which does not divide them",
                dims[0], dims[1]
            )
        });
    }
}

/// Megatron-FSDP's, whose units lie in flat buffers.
fn flat_unit_rules(shape: &Shape<'_>, broken: &mut Broken) {
    let layout = &shape.layout;
    for (field, name, size) in [("layout.pp", "pp", layout.pp), ("layout.vpp", "vpp", layout.vpp)] {
        let rule =
            "the mesh of Megatron-FSDP is dp, cp, tp, and ep for experts (Megatron-Core mcore_fsdp_adapter)";
        broken.require(size == 1, field, size, rule, || {
            format!("{name} is {size}, and Megatron-FSDP's mesh has no such axis")
        });
    }
    let automodel = shape.software.is_automodels();
    let rule = "the mesh of Megatron-FSDP is dp, cp, tp (NeMo Automodel)";
    broken.require(layout.ep == 1 || !automodel, "layout.ep", layout.ep, rule, || {
        format!(
            "ep is {}, and NeMo Automodel's mesh of Megatron-FSDP has no such axis; Megatron-LM's has it",
            layout.ep
        )
    });
    let settings = &layout.fsdp;
    let rule = "registered buffers are the persistent ones (Megatron-LM validate_args)";
    broken.require(
        settings.double_buffer || !settings.nccl_ub,
        "layout.fsdp.double_buffer",
        false,
        rule,
        || "nccl_ub registers the persistent buffers, so double_buffer has to be on".to_owned(),
    );
    let rule = "parameters that stay whole are not made on the meta device (Megatron-LM validate_args)";
    let whole = settings.strategy == Strategy::NoShard;
    broken.require(!(whole && settings.init_meta), "layout.fsdp.init_meta", true, rule, || {
        "with strategy no_shard the model is whole on every rank, and init_meta is refused".to_owned()
    });
    let old = shape.software.torch_version().is_some_and(|version| version < (2, 11));
    let clash = settings.nccl_ub && shape.software.expandable_segments && old;
    let rule = "registered buffers and expandable segments need torch 2.11 (Megatron-LM validate_args)";
    broken.require(!clash, "layout.fsdp.nccl_ub", true, rule, || {
        "before torch 2.11, nccl_ub excludes software.expandable_segments".to_owned()
    });
    let rule = "outer sharding needs optim_grads_params (Megatron-FSDP)";
    let full = settings.strategy == Strategy::OptimGradsParams;
    broken.require(full || !settings.outer_optim, "layout.fsdp.outer_strategy", "optim", rule, || {
        format!(
            "outer strategy optim needs strategy optim_grads_params, and it is {}",
            settings.strategy.name()
        )
    });
}
