#!/bin/bash
# Stands in for `uv`, `python`, `numactl` and `apptainer` in scripts under test: writes down how it was called, then does as little
# as they would to call the next.
#
# STUB_RECORDS   folder for records, one file a call: NAME=VALUE with a zero byte after each
# STUB_FAIL      `sync`: `uv sync` fails with 3; a number: the training process of that rank fails with 7
# STUB_KILLED    a number: the training process of that rank is killed, as by the kernel when memory is short
# STUB_SECONDS   how long each training process takes; 0
# STUB_SAVES     rank 0 saves and resumes as Megatron Bridge does
# STUB_ENVIRONMENT  folder that `uv sync` makes the environment in, without which no training process starts
# STUB_TRAINER   the program (trainer.py) that trains in place of the frameworks'
set -eu
program=${0##*/}

file=$(mktemp "$STUB_RECORDS/.XXXXXXXX")
{
  printf 'program=%s\0folder=%s\0host=%s\0' "$program" "$PWD" "$(hostname)"
  for argument; do
    printf 'argument=%s\0' "$argument"
  done
  env -0 | sed -z 's/^/env:/'
} > "$file"
# Nodes share one clock here, so names sort by the time of the call.
mv "$file" "$STUB_RECORDS/$(date +%s%N)-$program-$$"

if [ "$program" = uv ]; then
  case ${1-} in
    sync)
      [ "${STUB_FAIL-}" != sync ] || exit 3
      [ -z "${STUB_ENVIRONMENT-}" ] || touch "$STUB_ENVIRONMENT/synced"
      exit 0
      ;;
    run)
      shift
      while [ "${1#--}" != "$1" ]; do
        shift
      done
      exec "$@"
      ;;
  esac
  exit 64
fi

if [ "$program" = numactl ]; then
  while [ "${1#--}" != "$1" ]; do
    shift
  done
  exec "$@"
fi

if [ "$program" = apptainer ]; then
  [ "${1-}" = exec ] || exit 64
  shift
  while [ "${1#--}" != "$1" ]; do
    [ "$1" != --bind ] || shift
    shift
  done
  # The image.
  shift
  exec "$@"
fi

if [ "${1-} ${2-}" = "-m torch.distributed.run" ]; then
  shift 2
  nproc=1 nnodes=1 node=0 python=python
  export MASTER_ADDR=localhost MASTER_PORT=29500
  while [ "${1#--}" != "$1" ]; do
    case $1 in
      --nproc_per_node=*) nproc=${1#*=} ;;
      --nnodes=*) nnodes=${1#*=} ;;
      --node_rank=*) node=${1#*=} ;;
      --master_addr=*) MASTER_ADDR=${1#*=} ;;
      --master_port=*) MASTER_PORT=${1#*=} ;;
      --no-python) python= ;;
      --standalone) ;;
      *) echo "no such option of torch.distributed.run: $1" >&2; exit 2 ;;
    esac
    shift
  done
  children=()
  for ((local = 0; local < nproc; local++)); do
    RANK=$((node * nproc + local)) LOCAL_RANK=$local WORLD_SIZE=$((nnodes * nproc)) $python "$@" &
    children+=($!)
  done
  # The first that fails ends the others, and is torchrun's own status here.
  status=0
  for child in "${children[@]}"; do
    wait -n || {
      status=$?
      kill "${children[@]}" 2> /dev/null || true
      # torchrun waits 30 s for those that handle it.
      sleep 1
      kill -KILL "${children[@]}" 2> /dev/null || true
      break
    }
  done
  exit $status
fi

if [ -n "${STUB_ENVIRONMENT-}" ] && [ ! -e "$STUB_ENVIRONMENT/synced" ]; then
  echo "ModuleNotFoundError: No module named 'megatron'" >&2
  exit 1
fi
if [ -n "${STUB_TRAINER-}" ]; then
  exec python3 "$STUB_TRAINER" "$@"
fi

rank=${RANK-${SLURM_PROCID-0}}
[ "${STUB_FAIL-}" != "$rank" ] || exit 7
[ "${STUB_KILLED-}" != "$rank" ] || kill -KILL $$

# Where a recipe saves, resumes and logs, and which signal it handles: unless it is told otherwise, what Bridge does.
save=nemo_experiments/default/checkpoints load=nemo_experiments/default/checkpoints logs=nemo_experiments/default/tb_logs
handles='' signal=15
for argument; do
  value=${argument#*=}
  # Hydra takes the quotes away.
  value=${value#\'} value=${value%\'}
  case $argument in
    checkpoint.save=*) save=$value ;;
    checkpoint.load=*) load=$value ;;
    logger.tensorboard_dir=*) logs=$value ;;
    train.exit_signal_handler=true) handles=yes ;;
    train.exit_signal=*) signal=$value ;;
  esac
done
if [ -n "${STUB_SAVES-}" ] && [ "$rank" = 0 ]; then
  step=0
  [ ! -e "$load/latest" ] || step=$(cat "$load/latest")
  echo "resumes from step $step"
  mkdir -p "$save" "$logs"
  echo "step $((step + 1))" >> "$logs/events"
  echo $((step + 1)) > "$save/latest"
  echo "has saved step $((step + 1))"
fi
echo "iteration 1/ 1 | lm loss: 1.5"
if [ -n "$handles" ]; then
  trap 'echo "rank $rank saves on signal $signal"; exit 0' "$signal"
  # bash runs a trap between commands. Slurm signals every process of a step, sleep too, which may be gone before the trap runs.
  end=$((SECONDS + ${STUB_SECONDS-0}))
  while [ "$SECONDS" -lt "$end" ]; do
    sleep 0.2 || true
  done
else
  exec sleep "${STUB_SECONDS-0}"
fi
