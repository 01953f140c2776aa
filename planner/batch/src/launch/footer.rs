//! The end of a batch script: how the job ends, and what comes after it, which can't change that.

use super::options::Mode;
use super::writer::Writer;

/// Before the run: its status, and where in the log this attempt begins.
pub fn before(writer: &Writer<'_>) -> String {
    // srun's own lines go to the script's standard error, which is the job's log; torchrun's log has them, too.
    let log = if writer.options.mode == Mode::Torchrun { "$LOG" } else { "/proc/$$/fd/2" };
    format!("status=0\nSAID=\"{log}\"\nBEGINS=\"$(stat -L -c %s \"$SAID\" 2> /dev/null || echo 0)\"\n")
}

/// Behind the run: the status of the rank that failed first.
///
/// srun's is the highest of all ranks, and a signal is higher than any exit code: so that of a rank that Slurm ended
/// because another had failed. But srun says of each rank how it ended before it ends the others.
const STATUS: &str = r#"
# The status of the rank that failed first. srun gives the highest, and those that it ended because of the first have 143
if [ "$status" -ne 0 ] && [ -f "$SAID" ]; then
  first="$(tail -c "+$((BEGINS + 1))" "$SAID" | grep -aEm 1 '^srun: error: [^ ]+: tasks? [^ ]+: ' || true)"
  case "$first" in
    *": Exited with exit code "*) first="${first##* }" ;;
    *": Terminated"*) first=143 ;;
    *": Killed"*) first=137 ;;
    *": Segmentation fault"*) first=139 ;;
    *": Bus error"*) first=135 ;;
    *": Aborted"*) first=134 ;;
    *) first="$status" ;;
  esac
  if [ "$first" -gt 0 ] 2> /dev/null && [ "$first" -lt 256 ]; then
    status="$first"
  fi
fi
"#;

/// Slurm queues a preempted job again, but not one that ends within its grace time, well or not.
const PREEMPTED: &str = r#"preempted=""
if [ "${saved:-0}" -lt STEPS ] &&
  scontrol show job "$SLURM_JOB_ID" 2> /dev/null | grep ' PreemptTime=[0-9]' > /dev/null; then
  preempted=yes
fi
"#;

/// A line for each failure of this job.
const TRIES: &str = r#"TRIES="${RUN_DIR:-$SHARED_DIR/logs}/failures-${SLURM_CLUSTER_NAME:-slurm}-$SLURM_JOB_ID"
"#;

/// The run's own exit status, losses, how far it came, where to look, another try. `saves` is whether
/// `saved_steps` is there to say it.
pub fn footer(writer: &Writer<'_>, losses: bool, saves: bool) -> String {
    let mut out = String::from(STATUS);
    out.push_str("\n# Afterwards: nothing here changes how the job ends\n");
    if losses {
        out.push_str(
            "echo \"Losses:\" || true\n\
             grep -aE 'iteration +[0-9]+' \"$LOG\" | grep -aiE 'lm loss|reduced_train_loss' | head -n 25 || true\n",
        );
    }
    let mut again = "[ \"$status\" -ne 0 ]".to_owned();
    if saves {
        let steps = writer.plan.run.steps;
        // An element of an array goes on when it is queued again, and in no other way.
        let later = if writer.array().is_none() {
            ", or later SHARDPLAN_RESUME=${RUN_DIR##*/} sbatch ..."
        } else {
            ""
        };
        out.push_str(&format!(
            "saved=\"$(saved_steps)\" || true\n\
             if [ \"${{saved:-0}}\" -lt {steps} ]; then\n  \
             echo \"${{saved:-0}} of {steps} steps are saved in $RUN_DIR. To go on: scontrol requeue $SLURM_JOB_ID{later}\" || true\n\
             fi\n"
        ));
        again = format!("{{ {again} || [ \"${{saved:-0}}\" -lt {steps} ]; }}");
        if writer.site.requeue != Some(false) {
            out.push_str(&PREEMPTED.replace("STEPS", &steps.to_string()));
        }
    }
    out.push_str("echo \"sacct -j $SLURM_JOB_ID --format=JobID,State,ExitCode,Elapsed,MaxRSS\" || true\n");
    let preempted = (saves && writer.site.requeue != Some(false)).then_some("[ -n \"$preempted\" ]");
    // Slurm counts how often a job was queued again by anybody: a node that was lost, or its owner, takes no try away.
    let tries = (writer.site.retries > 0).then(|| {
        out.push_str(TRIES);
        format!("{again} && date >> \"$TRIES\" && [ \"$(wc -l < \"$TRIES\")\" -le {} ]", writer.site.retries)
    });
    let when = match (preempted, tries) {
        (Some(preempted), Some(tries)) => format!("{preempted} || {{ {tries}; }}"),
        (Some(one), None) => one.to_owned(),
        (None, Some(one)) => one,
        (None, None) => String::new(),
    };
    if !when.is_empty() {
        out.push_str(&format!("if {when}; then\n  scontrol requeue \"$SLURM_JOB_ID\" || true\nfi\n"));
    }
    out.push_str("exit \"$status\"\n");
    out
}
