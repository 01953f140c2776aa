//! Files of tensors: a run's checkpoints and Hugging Face model folders, read slice by slice and never whole, and such folders
//! and distributed checkpoints of torch, written from checkpoints.
//!
//! What lies where is planner's: `shard::Piece` of a checkpoint, `model::weights::map` of a model folder. Here are files alone.

#![warn(unreachable_pub)]
#![warn(missing_docs)]

mod checkpoint;
mod export;
mod folder;
mod header;

pub use checkpoint::{CheckpointReader, Listed, Target, list};
pub use export::{DcpExport, DcpExported, Export, Exported, export, export_dcp};
pub use folder::ModelFolder;
pub use header::{Place, TensorFile};
