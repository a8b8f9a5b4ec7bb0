#!/usr/bin/env bash
# What must hold on two nodes (two_nodes.sh): the queue's tests over a network, with the latency of a fetch beside a
# busy owner; sums of gradients and training steps; equal results for any number of ranks; a node that is cut off ends
# the run, and its ranks, in time.
#   check.sh BUILD_DIR
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$(realpath "$1")
nodes=$here/two_nodes.sh
limit=4 # seconds of the watchdog
export OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1
export SLURM_KILL_BAD_EXIT=1 SLURM_DISTRIBUTION=cyclic SLURM_SPREAD_JOB=1 # srun's -K1 -m --spread-job

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

for ranks in 2 4; do
  echo "== queue, $ranks ranks on two nodes =="
  bash "$nodes" srun -N2 -n "$ranks" "$build/tests/test_par_queue" 2>&1 | tee "$build/two_nodes.log" |
    grep -E '^rank|rank [0-9]+:' || true
  [ "$(grep -c 'PASSED.* 8 test' "$build/two_nodes.log")" -eq "$ranks" ] || fail "queue on $ranks ranks"
done

echo "== parts of a sweep and of a fit =="
WM_TEST_WORK=$build WM_TEST_DATA=$here/../data bash "$nodes" srun -N2 -n3 \
  "$build/tests/test_measure_parts" 2>&1 | tee "$build/two_nodes.log" | grep -E 'FAILED|kept|runs;' || true
[ "$(grep -c '  PASSED  ' "$build/two_nodes.log")" -eq 3 ] && ! grep -q FAILED "$build/two_nodes.log" || fail "parts"

for ranks in 3 4; do
  for what in par_shards train_trainer; do
    echo "== $what, $ranks ranks on two nodes =="
    (cd "$build" && WM_TEST_DATA=$here/../data bash "$nodes" srun -N2 -n "$ranks" "$build/tests/test_$what") 2>&1 |
      tee "$build/two_nodes.log" | grep -E 'FAILED|rank [0-9]+:' || true
    [ "$(grep -c '  PASSED  ' "$build/two_nodes.log")" -eq "$ranks" ] && ! grep -q FAILED "$build/two_nodes.log" ||
      fail "$what on $ranks ranks"
  done
done

echo "== the program =="
mkdir -p "$build/two_nodes"
WM_TEST_WORK=$build/two_nodes bash "$nodes" bash "$here/../mpi/ranks.sh" "$build/wanamaker" srun \
  "$here/../data/demo_gpt2"

echo "== a node is cut off =="
# Its own ranks can tell nobody; they are to be gone within the limit and MPI_Abort's five seconds too.
# shellcheck disable=SC2016
bash "$nodes" bash -c '
  srun -N2 -n4 "$1" "$2" steps >/dev/null &
  sleep 5
  ip link set n1 down
  start=$(date +%s)
  code=0
  wait $! || code=$?
  left=$(pgrep -c -x watchdog_tool || true)
  echo "srun: exit $code after $(($(date +%s) - start)) s, $left ranks left"
  [ "$code" -eq 74 ] && [ "$left" -eq 0 ]' - "$build/tests/watchdog_tool" "$limit" || fail "a lost node"
echo "two nodes: all well"
