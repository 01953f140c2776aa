//! When the worker saves, where a plan file leaves that open.

use crate::fill::filler::Filler;
use crate::finding::Finding;
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
        // Whether it saves is all that is asked then.
        if *file != (CheckpointFile { save: file.save, ..CheckpointFile::default() }) {
            let message = "nothing is saved, so that what else run.checkpoint says changes nothing; set save to true, or leave it out";
            fill.findings.push(
                Finding::warning("run.checkpoint.save", false, message).rule("checkpoints of the worker"),
            );
        }
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

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::parse::parse_plan;
    use crate::plan::Plan;

    /// Messages about whether a run saves.
    fn said(checkpoint: &Value) -> Vec<String> {
        let file = json!({"version": 1, "model": {"preset": "tiny-dense"}, "cluster": {"gpu": "cpu"},
            "runtime": "native", "run": {"checkpoint": checkpoint}});
        let resolved = Plan::resolve(&parse_plan(&file.to_string()).unwrap());
        assert!(resolved.plan.is_some());
        let about = resolved.findings.into_iter().filter(|finding| finding.field == "run.checkpoint.save");
        about.map(|finding| finding.message).collect()
    }

    #[test]
    fn who_does_not_save_is_told_what_that_leaves_idle() {
        for set in [
            json!({"every_steps": 1}),
            json!({"every_s": 60.0}),
            json!({"keep": 3}),
            json!({"keep_every_hours": 1.0}),
        ] {
            let mut silent = set.clone();
            silent["save"] = false.into();
            let found = said(&silent);
            assert!(matches!(&found[..], [why] if why.contains("nothing is saved")), "{silent}: {found:?}");
            assert_eq!(said(&set), [""; 0]);
        }
        assert_eq!(said(&json!({"save": false})), [""; 0]);
        assert_eq!(said(&json!({})), [""; 0]);
    }
}
