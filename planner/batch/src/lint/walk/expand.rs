//! What words become: variables, lists, sums, and holes where only a running shell knows.

use std::rc::Rc;

use super::super::arithmetic;
use super::super::facts::{Place, Use};
use super::super::parse::first_word;
use super::super::syntax::{Form, Piece, PieceKind, Quote, Variable, Word};
use super::super::text::{Certainty, HOLE, Hole, HoleKind, Text};
use super::{Field, Value, WORD, Walker};

impl Walker<'_> {
    pub(super) fn hole(&self, name: &str, kind: HoleKind) -> Hole {
        Hole { name: name.into(), kind, on_task: self.on_task(), splits: false }
    }

    /// A word that is not split.
    pub(super) fn whole(&mut self, word: &Word, text: &Text, place: Place) -> Field {
        let fields = self.expanded(word, text, place, false);
        fields.into_iter().next().unwrap_or_else(|| Field {
            text: Text::default(),
            at: text.place(word.start),
            end: text.place(word.end),
            quoted: false,
            split: false,
        })
    }

    /// The words that a word becomes.
    pub(super) fn expand(&mut self, word: &Word, text: &Text, place: Place) -> Vec<Field> {
        self.expanded(word, text, place, true)
    }

    pub(super) fn expanded(&mut self, word: &Word, text: &Text, place: Place, splits: bool) -> Vec<Field> {
        let at = text.place(word.start);
        let end = text.place(word.end.saturating_sub(1)).saturating_add(1);
        let new = || Field { text: Text::default(), at, end, quoted: false, split: false };
        let mut fields = Vec::new();
        let mut current = new();
        let mut begun = false;
        for piece in &word.pieces {
            let quoted = piece.quote != Quote::None;
            current.quoted |= quoted;
            match &piece.kind {
                PieceKind::Literal => {
                    begun = true;
                    current.text.append_range(text, piece.start, piece.end);
                }
                PieceKind::Escaped => {
                    begun = true;
                    let from = if piece.end > piece.start + 1 { piece.start + 1 } else { piece.start };
                    current.text.append_range(text, from, piece.end);
                    current.quoted = true;
                }
                PieceKind::Hole => {
                    begun = true;
                    current.text.append_range(text, piece.start, piece.end);
                }
                PieceKind::Command(script) => {
                    begun = true;
                    let inner = Place { substituted: true, piped: false, background: false, ..place };
                    self.script(script, text, inner);
                    let name = first_word(script, text);
                    let mut hole = self.hole(&name, HoleKind::Command);
                    hole.splits = !quoted && splits;
                    current.text.push_hole(hole, text.place(piece.start));
                }
                PieceKind::Backticks(name) => {
                    begun = true;
                    let mut hole = self.hole(name, HoleKind::Command);
                    hole.splits = !quoted && splits;
                    current.text.push_hole(hole, text.place(piece.start));
                }
                PieceKind::Process(script) => {
                    begun = true;
                    self.script(script, text, Place { substituted: true, ..place });
                    current.text.push_hole(self.hole("", HoleKind::Command), text.place(piece.start));
                }
                PieceKind::Arithmetic => {
                    begun = true;
                    let value = self.computed(piece, text);
                    current.text.append(&value);
                }
                PieceKind::Variable(variable) => {
                    let split = splits && !quoted;
                    let values = self.variable(variable, piece, text, place, split);
                    let several = values.len() > 1;
                    for (index, value) in values.into_iter().enumerate() {
                        if index > 0 {
                            fields.push(std::mem::replace(&mut current, new()));
                        }
                        begun = true;
                        current.split |= several;
                        current.text.append(&value);
                    }
                    begun |= quoted && !matches!(variable.form, Form::All);
                }
            }
        }
        if begun {
            fields.push(current);
        }
        fields
    }

    /// The words that a variable becomes; one for what is not split.
    pub(super) fn variable(
        &mut self,
        variable: &Variable,
        piece: &Piece,
        text: &Text,
        place: Place,
        split: bool,
    ) -> Vec<Text> {
        let at = text.place(piece.start);
        let name = variable.name.as_str();
        let checked = self.checked.as_deref() == Some(name);
        let safe = checked || !matches!(variable.form, Form::Plain | Form::All);
        let on_task = self.on_task();
        self.facts.uses.push(Use {
            name: name.to_owned(),
            at,
            on_task,
            safe,
            order: self.facts.assigned.len(),
            depth: self.depth,
        });
        let known = self.lookup(name, at);
        match &variable.form {
            Form::Plain | Form::Required => self.spread(known, name, at, split),
            Form::All => match known {
                Some(value) => match value.as_ref() {
                    Value::Array(list) => {
                        let size = list.iter().map(|text| text.len() + WORD).sum();
                        if !self.burn(size) {
                            return vec![self.open_hole(name, at, true)];
                        }
                        if split { list.iter().flat_map(Text::words).collect() } else { list.clone() }
                    }
                    Value::Text(_) => self.spread(Some(value), name, at, split),
                },
                None => vec![self.open_hole(name, at, true)],
            },
            Form::Default(word) | Form::Assigned(word) => match known {
                Some(value) => self.spread(Some(value), name, at, split),
                // Slurm sets its own variables: their default never comes about.
                None if name.starts_with("SLURM_") => vec![self.open_hole(name, at, split)],
                None => {
                    let mut value = self.whole(word, text, place).text;
                    value.certainty = value.certainty.min(Certainty::Default);
                    if matches!(variable.form, Form::Assigned(_)) {
                        self.assign(name, Value::Text(value.clone()), false, at, place);
                    }
                    if split { value.words() } else { vec![value] }
                }
            },
            Form::Alternative(word) => {
                // What stands here is only read when the variable is set.
                let outer = self.checked.replace(name.to_owned());
                let mut value = self.whole(word, text, place).text;
                self.checked = outer;
                value.certainty = Certainty::Maybe;
                if split { value.words() } else { vec![value] }
            }
            Form::Other => {
                if known.is_some() {
                    // The script sets it, so what is made of it is not the text of a variable that nobody sets.
                    self.facts.unknown.insert(name.to_owned());
                }
                vec![self.open_hole(name, at, split)]
            }
        }
    }

    pub(super) fn open_hole(&self, name: &str, at: u32, splits: bool) -> Text {
        let mut hole = self.hole(name, HoleKind::Variable);
        hole.splits = splits;
        Text::hole_at(hole, at)
    }

    pub(super) fn spread(&mut self, known: Option<Rc<Value>>, name: &str, at: u32, split: bool) -> Vec<Text> {
        let Some(value) = known else { return vec![self.open_hole(name, at, split)] };
        let text = match value.as_ref() {
            Value::Text(text) => text,
            Value::Array(list) => match list.first() {
                Some(first) => first,
                None => return Vec::new(),
            },
        };
        let splits = split && text.bytes().iter().any(u8::is_ascii_whitespace);
        if !self.burn(if splits { text.len() * WORD / 2 } else { text.len() }) {
            return vec![self.open_hole(name, at, split)];
        }
        if split && text.bytes() != [HOLE] { text.words() } else { vec![text.clone()] }
    }

    /// What `$((...))` gives.
    pub(super) fn computed(&mut self, piece: &Piece, text: &Text) -> Text {
        let at = text.place(piece.start);
        let inner = text.bytes().get(piece.start + 3..piece.end.saturating_sub(2)).unwrap_or_default();
        let inner = String::from_utf8_lossy(inner).into_owned();
        let mut certainty = Certainty::Sure;
        let job = self.job;
        let mut names = Vec::new();
        let value = arithmetic::value(&inner, &mut |name| {
            names.push(name.to_owned());
            let value = self.lookup(name, at);
            match value.as_deref() {
                Some(Value::Text(text)) => {
                    certainty = certainty.min(text.certainty);
                    let slurm = || match (text.bytes(), text.holes().next()) {
                        ([HOLE], Some((_, hole))) => job.slurm_number(&hole.name),
                        _ => None,
                    };
                    text.number().or_else(slurm)
                }
                Some(Value::Array(_)) => None,
                None => job.slurm_number(name),
            }
        });
        let assigned: Vec<String> = arithmetic::assigned(&inner).map(|at| inner[at].to_owned()).collect();
        assigned.iter().for_each(|name| self.assign_unknown(name));
        for name in names {
            let (on_task, depth) = (self.on_task(), self.depth);
            let order = self.facts.assigned.len();
            self.facts.uses.push(Use { name, at, on_task, safe: true, order, depth });
        }
        match value {
            Some(value) => {
                let mut text = Text::known_at(&value.to_string(), at);
                text.certainty = certainty;
                text
            }
            None => Text::hole_at(self.hole(&inner, HoleKind::Arithmetic), at),
        }
    }
}
