#!/usr/bin/env bash
# The report of the whole program: every number against the result files; of partial, damaged and
# hostile results; without gnuplot; of two runs compared; a dry run writes nothing.
#   report.sh WANAMAKER MPIEXEC MODEL_DIR REFERENCE_DIR PYTHON
# PYTHON needs h5py (Debian: python3-h5py), the figures gnuplot (gnuplot-nox).
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
reference=$4 python=$5
oracle=$(dirname "$0")/../oracle
make_text 600 13

gates=(protocol.kind=stream "ranges.gates.tokens=[9000,11000]" gate.enabled=true "gate.layers=[1,6]"
  "gate.kinds=linear pca" "gate.bottlenecks=[1,3]" "gate.thresholds=[0.45,0.5]" "sweep.gate_kinds=selected"
  "fit.layers=[0,1,2,3,5,6]" report.tolerance=1)
report() { # OUT [SETTING...]
  local out=$1
  shift
  "$program" report output.dir="$out" report.tolerance=1 "$@" >"$work/log" 2>&1 ||
    { cat "$work/log" >&2; fail "report $*"; }
}
recompute() { # OUT RESULTS...
  local out=$1
  shift
  "$python" "$oracle/report_check.py" "$out" "$reference" 1 "$@" || fail "the report of $*"
}

one=$work/one
run_job 2 run "$one" "${gates[@]}" || { cat "$one.log" >&2; fail "run"; }
grep -q "^wrote $one/report.html" "$one.log" || fail "run wrote no report: $(cat "$one.log")"
grep -Eq '^demo_gpt2: [0-9] of 6 layers are wasted' "$one.log" || fail "the answer: $(cat "$one.log")"
recompute "$one" "$one"
for figure in cost routed auc demand curve spectrum lambda; do
  grep -q "<figure id=\"fig-m0-$figure\">" "$one/report.html" || fail "no figure $figure"
done

# Two directories of one model; part of the files; ranks that wait.
cp -r "$one" "$work/part"
rm "$work/part/gates.h5" "$work/part/surrogates.h5"
"$mpiexec" -n 3 "$program" report output.dir="$work/both" report.tolerance=1 \
  report.inputs="[$one, $work/part]" >"$work/log" 2>&1 || { cat "$work/log"; fail "two inputs"; }
recompute "$work/both" "$one" "$work/part"
rm "$work/part/sweep.h5"
cp "$one/surrogates.h5" "$work/part"
report "$work/part"
recompute "$work/part" "$work/part"
grep -q 'no sweep has measured' "$work/log" || fail "without a sweep: $(cat "$work/log")"
[ ! -e "$work/part/tables/m0-layers.csv" ] || [ "$(grep -c measured "$work/part/tables/m0-layers.csv")" -eq 6 ] ||
  fail "a table of an earlier report is left"

# Damaged data are named, and nothing of them is shown.
cp -r "$one" "$work/bad"
"$python" -c "
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
data[len(data) // 2] ^= 0x55
open(sys.argv[1], 'wb').write(data)" "$work/bad/gates.h5"
report "$work/bad"
grep -q 'gates.h5.*the report goes on without it' "$work/log" || fail "damage: $(cat "$work/log")"
grep -q 'cannot be read' "$work/bad/report.html" || grep -q 'gates.h5: ' "$work/bad/report.html" || fail "damage in the page"
[ ! -e "$work/bad/tables/m0-gates.csv" ] || fail "a table of damaged data"

# Hostile names, notes and cells.
"$python" "$oracle/report_hostile.py" "$one" "$work/hostile"
report "$work/hostile"
recompute "$work/hostile" "$work/hostile"

# Without gnuplot, and with one that fails: tables, and the reason.
mkdir "$work/bin"
ln -s /usr/bin/* "$work/bin/"
rm -f "$work"/bin/gnuplot*
PATH=$work/bin report "$work/both" "report.inputs=$one"
grep -q 'figures are missing from the report: gnuplot is not installed' "$work/log" || fail "no gnuplot: $(cat "$work/log")"
grep -q 'This figure is missing: gnuplot is not installed' "$work/both/report.html" || fail "no gnuplot, in the page"
grep -q 'id="m0-layers"' "$work/both/report.html" || fail "no tables without gnuplot"
printf '#!/bin/sh\necho "line 3: <no>" >&2\nexit 1\n' >"$work/bin/gnuplot"
chmod +x "$work/bin/gnuplot"
PATH=$work/bin report "$work/both" "report.inputs=$one"
grep -q 'gnuplot failed: line 3: &lt;no&gt;' "$work/both/report.html" || fail "gnuplot's own error"

# Two runs.
cp -r "$one" "$work/two"
rm "$work/two/sweep.h5"
run_job 1 run "$work/two" "${gates[@]}" bootstrap.seed=2 report.enabled=false || fail "second run"
"$program" report --compare "$one" "$work/two" >"$work/log" 2>&1 || { cat "$work/log"; fail "--compare"; }
grep -Eq '^bootstrap.seed +1 +2$' "$work/log" || fail "a setting that differs: $(cat "$work/log")"
grep -q '^sweep.h5: ranks  *2  *1$' "$work/log" || fail "what else differs: $(cat "$work/log")"
[ "$(grep -Ec '^ +[0-9]+ +(wasted|needed|undecided)' "$work/log")" -eq 6 ] || fail "layers compared: $(cat "$work/log")"
sed -n '/^Gates and sets of layers$/,/^apart/p' "$work/log" >"$work/variants"
[ "$(grep -c ': gate ' "$work/variants")" -ge 2 ] || fail "gates compared: $(cat "$work/log")"
"$program" report --compare "$one" "$one" >"$work/log" 2>&1 || fail "--compare with itself"
grep -q 'no setting differs' "$work/log" || fail "the same run differs: $(cat "$work/log")"

# The picture of sweep tables, with and without the column of sums; sets are left out.
printf 'full 10 0 - -\n0 11 10.0 - [9.0, 11.0] x\n1 12 20.0 - [19.0, 21.0]\n0,1 14 40 30 [39, 41]\n' >"$work/sums"
printf '0 11 10.0 [9.0, 11.0] x\n1 12 20.0 [19.0, 21.0]\n' >"$work/plain"
points=()
for table in sums plain; do
  bash "$(dirname "$0")/../../jobs/figure.sh" "$work/$table.svg" costs "$work/$table" || fail "figure.sh of $table"
  points+=("$(grep -c "href='#gpPt6'" "$work/$table.svg")")
done
[ "${points[0]}" -ge 2 ] && [ "${points[0]}" -eq "${points[1]}" ] || fail "figure.sh draws ${points[*]} points"

report "$work/dry" "report.inputs=$one" -n
[ ! -e "$work/dry" ] || fail "a dry run wrote something"
expect() { # CODE MESSAGE ARGUMENT...
  local code=0 want=$1 message=$2
  shift 2
  "$mpiexec" -n 2 "$program" report "$@" >"$work/log" 2>&1 || code=$?
  [ "$code" -eq "$want" ] || fail "$*: exit code $code: $(cat "$work/log")"
  grep -q -- "$message" "$work/log" || fail "$*: $(cat "$work/log")"
}
expect 3 'no such directory of results' output.dir="$work/dry" report.inputs="$work/none"
mkdir "$work/empty"
expect 3 'no result file in this directory' output.dir="$work/dry" report.inputs="$work/empty"
expect 2 'takes two directories' --compare "$one"
expect 2 'must name two directories' report.compare="$one"
echo "the report says what the files say"
