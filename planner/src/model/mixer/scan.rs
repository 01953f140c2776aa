//! What a recurrent mixer does beside its matrices, in numbers: FLOPs, seconds, saved tensors and caches follow from this one list.

/// Tokens of a chunk of the delta kernels, each with a state in fp32.
pub const CHUNK: u64 = 64;

/// A recurrence over the tokens of a sequence, whole: tensor parallelism divides all of it by heads.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scan {
    /// Heads.
    pub heads: u64,
    /// Channels of its output, of all heads together.
    pub channels: u64,
    /// Elements of the state that each of them keeps.
    pub state: u64,
    /// Channels of the convolution before it.
    pub convolved: u64,
    /// Tokens that the convolution sees.
    pub conv_kernel: u64,
    /// FLOPs of a token forward, as kernels make them.
    pub flops: f64,
    /// The same as Megatron-Core counts them.
    pub counted_flops: f64,
    /// Bytes of memory traffic beside matrices of a token and channel, forward and backward.
    pub traffic: [f64; 2],
    /// What its kernels keep for the backward.
    pub kept: SavedElements,
    /// The same where torch's own operators run in their place.
    pub kept_of_operators: Option<SavedElements>,
    /// Channels for which a gated norm behind it keeps its own output and that of its gate, both of which recomputation of
    /// `gdn_norm_out` makes again.
    pub gated: u64,
    /// Channels that the output projection keeps as its input.
    pub read: u64,
}

/// What is kept of a token, in elements.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SavedElements {
    /// In the compute type, over all tensor-parallel ranks.
    pub split: u64,
    /// In the compute type, on each tensor-parallel rank.
    pub whole: u64,
    /// In the compute type, on each tensor-parallel rank of the tokens of its stream.
    pub of_stream: u64,
    /// In fp32, over all tensor-parallel ranks.
    pub exact: u64,
    /// In fp32 likewise, once for every [`CHUNK`] of tokens.
    pub of_chunk: u64,
}
