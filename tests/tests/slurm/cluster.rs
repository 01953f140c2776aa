//! The test cluster is what it says: separate nodes, GPUs, container options, PMIx, and nothing left behind.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use system_tests::slurm::{ADDRESSES, GPUS_PER_NODE, NODES, Slurm, succeeded};
use system_tests::wait::{Attempt, SOON, until};

/// What each of four tasks on two nodes prints for a line of shell, sorted.
fn on_four_tasks(slurm: &Slurm, options: &[&str], line: &str) -> Result<Vec<String>> {
    let mut srun = slurm.command("srun")?;
    srun.args(["--nodes=2", "--ntasks-per-node=2", "--gpus-per-node=2"]).args(options);
    let printed = succeeded(srun.args(["bash", "-c", line]))?;
    let mut lines: Vec<String> = printed.lines().map(str::to_owned).collect();
    lines.sort();
    Ok(lines)
}

#[test]
fn nodes_have_networks_and_names_of_their_own() -> Result<()> {
    let slurm = Slurm::shared()?;
    let line = "echo $SLURM_PROCID $(hostname) $(readlink /proc/self/ns/net) $CUDA_VISIBLE_DEVICES $(getent hosts gpu-01 | cut -d' ' -f1)";
    let lines = on_four_tasks(slurm, &[], line)?;
    ensure!(lines.len() == 4, "four tasks printed {lines:?}");
    let mut networks = BTreeSet::from([network_of(Path::new("/proc/self"))?]);
    for (task, line) in lines.iter().enumerate() {
        let words: Vec<&str> = line.split(' ').collect();
        let expected = [&task.to_string(), NODES[task / 2], words[2], "0,1", ADDRESSES[0]];
        ensure!(words == expected, "task {task} printed {line:?}");
        networks.insert(words[2].to_owned());
    }
    networks.insert(network_of(Path::new(&format!("/proc/{}", slurm.login())))?);
    ensure!(
        networks.len() == 4,
        "this machine, the login node and two nodes are in the networks {networks:?}"
    );
    Ok(())
}

#[test]
fn a_service_on_one_nodes_loopback_is_not_seen_from_the_other() -> Result<()> {
    let slurm = Slurm::shared()?;
    // Python listens on the first node until bash, which opens connections by itself, has tried from the second.
    let attempt = |address: &str, name: &str| -> Result<Vec<String>> {
        let folder = slurm.shared_folder(name)?;
        let folder = folder.display();
        let listen = format!(
            "import os, socket, time; s = socket.create_server(('{address}', 4321)); open('{folder}/listens', 'w')\nwhile not os.path.exists('{folder}/tried'): time.sleep(0.05)"
        );
        let line = format!(
            "case $SLURM_PROCID in 0) timeout 20 python3 -c \"{listen}\" ;; \
             2) until [ -e {folder}/listens ]; do sleep 0.05; done; \
             (exec 3<>/dev/tcp/{address}/4321) 2>/dev/null && echo reached || echo not reached; touch {folder}/tried ;; esac"
        );
        on_four_tasks(slurm, &[], &line)
    };
    ensure!(attempt("127.0.0.1", "loopback")? == ["not reached"], "loopback is shared");
    ensure!(attempt(ADDRESSES[0], "network")? == ["reached"], "the nodes don't reach each other");
    Ok(())
}

#[test]
fn container_options_reach_every_task_and_conflicts_are_refused() -> Result<()> {
    let slurm = Slurm::shared()?;
    let options = [
        "--container-image=nvcr.io#nvidia/nemo:25.09",
        "--container-mounts=/lustre:/lustre,/home/a b:/data:ro+rprivate",
        "--no-container-mount-home",
        "--container-writable",
        "--segment=2",
    ];
    let jobs: BTreeSet<String> = on_four_tasks(slurm, &options, "echo $SLURM_JOB_ID")?.into_iter().collect();
    let job = jobs.first().context("no task printed its job")?;
    let tasks = slurm.container_options(job, "0")?;
    ensure!(tasks.len() == 4, "{} tasks of job {job} have records", tasks.len());
    let expected = [
        ("container-image", "nvcr.io#nvidia/nemo:25.09"),
        ("container-mounts", "/lustre:/lustre,/home/a b:/data:ro+rprivate"),
        ("no-container-mount-home", ""),
        ("container-writable", ""),
        ("segment", "2"),
    ];
    for task in &tasks {
        let seen: Vec<(&str, &str)> = task.iter().map(|(name, value)| (&**name, &**value)).collect();
        ensure!(seen == expected, "a task was given {seen:?}");
    }
    for (options, said) in [
        (["--container-image=a", "--container-image=b"], "--container-image was given several times"),
        (
            ["--container-writable", "--container-readonly"],
            "both --container-readonly and --container-writable",
        ),
        (["--container-mount-home", "--no-container-mount-home"], "both --no-container-mount-home"),
        (["--container-image=a", "--container-mounts=lustre:/lustre"], "lustre:/lustre is not SRC:DST"),
        (["--container-image=a", "--container-name=:exec"], "--container-name: a value is missing"),
        (["--container-image=a", "--segment=none"], "none is no number of nodes"),
    ] {
        let error = on_four_tasks(slurm, &options, "true").err().map(|error| format!("{error:#}"));
        ensure!(error.as_ref().is_some_and(|error| error.contains(said)), "{options:?}: {error:?}");
    }
    Ok(())
}

#[test]
fn pmix_tells_tasks_their_ranks() -> Result<()> {
    let slurm = Slurm::shared()?;
    let lines =
        on_four_tasks(slurm, &["--mpi=pmix"], "echo $PMIX_RANK $SLURM_PROCID ${PMIX_NAMESPACE%.*.*}")?;
    ensure!(lines == (0..4).map(|rank| format!("{rank} {rank} slurm.pmix")).collect::<Vec<_>>(), "{lines:?}");
    Ok(())
}

#[test]
fn a_task_gets_no_more_gpus_than_a_node_has() -> Result<()> {
    let slurm = Slurm::shared()?;
    let wanted = format!("--gpus-per-node={}", GPUS_PER_NODE + 1);
    let error = on_four_tasks(slurm, &[&wanted], "true").err().map(|error| format!("{error:#}"));
    let said = "Requested node configuration is not available";
    ensure!(error.as_ref().is_some_and(|error| error.contains(said)), "{error:?}");
    Ok(())
}

#[test]
fn the_largest_plan_fits_the_nodes_for_test_only() -> Result<()> {
    let slurm = Slurm::shared()?;
    for (nodes, gpus, fits) in [(2048, 8, true), (2048, 4, true), (1, 16, false), (2049, 8, false)] {
        let mut sbatch = slurm.command("sbatch")?;
        sbatch.args(["--test-only", "--partition=large", "--exclusive", "--wrap=true"]);
        sbatch.arg(format!("--nodes={nodes}")).arg(format!("--gpus-per-node={gpus}"));
        let took = succeeded(&mut sbatch);
        ensure!(took.is_ok() == fits, "{nodes} nodes of {gpus} GPUs: {took:?}");
    }
    Ok(())
}

/// Another cluster, whose test program is killed: everything it started is gone.
#[tokio::test]
async fn nothing_is_left_of_a_cluster_whose_test_is_killed() -> Result<()> {
    let slurm = Slurm::start()?;
    let mut networks = BTreeSet::from([network_of(Path::new(&format!("/proc/{}", slurm.login())))?]);
    let log = slurm.shared_folder("left")?.join("job.log");
    let mut sbatch = slurm.command("sbatch")?;
    sbatch.arg("--nodes=2").arg(format!("--output={}", log.display()));
    succeeded(sbatch.arg("--wrap=srun bash -c 'readlink /proc/self/ns/net; exec sleep 600'"))?;
    let printed = until("a running job", SOON, async || {
        let printed = std::fs::read_to_string(&log).unwrap_or_default();
        Ok(if printed.lines().count() == 2 { Attempt::Ready(printed) } else { Attempt::NotYet(printed) })
    });
    networks.extend(printed.await?.lines().map(str::to_owned));
    ensure!(networks.len() == 3, "the cluster has the networks {networks:?}");
    ensure!(!processes_in(&networks)?.is_empty(), "nothing runs in {networks:?}");
    // When a test program is killed, the login node's input ends, and it ends. Here it is killed outright, which
    // leaves it no time to end the others.
    kill(slurm.login(), Signal::SIGKILL)?;
    until("an end of all processes of the cluster", SOON, async || {
        let left = processes_in(&networks)?;
        Ok(if left.is_empty() { Attempt::Ready(()) } else { Attempt::NotYet(format!("{left:?}")) })
    })
    .await?;
    let interfaces = succeeded(Command::new("ip").args(["-brief", "link"]))?;
    ensure!(!interfaces.contains("gpu-0"), "interfaces are left: {interfaces}");
    let folder = slurm.folder().to_owned();
    drop(slurm);
    ensure!(!folder.exists(), "{} is left", folder.display());
    Ok(())
}

/// The network namespace of a process.
fn network_of(process: &Path) -> Result<String> {
    let path = process.join("ns").join("net");
    let link = std::fs::read_link(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(link.to_string_lossy().into_owned())
}

/// Process numbers in any of the networks. A dead process that nobody has asked about is in none.
fn processes_in(networks: &BTreeSet<String>) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let path = entry?.path();
        if network_of(&path).is_ok_and(|network| networks.contains(&network)) {
            found.push(path.display().to_string());
        }
    }
    Ok(found)
}
