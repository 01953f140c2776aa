//! What can end a run, one table for each family: how it shows in a log, what it means, and what to do.
//!
//! Lines are known from the sources of the programs that print them and from public reports; each table names its own.
//! The order of the tables and of their entries is the order among equals.

mod container;
mod data;
mod exchange;
mod gpu;
mod install;
mod megatron;
mod memory;
mod nccl;
mod network;
mod numbers;
mod process;
mod python;
mod slurm;

/// What a cause is to the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    /// It ends a process by itself.
    Root,
    /// It ends a process, and says little of why: an exception, a signal.
    Unspecific,
    /// It ends a process, because another one is gone or late.
    Symptom,
    /// It is what follows when a run is already over.
    Cascade,
}

/// How much one line says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Weight {
    /// Programs print it also where they go on.
    Weak,
    /// Printed when this happened.
    Strong,
    /// Printed when this happened, and the process ends with it.
    Fatal,
}

/// A line by which a cause shows.
pub(super) struct Sign {
    /// The pattern, see [`super::pattern`].
    pub(super) pattern: &'static str,
    /// How much it says.
    pub(super) weight: Weight,
    /// It counts only in the text of an exception: a healthy run's list of settings has the same words.
    pub(super) raised: bool,
}

const fn fatal(pattern: &'static str) -> Sign {
    Sign { pattern, weight: Weight::Fatal, raised: false }
}

const fn strong(pattern: &'static str) -> Sign {
    Sign { pattern, weight: Weight::Strong, raised: false }
}

const fn weak(pattern: &'static str) -> Sign {
    Sign { pattern, weight: Weight::Weak, raised: false }
}

const fn raised(pattern: &'static str) -> Sign {
    Sign { pattern, weight: Weight::Fatal, raised: true }
}

/// Something that can end a run.
pub(super) struct Cause {
    /// Stable id.
    pub(super) id: &'static str,
    /// Its family: `memory`, `nccl`, `gpu`, ...
    pub(super) family: &'static str,
    /// What happened, as a clause.
    pub(super) title: &'static str,
    /// What it is to the end of a run.
    pub(super) role: Role,
    /// What it means.
    pub(super) meaning: &'static str,
    /// What to do, in order.
    pub(super) next: &'static [&'static str],
    /// The lines by which it shows.
    pub(super) signs: &'static [Sign],
}

/// The cause of what a rank says once another one is gone.
pub(super) const PEER_GONE: &str = "peer-gone";
/// The cause of an end that was asked for.
pub(super) const TERMINATED: &str = "terminated";

/// All causes, in order.
pub(super) fn all() -> impl Iterator<Item = &'static Cause> {
    [
        memory::CAUSES,
        nccl::CAUSES,
        exchange::CAUSES,
        gpu::CAUSES,
        container::CAUSES,
        slurm::CAUSES,
        install::CAUSES,
        megatron::CAUSES,
        data::CAUSES,
        numbers::CAUSES,
        network::CAUSES,
        python::CAUSES,
        process::CAUSES,
    ]
    .into_iter()
    .flatten()
}
