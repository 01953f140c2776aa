//! Reading a JSON value where an error says at which field.
//!
//! One reader, whether the path is asked for or not: what is read has some two hundred fields, and each way to read them
//! is compiled for every field again.

use std::cell::OnceCell;
use std::fmt;

use serde::de::value::StringDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, map};

/// What could not be read.
#[derive(Debug)]
pub struct Located {
    /// The field: `layout.tp`; of an unknown field its own path, of a missing one that of its parent; empty for the whole.
    pub path: String,
    /// What is wrong with it.
    pub error: Error,
}

impl fmt::Display for Located {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        if self.path.is_empty() { self.error.fmt(f) } else { write!(f, "{}: {}", self.path, self.error) }
    }
}

/// What a JSON text holds.
///
/// # Errors
/// What is wrong with it, and at which field.
pub fn read_json<T: DeserializeOwned>(text: &str) -> Result<T, Located> {
    let value = serde_json::from_str(text).map_err(|error| Located { path: String::new(), error })?;
    read_value(value)
}

/// What a JSON value holds.
///
/// # Errors
/// What is wrong with it, and at which field.
pub fn read_value<T: DeserializeOwned>(value: Value) -> Result<T, Located> {
    read(value, |fields| T::deserialize(fields))
}

/// What `read` finds in `value`.
///
/// # Errors
/// The first thing that can't be read, and where.
pub(super) fn read<T>(
    value: Value,
    read: impl for<'a> FnOnce(Reader<'a>) -> Result<T, Error>,
) -> Result<T, Located> {
    let failed = OnceCell::new();
    read(Reader { value, place: Place::Root, failed: &failed })
        .map_err(|error| Located { path: failed.into_inner().unwrap_or_default(), error })
}

/// Where a value stands.
#[derive(Clone, Copy)]
enum Place<'a> {
    Root,
    Field(&'a Place<'a>, &'a str),
    Entry(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Place::Root => Ok(()),
            Place::Field(Place::Root, name) => f.write_str(name),
            Place::Field(parent, name) => write!(f, "{parent}.{name}"),
            Place::Entry(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

/// A value, its place, and where the place of an error is kept.
pub(super) struct Reader<'a> {
    value: Value,
    place: Place<'a>,
    /// The place of the first error, which is the innermost.
    failed: &'a OnceCell<String>,
}

/// `read`, with the place of its error kept.
fn noted<T>(read: Result<T, Error>, place: &Place, failed: &OnceCell<String>) -> Result<T, Error> {
    if read.is_err() {
        note(place, failed);
    }
    read
}

#[cold]
fn note(place: &Place, failed: &OnceCell<String>) {
    failed.get_or_init(|| place.to_string());
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Reader { value, place, failed } = self;
        match value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(value) => value.deserialize_any(visitor),
            Value::String(value) => visitor.visit_string(value),
            Value::Array(values) => {
                let count = values.len();
                let mut entries = Entries { left: values.into_iter(), read: 0, place: &place, failed };
                visitor.visit_seq(&mut entries).and_then(|read| match entries.left.len() {
                    0 => Ok(read),
                    _ => Err(Error::invalid_length(count, &"fewer elements in array")),
                })
            }
            Value::Object(fields) => {
                let left = fields.into_iter();
                visitor.visit_map(Fields { left, open: None, place: &place, failed })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    /// A word, or an object of one field: a word and its parts.
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Reader { value, place, failed } = self;
        let (word, parts) = match value {
            Value::String(word) => (word, None),
            Value::Object(fields) if fields.len() == 1 => match fields.into_iter().next() {
                Some((word, parts)) => (word, Some(parts)),
                None => (String::new(), None),
            },
            // serde_json says no more than that it is neither.
            other => {
                return Err(Error::unknown_variant(&other.to_string().replace('`', "'"), words));
            }
        };
        visitor.visit_enum(Variant { word, parts, place: &place, failed })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier
    }
}

struct Entries<'a> {
    left: std::vec::IntoIter<Value>,
    read: usize,
    place: &'a Place<'a>,
    failed: &'a OnceCell<String>,
}

impl<'de> SeqAccess<'de> for &mut Entries<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Error> {
        let Some(value) = self.left.next() else { return Ok(None) };
        let place = Place::Entry(self.place, self.read);
        self.read += 1;
        noted(seed.deserialize(Reader { value, place, failed: self.failed }).map(Some), &place, self.failed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

struct Fields<'a> {
    left: map::IntoIter,
    open: Option<(String, Value)>,
    place: &'a Place<'a>,
    failed: &'a OnceCell<String>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.left.next() else { return Ok(None) };
        let (name, _) = self.open.insert((name, value));
        noted(seed.deserialize(Name(name.clone())).map(Some), &Place::Field(self.place, name), self.failed)
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some((name, value)) = self.open.take() else {
            return Err(Error::custom("a value is read before its name"));
        };
        let place = Place::Field(self.place, &name);
        noted(seed.deserialize(Reader { value, place, failed: self.failed }), &place, self.failed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

struct Variant<'a> {
    word: String,
    parts: Option<Value>,
    place: &'a Place<'a>,
    failed: &'a OnceCell<String>,
}

impl<'de, 'a> EnumAccess<'de> for Variant<'a> {
    type Error = Error;
    type Variant = Parts<'a>;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Parts<'a>), Error> {
        let Variant { word, parts, place, failed } = self;
        let named: StringDeserializer<Error> = word.clone().into_deserializer();
        Ok((seed.deserialize(named)?, Parts { word, parts, place, failed }))
    }
}

/// What stands beside a word.
struct Parts<'a> {
    word: String,
    parts: Option<Value>,
    place: &'a Place<'a>,
    failed: &'a OnceCell<String>,
}

impl<'de> VariantAccess<'de> for Parts<'_> {
    type Error = Error;

    fn unit_variant(self) -> Result<(), Error> {
        match self.parts {
            None => Ok(()),
            Some(_) => Err(Error::custom(format_args!("`{}` is a word that has no parts", self.word))),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Error> {
        let Some(value) = self.parts else {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &"newtype variant"));
        };
        let place = Place::Field(self.place, &self.word);
        noted(seed.deserialize(Reader { value, place, failed: self.failed }), &place, self.failed)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.several(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.several(visitor)
    }
}

impl Parts<'_> {
    fn several<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Some(value) = self.parts else {
            return Err(Error::invalid_type(Unexpected::UnitVariant, &visitor));
        };
        let place = Place::Field(self.place, &self.word);
        noted(Reader { value, place, failed: self.failed }.deserialize_any(visitor), &place, self.failed)
    }
}

/// The name of a field, which is a number where the map's keys are numbers.
struct Name(String);

macro_rules! numbers {
    ($($method:ident $type:ident $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$type>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => visitor.visit_string(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Name {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.0)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let word: StringDeserializer<Error> = self.0.into_deserializer();
        visitor.visit_enum(word)
    }

    numbers! {
        deserialize_u8 u8 visit_u8 deserialize_u16 u16 visit_u16 deserialize_u32 u32 visit_u32 deserialize_u64 u64 visit_u64
        deserialize_i8 i8 visit_i8 deserialize_i16 i16 visit_i16 deserialize_i32 i32 visit_i32 deserialize_i64 i64 visit_i64
    }

    forward_to_deserialize_any! {
        bool i128 u128 f32 f64 char str string bytes byte_buf option unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::model::{Architecture, Attention, Mixer};
    use crate::wire::PlanFile;

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    enum Message {
        Word,
        One(u64),
        Two(u64, String),
        Fields { of: std::collections::BTreeMap<u32, f64>, signed: std::collections::BTreeMap<i64, bool> },
    }

    /// Messages are read as serde_json reads what it has written, and other texts are errors.
    #[test]
    fn every_kind_of_message_is_read() {
        let messages = [
            Message::Word,
            Message::One(7),
            Message::Two(u64::MAX, "x".to_owned()),
            Message::Fields { of: [(3, 0.1), (70_000, -2.0)].into(), signed: [(-4, true)].into() },
        ];
        for message in messages {
            let text = serde_json::to_string(&message).unwrap();
            assert_eq!(read_json::<Message>(&text).unwrap(), message, "{text}");
            assert_eq!(read_json::<Vec<Message>>(&format!("[{text}]")).unwrap(), [message], "{text}");
        }
        let check = |text: &str, path: &str| {
            let error = read_json::<Message>(text).unwrap_err();
            assert!(serde_json::from_str::<Message>(text).is_err(), "{text}");
            assert_eq!(error.path, path, "{text}: {error}");
        };
        check("{", "");
        check(r#""One""#, "");
        check(r#"{"Word": 3}"#, "");
        check(r#"{"Two": [1]}"#, "Two");
        check(r#"{"Fields": {"of": {"x": 1}, "signed": {}}}"#, "Fields.of.x");
        check(r#"{"Fields": {"of": {"3": "x"}, "signed": {}}}"#, "Fields.of.3");
        check(r#"{"Fields": {"of": {}}}"#, "Fields");
        check(r#"{"Other": 1}"#, "");
    }

    /// Every field of a plan file that says much, with something of another kind in its place, without it, and with an
    /// unknown one beside it.
    #[test]
    fn an_error_is_that_of_serde_json_and_stands_where_serde_path_to_error_says() {
        let mut compared = 0;
        for wrong in wrong_files() {
            let mut track = serde_path_to_error::Track::new();
            let theirs = PlanFile::read_by(serde_path_to_error::Deserializer::new(wrong.clone(), &mut track));
            match (PlanFile::read(wrong.clone()), theirs) {
                (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs),
                (Err(ours), Err(theirs)) => {
                    compared += 1;
                    let path = track.path().to_string();
                    assert_eq!(
                        ours.path,
                        if path == "." { "" } else { &path },
                        "{ours} against {theirs}: {wrong}"
                    );
                    // Of what should be a word, ours names the words.
                    if !theirs.to_string().contains("expected string or map") {
                        assert_eq!(ours.error.to_string(), theirs.to_string(), "{wrong}");
                    }
                }
                (ours, theirs) => panic!("{ours:?} against {theirs:?}: {wrong}"),
            }
        }
        assert!(compared > 500, "{compared}");
    }

    fn wrong_files() -> Vec<Value> {
        let mut architecture = Architecture::of(2, 64, 128, 256, Attention::grouped(4, 2, 16));
        architecture.other_mixers = vec![Mixer::Attention(Attention::grouped(4, 4, 16)), Mixer::Linear];
        let full = json!({
            "version": 1, "name": "x", "runtime": "megatron",
            "model": {"architecture": architecture},
            "cluster": {"gpu": "h100-sxm", "nodes": 2, "gpus_per_node": 8, "failed": [{"node": 0, "gpu": 3}, 4]},
            "layout": {"tp": 2, "pp": 1, "schedule": "1f1b", "fsdp": {"strategy": "none", "prefetch": true}},
            "training": {"micro_batch_size": 1, "precision": "bf16", "optimizer": {"kind": "adam"},
                "moe": {"dispatcher": "alltoall"}, "offload": {"fraction": 0.5}},
            "run": {"steps": 3, "data": {"kind": "synthetic"}}, "choose": ["tp"], "objective": "fastest"
        });
        let mut files = Vec::new();
        let mut places = Vec::new();
        list(&full, "", &mut places);
        for place in places {
            for other in [
                json!(null),
                json!(-1),
                json!(2.5),
                json!("two"),
                json!(true),
                json!([1, "x"]),
                json!({"a": 1}),
            ] {
                let mut file = full.clone();
                *file.pointer_mut(&place).unwrap() = other;
                files.push(file);
            }
            let (parent, name) = place.rsplit_once('/').unwrap();
            let mut file = full.clone();
            if let Some(fields) = file.pointer_mut(parent).and_then(Value::as_object_mut) {
                fields.remove(name);
                files.push(file.clone());
                file.pointer_mut(parent).unwrap()["nobody"] = json!(1);
                files.push(file);
            }
        }
        files
    }

    fn list(value: &Value, at: &str, places: &mut Vec<String>) {
        let parts: Vec<(String, &Value)> = match value {
            Value::Object(fields) => fields.iter().map(|(name, value)| (name.clone(), value)).collect(),
            Value::Array(values) => {
                values.iter().enumerate().map(|(at, value)| (at.to_string(), value)).collect()
            }
            _ => Vec::new(),
        };
        for (name, value) in parts {
            let place = format!("{at}/{name}");
            list(value, &place, places);
            places.push(place);
        }
    }
}
