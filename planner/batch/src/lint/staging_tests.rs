//! Data that only the first node has.

use super::tests::{check, job};
use super::*;

#[test]
fn what_the_batch_script_copies_is_on_one_node() {
    let run = "srun python train.py --data-path /tmp/data/tokens";
    for stage in [
        "tar xf /lustre/d.tar -C /tmp/data",
        "tar --extract --file /lustre/d.tar --directory=/tmp/data",
        "cp /lustre/tokens.bin /tmp/data/tokens.bin",
        "cp -r /lustre/tokens /tmp/data/",
        "rsync -a /lustre/data /tmp/",
        "unzip -q /lustre/d.zip -d /tmp/data",
        "wget -q -P /tmp/data https://host/tokens",
        "if [ ! -d /tmp/data ]; then cp -r /lustre/data /tmp/data; fi",
        "D=/tmp/data\ncp -r /lustre/data $D",
    ] {
        check(&job(8, &format!("{stage}\n{run}")), &["unshared-path"]);
    }
    check(&job(8, "cp -r /lustre/d $TMPDIR/d\nsrun python train.py --data=$TMPDIR/d"), &["unshared-path"]);
    let mounted =
        "srun --container-image=a.sqsh --container-mounts=/tmp/data:/data python train.py --data /data";
    check(&job(8, &format!("cp -r /lustre/data /tmp/data\n{mounted}")), &["unshared-path"]);
    for stage in [
        // By every node, by Slurm, to where all see it, or something else.
        "srun --ntasks-per-node=1 tar xf /lustre/d.tar -C /tmp/data",
        "srun --ntasks-per-node=1 bash -c 'mkdir -p /tmp/data && cp -r /lustre/tokens /tmp/data/'",
        "sbcast /lustre/tokens /tmp/data/tokens",
        "cp /lustre/tokens /lustre/data/tokens",
        "cp /lustre/other /tmp/other",
        "tar cf /lustre/d.tar -C /tmp/data .",
        "cp /tmp/data/log /lustre/log",
    ] {
        check(&job(8, &format!("{stage}\n{run}")), &[]);
    }
    // Where one node reads it.
    check(
        &job(8, "cp /lustre/tokens /tmp/data/tokens\nsrun -N 1 -n 1 python prepare.py /tmp/data/tokens"),
        &[],
    );
    check(
        &job(8, &format!("cp /lustre/tokens /tmp/data/tokens\n{run}")).replace("--nodes=2", "--nodes=1"),
        &[],
    );
    let offered = |stage: &str| {
        let report = lint(job(8, &format!("{stage}\n{run}")).as_bytes());
        report.findings.into_iter().find_map(|finding| finding.replacement)
    };
    assert_eq!(
        offered("cp -r /lustre/data /tmp/").as_deref(),
        Some("srun --ntasks=$SLURM_JOB_NUM_NODES --ntasks-per-node=1 cp -r /lustre/data /tmp/")
    );
    // The folder must be made on every node first.
    assert_eq!(offered("cp /lustre/tokens /tmp/data/tokens"), None);
}
