#!/usr/bin/env bash
# Runs Shardplan's executor on this machine, and PyTorch on the same shapes beside it. Needs a python3 with torch 2.11;
# no Rust, no network.
#
#   ./run.sh            a model for one large GPU
#   ./run.sh --small    a model for a few seconds on a CPU
#
# PYTHON names the Python, OUT the folder of results.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
out=${OUT:-$here/results}
size=gpu
if [ "${1:-}" = --small ]; then size=small; fi

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
for name in "$size-one" "$size-shared"; do
  echo "== shardplan run $name" >&2
  "$shardplan" run "$here/plans/$name.json" --json --runs "$out/runs" --ranks-per-gpu 4 > "$out/$name.json"
done
echo "== shardplan verify" >&2
"$shardplan" verify "$here/plans/verify.json" --json --ranks-per-gpu 4 > "$out/verify.json"
for mode in eager compile; do
  echo "== PyTorch, $mode" >&2
  "$python" "$here/baseline.py" "$here/plans/$size-one.json" "$mode" > "$out/baseline-$mode.json"
done
"$python" "$here/summary.py" "$out" "$size" | tee "$out/summary.txt"
