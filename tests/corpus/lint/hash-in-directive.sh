#!/bin/bash
#SBATCH --comment=run#3
srun hostname
