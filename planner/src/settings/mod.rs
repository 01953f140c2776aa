//! What a plan sets to one of a few words: kinds of optimizer, precisions, schedules.
//!
//! Plain values: what follows from them stands with who asks. `words!` is the one table of an enum and its words, so that what
//! is read, written and shown is the same.

use serde_json::Value;

use crate::units::Dtype;

mod layout;
mod training;

pub use layout::{CpKind, LrSchedule, Schedule, Strategy};
pub use training::{
    AttentionBackend, CrossEntropy, CudaGraphs, Dispatcher, FlexBackend, Granularity, Implementation,
    OptimizerKind, Precision,
};
pub(crate) use training::{GRAPH_MODULES, OFFLOAD_MODULES, RECOMPUTE_MODULES};

/// What holds where a plan file says nothing of a setting.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Usual {
    /// Nothing: no value is filled.
    Nothing,
    /// What follows from the rest of the plan.
    Rule,
    /// This number.
    Whole(u64),
    /// This number.
    Real(f64),
    /// Yes or no.
    Switch(bool),
    /// This word.
    Word(&'static str),
    /// No words of a list.
    NoWords,
}

/// A value that is usual where a row says it.
pub trait OfRow: Clone {
    /// That value; any where the row says none of this type, which no row does.
    fn of(usual: Usual) -> Self;

    /// What of it a row may have something against.
    fn said(&self) -> ForRow<'_> {
        ForRow::Any
    }

    /// The same, of a list no more than so many.
    fn at_most(&self, _most: usize) -> Self {
        self.clone()
    }
}

/// What is said in a plan file, as a row looks at it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum ForRow<'a> {
    /// What every row takes.
    Any,
    /// A number.
    Whole(u64),
    /// A number.
    Real(f64),
    /// An element type, of which a row takes some.
    Type(&'static str),
    /// A list of words.
    Words(&'a [String]),
}

impl OfRow for u64 {
    fn of(usual: Usual) -> u64 {
        if let Usual::Whole(number) = usual { number } else { 0 }
    }

    fn said(&self) -> ForRow<'_> {
        ForRow::Whole(*self)
    }
}

impl OfRow for f64 {
    fn of(usual: Usual) -> f64 {
        if let Usual::Real(number) = usual { number } else { 0.0 }
    }

    fn said(&self) -> ForRow<'_> {
        ForRow::Real(*self)
    }
}

impl OfRow for bool {
    fn of(usual: Usual) -> bool {
        usual == Usual::Switch(true)
    }
}

impl OfRow for String {
    fn of(usual: Usual) -> String {
        if let Usual::Word(word) = usual { word.to_owned() } else { String::new() }
    }
}

impl OfRow for Vec<String> {
    fn of(_: Usual) -> Vec<String> {
        Vec::new()
    }

    fn said(&self) -> ForRow<'_> {
        ForRow::Words(self)
    }

    fn at_most(&self, most: usize) -> Vec<String> {
        self.iter().take(most).cloned().collect()
    }
}

/// Its rows say no type, since what is usual follows from others.
impl OfRow for Dtype {
    fn of(_: Usual) -> Dtype {
        Dtype::Bf16
    }

    fn said(&self) -> ForRow<'_> {
        ForRow::Type(self.name())
    }
}

impl OfRow for Value {
    fn of(usual: Usual) -> Value {
        match usual {
            Usual::Nothing | Usual::Rule => Value::Null,
            Usual::Whole(number) => number.into(),
            Usual::Real(number) => number.into(),
            Usual::Switch(on) => on.into(),
            Usual::Word(word) => word.into(),
            Usual::NoWords => Value::Array(Vec::new()),
        }
    }
}

/// Declares an enum by its words in a plan file, which serde reads and writes and `name` says; they explain variants, too, that nothing
/// else does.
macro_rules! words {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
        pub enum $name { $($(#[$doc])* #[doc = $word] #[serde(rename = $word)] $variant,)* }

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

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                let place = $crate::json::by_word::place_of_word(from, stringify!($name), &$name::WORDS)?;
                Ok($name::ALL[place])
            }
        }

        impl $crate::settings::OfRow for $name {
            fn of(usual: $crate::settings::Usual) -> $name {
                let is_usual = |one: &$name| usual == $crate::settings::Usual::Word(one.name());
                $name::ALL.into_iter().find(is_usual).unwrap_or($name::ALL[0])
            }
        }
    };
}

pub(crate) use words;
