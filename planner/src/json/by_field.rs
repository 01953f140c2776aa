//! Reading a struct of which each field has a default, field by field into that default. What serde derives holds every field
//! beside the struct until all are read, and moves all of them: several times the code, for each struct again.

use std::fmt;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, Visitor};

/// A struct that is read field by field.
pub(crate) trait ByField: Default {
    /// Its name in error messages.
    const NAME: &'static str;
    /// Names of its fields.
    const FIELDS: &'static [&'static str];

    /// Reads the field with this place among them.
    ///
    /// # Errors
    /// When that is no value of the field.
    fn read_field<'de, D: Deserializer<'de>>(&mut self, place: usize, from: D) -> Result<(), D::Error>;
}

/// Has a struct read field by field: `by_field! { Name { each, of, its, fields } }`.
macro_rules! by_field {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl $crate::json::by_field::ByField for $name {
            const NAME: &'static str = stringify!($name);
            const FIELDS: &'static [&'static str] = &[$(stringify!($field)),*];

            fn read_field<'de, D: serde::Deserializer<'de>>(&mut self, place: usize, from: D) -> Result<(), D::Error> {
                // All of them, so that none is forgotten.
                let $name { $($field),* } = self;
                let mut at = 0;
                $(
                    if place == at {
                        *$field = $crate::json::by_field::read_value_of(from)?;
                        return Ok(());
                    }
                    at += 1;
                )*
                Err(serde::de::Error::invalid_length(place, &at.to_string().as_str()))
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<$name, D::Error> {
                $crate::json::by_field::read_by_field(from)
            }
        }
    };
}

pub(crate) use by_field;

/// The struct that `from` holds, with the defaults of what it lacks.
///
/// # Errors
/// When it is no object, has a field that the struct has not or one twice, or a field can't be read.
pub(crate) fn read_by_field<'de, T: ByField, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    let mut read = T::default();
    from.deserialize_struct(T::NAME, T::FIELDS, Into(&mut read))?;
    Ok(read)
}

/// One value. Once for each type, and not again for each field of it.
///
/// # Errors
/// When it is no such value.
#[inline(never)]
pub(crate) fn read_value_of<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
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
        while let Some(place) = fields.next_key_seed(FieldOf { fields: T::FIELDS, seen: &mut seen })? {
            fields.next_value_seed(Field { place, of: &mut *self.0 })?;
        }
        Ok(())
    }
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
    /// A bit for each place that came.
    seen: &'a mut u128,
}

impl<'de> DeserializeSeed<'de> for FieldOf<'_> {
    type Value = usize;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<usize, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldOf<'_> {
    type Value = usize;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("field identifier")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<usize, E> {
        let known = self.fields.iter().position(|known| *known == name);
        let place = known.ok_or_else(|| E::unknown_field(name, self.fields))?;
        let bit = 1u128.checked_shl(u32::try_from(place).unwrap_or(u32::MAX)).unwrap_or_default();
        if *self.seen & bit != 0 {
            return Err(E::duplicate_field(self.fields.get(place).copied().unwrap_or_default()));
        }
        *self.seen |= bit;
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::{FsdpFile, LayoutFile};

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
