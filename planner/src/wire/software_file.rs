//! What is installed where a plan runs: facts of the user's environment that memory and time depend on.

use serde::Serialize;

use super::Calibration;
use super::Part;
use super::plan_part::plan_part;
use super::setting::{json, off, text, whole};
use crate::runtime::Counted;

plan_part! {
    in "software.", each with a default;

    /// What is installed where the plan runs.
    #[derive(Debug, Clone, PartialEq, Default, Serialize)]
    pub struct SoftwareFile {
        /// Name of a software profile; null for the one that the GPU suggests.
        pub profile: Option<String> = text().at(Part::Software, "Software profile"),
        /// Version of torch, such as `2.11.0`; null when unknown.
        pub torch: Option<String> = text().at(Part::Software, "Version of torch"),
        /// Name and version of the framework, such as `torchtitan 0.3`; null for the newest release that is known.
        pub framework: Option<String> = text().at(Part::Training, "Framework"),
        /// Bytes of cuBLAS's workspace per handle and stream; null for the library's own.
        pub cublas_workspace_bytes: Option<u64> =
            whole(0, 1 << 40).in_unit("bytes").at(Part::Software, "cuBLAS workspace, bytes"),
        /// Whether torch's allocator grows segments (`expandable_segments:True`).
        pub expandable_segments: Option<bool> =
            off().at(Part::Software, "Expandable segments").counted_by(Counted::MegatronCore),
        /// What the machine was measured to do; null for the constants of the time model as they are.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub calibration: Option<Box<Calibration>> = json(&[], "a profile that `shardplan calibrate` writes"),
    }
}

impl SoftwareFile {
    /// True when nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == SoftwareFile::default()
    }
}
