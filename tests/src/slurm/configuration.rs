//! The files that Slurm's daemons read.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{
    ADDRESSES, CLOUD_NODES, GPUS_PER_NODE, HALVES, LARGE, NODES, PARTITIONS, PREEMPTION, SMALL_NODES,
};
use crate::programs::{expect_code, system_program};

/// Writes everything that the daemons read, and makes the folders that they write to.
pub fn write(folder: &Path) -> Result<()> {
    for name in ["state", "log", "node", "records", "shared", "image"] {
        std::fs::create_dir(folder.join(name))?;
    }
    let mut mungekey = Command::new(system_program("mungekey")?);
    // It makes the key readable for its owner alone, which munged insists on.
    expect_code(mungekey.arg("--create").arg("--keyfile").arg(folder.join("munge.key")), 0)?;
    let mut hosts = "127.0.0.1 localhost\n10.77.0.1 login\n".to_owned();
    let mut gpus = String::new();
    for (node, address) in NODES.iter().zip(ADDRESSES) {
        let _ = writeln!(hosts, "{address} {node}");
        for gpu in 0..GPUS_PER_NODE {
            let _ = writeln!(gpus, "NodeName={node} Name=gpu File={}", gpu_file(folder, gpu).display());
        }
    }
    for gpu in 0..GPUS_PER_NODE {
        make_gpu(&gpu_file(folder, gpu))?;
    }
    std::fs::write(folder.join("hosts"), hosts)?;
    std::fs::write(folder.join("gres.conf"), gpus)?;
    std::fs::write(folder.join("slurm.conf"), slurm_conf(folder))?;
    write_task_prolog(folder)?;
    let plugin = folder.join("containers.so");
    compile_plugin(&plugin)?;
    let folders = ["records", "image", "node"].map(|name| folder.join(name).display().to_string());
    let stack = format!("required {} {}\n", plugin.display(), folders.join(" "));
    std::fs::write(folder.join("plugstack.conf"), stack)?;
    Ok(())
}

/// Gives the tasks of each node a folder for temporary files of its own, which `/tmp` is not here.
fn write_task_prolog(folder: &Path) -> Result<()> {
    let path = folder.join("task-prolog.sh");
    let folder = folder.display();
    std::fs::write(&path, format!("#!/bin/sh\necho \"export TMPDIR={folder}/node/$(hostname)/tmp\"\n"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(())
}

fn gpu_file(folder: &Path, gpu: u64) -> std::path::PathBuf {
    folder.join(format!("gpu{gpu}"))
}

/// A device that Slurm counts and assigns: a second /dev/null.
fn make_gpu(path: &Path) -> Result<()> {
    expect_code(Command::new(system_program("mknod")?).arg(path).args(["c", "1", "3"]), 0)?;
    Ok(())
}

/// The plugin that stands in for pyxis, against the headers of the Slurm that is installed.
fn compile_plugin(plugin: &Path) -> Result<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("spank").join("containers.c");
    ensure!(
        Path::new("/usr/include/slurm/spank.h").is_file(),
        "Slurm's headers (slurm/spank.h, Debian's libslurm-dev) are not there: run cargo xtask test"
    );
    let mut cc = Command::new(system_program("cc")?);
    cc.args(["-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-o"]).arg(plugin).arg(source);
    expect_code(&mut cc, 0).context("the plugin that stands in for pyxis does not compile")?;
    Ok(())
}

fn slurm_conf(folder: &Path) -> String {
    let folder = folder.display();
    // A requeued job waits for as long as credentials live: two minutes unless told otherwise. Components of
    // heterogeneous jobs are placed by the backfill scheduler alone, which looks every half minute unless told otherwise.
    let mut text = format!(
        "ClusterName=shardplan\n\
         SlurmctldHost=login(10.77.0.1)\n\
         SlurmUser=root\n\
         SlurmdUser=root\n\
         AuthType=auth/munge\n\
         AuthInfo=socket={folder}/munge.socket,cred_expire=5\n\
         CredType=cred/munge\n\
         StateSaveLocation={folder}/state\n\
         SlurmdSpoolDir={folder}/node/%n/spool\n\
         TmpFS={folder}/node/%n/tmp\n\
         SlurmctldPidFile={folder}/slurmctld.pid\n\
         SlurmdPidFile={folder}/node/%n/slurmd.pid\n\
         SlurmctldLogFile={folder}/log/slurmctld.log\n\
         SlurmdLogFile={folder}/log/slurmd-%n.log\n\
         PlugStackConfig={folder}/plugstack.conf\n\
         SlurmdParameters=config_overrides\n\
         ProctrackType=proctrack/linuxproc\n\
         TaskPlugin=task/none\n\
         TaskProlog={folder}/task-prolog.sh\n\
         SwitchType=switch/none\n\
         MailProg=/bin/true\n\
         MpiDefault=none\n\
         ReturnToService=2\n\
         KillWait=5\n\
         SlurmdTimeout=10\n\
         SchedulerParameters=bf_interval=1\n\
         PreemptType=preempt/partition_prio\n\
         PreemptMode=REQUEUE\n\
         SelectType=select/cons_tres\n\
         SelectTypeParameters=CR_Core\n\
         GresTypes=gpu\n\
         MaxArraySize=1001\n\
         AccountingStorageType=accounting_storage/none\n\
         JobAcctGatherType=jobacct_gather/none\n"
    );
    for (node, address) in NODES.iter().zip(ADDRESSES) {
        let _ = writeln!(
            text,
            "NodeName={node} NodeAddr={address} CPUs=16 RealMemory=4000 Gres=gpu:{GPUS_PER_NODE}"
        );
    }
    for gpus in [8, 4] {
        let _ = writeln!(
            text,
            "NodeName=cloud{gpus}-[1-{CLOUD_NODES}] State=CLOUD CPUs=128 RealMemory=2000000 Gres=gpu:{gpus}"
        );
    }
    let _ = writeln!(
        text,
        "PartitionName=compute Nodes={} Default=YES MaxTime=INFINITE PreemptMode=OFF State=UP",
        NODES.join(",")
    );
    // Jobs of the second end those of the first, which are queued again.
    for (name, tier) in PREEMPTION.iter().zip([1, 9]) {
        let _ = writeln!(
            text,
            "PartitionName={name} Nodes={} MaxTime=INFINITE PriorityTier={tier} GraceTime=10 State=UP",
            NODES.join(",")
        );
    }
    for (name, node) in HALVES.iter().zip(NODES) {
        let _ = writeln!(text, "PartitionName={name} Nodes={node} MaxTime=INFINITE PreemptMode=OFF State=UP");
    }
    // The controller looks at every node of a partition for each job, so most have few.
    let sizes = PARTITIONS.iter().map(|name| (*name, SMALL_NODES)).chain([(LARGE, CLOUD_NODES)]);
    for (name, size) in sizes {
        let _ = writeln!(
            text,
            "PartitionName={name} Nodes=cloud8-[1-{size}],cloud4-[1-{size}] MaxTime=INFINITE PreemptMode=OFF State=UP"
        );
    }
    text
}
