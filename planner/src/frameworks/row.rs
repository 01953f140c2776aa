//! An option of a framework and the field of a plan that it is.

use serde_json::Value;

use crate::plan::Plan;
use crate::units::number;

/// An option.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// Its name.
    pub option: &'static str,
    /// Path of the field in a plan file; empty for one that follows from others.
    pub field: &'static str,
    /// How its values are written and read.
    pub kind: Kind,
    /// Whether it is written for a plan. What is read holds in any case.
    pub when: fn(&Plan) -> bool,
    /// Where this was read.
    pub source: &'static str,
}

/// How values are written and read.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A whole number, of at least 1 where it is a size.
    Number,
    /// A real number.
    Real,
    /// `true` or `false`.
    Switch,
    /// `false` or `true`: the option turns off what the field turns on.
    Opposite,
    /// Words, each with the value that it is in a plan; of several for one value the first is written, and an empty one is
    /// none. A value without a word is missing, for the reason that `lacks` says.
    Words {
        /// The framework's word and the plan's.
        known: &'static [(&'static str, &'static str)],
        /// Why another value can't be said.
        lacks: &'static str,
    },
    /// What follows from several fields, and is read by who knows them all.
    Follows(fn(&Plan) -> Option<String>),
    /// No option: why the field can't be said, where it can't.
    Says(fn(&Plan) -> Result<(), &'static str>),
    /// What is read and never written: another spelling.
    Read(&'static Kind),
    /// What has values that a plan can't have: nothing is said of those.
    Partly(&'static Kind),
    /// What no other kind is.
    Own {
        /// The word for a plan; none where none is needed; why there is none.
        write: fn(&Plan) -> Result<Option<String>, &'static str>,
        /// What a word is, where it is the field by itself; other options can be asked.
        read: fn(&str, Options) -> Result<Option<Value>, &'static str>,
    },
}

/// The options of a job, asked by name.
pub(crate) type Options<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The word of a job for no value.
pub(crate) const NULL: &str = "null";

/// How the learning rate falls, in the words of Megatron's scheduler and of Automodel's, which is made of it. Where it stays
/// and falls at last, as in their other styles, it is none of a plan's.
pub(crate) const STYLES: Kind = Kind::Partly(&Kind::Words {
    known: &[("constant", "constant"), ("linear", "linear"), ("cosine", "cosine")],
    lacks: "",
});

/// A value as a plan file's readers write it without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

impl Row {
    /// An option that is written for every plan.
    pub const fn new(option: &'static str, field: &'static str, kind: Kind, source: &'static str) -> Row {
        Row { option, field, kind, when: |_| true, source }
    }

    /// An option that is written for some plans.
    pub const fn when(self, when: fn(&Plan) -> bool) -> Row {
        Row { when, ..self }
    }
}

impl Kind {
    /// The option's word for a value; none where it is left out.
    pub(super) fn write(&self, plan: &Plan, value: &Value) -> Result<Option<String>, &'static str> {
        Ok(match self {
            Kind::Own { write, .. } => return write(plan),
            Kind::Follows(write) => write(plan),
            Kind::Says(why) => return why(plan).map(|()| None),
            Kind::Read(_) => None,
            Kind::Partly(kind) => return kind.write(plan, value),
            _ if value.is_null() => None,
            Kind::Number | Kind::Switch => Some(plain(value)),
            Kind::Real => value.as_f64().map(number),
            Kind::Opposite => value.as_bool().map(|on| (!on).to_string()),
            Kind::Words { known, lacks } => {
                let wanted = plain(value);
                let (word, _) = known.iter().find(|(_, own)| *own == wanted).ok_or(*lacks)?;
                (!word.is_empty()).then(|| (*word).to_owned())
            }
        })
    }

    /// The plan's value for a word; none where it says nothing of it.
    pub(super) fn read(&self, word: &str, said: Options) -> Result<Option<Value>, &'static str> {
        let switch = || match word.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err("and there are true and false"),
        };
        Ok(Some(match self {
            Kind::Own { read, .. } => return read(word, said),
            Kind::Follows(_) | Kind::Says(_) => return Ok(None),
            Kind::Read(kind) => return kind.read(word, said),
            Kind::Partly(kind) => return Ok(kind.read(word, said).unwrap_or_default()),
            Kind::Words { known, .. } => {
                let found =
                    known.iter().find(|(known, _)| !known.is_empty() && known.eq_ignore_ascii_case(word));
                match found {
                    Some((_, own)) => serde_json::from_str(own).unwrap_or_else(|_| Value::from(*own)),
                    None if word == NULL => return Ok(None),
                    None => return Err("which is none of its words"),
                }
            }
            // Nothing is asked for: what holds without the option holds.
            _ if word == NULL => return Ok(None),
            Kind::Number => {
                let number = word.parse::<f64>().map_err(|_| "which is no number")?;
                // Below 0 the framework chooses.
                if number < 0.0 {
                    return Ok(None);
                }
                if number.fract() != 0.0 || number >= 1e15 {
                    return Err("which is not a whole number");
                }
                (number as u64).into()
            }
            Kind::Real => word.parse::<f64>().map_err(|_| "which is no number")?.into(),
            Kind::Switch => switch()?.into(),
            Kind::Opposite => (!switch()?).into(),
        }))
    }
}
