#!/bin/bash
# The login node of the test cluster: controller, munge, the network that the compute nodes hang on.
#
# Process 1 of a PID namespace, with network, host name and mounts of its own: when it ends, however it ends, the
# kernel ends everything in the cluster and takes the network away. It ends when its input does, which is when the test
# that started it is gone.
#
# Usage: login.sh FOLDER, with lines on its input, each answered by a line:
#   start NAME ADDRESS   a compute node comes up; answered when it takes orders
#   lose NAME            its cable is cut and everything on it is gone, without a word to anybody
set -eu
folder=$1
here=$(dirname "$0")

hostname login
mount --bind "$folder/hosts" /etc/hosts
# Slurm's PMIx plugin opens libpmix.so, a name that Debian has in libpmix-dev only.
pmix=/usr/lib/$(uname -m)-linux-gnu/pmix2/lib
if [ -e "$pmix/libpmix.so.2" ] && [ ! -e "$pmix/libpmix.so" ]; then
  cp -a "$pmix" "$folder/pmix"
  ln -s libpmix.so.2 "$folder/pmix/libpmix.so"
  mount --bind "$folder/pmix" "$pmix"
fi

ip link set lo up
ip link add name nodes type bridge
ip address add 10.77.0.1/24 dev nodes
ip link set nodes up

munged --foreground --force --key-file "$folder/munge.key" --socket "$folder/munge.socket" \
  --pid-file "$folder/munged.pid" --seed-file "$folder/munged.seed" --log-file "$folder/log/munged.log" \
  > /dev/null 2>&1 &
export SLURM_CONF=$folder/slurm.conf
slurmctld -D -i > /dev/null 2>&1 &

declare -A nodes

start() {
  local name=$1 address=$2 pid
  # Whatever a lost node was writing is gone with it, as with a disk that is wiped at the start.
  rm -rf "$folder/node/$name"
  mkdir -p "$folder/node/$name/spool" "$folder/node/$name/tmp"
  unshare --net --uts --pid --mount --fork --kill-child --mount-proc \
    bash "$here/node.sh" "$name" "$address" "$folder" > "$folder/log/$name.out" 2>&1 &
  pid=$!
  nodes[$name]=$pid
  until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do
    kill -0 $pid
    sleep 0.02
  done
  # Its card has the address that it had before it was lost: others still send to that one.
  ip link add name "$name" type veth peer name eth0 address "02:00:00:00:00:${address##*.}" netns $pid
  ip link set "$name" master nodes up
  # The controller may not have noticed that the node was away, and would at once start jobs on it. 6818: slurmd's port.
  until (: < "/dev/tcp/$address/6818") 2> /dev/null; do
    kill -0 $pid
    sleep 0.02
  done
}

lose() {
  local name=$1 pid init
  pid=${nodes[$name]}
  ip link set "$name" down
  for init in $(cat /proc/$pid/task/$pid/children); do
    kill -KILL "$init"
  done
  wait "$pid" || true
  ip link delete "$name" 2> /dev/null || true
  unset "nodes[$name]"
}

echo ready
while read -r order name address; do
  case $order in
    start) start "$name" "$address" ;;
    lose) lose "$name" ;;
    *) echo "login.sh knows no order $order" >&2; exit 1 ;;
  esac
  echo "done"
done

# Everything else in this PID namespace, then what it wrote.
kill -KILL -1 2> /dev/null || true
wait
rm -rf "$folder"
