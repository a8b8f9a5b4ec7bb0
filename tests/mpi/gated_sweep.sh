#!/usr/bin/env bash
# A sweep with gates on 1, 2 and 3 ranks: given the same surrogates and gates, sweep.h5's data equal
# bit for bit; stopped and resumed they do; gates of other inputs are left out in words.
#   gated_sweep.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 600 13

try() { # RANKS JOB OUT [SETTING...]
  run_job "$1" "$2" "$3" "ranges.evaluation.tokens=[8000,9000]" "ranges.gates.tokens=[6000,8000]" \
    "gate.kinds=linear norm random oracle" "gate.layers=[1,4]" "sweep.layers=[0,1,4]" "${@:4}"
}

run() {
  try "$@" || { cat "$3.log" >&2; fail "$2 on $1 ranks"; }
}

same() { # FILE FILE WHAT
  for data in /nll /variants /cells /changes /tokens /blocks; do
    h5diff "$1" "$2" $data || fail "$data: $3"
  done
}

one=$work/one
run 1 tokenize "$one"
run 1 fit "$one"
run 1 sweep "$one"
grep -q 'linear' "$one.log" && fail "gates before there are any"
mv "$one/sweep.h5" "$work/plain.h5"
run 1 gate "$one"
run 1 sweep "$one" "sweep.thresholds=[0.25,0.75]"
for gate in linear norm random oracle; do
  [ "$(grep -cE "^(1|4) +$gate" "$one.log")" -ge 2 ] || fail "no rows of $gate gates in the table"
done
[ "$(grep -cE '^4 +linear +0\.(25|5|75)0' "$one.log")" -eq 3 ] || fail "not at three thresholds"
grep -q 'beat the full model after Holm' "$one.log" || fail "no verdict"
run 1 sweep "$one" "sweep.thresholds=[0.25,0.75]"
grep -q 'complete for these inputs; skipped' "$one.log" || fail "a second run did something"
for ranks in 2 3; do
  out=$work/$ranks
  cp -r "$one" "$out"
  rm "$out/sweep.h5"
  run "$ranks" sweep "$out" "sweep.thresholds=[0.25,0.75]" sweep.group=3
  same "$one/sweep.h5" "$out/sweep.h5" "$ranks ranks"
done

# The losses of what is no gate are those of the sweep without gates.
run 1 sweep "$one" sweep.gates=false
h5diff "$work/plain.h5" "$one/sweep.h5" /nll || fail "sweep.gates = false"

# Kinds that are named, and words for those that do not exist.
run 1 sweep "$one" sweep.gate_kinds="norm"
grep -qE '^1 +norm' "$one.log" || fail "the named kind is missing"
grep -qE '^1 +(linear|oracle)' "$one.log" && fail "kinds that were not named"
try 1 sweep "$one" sweep.gate_kinds="circle" && fail "an unknown kind is accepted"
grep -q 'sweep.gate_kinds: "circle" is no kind of gate' "$one.log" || fail "unknown kind: words"

# Gates of another range are left out; one that shares tokens with the evaluation is refused.
run 1 sweep "$one" "ranges.gates.tokens=[6000,7900]"
grep -q 'the gates of .*gates.h5 are left out' "$one.log" || fail "gates of another range are used"
try 1 sweep "$one" "ranges.evaluation.tokens=[7000,9000]" &&
  fail "gates and evaluation overlap"
grep -q 'allow_overlap' "$one.log" || fail "overlap: words"
# The study's selection needs no validation range, and is labelled; the other one does.
none=$work/none
without=(ranges.preset=study_paper "ranges.validation.tokens=[]")
for job in tokenize fit; do
  run 1 $job "$none" "${without[@]}"
done
try 1 gate "$none" "${without[@]}" && fail "gates are chosen on a range that is not there"
grep -q 'validation' "$none.log" || fail "no word of the missing range: $(tail -3 "$none.log")"
run 2 gate "$none" "${without[@]}" gate.selection=evaluation
grep -q 'costs are biased downward' "$none.log" || fail "the study's selection is not labelled"
run 2 sweep "$none" "${without[@]}" gate.selection=evaluation
grep -qE '^4 +linear' "$none.log" || fail "gates that were chosen on the evaluation are left out"
grep -q 'costs are biased downward' "$none.log" || fail "the sweep does not label the study's selection"
h5dump -a /gates_chosen_on "$none/sweep.h5" | grep '"evaluation"' >/dev/null || fail "nor does sweep.h5"
run 1 sweep "$none" "${without[@]}"
grep -qE '^4 +linear' "$none.log" && fail "gates of another selection are used"
echo "gates in the sweep: 1, 2 and 3 ranks agree"
