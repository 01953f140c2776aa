//! Reading a JSON value where an error says at which field.
//!
//! One reader, whether the path is asked for or not: what is read has some two hundred fields, and each way to read them
//! is compiled for every field again.

mod words;

use std::cell::OnceCell;
use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, Error as _, Expected, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_json::{Error, Value, map};

use words::Word;
pub(crate) use words::{Tagged, read_tagged};

/// What could not be read.
#[derive(Debug)]
pub struct Located {
    /// The field: `layout.tp`; of an unknown field its own path, of a missing one that of its parent; empty for the whole.
    pub path: String,
    /// What is wrong with it.
    pub error: Error,
}

impl Located {
    /// The field and what is wrong with it, also where it stands in an enum whose word is a field of it
    /// ([`super::tagged`]): what is read there says its own path within the error.
    pub(crate) fn innermost(&self) -> (String, String) {
        let (mut path, mut message) = (self.path.clone(), self.error.to_string());
        while let Some((within, rest)) = message.split_once(": ") {
            if within.contains([' ', '`', '"'])
                || !["unknown ", "missing ", "invalid "].iter().any(|begins| rest.contains(begins))
            {
                break;
            }
            let dot = if path.is_empty() || within.starts_with('[') { "" } else { "." };
            path = format!("{path}{dot}{within}");
            message = rest.to_owned();
        }
        (path, message)
    }
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
    let value = serde_json::from_str(super::without_mark(text))
        .map_err(|error| Located { path: String::new(), error })?;
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
pub(crate) fn read<T>(
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
pub(crate) struct Reader<'a> {
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

/// Something else stands where `expected` should.
#[cold]
fn unlike(value: &Value, expected: &dyn Expected) -> Error {
    let found = match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(value) => Unexpected::Bool(*value),
        Value::Number(value) => match (value.as_u64(), value.as_i64()) {
            (Some(value), _) => Unexpected::Unsigned(value),
            (None, Some(value)) => Unexpected::Signed(value),
            (None, None) => Unexpected::Float(value.as_f64().unwrap_or_default()),
        },
        Value::String(value) => Unexpected::Str(value),
        Value::Array(_) => Unexpected::Seq,
        Value::Object(_) => Unexpected::Map,
    };
    Error::invalid_type(found, expected)
}

/// A value is asked for where there is none.
#[cold]
fn too_early() -> Error {
    Error::custom("a value is read before its name")
}

/// A word, or an object of one field: a word and its parts. Once, and not again for each list of words.
#[inline(never)]
fn word_of(value: Value, words: &'static [&'static str]) -> Result<(String, Option<Value>), Error> {
    match value {
        Value::String(word) => Ok((word, None)),
        Value::Object(fields) if fields.len() == 1 => match fields.into_iter().next() {
            Some((word, parts)) => Ok((word, Some(parts))),
            None => Ok((String::new(), None)),
        },
        // serde_json says no more than that it is neither.
        other => Err(Error::unknown_variant(&other.to_string().replace('`', "'"), words)),
    }
}

macro_rules! read_numbers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.value {
                Value::Number(value) => value.deserialize_any(visitor),
                other => Err(unlike(&other, &visitor)),
            }
        }
    )*};
}

/// What is asked for is all that a method reads: a struct is never a list of its fields' values, which nobody writes and for
/// which all of them would be compiled again.
impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(value),
            Value::Number(value) => value.deserialize_any(visitor),
            Value::String(value) => visitor.visit_string(value),
            Value::Array(_) => self.deserialize_seq(visitor),
            Value::Object(_) => self.deserialize_map(visitor),
        }
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::Bool(value) => visitor.visit_bool(value),
            other => Err(unlike(&other, &visitor)),
        }
    }

    read_numbers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_u8 deserialize_u16 deserialize_u32
        deserialize_u64 deserialize_f32 deserialize_f64
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.value {
            Value::String(value) => visitor.visit_string(value),
            other => Err(unlike(&other, &visitor)),
        }
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Reader { value, place, failed } = self;
        match value {
            Value::Array(values) => {
                let count = values.len();
                let mut entries = Entries { left: values.into_iter(), read: 0, place: &place, failed };
                visitor.visit_seq(&mut entries).and_then(|read| match entries.left.len() {
                    0 => Ok(read),
                    _ => Err(Error::invalid_length(count, &"fewer elements in array")),
                })
            }
            other => Err(unlike(&other, &visitor)),
        }
    }

    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let Reader { value, place, failed } = self;
        match value {
            Value::Object(fields) => {
                let (left, name) = (fields.into_iter(), String::new());
                visitor.visit_map(Fields { left, name, value: None, place: &place, failed })
            }
            other => Err(unlike(&other, &visitor)),
        }
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        self.deserialize_map(visitor)
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

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let Reader { value, place, failed } = self;
        let (word, parts) = word_of(value, words)?;
        visitor.visit_enum(Word { word, parts, beside: false, closed: true, place: &place, failed })
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_unit()
    }

    forward_to_deserialize_any! { i128 u128 char bytes byte_buf unit unit_struct identifier }
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
    /// The field that is being read, and its value until that is.
    name: String,
    value: Option<Value>,
    place: &'a Place<'a>,
    failed: &'a OnceCell<String>,
}

impl<'de> MapAccess<'de> for Fields<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        let Some((name, value)) = self.left.next() else { return Ok(None) };
        (self.name, self.value) = (name, Some(value));
        noted(
            seed.deserialize(Name(&self.name)).map(Some),
            &Place::Field(self.place, &self.name),
            self.failed,
        )
    }

    // Once for each type, and not again for each field of it.
    #[inline(never)]
    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Error> {
        let Some(value) = self.value.take() else {
            return Err(too_early());
        };
        let place = Place::Field(self.place, &self.name);
        noted(seed.deserialize(Reader { value, place, failed: self.failed }), &place, self.failed)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.left.len())
    }
}

/// The name of a field, which is a number where the map's keys are numbers.
struct Name<'a>(&'a str);

macro_rules! numbers {
    ($($method:ident $type:ident $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            match self.0.parse::<$type>() {
                Ok(number) => visitor.$visit(number),
                Err(_) => visitor.visit_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for Name<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_str(self.0)
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
        let word: StrDeserializer<Error> = self.0.into_deserializer();
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
                // Theirs reads a list in the place of fields as their values.
                (Err(ours), _) if ours.to_string().contains("invalid type: sequence, expected struct") => {}
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
