//! Reading a word with parts: an enum.

use std::cell::OnceCell;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, Unexpected, VariantAccess,
    Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Map, Value};

use super::{Located, Place, Reader, note, noted, unlike};

/// A word and its parts.
pub(super) struct Word<'a> {
    pub(super) word: String,
    pub(super) parts: Option<Value>,
    /// Whether the parts stood beside the word, as fields of the same object.
    pub(super) beside: bool,
    /// Whether a word that has no parts may have no fields beside it.
    pub(super) closed: bool,
    pub(super) place: &'a Place<'a>,
    pub(super) failed: &'a OnceCell<String>,
}

impl<'de> EnumAccess<'de> for Word<'_> {
    type Error = Error;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), Error> {
        let word: StrDeserializer<Error> = self.word.as_str().into_deserializer();
        Ok((seed.deserialize(word)?, self))
    }
}

impl<'de> VariantAccess<'de> for Word<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.parts {
            None => Ok(()),
            Some(Value::Object(fields)) if self.beside => {
                match fields.keys().next().filter(|_| self.closed) {
                    None => Ok(()),
                    Some(name) => {
                        note(&Place::Field(self.place, name), self.failed);
                        Err(Error::unknown_field(name, &[]))
                    }
                }
            }
            Some(_) => Err(Error::custom(format_args!("`{}` is a word that has no parts", self.word))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(mut self, seed: T) -> Result<T::Value, Error> {
        let Some(value) = self.parts.take() else {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &"newtype variant"));
        };
        let place = self.place();
        noted(seed.deserialize(Reader { value, place, failed: self.failed }), &place, self.failed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.several(visitor, |parts, visitor| parts.deserialize_seq(visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.several(visitor, |parts, visitor| parts.deserialize_map(visitor))
    }
}

impl Word<'_> {
    /// Where the parts stand.
    fn place(&self) -> Place<'_> {
        if self.beside { *self.place } else { Place::Field(self.place, &self.word) }
    }

    fn several<'de, V: Visitor<'de>>(
        mut self,
        visitor: V,
        read: impl FnOnce(Reader, V) -> Result<V::Value, Error>,
    ) -> Result<V::Value, Error> {
        let Some(value) = self.parts.take() else {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &visitor));
        };
        let place = self.place();
        noted(read(Reader { value, place, failed: self.failed }, visitor), &place, self.failed)
    }
}

/// A word and the fields beside it.
pub(crate) struct Tagged<'a>(Word<'a>);

impl<'de> Deserializer<'de> for Tagged<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_enum(self.0)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

/// What `read` finds in a word and the fields beside it; `closed` when there may be none beside a word that has no parts.
pub(crate) fn read_tagged<T>(
    word: Value,
    fields: Map<String, Value>,
    closed: bool,
    read: impl for<'a> FnOnce(Tagged<'a>) -> Result<T, Error>,
) -> Result<T, Located> {
    let failed = OnceCell::new();
    let place = Place::Root;
    let read = match word {
        Value::String(word) => {
            let parts = Some(Value::Object(fields));
            read(Tagged(Word { word, parts, beside: true, closed, place: &place, failed: &failed }))
        }
        other => Err(unlike(&other, &"a word")),
    };
    read.map_err(|error| Located { path: failed.into_inner().unwrap_or_default(), error })
}
