#!/bin/bash
srun bash -c "export HF_TOKEN=$HF_TOKEN && python train.py"
