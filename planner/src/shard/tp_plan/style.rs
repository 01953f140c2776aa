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
pub(super) const SEQUENCE: Placement = Placement::Shard(1);

impl Style {
    /// `colwise`.
    pub const COLWISE: Style =
        Style::Colwise { input: Placement::Replicate, output: LAST, keep_dtensor: false };
    /// `rowwise`.
    pub const ROWWISE: Style = Style::Rowwise { input: LAST, output: Placement::Replicate };
    /// `colwise_rep`.
    pub const COLWISE_REP: Style =
        Style::Colwise { input: Placement::Replicate, output: Placement::Replicate, keep_dtensor: false };
    /// `rowwise_rep`.
    pub const ROWWISE_REP: Style =
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

    /// Names that `parse` knows, for messages.
    pub const NAMES: [&'static str; 9] = [
        "colwise",
        "rowwise",
        "colwise_rep",
        "rowwise_rep",
        "sequence_parallel",
        "replicated_with_grad_allreduce",
        "local_colwise",
        "local_rowwise",
        "gather",
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
