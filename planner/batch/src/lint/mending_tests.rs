//! Lines that are offered in place of others: each mends what it is offered for, and passes lint itself.

// Tests read files; planner itself does not.
#![allow(clippy::disallowed_methods)]

use std::path::Path;

use super::tests::{documented, job};
use super::*;

/// The line that is offered for a rank of a node which the batch script expands.
#[track_caller]
fn offered(line: &str, expected: Option<&str>) {
    let text = job(1, &format!("export MASTER_ADDR=a MASTER_PORT=15000\nN=8\nARGS=(--x \"a b\")\n{line}"));
    mends(text.as_bytes());
    let report = lint(text.as_bytes());
    let found: Vec<&Finding> =
        report.findings.iter().filter(|finding| finding.rule == "expanded-on-batch-host").collect();
    assert!(!found.is_empty(), "{line}");
    for finding in found {
        assert_eq!(finding.replacement.as_deref(), expected, "{line}");
        assert!(finding.fix.contains("bash -c"), "{}", finding.fix);
    }
}

#[test]
fn a_command_is_wrapped_where_each_task_should_expand_a_name() {
    for (line, expected) in [
        // What tasks know stays as it is, and single quotes are kept.
        (
            "srun --mpi=pmix torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --name='a b' train.py > log",
            "srun --mpi=pmix bash -c 'torchrun --nnodes=2 --node_rank=$SLURM_NODEID --master_addr=$MASTER_ADDR --name='\\''a b'\\'' train.py' > log",
        ),
        (
            "srun python t.py --rank \"${SLURM_PROCID}\" --node=$SLURM_NODEID || exit 1",
            "srun bash -c 'python t.py --rank \"${SLURM_PROCID}\" --node=$SLURM_NODEID' || exit 1",
        ),
        // What the batch script alone knows is handed over.
        (
            "srun python t.py --n=$N --rank $SLURM_PROCID --day \"$(date +%s)\" \"${ARGS[@]}\"",
            "srun bash -c 'python t.py --n=${1} --rank $SLURM_PROCID --day \"${2}\" \"${@:3}\"' bash \"$N\" \"$(date +%s)\" \"${ARGS[@]}\"",
        ),
        (
            "srun --export=ALL,A=1 python t.py --rank $SLURM_PROCID $MASTER_ADDR",
            "srun --export=ALL,A=1 bash -c 'python t.py --rank $SLURM_PROCID ${1}' bash \"$MASTER_ADDR\"",
        ),
    ] {
        offered(line, Some(expected));
    }
    // Of several lines, from another line, with patterns, two lists, or a script of its own no line is right for certain.
    for line in [
        "srun python t.py \\\n --rank $SLURM_PROCID",
        "R=$SLURM_PROCID\nsrun python t.py --rank $R",
        "srun python t.py --rank $SLURM_PROCID *.txt",
        "srun python t.py --rank $SLURM_PROCID \"${ARGS[@]}\" \"${ARGS[@]}\"",
        "srun python t.py --rank $SLURM_PROCID $(echo $SLURM_NODEID)",
        "srun bash -c 'python t.py --rank $1' bash $SLURM_PROCID",
        "srun bash -c \"python -c 'print($SLURM_PROCID)'\"",
        "R=$SLURM_PROCID\necho \"rank $R\"\nsrun bash -c \"python t.py --rank $R\"",
    ] {
        offered(line, None);
    }
    offered(
        "srun bash -c \"python t.py --rank $SLURM_PROCID\"",
        Some("srun bash -c \"python t.py --rank \\$SLURM_PROCID\""),
    );
}

/// Every line that a script's findings offer in place of another mends what it is offered for, and breaks nothing.
#[track_caller]
pub(super) fn mends(script: &[u8]) -> usize {
    let report = lint(script);
    let text = String::from_utf8_lossy(script);
    let count =
        |report: &Report, rule: &str| report.findings.iter().filter(|finding| finding.rule == rule).count();
    let mut offered = 0;
    for finding in &report.findings {
        let Some(line) = &finding.replacement else { continue };
        let mut lines: Vec<&str> = text.split('\n').collect();
        lines[usize::try_from(finding.line).unwrap() - 1] = line;
        let mended = lines.join("\n");
        let after = lint(mended.as_bytes());
        assert!(
            count(&after, &finding.rule) < count(&report, &finding.rule),
            "{} is still there in\n{mended}",
            finding.rule
        );
        for other in after.findings.iter().filter(|other| other.severity == Severity::Error) {
            assert!(
                count(&after, &other.rule) <= count(&report, &other.rule),
                "{} is mended, and there is {} in\n{mended}",
                finding.rule,
                other.rule
            );
        }
        offered += 1;
    }
    offered
}

#[test]
fn replacements_mend_and_break_nothing() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/corpus/lint");
    let mut scripts: Vec<Vec<u8>> =
        documented().into_iter().flat_map(|(_, _, bad, good)| [bad, good]).collect();
    scripts.extend(
        std::fs::read_dir(corpus).unwrap().map(|entry| std::fs::read(entry.unwrap().path()).unwrap()),
    );
    let offered: usize = scripts.iter().map(|script| mends(script)).sum();
    assert!(offered > 10, "{offered}");
}
