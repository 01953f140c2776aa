//! Which GPUs tasks see, and which nobody uses.

use super::lint;
use super::tests::{check, job};

#[test]
fn gpus_that_nobody_uses() {
    let places = |text: &str| -> Vec<(String, u64, String)> {
        let report = lint(text.as_bytes());
        let idle = report.findings.into_iter().filter(|finding| finding.rule == "idle-gpus");
        idle.map(|finding| (finding.message, finding.line, finding.fix)).collect()
    };
    let one = |text: &str| {
        let found = places(text);
        assert_eq!(found.len(), 1, "{found:?}");
        found[0].clone()
    };
    let (message, line, fix) = one(&job(8, "srun --ntasks=8 python train.py"));
    assert_eq!((message.as_str(), line), ("a node's 4 tasks leave 4 of its 8 GPUs idle", 5));
    assert!(fix.contains("--ntasks=16, or leave it out"), "{fix}");
    let (_, line, fix) = one(&job(4, "srun python train.py"));
    assert_eq!((line, fix.as_str()), (3, "start one task for each GPU: --ntasks-per-node=8"));
    let with = |more: &str, body: &str| {
        job(4, body).replace("--gpus-per-node=8", &format!("--gpus-per-node=8\n#SBATCH {more}"))
    };
    one(&with("--gpus-per-task=1", "srun python train.py"));
    assert!(places(&with("--gpus-per-task=2", "srun python train.py")).is_empty());
    assert!(places(&job(8, "srun python train.py")).is_empty());
    // Nothing but the batch script itself starts a launcher, and it knows of no other node.
    let (message, ..) = one(&job(1, "torchrun --nproc_per_node=8 train.py"));
    assert!(message.contains("2 nodes"), "{message}");
    for body in [
        "torchrun --nproc_per_node=8 prepare.py\nsrun python train.py",
        "srun torchrun --nproc_per_node=8 --nnodes=2 --rdzv_endpoint=h:29400 --rdzv_backend=c10d train.py",
        "source env.sh\ntorchrun --nproc_per_node=8 train.py",
        "pdsh -w a,b torchrun --nproc_per_node=8 train.py",
    ] {
        assert!(places(&job(1, body)).is_empty(), "{body}");
    }
    assert!(
        places(&job(1, "torchrun --nproc_per_node=8 train.py").replace("--nodes=2", "--nodes=1")).is_empty()
    );
}

#[test]
fn a_task_chooses_no_gpu_where_slurm_gives_it_one() {
    let rule = &["visible-devices-of-task"][..];
    let body = "bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python train.py'";
    for options in [
        "--gpus-per-task=1",
        "--gpus-per-task=h100:1",
        "--gpu-bind=single:1",
        "--gpu-bind=per_task:1",
        "--gpu-bind=verbose,single:1",
    ] {
        check(&job(8, &format!("srun {options} {body}")), rule);
        let inherited = job(8, &format!("srun {body}"))
            .replace("#SBATCH --gpus", &format!("#SBATCH {options}\n#SBATCH --gpus"));
        check(&inherited, rule);
    }
    let bound = "srun --gpus-per-task=1";
    for set in [
        format!("{bound} bash -c 'export CUDA_VISIBLE_DEVICES=${{SLURM_LOCALID}}; python train.py'"),
        format!("{bound} bash -c 'env CUDA_VISIBLE_DEVICES=\"$SLURM_LOCALID\" python train.py'"),
        format!("{bound} bash -c 'GPU=$SLURM_LOCALID; CUDA_VISIBLE_DEVICES=$GPU python train.py'"),
        format!("export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\n{bound} python train.py"),
        format!("CUDA_VISIBLE_DEVICES=$SLURM_LOCALID {bound} python train.py"),
        format!("{bound} --export=ALL,CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python train.py"),
    ] {
        check(&job(8, &set), rule);
    }
    // Where a task sees all GPUs of its node, or several, that is how it takes its own.
    for free in ["", "--gpus-per-task=1 --gpu-bind=none", "--gpu-bind=closest", "--gpus-per-node=8"] {
        check(&job(8, &format!("srun {free} {body}")), &[]);
    }
    check(&job(8, &format!("{bound} bash -c 'CUDA_VISIBLE_DEVICES=0 python train.py'")), &[]);
    check(&job(8, &format!("srun {body}\n{bound} python train.py")), &[]);
}
