#!/usr/bin/env bash
# Runs Shardplan's executor on this machine, and PyTorch on the same shapes beside it. Needs a python3 with torch 2.11;
# no Rust, no network.
#
#   ./run.sh              a model for one large GPU
#   ./run.sh --small      a model for a few seconds on a CPU
#   ./run.sh --calibrate  probes that calibrate step times, and shapes that no probe has
#
# PYTHON names the Python, OUT the folder of results, ROUNDS how often each probe is run.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$here/results}
size=gpu
case ${1:-} in
  "" | --calibrate) ;;
  --small) size=small ;;
  *) echo "usage: run.sh [--small | --calibrate]" >&2; exit 2 ;;
esac

fits() { "$1" -c 'import torch, sys; sys.exit(not torch.__version__.startswith("2.11."))' 2>/dev/null; }
python=
for candidate in ${PYTHON:+"$PYTHON"} python3 python; do
  if fits "$candidate"; then python=$(command -v "$candidate"); break; fi
done
if [ -z "$python" ]; then
  echo "no python3 here has torch 2.11; name one that has it with PYTHON=/path/to/python3" >&2
  exit 3
fi
export SHARDPLAN_TORCH=$python SHARDPLAN_RANK=$here/bin/shardplan-rank
shardplan=$here/bin/shardplan
mkdir -p "$out"

"$shardplan" doctor --json > "$out/doctor.json" || true
if [ "${1:-}" = --calibrate ]; then
  exec "$shardplan" calibrate --check --ranks 1 --rounds "${ROUNDS:-3}" --output "$out/calibration.json"
fi
echo "== kernels" >&2
libraries='import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "lib"))'
LD_LIBRARY_PATH=$("$python" -c "$libraries")${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} \
  "$here/bin/shardplan-rank" --check-kernels | tee "$out/kernels.json"
# Plans name an H200; they are for the GPU that is here.
here_gpu='import json, sys; print(json.load(open(sys.argv[1]))["gpu"] or "h200")'
gpu=$("$python" -c "$here_gpu" "$out/doctor.json")
mkdir -p "$out/plans"
for plan in "$here"/plans/*.json; do
  sed "s/\"h200\"/\"$gpu\"/; s/\"h200,/\"$gpu,/" "$plan" > "$out/plans/$(basename "$plan")"
done
names=("$size-one" "$size-shared")
baselines=("$size-one")
if [ "$size" = gpu ]; then
  names+=(gpu-slice gpu-mixture)
  baselines+=(gpu-slice)
fi
for name in "${names[@]}"; do
  echo "== shardplan run $name" >&2
  "$shardplan" estimate "$out/plans/$name.json" --json > "$out/$name.estimate.json" || true
  "$shardplan" run "$out/plans/$name.json" --json --runs "$out/runs" --ranks-per-gpu 4 > "$out/$name.json"
done
echo "== shardplan verify" >&2
"$shardplan" verify "$out/plans/verify.json" --json --ranks-per-gpu 4 > "$out/verify.json"
for name in "${baselines[@]}"; do
  for mode in eager compile; do
    echo "== PyTorch, $mode, $name" >&2
    "$python" "$here/baseline.py" "$out/plans/$name.json" "$mode" > "$out/$name.$mode.json"
  done
done
"$python" "$here/summary.py" "$out" "${names[@]}" | tee "$out/summary.txt"
