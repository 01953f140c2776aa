//! Text that remembers where in the script each byte stands, with holes where only the running script knows a value.

use std::rc::Rc;

/// The byte that stands for a hole. No UTF-8 text holds it.
pub(super) const HOLE: u8 = 0xFF;

/// How sure it is that a value is the one that the script will see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Certainty {
    /// Assigned in a branch, or in a loop.
    Maybe,
    /// The default of a variable that whoever submits may set.
    Default,
    /// As written.
    Sure,
}

/// What a hole stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HoleKind {
    /// A variable without a known value.
    Variable,
    /// What a command prints; the hole's name is the command's first word.
    Command,
    /// A number that is computed.
    Arithmetic,
}

/// A part of a text that only the running script knows.
#[derive(Debug, Clone)]
pub(super) struct Hole {
    /// The variable, or the program.
    pub name: Rc<str>,
    /// What it stands for.
    pub kind: HoleKind,
    /// Whether a task of a step fills it in, rather than the shell of the batch script.
    pub on_task: bool,
    /// Whether a shell splits it into words.
    pub splits: bool,
}

/// Bytes, their places in the script, and the holes among them.
#[derive(Debug, Clone)]
pub(super) struct Text {
    bytes: Vec<u8>,
    from: Vec<u32>,
    holes: Vec<(usize, Hole)>,
    /// How sure the text is.
    pub certainty: Certainty,
}

impl Default for Text {
    fn default() -> Self {
        Text { bytes: Vec::new(), from: Vec::new(), holes: Vec::new(), certainty: Certainty::Sure }
    }
}

impl Text {
    /// A whole script.
    pub(super) fn script(text: &str) -> Text {
        let places = 0..u32::try_from(text.len()).unwrap_or(u32::MAX);
        Text { bytes: text.as_bytes().to_vec(), from: places.collect(), ..Text::default() }
    }

    /// A text that all stands for one place.
    pub(super) fn known_at(text: &str, at: u32) -> Text {
        Text { bytes: text.as_bytes().to_vec(), from: vec![at; text.len()], ..Text::default() }
    }

    /// A text that is one hole.
    pub(super) fn hole_at(hole: Hole, at: u32) -> Text {
        let mut text = Text::default();
        text.push_hole(hole, at);
        text
    }

    /// The bytes, holes as [`HOLE`].
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there is neither a byte nor a hole.
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The place of the byte at `index`; of the end, the place behind the last byte.
    pub(super) fn place(&self, index: usize) -> u32 {
        match self.from.get(index) {
            Some(&place) => place,
            None => self.from.last().map_or(0, |last| last.saturating_add(1)),
        }
    }

    /// Adds one byte.
    pub(super) fn push(&mut self, byte: u8, from: u32) {
        self.bytes.push(byte);
        self.from.push(from);
    }

    /// Adds a hole.
    pub(super) fn push_hole(&mut self, hole: Hole, from: u32) {
        self.holes.push((self.bytes.len(), hole));
        self.push(HOLE, from);
    }

    /// Adds all of another text.
    pub(super) fn append(&mut self, other: &Text) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.from.extend_from_slice(&other.from);
        self.holes.extend(other.holes.iter().map(|(at, hole)| (start + at, hole.clone())));
        self.certainty = self.certainty.min(other.certainty);
    }

    /// Adds the bytes of a range of another text.
    pub(super) fn append_range(&mut self, other: &Text, start: usize, end: usize) {
        for index in start..end.min(other.len()) {
            match other.hole(index) {
                Some(hole) => self.push_hole(hole.clone(), other.place(index)),
                None => self.push(other.bytes[index], other.place(index)),
            }
        }
    }

    /// A part.
    pub(super) fn slice(&self, start: usize, end: usize) -> Text {
        let mut part = Text { certainty: self.certainty, ..Text::default() };
        part.append_range(self, start, end);
        part
    }

    /// The hole at `index`, if one is there.
    pub(super) fn hole(&self, index: usize) -> Option<&Hole> {
        if self.bytes.get(index) != Some(&HOLE) {
            return None;
        }
        let found = self.holes.binary_search_by_key(&index, |(at, _)| *at).ok()?;
        self.holes.get(found).map(|(_, hole)| hole)
    }

    /// All holes, with their places in the script.
    pub(super) fn holes(&self) -> impl Iterator<Item = (u32, &Hole)> {
        self.holes.iter().map(|(at, hole)| (self.place(*at), hole))
    }

    /// All holes, with their indices.
    pub(super) fn indexed_holes(&self) -> impl Iterator<Item = (usize, &Hole)> {
        self.holes.iter().map(|(at, hole)| (*at, hole))
    }

    /// The text, when it has no hole.
    pub(super) fn known(&self) -> Option<&str> {
        if self.holes.is_empty() { std::str::from_utf8(&self.bytes).ok() } else { None }
    }

    /// The text before the first hole.
    pub(super) fn beginning(&self) -> &str {
        let end = self.holes.first().map_or(self.bytes.len(), |(at, _)| *at);
        std::str::from_utf8(self.bytes.get(..end).unwrap_or_default()).unwrap_or_default()
    }

    /// The text as a shell would write it, holes as `$NAME` or `$(program ...)`.
    pub(super) fn shown(&self) -> String {
        self.shown_with(|_| None)
    }

    /// The same with numbers for variables whose values are known.
    pub(super) fn shown_with(&self, known: impl Fn(&str) -> Option<u64>) -> String {
        let mut out = String::new();
        let mut start = 0;
        let literal = |out: &mut String, start: usize, end: usize| {
            out.push_str(&String::from_utf8_lossy(self.bytes.get(start..end).unwrap_or_default()));
        };
        for (at, hole) in &self.holes {
            literal(&mut out, start, *at);
            match hole.kind {
                HoleKind::Variable => match known(&hole.name) {
                    Some(number) => out.push_str(&number.to_string()),
                    None => out.push_str(&format!("${}", hole.name)),
                },
                HoleKind::Command => out.push_str(&format!("$({} ...)", hole.name)),
                HoleKind::Arithmetic => out.push_str("$((...))"),
            }
            start = at + 1;
        }
        literal(&mut out, start, self.bytes.len());
        out
    }

    /// A whole number, when the text is one and nothing else.
    pub(super) fn number(&self) -> Option<u64> {
        let text = self.known()?.trim();
        if text.is_empty() || text.len() > 15 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
            return None;
        }
        text.parse().ok()
    }

    /// Words as an unquoted expansion gives them.
    pub(super) fn words(&self) -> Vec<Text> {
        let mut words = Vec::new();
        let mut start = None;
        for (index, byte) in self.bytes.iter().enumerate() {
            match (byte.is_ascii_whitespace(), start) {
                (true, Some(from)) => {
                    words.push(self.slice(from, index));
                    start = None;
                }
                (false, None) => start = Some(index),
                _ => {}
            }
        }
        if let Some(from) = start {
            words.push(self.slice(from, self.len()));
        }
        words
    }
}
