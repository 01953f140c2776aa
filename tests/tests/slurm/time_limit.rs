//! What happens before and at the time limit. Slurm looks every half minute, so two jobs wait at once.

use anyhow::{Context, Result, ensure};
use batch::launch::{Body, GpuRequest, Mode};
use planner::wire::Outcome;
use serde_json::json;
use system_tests::run_folder::{all_records, ended, log_of, only_run};
use system_tests::slurm::succeeded;
use system_tests::wait::{Attempt, LONG, until};

use super::{stand_ins, worker};

#[tokio::test]
async fn the_signal_before_the_limit_ends_ranks_cleanly_and_the_limit_ends_whatever_is_left() -> Result<()> {
    let shares = [("exclusive", json!(false)), ("gpus", json!("none"))];
    let limits = [("time", json!("30")), ("signal", json!("USR1@60"))];
    let signalled = worker::Job::new("signal", worker::MANY_STEPS, &[shares, limits].concat())?;
    let signalled_number = signalled.submit(&[])?;

    let mut endless = stand_ins::Job::new("time-limit", Mode::Srun, Body::Torchtitan)?;
    endless.variables.push(("STUB_SECONDS", "600"));
    endless.site.gpus = GpuRequest::Nothing;
    endless.site.exclusive = Some(false);
    let number = endless.submit()?;
    until("training processes", LONG, async || {
        let calls = endless.stubs.calls()?;
        let started = stand_ins::ranks(&calls, false);
        Ok(started.map_or_else(|error| Attempt::NotYet(format!("{error:#}")), |_| Attempt::Ready(())))
    })
    .await?;
    signalled.under_way(1, 2).await?;
    // The ends are moved, one past what is due when Slurm looks next, one into the time of the signal.
    for (job, end) in [(&number, "EndTime=now+1"), (&signalled_number, "EndTime=now+55")] {
        let which = format!("JobId={job}");
        succeeded(endless.slurm.command("scontrol")?.args(["update", &which, end]))?;
    }
    let (state, _) = endless.slurm.finished(&number, LONG).await?;
    ensure!(state == "TIMEOUT", "the job ended as {state}: {}", endless.printed());
    ensure!(endless.printed().contains("DUE TO TIME LIMIT"), "{}", endless.printed());

    let (state, code) = signalled.slurm.finished(&signalled_number, LONG).await?;
    ensure!(state == "COMPLETED" && code == "0:0", "{state} {code}: {}", signalled.printed());
    let run = only_run(&signalled.shared.join("runs"))?;
    let records = all_records(&run)?;
    for rank in 0..4 {
        let (outcome, reason) = ended(&records, &log_of(rank)).context("no end")?;
        ensure!(outcome == Outcome::Stopped, "rank {rank} ended as {outcome:?}: {reason}");
    }
    worker::no_record_is_missing(&run)
}
