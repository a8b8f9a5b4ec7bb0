#!/usr/bin/env bash
# The plan against the clock: for each model a short bench, the plan that takes its rates from it, and the stages as they
# run, on two ranks of one thread: fit, sweep, gates of two kinds of configurations (without and with sets of layers that
# are made one after another), fine-tuning of two plans. Every stage is to be within a quarter of its plan, or within half
# a second: starting MPI is not planned. Somebody else at work makes a stage slower, never quicker: it is measured up to
# three times, its shortest time counts, and the truth lies between what a rank's processor was busy for it and the clock,
# which on a quiet machine are nearly the same.
#   plan_times.sh WANAMAKER MPIEXEC MODEL_DIR...     a directory, or gpt2: its shape with random weights, fewer tokens,
#                                                    fit and sweep alone
set -euo pipefail
program=$1 mpiexec=$2
shift 2
cd "$(dirname "$0")/../.."
work=$(mktemp -d -p "${WM_TEST_WORK:-/tmp}")
trap 'rm -rf -- "$work"' EXIT
export OMP_NUM_THREADS=1
[ "$(id -u)" -ne 0 ] || export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
tries=3 off=0

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

# Of the clock, and of the processor for each of two ranks.
seconds_of() { # COMMAND...
  local TIMEFORMAT='%R %U %S'
  { time "$@" 2>&3; } 3>&2 2>"$work/time"
  awk '{ print $1, ($2 + $3) / 2 }' "$work/time"
}

is_within() { # PLANNED CLOCK PROCESSOR
  awk -v p="$1" -v c="$2" -v b="$3" 'BEGIN { exit !(p >= 0.75 * (b < c ? b : c) && (p <= 1.25 * c || p - c <= 0.5)) }'
}

# Stages of a configuration, in $settings, one after another. Before a repetition what was there before the stage is put
# back, so that nothing is skipped.
compare() { # NAME STAGES
  local name=$1 out=$work/out stage planned measured processor seconds spent i
  rm -rf "$out"
  "$program" plan "${settings[@]}" output.dir="$out" plan.print=stages plan.bench="$work/bench/bench.h5" plan.cores=2 \
    plan.ranks=2 plan.threads=1 plan.stages="$2" >"$work/plan"
  ranks tokenize "${settings[@]}" output.dir="$out"
  for stage in $2; do
    planned=$(awk -F '\t' -v s="$stage" '$2 == s { print $8 }' "$work/plan")
    measured=
    rm -rf "$work/before"
    cp -r "$out" "$work/before"
    for ((i = 0; i < tries; i++)); do
      rm -rf "$out"
      cp -r "$work/before" "$out"
      read -r seconds spent < <(seconds_of ranks "$stage" "${settings[@]}" output.dir="$out")
      if [ -z "$measured" ] || awk "BEGIN { exit !($seconds < $measured) }"; then
        measured=$seconds processor=$spent
      fi
      ! is_within "$planned" "$measured" "$processor" || break
    done
    printf '%-14s %-22s %-9s %8.1fs %8.1fs %8.1fs %7.2f\n' "$model_name" "$name" "$stage" "$planned" "$measured" \
      "$processor" "$(awk "BEGIN { print $planned / $measured }")"
    is_within "$planned" "$measured" "$processor" || off=$((off + 1))
  done
}

make_text
printf '%-14s %-22s %-9s %9s %9s %9s %7s\n' model configuration stage planned measured processor ratio
for model in "$@"; do
  model_name=$(basename "$model")
  [ "$model" != gpt2 ] || {
    make_gpt2
    model=$work/gpt2
  }
  rm -rf "$work/bench"
  ranks bench bench.config="$model" bench.parts="fit sweep" bench.windows=2 bench.repeat=3 bench.seconds=8 \
    output.dir="$work/bench"
  common=(configs/demo.cfg "sweep.joint=()" "corpora.demo.path=$work/text.txt" model.path="$model" report.enabled=false)
  if [ "$model_name" = gpt2 ]; then
    settings=("${common[@]}" "ranges.fit.tokens=[0,6144]" "ranges.validation.tokens=[6144,8192]"
      "ranges.evaluation.tokens=[8192,12288]")
    compare "every layer" "fit sweep"
    continue
  fi
  settings=("${common[@]}")
  compare "every layer" "fit sweep"
  gates=("${common[@]}" gate.enabled=true "ranges.gates.tokens=[10000,20000]" "ranges.evaluation.tokens=[50000,60000]")
  settings=("${gates[@]}" protocol.kind=documents bootstrap.unit=line "gate.kinds=linear pca norm random oracle"
    "gate.curve_kinds=all" "gate.thresholds=[0.4,0.6]")
  compare "gates, curves" "fit gate sweep"
  settings=("${gates[@]}" "gate.kinds=linear component max_abs" "gate.curve_kinds=" fit.sequential=true
    bootstrap.unpaired=true "sweep.joint=([2,3,4])" "sweep.routed=([2,3],[2,3,4,5])")
  compare "gates, one by one" "fit gate sweep"
  training=("${common[@]}" "finetune.tokens=[10000,35000]" "finetune.layers=[2,3,4,5]"
    "ranges.evaluation.tokens=[50000,60000]")
  settings=("${training[@]}" finetune.steps=40 finetune.length=128 finetune.sequences=4 finetune.evaluate_every=20)
  compare "linear" finetune
  settings=("${training[@]}" finetune.plan=two_phase finetune.steps=16 finetune.gate_steps=16 finetune.length=256
    finetune.sequences=3 finetune.evaluate_every=0)
  compare "two phases" finetune
done
[ $off -eq 0 ] || fail "$off of the plan's times are off by more than a quarter"
