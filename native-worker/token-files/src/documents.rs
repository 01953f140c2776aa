//! Documents of files, in batches, each with the place that an error names.

use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, ensure};

/// Bytes of text that go to a core at once; few in tests, so that there are many batches.
pub(crate) const BATCH: usize = if cfg!(test) { 4 << 10 } else { 256 << 10 };
/// The longest line or text file; the whole of one is in memory.
const MOST: u64 = 1 << 30;
/// What some editors put before a text.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Where text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A file of JSON lines; one whose name ends in `.txt` is one document.
    File(PathBuf),
    /// JSON lines from standard input.
    Stdin,
}

/// How documents stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Each line is a JSON object.
    Lines,
    /// The file is the document.
    Text,
}

/// Where a document stands.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    file: Arc<str>,
    line: Option<u64>,
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(formatter, "{}, line {line}", self.file),
            None => formatter.write_str(&self.file),
        }
    }
}

/// A document as it was read.
pub(crate) struct Document {
    pub place: Place,
    pub kind: Kind,
    /// Its bytes, or why it was not read.
    pub bytes: Result<Vec<u8>, String>,
}

/// Some documents.
#[derive(Default)]
pub(crate) struct Batch {
    pub documents: Vec<Document>,
    /// Bytes of files that they are.
    pub read: u64,
}

/// A file that is being read.
struct Source {
    name: Arc<str>,
    kind: Kind,
    reader: Box<dyn BufRead + Send>,
    lines: u64,
}

/// All documents of files, in their order.
pub(crate) struct Documents {
    /// What is still to be read, the next last.
    inputs: Vec<Input>,
    source: Option<Source>,
    ended: bool,
}

impl Input {
    fn kind(&self) -> Kind {
        match self {
            Input::File(path) if path.extension().is_some_and(|ending| ending == "txt") => Kind::Text,
            _ => Kind::Lines,
        }
    }

    fn open(&self) -> anyhow::Result<Source> {
        let (name, reader): (_, Box<dyn BufRead + Send>) = match self {
            Input::Stdin => ("standard input".to_owned(), Box::new(BufReader::new(io::stdin()))),
            Input::File(path) => {
                let name = path.display().to_string();
                let file = File::open(path).with_context(|| format!("{name} can't be read"))?;
                ensure!(!file.metadata()?.is_dir(), "{name} is a folder; name the files in it");
                (name, Box::new(BufReader::with_capacity(1 << 20, file)))
            }
        };
        Ok(Source { name: name.into(), kind: self.kind(), reader, lines: 0 })
    }
}

impl Documents {
    /// Of these inputs, each of which must be readable now: nobody waits for hours to be told of a wrong name.
    pub(crate) fn open(inputs: &[Input]) -> anyhow::Result<Documents> {
        for input in inputs.iter().filter(|input| **input != Input::Stdin) {
            input.open()?;
        }
        Ok(Documents { inputs: inputs.iter().rev().cloned().collect(), source: None, ended: false })
    }

    /// The next documents; none behind the last.
    fn batch(&mut self) -> anyhow::Result<Option<Batch>> {
        let (mut batch, mut held) = (Batch::default(), 0);
        while held < BATCH {
            let source = match &mut self.source {
                Some(source) => source,
                None => match self.inputs.pop() {
                    Some(input) => self.source.insert(input.open()?),
                    None => break,
                },
            };
            let (document, read) = source.next().with_context(|| format!("{} can't be read", source.name))?;
            batch.read += read;
            match document {
                Some(document) => {
                    held += document.bytes.as_ref().map_or(0, Vec::len) + size_of::<Document>();
                    batch.documents.push(document);
                }
                None if read == 0 => self.source = None,
                None => {}
            }
        }
        Ok((batch.read > 0).then_some(batch))
    }
}

impl Iterator for Documents {
    type Item = anyhow::Result<Batch>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let batch = self.batch().transpose();
        self.ended = !matches!(batch, Some(Ok(_)));
        batch
    }
}

impl Source {
    /// The next document, none of an empty line, and the bytes that were read: none at the end.
    fn next(&mut self) -> io::Result<(Option<Document>, u64)> {
        let mut bytes = Vec::new();
        let mut limited = self.reader.by_ref().take(MOST + 1);
        match self.kind {
            Kind::Lines => limited.read_until(b'\n', &mut bytes)?,
            Kind::Text => limited.read_to_end(&mut bytes)?,
        };
        let mut read = bytes.len() as u64;
        self.lines += 1;
        let place = Place { file: self.name.clone(), line: (self.kind == Kind::Lines).then_some(self.lines) };
        if read > MOST {
            read += self.pass_over(&bytes)?;
            let reason = format!("it has more than {} GiB; cut it into documents", MOST >> 30);
            return Ok((Some(Document { place, kind: self.kind, bytes: Err(reason) }), read));
        }
        if self.lines == 1 && bytes.starts_with(MARK) {
            bytes.drain(..MARK.len());
        }
        let is_empty = read == 0 || self.kind == Kind::Lines && bytes.iter().all(u8::is_ascii_whitespace);
        let document = (!is_empty).then_some(Document { place, kind: self.kind, bytes: Ok(bytes) });
        Ok((document, read))
    }

    /// Reads on to the end of a line or text of which too much was read.
    fn pass_over(&mut self, begun: &[u8]) -> io::Result<u64> {
        let mut passed = 0;
        if self.kind == Kind::Lines && begun.ends_with(b"\n") {
            return Ok(passed);
        }
        loop {
            let buffer = self.reader.fill_buf()?;
            let end = buffer.iter().position(|byte| *byte == b'\n').filter(|_| self.kind == Kind::Lines);
            let count = end.map_or(buffer.len(), |end| end + 1);
            self.reader.consume(count);
            passed += count as u64;
            if count == 0 || end.is_some() {
                return Ok(passed);
            }
        }
    }
}
