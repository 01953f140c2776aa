//! Enums that are written with their word in a field: `{"kind": "text", "path": "corpus.txt"}`.
//!
//! serde's own reader of such an enum keeps all fields in a store of its own until it knows the word, and everything that the enum
//! holds is compiled once more to be read from there. Here the word is taken out of a JSON value, and the rest is read as anything
//! else is.

use serde::Deserializer;
use serde::de::Error as _;
use serde_json::{Error, Map, Value};

use super::located::{self, Tagged};

/// Declares an enum whose word stands in the field `tag`.
///
/// What `serde` says of it and of its variants holds for both ways; its word is not for reading, so that serde reads the variants
/// as words with parts.
macro_rules! tagged {
    (
        tag = $tag:literal, serde($($serde:tt)*);
        $(#[$attribute:meta])*
        $visible:vis enum $name:ident { $($variants:tt)* }
    ) => {
        $(#[$attribute])*
        #[derive(serde::Serialize)]
        #[serde(tag = $tag, $($serde)*)]
        $visible enum $name { $($variants)* }

        const _: () = {
            type Read = $name;

            #[derive(serde::Deserialize)]
            #[serde(remote = "Read", $($serde)*)]
            #[allow(dead_code, clippy::large_enum_variant, reason = "it only says how the other is read")]
            enum Words { $($variants)* }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<$name, D::Error> {
                    let closed = $crate::json::tagged::is_closed(stringify!($($serde)*));
                    $crate::json::tagged::read(deserializer, $tag, closed, |tagged| Words::deserialize(tagged))
                }
            }
        };
    };
}

pub(crate) use tagged;

/// Whether what `serde` says of an enum refuses fields that it does not know. serde itself passes over those beside a word
/// that has no parts.
pub(crate) fn is_closed(said: &str) -> bool {
    said.contains("deny_unknown_fields")
}

/// What `read` makes of an object's word, which stands in the field `tag`, and of its other fields, of which there may be none
/// beside a word that has no parts when it is `closed`.
pub(crate) fn read<'de, T, D: Deserializer<'de>>(
    deserializer: D,
    tag: &'static str,
    closed: bool,
    read: impl for<'a> FnOnce(Tagged<'a>) -> Result<T, Error>,
) -> Result<T, D::Error> {
    let mut fields: Map<String, Value> = serde::Deserialize::deserialize(deserializer)?;
    let word = fields.remove(tag).ok_or_else(|| D::Error::missing_field(tag))?;
    located::read_tagged(word, fields, closed, read).map_err(D::Error::custom)
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};
    use serde_json::from_str;

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Inner {
        ranks: Vec<u64>,
    }

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
    enum Theirs {
        Plain,
        TwoFields {
            first: u64,
            #[serde(default, skip_serializing_if = "Option::is_none")]
            second: Option<String>,
        },
        Other(Inner),
    }

    tagged! {
        tag = "kind", serde(rename_all = "snake_case", deny_unknown_fields);

        #[derive(Debug, Clone, PartialEq)]
        enum Ours {
            Plain,
            TwoFields {
                first: u64,
                #[serde(default, skip_serializing_if = "Option::is_none")]
                second: Option<String>,
            },
            Other(Inner),
        }
    }

    #[test]
    fn what_is_read_and_written_is_what_serde_reads_and_writes() {
        for text in [
            r#"{"kind":"plain"}"#,
            r#"{"kind":"two_fields","first":1}"#,
            r#"{"first":1,"second":"x","kind":"two_fields"}"#,
            r#"{"kind":"two_fields","second":"x"}"#,
            r#"{"kind":"two_fields","first":"x"}"#,
            r#"{"kind":"two_fields","first":1,"third":1}"#,
            r#"{"kind":"other","ranks":[1,2]}"#,
            r#"{"kind":"other"}"#,
            r#"{"kind":"nobody"}"#,
            r#"{"kind":1}"#,
            r#"{"first":1}"#,
            "[]",
            "{",
        ] {
            let (ours, theirs) = (from_str::<Ours>(text), from_str::<Theirs>(text));
            assert_eq!(ours.is_ok(), theirs.is_ok(), "{text}: {ours:?} against {theirs:?}");
            if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
                let written = serde_json::to_string(&ours).unwrap();
                assert_eq!(written, serde_json::to_string(&theirs).unwrap());
                assert_eq!(from_str::<Ours>(&written).unwrap(), ours);
            }
        }
    }

    #[test]
    fn an_error_names_the_field_and_an_unknown_word_those_that_are_known() {
        let error = |text: &str| from_str::<Ours>(text).unwrap_err().to_string();
        insta::assert_snapshot!(error(r#"{"kind":"other","ranks":[1,"x"]}"#), @r#"ranks[1]: invalid type: string "x", expected u64"#);
        insta::assert_snapshot!(error(r#"{"kind":"nobody"}"#), @"unknown variant `nobody`, expected one of `plain`, `two_fields`, `other`");
        insta::assert_snapshot!(error(r#"{"first":1}"#), @"missing field `kind`");
        insta::assert_snapshot!(error(r#"{"kind":"plain","more":1}"#), @"more: unknown field `more`, there are no fields");
    }
}
