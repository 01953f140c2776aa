#!/bin/bash
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
x="bash -c \"\$x $x\""
srun bash -c "$x" $x "$@"
eval $x
