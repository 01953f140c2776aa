//! The table against the structs that read a plan file: a reader that asks each field what it is.

use std::collections::BTreeSet;
use std::fmt;

use serde::de::value::Error;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::forward_to_deserialize_any;

use super::setting::{Kind, Setting, Trained};
use super::{Part, PlanFile, VERSION};
use crate::settings::Usual;

/// What a field asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Asked {
    Whole,
    Real,
    Switch,
    Word(&'static [&'static str]),
    Text,
    List,
    Parts(&'static [&'static str]),
    Anything,
}

/// Reads nothing: at the end of a path it notes what is asked for, and fails.
struct Asking<'a> {
    path: &'a [&'a str],
    asked: &'a mut Option<Asked>,
}

impl Asking<'_> {
    fn note<T>(self, asked: Asked) -> Result<T, Error> {
        *self.asked = Some(asked);
        Err(Error::custom("noted"))
    }
}

impl<'de> Deserializer<'de> for Asking<'_> {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::Anything)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        if self.path.is_empty() { self.note(Asked::Parts(fields)) } else { visitor.visit_map(self) }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.note(Asked::Word(words))
    }

    fn deserialize_u64<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::Whole)
    }

    fn deserialize_u32<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::Whole)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::Real)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::Switch)
    }

    fn deserialize_string<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::Text)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        self.note(Asked::List)
    }

    forward_to_deserialize_any! {
        i8 i16 i32 i64 u8 u16 f32 char str bytes byte_buf unit unit_struct tuple tuple_struct map identifier ignored_any
    }
}

impl<'de> MapAccess<'de> for Asking<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Error> {
        seed.deserialize(self.path[0].to_owned().into_deserializer()).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(Asking { path: &self.path[1..], asked: self.asked })
    }
}

/// What the reader of plan files asks for at a path.
fn asked(path: &str) -> Asked {
    let names: Vec<&str> = path.split('.').filter(|name| !name.is_empty()).collect();
    let mut asked = None;
    let read = PlanFile::read_by(Asking { path: &names, asked: &mut asked });
    assert!(read.is_err());
    asked.unwrap_or_else(|| panic!("{path} asks for nothing"))
}

/// Parts with a form of their own, which other files share.
const APART: [&str; 2] = ["model.architecture", "software.calibration"];

/// Every field that is no part itself, with what it asks for.
fn leaves(path: &str, found: &mut Vec<(String, Asked)>) {
    match asked(path) {
        Asked::Parts(fields) if !APART.contains(&path) => {
            for field in fields {
                let path = if path.is_empty() { (*field).to_owned() } else { format!("{path}.{field}") };
                leaves(&path, found);
            }
        }
        other => found.push((path.to_owned(), other)),
    }
}

impl fmt::Display for Asked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

#[test]
fn every_field_has_a_row_that_takes_what_it_reads() {
    let mut found = Vec::new();
    leaves("", &mut found);
    let paths: Vec<&str> = found.iter().map(|(path, _)| path.as_str()).collect();
    let rows: Vec<&str> = Setting::all().map(|setting| setting.path).collect();
    let set = |paths: &[&str]| paths.iter().map(|path| (*path).to_owned()).collect::<BTreeSet<String>>();
    assert_eq!(set(&paths), set(&rows));
    assert_eq!(rows.len(), set(&rows).len(), "a path has two rows");
    for (path, asked) in found {
        let setting = Setting::at_path(&path).unwrap();
        let fits = match (&asked, setting.kind) {
            (Asked::Whole, Kind::Whole { least, most }) => least <= most,
            (Asked::Real, Kind::Real { least, most }) => least < most,
            (Asked::Switch, Kind::Switch) | (Asked::Text, Kind::Text) | (Asked::List, Kind::Words(_)) => true,
            // A type of elements is a word, of which a field takes some.
            (Asked::Word(all), Kind::Word(words)) => words.iter().all(|word| all.contains(word)),
            (Asked::Text, Kind::Word(words)) => words.len() > 1,
            (Asked::Anything | Asked::Parts(_) | Asked::List | Asked::Word(_), Kind::Json(_, form)) => {
                !form.is_empty()
            }
            _ => false,
        };
        assert!(fits, "{path} reads {asked}, and its row takes {:?}", setting.kind);
        if let (Asked::Word(all), Kind::Word(words)) = (&asked, setting.kind) {
            assert!(words.len() == all.len() || all.contains(&"fp64"), "{path}: {words:?} of {all:?}");
        }
    }
}

#[test]
fn rows_say_what_a_form_needs() {
    for setting in Setting::all() {
        let Setting { path, label, part, .. } = *setting;
        assert_eq!(Setting::at_path(path).map(|found| found.path), Some(path));
        assert!(part == Part::Apart || !label.is_empty(), "{path}");
        let about = setting.about();
        assert!(about.ends_with('.') && !about.starts_with(' '), "{path}: {about}");
        // What is usual is said once: the row adds it to what its field's comment says.
        let is_said = !matches!(setting.usual, Usual::Nothing | Usual::Rule);
        assert!(!is_said || about.matches("; ").count() == 1, "{path}: {about}");
        assert!(!setting.stepped || matches!(setting.kind, Kind::Whole { .. }), "{path}");
    }
    assert_eq!(
        Setting::at_path("version").map(|setting| setting.kind),
        Some(Kind::Whole { least: 1, most: VERSION.into() })
    );
    for none in ["", ".", "layout", "layout.", "layout.tq", "tp", "layout.tp.x", "a.b"] {
        assert!(Setting::at_path(none).is_none(), "{none}");
    }
    for part in Part::ALL {
        assert!(Setting::of_part(part).next().is_some(), "{part:?}");
        let labels: Vec<&str> =
            Setting::of_part(part).map(|setting| setting.label).filter(|label| !label.is_empty()).collect();
        assert_eq!(labels.len(), labels.iter().collect::<BTreeSet<_>>().len(), "{part:?}");
    }
    let names: Vec<&str> = Setting::all().filter_map(|setting| setting.axis).map(|axis| axis.name).collect();
    assert_eq!(names.len(), names.iter().collect::<BTreeSet<_>>().len(), "{names:?}");
}

#[test]
fn what_a_row_does_not_say_is_not_known_to_be_executed() {
    let Trained::Usual(why) = super::setting::off().trained else { panic!("it is taken to be executed") };
    assert!(!why.is_empty());
    // Where a rule says what is usual there is nothing to compare with.
    let training = Setting::all().filter(|setting| setting.path.starts_with("training."));
    let unsaid = training
        .filter(|setting| setting.usual == Usual::Rule && matches!(setting.trained, Trained::Usual(_)));
    assert_eq!(unsaid.map(|setting| setting.path).collect::<Vec<_>>(), [""; 0]);
}
