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

/// Declares the kinds of data, each with its word in a plan file and what a form calls it.
macro_rules! kinds {
    ($first:ident = $first_word:literal, $first_label:literal; $($kind:ident = $word:literal, $label:literal;)*) => {
        /// What a plan file says of data.
        pub(super) const FORM: &str =
            concat!("kind (", $first_word, $(", ", $word,)* "), and its path or parts");

        impl DataFile {
            /// All kinds, each by its word in a plan file and what a form calls it; the first is usual.
            pub const KINDS: &[(&'static str, &'static str)] =
                &[($first_word, $first_label), $(($word, $label)),*];

            /// The word for its kind.
            pub const fn kind(&self) -> &'static str {
                match self {
                    DataFile::$first { .. } => $first_word,
                    $(DataFile::$kind { .. } => $word,)*
                }
            }
        }
    };
}

kinds! {
    Synthetic = "synthetic", "synthetic";
    Text = "text", "text file";
    Tokens = "tokens", "file of tokens, two bytes each";
    Megatron = "megatron", "Megatron's .bin and .idx";
    Blend = "blend", "a blend, written in the plan file";
}

impl DataFile {
    /// The one path of data that has one.
    pub fn path(&self) -> Option<&str> {
        match self {
            DataFile::Text { path } | DataFile::Tokens { path, .. } | DataFile::Megatron { path } => {
                Some(path)
            }
            DataFile::Synthetic | DataFile::Blend { .. } => None,
        }
    }

    /// The same at another path; unchanged where it has none.
    pub fn at(mut self, other: String) -> DataFile {
        if let DataFile::Text { path } | DataFile::Tokens { path, .. } | DataFile::Megatron { path } =
            &mut self
        {
            *path = other;
        }
        self
    }

    /// Data of the kind with this word, at the same path where both have one; a blend is of it.
    pub fn of_kind(self, kind: &str) -> DataFile {
        let path = || self.path().unwrap_or_default().to_owned();
        match kind {
            kind if kind == self.kind() => self,
            "text" => DataFile::Text { path: path() },
            "tokens" => DataFile::Tokens { path: path(), dtype: TokenType::default() },
            "megatron" => DataFile::Megatron { path: path() },
            "blend" => DataFile::Blend { parts: vec![DataPart { weight: 1.0, data: self }] },
            _ => DataFile::Synthetic,
        }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn kinds_are_the_words_that_are_read_and_written() {
        let text = DataFile::Text { path: "corpus.txt".to_owned() };
        for (word, _) in DataFile::KINDS {
            let data = text.clone().of_kind(word);
            assert_eq!(data.kind(), *word);
            assert_eq!(serde_json::to_value(&data).unwrap()["kind"], *word);
            assert_eq!(data.path().is_some(), !["synthetic", "blend"].contains(word), "{word}");
            assert!(FORM.contains(word), "{FORM}");
        }
        // What is said of data holds where its kind is chosen again.
        let tokens = json!({"kind": "tokens", "path": "a", "dtype": "uint32"});
        let tokens: DataFile = serde_json::from_value(tokens).unwrap();
        assert_eq!(tokens.clone().of_kind("tokens"), tokens);
        assert_eq!(serde_json::to_value(tokens.at("b".to_owned())).unwrap()["path"], Value::from("b"));
        assert_eq!(DataFile::Synthetic.at("b".to_owned()), DataFile::Synthetic);
    }
}
