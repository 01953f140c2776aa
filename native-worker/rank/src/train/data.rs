//! Tokens: what sample number `i` of the run is. The same whatever the layout.

use std::fs::File;
use std::os::unix::fs::FileExt;

use anyhow::{Context, ensure};
use planner::wire::DataFile;

use crate::state::init::{key, mix};

/// Words that synthetic sequences use; few, so that a model meets each often.
const SYNTHETIC_WORDS: u64 = 256;
/// One token in this many is noise.
const NOISE: u64 = 16;

/// Where tokens come from.
pub enum Data {
    /// Noisy walks `x -> a x + c` over a small vocabulary: the next token follows from the last, most of the time.
    Synthetic {
        /// Key of the run's numbers.
        key: u64,
        /// Words in use.
        words: u64,
    },
    /// Windows of a text file, one token a byte.
    Text {
        /// Key of the run's numbers.
        key: u64,
        /// The file.
        file: File,
        /// Its path, for messages.
        path: String,
        /// Its length in bytes.
        bytes: u64,
        /// Words of the model.
        vocabulary: u64,
    },
}

impl Data {
    /// Opens the data of a run.
    ///
    /// # Errors
    /// When the text file can't be read or is shorter than a sequence.
    pub fn open(data: &DataFile, seed: u64, vocabulary: u64, sequence: u64) -> anyhow::Result<Data> {
        let key = key(seed, "data");
        match data {
            DataFile::Synthetic => Ok(Data::Synthetic { key, words: vocabulary.clamp(1, SYNTHETIC_WORDS) }),
            DataFile::Text { path } => {
                let file = File::open(path).with_context(|| {
                    format!("run.data.path {path:?} can't be opened; every rank reads it under that path")
                })?;
                let bytes = file.metadata()?.len();
                ensure!(
                    bytes > sequence,
                    "the text file {path:?} has {bytes} bytes, but a sequence of {sequence} tokens needs {}; give a longer file or a smaller training.seq_len",
                    sequence + 1
                );
                Ok(Data::Text { key, file, path: path.clone(), bytes, vocabulary })
            }
        }
    }

    /// The tokens of sample `index`, `sequence` + 1 of them.
    ///
    /// # Errors
    /// When the file can't be read, or a byte is no word of the model.
    pub fn sample(&self, index: u64, sequence: u64) -> anyhow::Result<Vec<i64>> {
        match self {
            Data::Synthetic { key, words } => Ok(walk(mix(key ^ mix(index)), *words, sequence + 1)),
            Data::Text { key, file, path, bytes, vocabulary } => {
                let start = mix(key ^ mix(index)) % (bytes - sequence);
                let mut window = vec![0; usize::try_from(sequence + 1)?];
                file.read_exact_at(&mut window, start)
                    .with_context(|| format!("reading {path:?} at byte {start}"))?;
                let stranger = window.iter().position(|&byte| u64::from(byte) >= *vocabulary);
                if let Some(place) = stranger {
                    anyhow::bail!(
                        "token {} (byte {} of {path:?}) is not in the model's vocabulary of {vocabulary} words; use a model with at least 256 words or plain ASCII text",
                        window[place],
                        start + place as u64
                    );
                }
                Ok(window.into_iter().map(i64::from).collect())
            }
        }
    }
}

fn walk(seed: u64, words: u64, length: u64) -> Vec<i64> {
    let mut word = mix(seed) % words;
    (0..length)
        .map(|step| {
            let dice = mix(seed ^ mix(step + 1));
            word = if dice.is_multiple_of(NOISE) { mix(dice) % words } else { (5 * word + 7) % words };
            word as i64
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn synthetic_samples_follow_the_rule_most_of_the_time() {
        let data = Data::open(&DataFile::Synthetic, 7, 100, 64).unwrap();
        let tokens = data.sample(3, 1000).unwrap();
        assert_eq!(tokens.len(), 1001);
        assert!(tokens.iter().all(|&token| (0..100).contains(&token)));
        let kept = tokens.windows(2).filter(|pair| pair[1] == (5 * pair[0] + 7) % 100).count();
        assert!((900..1000).contains(&kept), "{kept}");
        assert_eq!(tokens, data.sample(3, 1000).unwrap());
        assert_ne!(tokens, data.sample(4, 1000).unwrap());
    }

    fn text(content: &[u8], vocabulary: u64, sequence: u64) -> anyhow::Result<Vec<i64>> {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(content).unwrap();
        let path = file.path().to_str().unwrap().to_owned();
        Data::open(&DataFile::Text { path }, 7, vocabulary, sequence)?.sample(0, sequence)
    }

    #[test]
    fn text_is_bytes() {
        let tokens = text(b"abcdefghij", 256, 4).unwrap();
        assert_eq!(tokens.len(), 5);
        assert!(tokens.windows(2).all(|pair| pair[1] == pair[0] + 1), "{tokens:?}");
    }

    #[test]
    fn bad_text_is_named() {
        let error = text(&[200; 10], 128, 4).unwrap_err().to_string();
        assert!(error.contains("token 200") && error.contains("vocabulary of 128"), "{error}");
        let error = text(b"abcd", 256, 4).unwrap_err().to_string();
        assert!(error.contains("has 4 bytes") && error.contains("needs 5"), "{error}");
        let missing = Data::open(&DataFile::Text { path: "/nowhere/text".to_owned() }, 7, 256, 4);
        assert!(missing.err().unwrap().to_string().contains("/nowhere/text"));
    }
}
