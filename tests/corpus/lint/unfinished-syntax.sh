#!/bin/bash
srun bash -c 'python train.py
