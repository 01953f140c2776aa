//! Whose sharding and memory rules hold, and what is true of each: a file for each runtime says its facts, and who needs one asks
//! for it by name instead of asking which runtime there is.
//!
//! What takes types of a room above (shards, memory, seconds) stands in that room, in one table each that chooses by runtime.

mod facts;
mod fsdp2;
mod megatron;
mod megatron_fsdp;
mod native;
#[cfg(test)]
mod tests;

pub use facts::{Counted, Facts, Formula, Origins, Readers, ReducedReplicas};

use crate::settings::words;

words! {
    /// The framework whose sharding and memory rules hold.
    pub enum Runtime {
        /// Megatron-Core (Megatron-LM, Megatron Bridge).
        Megatron = "megatron",
        /// PyTorch FSDP2 and DTensor.
        Fsdp2 = "fsdp2",
        /// Megatron-FSDP.
        MegatronFsdp = "megatron_fsdp",
        /// Shardplan's own executor, `shardplan-rank`.
        Native = "native",
    }
}

impl Default for Runtime {
    fn default() -> Self {
        Runtime::USUAL
    }
}

impl Runtime {
    /// What a plan file that says none gets.
    pub const USUAL: Runtime = Runtime::Megatron;

    /// The one whose rules are the worker's own: by them it runs what it can't run as another runtime's.
    pub const OF_WORKER: Runtime = Runtime::Native;

    /// What is true of it.
    pub const fn facts(self) -> &'static Facts {
        match self {
            Runtime::Megatron => &megatron::FACTS,
            Runtime::Fsdp2 => &fsdp2::FACTS,
            Runtime::MegatronFsdp => &megatron_fsdp::FACTS,
            Runtime::Native => &native::FACTS,
        }
    }

    /// Where its numbers come from.
    pub const fn origins(self) -> &'static Origins {
        match self {
            Runtime::Megatron => &megatron::ORIGINS,
            Runtime::Fsdp2 => &fsdp2::ORIGINS,
            Runtime::MegatronFsdp => &megatron_fsdp::ORIGINS,
            Runtime::Native => &native::ORIGINS,
        }
    }
}
