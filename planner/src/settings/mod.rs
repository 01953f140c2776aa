//! What a plan sets to one of a few words: kinds of optimizer, precisions, schedules.
//!
//! Plain values: what follows from them stands with who asks. `words!` is the one table of an enum and its words, so that what
//! is read, written and shown is the same.

mod layout;
mod training;

pub use layout::{CpKind, LrSchedule, Schedule, Strategy};
pub use training::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation,
    OptimizerKind, Precision,
};
pub(crate) use training::{GRAPH_MODULES, OFFLOAD_MODULES, RECOMPUTE_MODULES};

/// Declares an enum by its words in a plan file, which serde reads and writes and `name` says.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl $name {
            /// All of them, in the order in which they are offered.
            pub const ALL: [$name; [$($word),*].len()] = [$($name::$variant),*];

            /// Their names in plan files.
            pub const WORDS: [&'static str; [$($word),*].len()] = [$($word),*];

            /// The name used in plan files.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }
        }
    };
}

pub(crate) use words;
