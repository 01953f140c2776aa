//! Whose sharding and memory rules hold.

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
