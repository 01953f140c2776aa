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

#[test]
fn a_batch_script_chooses_no_gpu_for_all() {
    let rule = &["visible-devices-for-all"][..];
    for set in [
        "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nsrun python train.py",
        "export CUDA_VISIBLE_DEVICES=0\nsrun python train.py",
        "CUDA_VISIBLE_DEVICES=0,1 srun python train.py",
        "export HIP_VISIBLE_DEVICES=${SLURM_LOCALID}\nsrun bash -c 'python train.py'",
    ] {
        check(&job(8, set), rule);
    }
    let launched = "srun python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=h:29400 train.py";
    check(&job(1, &format!("export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\n{launched}")), rule);
    for set in [
        "export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7\nsrun python train.py",
        "srun bash -c 'export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID; python train.py'",
        "export CUDA_VISIBLE_DEVICES=0\nsrun bash -c 'CUDA_VISIBLE_DEVICES=$SLURM_LOCALID python train.py'",
        "export CUDA_VISIBLE_DEVICES=0\npython prepare.py\nunset CUDA_VISIBLE_DEVICES\nsrun python train.py",
        "CUDA_VISIBLE_DEVICES=0 python prepare.py\nsrun python train.py",
        "CUDA_VISIBLE_DEVICES= python prepare.py\nsrun python train.py",
        "srun python train.py\nexport CUDA_VISIBLE_DEVICES=0\npython evaluate.py || true\nexit 0",
        "export CUDA_VISIBLE_DEVICES=0\nsrun --gpus-per-task=1 python train.py",
        "export CUDA_VISIBLE_DEVICES=0\nsrun -N 1 -n 1 python prepare.py",
        "export CUDA_VISIBLE_DEVICES=0\nsrun hostname",
        "export CUDA_VISIBLE_DEVICES=$GPUS\nsrun python train.py",
    ] {
        check(&job(8, set), &[]);
    }
    // One task a node: the first's number is each one's.
    check(&job(1, "export CUDA_VISIBLE_DEVICES=$SLURM_LOCALID\nsrun python train.py"), &[]);
}

#[test]
fn processes_of_a_task_have_the_gpus_of_that_task() {
    let rule = &["processes-and-gpus"][..];
    let torchrun = "python -m torch.distributed.run --nnodes=2 --nproc_per_node=8 --rdzv_backend=c10d --rdzv_endpoint=h:29400 train.py";
    for options in [
        "--gpus-per-task=1",
        "--gpus-per-task=h100:4",
        "--gpu-bind=single:1",
        "--gpu-bind=verbose,per_task:2",
    ] {
        check(&job(1, &format!("srun {options} {torchrun}")), rule);
        let inherited = job(1, &format!("srun {torchrun}"))
            .replace("#SBATCH --gpus", &format!("#SBATCH {options}\n#SBATCH --gpus"));
        check(&inherited, rule);
    }
    // A step that counts its GPUs itself has them all.
    let own = job(1, &format!("srun --gpus-per-node=8 {torchrun}"));
    check(&own.replace("#SBATCH --gpus", "#SBATCH --gpus-per-task=1\n#SBATCH --gpus"), &[]);
    for options in [
        "--gpus-per-task=8",
        "--gpus-per-task=1 --gpu-bind=none",
        "--gpu-bind=closest",
        "--gpu-bind=per_task:8",
    ] {
        check(&job(1, &format!("srun {options} {torchrun}")), &[]);
    }
}
