//! When the worker saves, where a plan file leaves that open.

use crate::fill::filler::Filler;
use crate::plan::Checkpoints;
use crate::wire::{CheckpointFile, ClusterFile};

/// What is trained from made-up weights on made-up data is of no worth; what has anything of a person's `own` is saved unless
/// they say no.
pub(super) fn fill_checkpoints(
    fill: &mut Filler<'_>,
    own: bool,
    cluster: &ClusterFile,
    file: &mut CheckpointFile,
) -> Option<Checkpoints> {
    fill.real("run.checkpoint.every_s", file.every_s);
    fill.real("run.checkpoint.keep_every_hours", file.keep_every_hours);
    let every_steps = file.every_steps.map(|steps| fill.checked("run.checkpoint.every_steps", steps));
    let asked = *file != CheckpointFile::default();
    if !file.save.unwrap_or(asked || own) {
        return None;
    }
    fill.or("run.checkpoint.save", &mut file.save, true);
    Some(Checkpoints {
        every_steps,
        every_seconds: file.every_s.or(cluster.checkpoint_interval_s.filter(|seconds| *seconds >= 1.0)),
        keep: fill.number("run.checkpoint.keep", &mut file.keep),
        keep_every_hours: file.keep_every_hours,
    })
}
