//! JSON in which no field stands twice. Of two fields of one name `serde_json` keeps the last and says nothing, so that
//! somebody who overlooks one plans with a value that he did not mean.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// The value in `text`.
///
/// # Errors
/// Of `serde_json`: when `text` is no JSON, when more text follows, when a field stands twice. A config.json is kept as
/// Python's reader keeps it: the last holds.
pub(super) fn json(text: &str) -> Result<Value, serde_json::Error> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = Unambiguous.deserialize(&mut reader)?;
    reader.end()?;
    Ok(value)
}

struct Unambiguous;

impl<'de> DeserializeSeed<'de> for Unambiguous {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unambiguous {
    type Value = Value;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("any JSON value")
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(Unambiguous)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if map.contains_key(&key) {
                return Err(A::Error::custom(format!("`{key}` stands twice; remove one of the two")));
            }
            let value = if key == "hf_config" {
                entries.next_value()?
            } else {
                entries.next_value_seed(Unambiguous)?
            };
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}
