//! Words of `layout` and `run`.

use super::words;

words! {
    /// How context parallelism moves keys and values.
    pub enum CpKind {
        /// A ring of sends.
        P2p = "p2p",
        /// All-to-all over heads.
        A2a = "a2a",
        /// All-gather of keys and values.
        AllGather = "all_gather",
        /// All-to-all inside, ring outside.
        A2aP2p = "a2a+p2p",
    }
}

words! {
    /// A pipeline schedule.
    #[derive(Default)]
    pub enum Schedule {
        /// One forward, one backward.
        #[default]
        OneFOneB = "1f1b",
        /// Interleaved 1F1B over model chunks.
        Interleaved = "interleaved",
        /// All forwards, then all backwards.
        Gpipe = "gpipe",
        /// Zero bubble H1.
        ZbH1 = "zb-h1",
        /// Zero bubble V.
        Zbv = "zbv",
    }
}

words! {
    /// How the learning rate goes on after the warm-up.
    pub enum LrSchedule {
        /// Stays.
        Constant = "constant",
        /// Falls along a line.
        Linear = "linear",
        /// Falls along half a cosine.
        Cosine = "cosine",
    }
}

words! {
    /// What is split over the sharding group: each level adds to the one before (Megatron-FSDP; FSDP2 is always the last).
    #[derive(PartialOrd, Ord)]
    pub enum Strategy {
        /// 0: nothing.
        NoShard = "no_shard",
        /// 1: optimizer state and main weights.
        Optim = "optim",
        /// 2: gradients too.
        OptimGrads = "optim_grads",
        /// 3: parameters too.
        OptimGradsParams = "optim_grads_params",
    }
}

impl Strategy {
    /// What a plan file that says none gets.
    pub const USUAL: Strategy = Strategy::OptimGradsParams;

    /// The strategy of this name, or of this level as a digit.
    pub fn parse(name: &str) -> Option<Strategy> {
        let level = name.parse::<usize>().ok();
        let named = Strategy::ALL.into_iter().find(|strategy| strategy.name() == name);
        named.or_else(|| Strategy::ALL.get(level?).copied())
    }
}
