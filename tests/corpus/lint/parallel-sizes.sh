#!/bin/bash
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=8
#SBATCH --gpus-per-node=8
srun python pretrain_gpt.py --tensor-model-parallel-size 3
