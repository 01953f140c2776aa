#!/bin/bash
# A compute node of the test cluster: process 1 of a PID namespace, with network, host name and mounts of its own.
# Usage: node.sh NAME ADDRESS FOLDER
set -eu
name=$1 address=$2 folder=$3

hostname "$name"
until ip link show dev eth0 > /dev/null 2>&1; do
  sleep 0.02
done
ip link set lo up
ip address add "$address/24" dev eth0
ip link set eth0 up
export SLURM_CONF=$folder/slurm.conf
slurmd -D > /dev/null 2>&1 &
# Orphans end up here, and bash asks how they ended.
wait
