#!/bin/bash
#SBATCH --signal=B:USR1@300
srun python train.py
