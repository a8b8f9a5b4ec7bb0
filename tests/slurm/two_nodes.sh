#!/usr/bin/env bash
# Two Slurm nodes on one host, for what a single one can't show: traffic that crosses a network, memory
# that is not shared, a lost node. Runs COMMAND beside their controller and takes all down again.
#
#   two_nodes.sh COMMAND [ARG...]
#   two_nodes.sh srun -N2 --ntasks-per-node=2 -K1 --mpi=pmix PROGRAM ...
#   two_nodes.sh bash -c 'srun -N2 -n2 -K1 --mpi=pmix PROGRAM & sleep 5; ip link set n1 down; wait %1'
#
# Needs root and (Debian) slurm-wlm munge iproute2. Everything lives in namespaces of its own, so that several can
# run at once and nothing outlives the script:
#
#   here: processes, mounts, network  -+- munged, slurmctld, COMMAND   10.77.0.1, bridge "nodes"
#                                      +- n0: network, mounts, host name, IPC; slurmd   10.77.0.10
#                                      +- n1: the same                                  10.77.0.11
#
# A node has a /dev/shm, a TMPDIR and a host name of its own and shares the file system; "ip link set n1 down" in
# COMMAND cuts it off. A node offers 8 CPUs, whatever the host has; jobs of the partition "urgent" preempt those of "main". WM_NODES_LOG names a directory to keep logs in.
set -euo pipefail

die() {
  echo "two_nodes.sh: $*" >&2
  exit 4
}

# --- outside: enter the namespaces --------------------------------------------------------------------------------

if [ -z "${WM_NODES_DIR:-}" ]; then
  [ $# -gt 0 ] || die "a command is missing"
  [ "$(id -u)" -eq 0 ] || die "needs root"
  for tool in slurmctld slurmd srun munged ip unshare; do
    command -v "$tool" >/dev/null || die "$tool is missing (packages slurm-wlm, munge, iproute2)"
  done
  WM_NODES_DIR=$(mktemp -d)
  export WM_NODES_DIR
  chmod 755 "$WM_NODES_DIR"
  code=0
  # The first process of the namespace takes all others along when it ends.
  unshare --net --mount --ipc --pid --fork --kill-child --mount-proc bash "$0" "$@" || code=$?
  if [ -n "${WM_NODES_LOG:-}" ]; then
    mkdir -p "$WM_NODES_LOG"
    cp "$WM_NODES_DIR"/*.log "$WM_NODES_LOG"
  fi
  rm -rf -- "$WM_NODES_DIR"
  exit "$code"
fi

dir=$WM_NODES_DIR

# --- a node: started by "two_nodes.sh --node I" in its namespaces -------------------------------------------------

if [ "${1:-}" = --node ]; then
  name=n$2
  hostname "$name"
  mount -t tmpfs tmpfs /dev/shm
  export TMPDIR=$dir/$name/tmp
  for _ in $(seq 100); do # until the network card is handed in
    ! ip link show eth0 >/dev/null 2>&1 || break
    sleep 0.1
  done
  ip link set lo up
  ip addr add "10.77.0.1$2/24" dev eth0
  ip link set eth0 up
  exec slurmd -D -N "$name" -f "$dir/slurm.conf"
fi

# --- inside: network, daemons, the command ------------------------------------------------------------------------

pids=()

# Daemons that wait for each other (slurmd for a step whose controller has gone) end with the namespace.
finish() {
  local _
  kill "${pids[@]}" 2>/dev/null || true
  for _ in $(seq 20); do
    kill -0 "${pids[@]}" 2>/dev/null || break
    sleep 0.1
  done
}

write_files() {
  mkdir -p "$dir/state" "$dir/n0/tmp" "$dir/n0/spool" "$dir/n1/tmp" "$dir/n1/spool"
  printf '127.0.0.1 localhost\n10.77.0.1 %s\n10.77.0.10 n0\n10.77.0.11 n1\n' "$(hostname -s)" >"$dir/hosts"
  dd if=/dev/urandom of="$dir/munge.key" bs=128 count=1 status=none
  chmod 400 "$dir/munge.key"
  cat >"$dir/slurm.conf" <<CONF
ClusterName=two
SlurmctldHost=$(hostname -s)(10.77.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$dir/munge.socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SchedulerParameters=sched_interval=5,bf_interval=5
KillWait=5
MpiDefault=pmix
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
StateSaveLocation=$dir/state
SlurmdSpoolDir=$dir/%n/spool
SlurmctldPidFile=$dir/slurmctld.pid
SlurmdPidFile=$dir/%n/slurmd.pid
SlurmctldLogFile=$dir/slurmctld.log
SlurmdLogFile=$dir/%n.log
TmpFS=$dir/%n/tmp
NodeName=n0 NodeAddr=10.77.0.10 NodeHostname=n0 CPUs=8
NodeName=n1 NodeAddr=10.77.0.11 NodeHostname=n1 CPUs=8
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityTier=1
PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=10
CONF
}

start_network() {
  mount --bind "$dir/hosts" /etc/hosts
  ip link set lo up
  ip link add nodes type bridge
  ip addr add 10.77.0.1/24 dev nodes
  ip link set nodes up
}

start_node() {
  local name=n$1
  unshare --net --mount --uts --ipc bash "$0" --node "$1" >"$dir/$name.out.log" 2>&1 &
  pids+=($!)
  ip link add "$name" type veth peer name eth0
  while [ "$(readlink "/proc/$!/ns/net")" = "$(readlink /proc/self/ns/net)" ]; do
    sleep 0.02
  done
  ip link set eth0 netns "$!"
  ip link set "$name" master nodes
  ip link set "$name" up
}

start_daemons() {
  munged --force --foreground --key-file="$dir/munge.key" --socket="$dir/munge.socket" \
    --pid-file="$dir/munged.pid" --seed-file="$dir/munged.seed" >"$dir/munged.log" 2>&1 &
  pids+=($!)
  slurmctld -D -f "$dir/slurm.conf" >"$dir/slurmctld.out.log" 2>&1 &
  pids+=($!)
  start_node 0
  start_node 1
}

wait_for_nodes() {
  for _ in $(seq 300); do
    [ "$(sinfo -h -t idle -o %D 2>/dev/null | head -n 1)" != 2 ] || return 0
    sleep 0.1
  done
  tail -n 20 "$dir"/*.log >&2
  die "the nodes did not come up"
}

trap finish EXIT
write_files
export SLURM_CONF=$dir/slurm.conf
start_network
start_daemons
wait_for_nodes
# Between the nodes Open MPI finds no other way than TCP over the bridge; it must not try the loopback.
export OMPI_MCA_btl_tcp_if_include=10.77.0.0/24
code=0
"$@" || code=$?
exit "$code"
