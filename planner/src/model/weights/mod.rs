//! What a model's safetensors files say of its tensors, held against the architecture that its config.json was read as.
//!
//! `map/` says in which of the tensors the elements of each parameter are, and `decode` what their bytes are.
//!
//! An index has names and one sum of bytes; a header has shapes. Whatever is beside the text part, or saves a multiplication
//! when weights are loaded, is set apart by its name.

mod compare;
pub mod decode;
pub mod map;
mod read;
#[cfg(test)]
mod tests;

pub use compare::{compare_text, compare_weights};
pub use read::{HEADER_LENGTH, MOST_HEADER_BYTES, header_bytes, read_header, read_index};

/// What was read of one or more files of weights.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct WeightFiles {
    /// Tensors, in the order of their names.
    pub tensors: Vec<Tensor>,
    /// Bytes of all of them as an index says it.
    pub total_bytes: Option<u64>,
}

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tensor {
    /// Its name.
    pub name: String,
    /// Its elements, where a header says them.
    pub elements: Option<u64>,
    /// Whether several elements of a matrix may be packed into one of its own.
    pub packed: bool,
}

impl WeightFiles {
    /// Both together, with shapes from whichever has them.
    #[must_use]
    pub fn with(mut self, other: WeightFiles) -> WeightFiles {
        self.total_bytes = self.total_bytes.or(other.total_bytes);
        self.tensors.extend(other.tensors);
        // Of one name the one with a shape comes last, and stays.
        self.tensors.sort();
        self.tensors.reverse();
        self.tensors.dedup_by(|one, kept| one.name == kept.name);
        self.tensors.reverse();
        self
    }
}
