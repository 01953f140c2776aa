//! The shell's grammar, as far as batch scripts use it: reads any bytes, goes on after every mistake, and looks at each
//! byte a bounded number of times.

use super::syntax::{
    Assigned, Assignment, Block, DEEPEST, Form, Item, Operator, Part, Piece, PieceKind, Quote, Redirect,
    RedirectKind, Script, Simple, Trouble, Variable, Word,
};
use super::text::{HOLE, Text};

/// Reads a script.
pub fn parse(text: &Text) -> (Script, Vec<(u32, Trouble)>) {
    parse_at_depth(text, 0)
}

/// Reads a script that stands inside of another, `depth` deep.
pub fn parse_at_depth(text: &Text, depth: u8) -> (Script, Vec<(u32, Trouble)>) {
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
                    self.arithmetic();
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
            self.arithmetic();
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
        items.push(Item::Part(Part::Pattern));
        loop {
            self.blanks();
            match self.peek() {
                None | Some(b'\n') => return,
                Some(b')') => {
                    self.at += 1;
                    return;
                }
                Some(b'(' | b'|' | b'&' | b';' | b'<' | b'>') => self.at += 1,
                Some(_) => self.skip_word(),
            }
        }
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

    fn simple(&mut self, items: &mut Vec<Item>) {
        let mut simple = Simple { start: self.at, ..Simple::default() };
        loop {
            self.blanks();
            let Some(byte) = self.peek() else { break };
            let before = self.at;
            match byte {
                b'#' | b'\n' | b';' | b'|' | b')' => break,
                b'&' if !self.ahead(b"&>") => break,
                b'(' => {
                    if simple.words.len() == 1 && simple.assignments.is_empty() && self.parentheses() {
                        items.push(Item::Function);
                        return;
                    }
                    break;
                }
                b'<' | b'>' if self.bytes.get(self.at + 1) == Some(&b'(') => {
                    let word = self.word();
                    simple.words.push(word);
                }
                b'<' | b'>' | b'&' => self.redirect(&mut simple),
                _ if self.numbered_redirect() => self.redirect(&mut simple),
                _ => match self.assignment(&simple) {
                    Some(assignment) => simple.assignments.push(assignment),
                    None => {
                        let word = self.word();
                        simple.words.push(word);
                    }
                },
            }
            // A word of no bytes, such as an expansion that is too deep, would stand here forever.
            self.at = self.at.max(before + 1);
            simple.end = self.at;
        }
        if simple.end <= simple.start {
            // Nothing was taken: step over the byte that stands in the way.
            self.at = self.at.max(simple.start + 1);
            return;
        }
        items.push(Item::Simple(simple));
    }

    /// Whether digits and then a `<` or `>` are ahead.
    fn numbered_redirect(&self) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && matches!(rest.get(digits), Some(b'<' | b'>'))
    }

    fn redirect(&mut self, simple: &mut Simple) {
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        let start = self.at;
        let forms: [(&[u8], RedirectKind); 12] = [
            (b"<<<", RedirectKind::HereString),
            (b"<<-", RedirectKind::Document),
            (b"<<", RedirectKind::Document),
            (b"<>", RedirectKind::Read),
            (b"<&", RedirectKind::Duplicate),
            (b"<", RedirectKind::Read),
            (b"&>>", RedirectKind::Write),
            (b"&>", RedirectKind::Write),
            (b">>", RedirectKind::Write),
            (b">|", RedirectKind::Write),
            (b">&", RedirectKind::Duplicate),
            (b">", RedirectKind::Write),
        ];
        let Some((sign, kind)) = forms.into_iter().find(|(sign, _)| self.ahead(sign)) else {
            self.at += 1;
            return;
        };
        self.at += sign.len();
        self.blanks();
        let target = self.word();
        if kind == RedirectKind::Document {
            let mut end = Vec::new();
            let mut plain = false;
            for piece in &target.pieces {
                plain |= piece.quote != Quote::None || matches!(piece.kind, PieceKind::Escaped);
                let escaped = usize::from(matches!(piece.kind, PieceKind::Escaped));
                end.extend_from_slice(self.bytes.get(piece.start + escaped..piece.end).unwrap_or_default());
            }
            if end.is_empty() || self.documents.len() > 64 {
                return;
            }
            let strips_tabs = sign == b"<<-";
            let redirect = simple.redirects.len();
            self.documents.push(Document { redirect, end, strips_tabs, plain, start });
        }
        let word = if kind == RedirectKind::Document { Word::default() } else { target };
        simple.redirects.push(Redirect { kind, target: word });
    }

    /// Bodies of the here-documents that were announced on the line that just ended.
    fn read_documents(&mut self, items: &mut [Item]) {
        for document in std::mem::take(&mut self.documents) {
            let start = self.at;
            let mut end = None;
            while self.at < self.bytes.len() {
                let line = self.at;
                let rest = self.bytes.get(line..).unwrap_or_default();
                let length = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                self.at = (line + length + 1).min(self.bytes.len());
                let mut text = rest.get(..length).unwrap_or_default();
                if document.strips_tabs {
                    let tabs = text.iter().take_while(|byte| **byte == b'\t').count();
                    text = text.get(tabs..).unwrap_or_default();
                }
                if text.strip_suffix(b"\r").unwrap_or(text) == document.end.as_slice() {
                    end = Some(line);
                    break;
                }
            }
            if end.is_none() {
                self.note(document.start, Trouble::Document);
            }
            let body = self.body(start, end.unwrap_or(self.at), document.plain);
            let owner = items.iter_mut().rev().take(512).filter_map(|item| match item {
                Item::Simple(simple) => simple.redirects.get_mut(document.redirect),
                _ => None,
            });
            let mut waiting =
                owner.filter(|redirect| redirect.kind == RedirectKind::Document && redirect.target.end == 0);
            if let Some(redirect) = waiting.next() {
                if document.plain {
                    redirect.kind = RedirectKind::PlainDocument;
                }
                redirect.target = body;
            }
        }
    }

    /// The body of a here-document as a word.
    fn body(&mut self, start: usize, end: usize, plain: bool) -> Word {
        let mut word = Word { start, end, pieces: Vec::new() };
        if plain {
            word.pieces.push(Piece { start, end, quote: Quote::Single, kind: PieceKind::Literal });
            return word;
        }
        let after = self.at;
        self.at = start;
        self.double(&mut word.pieces, end, None);
        self.at = after;
        word
    }

    /// `NAME=`, `NAME+=`, `NAME[...]=` and what is assigned.
    fn assignment(&mut self, simple: &Simple) -> Option<Assignment> {
        let start = self.at;
        let rest = self.bytes.get(start..)?;
        if !rest.first().copied().is_some_and(is_name_start) {
            return None;
        }
        let length = rest.iter().take_while(|byte| is_name(**byte)).count();
        let mut after = length;
        let mut element = false;
        if rest.get(after) == Some(&b'[') {
            let close = rest.iter().take(256).skip(after).position(|byte| matches!(byte, b']' | b'\n'))?;
            if rest.get(after + close) != Some(&b']') {
                return None;
            }
            after += close + 1;
            element = true;
        }
        let appends = rest.get(after) == Some(&b'+');
        after += usize::from(appends);
        if rest.get(after) != Some(&b'=') {
            return None;
        }
        let array = rest.get(after + 1) == Some(&b'(');
        // Behind the command only lists are assigned, as in `declare -a X=(...)`; the rest are words.
        if !simple.words.is_empty() && !array {
            return None;
        }
        let name = String::from_utf8_lossy(rest.get(..length)?).into_owned();
        self.at = start + after + 1;
        let value = if array && !element {
            self.at += 1;
            Assigned::Array(self.array())
        } else {
            let word = self.word();
            if element { Assigned::Element } else { Assigned::Word(word) }
        };
        Some(Assignment { start, name, appends, value })
    }

    fn array(&mut self) -> Vec<Word> {
        let mut words = Vec::new();
        loop {
            self.space();
            match self.peek() {
                None => {
                    self.note(self.at.saturating_sub(1), Trouble::Block);
                    return words;
                }
                Some(b')') => {
                    self.at += 1;
                    return words;
                }
                Some(b'|' | b'&' | b';' | b'(' | b'<' | b'>') => self.at += 1,
                Some(_) => {
                    let before = self.at;
                    let word = self.word();
                    words.push(word);
                    // A word of no bytes would stand here forever.
                    self.at = self.at.max(before + 1);
                }
            }
        }
    }

    /// Goes past a word, and past one byte at least.
    fn skip_word(&mut self) {
        let before = self.at;
        self.word();
        self.at = self.at.max(before + 1);
    }

    /// One word; empty where none is.
    fn word(&mut self) -> Word {
        let start = self.at;
        let mut pieces = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b'<' | b'>' if self.bytes.get(self.at + 1) == Some(&b'(') && self.depth < DEEPEST => {
                    let from = self.at;
                    self.at += 2;
                    let script = self.nested();
                    pieces.push(self.piece(from, Quote::None, PieceKind::Process(script)));
                }
                _ if ends_word(byte) => break,
                b'\\' => {
                    if self.bytes.get(self.at + 1) == Some(&b'\n') {
                        self.at += 2;
                        continue;
                    }
                    self.escape(&mut pieces, Quote::None);
                }
                b'\'' => {
                    let from = self.at + 1;
                    let rest = self.bytes.get(from..).unwrap_or_default();
                    let end = match rest.iter().position(|byte| *byte == b'\'') {
                        Some(end) => from + end,
                        None => {
                            self.note(self.at, Trouble::Quote);
                            self.bytes.len()
                        }
                    };
                    self.at = end;
                    pieces.push(self.piece(from, Quote::Single, PieceKind::Literal));
                    self.at = (end + 1).min(self.bytes.len());
                }
                b'"' => {
                    let open = self.at;
                    self.at += 1;
                    let before = pieces.len();
                    self.double(&mut pieces, self.bytes.len(), Some(b'"'));
                    if self.peek() == Some(b'"') {
                        self.at += 1;
                    } else {
                        self.note(open, Trouble::Quote);
                    }
                    if pieces.len() == before {
                        // "" is a word all the same.
                        let piece = Piece {
                            start: open + 1,
                            end: open + 1,
                            quote: Quote::Double,
                            kind: PieceKind::Literal,
                        };
                        pieces.push(piece);
                    }
                }
                b'$' if self.ahead(b"$'") || self.ahead(b"$\"") => self.at += 1,
                b'$' | b'`' => self.expansion(&mut pieces, Quote::None),
                HOLE => {
                    self.at += 1;
                    pieces.push(self.piece(self.at - 1, Quote::None, PieceKind::Hole));
                }
                _ => {
                    let from = self.at;
                    while self.peek().is_some_and(|byte| {
                        !ends_word(byte) && !matches!(byte, b'\\' | b'\'' | b'"' | b'$' | b'`' | HOLE)
                    }) {
                        self.at += 1;
                    }
                    pieces.push(self.piece(from, Quote::None, PieceKind::Literal));
                }
            }
        }
        Word { start, end: self.at, pieces }
    }

    fn piece(&mut self, start: usize, quote: Quote, kind: PieceKind) -> Piece {
        self.count();
        Piece { start, end: self.at, quote, kind }
    }

    /// A backslash and what stands behind it.
    fn escape(&mut self, pieces: &mut Vec<Piece>, quote: Quote) {
        let from = self.at;
        self.at = (self.at + 2).min(self.bytes.len());
        // The rest of a character of several bytes.
        while self.peek().is_some_and(|byte| byte & 0xC0 == 0x80) {
            self.at += 1;
        }
        pieces.push(self.piece(from, quote, PieceKind::Escaped));
    }

    /// What stands between double quotes, up to `limit` or to `stop`.
    fn double(&mut self, pieces: &mut Vec<Piece>, limit: usize, stop: Option<u8>) {
        while self.at < limit {
            let Some(byte) = self.peek() else { return };
            match byte {
                _ if Some(byte) == stop => return,
                b'\\' => match self.bytes.get(self.at + 1) {
                    Some(b'\n') => self.at += 2,
                    Some(b'$' | b'`' | b'\\') => self.escape(pieces, Quote::Double),
                    Some(b'"') if stop.is_some() => self.escape(pieces, Quote::Double),
                    _ => {
                        self.at += 1;
                        pieces.push(self.piece(self.at - 1, Quote::Double, PieceKind::Literal));
                    }
                },
                b'$' | b'`' => self.expansion(pieces, Quote::Double),
                HOLE => {
                    self.at += 1;
                    pieces.push(self.piece(self.at - 1, Quote::Double, PieceKind::Hole));
                }
                _ => {
                    let from = self.at;
                    while self.at < limit
                        && self.peek().is_some_and(|byte| {
                            Some(byte) != stop && !matches!(byte, b'\\' | b'$' | b'`' | HOLE)
                        })
                    {
                        self.at += 1;
                    }
                    pieces.push(self.piece(from, Quote::Double, PieceKind::Literal));
                }
            }
        }
    }

    /// A script up to its `)`.
    fn nested(&mut self) -> Script {
        self.depth += 1;
        let waiting = std::mem::take(&mut self.documents);
        let script = self.script(true);
        self.documents = waiting;
        self.depth -= 1;
        script
    }

    /// What begins with `$` or a backtick.
    fn expansion(&mut self, pieces: &mut Vec<Piece>, quote: Quote) {
        let from = self.at;
        let literal = |parser: &mut Self, pieces: &mut Vec<Piece>| {
            parser.at = from + 1;
            pieces.push(parser.piece(from, quote, PieceKind::Literal));
        };
        if self.depth >= DEEPEST {
            return literal(self, pieces);
        }
        if self.peek() == Some(b'`') {
            return self.backticks(pieces, quote);
        }
        self.at += 1;
        match self.peek() {
            Some(b'(') if self.ahead(b"((") => {
                self.at += 2;
                self.arithmetic();
                pieces.push(self.piece(from, quote, PieceKind::Arithmetic));
            }
            Some(b'(') => {
                self.at += 1;
                let script = self.nested();
                pieces.push(self.piece(from, quote, PieceKind::Command(script)));
            }
            Some(b'{') => {
                self.at += 1;
                let variable = self.braces();
                pieces.push(self.piece(from, quote, PieceKind::Variable(variable)));
            }
            Some(byte) if is_name_start(byte) => {
                let name = self.name();
                let variable = Variable { name, form: Form::Plain };
                pieces.push(self.piece(from, quote, PieceKind::Variable(variable)));
            }
            Some(byte) if byte.is_ascii_digit() || b"?*@#$!-".contains(&byte) => {
                self.at += 1;
                let form = if matches!(byte, b'@' | b'*') { Form::All } else { Form::Plain };
                let variable = Variable { name: char::from(byte).to_string(), form };
                pieces.push(self.piece(from, quote, PieceKind::Variable(variable)));
            }
            _ => literal(self, pieces),
        }
    }

    fn name(&mut self) -> String {
        let from = self.at;
        while self.peek().is_some_and(is_name) {
            self.at += 1;
        }
        String::from_utf8_lossy(self.bytes.get(from..self.at).unwrap_or_default()).into_owned()
    }

    /// `${...}` behind its brace.
    fn braces(&mut self) -> Variable {
        let open = self.at;
        let prefixed = matches!(self.peek(), Some(b'#' | b'!'))
            && self.bytes.get(self.at + 1).is_some_and(|byte| *byte != b'}');
        self.at += usize::from(prefixed);
        let mut name = self.name();
        if name.is_empty()
            && let Some(byte) = self.peek().filter(|byte| *byte != b'}')
        {
            self.at += 1;
            name = char::from(byte.min(127)).to_string();
        }
        let all = self.ahead(b"[@]") || self.ahead(b"[*]");
        self.at += if all { 3 } else { 0 };
        let mut form = match (prefixed, all) {
            (true, _) => Form::Other,
            (false, true) => Form::All,
            (false, false) => Form::Plain,
        };
        if self.peek() != Some(b'}') {
            let colon = usize::from(self.peek() == Some(b':'));
            let sign = self.bytes.get(self.at + colon).copied();
            if matches!(sign, Some(b'-' | b'=' | b'?' | b'+')) {
                self.at += colon + 1;
            }
            let start = self.at;
            let mut pieces = Vec::new();
            self.depth += 1;
            self.operand(&mut pieces);
            self.depth -= 1;
            let word = Word { start, end: self.at, pieces };
            form = match sign {
                _ if prefixed || all => form,
                Some(b'-' | b'=') => Form::Default(word),
                Some(b'?') => Form::Required,
                Some(b'+') => Form::Alternative(word),
                _ => Form::Other,
            };
        }
        if self.peek() == Some(b'}') {
            self.at += 1;
        } else {
            self.note(open, Trouble::Expansion);
        }
        Variable { name, form }
    }

    /// The word behind the sign of an expansion, up to its brace.
    fn operand(&mut self, pieces: &mut Vec<Piece>) {
        while let Some(byte) = self.peek() {
            match byte {
                b'}' => return,
                b'"' => {
                    self.at += 1;
                    self.double(pieces, self.bytes.len(), Some(b'"'));
                    self.at += usize::from(self.peek() == Some(b'"'));
                }
                b'\\' => self.escape(pieces, Quote::None),
                b'$' | b'`' => self.expansion(pieces, Quote::Double),
                HOLE => {
                    self.at += 1;
                    pieces.push(self.piece(self.at - 1, Quote::Double, PieceKind::Hole));
                }
                _ => {
                    let from = self.at;
                    while self
                        .peek()
                        .is_some_and(|byte| !matches!(byte, b'}' | b'"' | b'\\' | b'$' | b'`' | HOLE))
                    {
                        self.at += 1;
                    }
                    pieces.push(self.piece(from, Quote::None, PieceKind::Literal));
                }
            }
        }
    }

    /// A command between backticks: its escapes are undone, and the rest is read as a script.
    fn backticks(&mut self, pieces: &mut Vec<Piece>, quote: Quote) {
        let from = self.at;
        self.at += 1;
        let mut inner = Text::default();
        loop {
            match self.peek() {
                None => {
                    self.note(from, Trouble::Expansion);
                    break;
                }
                Some(b'`') => {
                    self.at += 1;
                    break;
                }
                Some(b'\\') if matches!(self.bytes.get(self.at + 1), Some(b'`' | b'\\' | b'$')) => {
                    inner.append_range(self.text, self.at + 1, self.at + 2);
                    self.at += 2;
                }
                Some(_) => {
                    inner.append_range(self.text, self.at, self.at + 1);
                    self.at += 1;
                }
            }
        }
        // Pieces of the inner script count from its own text, which is gone afterwards: only its words' names matter,
        // so they are read here into a script over the same places.
        let (script, trouble) = parse_at_depth(&inner, self.depth + 1);
        for (_, trouble) in trouble {
            self.note(from, trouble);
        }
        let script = first_word(&script, &inner);
        pieces.push(self.piece(from, quote, PieceKind::Backticks(script)));
    }
}

/// The name of the first program of a script.
pub fn first_word(script: &Script, text: &Text) -> String {
    let first = script.items.iter().find_map(|item| match item {
        Item::Simple(simple) => simple.words.first(),
        _ => None,
    });
    let bytes = first.and_then(|word| text.bytes().get(word.start..word.end)).unwrap_or_default();
    String::from_utf8_lossy(bytes).chars().filter(|character| *character != '\u{fffd}').take(64).collect()
}
