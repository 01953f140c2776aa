//! `shardplan site check` on the login node of a real Slurm.

use std::process::{Command, Output};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use system_tests::programs::program;
use system_tests::slurm::{GPUS_PER_NODE, NODES, PARTITIONS, Slurm};

fn check(slurm: &Slurm, arguments: &[&str]) -> Result<(Output, Value)> {
    let shardplan = program("shardplan")?;
    let mut command: Command = slurm.unlimited(shardplan.to_str().context("an odd path")?)?;
    let output = command.args(["site", "check", "--json"]).args(arguments).output()?;
    let answer = serde_json::from_slice(&output.stdout).with_context(|| format!("{output:?}"))?;
    Ok((output, answer))
}

#[test]
fn a_site_is_filled_and_checked_by_what_slurm_says() -> Result<()> {
    let slurm = Slurm::shared()?;
    let folder = slurm.shared_folder("site")?;
    let written = folder.join("site.toml");
    let (output, answer) = check(slurm, &["--write", written.to_str().context("an odd path")?])?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    let cluster = &answer["cluster"];
    ensure!(cluster["name"] == "shardplan" && cluster["pyxis"] == true, "{cluster}");
    let partitions = cluster["partitions"].as_array().context("no partitions")?;
    let named = |name: &str| partitions.iter().find(|partition| partition["name"] == name);
    let compute = named("compute").context("no partition compute")?;
    ensure!(compute["is_default"] == true && compute["nodes"] == NODES.len(), "{compute}");
    ensure!(compute["gpus"][0][1] == GPUS_PER_NODE, "{compute}");
    ensure!(PARTITIONS.iter().all(|name| named(name).is_some()), "{partitions:?}");
    let site = &answer["site"];
    ensure!(site["partition"] == "compute", "the usual partition has GPUs: {site}");
    // Accounting is off here, and that is one sentence and no failure.
    ensure!(cluster["missing"].as_array().is_some_and(|missing| missing.len() == 1), "{cluster}");
    // What was written is read again, and nothing of it is wrong.
    let path = written.to_str().context("an odd path")?;
    let (output, again) = check(slurm, &[path])?;
    ensure!(output.status.code() == Some(0) && again["site"] == *site, "{again}");
    // What is there stays.
    let (before, shardplan) = (std::fs::read_to_string(&written)?, program("shardplan")?);
    let mut command = slurm.unlimited(shardplan.to_str().context("an odd path")?)?;
    let refused = command.args(["site", "check", "--write", path]).output()?;
    ensure!(refused.status.code() == Some(3) && std::fs::read_to_string(&written)? == before, "{refused:?}");

    let wrong = folder.join("wrong.toml");
    std::fs::write(
        &wrong,
        "partition = \"mian\"\ngpu_type = \"h100\"\nmpi = \"pmix_v9\"\nshared_dir = \"/no/such/folder\"\n",
    )?;
    let (output, answer) = check(slurm, &[wrong.to_str().context("an odd path")?])?;
    ensure!(output.status.code() == Some(1), "{output:?}");
    let findings = answer["findings"].as_array().context("no findings")?;
    let error = |field: &str| findings.iter().find(|one| one["field"] == field && one["severity"] == "error");
    ensure!(error("site.partition").is_some_and(|one| one["nearest"][0] == "main"), "{answer}");
    ensure!(error("site.shared_dir").is_some() && error("site.mpi").is_some(), "{answer}");
    Ok(())
}
