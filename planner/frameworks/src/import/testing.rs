//! What tests of importers share.

use serde_json::Value;

use super::{Imported, Job};
use planner::plan::Plan;

/// A job on nodes of 8 GPUs.
pub(crate) fn job(nodes: u64) -> Job<'static> {
    Job { gpu: "h100-sxm", nodes, gpus_per_node: 8, environment: &[] }
}

/// The words of a command line without quotes.
pub(crate) fn words(options: &str) -> Vec<String> {
    options.split_whitespace().map(str::to_owned).collect()
}

/// What was imported is a valid plan with this value at a JSON path.
#[track_caller]
pub(crate) fn is_planned(imported: Imported, path: &str, expected: &Value) {
    let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
    let resolved = Plan::resolve(&file);
    assert!(resolved.plan.is_some(), "{:?}", resolved.findings);
    assert_eq!(serde_json::to_value(&file).unwrap().pointer(path), Some(expected), "{path}");
}
