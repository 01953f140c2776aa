//! Reading a struct field by field into its default. What serde derives holds every field beside the struct until all are read, and moves
//! all of them: several times the code, for each struct again.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// A struct that is read field by field.
pub trait ByField: Default {
    /// Its name in error messages.
    const NAME: &'static str;
    /// Names of its fields.
    const FIELDS: &'static [&'static str];
    /// How many of them, from the first, must be there.
    const NEEDED: usize;
    /// Whether fields of other names are passed over, and no errors.
    const OPEN: bool;

    /// Reads the field with this place among them.
    ///
    /// # Errors
    /// When that is no value of the field.
    fn read_field<'de, D: Deserializer<'de>>(&mut self, place: usize, from: D) -> Result<(), D::Error>;
}

/// Has a struct read field by field: `by_field! { Name { each, of, its, fields } }`. With `open Name` fields of other names are passed over;
/// those before a semicolon must be there.
#[macro_export]
macro_rules! by_field {
    ($name:ident { $($field:ident),* $(,)? }) => {
        $crate::json::by_field::by_field! { $name, false, [] [$($field)*] }
    };
    ($name:ident { $($needed:ident),* ; $($field:ident),* $(,)? }) => {
        $crate::json::by_field::by_field! { $name, false, [$($needed)*] [$($field)*] }
    };
    (open $name:ident { $($needed:ident),* ; $($field:ident),* $(,)? }) => {
        $crate::json::by_field::by_field! { $name, true, [$($needed)*] [$($field)*] }
    };
    (open $name:ident { $($field:ident),* $(,)? }) => {
        $crate::json::by_field::by_field! { $name, true, [] [$($field)*] }
    };
    ($name:ident, $open:literal, [$($needed:ident)*] [$($field:ident)*]) => {
        impl $crate::json::by_field::ByField for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [&'static str] = &[$(stringify!($needed),)* $(stringify!($field)),*];
            const NEEDED: usize = <[&str]>::len(&[$(stringify!($needed)),*]);
            const OPEN: bool = $open;

            fn read_field<'de, D: serde::Deserializer<'de>>(&mut self, place: usize, from: D) -> Result<(), D::Error> {
                // All of them, so that none is forgotten.
                let $name { $($needed,)* $($field),* } = self;
                let mut at = 0;
                $crate::json::by_field::by_field! { place, at, from; $($needed)* $($field)* }
                Err(serde::de::Error::invalid_length(place, &at.to_string().as_str()))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                $crate::json::by_field::read_by_field(from)
            }
        }
    };
    ($place:ident, $at:ident, $from:ident; $($field:ident)*) => {
        $(
            if $place == $at {
                *$field = $crate::json::by_field::read_value_of($from)?;
                return Ok(());
            }
            $at += 1;
        )*
    };
}

pub use by_field;

/// The struct that `from` holds, with the defaults of what it lacks.
///
/// # Errors
/// When it is no object, lacks a field that must be there, has one that the struct has not or one twice, or a field can't be read.
pub fn read_by_field<'de, T: ByField, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let mut read = T::default();
    from.deserialize_struct(T::NAME, T::FIELDS, Into(&mut read))?;
    Ok(read)
}

/// One value. Once for each type, and not again for each field of it.
///
/// # Errors
/// When it is no such value.
#[inline(never)]
pub fn read_value_of<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    T::deserialize(from)
}

/// Puts what is read into a struct.
struct Into<'a, T>(&'a mut T);

impl<'de, T: ByField> Visitor<'de> for Into<'_, T> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "struct {}", T::NAME)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<(), A::Error> {
        let mut seen = 0;
        while let Some(place) =
            fields.next_key_seed(FieldOf { fields: T::FIELDS, open: T::OPEN, seen: &mut seen })?
        {
            match place {
                Some(place) => fields.next_value_seed(Field { place, of: &mut *self.0 })?,
                None => fields.next_value::<IgnoredAny>().map(|_| ())?,
            }
        }
        match first_missing(seen, T::FIELDS, T::NEEDED) {
            Some(name) => Err(A::Error::missing_field(name)),
            None => Ok(()),
        }
    }
}

/// The first of the fields that must be there and did not come.
fn first_missing(seen: u128, fields: &'static [&'static str], needed: usize) -> Option<&'static str> {
    (0..).zip(fields).take(needed).find(|(place, _)| seen & bit(*place) == 0).map(|(_, name)| *name)
}

/// What stands for the field with this place in a set of fields.
fn bit(place: usize) -> u128 {
    1u128.checked_shl(u32::try_from(place).unwrap_or(u32::MAX)).unwrap_or_default()
}

/// A field of a struct that is being read.
struct Field<'a, T> {
    place: usize,
    of: &'a mut T,
}

impl<'de, T: ByField> DeserializeSeed<'de> for Field<'_, T> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<(), D::Error> {
        self.of.read_field(self.place, from)
    }
}

/// Reads the name of a field as its place among these; each may come once.
struct FieldOf<'a> {
    fields: &'static [&'static str],
    /// Whether other names are none, and no errors.
    open: bool,
    /// A bit for each place that came.
    seen: &'a mut u128,
}

impl<'de> DeserializeSeed<'de> for FieldOf<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Option<usize>, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldOf<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Option<usize>, E> {
        let known = self.fields.iter().position(|known| *known == name);
        let Some(place) = known else {
            return if self.open { Ok(None) } else { Err(E::unknown_field(name, self.fields)) };
        };
        if *self.seen & bit(place) != 0 {
            return Err(E::duplicate_field(self.fields.get(place).copied().unwrap_or_default()));
        }
        *self.seen |= bit(place);
        Ok(Some(place))
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use crate::wire::{FsdpFile, LayoutFile};

    #[derive(Debug, Default, PartialEq, Serialize)]
    struct Ours {
        rank: u64,
        lines: Vec<String>,
        code: Option<i32>,
        told: bool,
    }

    by_field! { open Ours { rank, lines; code, told } }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Theirs {
        rank: u64,
        lines: Vec<String>,
        code: Option<i32>,
        #[serde(default)]
        told: bool,
    }

    #[test]
    fn what_must_be_there_and_what_is_passed_over_is_as_in_serdes() {
        for text in [
            r#"{"rank": 1, "lines": ["a"]}"#,
            r#"{"told": true, "lines": [], "rank": 1, "code": 2}"#,
            r#"{"rank": 1, "lines": [], "code": null, "more": {"rank": [2]}, "more": 3}"#,
            r#"{"rank": 1}"#,
            r#"{"lines": []}"#,
            r#"{"code": 1}"#,
            "{}",
            r#"{"rank": 1, "lines": null}"#,
            r#"{"rank": 1, "rank": 1, "lines": []}"#,
            r#"{"rank": -1, "lines": []}"#,
            "7",
        ] {
            let ours = serde_json::from_str::<Ours>(text).map(|read| serde_json::to_value(read).unwrap());
            let theirs = serde_json::from_str::<Theirs>(text).map(|read| serde_json::to_value(read).unwrap());
            let told = |error: serde_json::Error| error.to_string().replace("Theirs", "Ours");
            assert_eq!(ours.map_err(told), theirs.map_err(told), "{text}");
        }
    }

    #[test]
    fn texts_are_read_as_serde_reads_what_it_derives() {
        let read = |text: &str| serde_json::from_str::<FsdpFile>(text);
        let some = read(r#"{"strategy": "optim", "compile": true}"#).unwrap();
        let plain =
            FsdpFile { strategy: Some("optim".to_owned()), compile: Some(true), ..FsdpFile::default() };
        assert_eq!(some, plain);
        assert_eq!(read("{}").unwrap(), FsdpFile::default());
        assert_eq!(read(&serde_json::to_string(&some).unwrap()).unwrap(), some);
        let error = |text: &str| read(text).unwrap_err().to_string();
        assert!(error("[]").starts_with("invalid type: sequence, expected struct FsdpFile at "));
        assert!(error(r#"{"compile": 1}"#).starts_with("invalid type: integer `1`, expected a boolean at "));
        assert!(error(r#"{"compile": true, "compile": true}"#).starts_with("duplicate field `compile` at "));
        let unknown = serde_json::from_str::<LayoutFile>(r#"{"tpp": 1}"#).unwrap_err().to_string();
        assert!(unknown.starts_with("unknown field `tpp`, expected one of `tp`, `sp`, "), "{unknown}");
    }
}
