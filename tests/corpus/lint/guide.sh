#!/bin/bash
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1   # the launcher starts the rest
#SBATCH --gpus-per-node=8
#SBATCH --time=00:30:00
#SBATCH --output=train_%j.log
#SBATCH --exclusive

IMAGE=/lustre/images/train.sqsh
MOUNTS=/lustre:/lustre
LOGDIR=/lustre/logs/first
WORKDIR=/lustre/code
export UV_CACHE_DIR=/lustre/uv

BODY="
export HF_TOKEN=$HF_TOKEN && \
mkdir -p $LOGDIR && \
cd $WORKDIR && \
uv sync && \
uv run --no-sync python -m torch.distributed.run \
  --nproc_per_node=8 \
  --nnodes=\${SLURM_JOB_NUM_NODES} \
  --node_rank=\${SLURM_NODEID} \
  train.py
"

echo \"Job \$SLURM_JOB_ID\"

srun --mpi=pmix -N 1 --ntasks=1 --container-image="$IMAGE" --container-mounts="$MOUNTS" --no-container-mount-home \
  bash -c "cd $WORKDIR && uv sync"

srun --mpi=pmix --container-image="$IMAGE" --container-mounts="$MOUNTS" --no-container-mount-home \
  bash -c "$BODY" 2>&1 | tee "$LOGDIR/train_${SLURM_JOB_ID}.log"

grep -E "iteration" "$LOGDIR/train_${SLURM_JOB_ID}.log" | head -25
