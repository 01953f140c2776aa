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

pub use checkpoint::{CheckpointReader, EXPERT_BIAS, Listed, Target, WEIGHT, list};
pub use export::{DcpExport, DcpExported, Export, Exported, Unnamed, export, export_dcp};
pub use folder::ModelFolder;
pub use header::{Place, TensorFile};

/// An error of safetensors whose cause is said once: its own words end with those of the file system's error.
pub fn said_once(error: safetensors::SafeTensorError) -> anyhow::Error {
    match error {
        safetensors::SafeTensorError::IoError(error) => error.into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_full_disk_is_said_once() {
        let full = std::io::Error::from_raw_os_error(28);
        let said = format!("{:#}", super::said_once(safetensors::SafeTensorError::IoError(full)));
        assert_eq!(said, "No space left on device (os error 28)");
    }
}
