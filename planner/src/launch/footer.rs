//! The end of a batch script. Nothing in it can change how the job ends.

use super::writer::Writer;

/// Losses, where to look, another try, and the run's own exit status.
pub fn footer(writer: &Writer<'_>, losses: bool) -> String {
    let mut out = String::from("\n# Afterwards: nothing here changes how the job ends\n");
    if losses {
        out.push_str(
            "echo \"Losses:\" || true\n\
             grep -aE 'iteration +[0-9]+' \"$LOG\" | grep -aiE 'lm loss|reduced_train_loss' | head -n 25 || true\n",
        );
    }
    out.push_str("echo \"sacct -j $SLURM_JOB_ID --format=JobID,State,ExitCode,Elapsed,MaxRSS\" || true\n");
    if writer.site.retries > 0 {
        out.push_str(&format!(
            "if [ \"$status\" -ne 0 ] && [ \"${{SLURM_RESTART_COUNT:-0}}\" -lt {} ]; then\n  \
             scontrol requeue \"$SLURM_JOB_ID\" || true\nfi\n",
            writer.site.retries
        ));
    }
    out.push_str("exit \"$status\"\n");
    out
}
