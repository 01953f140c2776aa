//! Reading an enum that is a word: its place among the words. What serde derives is compiled for each enum again.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error, VariantAccess, Visitor};

/// The place among `words` of the word that `from` holds, a value of the enum with this name.
///
/// # Errors
/// When it is no word, or none of these.
pub(crate) fn place_of_word<'de, D: Deserializer<'de>>(
    from: D,
    name: &'static str,
    words: &'static [&'static str],
) -> Result<usize, D::Error> {
    from.deserialize_enum(name, words, Of { name, words })
}

/// The enum, and the words that are its values.
struct Of {
    name: &'static str,
    words: &'static [&'static str],
}

impl<'de> Visitor<'de> for Of {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "enum {}", self.name)
    }

    fn visit_enum<A: EnumAccess<'de>>(self, word: A) -> Result<usize, A::Error> {
        let (place, parts) = word.variant_seed(Among(self.words))?;
        parts.unit_variant()?;
        Ok(place)
    }
}

/// Reads a word as its place among these.
struct Among(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Among {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Among {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("variant identifier")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<usize, E> {
        let place = self.0.iter().position(|known| *known == word);
        place.ok_or_else(|| E::unknown_variant(word, self.0))
    }
}

#[cfg(test)]
mod tests {
    use crate::settings::CpKind;

    #[test]
    fn words_are_read_as_serde_reads_what_it_derives() {
        let read = |text: &str| serde_json::from_str::<CpKind>(text);
        for one in CpKind::ALL {
            let written = serde_json::to_string(&one).unwrap();
            assert_eq!(written, format!("\"{}\"", one.name()));
            assert_eq!(read(&written).unwrap(), one);
            assert_eq!(read(&format!("{{{written}: null}}")).unwrap(), one);
        }
        let error = |text: &str| read(text).unwrap_err().to_string();
        let unknown = error("\"ring\"");
        assert!(unknown.starts_with("unknown variant `ring`, expected one of `p2p`, "), "{unknown}");
        assert!(read("1").is_err());
    }
}
