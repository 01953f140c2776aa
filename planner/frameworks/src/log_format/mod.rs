//! How a framework writes an iteration, as a table, and the one reader of all such tables.

pub(crate) mod field;

use field::{Field, Quantity, put};
use planner::wire::Iteration;

/// What a line of a format does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// It is a whole iteration.
    Whole,
    /// It begins one, whose values stand on the indented lines after it.
    Head,
    /// It adds to the iteration that comes next.
    Before,
    /// It is a progress bar: it tells the iteration of the lines that tell none.
    Progress,
    /// It is an iteration that does not say its number: that of the last progress bar.
    Numberless,
}

/// A kind of line.
#[derive(Debug)]
pub(crate) struct Format {
    /// The framework's name in records.
    pub framework: &'static str,
    /// What the line does.
    pub kind: Kind,
    /// Text that only such a line has. Where it stands several times, lines ran into each other.
    pub anchor: &'static str,
    /// What it must have besides.
    pub also: &'static [&'static str],
    /// What it must not have.
    pub never: &'static [&'static str],
    /// Something stands behind every value, so that a value at the end was cut off.
    pub closed: bool,
    /// The values.
    pub fields: &'static [Field],
}

impl Format {
    /// Whether a line may be of this format.
    pub(crate) fn fits(&self, text: &str) -> bool {
        text.contains(self.anchor)
            && self.also.iter().all(|word| text.contains(word))
            && !self.never.iter().any(|word| text.contains(word))
    }

    /// The lines that ran into this one.
    pub(crate) fn pieces<'a>(&self, text: &'a str) -> impl Iterator<Item = &'a str> {
        let mut starts: Vec<usize> = text.match_indices(self.anchor).map(|(at, _)| at).collect();
        // What stands before the first anchor belongs to it.
        if let Some(first) = starts.first_mut() {
            *first = 0;
        }
        let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
        starts.into_iter().zip(ends).filter_map(|(start, end)| text.get(start..end))
    }

    /// Reads what the fields find into `iteration`; how many were found.
    pub(crate) fn read(&self, text: &str, iteration: &mut Iteration) -> Found {
        let mut found = Found::default();
        for field in self.fields {
            let Some(value) = field.find(text, self.closed) else { continue };
            put(iteration, field.quantity, value);
            match field.quantity {
                Quantity::Step => found.step = true,
                Quantity::Steps | Quantity::Epoch => {}
                _ => found.values += 1,
            }
        }
        iteration.framework.clear();
        iteration.framework.push_str(self.framework);
        found
    }
}

/// What a line gave.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// The iteration's number.
    pub step: bool,
    /// Values besides it.
    pub values: usize,
}
