//! A script of `shardplan script`, run by a real Slurm of two nodes on this machine.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use planner::wire::{Outcome, RunInfo};
use serde_json::json;
use system_tests::plans::four_ranks;
use system_tests::programs::{expect_code, program, shardplan, torch_python};
use system_tests::run_folder::{all_records, ended, log_of, loss_falls, only_run, steps};
use system_tests::slurm::{GPUS_PER_NODE, NODES, Slurm};

const STEPS: u64 = 20;

#[tokio::test]
async fn the_worker_script_runs_to_the_end_on_two_nodes() -> Result<()> {
    let slurm = Slurm::shared()?;
    let shared = slurm.shared_folder("worker")?;
    let script = write_script(&shared)?;
    let job = slurm.submit(&script, &shared)?;
    let (state, code) = slurm.finished(&job, Duration::from_secs(120)).await?;
    let said = printed(&shared.join("logs"));
    ensure!(
        state == "COMPLETED" && code == "0:0",
        "the job ended as {state} with {code} and printed: {said}"
    );

    let run = only_run(&shared.join("runs")).with_context(|| format!("the job printed: {said}"))?;
    let info: RunInfo = serde_json::from_str(&std::fs::read_to_string(run.join("run.json"))?)?;
    ensure!(info.slurm_job.as_deref() == Some(job.as_str()), "run.json names the job {:?}", info.slurm_job);
    ensure!(info.world_size == 4, "run.json counts {} ranks", info.world_size);
    let records = all_records(&run)?;
    for rank in 0..4 {
        let done = steps(&records, rank);
        let numbers: Vec<u64> = done.iter().map(|step| step.step).collect();
        ensure!(numbers == (1..=STEPS).collect::<Vec<u64>>(), "rank {rank} did the steps {numbers:?}");
        loss_falls(&done.iter().map(|step| step.loss).collect::<Vec<f64>>())?;
        let end = ended(&records, &log_of(rank)).with_context(|| format!("rank {rank} has no end"))?;
        ensure!(end.0 == Outcome::Completed, "rank {rank} ended as {end:?}");
    }
    Ok(())
}

/// Writes the script as a user would: a plan, a site file, one command.
fn write_script(shared: &Path) -> Result<std::path::PathBuf> {
    let mut plan = four_ranks("fp32", STEPS);
    plan["cluster"] = json!({"gpu": "h100-sxm", "nodes": NODES.len(), "gpus_per_node": GPUS_PER_NODE});
    let plan_file = shared.join("plan.json");
    std::fs::write(&plan_file, plan.to_string())?;

    let site_file = shared.join("site.toml");
    let mut site = String::new();
    let values = [
        ("account", "research".to_owned()),
        ("partition", "compute".to_owned()),
        ("shared_dir", shared.display().to_string()),
        ("rank_binary", program("shardplan-rank")?.display().to_string()),
        ("torch_lib", torch_libraries()?),
    ];
    for (name, value) in values {
        let _ = writeln!(site, "{name} = {}", json!(value));
    }
    std::fs::write(&site_file, site)?;

    let output =
        expect_code(shardplan()?.args(["script", "--strict", "--site"]).arg(&site_file).arg(&plan_file), 0)?;
    let script = shared.join("job.sbatch");
    std::fs::write(&script, output.stdout)?;
    // As the script's own comment says: Slurm fails a job without a word when the folder of its log is not there.
    std::fs::create_dir(shared.join("logs"))?;
    Ok(script)
}

fn torch_libraries() -> Result<String> {
    let question = "import importlib.util, pathlib; print(pathlib.Path(importlib.util.find_spec('torch').origin).parent / 'lib')";
    let output = expect_code(Command::new(torch_python()?).args(["-c", question]), 0)?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// What the job printed, for the error of a failed test.
fn printed(logs: &Path) -> String {
    let mut all = String::new();
    for entry in std::fs::read_dir(logs).into_iter().flatten().flatten() {
        all += &std::fs::read_to_string(entry.path()).unwrap_or_default();
    }
    all
}
