#!/usr/bin/env bash
# The program on 1, 2, 3 and 4 ranks: tokens.h5 equal byte for byte; given the same surrogates,
# sweep.h5's data equal bit for bit; a second run does nothing.
#   ranks.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see, for its files)
set -euo pipefail
program=$1 mpiexec=$2 model=$3
memory=$([ -w /dev/shm ] && echo /dev/shm || echo /tmp) # syncs at once
work=$(mktemp -d -p "${WM_TEST_WORK:-$memory}")
trap 'rm -rf -- "$work"' EXIT

fail() {
  echo "FAILED: $*" >&2
  exit 1
}

for i in $(seq 600); do
  echo "Line $i of a text in which the $((i * 7919 % 101)) wise men of number $((i * 31 % 17)) walked; who counts them?"
  [ $((i % 13)) -ne 0 ] || echo
done >"$work/text.txt"

run() { # RANKS JOB OUT [SETTING...]
  local ranks=$1 job=$2 out=$3
  shift 3
  "$mpiexec" -n "$ranks" "$program" "$job" model.path="$model" corpora.main.path="$work/text.txt" \
    output.dir="$out" protocol.window=64 protocol.kind="$kind" ranges.fit.tokens=[0,4000] \
    ranges.validation.tokens=[4000,6000] ranges.evaluation.tokens=[7000,9000] \
    compute.block_tokens=300 sweep.joint="([1,2,3],[0,5])" bootstrap.resamples=500 "$@" \
    >"$out.log" 2>&1 || { cat "$out.log" >&2; fail "$job on $ranks ranks ($kind)"; }
}

for kind in documents stream; do
  one=$work/$kind.1
  run 1 run "$one"
  run 1 run "$one"
  [ "$(grep -c 'complete for these inputs; skipped' "$one.log")" -eq 3 ] || fail "a second run did something"
  for ranks in 2 3 4; do
    out=$work/$kind.$ranks
    run "$ranks" run "$out"
    cmp "$one/tokens.main.$kind.h5" "$out/tokens.main.$kind.h5" || fail "tokens on $ranks ranks"
    # That surrogates agree to rounding is test_measure_pipeline's business.
    cp "$one/surrogates.h5" "$out/surrogates.h5"
    rm "$out/sweep.h5"
    run "$ranks" sweep "$out"
    for data in /nll /variants /tokens /blocks; do
      h5diff "$one/sweep.h5" "$out/sweep.h5" $data || fail "$data on $ranks ranks ($kind)"
    done
  done
done
echo "1, 2, 3 and 4 ranks agree"
