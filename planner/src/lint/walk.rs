//! Walks a script as a shell would, as far as that can be known without running it: what is assigned, what each command's
//! words become, which commands a step's tasks run, and which strings are scripts themselves.

use std::collections::HashMap;
use std::rc::Rc;

use super::arithmetic;
use super::facts::{Assigned as AssignedFact, Call, Facts, Place, Use};
use super::job::Job;
use super::options;
use super::parse::{first_word, parse_at_depth};
use super::syntax::{
    Assigned, Block, Form, Item, Operator, Part, Piece, PieceKind, Quote, Script, Simple, Variable, Word,
};
use super::text::{Certainty, HOLE, Hole, HoleKind, Text};

/// Scripts inside of scripts that are read.
const DEEPEST_BODY: u8 = 8;
/// Uses of `set` that are kept.
const MOST_SETTINGS: usize = 1000;
/// Bytes that expansions may make in all, over those that the script has.
const FUEL: usize = 1 << 20;
/// What a word costs besides its bytes: lists of many empty words are no way around the limit.
const WORD: usize = 64;
/// Commands that are kept; a real script has a hundred.
const MOST_CALLS: usize = 50_000;

/// A word as the command gets it.
#[derive(Debug, Clone)]
pub struct Field {
    /// What it says.
    pub text: Text,
    /// Where its word begins in the script.
    pub at: u32,
    /// Where its word ends.
    pub end: u32,
    /// Whether any of it was quoted.
    pub quoted: bool,
    /// Whether it is a part of an expansion that was split.
    pub split: bool,
}

impl Field {
    /// The bytes of a range, at their own place.
    pub fn part(&self, start: usize, end: usize) -> Field {
        let at = self.text.place(start).max(self.at);
        Field { text: self.text.slice(start, end), at, ..self.clone() }
    }

    /// The last part of a path.
    pub fn base(&self) -> &str {
        let text = self.text.known().unwrap_or_default();
        text.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is this text and nothing else.
    pub fn is(&self, text: &str) -> bool {
        self.text.known() == Some(text)
    }

    /// Whether it may become several words, or none.
    pub fn is_open(&self) -> bool {
        self.text.len() == 1 && self.text.holes().next().is_some_and(|(_, hole)| hole.splits)
    }
}

#[derive(Debug, Clone)]
enum Value {
    Text(Text),
    Array(Vec<Text>),
}

#[derive(Debug, Clone)]
struct Known {
    value: Rc<Value>,
    exported: bool,
}

/// The variables of one shell.
#[derive(Debug, Default)]
struct Shell {
    variables: HashMap<Rc<str>, Known>,
    positional: Option<Vec<Text>>,
    on_task: bool,
}

/// Blocks around a command.
#[derive(Debug, Clone, Copy)]
struct Frame {
    block: Block,
    in_condition: bool,
    guarded: bool,
    is_else: bool,
    function: bool,
    behind: Option<Operator>,
}

/// The walker.
pub struct Walker<'a> {
    job: &'a Job,
    facts: Facts,
    shells: Vec<Shell>,
    fuel: usize,
    depth: u8,
    step: Option<usize>,
    all_exported: bool,
    pipelines: u32,
    /// The variable of the `${X:+...}` that is read.
    checked: Option<String>,
}

/// Walks a script that [`super::parse::parse`] read.
pub fn walk(script: &Script, text: &Text, job: &Job) -> Facts {
    let mut walker = Walker {
        job,
        facts: Facts::default(),
        shells: vec![Shell::default()],
        fuel: FUEL + text.len(),
        depth: 0,
        step: None,
        all_exported: false,
        pipelines: 0,
        checked: None,
    };
    walker.script(script, text, Place::default());
    walker.facts.conclude();
    walker.facts
}

/// Variables by which a command says which rank or node it is.
pub fn is_rank(name: &str) -> bool {
    matches!(
        name,
        "SLURM_LOCALID"
            | "SLURM_PROCID"
            | "SLURM_NODEID"
            | "LOCAL_RANK"
            | "RANK"
            | "NODE_RANK"
            | "GROUP_RANK"
    ) || name.starts_with("OMPI_COMM_WORLD")
}

impl Walker<'_> {
    fn shell(&mut self) -> &mut Shell {
        if self.shells.is_empty() {
            self.shells.push(Shell::default());
        }
        let last = self.shells.len() - 1;
        &mut self.shells[last]
    }

    fn on_task(&self) -> bool {
        self.shells.last().is_some_and(|shell| shell.on_task)
    }

    fn script(&mut self, script: &Script, text: &Text, outer: Place) {
        let mut frames: Vec<Frame> = Vec::new();
        let behind = operators_behind(script);
        // Of `a && b`, b is guarded by what a asks; of `a || b` too.
        let mut asked = false;
        let mut function = false;
        let mut negated = false;
        let mut chained = false;
        self.pipelines += 1;
        let mut pipeline = self.pipelines;
        for (index, item) in script.items.iter().enumerate() {
            match item {
                Item::Open(block) => {
                    let guarded = frames.last().is_some_and(|frame| frame.guarded);
                    frames.push(Frame {
                        block: *block,
                        in_condition: matches!(block, Block::If | Block::Loop),
                        guarded: guarded || asked,
                        is_else: false,
                        function,
                        behind: behind.get(index).copied().flatten(),
                    });
                    function = false;
                }
                Item::Close => drop(frames.pop()),
                Item::Part(part) => {
                    if let Some(frame) = frames.last_mut() {
                        frame.in_condition = *part == Part::Elif;
                        frame.is_else |= *part == Part::Else;
                    }
                }
                Item::For(word) => {
                    let name = literal(word, text);
                    self.assign_unknown(&name);
                }
                Item::Case(word) => asked |= self.asks(word),
                Item::Function => function = true,
                Item::Not => negated = true,
                Item::Between(operator) => {
                    if *operator != Operator::Pipe {
                        self.pipelines += 1;
                        pipeline = self.pipelines;
                    }
                    chained = matches!(operator, Operator::And | Operator::Or);
                    if *operator == Operator::Then || *operator == Operator::Background {
                        asked = false;
                        negated = false;
                    }
                }
                Item::Simple(simple) => {
                    let next = behind.get(index).copied().flatten();
                    let inside = |wanted: fn(&Frame) -> bool| frames.iter().any(wanted);
                    let place = Place {
                        depth: self.depth,
                        pipeline,
                        conditional: outer.conditional
                            || chained
                            || inside(|frame| {
                                !matches!(frame.block, Block::Group | Block::Subshell) || frame.function
                            }),
                        in_condition: outer.in_condition || inside(|frame| frame.in_condition),
                        guarded: outer.guarded || asked || inside(|frame| frame.guarded),
                        in_else: outer.in_else || inside(|frame| frame.is_else && frame.guarded),
                        looped: outer.looped || inside(|frame| frame.block == Block::Loop),
                        function: outer.function || inside(|frame| frame.function),
                        subshell: outer.subshell || inside(|frame| frame.block == Block::Subshell),
                        background: outer.background
                            || next == Some(Operator::Background)
                            || inside(|frame| frame.behind == Some(Operator::Background)),
                        piped: next == Some(Operator::Pipe)
                            || inside(|frame| frame.behind == Some(Operator::Pipe)),
                        tolerated: outer.tolerated
                            || matches!(next, Some(Operator::Or))
                            || negated
                            || inside(|frame| frame.behind == Some(Operator::Or)),
                        chained: matches!(next, Some(Operator::And)),
                        substituted: outer.substituted,
                    };
                    let asks = self.simple(simple, text, place);
                    if asks {
                        match frames.last_mut() {
                            Some(frame) if frame.in_condition => frame.guarded = true,
                            _ => asked = true,
                        }
                    }
                }
            }
        }
    }

    /// Whether a word asks which rank this is.
    fn asks(&self, word: &Word) -> bool {
        word.pieces
            .iter()
            .any(|piece| matches!(&piece.kind, PieceKind::Variable(variable) if is_rank(&variable.name)))
    }

    fn simple(&mut self, simple: &Simple, text: &Text, place: Place) -> bool {
        let at = text.place(simple.start);
        let declares = simple.words.first().is_some_and(|word| {
            matches!(literal(word, text).as_str(), "export" | "declare" | "typeset" | "readonly" | "local")
        });
        let asks = simple.words.iter().any(|word| self.asks(word));
        let mut fields = Vec::new();
        for word in &simple.words {
            if declares {
                fields.push(self.whole(word, text, place));
            } else {
                fields.extend(self.expand(word, text, place));
            }
        }
        let mut assigns = Vec::new();
        for assignment in &simple.assignments {
            let assigned_at = text.place(assignment.start);
            let value = match &assignment.value {
                Assigned::Word(word) => Some(Value::Text(self.whole(word, text, place).text)),
                Assigned::Array(words) => {
                    let mut elements = Vec::new();
                    for word in words {
                        elements.extend(self.expand(word, text, place).into_iter().map(|field| field.text));
                    }
                    Some(Value::Array(elements))
                }
                Assigned::Element => None,
            };
            let end = text.place(simple.end.saturating_sub(1)).saturating_add(1);
            if let Some(Value::Text(value)) = &value {
                let field = Field { text: value.clone(), at: assigned_at, end, quoted: true, split: false };
                assigns.push((assignment.name.clone(), field));
            }
            if simple.words.is_empty() || declares {
                let value = match (value, assignment.appends) {
                    (Some(value), true) => self.appended(&assignment.name, value),
                    (Some(value), false) => value,
                    (None, _) => {
                        self.assign_unknown(&assignment.name);
                        continue;
                    }
                };
                self.assign(&assignment.name, value, false, assigned_at, place);
            }
        }
        let mut redirects = Vec::new();
        for redirect in &simple.redirects {
            let field = self.whole(&redirect.target, text, place);
            redirects.push((redirect.kind, field));
        }
        let end = text.place(simple.end.saturating_sub(1)).saturating_add(1);
        if declares {
            self.declare(&fields, place);
        }
        let call = Call {
            fields,
            assigns,
            redirects,
            at,
            end,
            step: self.step,
            on_task: self.on_task(),
            payload: false,
            options: Vec::new(),
            place,
        };
        self.builtin(&call);
        self.call(call);
        asks
    }

    /// Keeps a call, and follows what it runs.
    fn call(&mut self, call: Call) {
        let index = self.facts.calls.len();
        if index >= MOST_CALLS {
            return;
        }
        let program = call.program();
        let is_step = call.fields.get(program).is_some_and(|field| field.base() == "srun");
        let place = call.place;
        let on_task = call.on_task;
        if is_step && self.step.is_none() {
            let words = call.fields.get(program + 1..).unwrap_or_default();
            let (given, taken) = options::read(words);
            let rest: Vec<Field> = words.get(taken..).unwrap_or_default().to_vec();
            let payload = Call {
                fields: rest,
                step: Some(index),
                on_task: false,
                payload: true,
                redirects: Vec::new(),
                options: Vec::new(),
                ..call.clone()
            };
            self.facts.calls.push(Call { options: given, ..call });
            self.step = Some(index);
            if !payload.fields.is_empty() {
                let body = body_of(&payload.fields);
                self.facts.calls.push(payload);
                if let Some((body, positional)) = body {
                    self.body(&body, positional, true, place);
                }
            }
            self.step = None;
            return;
        }
        let evaluated = call.fields.get(program).is_some_and(|field| field.is("eval"));
        let remote = call.fields.get(program).is_some_and(|field| super::facts::is_remote(field.base()));
        let body = if evaluated {
            let mut body = Text::default();
            for field in call.fields.get(program + 1..).unwrap_or_default() {
                if !body.is_empty() {
                    body.push(b' ', field.at);
                }
                body.append(&field.text);
            }
            Some((body, Vec::new()))
        } else {
            body_of(&call.fields)
        };
        self.facts.calls.push(call);
        if let Some((body, positional)) = body
            && !remote
        {
            if evaluated {
                self.evaluated(&body, place);
            } else {
                self.body(&body, positional, on_task, place);
            }
        }
    }

    /// A string that another shell reads.
    fn body(&mut self, body: &Text, positional: Vec<Text>, on_task: bool, place: Place) {
        if self.depth >= DEEPEST_BODY || !self.burn(body.len()) {
            return;
        }
        self.depth += 1;
        self.shells.push(Shell { positional: Some(positional), on_task, ..Shell::default() });
        let (script, _) = parse_at_depth(body, self.depth);
        self.script(&script, body, Place { piped: false, chained: false, ..place });
        self.shells.pop();
        self.depth -= 1;
    }

    /// A string that this shell reads once more.
    fn evaluated(&mut self, body: &Text, place: Place) {
        if self.depth >= DEEPEST_BODY || !self.burn(body.len()) {
            return;
        }
        self.depth += 1;
        let (script, _) = parse_at_depth(body, self.depth);
        self.script(&script, body, place);
        self.depth -= 1;
    }

    fn burn(&mut self, bytes: usize) -> bool {
        match self.fuel.checked_sub(bytes) {
            Some(left) => {
                self.fuel = left;
                true
            }
            None => false,
        }
    }

    /// What commands of the shell itself do to variables and settings.
    fn builtin(&mut self, call: &Call) {
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
            "source" | "." => self.facts.sources = true,
            _ => {}
        }
    }

    fn setting(&mut self, letter: char, on: bool, call: &Call) {
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

    fn declare(&mut self, fields: &[Field], place: Place) {
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

    fn assign(&mut self, name: &str, value: Value, exported: bool, at: u32, place: Place) {
        let mut value = value;
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

    fn assign_unknown(&mut self, name: &str) {
        if name.is_empty() {
            return;
        }
        let exported = self.all_exported;
        let value = Text::hole_at(self.hole(name, HoleKind::Variable), 0);
        self.facts.unknown.insert(name.to_owned());
        self.shell().variables.insert(name.into(), Known { value: Rc::new(Value::Text(value)), exported });
    }

    fn appended(&mut self, name: &str, more: Value) -> Value {
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

    fn hole(&self, name: &str, kind: HoleKind) -> Hole {
        Hole { name: name.into(), kind, on_task: self.on_task(), splits: false }
    }

    /// A word that is not split.
    fn whole(&mut self, word: &Word, text: &Text, place: Place) -> Field {
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
    fn expand(&mut self, word: &Word, text: &Text, place: Place) -> Vec<Field> {
        self.expanded(word, text, place, true)
    }

    fn expanded(&mut self, word: &Word, text: &Text, place: Place, splits: bool) -> Vec<Field> {
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
    fn variable(
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
            Form::Default(word) => match known {
                Some(value) => self.spread(Some(value), name, at, split),
                // Slurm sets its own variables: their default never comes about.
                None if name.starts_with("SLURM_") => vec![self.open_hole(name, at, split)],
                None => {
                    let mut value = self.whole(word, text, place).text;
                    value.certainty = value.certainty.min(Certainty::Default);
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
            Form::Other => vec![self.open_hole(name, at, split)],
        }
    }

    fn open_hole(&self, name: &str, at: u32, splits: bool) -> Text {
        let mut hole = self.hole(name, HoleKind::Variable);
        hole.splits = splits;
        Text::hole_at(hole, at)
    }

    fn spread(&mut self, known: Option<Rc<Value>>, name: &str, at: u32, split: bool) -> Vec<Text> {
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

    /// The value of a variable, as the innermost shell sees it.
    fn lookup(&mut self, name: &str, at: u32) -> Option<Rc<Value>> {
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

    /// What `$((...))` gives.
    fn computed(&mut self, piece: &Piece, text: &Text) -> Text {
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

/// The operator that follows each command and each block, by the index of its item; of a block, that of its beginning.
fn operators_behind(script: &Script) -> Vec<Option<Operator>> {
    let mut behind = vec![None; script.items.len()];
    let mut open = Vec::new();
    for (index, item) in script.items.iter().enumerate() {
        let owner = match item {
            Item::Open(_) => {
                open.push(index);
                continue;
            }
            Item::Close => open.pop(),
            Item::Simple(_) => Some(index),
            _ => None,
        };
        let mut next = script.items.get(index + 1);
        // Redirections behind a block are a command without words.
        if matches!(item, Item::Close)
            && matches!(next, Some(Item::Simple(simple)) if simple.words.is_empty())
        {
            next = script.items.get(index + 2);
        }
        if let (Some(owner), Some(Item::Between(operator))) = (owner, next)
            && let Some(slot) = behind.get_mut(owner)
        {
            *slot = Some(*operator);
        }
    }
    behind
}

/// The letters of a word, when it is nothing but letters.
fn literal(word: &Word, text: &Text) -> String {
    let mut out = String::new();
    for piece in &word.pieces {
        match piece.kind {
            PieceKind::Literal => {
                out.push_str(&String::from_utf8_lossy(
                    text.bytes().get(piece.start..piece.end).unwrap_or_default(),
                ));
            }
            _ => return String::new(),
        }
    }
    out
}

/// The script among the words of a command that starts a shell, and that shell's `$0`, `$1`, ...
pub fn body_of(fields: &[Field]) -> Option<(Text, Vec<Text>)> {
    let shell = fields.iter().position(|field| matches!(field.base(), "bash" | "sh" | "zsh" | "dash"))?;
    let mut index = shell + 1;
    let mut runs = false;
    while let Some(field) = fields.get(index) {
        let text = field.text.beginning();
        if !text.starts_with('-') && !text.starts_with('+') {
            break;
        }
        runs |= !text.starts_with("--") && text.contains('c');
        // Options with a word of their own.
        index += if matches!(text, "-o" | "-O" | "--rcfile" | "--init-file") { 2 } else { 1 };
    }
    let body = fields.get(index).filter(|_| runs)?;
    let positional =
        fields.get(index + 1..).unwrap_or_default().iter().map(|field| field.text.clone()).collect();
    Some((body.text.clone(), positional))
}
