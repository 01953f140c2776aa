//! How a name that the batch script's shell expands comes to a task's shell: what stands in the line instead, where that is
//! right for certain.

use super::super::facts::Call;
use super::super::parse::parse;
use super::super::syntax::{
    Assigned, Form, Item, Piece, PieceKind, Quote, RedirectKind, Script, Variable, Word,
};
use super::super::text::Text;
use super::super::walk::body_index;
use super::Context;
use super::escapes::is_of_task;

/// Words that `$1` to `$9` hand over.
const MOST_GIVEN: usize = 9;

/// The arguments of a step's command as one string in single quotes, which each task's shell reads, for the place from the
/// command's first word to its last. What only the batch script's shell knows is handed over as arguments of that shell.
pub(super) fn wrapped(context: &Context<'_>, call: &Call, place: u32) -> Option<((u32, u32), String)> {
    let (start, end) = (call.fields.first()?.at, call.fields.last()?.end);
    let step = context.call(call.step?);
    let before = step.fields.len().checked_sub(call.fields.len() + 1)?;
    let is_apart = step.fields.get(before).is_some_and(|field| field.end <= start);
    let is_inside = start <= place && place < end;
    if !is_apart || !is_inside || call.place.depth > 0 || call.place.substituted {
        return None;
    }
    let raw = context.source.get(start as usize..end as usize).filter(|raw| !raw.contains('\n'))?;
    let (script, trouble) = parse(&Text::script(raw));
    let [Item::Simple(simple)] = script.items.as_slice() else { return None };
    if !trouble.is_empty() || !simple.redirects.is_empty() || !simple.assignments.is_empty() {
        return None;
    }
    // A step that passes other variables than the script's has none of them for certain.
    let inherits = !step.options.iter().any(|option| option.name == "export");
    let mut wrap = Wrap { context, raw, inherits, parts: Vec::new(), given: Vec::new(), list: None };
    let mut at = 0;
    for word in &simple.words {
        at = wrap.word(word, at)?;
    }
    Some(((start, end), wrap.finish()))
}

/// A piece of the string that is made.
enum Part<'a> {
    /// As the script writes it.
    Raw(&'a str),
    /// The argument of this number, from 1.
    Given(usize),
    /// All arguments behind the others.
    List,
}

struct Wrap<'a> {
    context: &'a Context<'a>,
    /// The command as the script writes it.
    raw: &'a str,
    /// Whether tasks have the variables that the script exports.
    inherits: bool,
    parts: Vec<Part<'a>>,
    /// Expansions that become arguments.
    given: Vec<&'a str>,
    /// A list, which becomes the last arguments.
    list: Option<&'a str>,
}

impl<'a> Wrap<'a> {
    /// Takes a word, and what stands before it; where it ends.
    fn word(&mut self, word: &Word, from: usize) -> Option<usize> {
        let mut at = from;
        let whole = self.raw.get(word.start..word.end)?;
        for piece in &word.pieces {
            self.parts.push(Part::Raw(self.raw.get(at..piece.start)?));
            let part = self.piece(piece, whole, piece.start == word.start)?;
            self.parts.push(part);
            at = piece.end;
        }
        self.parts.push(Part::Raw(self.raw.get(at..word.end)?));
        Some(word.end)
    }

    fn piece(&mut self, piece: &Piece, whole: &'a str, is_first: bool) -> Option<Part<'a>> {
        let written = self.raw.get(piece.start..piece.end)?;
        let raw = Some(Part::Raw(written));
        match &piece.kind {
            // Names of files that a pattern or a home stands for are those of where it is expanded.
            PieceKind::Literal if piece.quote == Quote::None => {
                let is_open = written.contains(['*', '?', '[']) || is_first && written.starts_with('~');
                if is_open { None } else { raw }
            }
            PieceKind::Literal | PieceKind::Escaped => raw,
            PieceKind::Variable(variable) if is_of_task(&variable.name) => {
                // A default may hold what a task has not.
                if written.matches('$').count() == 1 { raw } else { None }
            }
            PieceKind::Variable(variable) if self.task_has(variable) => raw,
            PieceKind::Variable(variable) if variable.name == "@" || matches!(variable.form, Form::All) => {
                let is_whole =
                    whole.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) == Some(written);
                if !is_whole || written.contains('*') || self.list.is_some() {
                    return None;
                }
                self.list = Some(whole);
                Some(Part::List)
            }
            PieceKind::Variable(_) if !written.contains(['"', '\'', '\\', '`']) => self.give(written),
            PieceKind::Command(_) | PieceKind::Arithmetic => self.give(written),
            PieceKind::Variable(_) | PieceKind::Backticks(_) | PieceKind::Process(_) | PieceKind::Hole => {
                None
            }
        }
    }

    /// Hands over an expansion as an argument; none where a task's value is a part of it.
    fn give(&mut self, written: &'a str) -> Option<Part<'a>> {
        let mut names = written
            .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
            .filter(|name| !name.is_empty());
        if self.given.len() == MOST_GIVEN || names.any(is_of_task) {
            return None;
        }
        self.given.push(written);
        Some(Part::Given(self.given.len()))
    }

    /// Whether a task's shell gives a variable the value that the batch script's does.
    fn task_has(&self, variable: &Variable) -> bool {
        let of_job = ["SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NUM_NODES", "SLURM_JOB_NODELIST"];
        let name = variable.name.as_str();
        self.inherits
            && matches!(variable.form, Form::Plain)
            && (of_job.contains(&name) || self.context.facts.exported.contains(name))
    }

    fn finish(self) -> String {
        let mut body = String::new();
        for part in &self.parts {
            match part {
                Part::Raw(raw) => body.push_str(raw),
                Part::Given(number) => body.push_str(&format!("${{{number}}}")),
                Part::List if self.given.is_empty() => body.push_str("$@"),
                Part::List => body.push_str(&format!("${{@:{}}}", self.given.len() + 1)),
            }
        }
        let mut out = format!("bash -c '{}'", body.replace('\'', r"'\''"));
        if !self.given.is_empty() || self.list.is_some() {
            // The name that the shell calls itself by.
            out.push_str(" bash");
        }
        for written in self.given {
            out.push_str(&format!(" \"{written}\""));
        }
        if let Some(list) = self.list {
            out.push_str(&format!(" {list}"));
        }
        out
    }
}

/// Whether a backslash before an expansion in a string leaves it to the shell that reads the string: that expands it there, and
/// no other command is given the same letters. `index` is where the string has it, `place` where the script does.
pub(super) fn may_be_escaped(context: &Context<'_>, text: &Text, index: usize, place: u32) -> bool {
    let (script, trouble) = parse(text);
    trouble.is_empty() && expands(&script, index) && only_in_strings(context, place)
}

/// Whether a command is given the expansion only within strings that a task's shell reads.
fn only_in_strings(context: &Context<'_>, place: u32) -> bool {
    let has = |text: &Text| text.holes().any(|(at, _)| at == place);
    context.facts.calls.iter().all(|call| {
        // A step's own words are those of its command, which comes behind it; what a string says was looked at as the string.
        if call.is_step() || call.step.is_some() && !call.payload {
            return true;
        }
        let body = body_index(&call.fields).filter(|_| call.payload);
        let in_words = call.fields.iter().enumerate().any(|(at, field)| Some(at) != body && has(&field.text));
        let is_document = |kind: RedirectKind| kind == RedirectKind::Document;
        !in_words && !call.redirects.iter().any(|(kind, field)| !is_document(*kind) && has(&field.text))
    })
}

/// Whether the shell that reads a script expands what stands at an index: not in single quotes, or in a here-document that is
/// taken as it stands.
fn expands(script: &Script, index: usize) -> bool {
    script.items.iter().any(|item| match item {
        Item::Simple(simple) => {
            let assigned = simple.assignments.iter().any(|assignment| match &assignment.value {
                Assigned::Word(word) => in_word(word, index),
                Assigned::Array(words) => words.iter().any(|word| in_word(word, index)),
                Assigned::Element => false,
            });
            let redirected = simple.redirects.iter().any(|redirect| {
                redirect.kind != RedirectKind::PlainDocument && in_word(&redirect.target, index)
            });
            assigned || redirected || simple.words.iter().any(|word| in_word(word, index))
        }
        Item::For(word) | Item::Case(word) => in_word(word, index),
        _ => false,
    })
}

fn in_word(word: &Word, index: usize) -> bool {
    word.pieces.iter().any(|piece| {
        let is_here = piece.start <= index && index < piece.end;
        is_here
            && match &piece.kind {
                PieceKind::Command(script) | PieceKind::Process(script) => expands(script, index),
                PieceKind::Hole => piece.quote != Quote::Single,
                PieceKind::Literal => piece.quote == Quote::Double,
                _ => false,
            }
    })
}
