//! How the values of an option are written and read.

use serde_json::Value;

use crate::number::plain_digits;
use planner::plan::Plan;
use planner::units::number;

/// The options of a job, asked by name.
pub(crate) type Options<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The word of a job for no value.
pub(crate) const NULL: &str = "null";

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
    /// An option alone, which is there where the field is true.
    Flag,
    /// An option alone, which is there where the field is false.
    FlagOff,
    /// An option alone, which is no other kind.
    Alone {
        /// Whether it is there for a plan.
        write: fn(&Plan) -> bool,
        /// What it is, there or not, where it is the field by itself; other options can be asked.
        read: fn(bool, Options) -> Option<Value>,
    },
    /// Any text.
    Text,
    /// Names, one after the other.
    List,
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
    /// What is never written, and read by others: whether it has a value.
    Asked(bool),
    /// Several words, one after the other, which are no list of a plan's by themselves.
    Several(&'static Kind),
    /// What is read only where other options make something of it.
    Beside(fn(Options) -> bool, &'static Kind),
    /// What has values that a plan can't have: nothing is said of those.
    Partly(&'static Kind),
    /// What says nothing below this number.
    AtLeast(f64, &'static Kind),
    /// What no other kind is.
    Own {
        /// The word for a plan; none where none is needed; why there is none.
        write: fn(&Plan) -> Result<Option<String>, &'static str>,
        /// What a word is, where it is the field by itself; other options can be asked.
        read: fn(&str, Options) -> Result<Option<Value>, &'static str>,
    },
}

/// A value as a plan file's readers write it without quotes.
pub(crate) fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Whether an option that stands alone is on: one that is told to be false is not there.
pub(crate) fn is_on(word: &str) -> bool {
    !word.eq_ignore_ascii_case("false")
}

impl Kind {
    /// The kind of the values themselves, whatever is asked before they are read.
    pub(crate) fn inner(&self) -> &Kind {
        match self {
            Kind::Read(kind)
            | Kind::Several(kind)
            | Kind::Beside(_, kind)
            | Kind::Partly(kind)
            | Kind::AtLeast(_, kind) => kind.inner(),
            kind => kind,
        }
    }

    /// Whether the option stands alone, without a value.
    pub(crate) fn is_alone(&self) -> bool {
        matches!(self.inner(), Kind::Flag | Kind::FlagOff | Kind::Alone { .. } | Kind::Asked(false))
    }

    /// Its words, to be added to what is wrong with one that is none; empty where it is of another kind.
    pub(super) fn words(&self) -> String {
        let Kind::Words { known, .. } = self.inner() else { return String::new() };
        let mut words: Vec<&str> = Vec::new();
        for (number, (word, own)) in known.iter().enumerate() {
            // The first of several spellings.
            if !word.is_empty() && known[..number].iter().all(|(_, earlier)| earlier != own) {
                words.push(word);
            }
        }
        format!("; there are {}", words.join(", "))
    }

    /// Whether several words follow the option.
    pub(crate) fn is_several(&self) -> bool {
        matches!(self, Kind::Several(_)) || matches!(self.inner(), Kind::List)
    }

    /// The option's word for a value, empty for an option alone; none where it is left out.
    pub(super) fn write(&self, plan: &Plan, value: &Value) -> Result<Option<String>, &'static str> {
        let there = |on: bool| on.then(String::new);
        Ok(match self {
            Kind::Own { write, .. } => return write(plan),
            Kind::Alone { write, .. } => there(write(plan)),
            Kind::Follows(write) => write(plan),
            Kind::Says(why) => return why(plan).map(|()| None),
            Kind::Read(_) | Kind::Asked(_) => None,
            Kind::Several(kind) | Kind::Beside(_, kind) | Kind::Partly(kind) | Kind::AtLeast(_, kind) => {
                return kind.write(plan, value);
            }
            _ if value.is_null() => None,
            Kind::Number | Kind::Switch | Kind::Text => Some(plain(value)),
            Kind::Real => value.as_f64().map(number),
            Kind::Opposite => value.as_bool().map(|on| (!on).to_string()),
            Kind::Flag => there(*value == true),
            Kind::FlagOff => there(*value == false),
            Kind::List => {
                let names: Vec<String> = value.as_array().into_iter().flatten().map(plain).collect();
                (!names.is_empty()).then(|| names.join(" "))
            }
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
            Kind::Alone { read, .. } => return Ok(read(is_on(word), said)),
            Kind::Follows(_) | Kind::Says(_) | Kind::Asked(_) => return Ok(None),
            Kind::Read(kind) | Kind::Several(kind) => return kind.read(word, said),
            Kind::Beside(there, kind) => return if there(said) { kind.read(word, said) } else { Ok(None) },
            Kind::Partly(kind) => return Ok(kind.read(word, said).unwrap_or_default()),
            Kind::AtLeast(least, kind) => {
                let large = |value: &Value| value.as_f64().is_some_and(|number| number >= *least);
                return Ok(kind.read(word, said)?.filter(large));
            }
            Kind::Words { known, .. } => {
                let found =
                    known.iter().find(|(known, _)| !known.is_empty() && known.eq_ignore_ascii_case(word));
                match found {
                    Some((_, own)) => serde_json::from_str(own).unwrap_or_else(|_| Value::from(*own)),
                    None if word == NULL => return Ok(None),
                    None => return Err("which is none of its words"),
                }
            }
            Kind::Flag => is_on(word).into(),
            Kind::FlagOff => (!is_on(word)).into(),
            Kind::List => word.split_whitespace().collect::<Vec<_>>().into(),
            // Nothing is asked for: what holds without the option holds.
            _ if word == NULL => return Ok(None),
            Kind::Text => word.into(),
            Kind::Number => {
                let digits = plain_digits(word);
                if let Ok(number) = digits.parse::<u64>() {
                    return Ok(Some(number.into()));
                }
                let number = digits.parse::<f64>().map_err(|_| "which is no number")?;
                // Below 0 the framework chooses.
                if number < 0.0 {
                    return Ok(None);
                }
                if number.fract() != 0.0 || number >= 1e15 {
                    return Err("which is not a whole number");
                }
                (number as u64).into()
            }
            Kind::Real => plain_digits(word).parse::<f64>().map_err(|_| "which is no number")?.into(),
            Kind::Switch => switch()?.into(),
            Kind::Opposite => (!switch()?).into(),
        }))
    }
}
