//! Options whose values are words that stand in a table: its names are read, and listed with what each is.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

/// Reads one of `all` by its name.
pub fn one_of<T: Copy + Send + Sync + 'static>(
    all: &'static [T],
    name: fn(T) -> &'static str,
    about: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let listed = all.iter().map(move |&one| PossibleValue::new(name(one)).help(about(one)));
    let read = move |text: String| all.iter().copied().find(|&one| name(one) == text);
    PossibleValuesParser::new(listed).try_map(move |text| read(text).ok_or("it is none of the names"))
}
