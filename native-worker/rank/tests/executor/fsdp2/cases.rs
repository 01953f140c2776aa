//! The layouts that train as FSDP2, listed: what is sharded over how many, what is given back when, and what stands beside it.

/// A model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Grouped queries, gated MLP.
    Plain,
    /// Query, key, value and output biases, norms of heads, biases of MLPs.
    Everything,
    /// Learned positions, layer norms, no gate.
    Gpt,
    /// Latent attention.
    Latent,
    /// The output layer is the embedding.
    Tied,
    /// As many words as nothing divides.
    Words,
    /// Eight routed experts and a shared one.
    Experts,
    /// Fewer experts than ranks.
    FewExperts,
    /// A prediction module.
    Predicting,
    /// Four layers.
    Deep,
}

/// One layout.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub model: Model,
    pub replicas: u64,
    pub shards: u64,
    pub tp: u64,
    pub cp: u64,
    pub pp: u64,
    pub ep: u64,
    /// Micro batches of a rank.
    pub micro: u64,
    /// `layout.fsdp`.
    pub fsdp: &'static str,
    /// What else is set, as `path=value`.
    pub also: &'static [&'static str],
}

const PLAIN: Case = Case {
    model: Model::Plain,
    replicas: 1,
    shards: 2,
    tp: 1,
    cp: 1,
    pp: 1,
    ep: 1,
    micro: 1,
    fsdp: "{}",
    also: &[],
};

const ALWAYS: &str = r#"{"reshard_after_forward": "always"}"#;
const NEVER: &str = r#"{"reshard_after_forward": "never"}"#;
const APART: &str = r#"{"outer_units": "apart"}"#;
const APART_ALWAYS: &str = r#"{"outer_units": "apart", "reshard_after_forward": "always"}"#;
const TWO: &str = r#"{"reshard_after_forward": 2}"#;
const TWO_APART: &str = r#"{"reshard_after_forward": 2, "outer_units": "apart"}"#;
const TWO_LAST: &str = r#"{"reshard_after_forward": 2, "gradient_sync": "last"}"#;
const EVERY: &str = r#"{"gradient_sync": "every"}"#;
const ZB_H1: &[&str] = &["layout.schedule=zb-h1"];
const ZB_H1_FULL: &[&str] = &["layout.schedule=zb-h1", "training.recompute.granularity=full"];
/// All experts see all tokens, so that what several micro batches in flight keep does not follow from the data.
const ZB_H1_EVEN: &[&str] = &["layout.schedule=zb-h1", "model.architecture.moe.top_k=8"];
const ZBV: &[&str] = &["layout.schedule=zbv", "layout.vpp=2"];
const LAST: &str = r#"{"gradient_sync": "last"}"#;
const LAST_APART: &str = r#"{"gradient_sync": "last", "outer_units": "apart"}"#;

/// All of them.
pub const CASES: &[Case] = &[
    // Sharding over two to four ranks, even and uneven.
    PLAIN,
    Case { shards: 3, ..PLAIN },
    Case { shards: 4, ..PLAIN },
    Case { model: Model::Words, shards: 4, ..PLAIN },
    Case { model: Model::Everything, shards: 3, ..PLAIN },
    Case { model: Model::Gpt, shards: 2, ..PLAIN },
    Case { model: Model::Latent, shards: 3, ..PLAIN },
    Case { model: Model::Tied, shards: 4, ..PLAIN },
    // What is given back when.
    Case { fsdp: ALWAYS, ..PLAIN },
    Case { fsdp: NEVER, shards: 4, ..PLAIN },
    Case { fsdp: APART, ..PLAIN },
    Case { fsdp: APART_ALWAYS, shards: 3, ..PLAIN },
    Case { fsdp: APART_ALWAYS, model: Model::Tied, ..PLAIN },
    Case { fsdp: APART_ALWAYS, model: Model::Predicting, ..PLAIN },
    Case { model: Model::Deep, fsdp: ALWAYS, ..PLAIN },
    // Split over two ranks between forward and backward.
    Case { fsdp: TWO, shards: 4, ..PLAIN },
    Case { fsdp: TWO, shards: 6, micro: 2, ..PLAIN },
    Case { fsdp: TWO_APART, shards: 4, model: Model::Words, ..PLAIN },
    Case { fsdp: TWO_APART, shards: 4, model: Model::Tied, micro: 2, ..PLAIN },
    Case { fsdp: APART_ALWAYS, shards: 4, model: Model::Tied, micro: 2, ..PLAIN },
    Case { fsdp: TWO_APART, shards: 4, model: Model::Tied, ..PLAIN },
    Case { fsdp: TWO_LAST, shards: 4, replicas: 2, micro: 2, model: Model::Everything, ..PLAIN },
    Case { fsdp: TWO, shards: 2, cp: 2, ..PLAIN },
    Case { fsdp: TWO, shards: 4, pp: 2, micro: 3, model: Model::Deep, ..PLAIN },
    Case { fsdp: TWO_APART, shards: 4, model: Model::Predicting, ..PLAIN },
    Case {
        fsdp: TWO,
        shards: 4,
        model: Model::Experts,
        also: &["training.recompute.granularity=full"],
        ..PLAIN
    },
    // Several micro batches: reduced behind each, or behind the last.
    Case { micro: 2, ..PLAIN },
    Case { micro: 3, fsdp: ALWAYS, shards: 3, ..PLAIN },
    Case { micro: 2, fsdp: LAST, ..PLAIN },
    Case { micro: 3, fsdp: LAST_APART, shards: 3, ..PLAIN },
    Case { micro: 2, fsdp: NEVER, ..PLAIN },
    // Replicas of what is sharded.
    Case { replicas: 2, ..PLAIN },
    Case { replicas: 2, micro: 2, ..PLAIN },
    Case { replicas: 2, micro: 2, fsdp: LAST, ..PLAIN },
    // Beside tensor and context parallelism.
    Case { tp: 2, ..PLAIN },
    Case { tp: 2, also: &["layout.sp=false"], ..PLAIN },
    Case { tp: 2, model: Model::Everything, fsdp: ALWAYS, ..PLAIN },
    Case { tp: 2, model: Model::Tied, ..PLAIN },
    Case { tp: 2, model: Model::Words, ..PLAIN },
    Case { tp: 2, micro: 2, fsdp: LAST, ..PLAIN },
    Case { cp: 2, ..PLAIN },
    Case { cp: 2, shards: 1, micro: 4, ..PLAIN },
    Case { cp: 2, shards: 1, tp: 2, micro: 4, ..PLAIN },
    Case { replicas: 2, cp: 2, ..PLAIN },
    // Pipelines.
    Case { pp: 2, micro: 2, ..PLAIN },
    Case { pp: 2, micro: 4, model: Model::Deep, ..PLAIN },
    Case { pp: 2, micro: 2, fsdp: ALWAYS, ..PLAIN },
    Case { pp: 2, micro: 2, fsdp: r#"{"gradient_sync": "every"}"#, ..PLAIN },
    Case {
        pp: 2,
        micro: 2,
        model: Model::Deep,
        also: &["layout.schedule=interleaved", "layout.vpp=2"],
        ..PLAIN
    },
    Case { pp: 2, micro: 3, also: &["layout.schedule=gpipe"], ..PLAIN },
    // Schedules that put gradients of weights off.
    Case { pp: 2, micro: 4, also: ZB_H1, ..PLAIN },
    Case { pp: 2, micro: 3, fsdp: EVERY, model: Model::Everything, also: ZB_H1, ..PLAIN },
    Case { pp: 2, micro: 4, fsdp: ALWAYS, model: Model::Deep, also: ZBV, ..PLAIN },
    Case { pp: 2, micro: 5, shards: 3, model: Model::Deep, also: ZBV, ..PLAIN },
    Case { pp: 2, micro: 3, shards: 4, fsdp: TWO, model: Model::Deep, also: ZB_H1, ..PLAIN },
    Case { pp: 2, micro: 4, replicas: 2, model: Model::Gpt, also: ZB_H1, ..PLAIN },
    Case { pp: 2, micro: 4, tp: 2, fsdp: APART_ALWAYS, model: Model::Tied, also: ZB_H1, ..PLAIN },
    Case { pp: 2, micro: 4, shards: 2, ep: 2, model: Model::Experts, also: ZB_H1_EVEN, ..PLAIN },
    Case { pp: 2, micro: 4, model: Model::Latent, also: ZB_H1_FULL, ..PLAIN },
    // Routed experts, with and without ranks of their own.
    Case { model: Model::Experts, ..PLAIN },
    Case { model: Model::Experts, shards: 3, fsdp: ALWAYS, ..PLAIN },
    Case { model: Model::FewExperts, shards: 4, ..PLAIN },
    Case { model: Model::Experts, shards: 4, ep: 2, ..PLAIN },
    Case { model: Model::Experts, shards: 4, ep: 4, fsdp: ALWAYS, ..PLAIN },
    Case { model: Model::Experts, shards: 2, ep: 2, micro: 2, fsdp: LAST, ..PLAIN },
    Case { model: Model::Experts, tp: 2, shards: 2, ep: 2, ..PLAIN },
    Case { model: Model::Experts, tp: 2, shards: 2, ..PLAIN },
    Case { model: Model::Experts, pp: 2, shards: 2, ep: 2, micro: 2, ..PLAIN },
    // Recomputation and another optimizer.
    Case { also: &["training.recompute.granularity=full"], ..PLAIN },
    Case { shards: 3, micro: 2, fsdp: ALWAYS, also: &["training.recompute.granularity=full"], ..PLAIN },
    Case { also: &["training.recompute.granularity=selective"], ..PLAIN },
    Case { shards: 3, also: &["training.optimizer.kind=sgd"], ..PLAIN },
];
