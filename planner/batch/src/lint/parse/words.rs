//! Words: quotes, escapes and expansions, and the scripts that stand in them.

use super::super::syntax::{DEEPEST, Form, Item, Piece, PieceKind, Quote, Script, Trouble, Variable, Word};
use super::super::text::{HOLE, Text};
use super::{Parser, ends_word, is_name, is_name_start, parse_at_depth};

impl Parser<'_> {
    /// Goes past a word, and past one byte at least.
    pub(super) fn skip_word(&mut self) {
        let before = self.at;
        self.word();
        self.at = self.at.max(before + 1);
    }

    /// One word; empty where none is.
    pub(super) fn word(&mut self) -> Word {
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

    pub(super) fn piece(&mut self, start: usize, quote: Quote, kind: PieceKind) -> Piece {
        self.count();
        Piece { start, end: self.at, quote, kind }
    }

    /// A backslash and what stands behind it.
    pub(super) fn escape(&mut self, pieces: &mut Vec<Piece>, quote: Quote) {
        let from = self.at;
        self.at = (self.at + 2).min(self.bytes.len());
        // The rest of a character of several bytes.
        while self.peek().is_some_and(|byte| byte & 0xC0 == 0x80) {
            self.at += 1;
        }
        pieces.push(self.piece(from, quote, PieceKind::Escaped));
    }

    /// What stands between double quotes, up to `limit` or to `stop`.
    pub(super) fn double(&mut self, pieces: &mut Vec<Piece>, limit: usize, stop: Option<u8>) {
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
    pub(super) fn nested(&mut self) -> Script {
        self.depth += 1;
        let waiting = std::mem::take(&mut self.documents);
        let script = self.script(true);
        self.documents = waiting;
        self.depth -= 1;
        script
    }

    /// What begins with `$` or a backtick.
    pub(super) fn expansion(&mut self, pieces: &mut Vec<Piece>, quote: Quote) {
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

    pub(super) fn name(&mut self) -> String {
        let from = self.at;
        while self.peek().is_some_and(is_name) {
            self.at += 1;
        }
        String::from_utf8_lossy(self.bytes.get(from..self.at).unwrap_or_default()).into_owned()
    }

    /// `${...}` behind its brace.
    pub(super) fn braces(&mut self) -> Variable {
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
                Some(b'-') => Form::Default(word),
                Some(b'=') => Form::Assigned(word),
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
    pub(super) fn operand(&mut self, pieces: &mut Vec<Piece>) {
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
    pub(super) fn backticks(&mut self, pieces: &mut Vec<Piece>, quote: Quote) {
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
pub(crate) fn first_word(script: &Script, text: &Text) -> String {
    let first = script.items.iter().find_map(|item| match item {
        Item::Simple(simple) => simple.words.first(),
        _ => None,
    });
    let bytes = first.and_then(|word| text.bytes().get(word.start..word.end)).unwrap_or_default();
    String::from_utf8_lossy(bytes).chars().filter(|character| *character != '\u{fffd}').take(64).collect()
}
