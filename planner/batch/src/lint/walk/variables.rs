//! What a shell's variables hold, and the builtins that set them.

use std::rc::Rc;

use super::super::arithmetic;
use super::super::facts::{Assigned as AssignedFact, Call, Place};
use super::super::text::{Certainty, HOLE, HoleKind, Text};
use super::{Field, Known, MOST_SETTINGS, Value, WORD, Walker};

impl Walker<'_> {
    /// What commands of the shell itself do to variables and settings.
    pub(super) fn builtin(&mut self, call: &Call) {
        let Some(first) = call.fields.first().and_then(|field| field.text.known()) else { return };
        let rest = call.fields.get(1..).unwrap_or_default();
        match first {
            "set" => {
                if rest.first().is_some_and(|field| field.is("--")) {
                    return;
                }
                for (index, field) in rest.iter().enumerate() {
                    let Some(text) = field.text.known() else { continue };
                    let before = index.checked_sub(1).and_then(|index| rest.get(index));
                    let on = text.starts_with('-');
                    if on || text.starts_with('+') {
                        for letter in text.chars().skip(1) {
                            self.setting(letter, on, call);
                        }
                    } else if let Some(flag) = before.and_then(|field| field.text.known()) {
                        let on = flag.starts_with('-');
                        match text {
                            "errexit" => self.setting('e', on, call),
                            "nounset" => self.setting('u', on, call),
                            "xtrace" => self.setting('x', on, call),
                            "allexport" => self.setting('a', on, call),
                            "pipefail" => self.setting('|', on, call),
                            _ => {}
                        }
                    }
                }
            }
            "shift" => {
                let count = rest.first().and_then(|field| field.text.number()).unwrap_or(1);
                if let Some(positional) = &mut self.shell().positional {
                    let count = usize::try_from(count).unwrap_or(usize::MAX).min(positional.len());
                    // The first is $0, which stays.
                    let last = (1 + count).min(positional.len());
                    if positional.len() > 1 {
                        positional.drain(1..last);
                    }
                }
            }
            "unset" => {
                for field in rest {
                    if let Some(name) = field.text.known() {
                        let name: Rc<str> = name.into();
                        self.shell().variables.remove(&name);
                    }
                }
            }
            "read" | "mapfile" | "readarray" | "getopts" => {
                for field in rest {
                    if let Some(name) = field.text.known().filter(|name| !name.starts_with('-')) {
                        let name = name.to_owned();
                        self.assign_unknown(&name);
                    }
                }
            }
            // `printf -v NAME FORMAT ...`
            "printf" if rest.first().is_some_and(|field| field.is("-v")) => {
                if let Some(name) = rest.get(1).and_then(|field| field.text.known()).map(str::to_owned) {
                    self.assign_unknown(&name);
                }
            }
            "let" => {
                for text in rest.iter().filter_map(|field| field.text.known()) {
                    let names: Vec<String> =
                        arithmetic::assigned(text).map(|at| text[at].to_owned()).collect();
                    names.iter().for_each(|name| self.assign_unknown(name));
                }
            }
            "source" | "." => self.facts.sources = true,
            _ => {}
        }
    }

    pub(super) fn setting(&mut self, letter: char, on: bool, call: &Call) {
        if letter == 'a' {
            self.all_exported = on;
            return;
        }
        if call.on_task || call.place.depth > 0 || call.place.substituted {
            return;
        }
        if self.facts.settings.len() < MOST_SETTINGS {
            self.facts.settings.push((letter, on, call.at));
        }
    }

    pub(super) fn declare(&mut self, fields: &[Field], place: Place) {
        let exports = fields.first().is_some_and(|field| field.is("export"))
            || fields.iter().skip(1).any(|field| field.text.beginning().starts_with("-x"));
        for field in fields.iter().skip(1) {
            let beginning = field.text.beginning();
            if beginning.starts_with('-') {
                continue;
            }
            let equals = field.text.bytes().iter().position(|byte| *byte == b'=');
            match equals.filter(|equals| *equals <= beginning.len()) {
                Some(equals) => {
                    let name = beginning.get(..equals).unwrap_or_default().trim_end_matches('+').to_owned();
                    let value = field.text.slice(equals + 1, field.text.len());
                    self.assign(&name, Value::Text(value), exports, field.at, place);
                }
                None if exports => {
                    let name: Rc<str> = beginning.into();
                    self.facts.exported.insert(beginning.to_owned());
                    if let Some(known) = self.shell().variables.get_mut(&name) {
                        known.exported = true;
                    }
                    let value = self.shell().variables.get(&name).map(|known| known.value.clone());
                    if let Some(value) = value
                        && let Value::Text(value) = value.as_ref()
                    {
                        let value = value.clone();
                        let name = name.to_string();
                        self.facts.assigned.push(AssignedFact { name, value, at: field.at, place });
                    }
                }
                None => {}
            }
        }
    }

    pub(super) fn assign(&mut self, name: &str, value: Value, exported: bool, at: u32, place: Place) {
        let mut value = value;
        if self.decides && self.open > 0 {
            let known = self.shells.last().and_then(|shell| shell.variables.get(name));
            let is_hole = matches!(&value, Value::Text(text) if text.bytes() == [HOLE]);
            match known.map(|known| known.value.as_ref()) {
                // What an argument would say is no reason to forget what the script says.
                Some(Value::Text(before)) if is_hole && before.known().is_some() => return,
                Some(Value::Text(before)) if matches!(&value, Value::Text(after) if after.bytes() != before.bytes()) =>
                {
                    self.facts.open.insert(name.to_owned());
                }
                _ => {}
            }
        }
        if let (Value::Text(text), true) = (&mut value, place.conditional) {
            text.certainty = Certainty::Maybe;
        }
        let exported = exported
            || self.all_exported
            || self.shell().variables.get(name).is_some_and(|known| known.exported);
        if exported {
            self.facts.exported.insert(name.to_owned());
        }
        let text = match &value {
            Value::Text(text) => text.clone(),
            Value::Array(_) => Text::default(),
        };
        self.facts.assigned.push(AssignedFact { name: name.to_owned(), value: text, at, place });
        self.shell().variables.insert(name.into(), Known { value: Rc::new(value), exported });
    }

    pub(super) fn assign_unknown(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        let exported = self.all_exported;
        let value = Text::hole_at(self.hole(name, HoleKind::Variable), 0);
        self.facts.unknown.insert(name.to_owned());
        self.shell().variables.insert(name.into(), Known { value: Rc::new(Value::Text(value)), exported });
    }

    pub(super) fn appended(&mut self, name: &str, more: Value) -> Value {
        let before = self.shell().variables.get(name).map(|known| known.value.clone());
        let size = |value: &Value| match value {
            Value::Text(text) => text.len(),
            Value::Array(list) => list.iter().map(|text| text.len() + WORD).sum(),
        };
        let Some(before) = before else { return more };
        if !self.burn(size(&before)) {
            return Value::Text(Text::hole_at(self.hole(name, HoleKind::Variable), 0));
        }
        match (before.as_ref(), more) {
            (Value::Text(before), Value::Text(more)) => {
                let mut text = before.clone();
                text.append(&more);
                Value::Text(text)
            }
            (Value::Array(before), Value::Array(more)) => {
                let mut list = before.clone();
                list.extend(more);
                Value::Array(list)
            }
            (Value::Text(before), Value::Array(more)) => {
                let mut list = vec![before.clone()];
                list.extend(more);
                Value::Array(list)
            }
            (Value::Array(before), Value::Text(_)) => Value::Array(before.clone()),
        }
    }

    /// The value of a variable, as the innermost shell sees it.
    pub(super) fn lookup(&mut self, name: &str, at: u32) -> Option<Rc<Value>> {
        if let Some(positional) = self.shells.last().and_then(|shell| shell.positional.as_ref()) {
            if matches!(name, "@" | "*") {
                return Some(Rc::new(Value::Array(positional.iter().skip(1).cloned().collect())));
            }
            if let Ok(number) = name.parse::<usize>() {
                return positional.get(number).cloned().map(|text| Rc::new(Value::Text(text)));
            }
        }
        let mut crossed = false;
        for shell in self.shells.iter().rev() {
            if let Some(known) = shell.variables.get(name) {
                if crossed && !known.exported {
                    self.facts.unexported.push((name.to_owned(), at, self.step));
                    return None;
                }
                return Some(known.value.clone());
            }
            crossed = true;
        }
        None
    }
}
