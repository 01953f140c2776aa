//! What a shell reads otherwise than it looks: assignments, home folders, names of variables.

use super::tests::{check, job};
use super::*;

#[test]
fn assignments_that_set_nothing() {
    for (line, expected) in [
        ("export MASTER_PORT = 29500", "export MASTER_PORT=29500"),
        ("NCCL_DEBUG = INFO", "NCCL_DEBUG=INFO"),
        ("NCCL_DEBUG =INFO", "NCCL_DEBUG=INFO"),
        ("export HF_HOME= /lustre/hf", "export HF_HOME=/lustre/hf"),
        ("export MASTER_PORT= 29500", "export MASTER_PORT=29500"),
        ("readonly DATA = \"/lustre/a b\"", "readonly DATA=\"/lustre/a b\""),
        ("MASTER_PORT= 29500", "MASTER_PORT=29500"),
        ("$MASTER_PORT=29500", "MASTER_PORT=29500"),
        ("export DATA= $HOME/data", "export DATA=$HOME/data"),
        ("if true; then NCCL_DEBUG = INFO; fi", "if true; then NCCL_DEBUG=INFO; fi"),
    ] {
        let script = job(8, &format!("{line}\nsrun python train.py"));
        check(&script, &["assignment-syntax"]);
        let report = lint(script.as_bytes());
        assert_eq!(report.findings[0].replacement.as_deref(), Some(expected), "{line}");
    }
    for line in [
        "export A=1 B=2",
        "export A= B=2",
        "export A B",
        "export A= B",
        "IFS= read -r LINE < list",
        "CUDA_VISIBLE_DEVICES= python prepare.py",
        "LC_ALL= /usr/bin/sort list",
        "[ \"$A\" = b ] && C=1",
        "[[ $A == b ]] && C=1",
        "test \"$A\" = b && C=1",
        "expr 1 = 1 > equal",
        "let \"A = 1\"",
        "(( A = 1 ))",
        "declare -A MAP=([a]=1)",
        "export $NAME=1",
        "eval \"$NAME=1\"",
        "echo A = 1",
        "python -c 'x = 1'",
        "awk 'BEGIN { x = 1 }' < list",
        "cat > conf <<EOF\nx = 1\nEOF",
        "A=$B",
        "export OPTIONS= $MORE",
    ] {
        check(&job(8, &format!("{line}\nsrun python train.py")), &[]);
    }
}

#[test]
fn a_home_folder_in_quotes() {
    for line in [
        "mkdir -p '~/runs'",
        "cd \"~/code\"",
        "RUN='~/runs'\nmkdir -p $RUN",
        "date > '~/log'",
        "export PYTHONPATH='~/code'",
    ] {
        check(&job(8, &format!("{line}\nsrun python train.py")), &["quoted-tilde"]);
    }
    for line in [
        "mkdir -p ~/runs",
        "cd \"$HOME/code\"",
        "RUN=~/runs\nmkdir -p \"$RUN\"",
        "echo 'see ~/log'",
        "ssh host 'cd ~/code'",
        "export PYTHONPATH=~/code",
        // Hugging Face's libraries make a home folder of it themselves.
        "export HF_HOME='~/hf'",
        "sed 's/a/b/' '~'",
    ] {
        check(&job(8, &format!("{line}\nsrun python train.py")), &[]);
    }
}

#[test]
fn variables_that_slurm_does_not_have() {
    for (line, expected) in [
        ("export OMP_NUM_THREADS=$SLURM_CPU_PER_TASK", "export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK"),
        ("export RUN=run-${SLURM_JOB_IDS}", "export RUN=run-${SLURM_JOB_ID}"),
        (
            "srun bash -c 'python t.py --node $SLURM_NODE_ID'",
            "srun bash -c 'python t.py --node $SLURM_NODEID'",
        ),
        (
            "srun bash -c \"python t.py --rank \\$SLURM_PROC_ID\"",
            "srun bash -c \"python t.py --rank \\$SLURM_PROCID\"",
        ),
    ] {
        let script = job(8, line);
        check(&script, &["misspelt-variable"]);
        let report = lint(script.as_bytes());
        assert_eq!(report.findings[0].replacement.as_deref(), Some(expected), "{line}");
    }
    for line in [
        "echo $SLURM_JOBID $SLURM_JOB_ID $SLURM_NNODES $SLURM_NODELIST",
        "echo ${SLURM_CPU_PER_TASK:-8}",
        "SLURM_JOB_IDS=\"1 2\"\necho $SLURM_JOB_IDS",
        "echo $SLURM_TMPDIR $SLURM_CLUSTER_NAME $SLURM_MY_SITE",
        "source site.sh\necho $SLURM_CPU_PER_TASK",
        "echo $SLURM_JOB_NODELIST_HET_GROUP_0",
    ] {
        check(&job(8, &format!("{line}\nsrun python train.py")), &[]);
    }
}
