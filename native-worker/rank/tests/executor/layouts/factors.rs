//! The settings that layouts are made of, and the plans that they make.

use planner::Plan;
use planner::rules::executor_limits;
use serde_json::{Value, json};

use super::pairwise::Levels;
use crate::harness::{set, tiny};

/// The most processes of a layout in the test command: two axes of two, or one of four. `SHARDPLAN_WORLD` asks for others,
/// as `cargo xtask soak` does.
const MAX_WORLD: u64 = 4;

/// Sequences of a step at the most. Where fewer do, they are two micro batches for each stage, which add gradients up and
/// fill a pipeline twice: more say the same again.
const LARGEST_BATCH: u64 = 8;

/// A level of a factor: its name, and what it does to a plan.
type Level = (&'static str, fn(&mut Value));

/// A factor and its levels.
struct Factor {
    name: &'static str,
    levels: &'static [Level],
}

fn layout(plan: &mut Value, field: &str, value: impl Into<Value>) {
    plan["layout"][field] = value.into();
}

fn model(plan: &mut Value, field: &str, value: impl Into<Value>) {
    plan["model"]["architecture"][field] = value.into();
}

fn recompute(plan: &mut Value, value: Value) {
    set(plan, "training.recompute", value);
}

const NOTHING: fn(&mut Value) = |_| {};

const FACTORS: &[Factor] = &[
    Factor {
        name: "model",
        levels: &[
            ("dense", NOTHING),
            ("qk norm and biases", |plan| {
                set(plan, "model.architecture.attention.qk_norm", "per_head");
                set(plan, "model.architecture.attention.qkv_bias", true);
            }),
            ("fewer kv heads than tp", |plan| set(plan, "model.architecture.attention.kv_heads", 1)),
            ("moe", |plan| model(plan, "moe", json!({"experts": 8, "top_k": 2, "ffn_hidden_size": 24}))),
            ("moe, shared experts", |plan| {
                model(
                    plan,
                    "moe",
                    json!({"experts": 4, "top_k": 2, "ffn_hidden_size": 16, "shared_ffn_hidden_size": 32,
                           "shared_gate": true}),
                );
            }),
            ("mla", latent),
            ("mla and moe", |plan| {
                latent(plan);
                model(
                    plan,
                    "pattern",
                    json!([{"mlp": "dense"}, {"mlp": "moe"}, {"mlp": "moe"}, {"mlp": "moe"}]),
                );
                model(
                    plan,
                    "moe",
                    json!({"experts": 8, "top_k": 4, "ffn_hidden_size": 16, "shared_ffn_hidden_size": 16,
                           "router_bias_buffer": 8,
                           "routing": {"score": "sigmoid", "scale": 2.5, "groups": 4, "group_top_k": 2}}),
                );
            }),
            ("mtp", |plan| model(plan, "mtp_layers", 1)),
            ("layers of their own sizes", |plan| {
                let fewer = json!({"attention": {"kind": "gqa", "heads": 8, "kv_heads": 2, "head_dim": 8}});
                model(plan, "other_mixers", json!([fewer]));
                model(
                    plan,
                    "pattern",
                    json!([{"mlp": "dense"}, {"mixer": 1, "mlp": "dense", "ffn": 32}, {"mixer": null, "mlp": "dense"},
                           {"mlp": "none"}]),
                );
            }),
        ],
    },
    Factor {
        name: "tied",
        levels: &[("untied", NOTHING), ("tied", |plan| model(plan, "tied_embeddings", true))],
    },
    Factor {
        name: "tp",
        levels: &[
            ("1", NOTHING),
            ("2", |plan| layout(plan, "tp", 2)),
            ("2 without sp", |plan| {
                layout(plan, "tp", 2);
                layout(plan, "sp", false);
            }),
            ("4", |plan| layout(plan, "tp", 4)),
        ],
    },
    Factor {
        name: "cp",
        levels: &[
            ("1", NOTHING),
            ("2 p2p", |plan| context(plan, 2, "p2p")),
            ("2 all_gather", |plan| context(plan, 2, "all_gather")),
            ("2 a2a", |plan| context(plan, 2, "a2a")),
            ("4 a2a+p2p", |plan| context(plan, 4, "a2a+p2p")),
        ],
    },
    Factor {
        name: "pp",
        levels: &[
            ("1", NOTHING),
            ("2", |plan| layout(plan, "pp", 2)),
            ("2 uneven", |plan| {
                layout(plan, "pp", 2);
                layout(plan, "first_stage_layers", 1);
            }),
            ("4", |plan| layout(plan, "pp", 4)),
        ],
    },
    Factor {
        name: "schedule",
        levels: &[
            ("1f1b", NOTHING),
            ("interleaved", |plan| layout(plan, "vpp", 2)),
            ("gpipe", |plan| layout(plan, "schedule", "gpipe")),
            ("zb-h1", |plan| layout(plan, "schedule", "zb-h1")),
            ("zbv", |plan| {
                layout(plan, "vpp", 2);
                layout(plan, "schedule", "zbv");
            }),
        ],
    },
    Factor {
        name: "ep",
        levels: &[("1", NOTHING), ("2", |plan| layout(plan, "ep", 2)), ("4", |plan| layout(plan, "ep", 4))],
    },
    Factor { name: "etp", levels: &[("1", NOTHING), ("2", |plan| layout(plan, "etp", 2))] },
    Factor {
        name: "dp",
        levels: &[
            ("1", |plan| plan["dp"] = 1.into()),
            ("2", |plan| plan["dp"] = 2.into()),
            ("4", |plan| plan["dp"] = 4.into()),
        ],
    },
    Factor {
        name: "order",
        levels: &[("tp first", NOTHING), ("dp before cp", |plan| layout(plan, "order", "tp-dp-cp-ep-pp"))],
    },
    Factor {
        name: "optimizer",
        levels: &[
            ("adam, distributed", NOTHING),
            ("adam, whole", |plan| set(plan, "training.optimizer.distributed", false)),
            ("sgd, distributed", |plan| {
                set(plan, "training.optimizer.kind", "sgd");
                // Without AdamW's division by its own size a gradient of norm 1 needs larger steps for the loss to fall.
                set(plan, "run.lr", 0.1);
            }),
            ("muon, whole", |plan| {
                set(plan, "training.optimizer", json!({"kind": "muon", "distributed": false}));
            }),
        ],
    },
    Factor {
        name: "recompute",
        levels: &[
            ("none", NOTHING),
            ("full, uniform", |plan| {
                recompute(plan, json!({"granularity": "full", "method": "uniform", "num_layers": 1}));
            }),
            ("full, block", |plan| {
                recompute(plan, json!({"granularity": "full", "method": "block", "num_layers": 1}));
            }),
            ("selective", |plan| {
                recompute(plan, json!({"granularity": "selective", "modules": ["core_attn", "layernorm"]}));
            }),
        ],
    },
    Factor {
        name: "micro batch",
        levels: &[("1", NOTHING), ("2", |plan| set(plan, "training.micro_batch_size", 2))],
    },
];

fn latent(plan: &mut Value) {
    let attention = json!({"kind": "mla", "heads": 8, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_dim": 8,
                           "qk_rope_dim": 4, "v_dim": 6});
    model(plan, "attention", attention);
}

fn context(plan: &mut Value, size: u64, kind: &str) {
    layout(plan, "cp", size);
    layout(plan, "cp_kind", kind);
}

/// Factors that make a layout larger, or that ask for another to be large: drawn evenly, most would not fit together.
const SPARING: [&str; 7] = ["tp", "cp", "pp", "schedule", "ep", "etp", "dp"];

/// Random levels, from a draw of a number below another.
pub fn draw(mut below: impl FnMut(usize) -> usize) -> Levels {
    let level = |factor: &Factor| {
        let (first, any) = (below(2) == 0, below(factor.levels.len()));
        if first && SPARING.contains(&factor.name) { 0 } else { any }
    };
    FACTORS.iter().map(level).collect()
}

/// The levels in words.
pub fn words(levels: &Levels) -> String {
    let of = |(factor, &level): (&Factor, &usize)| format!("{} {}", factor.name, factor.levels[level].0);
    FACTORS.iter().zip(levels).map(of).collect::<Vec<_>>().join(" | ")
}

/// The most processes of a layout.
pub fn max_world() -> u64 {
    std::env::var("SHARDPLAN_WORLD").ok().and_then(|value| value.parse().ok()).unwrap_or(MAX_WORLD)
}

/// The plan of these levels in fp64; none when its world is larger than `max_world`. dp counts besides the other axes.
pub fn plan_of(levels: &Levels, max_world: u64) -> Option<Value> {
    let mut plan = tiny(1, 1);
    model(&mut plan, "num_layers", 4);
    set(&mut plan, "run.steps", super::STEPS);
    for (factor, &level) in FACTORS.iter().zip(levels) {
        factor.levels[level].1(&mut plan);
    }
    let dp = plan.as_object_mut()?.remove("dp")?.as_u64()?;
    let [tp, cp, pp] = ["tp", "cp", "pp"].map(|axis| plan["layout"][axis].as_u64().unwrap_or(1));
    let world = tp * cp * pp * dp;
    set(&mut plan, "cluster.gpus_per_node", world);
    let micro_batch = plan["training"]["micro_batch_size"].as_u64()?;
    set(&mut plan, "training.global_batch_size", LARGEST_BATCH.min(dp * micro_batch * 2 * pp));
    (world <= max_world).then_some(plan)
}

/// Whether planner accepts it, the executor runs it, and no level says what another already does.
pub fn runs(plan: &Value) -> bool {
    let axis = |name: &str| plan["layout"][name].as_u64().unwrap_or(1);
    let experts = plan["model"]["architecture"]["moe"].is_object();
    // A schedule without stages, or an expert axis without experts, would be another layout under a new name.
    if (axis("pp") == 1 && (axis("vpp") > 1 || plan["layout"]["schedule"].is_string()))
        || (!experts && (axis("ep") > 1 || axis("etp") > 1))
        || (plan["model"]["architecture"]["attention"]["kv_heads"] == 1 && axis("tp") == 1)
    {
        return false;
    }
    let Ok(file) = planner::parse_plan(&plan.to_string()) else { return false };
    Plan::resolve(&file).plan.is_some_and(|plan| executor_limits(&plan).is_empty())
}

/// The same model and training on one process.
pub fn on_one(plan: &Value) -> Value {
    let mut one = plan.clone();
    one["layout"] = json!({});
    set(&mut one, "cluster.gpus_per_node", 1);
    set(&mut one, "training.optimizer.distributed", true);
    if one["training"]["optimizer"]["kind"] == "muon" {
        set(&mut one, "training.optimizer.distributed", false);
    }
    one["training"].as_object_mut().unwrap().remove("recompute");
    one
}
