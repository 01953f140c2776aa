//! Styles of tensor-parallel plans: what a module's parameters become.

/// Where a tensor stands on the tensor-parallel axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// The same on every rank.
    Replicate,
    /// Cut along a dim; negative dims count from the end.
    Shard(i8),
}

/// What is done to a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Style {
    /// Output features are cut: weight and bias along dim 0.
    Colwise {
        /// Placement of the input as it arrives.
        input: Placement,
        /// Placement of the output.
        output: Placement,
        /// Whether the output stays a distributed tensor.
        keep_dtensor: bool,
    },
    /// Input features are cut: weight along dim 1, bias whole. An embedding is cut along its words, dim 0.
    Rowwise {
        /// Placement of the input as it arrives.
        input: Placement,
        /// Placement of the output.
        output: Placement,
    },
    /// Parameters whole, activations cut along the sequence.
    SequenceParallel,
    /// Input prepared for the module (gathered along the sequence), parameters whole.
    PrepareInput,
    /// The entry is left out: the module stays as it is.
    Skip,
}

const LAST: Placement = Placement::Shard(-1);
/// Along the sequence.
pub(crate) const SEQUENCE: Placement = Placement::Shard(1);

impl Style {
    /// `colwise`.
    pub(crate) const COLWISE: Style =
        Style::Colwise { input: Placement::Replicate, output: LAST, keep_dtensor: false };
    /// `rowwise`.
    pub(crate) const ROWWISE: Style = Style::Rowwise { input: LAST, output: Placement::Replicate };
    /// `colwise_rep`.
    pub(crate) const COLWISE_REP: Style =
        Style::Colwise { input: Placement::Replicate, output: Placement::Replicate, keep_dtensor: false };
    /// `rowwise_rep`.
    pub(crate) const ROWWISE_REP: Style =
        Style::Rowwise { input: Placement::Replicate, output: Placement::Replicate };

    /// The style of this name in a plan of transformers.
    pub fn parse(name: &str) -> Option<Style> {
        Some(match name {
            "colwise" => Style::COLWISE,
            "rowwise" => Style::ROWWISE,
            "colwise_rep" => Style::COLWISE_REP,
            "rowwise_rep" => Style::ROWWISE_REP,
            "sequence_parallel" => Style::SequenceParallel,
            "replicated_with_grad_allreduce" | "ep_router" | "local_colwise" | "local_rowwise" | "gather" => {
                Style::Skip
            }
            other if other.starts_with("ep_") => Style::Skip,
            _ => return None,
        })
    }

    /// The style of this name in a user's own plan: those of `parse`, and what transformers 5 calls the same cuts
    /// (its `distributed/tensor_parallel.py`), which NeMo Automodel does not take from a model's plan.
    pub(crate) fn parse_own(name: &str) -> Option<Style> {
        Style::parse(name).or(match name {
            "colwise_gather_output" => Some(Style::COLWISE_REP),
            // Of an embedding the words are cut, and the parts of a look-up summed.
            "rowwise_split_input" | "embedding_rowwise" => Some(Style::ROWWISE_REP),
            // Of an embedding the features are cut, and the parts of a vector gathered.
            "embedding_colwise" => Some(Style::COLWISE_REP),
            "replicate" => Some(Style::Skip),
            _ => None,
        })
    }

    /// Names that `parse_own` knows, for messages.
    pub const NAMES: [&'static str; 14] = [
        "colwise",
        "rowwise",
        "colwise_rep",
        "rowwise_rep",
        "sequence_parallel",
        "replicated_with_grad_allreduce",
        "local_colwise",
        "local_rowwise",
        "gather",
        "colwise_gather_output",
        "rowwise_split_input",
        "embedding_rowwise",
        "embedding_colwise",
        "replicate",
    ];

    /// The dim of a parameter that is cut, if any. `dims` is the number of its dims, `embedding` whether its module is
    /// an embedding.
    pub fn cut(self, dims: usize, embedding: bool) -> Option<usize> {
        match self {
            // An embedding's columns are its features.
            Style::Colwise { .. } => Some(usize::from(embedding && dims > 1)),
            Style::Rowwise { .. } if embedding => Some(0),
            Style::Rowwise { .. } => (dims > 1).then_some(1),
            Style::SequenceParallel | Style::PrepareInput | Style::Skip => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_transformers_5_are_taken_from_users_alone() {
        for (name, dims, embedding, cut) in [
            ("embedding_rowwise", 2, true, Some(0)),
            ("embedding_colwise", 2, true, Some(1)),
            ("colwise_gather_output", 2, false, Some(0)),
            ("rowwise_split_input", 2, false, Some(1)),
            ("rowwise_split_input", 1, false, None),
            ("replicate", 2, false, None),
        ] {
            assert_eq!(Style::parse(name), None, "{name}");
            let style = Style::parse_own(name).unwrap_or_else(|| panic!("{name}"));
            assert_eq!(style.cut(dims, embedding), cut, "{name}");
        }
        assert!(Style::NAMES.iter().all(|name| Style::parse_own(name).is_some()));
        assert_eq!(Style::parse_own("packed_colwise"), None);
    }
}
