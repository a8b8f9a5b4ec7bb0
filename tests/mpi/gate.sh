#!/usr/bin/env bash
# The job gate on 1, 2 and 3 ranks: gates equal to rounding; given the same gates, the routed losses,
# the curve and the choice equal bit for bit; a second run does nothing; a dry run writes nothing;
# the study's selection is labelled; features are kept on request; what can't be is told.
#   gate.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see, for its files)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 600 13

settings=(protocol.kind=stream "ranges.gates.tokens=[9000,11000]" "gate.layers=[1,6]"
  "gate.kinds=linear pca random oracle" "gate.bottlenecks=[1,3]" "gate.thresholds=[0.45,0.5]"
  gate.least_routed=0.1)
gate() { # RANKS OUT [SETTING...]
  local ranks=$1 out=$2
  shift 2
  run_job "$ranks" gate "$out" "${settings[@]}" "$@" || { cat "$out.log" >&2; fail "gate on $ranks ranks"; }
}
# The numbers of a dataset of two files, to 1e-8. (h5diff would compare checksums, too.)
numbers() { # DATASET FILE
  h5dump -y -w 1 -m %.17g -d "$1" "$2" | sed -n '/DATA {/,/}/p' | grep -oE '[-+0-9.e]+,?$|nan' | tr -d ,
}
close_to() { # DATASET FILE FILE
  paste <(numbers "$1" "$2") <(numbers "$1" "$3") | awk '
    { d = $1 - $2; if (($1 == "nan") != ($2 == "nan") || d > 1e-8 || d < -1e-8) bad++ }
    END { exit bad > 0 || NR == 0 }'
}
results='losses.gates.h5 losses.validation.h5 gates.fit.h5 routed.validation.h5 gates.h5'

one=$work/one
for job in tokenize fit; do
  run_job 1 $job "$one" "${settings[@]}" || { cat "$one.log" >&2; fail "$job"; }
done
cp -r "$one" "$work/two"
cp -r "$one" "$work/three"
gate 1 "$one" -n
for file in $results; do
  [ ! -e "$one/$file" ] || fail "a dry run wrote $file"
done
# Two layers: the surrogate, linear at 0.5 and 0.45, two of pca, random, and the oracle.
grep -q '^  14 variants and the full model on validation' "$one.log" || fail "the plan of a dry run: $(cat "$one.log")"
gate 1 "$one" gate.keep_features=true
[ "$(h5dump -H -d /features/x "$one/features.h5" | grep -c 'SIMPLE { ( 2, 1968, 96 )')" -eq 1 ] ||
  fail "features: $(h5dump -H -d /features/x "$one/features.h5")"
grep -q chosen "$one.log" || fail "no gate was chosen"
table() { tables_of "$one.log" | sed -n '/^layer/,/^chosen/p'; }
table >"$work/table"
gate 1 "$one"
[ "$(grep -c 'complete for these inputs; skipped' "$one.log")" -eq 4 ] || fail "a second run did something"
table | cmp - "$work/table" || fail "the table of a second run"

for ranks in 2 3; do
  out=$work/$([ $ranks -eq 2 ] && echo two || echo three)
  gate $ranks "$out"
  h5diff "$one/losses.gates.h5" "$out/losses.gates.h5" /nll || fail "losses on $ranks ranks"
  for data in /weight /coefficient /gate/bias /gate/auc_heldout /labels/threshold; do
    close_to $data "$one/gates.h5" "$out/gates.h5" || fail "$data of gates on $ranks ranks"
  done
  h5diff "$one/gates.h5" "$out/gates.h5" /ends/token || fail "ends on $ranks ranks"
  cp "$one/gates.fit.h5" "$out/gates.fit.h5"
  rm "$out/routed.validation.h5" "$out/gates.h5"
  gate $ranks "$out"
  for data in /nll /cells /variants; do
    h5diff "$one/routed.validation.h5" "$out/routed.validation.h5" $data || fail "routed $data on $ranks ranks"
  done
  for data in /curve /selected /weight; do
    h5diff "$one/gates.h5" "$out/gates.h5" $data || fail "$data of gates.h5 on $ranks ranks"
  done
done

gate 1 "$one" gate.selection=evaluation
grep -q 'costs are biased downward' "$one.log" || fail "the study's selection is not labelled"
h5dump -a /range_choice "$one/gates.h5" | grep '"evaluation"' >/dev/null || fail "nor in gates.h5"

refuse() { # MESSAGE SETTING...
  local message=$1
  shift
  ! run_job 2 gate "$one" "${settings[@]}" "$@" || fail "$* was accepted"
  grep -q "$message" "$one.log" || fail "$*: $(tail -3 "$one.log")"
}
refuse 'is no kind of gate' "gate.kinds=linear cubic"
refuse 'layer 99 does not exist' "gate.layers=[99]"
refuse 'layer 2 gets no gates' "gate.curve_layers=[2]"
refuse 'gate.memory_gib' gate.memory_gib=1e-6
refuse 'overlap' "ranges.gates.tokens=[8000,10000]"
refuse '200 principal components' "gate.bottlenecks=[100]"
echo "gates on 1, 2 and 3 ranks agree"
