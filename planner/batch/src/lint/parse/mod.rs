//! The shell's grammar, as far as batch scripts use it: reads any bytes, goes on after every mistake, and looks at each
//! byte a bounded number of times.

mod simple;
mod words;

pub(super) use words::first_word;

use super::arithmetic;
use super::syntax::{Block, Item, Operator, Part, Piece, PieceKind, Quote, Script, Simple, Trouble, Word};
use super::text::Text;

/// Reads a script.
pub(super) fn parse(text: &Text) -> (Script, Vec<(u32, Trouble)>) {
    parse_at_depth(text, 0)
}

/// Reads a script that stands inside of another, `depth` deep.
pub(super) fn parse_at_depth(text: &Text, depth: u8) -> (Script, Vec<(u32, Trouble)>) {
    let mut parser = Parser {
        text,
        bytes: text.bytes(),
        at: 0,
        documents: Vec::new(),
        depth,
        trouble: Vec::new(),
        parts: 0,
    };
    let script = parser.script(false);
    let at = parser.text.place(parser.at.saturating_sub(1));
    if !parser.documents.is_empty() {
        parser.trouble.push((at, Trouble::Document));
    }
    (script, parser.trouble)
}

/// A here-document whose body is still to come.
struct Document {
    /// Which redirection of its command.
    redirect: usize,
    end: Vec<u8>,
    strips_tabs: bool,
    plain: bool,
    start: usize,
}

struct Parser<'t> {
    text: &'t Text,
    bytes: &'t [u8],
    at: usize,
    documents: Vec<Document>,
    depth: u8,
    trouble: Vec<(u32, Trouble)>,
    parts: usize,
}

/// Commands, words' pieces and the like that are kept of one text; a real script has thousands.
const MOST_PARTS: usize = 300_000;
/// Blocks inside of blocks that are told apart; a real script has a handful.
const MOST_BLOCKS: usize = 200;

fn open_block(block: Block, items: &mut Vec<Item>, blocks: &mut Vec<Block>) {
    if blocks.len() < MOST_BLOCKS {
        blocks.push(block);
        items.push(Item::Open(block));
    }
}

fn close_block(block: Block, items: &mut Vec<Item>, blocks: &mut Vec<Block>) -> bool {
    let Some(open) = blocks.iter().rposition(|known| *known == block) else { return false };
    // What stands open inside was never closed, and ends here.
    items.extend(blocks.drain(open..).map(|_| Item::Close));
    true
}

fn is_name_start(byte: u8) -> bool {
    byte.is_ascii_alphabetic() || byte == b'_'
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn ends_word(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>')
}

impl Parser<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn ahead(&self, text: &[u8]) -> bool {
        self.bytes.get(self.at..).is_some_and(|rest| rest.starts_with(text))
    }

    /// Counts a part; behind the last that is kept nothing is read.
    fn count(&mut self) {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            self.bytes = self.bytes.get(..self.at.min(self.bytes.len())).unwrap_or_default();
        }
    }

    fn note(&mut self, at: usize, trouble: Trouble) {
        // One of each kind is enough: the rest follows from it.
        if !self.trouble.iter().any(|(_, known)| *known == trouble) {
            self.trouble.push((self.text.place(at), trouble));
        }
    }

    /// Skips blanks and continued lines.
    fn blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\\') if self.bytes.get(self.at + 1) == Some(&b'\n') => self.at += 2,
                _ => return,
            }
        }
    }

    /// The unquoted letters ahead, up to the end of the word; empty when something else is among them.
    fn bare(&self) -> &[u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().take(16).position(|byte| ends_word(*byte)).unwrap_or(rest.len().min(16));
        &rest[..end]
    }

    /// Commands up to the end of the text, or up to the `)` of an expansion.
    fn script(&mut self, inside: bool) -> Script {
        let mut items = Vec::new();
        let mut blocks: Vec<Block> = Vec::new();
        loop {
            self.blanks();
            self.count();
            let Some(byte) = self.peek() else {
                if inside {
                    self.note(self.at.saturating_sub(1), Trouble::Expansion);
                } else if !blocks.is_empty() {
                    self.note(self.at.saturating_sub(1), Trouble::Block);
                }
                break;
            };
            match byte {
                b'\n' => {
                    self.at += 1;
                    items.push(Item::Between(Operator::Then));
                    self.read_documents(&mut items);
                }
                b'#' => self.comment(),
                b';' => {
                    self.at += 1;
                    if matches!(self.peek(), Some(b';' | b'&')) {
                        self.at += if self.ahead(b";&") { 2 } else { 1 };
                        items.push(Item::Between(Operator::Then));
                        self.pattern(&mut items, &mut blocks);
                    } else {
                        items.push(Item::Between(Operator::Then));
                    }
                }
                b'&' if !self.ahead(b"&>") => {
                    self.at += 1;
                    let and = self.peek() == Some(b'&');
                    self.at += usize::from(and);
                    items.push(Item::Between(if and { Operator::And } else { Operator::Background }));
                }
                b'|' => {
                    self.at += 1;
                    let or = self.peek() == Some(b'|');
                    self.at += usize::from(or || self.peek() == Some(b'&'));
                    items.push(Item::Between(if or { Operator::Or } else { Operator::Pipe }));
                }
                b'(' if self.ahead(b"((") => {
                    self.at += 2;
                    self.computed(&mut items);
                }
                b'(' => {
                    self.at += 1;
                    open_block(Block::Subshell, &mut items, &mut blocks);
                }
                b')' => {
                    self.at += 1;
                    if !close_block(Block::Subshell, &mut items, &mut blocks) {
                        if inside {
                            break;
                        }
                        self.note(self.at - 1, Trouble::Block);
                    }
                }
                _ => self.command(&mut items, &mut blocks),
            }
        }
        Script { items }
    }

    fn comment(&mut self) {
        while self.peek().is_some_and(|byte| byte != b'\n') {
            self.at += 1;
        }
    }

    /// A reserved word, or a simple command.
    fn command(&mut self, items: &mut Vec<Item>, blocks: &mut Vec<Block>) {
        let bare = self.bare();
        let length = bare.len();
        match bare {
            b"if" => {
                self.at += length;
                open_block(Block::If, items, blocks);
            }
            b"then" | b"do" => {
                self.at += length;
                items.push(Item::Part(Part::Then));
            }
            b"elif" => {
                self.at += length;
                items.push(Item::Part(Part::Elif));
            }
            b"else" => {
                self.at += length;
                items.push(Item::Part(Part::Else));
            }
            b"fi" => {
                self.at += length;
                close_block(Block::If, items, blocks);
            }
            b"while" | b"until" => {
                self.at += length;
                open_block(Block::Loop, items, blocks);
            }
            b"for" | b"select" => {
                self.at += length;
                self.for_words(items);
                open_block(Block::Loop, items, blocks);
            }
            b"done" => {
                self.at += length;
                close_block(Block::Loop, items, blocks);
            }
            b"case" => {
                self.at += length;
                self.blanks();
                let word = self.word();
                items.push(Item::Case(word));
                open_block(Block::Case, items, blocks);
                self.space();
                if self.bare() == b"in" {
                    self.at += 2;
                }
                self.pattern(items, blocks);
            }
            b"esac" => {
                self.at += length;
                close_block(Block::Case, items, blocks);
            }
            b"{" => {
                self.at += length;
                open_block(Block::Group, items, blocks);
            }
            b"}" => {
                self.at += length;
                close_block(Block::Group, items, blocks);
            }
            b"!" => {
                self.at += length;
                items.push(Item::Not);
            }
            b"time" => self.at += length,
            b"function" => {
                self.at += length;
                self.blanks();
                self.word();
                self.parentheses();
                items.push(Item::Function);
            }
            b"[[" => {
                let test = self.test();
                items.push(Item::Simple(test));
            }
            _ => self.simple(items),
        }
    }

    /// Blanks, line ends and comments.
    fn space(&mut self) {
        loop {
            self.blanks();
            match self.peek() {
                Some(b'\n') => self.at += 1,
                Some(b'#') => self.comment(),
                _ => return,
            }
        }
    }

    /// The `()` behind a function's name.
    fn parentheses(&mut self) -> bool {
        let start = self.at;
        self.blanks();
        if self.peek() == Some(b'(') {
            self.at += 1;
            self.blanks();
            if self.peek() == Some(b')') {
                self.at += 1;
                return true;
            }
        }
        self.at = start;
        false
    }

    fn for_words(&mut self, items: &mut Vec<Item>) {
        self.blanks();
        if self.ahead(b"((") {
            self.at += 2;
            self.computed(items);
            return;
        }
        let name = self.word();
        items.push(Item::For(name));
        self.space();
        if self.bare() == b"in" {
            self.at += 2;
            loop {
                self.blanks();
                match self.peek() {
                    None | Some(b'\n' | b';' | b'&' | b'|' | b')') => return,
                    Some(b'(' | b'<' | b'>') => self.at += 1,
                    Some(_) => self.skip_word(),
                }
            }
        }
    }

    /// A pattern of a `case`, up to its `)`; at `esac` none.
    fn pattern(&mut self, items: &mut Vec<Item>, blocks: &mut [Block]) {
        if blocks.last() != Some(&Block::Case) {
            return;
        }
        self.space();
        if self.bare() == b"esac" {
            return;
        }
        let mut patterns = Vec::new();
        loop {
            self.blanks();
            match self.peek() {
                None | Some(b'\n') => break,
                Some(b')') => {
                    self.at += 1;
                    break;
                }
                Some(b'(' | b'|' | b'&' | b';' | b'<' | b'>') => self.at += 1,
                Some(_) => {
                    let before = self.at;
                    patterns.push(self.word());
                    self.at = self.at.max(before + 1);
                }
            }
        }
        items.push(Item::Patterns(patterns));
    }

    /// `[[ ... ]]` as one command: its operators are words.
    fn test(&mut self) -> Simple {
        let mut simple = Simple { start: self.at, ..Simple::default() };
        loop {
            self.blanks();
            match self.peek() {
                None => break,
                Some(b'\n') => {
                    // Only behind && and || may a line end here; a test that never ends must not swallow the script.
                    if !matches!(self.bytes.get(self.at.wrapping_sub(1)), Some(b'&' | b'|')) {
                        break;
                    }
                    self.at += 1;
                }
                Some(b'|' | b'&' | b';' | b'(' | b')' | b'<' | b'>') => self.at += 1,
                Some(_) => {
                    let before = self.at;
                    let word = self.word();
                    self.at = self.at.max(before + 1);
                    let closes = self.bytes.get(word.start..word.end) == Some(b"]]");
                    simple.words.push(word);
                    if closes {
                        break;
                    }
                }
            }
        }
        simple.end = self.at;
        simple
    }

    /// What stands between `((` and its `))`, by the variables that get a value there.
    fn computed(&mut self, items: &mut Vec<Item>) {
        let from = self.at;
        self.arithmetic();
        let inner = self.bytes.get(from..self.at).unwrap_or_default();
        let Ok(inner) = std::str::from_utf8(inner) else { return };
        for name in arithmetic::assigned(inner) {
            let (start, end) = (from + name.start, from + name.end);
            let piece = Piece { start, end, quote: Quote::None, kind: PieceKind::Literal };
            items.push(Item::For(Word { start, end, pieces: vec![piece] }));
        }
    }

    /// Up to the `))` behind `((`.
    fn arithmetic(&mut self) {
        let start = self.at;
        let mut open = 0usize;
        while let Some(byte) = self.peek() {
            match byte {
                b'(' => open += 1,
                b')' if open > 0 => open -= 1,
                b')' if self.ahead(b"))") => {
                    self.at += 2;
                    return;
                }
                b'\n' if self.at - start > 4096 => return,
                _ => {}
            }
            self.at += 1;
        }
        self.note(start, Trouble::Expansion);
    }
}
