//! A checkpoint of the worker: a folder with `checkpoint.json`, and a safetensors file of each rank.
//!
//! A rank's file has the elements that it alone answers for, each once over all ranks. A tensor of it is one piece of one
//! parameter, flat; what piece, says the file's metadata under [`PIECES`].

use serde::{Deserialize, Serialize};

use super::PlanFile;

/// The name of the metadata that lists pieces, as JSON.
pub const PIECES: &str = "shardplan.pieces";

/// `checkpoint.json`: it is written last, and a checkpoint without it is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointIndex {
    /// Version of the format; 1.
    pub version: u32,
    /// Steps that were trained.
    pub step: u64,
    /// Sequences that were read: the next step begins with this one.
    pub samples: u64,
    /// Milliseconds since 1970.
    pub unix_ms: u64,
    /// The plan that was trained.
    pub plan: PlanFile,
    /// What losses are multiplied by, where that follows what overflows.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<LossScaleState>,
    /// The files beside it.
    pub files: Vec<CheckpointFilePart>,
}

/// What losses are multiplied by, between two steps.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossScaleState {
    /// The factor.
    pub scale: f64,
    /// Steps without an overflow since it last changed, or since the last overflow.
    pub clean_steps: u64,
    /// Overflows that it stands before it halves.
    pub overflows_left: u64,
}

/// A file of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointFilePart {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32 of all of it, in eight hex digits.
    pub crc32: String,
}

/// What a tensor of a checkpoint's file is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPiece {
    /// Its name in the file.
    pub tensor: String,
    /// The parameter.
    pub parameter: String,
    /// What of it: `weight`, `exp_avg`, `exp_avg_sq`, `momentum_buffer`, or `expert_bias` of a router.
    pub kind: String,
    /// Shape of the whole parameter, without vocabulary padding.
    pub shape: Vec<u64>,
    /// Which elements.
    pub piece: Piece,
}

/// Elements of a whole parameter: of a box in it, a range in row-major order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Piece {
    /// First index of the box in each dim of the whole.
    pub offset: Vec<u64>,
    /// Extent of the box in each dim.
    pub extent: Vec<u64>,
    /// First element, counted in the box.
    pub start: u64,
    /// Elements.
    pub elements: u64,
}
