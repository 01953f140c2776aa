//! What is installed where a plan runs: facts of the user's environment that memory and time depend on.

use serde::{Deserialize, Serialize};

use super::Calibration;

/// What is installed where the plan runs.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftwareFile {
    /// Name of a software profile; null for the one that the GPU suggests.
    pub profile: Option<String>,
    /// Version of torch, such as `2.11.0`; null when unknown.
    pub torch: Option<String>,
    /// Name and version of the framework, such as `torchtitan 0.3`; null for the newest release that is known.
    pub framework: Option<String>,
    /// Bytes of cuBLAS's workspace per handle and stream; null for the library's own.
    pub cublas_workspace_bytes: Option<u64>,
    /// Whether torch's allocator grows segments (`expandable_segments:True`); false.
    pub expandable_segments: Option<bool>,
    /// What the machine was measured to do; null for the constants of the time model as they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Box<Calibration>>,
}

impl SoftwareFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == SoftwareFile::default()
    }
}
