//! A tokenizer.json, and the tokens that it knows.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use anyhow::{Context, anyhow, bail};
use tokenizers::Tokenizer;

/// Below so many words Megatron keeps tokens in two bytes (Megatron-Core `DType.optimal_dtype`).
const NARROW: u64 = 65_500;

/// The largest tokenizer.json that is read. Those of 256,000 words have some 35 MB.
const MAX_BYTES: u64 = 1 << 30;

/// A Hugging Face tokenizer.
pub struct Vocabulary {
    tokenizer: Tokenizer,
    /// One more than its largest token.
    words: u64,
}

impl std::fmt::Debug for Vocabulary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Vocabulary").field("words", &self.words).finish_non_exhaustive()
    }
}

impl Vocabulary {
    /// Reads a tokenizer.json.
    ///
    /// # Errors
    /// When the file can't be read, or is none.
    pub fn open(path: &Path) -> anyhow::Result<Vocabulary> {
        // What comes with a model is asked for by the model's folder, too.
        let path = if path.is_dir() { &path.join("tokenizer.json") } else { path };
        let mut bytes = Vec::new();
        // A device has no end.
        let read = File::open(path).and_then(|file| file.take(MAX_BYTES + 1).read_to_end(&mut bytes));
        read.with_context(|| format!("{} can't be read; give the model's tokenizer.json", path.display()))?;
        if bytes.len() as u64 > MAX_BYTES {
            bail!("{} has more than {MAX_BYTES} bytes, and is no tokenizer.json", path.display());
        }
        let mut tokenizer = Tokenizer::from_bytes(&bytes)
            .map_err(|error| anyhow!("{} is no tokenizer.json: {error}", path.display()))?;
        // Documents are whole, however long.
        tokenizer.with_padding(None);
        tokenizer.with_truncation(None).map_err(|error| anyhow!("{}: {error}", path.display()))?;
        let words = tokenizer.get_vocab(true).into_values().max().map_or(0, |largest| u64::from(largest) + 1);
        if words == 0 {
            bail!("{} has no tokens", path.display());
        }
        Ok(Vocabulary { tokenizer, words })
    }

    /// One more than its largest token.
    pub fn words(&self) -> u64 {
        self.words
    }

    /// Whether a token has two bytes in a file, and not four.
    pub fn is_narrow(&self) -> bool {
        self.words < NARROW
    }

    /// The token that is meant by its number or its text.
    ///
    /// # Errors
    /// A sentence when there is none.
    pub fn token(&self, named: &str) -> Result<u32, String> {
        if let Ok(number) = named.parse::<u32>() {
            if u64::from(number) < self.words {
                return Ok(number);
            }
            return Err(format!("{number} is no token: the tokenizer's are 0 to {}", self.words - 1));
        }
        self.tokenizer.token_to_id(named).ok_or_else(|| {
            let special = self.tokenizer.get_added_tokens_decoder();
            let special: Vec<&str> = special.values().take(8).map(|token| token.content.as_str()).collect();
            let known = if special.is_empty() {
                String::new()
            } else {
                format!("; its special tokens are {}", special.join(" "))
            };
            format!("{named:?} is no token of the tokenizer{known}")
        })
    }

    /// The tokens of a text.
    ///
    /// # Errors
    /// A sentence when the tokenizer refuses it.
    pub fn encode(&self, text: &str, special_tokens: bool) -> Result<Vec<u32>, String> {
        let encoded = self.tokenizer.encode_fast(text, special_tokens);
        let encoded = encoded.map_err(|error| format!("the tokenizer refuses the text: {error}"))?;
        Ok(encoded.get_ids().to_vec())
    }
}
