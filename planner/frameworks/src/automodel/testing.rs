//! What tests of the recipes' reader share.

use serde_json::Value;

use super::read::import_automodel_job;
use crate::import::Imported;
use crate::import::testing::{job, words};
use crate::import::yaml;

/// A recipe of which everything is planned.
pub(super) const RECIPE: &str = "
step_scheduler:
  global_batch_size: 128
  local_batch_size: 4
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: meta-llama/Llama-3.1-70B
  torch_dtype: float32
distributed:
  strategy: fsdp2
  dp_size: none
  tp_size: 4
  sequence_parallel: false
  activation_checkpointing: true
  mp_policy:
    reduce_dtype: float32
packed_sequence:
  packed_sequence_size: 4096
optimizer:
  _target_: torch.optim.AdamW
  betas: [0.9, 0.95]
";

/// A recipe on 4 nodes, with options over it.
pub(super) fn import(recipe: &str, options: &str) -> Imported {
    import_automodel_job(yaml::read(recipe).unwrap(), &words(options), &job(4))
}

/// Some finding has this text.
#[track_caller]
pub(super) fn says(imported: &Imported, expected: &str) {
    let said = imported.findings.iter().any(|finding| finding.message.contains(expected));
    assert!(said, "{expected}: {:?}", imported.findings);
}

/// What the plan has at a JSON path; null where it says nothing.
#[track_caller]
pub(super) fn planned(imported: Imported, path: &str) -> Value {
    let file = imported.file.unwrap_or_else(|| panic!("{:?}", imported.findings));
    serde_json::to_value(&file).unwrap().pointer(path).cloned().unwrap_or_default()
}
