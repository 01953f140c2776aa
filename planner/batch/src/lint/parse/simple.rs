//! Simple commands: assignments, words, redirections, and the bodies of here-documents.

use super::super::syntax::{
    Assigned, Assignment, Item, Piece, PieceKind, Quote, Redirect, RedirectKind, Simple, Trouble, Word,
};
use super::{Document, Parser, is_name, is_name_start};

impl Parser<'_> {
    pub(super) fn simple(&mut self, items: &mut Vec<Item>) {
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
    pub(super) fn numbered_redirect(&self) -> bool {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let digits = rest.iter().take(4).take_while(|byte| byte.is_ascii_digit()).count();
        digits > 0 && matches!(rest.get(digits), Some(b'<' | b'>'))
    }

    pub(super) fn redirect(&mut self, simple: &mut Simple) {
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
            (b"&>>", RedirectKind::Append),
            (b"&>", RedirectKind::Write),
            (b">>", RedirectKind::Append),
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
    pub(super) fn read_documents(&mut self, items: &mut [Item]) {
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
    pub(super) fn body(&mut self, start: usize, end: usize, plain: bool) -> Word {
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
    pub(super) fn assignment(&mut self, simple: &Simple) -> Option<Assignment> {
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

    pub(super) fn array(&mut self) -> Vec<Word> {
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
}
