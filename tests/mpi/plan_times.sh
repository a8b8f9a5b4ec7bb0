#!/usr/bin/env bash
# The plan against the clock: for each model a short bench, the plan that takes its rates from it, and fit and sweep as
# they run, on two ranks of one thread. Every stage is to be within a quarter of its plan, on a machine with nothing else
# to do.
#   plan_times.sh WANAMAKER MPIEXEC MODEL_DIR...     a directory, or gpt2: its shape with random weights, fewer tokens
set -euo pipefail
program=$1 mpiexec=$2
shift 2
cd "$(dirname "$0")/../.."
work=$(mktemp -d -p "${WM_TEST_WORK:-/tmp}")
trap 'rm -rf -- "$work"' EXIT
export OMP_NUM_THREADS=1

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

ranks() {
  "$mpiexec" -n 2 --bind-to none "$program" "$@" >"$work/log" 2>&1 || fail "$1: $(tail -n 20 "$work/log")"
}

make_text() {
  local i
  for i in $(seq 6000); do
    echo "Line $i of a text in which the $((i * 7919 % 101)) wise men of number $((i * 31 % 17)) walked; who counts them?"
  done >"$work/text.txt"
}

make_gpt2() {
  ranks bench bench.config=configs/models/gpt2.json bench.save="$work/gpt2" output.dir="$work/saved"
  cp tests/data/demo_gpt2/tokenizer.json "$work/gpt2/"
}

# Of the clock, and of the processor for each of two ranks: where these are far apart somebody else was at work.
seconds_of() { # COMMAND...
  local TIMEFORMAT='%R %U %S'
  { time "$@" 2>&3; } 3>&2 2>"$work/time"
  awk '{ print $1, ($2 + $3) / 2 }' "$work/time"
}

make_text
off=0
printf '%-14s %-6s %9s %9s %9s %7s\n' model stage planned measured processor ratio
for model in "$@"; do
  name=$(basename "$model")
  settings=(configs/demo.cfg "sweep.joint=()" "corpora.demo.path=$work/text.txt" output.dir="$work/$name" report.enabled=false)
  if [ "$model" = gpt2 ]; then
    make_gpt2
    model=$work/gpt2
    settings+=("ranges.fit.tokens=[0,6144]" "ranges.validation.tokens=[6144,8192]" "ranges.evaluation.tokens=[8192,12288]")
  fi
  settings+=(model.path="$model")
  ranks bench bench.config="$model" bench.parts="fit sweep" bench.windows=2 bench.repeat=3 bench.seconds=8 \
    output.dir="$work/bench.$name"
  "$program" plan "${settings[@]}" plan.print=stages plan.bench="$work/bench.$name/bench.h5" plan.cores=2 plan.ranks=2 \
    plan.threads=1 >"$work/plan"
  ranks tokenize "${settings[@]}"
  for stage in fit sweep; do
    planned=$(awk -F '\t' -v s=$stage '$2 == s { print $8 }' "$work/plan")
    read -r measured processor < <(seconds_of ranks $stage "${settings[@]}")
    printf '%-14s %-6s %8.1fs %8.1fs %8.1fs %7.2f\n' "$name" $stage "$planned" "$measured" "$processor" \
      "$(awk "BEGIN { print $planned / $measured }")"
    awk -v p="$planned" -v m="$measured" 'BEGIN { exit !(p < 0.75 * m || p > 1.25 * m) }' && off=$((off + 1))
  done
done
[ $off -eq 0 ] || fail "$off of the plan's times are off by more than a quarter"
