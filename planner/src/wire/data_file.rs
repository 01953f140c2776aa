//! Where a training gets its tokens, in a plan file.

use serde::{Deserialize, Serialize};

use crate::json::tagged::tagged;

tagged! {
    tag = "kind", serde(rename_all = "snake_case", deny_unknown_fields);

    /// Where tokens come from.
    #[derive(Debug, Clone, PartialEq)]
    pub enum DataFile {
        /// Random sequences that a model can learn.
        Synthetic,
        /// The bytes of a text file, one token a byte.
        Text {
            /// Path of the file, as the ranks see it.
            path: String,
        },
        /// A file of tokens, one after the other, little-endian.
        Tokens {
            /// Path of the file, as the ranks see it.
            path: String,
            /// Their type; uint16.
            #[serde(default)]
            dtype: TokenType,
        },
        /// An indexed data set of Megatron's, read as one stream of tokens.
        Megatron {
            /// Path of its files without `.bin` and `.idx`, as the ranks see it.
            path: String,
        },
        /// Several of these together.
        Blend {
            /// Each with its weight.
            parts: Vec<DataPart>,
        },
    }
}

/// A part of a blend.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DataPart {
    /// Its share of the sequences, as a part of the sum of all weights.
    pub weight: f64,
    /// Where it comes from.
    pub data: DataFile,
}

/// Type of the tokens in a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokenType {
    /// One byte.
    Uint8,
    /// Two bytes: vocabularies up to 65,536 words.
    #[default]
    Uint16,
    /// Four bytes.
    Uint32,
    /// Four bytes with a sign.
    Int32,
    /// Eight bytes with a sign.
    Int64,
}
