# shellcheck shell=bash
# The start that tests of the whole program share; sourced with a test's arguments
#   WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see, for its files)
# It gives $program, $mpiexec, $model, a directory $work that goes when the test ends, and the
# functions below.
set -euo pipefail
program=$1 mpiexec=$2 model=$3
memory=$([ -w /dev/shm ] && echo /dev/shm || echo /tmp) # syncs at once
work=$(mktemp -d -p "${WM_TEST_WORK:-$memory}")
trap 'rm -rf -- "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

# The text that run_job reads: COUNT lines, a blank one after every BLANK of them (0: none).
make_text() { # COUNT BLANK
  local i
  for i in $(seq "$1"); do
    echo "Line $i of a text in which the $((i * 7919 % 101)) wise men of number $((i * 31 % 17)) walked; who counts them?"
    [ "$2" -eq 0 ] || [ $((i % $2)) -ne 0 ] || echo
  done >"$work/text.txt"
}

# What a log says without its messages, which begin with the time: they are a stream of their own, and
# a launcher may pass them on after tables that they came before.
tables_of() { # LOG
  grep -Ev '^[0-9]{2}:[0-9]{2}:[0-9]{2} ' "$1"
}

# A job on that text; its log is OUT.log, its exit code the program's.
run_job() { # RANKS JOB OUT [SETTING...]
  local ranks=$1 job=$2 out=$3
  shift 3
  "$mpiexec" -n "$ranks" "$program" "$job" model.path="$model" corpora.main.path="$work/text.txt" \
    output.dir="$out" protocol.window=64 ranges.fit.tokens=[0,4000] \
    ranges.validation.tokens=[4000,6000] ranges.evaluation.tokens=[7000,9000] \
    compute.block_tokens=300 sweep.joint="([1,2,3],[0,5])" bootstrap.resamples=500 "$@" \
    >"$out.log" 2>&1
}
