//! The parity matrix of nonuniform tensor parallelism: slots, replicas, starts, heads, pipelines, context, ties, sequence
//! parallelism, optimizers. Four sequences a step for each healthy replica.

/// What is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Model {
    /// Eight heads, a key and a value for two of them.
    Plain,
    /// A key and a value for each head.
    Mha,
    /// The same, and the output layer is the embedding.
    Tied,
    /// Norms of queries and keys, biases everywhere, sinks.
    Everything,
    /// Latent attention.
    Latent,
    /// Plain layer norms, an MLP without a gate, learned positions.
    Gpt,
    /// 250 words, so that slots hold padding.
    Padded,
    /// So many words that their rows are handed on in several pieces.
    Wordy,
    /// Twelve heads, 24 tokens, and sizes that three divides.
    Thirds,
    /// A module that predicts a further token.
    Predicting,
    /// Eight experts and a shared one, and a loss that balances them.
    Experts,
    /// The same, balanced by a bias on their choice.
    Biased,
    /// Eight experts, and a key and a value for each head.
    ExpertsMha,
}

/// Which ranks are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// All of the world: those on inactive slots end at once.
    All,
    /// Those that go on, numbered without gaps.
    Packed,
}

/// One plan with failed GPUs.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Tensor-parallel slots, and those of a reduced replica.
    pub slots: (u64, u64),
    /// Replicas, and how many of them run reduced.
    pub replicas: (u64, u64),
    /// Failed GPUs: replica, stage, slot; all context-parallel slices of it.
    pub failed: &'static [(u64, u64, u64)],
    pub start: Start,
    pub model: Model,
    pub pp: u64,
    pub vpp: u64,
    pub schedule: &'static str,
    pub cp: u64,
    pub ep: u64,
    pub etp: u64,
    pub sp: bool,
    pub distributed: bool,
    pub optimizer: &'static str,
    pub micro_batch: u64,
    pub recompute: bool,
}

/// What most cases have.
const CASE: Case = Case {
    slots: (2, 1),
    replicas: (2, 1),
    failed: &[(0, 0, 1)],
    start: Start::All,
    model: Model::Plain,
    pp: 1,
    vpp: 1,
    schedule: "1f1b",
    cp: 1,
    ep: 1,
    etp: 1,
    sp: true,
    distributed: true,
    optimizer: "adam",
    micro_batch: 1,
    recompute: false,
};

const WHOLE: Case = Case { distributed: false, ..CASE };
const FOUR: Case = Case { slots: (4, 2), failed: &[(0, 0, 3)], ..CASE };
const STAGES: Case = Case { pp: 2, ..CASE };

/// Slots and replicas.
pub const SLOTS: &[Case] = &[
    // Trailing and other slots, in the first and in the last replica.
    CASE,
    Case { failed: &[(0, 0, 0)], ..CASE },
    Case { failed: &[(1, 0, 1)], ..CASE },
    Case { failed: &[(1, 0, 0)], ..CASE },
    FOUR,
    Case { failed: &[(0, 0, 0)], ..FOUR },
    Case { failed: &[(1, 0, 1), (1, 0, 2)], ..FOUR },
    Case { slots: (4, 1), failed: &[(0, 0, 0), (0, 0, 1), (0, 0, 3)], ..FOUR },
    Case { slots: (4, 1), failed: &[(1, 0, 1), (1, 0, 2), (1, 0, 3)], sp: false, ..FOUR },
    // Degrees that do not divide each other.
    Case { slots: (3, 2), model: Model::Thirds, ..CASE },
    Case { slots: (3, 2), model: Model::Thirds, failed: &[(1, 0, 1)], sp: false, ..CASE },
    Case { slots: (3, 1), model: Model::Thirds, failed: &[(0, 0, 0), (0, 0, 2)], ..CASE },
    Case { slots: (4, 3), model: Model::Thirds, failed: &[(0, 0, 2)], ..CASE },
    // Several reduced replicas, several healthy ones.
    Case { replicas: (3, 1), failed: &[(1, 0, 0)], ..CASE },
    Case { replicas: (3, 2), failed: &[(0, 0, 1), (2, 0, 0)], ..CASE },
    Case { replicas: (4, 3), failed: &[(0, 0, 1), (1, 0, 0), (3, 0, 1)], ..CASE },
    Case { replicas: (4, 1), failed: &[(2, 0, 1)], ..WHOLE },
];

/// The same without the ranks that stop.
pub const PACKED: &[Case] = &[
    Case { start: Start::Packed, ..CASE },
    Case { start: Start::Packed, failed: &[(0, 0, 0)], ..CASE },
    Case { start: Start::Packed, failed: &[(0, 0, 0), (0, 0, 2)], ..FOUR },
    Case { start: Start::Packed, replicas: (3, 2), failed: &[(0, 0, 0), (1, 0, 1)], ..CASE },
    Case { start: Start::Packed, failed: &[(0, 0, 1), (0, 1, 0)], ..STAGES },
];

/// Models, and whole optimizer state.
pub const MODELS: &[Case] = &[
    WHOLE,
    Case { failed: &[(0, 0, 0)], ..WHOLE },
    Case { failed: &[(0, 0, 1)], distributed: false, ..FOUR },
    Case { sp: false, ..CASE },
    Case { sp: false, ..WHOLE },
    Case { model: Model::Mha, ..FOUR },
    Case { model: Model::Mha, sp: false, distributed: false, ..FOUR },
    Case { model: Model::Tied, ..CASE },
    Case { model: Model::Tied, failed: &[(1, 0, 0)], distributed: false, ..FOUR },
    Case { model: Model::Everything, failed: &[(0, 0, 2)], ..FOUR },
    Case { model: Model::Everything, sp: false, ..WHOLE },
    Case { model: Model::Latent, failed: &[(1, 0, 1)], ..CASE },
    Case { model: Model::Gpt, failed: &[(0, 0, 0)], ..CASE },
    Case { model: Model::Padded, failed: &[(0, 0, 1)], ..FOUR },
    Case { model: Model::Predicting, ..CASE },
    Case { model: Model::Wordy, failed: &[(0, 0, 0)], ..CASE },
    Case { model: Model::Wordy, failed: &[(1, 0, 1), (1, 0, 3)], ..FOUR },
    Case { optimizer: "sgd", ..CASE },
    Case { optimizer: "sgd", ..WHOLE },
    Case { micro_batch: 2, ..CASE },
    Case { recompute: true, ..CASE },
];

/// Muon, which works on whole matrices: cores put them together as reduced ranks do.
pub const MUON: &[Case] = &[
    Case { optimizer: "muon", ..CASE },
    Case { optimizer: "muon", failed: &[(1, 0, 0)], ..WHOLE },
    Case { optimizer: "muon", failed: &[(0, 0, 1)], ..FOUR },
    Case { optimizer: "muon", distributed: false, sp: false, ..FOUR },
    Case { optimizer: "muon", slots: (4, 1), failed: &[(0, 0, 0), (0, 0, 1), (0, 0, 3)], ..FOUR },
    Case { optimizer: "muon", slots: (3, 2), model: Model::Thirds, failed: &[(1, 0, 1)], ..CASE },
    Case { optimizer: "muon", slots: (4, 3), model: Model::Thirds, failed: &[(0, 0, 2)], ..CASE },
    Case { optimizer: "muon", replicas: (3, 2), failed: &[(0, 0, 1), (2, 0, 0)], ..CASE },
    Case { optimizer: "muon", model: Model::Mha, start: Start::Packed, failed: &[(0, 0, 0)], ..FOUR },
    Case { optimizer: "muon", model: Model::Everything, failed: &[(0, 0, 2)], ..FOUR },
    Case { optimizer: "muon", model: Model::Latent, failed: &[(1, 0, 1)], ..CASE },
    Case { optimizer: "muon", model: Model::Gpt, failed: &[(0, 0, 0)], ..CASE },
    Case { optimizer: "muon", model: Model::Padded, ..FOUR },
    Case { optimizer: "muon", model: Model::Predicting, ..CASE },
    Case { optimizer: "muon", model: Model::Tied, failed: &[(0, 0, 1), (0, 1, 0)], ..STAGES },
    Case { optimizer: "muon", cp: 2, ..CASE },
    Case { optimizer: "muon", model: Model::Experts, ep: 2, failed: &[(0, 0, 0)], ..FOUR },
    Case { optimizer: "muon", model: Model::Experts, etp: 2, distributed: false, ..FOUR },
];

/// Pipelines and context parallelism.
pub const STAGED: &[Case] = &[
    STAGES,
    Case { failed: &[(0, 0, 1), (0, 1, 0)], ..STAGES },
    Case { failed: &[(1, 1, 0)], distributed: false, ..STAGES },
    Case { model: Model::Tied, ..STAGES },
    Case { model: Model::Tied, failed: &[(0, 0, 0), (0, 1, 1)], distributed: false, ..STAGES },
    Case { sp: false, failed: &[(1, 0, 0)], ..STAGES },
    Case { schedule: "gpipe", ..STAGES },
    Case { schedule: "zb-h1", failed: &[(0, 1, 0)], ..STAGES },
    Case { schedule: "interleaved", vpp: 2, ..STAGES },
    Case { schedule: "zbv", vpp: 2, failed: &[(1, 0, 1)], ..STAGES },
    Case { cp: 2, ..CASE },
    Case { cp: 2, failed: &[(1, 0, 0)], sp: false, ..WHOLE },
];

/// Routed experts, of which each block of neighbouring slots has all.
pub const EXPERTS: &[Case] = &[
    Case { model: Model::Experts, ..CASE },
    Case { model: Model::Experts, failed: &[(0, 0, 0)], ..WHOLE },
    Case { model: Model::Experts, ep: 2, failed: &[(0, 0, 0)], ..FOUR },
    Case { model: Model::Experts, ep: 2, failed: &[(1, 0, 1), (1, 0, 2)], distributed: false, ..FOUR },
    Case { model: Model::Experts, replicas: (3, 2), failed: &[(0, 0, 1), (2, 0, 0)], ..CASE },
    Case { model: Model::Experts, start: Start::Packed, failed: &[(0, 0, 1), (0, 1, 0)], ..STAGES },
    Case { model: Model::Experts, cp: 2, ..CASE },
    Case { model: Model::Biased, failed: &[(1, 0, 0)], ..CASE },
    Case { model: Model::Biased, ep: 2, ..FOUR },
    // Experts that are cut, alike in all replicas.
    Case { model: Model::Experts, etp: 2, ..FOUR },
    Case { model: Model::Experts, etp: 2, failed: &[(1, 0, 0), (1, 0, 2)], distributed: false, ..FOUR },
    Case { model: Model::Biased, etp: 2, replicas: (3, 1), failed: &[(1, 0, 1)], ..FOUR },
    Case {
        model: Model::Biased,
        etp: 2,
        start: Start::Packed,
        pp: 2,
        failed: &[(0, 0, 0), (0, 1, 3)],
        ..FOUR
    },
    Case { model: Model::Experts, etp: 2, cp: 2, failed: &[(0, 0, 1)], ..FOUR },
    Case { model: Model::ExpertsMha, slots: (8, 4), ep: 2, etp: 2, failed: &[(0, 0, 5)], ..CASE },
];
