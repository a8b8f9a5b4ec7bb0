#!/usr/bin/env bash
# One stage inside a Slurm job; submit.sh writes the script that calls it.
#   stage.sh WANAMAKER JOB CONFIG [KEY=VALUE...]
# From the environment: WM_STUDY (directory), WM_LABEL, WM_STAGE, WM_LAUNCHER (srun, mpirun), WM_MPI,
# WM_SETUP, WM_ATTEMPTS. It starts the ranks, hands Slurm's signals on to them, and decides what the end means:
#
#   0                done
#   75               stopped on request (time limit, scancel --signal, preemption): queued again
#   2, 3, 5          the configuration, an input or the numbers are at fault: the job fails, and what waits for it
#   anything else    the machine is (a killed rank, a lost node, a full disk): queued again, WM_ATTEMPTS times
#
# WM_STUDY/LABEL.STAGE.state has a line for each event: seconds since 1970, event, and what belongs to it.
set -uo pipefail
state=$WM_STUDY/$WM_LABEL.$WM_STAGE.state

# A file system that takes nothing now may do so again in a minute: what is not noted is not counted.
note() { # EVENT [TEXT]
  local _
  for _ in $(seq 30); do
    { printf '%s\t%s\t%s\n' "$(date +%s)" "$1" "${2:-}" >>"$state"; } 2>/dev/null && return
    sleep 2
  done
  echo "== $state cannot be written: $1 ${2:-} is not noted ==" >&2
}

# shellcheck disable=SC1090
[ -z "${WM_SETUP:-}" ] || source "$WM_SETUP"

if [ "$(id -u)" -eq 0 ]; then
  export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
case $WM_LAUNCHER in
srun)
  # -K1: a dead rank ends the others at once. srun does not inherit --cpus-per-task everywhere.
  launcher=(srun -K1 "--cpus-per-task=${SLURM_CPUS_PER_TASK:-1}")
  [ -z "${WM_MPI:-}" ] || launcher+=("--mpi=$WM_MPI")
  ;;
*)
  launcher=(mpirun --bind-to none)
  ;;
esac

note start "job ${SLURM_JOB_ID:-?}, restart ${SLURM_RESTART_COUNT:-0}, on ${SLURM_JOB_NODELIST:-?}"
echo "== $WM_LABEL.$WM_STAGE: job ${SLURM_JOB_ID:-?}, restart ${SLURM_RESTART_COUNT:-0}, $(date '+%F %T') =="

# Both launchers hand USR1 to every rank. On TERM mpirun would kill its ranks a second later, before they have written.
asked=0
ask() {
  asked=1 interrupted=1
  kill -USR1 "$child" 2>/dev/null
  note asked "$1"
}
child=0 interrupted=0
trap 'ask "SIGUSR1"' USR1
trap 'ask "SIGTERM"' TERM
"${launcher[@]}" "$@" &
child=$!
while :; do # a trap ends wait before the child does
  interrupted=0
  wait "$child"
  code=$?
  [ $interrupted -eq 1 ] && [ $code -gt 128 ] || break
done
trap '' USR1
trap - TERM

again() { # WHY
  # A job that was cancelled stays so: scontrol would queue even that again.
  if scontrol show job "${SLURM_JOB_ID:-}" 2>/dev/null | grep 'JobState=CANCELLED' >/dev/null; then
    note failed "cancelled"
    exit "$code"
  fi
  note again "$1"
  echo "== queued again: $1 =="
  # Slurm ends this script. Where it refuses, it is requeuing a preempted job already, or the job is gone.
  scontrol requeue "$SLURM_JOB_ID" && sleep 60
  exit "$code"
}

case $code in
0)
  note "done"
  exit 0
  ;;
75) again "stopped on request, all that was done is kept" ;;
2 | 3 | 5)
  note failed "exit code $code"
  exit "$code"
  ;;
esac
[ $asked -eq 0 ] || again "exit code $code after a request to stop"
faults=$(grep -c $'\tfault\t' "$state" 2>/dev/null)
if [ "${faults:-0}" -ge "${WM_ATTEMPTS:-5}" ]; then
  note failed "exit code $code, after $faults attempts"
  exit "$code"
fi
note fault "exit code $code"
again "exit code $code"
