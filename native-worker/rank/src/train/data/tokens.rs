//! A file of tokens, one after the other: it is cut into windows, and each epoch has an order of them of its own.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, bail, ensure};
use planner::wire::TokenType;

use super::permutation::permuted;
use crate::state::init::mix;

/// Bytes of a token, and how they are read; all little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// A byte.
    U8,
    /// Two bytes.
    U16,
    /// Four bytes.
    U32,
    /// Four bytes with a sign.
    I32,
    /// Eight bytes with a sign.
    I64,
}

impl Width {
    /// Of a plan file.
    pub fn of(dtype: TokenType) -> Width {
        match dtype {
            TokenType::Uint8 => Width::U8,
            TokenType::Uint16 => Width::U16,
            TokenType::Uint32 => Width::U32,
            TokenType::Int32 => Width::I32,
            TokenType::Int64 => Width::I64,
        }
    }

    /// Bytes.
    pub fn bytes(self) -> u64 {
        match self {
            Width::U8 => 1,
            Width::U16 => 2,
            Width::U32 | Width::I32 => 4,
            Width::I64 => 8,
        }
    }

    /// The tokens that these bytes are.
    pub fn read(self, bytes: &[u8]) -> Vec<i64> {
        fn each<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> i64) -> Vec<i64> {
            bytes.as_chunks().0.iter().map(|&chunk| of(chunk)).collect()
        }
        match self {
            Width::U8 => bytes.iter().map(|&byte| i64::from(byte)).collect(),
            Width::U16 => each(bytes, |chunk| u16::from_le_bytes(chunk).into()),
            Width::U32 => each(bytes, |chunk| u32::from_le_bytes(chunk).into()),
            Width::I32 => each(bytes, |chunk| i32::from_le_bytes(chunk).into()),
            Width::I64 => each(bytes, i64::from_le_bytes),
        }
    }
}

/// What the tokens must fit.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Words of the model.
    pub vocabulary: u64,
    /// Tokens of a sequence.
    pub sequence: u64,
}

/// A file of tokens.
pub struct TokenFile {
    file: File,
    path: String,
    width: Width,
    /// Windows of a sequence and the token behind it.
    windows: u64,
    vocabulary: u64,
    key: u64,
}

impl TokenFile {
    /// Opens a file.
    ///
    /// # Errors
    /// When it can't be read, has no whole number of tokens, or is shorter than a sequence and one token.
    pub fn open(path: &str, width: Width, key: u64, limits: Limits) -> anyhow::Result<TokenFile> {
        let file = File::open(path).with_context(|| {
            format!("run.data.path {path:?} can't be opened; every rank reads it under that path")
        })?;
        let metadata = file.metadata()?;
        ensure!(metadata.is_file(), "run.data.path {path:?} is no file; name the file of tokens itself");
        let (bytes, each) = (metadata.len(), width.bytes());
        ensure!(
            bytes.is_multiple_of(each),
            "{path:?} has {bytes} bytes, which is no whole number of tokens of {each} bytes; is run.data.dtype right?"
        );
        let tokens = bytes / each;
        let Limits { vocabulary, sequence } = limits;
        ensure!(
            tokens > sequence,
            "{path:?} has {tokens} tokens, but a sequence of {sequence} needs {}; give a longer file or a smaller training.seq_len",
            sequence + 1
        );
        // The token behind a window is the first of the next.
        let windows = (tokens - 1) / sequence.max(1);
        Ok(TokenFile { file, path: path.to_owned(), width, windows, vocabulary, key })
    }

    /// Windows of an epoch.
    pub fn sequences(&self) -> u64 {
        self.windows
    }

    /// The tokens of sequence `index`: an epoch after the other, each in an order of its own.
    ///
    /// # Errors
    /// When the file can't be read, or a token is no word of the model.
    pub fn sample(&self, index: u64, sequence: u64) -> anyhow::Result<Vec<i64>> {
        let (epoch, place) = (index / self.windows, index % self.windows);
        let window = permuted(mix(self.key ^ mix(epoch)), self.windows, place);
        let each = self.width.bytes();
        let start = window * sequence * each;
        let mut bytes = vec![0; usize::try_from((sequence + 1) * each)?];
        self.file
            .read_exact_at(&mut bytes, start)
            .with_context(|| format!("reading {:?} at byte {start}", self.path))?;
        let tokens = self.width.read(&bytes);
        let known = |token: &i64| u64::try_from(*token).is_ok_and(|token| token < self.vocabulary);
        if let Some(at) = tokens.iter().position(|token| !known(token)) {
            let hint = if self.width == Width::U8 {
                "use a model with at least 256 words or plain ASCII text"
            } else {
                "was it made with the model's tokenizer, and is its type right?"
            };
            bail!(
                "token {} (token {} of {:?}) is not in the model's vocabulary of {} words; {hint}",
                tokens[at],
                window * sequence + at as u64,
                self.path,
                self.vocabulary
            );
        }
        Ok(tokens)
    }
}
