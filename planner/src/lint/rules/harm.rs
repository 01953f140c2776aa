//! Work of an earlier attempt that a script takes away.

use super::super::harm::{self, Harm};
use super::super::notes::Notes;
use super::Context;

/// Parts of names of folders in which frameworks keep what they go on from.
const CHECKPOINTS: [&str; 3] = ["nemo_experiments", "checkpoint", "ckpt"];

/// Looks for checkpoints that are removed or moved away.
pub fn check(context: &Context<'_>, notes: &mut Notes<'_>) {
    for (field, harm) in harm::of(context.facts) {
        let path = field.text.shown();
        let lower = path.to_ascii_lowercase();
        if harm != Harm::Overwritten && CHECKPOINTS.iter().any(|name| lower.contains(name)) {
            notes.note(
                "removes-checkpoints",
                field.at,
                field.end,
                format!("each start of this job takes {path} away, and Slurm may start it again"),
                "give each job a folder of its own, by $SLURM_JOB_ID, which stays the same when it is queued again"
                    .to_owned(),
            );
        }
    }
}
