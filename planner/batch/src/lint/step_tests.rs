//! What steps are given.

use super::tests::check;

#[test]
fn small_commands_need_no_more_than_one_core() {
    let job = |body: &str| {
        format!(
            "#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --cpus-per-task=64\n{body}\n"
        )
    };
    for body in [
        "srun hostname",
        "srun --ntasks-per-node=1 nvidia-smi -L",
        "srun -N 2 -n 2 rm -rf /tmp/cache_$SLURM_JOB_ID",
        "srun mkdir -p /tmp/x",
        "srun bash -c 'echo $(hostname): $(nvidia-smi -L | wc -l)'",
        "srun env FOO=1 printenv FOO",
        "srun bash -c 'set -e; mkdir -p /tmp/x && cp /lustre/x /tmp/x/'",
        "srun -c 64 python train.py",
        "srun -N 1 -n 1 python prepare.py",
    ] {
        check(&job(body), &[]);
    }
    for body in [
        "srun python train.py",
        "srun bash -c 'hostname; python train.py'",
        "srun bash run.sh",
        "srun ./train",
        "srun $COMMAND",
        "srun bash -c \"$COMMAND\"",
        "srun hostname\nsrun python train.py",
    ] {
        check(&job(body), &["cpus-not-inherited"]);
    }
}
