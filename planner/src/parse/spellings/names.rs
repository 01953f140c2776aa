//! Names that people have for fields of the plan file, from the frameworks that they come from.

mod tables;

use super::counts::Count;
use super::{fields, fold};
use tables::{IN_SECTION, OTHER, SAME};

/// What a name means.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Meaning {
    /// Exactly a field of the plan file, at this path.
    Field(String),
    /// When true, a value of a field; when false, nothing; another value is the field's own.
    Switch(&'static str, &'static str),
    /// A number that follows from others, or from which others follow.
    Count(Count),
    /// Nothing that a plan has: what to write, as the end of a sentence.
    Says(&'static str),
}

/// What a name in a section means that the section does not know; none when nobody is known to write it.
pub(super) fn meaning(section: &str, name: &str) -> Option<Meaning> {
    let name = fold(name);
    let is = |word: &&str| fold(word) == name;
    let path = |section: &str, field: &str| {
        Meaning::Field(if section.is_empty() { field.to_owned() } else { format!("{section}.{field}") })
    };
    if name.is_empty() {
        return None;
    }
    if let Some(field) = fields::of(section).iter().find(|field| is(field)) {
        return Some(path(section, field));
    }
    if let Some((_, field, _)) = IN_SECTION
        .iter()
        .find(|(place, _, words)| *place == section && words.split(' ').any(|word| is(&word)))
    {
        return Some(Meaning::Field((*field).to_owned()));
    }
    if let Some((field, _)) = SAME.iter().find(|(_, words)| words.split(' ').any(|word| is(&word))) {
        return Some(Meaning::Field((*field).to_owned()));
    }
    if let Some((_, meaning)) = OTHER.iter().find(|(words, _)| words.split(' ').any(|word| is(&word))) {
        return Some(meaning.clone());
    }
    elsewhere(section, &name)
}

/// A field of the plan file in the wrong section: the outermost that has one of this name, where no other as far out has.
fn elsewhere(section: &str, name: &str) -> Option<Meaning> {
    let depth = |place: &str| if place.is_empty() { 0 } else { 1 + place.matches('.').count() };
    let holding: Vec<(usize, String)> = fields::sections()
        .iter()
        .filter(|(place, _)| *place != section)
        .filter_map(|(place, known)| {
            let field = known.iter().find(|field| fold(field) == name)?;
            let path = if place.is_empty() { (*field).to_owned() } else { format!("{place}.{field}") };
            Some((depth(place), path))
        })
        .collect();
    let least = holding.iter().map(|(depth, _)| *depth).min()?;
    let mut outermost = holding.into_iter().filter(|(depth, _)| *depth == least);
    match (outermost.next(), outermost.next()) {
        // The file's own fields in a section are a section in a section: more is wrong there than its place.
        (Some((depth, path)), None) if depth > 0 || path == "runtime" => Some(Meaning::Field(path)),
        _ => None,
    }
}

/// Every name of the tables with its meaning, for tests.
#[cfg(test)]
pub(super) fn all() -> Vec<(&'static str, &'static str, Meaning)> {
    let same = SAME.iter().flat_map(|(field, words)| {
        words.split(' ').map(|word| ("", word, Meaning::Field((*field).to_owned())))
    });
    let inside = IN_SECTION.iter().flat_map(|(section, field, words)| {
        words.split(' ').map(|word| (*section, word, Meaning::Field((*field).to_owned())))
    });
    let other =
        OTHER.iter().flat_map(|(words, meaning)| words.split(' ').map(|word| ("", word, meaning.clone())));
    same.chain(inside).chain(other).collect()
}
