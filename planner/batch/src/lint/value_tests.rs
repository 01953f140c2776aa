//! Values of directives that sbatch refuses, alone or together.

use super::tests::check;
use super::*;

fn with(directives: &[&str]) -> String {
    let lines: Vec<String> = directives.iter().map(|given| format!("#SBATCH {given}\n")).collect();
    format!("#!/bin/bash\n{}srun hostname\n", lines.concat())
}

/// The findings of a rule about a script.
fn of(rule: &str, script: &str) -> Vec<Finding> {
    lint(script.as_bytes()).findings.into_iter().filter(|finding| finding.rule == rule).collect()
}

#[test]
fn values_that_sbatch_refuses() {
    for given in [
        "--ntasks=0",
        "-n 2-4",
        "--ntasks=8k",
        "--cpus-per-task=0",
        "-c x",
        "--ntasks-per-node=-1",
        "--threads-per-core=0",
        "--core-spec=x",
        "--nodes=4-2",
        "-N abc",
        "--mem=64X",
        "--mem=-1",
        "--mem=64%",
        "--mem-per-cpu=4X",
        "--tmp=4X",
        "--mem=UNLIMITED",
        "--signal=FOO@60",
        "--signal=USR1@99999",
        "--signal=SIGUSR1:120",
        "--signal=USR1@1m",
        "--signal=@60",
        "--signal=0",
        "--mail-type=FINISH",
        "--gpu-bind=foo",
        "--gpu-bind=single",
        "--distribution=blok",
        "--distribution=block:foo",
        "--hint=foo",
        "--hint=compute_bound,foo",
        "--open-mode=x",
        "--exclusive=foo",
        "--begin=tomorow",
        "--begin=now+1x",
        "--begin=now+5mins",
        "--deadline=foo",
        "--profile=x",
        "--switches=a",
        "--switches=0",
        "--no-kill=on",
        "--kill-on-invalid-dep=maybe",
        "--wait-all-nodes=2",
        // sbatch takes some of these for one GPU of a type that no cluster has.
        "--gres=gpu=8",
        "--gres=gpu:h100=8",
        "--gres=gpus:8",
        "--gres=GPU:8",
        "--gres=8",
        "--gres=gpu,8",
        "--gres=gpu:",
        "--gres=gpu:8x",
        "--gres=gpu:8.5",
        "--gres=gpu:h100:x",
        "--gres=gpu:h100:8:1",
        "--gres=gpu:8,gpu:h100:4",
        "--gpus-per-node=h100=8",
        "--gpus-per-node=8x",
        "--gpus-per-node=h100:",
        "--gpus-per-node=gpu:h100:8",
        "--gpus-per-node=h100,8",
        "--gpus=1.5",
        "-G :8",
        "--gpus-per-task=-1",
        "--gpus-per-socket=h100:x",
    ] {
        let found = of("directive-value", &with(&[given]));
        assert_eq!(found.len(), 1, "{given}");
    }
    for given in [
        "--ntasks=8",
        "--ntasks=+4",
        "-n 08",
        "--nodes=2-4",
        "-N2",
        "--nodes=2k",
        "--nodes=0-2",
        "--nodes=1,3-6",
        "--nodes=2-10:2",
        "--mem=0",
        "--mem=64g",
        "--mem=64GB",
        "--mem=64000K",
        "--mem=1T",
        "--mem-per-gpu=8G",
        "--signal=B:USR1@120",
        "--signal=RB:usr1",
        "--signal=SIGTERM",
        "--signal=10@60",
        "--signal=TERM@",
        "--mail-type=END,FAIL",
        "--mail-type=all",
        "--mail-type=TIME_LIMIT_80,REQUEUE",
        "--gpu-bind=closest",
        "--gpu-bind=verbose,single:1",
        "--gpu-bind=map_gpu:0,1",
        "--gpu-bind=None",
        "--distribution=block:cyclic",
        "--distribution=BLOCK:CYCLIC:FCYCLIC,Pack",
        "--distribution=plane=4",
        "--distribution=*",
        "-m cyclic",
        "--hint=nomultithread",
        "--open-mode=append",
        "--open-mode=t",
        "--exclusive",
        "--exclusive=user",
        "--exclusive=topo",
        "--begin=tomorrow",
        "--begin=now+2days",
        "--begin=now+60",
        "--begin=16:00",
        "--begin=2030-01-20T12:34:00",
        "--begin=01/20/30",
        "--begin=noon",
        "--profile=all",
        "--profile=Energy,Task",
        "--switches=1@24:00:00",
        "--no-kill",
        "--no-kill=off",
        "--wait-all-nodes=1",
        "--time=1:00:00",
        "--gres=gpu:h100:8",
        "--gres=gpu:1g.5gb:1",
        "--gres=gpu",
        "--gres=gpu:8",
        "--gres=gres:gpu:8",
        "--gres=gpu:8(S:0-1)",
        "--gres=gpu:nvidia_h100_80gb_hbm3:8",
        "--gres=gpu:h100:4,gpu:a100:4",
        "--gres=lscratch:100G,gpu:2",
        "--gres=none",
        "--gpus-per-node=8",
        "--gpus-per-node=h100",
        "--gpus-per-node=h100:4,a100:2",
        "--gpus-per-node=1g.5gb:2",
        "--gpus=gpu:8",
        "-G 1k",
        "--gpus-per-node=0",
        "--core-spec=0",
        // Still to be filled in, or another finding's.
        "--mem=<MEM>",
        "--ntasks=$N",
        "--nodes={nodes}",
    ] {
        let found = of("directive-value", &with(&[given]));
        assert!(found.is_empty(), "{given}: {found:?}");
    }
}

#[test]
fn a_value_that_was_meant_is_offered() {
    for (given, expected) in [
        ("--mem=64GiB", Some("--mem=64G")),
        ("--mem=1.5G", Some("--mem=1536M")),
        ("--mem=0.25T", Some("--mem=256G")),
        ("--mem=64X", None),
        ("--mem=1.5K", None),
        ("--hint=nomultithreads", Some("--hint=nomultithread")),
        ("--hint=multithreaded", None),
        ("--open-mode=x", None),
        ("--mail-type=FAILS", Some("--mail-type=FAIL")),
        ("--profile=netwrk", Some("--profile=network")),
        ("--gres=gpu=8", Some("--gres=gpu:8")),
        ("--gres=gpus:h100:8", Some("--gres=gpu:h100:8")),
        ("--gres=8", Some("--gres=gpu:8")),
        ("--gres=gpu:8x", None),
        ("--gpus-per-node=h100=8", Some("--gpus-per-node=h100:8")),
        ("--gpus-per-node=gpu:h100:8", Some("--gpus-per-node=h100:8")),
        ("--gpus-per-node=h100,8", None),
    ] {
        let found = of("directive-value", &with(&[given]));
        let line = expected.map(|expected| format!("#SBATCH {expected}"));
        assert_eq!(found.first().and_then(|finding| finding.replacement.clone()), line, "{given}");
        mending_tests::mends(with(&[given]).as_bytes());
    }
}

#[test]
fn options_that_exclude_each_other() {
    for given in [
        ["--mem=4G", "--mem-per-cpu=1G"],
        ["--mem-per-gpu=1G", "--mem=4G"],
        ["--mem-per-cpu=1G", "--mem-per-gpu=1G"],
        ["--ntasks-per-node=4", "--ntasks-per-gpu=1"],
        ["--gpus-per-task=1", "--ntasks-per-gpu=1"],
        ["--nodes=2", "--nodelist=a,b,c"],
        ["--nodes=2", "-w n[01-03]"],
        ["--nodes=3", "--nodelist=r[1-2]n[1-2]"],
        ["--nodes=1-2", "--nodelist=n[1-2,5]"],
    ] {
        check(&with(&given), &["directive-conflict"]);
    }
    for given in [
        ["--mem=4G", "--mem=4G"],
        ["--ntasks-per-node=4", "--gpus-per-task=1"],
        ["--nodes=2", "--nodelist=a"],
        ["--nodes=3", "--nodelist=n[1-2],m"],
        ["--nodes=2-3", "--nodelist=a,b,c"],
        ["--nodes=2", "--nodelist=./hosts"],
        ["--exclusive", "--mem=0"],
    ] {
        check(&with(&given), &[]);
    }
    // Each component of a job has its own.
    check(&with(&["--mem=4G", "hetjob", "--mem-per-cpu=1G"]), &[]);
    let found = of("directive-conflict", &with(&["--nodes=2", "--nodelist=a,b,c"]));
    assert_eq!(found[0].replacement.as_deref(), Some("#SBATCH --nodes=3"));
}
