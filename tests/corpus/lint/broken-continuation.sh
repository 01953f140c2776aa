#!/bin/bash
srun python train.py \
  # the sequence's length
  --seq-length 4096
