//! What a batch script is made of: a flat list of commands, operators and block marks.
//!
//! Flat, so that a thousand nested blocks need no stack. Only expansions inside of words nest here, and no deeper than
//! [`DEEPEST`].

/// Expansions inside of expansions that are read; what lies deeper is taken as text.
pub(super) const DEEPEST: u8 = 24;

/// A list of commands.
#[derive(Debug, Default)]
pub(super) struct Script {
    /// Commands and what stands between them, in order.
    pub items: Vec<Item>,
}

impl Script {
    /// Where the bodies of here-documents stand, first to last.
    pub(super) fn documents(&self) -> Vec<(usize, usize)> {
        let redirects = self.items.iter().filter_map(|item| match item {
            Item::Simple(simple) => Some(&simple.redirects),
            _ => None,
        });
        let bodies = redirects
            .flatten()
            .filter(|redirect| matches!(redirect.kind, RedirectKind::Document | RedirectKind::PlainDocument));
        bodies.map(|redirect| (redirect.target.start, redirect.target.end)).collect()
    }
}

/// One thing in a script.
#[derive(Debug)]
pub(super) enum Item {
    /// A simple command.
    Simple(Simple),
    /// `if`, `while`, `{`, ... : a block begins.
    Open(Block),
    /// A block ends.
    Close,
    /// `then`, `elif`, `else`, `do` of the innermost block.
    Part(Part),
    /// The patterns of a part of a `case`, which begins.
    Patterns(Vec<Word>),
    /// The variable of a `for`, which its words are given to, or one that `((...))` gives a value.
    For(Word),
    /// The word that a `case` looks at.
    Case(Word),
    /// The next block is the body of a function.
    Function,
    /// What stands between two commands.
    Between(Operator),
    /// `!`.
    Not,
}

/// Kinds of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    /// `if` to `fi`.
    If,
    /// `for`, `while`, `until` or `select` to `done`.
    Loop,
    /// `case` to `esac`.
    Case,
    /// Braces.
    Group,
    /// Parentheses.
    Subshell,
}

/// Parts of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// `then` or `do`: what stands before was the condition.
    Then,
    /// `elif`: another condition.
    Elif,
    /// `else`.
    Else,
}

/// What stands between commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operator {
    /// `;` or a line's end.
    Then,
    /// `&&`.
    And,
    /// `||`.
    Or,
    /// `|` or `|&`.
    Pipe,
    /// `&`.
    Background,
}

/// Assignments, words and redirections.
#[derive(Debug, Default)]
pub(super) struct Simple {
    /// Where it begins in the text that was read.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// `NAME=value` before the first word, and arrays behind `declare` and the like.
    pub assignments: Vec<Assignment>,
    /// The command and its arguments.
    pub words: Vec<Word>,
    /// Redirections.
    pub redirects: Vec<Redirect>,
}

/// One assignment.
#[derive(Debug)]
pub(super) struct Assignment {
    /// Where it begins.
    pub start: usize,
    /// The variable.
    pub name: String,
    /// `+=`.
    pub appends: bool,
    /// The value.
    pub value: Assigned,
}

/// What is assigned.
#[derive(Debug)]
pub(super) enum Assigned {
    /// One word.
    Word(Word),
    /// A list in parentheses.
    Array(Vec<Word>),
    /// One element of an array.
    Element,
}

/// A redirection.
#[derive(Debug)]
pub(super) struct Redirect {
    /// Which.
    pub kind: RedirectKind,
    /// Its file, or the body of a here-document.
    pub target: Word,
}

/// Kinds of redirections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RedirectKind {
    /// `>`, `>|`, `&>`: the file begins anew.
    Write,
    /// `>>`, `&>>`: behind what the file holds.
    Append,
    /// `<`, `<>`.
    Read,
    /// `>&`, `<&` of a number.
    Duplicate,
    /// `<<`, with expansions.
    Document,
    /// `<<'WORD'`, without.
    PlainDocument,
    /// `<<<`.
    HereString,
}

impl RedirectKind {
    /// Whether something comes into a file.
    pub(super) const fn writes(self) -> bool {
        matches!(self, RedirectKind::Write | RedirectKind::Append)
    }
}

/// A word: pieces side by side.
#[derive(Debug, Default)]
pub(super) struct Word {
    /// Where it begins in the text that was read.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// What it is made of.
    pub pieces: Vec<Piece>,
}

/// A piece of a word.
#[derive(Debug)]
pub(super) struct Piece {
    /// Where it begins, quotes not counted.
    pub start: usize,
    /// Where it ends.
    pub end: usize,
    /// Inside of which quotes.
    pub quote: Quote,
    /// What it is.
    pub kind: PieceKind,
}

/// Quotes around a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quote {
    /// None.
    None,
    /// `'`.
    Single,
    /// `"`.
    Double,
}

/// Kinds of pieces.
#[derive(Debug)]
pub(super) enum PieceKind {
    /// The bytes as they stand.
    Literal,
    /// A backslash and the byte behind it, which stands for itself.
    Escaped,
    /// A variable.
    Variable(Variable),
    /// `$(...)`.
    Command(Script),
    /// Backticks; the first word between them.
    Backticks(String),
    /// `$((...))`.
    Arithmetic,
    /// `<(...)` or `>(...)`.
    Process(Script),
    /// A hole that an outer shell left.
    Hole,
}

/// An expansion of a variable.
#[derive(Debug)]
pub(super) struct Variable {
    /// Its name; a digit or a sign for special ones.
    pub name: String,
    /// What is done with the value.
    pub form: Form,
}

/// Forms of an expansion.
#[derive(Debug)]
pub(super) enum Form {
    /// `$X`, `${X}`.
    Plain,
    /// `${X[@]}`, `${X[*]}`.
    All,
    /// `${X:-word}`, `${X-word}`.
    Default(Word),
    /// `${X:=word}`, `${X=word}`.
    Assigned(Word),
    /// `${X:?word}`.
    Required,
    /// `${X:+word}`.
    Alternative(Word),
    /// `${#X}`, `${X%...}`, `${!X}` and the rest.
    Other,
}

/// Something that the shell could not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A quote without its partner.
    Quote,
    /// A here-document without its end.
    Document,
    /// `$(`, `${` or a backtick without its end.
    Expansion,
    /// A `)` that opens nowhere, or a block that does not end.
    Block,
}
