#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun bash -c 'if [ "$SLURM_LOCALID" -eq 0 ]; then uv sync; else sleep 10; fi; uv run --no-sync python train.py'
