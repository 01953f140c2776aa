#!/usr/bin/env bash
# Runs Shardplan's executor on this machine, and PyTorch on the same shapes beside it. Needs a python3 with torch 2.11;
# no Rust, no network.
#
#   ./run.sh              all steps, the most valuable first, for one large GPU
#   ./run.sh --small      the same with models for a few seconds on a CPU
#   ./run.sh STEP...      these steps alone; results of others stay
#   ./run.sh --list       the steps
#   ./run.sh calibrate    probes that calibrate step times, and shapes that no probe has: only where it is named
#
# PYTHON names the Python, OUT the folder of results, BUDGET the seconds for all steps (540), LIMIT the most of any step,
# NCCL_LIBRARY an NCCL to check instead of torch's (with --small it is checked only where this names one), ROUNDS how often
# calibration runs each probe.
#
# A step that fails or hangs is recorded, and the next one goes on. What there is stands in OUT at any moment:
# steps.json, summary.txt, and for each step its output (STEP.json) and messages (STEP.err).
# Exits with 0 where every step passed, with 1 where one did not or was not reached, with 2 or 3 where nothing was begun.
set -u

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fits() { "$1" -c 'import torch, sys; sys.exit(not torch.__version__.startswith("2.11."))' 2>/dev/null; }
for candidate in ${PYTHON:+"$PYTHON"} python3 python; do
  if fits "$candidate"; then exec "$candidate" "$here/steps.py" "$@"; fi
done
echo "no python3 here has torch 2.11; name one that has it with PYTHON=/path/to/python3" >&2
exit 3
