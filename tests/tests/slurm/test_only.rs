//! Every script that planner writes, taken by the real `sbatch --test-only`.

use anyhow::{Context, Result, ensure};
use system_tests::scripts::{Written, combinations};
use system_tests::slurm::{LARGE, SMALL_NODES, Slurm, succeeded};

#[test]
fn sbatch_takes_every_script() -> Result<()> {
    let slurm = Slurm::shared()?;
    let folder = slurm.shared_folder("test-only")?;
    let scripts = combinations()?;
    let mut refused = Vec::new();
    let file = |number: usize, ending: &str| folder.join(format!("{number}.{ending}"));
    for (number, written) in scripts.iter().enumerate() {
        std::fs::write(file(number, "sbatch"), &written.script)?;
    }
    // Four at a time: each is a few milliseconds of work and much waiting for others.
    let line = r#"cd "$1"; shift; partitions=("$@")
        for lane in 0 1 2 3; do
          (for ((number = lane; number < $#; number += 4)); do
            sbatch --test-only ${partitions[number]} $number.sbatch > $number.said 2>&1; echo $? > $number.code
          done) &
        done
        wait"#;
    let mut bash = slurm.unlimited("bash")?;
    bash.args(["-c", line, "bash"]).arg(&folder);
    // The partition that a site names has few nodes here, so that is all of a script's header that may be overruled.
    bash.args(scripts.iter().map(|written| match written.nodes {
        0..=SMALL_NODES => String::new(),
        _ => format!("--partition={LARGE}"),
    }));
    succeeded(&mut bash)?;
    for (number, written) in scripts.iter().enumerate() {
        let code = std::fs::read_to_string(file(number, "code"))?;
        let said = std::fs::read_to_string(file(number, "said"))?;
        if let Err(error) = check(written, code.trim() == "0", &said) {
            refused.push(format!("{}: {error:#}", written.name));
        }
    }
    ensure!(refused.is_empty(), "{} of {} scripts:\n{}", refused.len(), scripts.len(), refused.join("\n"));
    Ok(())
}

/// Whether the nodes that sbatch would give are as many as the plan has, each with enough GPUs.
fn check(written: &Written, took: bool, said: &str) -> Result<()> {
    // A value that the site has yet to give is no header that Slurm must understand.
    if written.script.contains("#SBATCH") && header(&written.script).contains('<') {
        ensure!(!took || said.contains("to start at"), "{said}");
        return Ok(());
    }
    ensure!(took, "sbatch said: {said}");
    if header(&written.script).contains("#SBATCH hetjob") {
        // Slurm tries each component alone, so that two may get one node, and names those of one component.
        ensure!(said.contains("to start at") && said.contains(" on cloud"), "{said}");
        return Ok(());
    }
    let nodes = said.split(" on nodes ").nth(1).and_then(|rest| rest.split(" in partition ").next());
    let nodes = nodes.with_context(|| format!("sbatch names no nodes: {said}"))?;
    let names = planner::cluster::node_names(nodes)?;
    ensure!(
        names.len() as u64 == written.nodes,
        "{} nodes instead of {}: {said}",
        names.len(),
        written.nodes
    );
    if written.gpus_per_node > 4 && written.script.lines().any(|line| line.contains("--gpus-per-node")) {
        ensure!(names.iter().all(|name| name.starts_with("cloud8-")), "nodes with too few GPUs: {said}");
    }
    Ok(())
}

/// The lines that Slurm reads.
fn header(script: &str) -> String {
    script.lines().filter(|line| line.starts_with("#SBATCH")).collect::<Vec<_>>().join("\n")
}
