#!/bin/bash
set -o pipefail
LOGDIR=/lustre/team/logs
srun bash -c "mkdir -p $LOGDIR && python train.py" 2>&1 | tee "$LOGDIR/train.log"
