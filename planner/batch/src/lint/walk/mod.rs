//! Walks a script as a shell would, as far as that can be known without running it: what is assigned, what each command's
//! words become, which commands a step's tasks run, and which strings are scripts themselves.

mod decide;
mod expand;
mod variables;

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use super::facts::{Call, Facts, Place, program_of};
use super::job::Job;
use super::options;
use super::parse::parse_at_depth;
use super::syntax::{Assigned, Block, Item, Operator, Part, PieceKind, Script, Simple, Word};
use super::text::Text;
use decide::{Chain, Choice};

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
pub(super) struct Field {
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
    pub(super) fn part(&self, start: usize, end: usize) -> Field {
        let at = self.text.place(start).max(self.at);
        Field { text: self.text.slice(start, end), at, ..self.clone() }
    }

    /// The last part of a path.
    pub(super) fn base(&self) -> &str {
        let text = self.text.known().unwrap_or_default();
        text.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is this text and nothing else.
    pub(super) fn is(&self, text: &str) -> bool {
        self.text.known() == Some(text)
    }

    /// Whether it may become several words, or none.
    pub(super) fn is_open(&self) -> bool {
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
    choice: Choice,
}

/// The walker.
pub(super) struct Walker<'a> {
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
    /// Whether branches that are not taken are passed over, rather than all walked.
    decides: bool,
    /// Parts that are walked of which only a run knows whether they are taken.
    open: u32,
    /// Names that the script gives a value anywhere.
    set_somewhere: HashSet<String>,
    /// Whether what is walked may run later or several times: a function or a loop, in which what stands behind may be set.
    again: bool,
}

/// Walks all of a script that [`super::parse::parse`] read, whatever its conditions say.
pub(super) fn walk(script: &Script, text: &Text, job: &Job) -> Facts {
    walk_as(script, text, job, None)
}

/// Walks what a shell would, as far as the script itself decides that.
pub(super) fn follow(script: &Script, text: &Text, job: &Job) -> Facts {
    let set = walk(script, text, job).into_names();
    walk_as(script, text, job, Some(set))
}

/// Walks a script; where the names are given that it sets anywhere, branches are decided.
fn walk_as(script: &Script, text: &Text, job: &Job, set: Option<HashSet<String>>) -> Facts {
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
        decides: set.is_some(),
        open: 0,
        set_somewhere: set.unwrap_or_default(),
        again: false,
    };
    walker.script(script, text, Place::default());
    walker.facts.conclude();
    walker.facts
}

/// Variables by which a command says which rank or node it is.
pub(super) fn is_rank(name: &str) -> bool {
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
        // One for each block around, and for what stands in none.
        let mut chains = vec![Chain::default()];
        let mut cases: Vec<Option<String>> = Vec::new();
        for (index, item) in script.items.iter().enumerate() {
            // What stands in a part that is passed over is passed over itself.
            let is_passed = frames.last().is_some_and(|frame| frame.choice.skips);
            let chain = chains.last().copied().unwrap_or_default();
            let is_passed = self.decides && (is_passed || chain.passes_over());
            let runs_again = |frame: &Frame| frame.function || frame.block == Block::Loop;
            self.again = self.decides && (outer.function || outer.looped || frames.iter().any(runs_again));
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
                        choice: Choice { skips: is_passed, settled: is_passed, open: false },
                    });
                    chains.push(Chain::default());
                    function = false;
                }
                Item::Close => {
                    let closed = frames.pop();
                    self.open -= u32::from(closed.is_some_and(|frame| frame.choice.open));
                    if closed.is_some_and(|frame| frame.block == Block::Case) {
                        cases.pop();
                    }
                    if chains.len() > 1 {
                        chains.pop();
                    }
                    if let Some(chain) = chains.last_mut()
                        && !closed.is_some_and(|frame| frame.choice.skips)
                    {
                        chain.ran(None);
                    }
                }
                Item::Part(part) => {
                    if let Some(frame) = frames.last_mut() {
                        frame.in_condition = *part == Part::Elif;
                        frame.is_else |= *part == Part::Else;
                        let was_open = frame.choice.open;
                        match part {
                            Part::Then if frame.block == Block::If => frame.choice.begin(chain.outcome()),
                            Part::Then => {}
                            Part::Elif | Part::Else => frame.choice.go_on(),
                        }
                        self.open = self.open - u32::from(was_open) + u32::from(frame.choice.open);
                    }
                    if let Some(chain) = chains.last_mut() {
                        *chain = Chain::default();
                    }
                }
                Item::Patterns(patterns) => {
                    let value = cases.last().cloned().flatten();
                    // What is walked in any case has no patterns to look at.
                    let mut fields = Vec::new();
                    if self.decides {
                        fields.extend(patterns.iter().map(|word| self.whole(word, text, outer)));
                    }
                    let holds = self.is_case(value.as_deref(), &fields);
                    if let Some(frame) = frames.last_mut() {
                        frame.in_condition = false;
                        let was_open = frame.choice.open;
                        frame.choice.begin(holds);
                        self.open = self.open - u32::from(was_open) + u32::from(frame.choice.open);
                    }
                    if let Some(chain) = chains.last_mut() {
                        *chain = Chain::default();
                    }
                }
                Item::Case(word) if self.decides => {
                    let field = self.whole(word, text, outer);
                    let value = self.plain(&field.text);
                    cases.push(value);
                    asked |= self.asks(word);
                }
                Item::For(_) | Item::Simple(_) if is_passed => {}
                Item::For(word) => {
                    let name = literal(word, text);
                    self.assign_unknown(&name);
                }
                Item::Case(word) => asked |= self.asks(word),
                Item::Function => function = true,
                Item::Not => {
                    negated = true;
                    if let Some(chain) = chains.last_mut() {
                        chain.negate();
                    }
                }
                Item::Between(operator) => {
                    if let Some(chain) = chains.last_mut() {
                        chain.join(*operator);
                    }
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
                    let (asks, outcome) = self.simple(simple, text, place);
                    if let Some(chain) = chains.last_mut() {
                        chain.ran(outcome);
                    }
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

    /// Walks a command: whether it asks which rank this is, and what it gives as a condition, where that is known.
    fn simple(&mut self, simple: &Simple, text: &Text, place: Place) -> (bool, Option<bool>) {
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
            program: program_of(&fields),
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
        let outcome = match (self.decides, call.fields.is_empty()) {
            (true, false) => {
                self.outcome(&call.fields, text.bytes().get(simple.start..simple.end).unwrap_or_default())
            }
            // An assignment succeeds.
            (decides, _) => (decides && !simple.assignments.is_empty()).then_some(true),
        };
        self.builtin(&call);
        self.call(call);
        (asks, outcome)
    }

    /// Keeps a call, and follows what it runs.
    fn call(&mut self, call: Call) {
        let index = self.facts.calls.len();
        if index >= MOST_CALLS {
            return;
        }
        let program = call.program;
        let is_step = call.fields.get(program).is_some_and(|field| field.base() == "srun");
        let place = call.place;
        let on_task = call.on_task;
        if is_step && self.step.is_none() {
            let words = call.fields.get(program + 1..).unwrap_or_default();
            let (given, taken) = options::read(words);
            let rest: Vec<Field> = words.get(taken..).unwrap_or_default().to_vec();
            let payload = Call {
                program: program_of(&rest),
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

/// Which of a command's words is the script of a shell that it starts.
pub(super) fn body_index(fields: &[Field]) -> Option<usize> {
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
    (runs && index < fields.len()).then_some(index)
}

/// The script among the words of a command that starts a shell, and that shell's `$0`, `$1`, ...
pub(super) fn body_of(fields: &[Field]) -> Option<(Text, Vec<Text>)> {
    let index = body_index(fields)?;
    let positional =
        fields.get(index + 1..).unwrap_or_default().iter().map(|field| field.text.clone()).collect();
    Some((fields.get(index)?.text.clone(), positional))
}
