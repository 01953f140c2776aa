//! Tokens: what sequence number `i` of the run is. The same whatever the layout, so that the number of sequences read so far is
//! all that a checkpoint needs to know.

mod ahead;
mod blend;
mod ends;
mod megatron;
mod permutation;
mod tokens;

use planner::wire::DataFile;

use crate::state::init::{key, mix};
pub use ahead::{ReadAhead, StepTokens};
use blend::Blend;
pub use ends::Ends;
use tokens::{TokenFile, Width};

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
    /// Windows of a file of tokens.
    Tokens(TokenFile),
    /// Several of these, each with its share of the sequences.
    Blend(Blend),
}

impl Data {
    /// Opens the data of a run, for sequences of so many tokens.
    ///
    /// # Errors
    /// When a file can't be read, is not what it should be, or is shorter than a sequence.
    pub fn open(data: &DataFile, seed: u64, vocabulary: u64, sequence: u64) -> anyhow::Result<Data> {
        Data::of(data, key(seed, "data"), vocabulary, sequence)
    }

    fn of(data: &DataFile, key: u64, vocabulary: u64, sequence: u64) -> anyhow::Result<Data> {
        let limits = tokens::Limits { vocabulary, sequence };
        Ok(match data {
            DataFile::Synthetic => Data::Synthetic { key, words: vocabulary.clamp(1, SYNTHETIC_WORDS) },
            DataFile::Text { path } => Data::Tokens(TokenFile::open(path, Width::U8, key, limits)?),
            DataFile::Tokens { path, dtype } => {
                Data::Tokens(TokenFile::open(path, Width::of(*dtype), key, limits)?)
            }
            DataFile::Megatron { path } => Data::Tokens(megatron::open(path, key, limits)?),
            DataFile::Blend { parts } => Data::Blend(Blend::open(parts, key, |number, part| {
                Data::of(part, mix(key ^ mix(number)), vocabulary, sequence)
            })?),
        })
    }

    /// Sequences of an epoch: of as many none is another one again. None where that is not known.
    pub fn sequences(&self) -> Option<u64> {
        match self {
            Data::Tokens(file) => Some(file.sequences()),
            Data::Synthetic { .. } | Data::Blend(_) => None,
        }
    }

    /// The tokens of sequence `index`, `sequence` + 1 of them.
    ///
    /// # Errors
    /// When the file can't be read, or a token is no word of the model.
    pub fn sample(&self, index: u64, sequence: u64) -> anyhow::Result<Vec<i64>> {
        match self {
            Data::Synthetic { key, words } => Ok(walk(mix(key ^ mix(index)), *words, sequence + 1)),
            Data::Tokens(file) => file.sample(index, sequence),
            Data::Blend(blend) => {
                let (part, index) = blend.place(index);
                part.sample(index, sequence)
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
mod tests;
