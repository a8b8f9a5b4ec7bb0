#!/usr/bin/env bash
# Compound routing, with surrogates and gates fitted at once and one after the other, and the
# allocator, the program as a whole: on 1 and 2 ranks the same plans, given the same surrogates and gates; chosen plans keep to their budgets; a second run does nothing.
#   allocate.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 900 13

try() { # RANKS JOB OUT [SETTING...]
  run_job "$1" "$2" "$3" protocol.kind=stream "ranges.gates.tokens=[9000,11000]" fit.sequential=true \
    gate.kinds='"linear"' sweep.routed="([2,3],[1,4,5])" sweep.divergence=false \
    "allocate.budgets=[2,8]" "allocate.thresholds=[0.5]" allocate.shortlist=3 "${@:4}"
}

run() {
  try "$@" || { cat "$3.log" >&2; fail "$2 on $1 ranks"; }
}

expect() { # PATTERN FILE WHAT
  grep -Eq "$1" "$2" || { cat "$2" >&2; fail "$3"; }
}

one=$work/one two=$work/two
for job in tokenize fit gate sweep allocate; do
  run 1 "$job" "$one"
  cp "$one.log" "$work/$job.log"
done
expect 'sum of' "$work/sweep.log" "no sums of single costs"
expect '^2,3 +linear' "$work/sweep.log" "no routed set"
expect '^layers  sum of single' "$work/sweep.log" "no comparison with sequential surrogates"
expect '^surrogates and gates fitted on the untouched model, and sequentially' "$work/sweep.log" "nor with sequential gates"
# The last table: both sets, measured both ways, which differ.
sed -n '/^surrogates and gates fitted/,$p' "$work/sweep.log" | awk '$1 == "2,3" || $1 == "1,4,5" {
    n++; bad += $3 == $6 || $6 == "-" || $(NF - 1) <= 0 || $NF <= 0 || $NF > 100 } END { exit bad > 0 || n != 2 }' ||
  { cat "$work/sweep.log" >&2; fail "sets with sequential gates"; }
run 1 gate "$one"
[ "$(grep -c 'gates: .*/gates.routed-[01]-[12].h5 is complete for these inputs; skipped' "$one.log")" -eq 3 ] ||
  { cat "$one.log" >&2; fail "sequential gates are fitted again"; }
run 1 sweep "$one" sweep.routed="([2,3],[1,5,4])"
grep -q 'has no sequential gates of these inputs' "$one.log" && fail "a set in another order is another set"
try 1 sweep "$one" sweep.routed="([2,4],[1,4,5])" && fail "gates of another set are used"
expect 'is of another set of layers; run the job gate again' "$one.log" "no word of another set"
expect 'Pareto front' "$work/allocate.log" "no front"
expect 'chosen there, reported on evaluation' "$work/allocate.log" "no report"

# Every line of the report: budget, saved, saved without head, delta on validation.
awk '/^budget/ { table = 1 } table && $1 ~ /^[0-9.]+$/ { n++; bad += $4 > $1 }
  END { exit bad > 0 || n != 2 }' "$work/allocate.log" || { cat "$work/allocate.log" >&2; fail "a budget is not kept"; }

run 1 allocate "$one"
expect 'allocation.h5 is complete for these inputs; skipped' "$one.log" "a second run did something"
tables_of "$one.log" | sed -n '/plans measured/,$p' >"$work/again"
tables_of "$work/allocate.log" | sed -n '/plans measured/,$p' >"$work/first"
cmp "$work/first" "$work/again" || fail "a second run says something else"

cp -r "$one" "$two"
rm -f "$two"/allocation.h5 "$two"/losses.allocation.h5
run 2 allocate "$two"
for data in /plans /options /budgets; do
  h5diff "$one/allocation.h5" "$two/allocation.h5" $data || fail "$data on 2 ranks"
done
h5diff "$one/losses.allocation.h5" "$two/losses.allocation.h5" /nll || fail "losses on 2 ranks"

run_job 1 sweep "$one" protocol.kind=stream "ranges.gates.tokens=[9000,11000]" \
  sweep.routed="([1,77])" && fail "layer 77 is accepted"
expect 'sweep.routed: layer 77 does not exist' "$one.log" "no word of layer 77"
echo "sets are routed, budgets kept, ranks agree"
