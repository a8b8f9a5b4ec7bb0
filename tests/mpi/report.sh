#!/usr/bin/env bash
# The report of the whole program: every number against the result files; of partial, damaged and
# hostile results; of trainings; without gnuplot; of two runs compared; a dry run writes nothing.
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
state() { # OUT: names and contents of a report's files
  (cd "$1" && find report.html* summary.json* tables -type f | sort | xargs cksum)
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
"$python" "$oracle/h5_checksum.py" "$one"/*.h5 || fail "checksums of the result files"
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

# As if of a model of the study: its claims are not judged on a part of the layers, without intervals,
# from few units, or of one size twice.
study() { # PYTHON: rows r of /variants and units u are changed
  rm -rf "$work/study"
  "$python" "$oracle/report_study.py" "$one" "$work/study" || fail "a copy as of the study"
  "$python" - "$oracle" "$work/study/sweep.h5" <<END || fail "$1"
import sys
sys.path.insert(0, sys.argv[1])
import h5py
from h5_checksum import checksum, seal, set_text
with h5py.File(sys.argv[2], "r+") as f:
    r, u = f["variants"][()], f["tokens/unit"][()]
    $1
    for name, data in (("variants", r), ("tokens/unit", u)):
        f[name][...] = data
        set_text(f[name], "checksum", checksum(data))
    seal(f)
END
  report "$work/study"
  recompute "$work/study" "$work/study"
}
untested() { # CLAIM REASON
  grep -q "^$1,\"*not tested: $2" "$work/study/tables/claims-notes.csv" ||
    fail "$1: $(grep "^$1" "$work/study/tables/claims-notes.csv")"
}
study pass
untested C01 'measured on 18 of 24 layers'
untested C02 'a gate is measured on 6 of 23 layers'
untested C18 'both kinds of gates are fitted on 6 of 23 layers'
study 'set_text(f, "model_family", b"GPT-NeoX"); u[:] = u % 3'
untested C20 'measured on 18 of 24 layers'

# Damaged data are named, and nothing of them is shown.
damage() { # FILE
  "$python" -c "
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
data[len(data) // 2] ^= 0x55
open(sys.argv[1], 'wb').write(data)" "$1"
}
cp -r "$one" "$work/bad"
damage "$work/bad/gates.h5"
report "$work/bad"
grep -q 'gates.h5.*the report goes on without it' "$work/log" || fail "damage: $(cat "$work/log")"
grep -q 'cannot be read' "$work/bad/report.html" || grep -q 'gates.h5: ' "$work/bad/report.html" || fail "damage in the page"
[ ! -e "$work/bad/tables/m0-gates.csv" ] || fail "a table of damaged data"

cp "$one/gates.h5" "$work/bad"
damage "$work/bad/sweep.h5"
report "$work/bad"
grep -q "^demo_gpt2: $work/bad/sweep.h5: nll: checksum" "$work/log" || fail "a damaged sweep in the terminal: $(cat "$work/log")"
"$python" -c "
import json, sys
model = json.load(open(sys.argv[1]))['models'][0]
assert list(model['unreadable']) == ['sweep.h5'] and 'sweep.h5' not in model['missing'], model" "$work/bad/summary.json" ||
  fail "a damaged sweep in summary.json"

# A link to nothing and numbers that no sweep writes are named like damage.
mv "$work/bad/sweep.h5" "$work/damaged.h5"
ln -s nowhere "$work/bad/sweep.h5"
report "$work/bad"
grep -q "^demo_gpt2: $work/bad/sweep.h5: .*No such file" "$work/log" || fail "a link to nothing: $(cat "$work/log")"
rm "$work/bad/sweep.h5"
spoil() { # MESSAGE PYTHON: rows r of /variants and c of /changes are changed
  cp "$one/sweep.h5" "$work/bad"
  "$python" - "$oracle" "$work/bad/sweep.h5" <<END || fail "$2"
import sys
sys.path.insert(0, sys.argv[1])
import h5py
from h5_checksum import checksum, seal, set_text
with h5py.File(sys.argv[2], "r+") as f:
    r = f["variants"][()]
    c = {k: f["changes"][k][()] for k in f["changes"]}
    $2
    f["variants"][...] = r
    set_text(f["variants"], "checksum", checksum(r))
    for k, v in c.items():
        f["changes"][k][...] = v
        set_text(f["changes"][k], "checksum", checksum(v))
    seal(f)
END
  report "$work/bad"
  grep -q "$1" "$work/log" || fail "$2: $(cat "$work/log")"
}
spoil "sweep.h5: /variants, row 1: the interval's ends are exchanged" 'r["low"][1], r["high"][1] = 60, 2'
spoil 'sweep.h5: /variants, row 2: "99999999999999999999" are no layers' 'r["layers"][2] = b"99999999999999999999"'
spoil "sweep.h5: /variants: rows [12] and [23] are the same layer's" 'r["layers"][2], r["path"][2] = r["layers"][1], r["path"][1]'
spoil 'sweep.h5: /changes, row 0: -7 is no layer' 'c["layer"][0] = -7'
spoil 'sweep.h5: /variants, row 3: a change of perplexity by -145 %' 'r["delta_pct"][3] = -145'
spoil 'sweep.h5: /changes, row 1: no such variant or layer' 'c["variant"][1] = 99999'
spoil ' 0 needed, 6 undecided; median cost -$' 'r["delta_pct"] = float("nan")'

# Tables that lack something, or do not fit each other.
cp "$one/sweep.h5" "$work/bad"
edit() { # FILE PYTHON: f is the file, replace(path, data) puts a dataset anew
  "$python" - "$oracle" "$1" <<END || fail "$2"
import sys
sys.path.insert(0, sys.argv[1])
import h5py
import numpy as np
from h5_checksum import checksum, seal, set_text
def replace(path, data):
    del f[path]
    f[path] = data
    set_text(f[path], "checksum", checksum(f[path][()]))
with h5py.File(sys.argv[2], "r+") as f:
    $2
    seal(f)
END
}
whole=$one bad=$work/bad # one spoilt file among whole ones
reform() { # FILE MESSAGE PYTHON
  cp "$whole/$1" "$bad"
  edit "$bad/$1" "$3"
  report "$bad"
  grep -q "$1: $2.*the report goes on without it" "$work/log" || fail "$3: $(cat "$work/log")"
  cp "$whole/$1" "$bad"
}
reform gates.h5 '/ends/count: extents' 'replace("/ends/count", f["/ends/count"][:1])'
reform gates.h5 '/gate: there is no "auc_low"' 'del f["/gate/auc_low"]'
reform gates.h5 '/gate: "kind" must hold text' 'replace("/gate/kind", np.arange(len(f["/gate/kind"])))'
reform gates.h5 '/selected and /labels: "layer" must hold numbers' 'replace("/layers", np.array([b"1", b"6"]))'
reform gates.h5 '/selected and /labels, row 0: -1 is no layer' 'replace("/layers", np.array([-1, 6]))'
reform gates.h5 '/selected/gate: there is no gate 99' 'replace("/selected/gate", np.array([0, 99]))'
reform gates.h5 'of another run of the job gate than sweep.h5, whose gate 0 is linear of layer 1; here it is pca2' \
  'replace("/gate/kind", f["/gate/kind"][()][[1, 0, 2, 3, 4, 5]]); replace("/gate/components", f["/gate/components"][()][[1, 0, 2, 3, 4, 5]])'
reform surrogates.h5 '/path/r2_heldout: extents' 'replace("/path/r2", f["/path/r2"][:1])'
reform surrogates.h5 '/layers do not ascend' 'replace("/layers", f["/layers"][()][::-1])'
reform sweep.h5 '/changes: there is no "threshold"' 'del f["/changes/threshold"]'
reform sweep.h5 '/tokens/unit has 200 elements' 'replace("/tokens/unit", f["/tokens/unit"][:200])'

# Attributes count: one character of a configuration.
cp "$one/sweep.h5" "$work/bad"
"$python" -c "
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
at = data.index(b'overlap = false')
data[at] ^= 1
open(sys.argv[1], 'wb').write(data)" "$work/bad/sweep.h5"
report "$work/bad"
grep -q 'sweep.h5: /: cannot look up an attribute: HDF5: .*incorrect metadata checksum' "$work/log" || fail "damaged attributes: $(cat "$work/log")"

# A model without results keeps nobody's from anybody.
mkdir "$work/none"
cp "$work/bad/sweep.h5" "$work/none"
report "$work/both" "report.inputs=[$work/none, $one, $work/absent]"
grep -q '^none: .*/none: none of its result files can be read: .*/none/sweep.h5: .*checksum' "$work/log" ||
  fail "a directory of unreadable files: $(cat "$work/log")"
grep -q '^absent: .*/absent: no such directory of results$' "$work/log" || fail "no directory: $(cat "$work/log")"
grep -Eq '^demo_gpt2: [0-9] of 6 layers' "$work/log" || fail "the others' results: $(cat "$work/log")"
grep -q '/absent: no such directory of results' "$work/both/report.html" || fail "no directory, in the page"

# Files of another model are refused by name.
cp -r "$one" "$work/mixed"
"$python" "$oracle/h5_checksum.py" --set model_fingerprint 0123456789abcdef "$work/mixed/surrogates.h5"
report "$work/mixed"
grep -q 'mixed/surrogates.h5: its model is .*demo_gpt2 (0123456789abcdef), that of sweep.h5 is .*goes on without it' \
  "$work/log" || fail "two models in a directory: $(cat "$work/log")"
[ ! -e "$work/mixed/tables/m0-fit.csv" ] || fail "a table of the other model"
grep -Eq '^demo_gpt2: [0-9] of 6 layers' "$work/log" || fail "the sweep beside another model's file: $(cat "$work/log")"

# Hostile names, notes and cells.
"$python" "$oracle/report_hostile.py" "$one" "$work/hostile"
report "$work/hostile"
recompute "$work/hostile" "$work/hostile"

# Trainings: the plan against its control at equal tokens, with gates on two ranges, and how fast it was.
train() { # OUT [SETTING...]
  local out=$1
  shift
  mkdir -p "$out"
  cp "$one"/tokens.*.h5 "$out"
  run_job 2 finetune "$out" protocol.kind=stream protocol.window=32 finetune.plan=two_phase \
    "ranges.evaluation.tokens=[7000,7600]" "ranges.evaluation_more.tokens=[7600,8000]" "ranges.fit.tokens=[0,1500]" \
    "finetune.tokens=[12000,15000]" finetune.length=32 finetune.sequences=5 finetune.pass_tokens=64 finetune.steps=8 \
    finetune.gate_steps=5 finetune.evaluate_every=4 finetune.rate=1e-4 "$@" || { cat "$out.log" >&2; fail "training $out"; }
}
says() { # WHERE PATTERN WHAT
  grep -q -- "$2" "$1" || fail "$3: $(cat "$work/log")"
}
says_not() { # as says
  ! grep -q -- "$2" "$1" || fail "$3: $(cat "$work/log")"
}
fair=$work/fair other=$work/other
train "$fair" "finetune.layers=[2,3]" finetune.compare=true
train "$other" "finetune.layers=[4,5]" finetune.compare=true
report "$fair"
recompute "$fair" "$fair"
says "$work/log" '^plan against control at equal tokens: .*, [+-][0-9.]* %, 95 % interval \[' "the terminal's verdict"
says "$fair/report.html" 'On the evaluation range the plan <strong>' "the page's verdict"
[ "$(wc -l <"$fair/tables/m0-against.csv")" -eq 5 ] || fail "models on ranges: $(cat "$fair/tables/m0-against.csv")"
[ "$(wc -l <"$fair/tables/m0-speed.csv")" -eq 3 ] || fail "speed: $(cat "$fair/tables/m0-speed.csv")"
report "$work/sides" "report.inputs=[$fair, $other, $one]"
recompute "$work/sides" "$fair" "$other" "$one"

# The verdict is that of the numbers; what has no interval has none.
verdict() { # VERDICT PYTHON: rows r of /comparison are changed
  rm -rf "$work/judged"
  cp -r "$fair" "$work/judged"
  edit "$work/judged/finetune.compare.h5" "r = f['comparison'][()]; $2; replace('comparison', r)"
  report "$work/judged"
  recompute "$work/judged" "$work/judged"
  says "$work/log" "^plan against control at equal tokens: $1" "$2"
  says "$work/judged/tables/m0-against.csv" "^evaluation,plan,.*,$1" "$2"
  says "$work/judged/summary.json" "\"control_verdict\": \"$1\"" "$2"
}
word=$("$python" -c "import h5py; print(h5py.File('$fair/finetune.compare.h5')['comparison']['delta_pct'][1] < 0)")
[ "$word" = True ] && word='better than its control' || word='worse than its control'
verdict "$word" 'r["p_two_sided"][1:3], r["p_holm"][1:3] = 1e-3, 2e-3'
verdict 'cannot be told apart' 'r["p_two_sided"][1:3] = 0.04, 0.9; r["p_holm"][1:3] = 0.08, 0.9'
verdict 'not judged' 'r["low"][1] = r["high"][1] = np.nan'
verdict 'not judged' 'r["p_two_sided"][1] = r["p_holm"][1] = np.nan; r["p_holm"][2] = r["p_two_sided"][2]'

# Without a comparison: how to make it; without a control; with one that has seen other tokens.
cp -r "$fair" "$work/lacking"
rm "$work/lacking/finetune.compare.h5"
report "$work/lacking"
recompute "$work/lacking" "$work/lacking"
says "$work/lacking/report.html" "<code>wanamaker finetune CONFIGURATION finetune.compare=true</code>.*<code>$work/lacking</code>" \
  "the command"
says "$work/log" 'equal tokens: not compared yet; finetune.compare=true does it$' "no comparison, in the terminal"
edit "$work/lacking/control.h5" 'f.attrs.modify("tokens_seen", f.attrs["tokens_seen"] // 2)'
report "$work/lacking"
recompute "$work/lacking" "$work/lacking"
says "$work/lacking/report.html" 'have seen different tokens and are not to be ranked' "unequal budgets"
says "$work/log" 'equal tokens: control saw other tokens$' "unequal budgets, in the terminal"
says_not "$work/lacking/report.html" 'm0-against' "unequal budgets are ranked"
rm "$work/lacking/control.h5"
report "$work/lacking"
recompute "$work/lacking" "$work/lacking"
says "$work/log" 'equal tokens: no control here$' "no control, in the terminal"
rm "$work/lacking/finetune.h5"
cp "$fair/finetune.compare.h5" "$work/lacking" # alone, it stands for itself
report "$work/lacking"
recompute "$work/lacking" "$work/lacking"

# A comparison that is damaged, lacks something, or is of other runs: refused, and all else stands.
whole=$fair bad=$work/refused
cp -r "$fair" "$bad"
damage "$bad/finetune.compare.h5"
report "$bad"
says "$work/log" 'finetune.compare.h5.*the report goes on without it' "a damaged comparison"
says_not "$bad/report.html" 'm0-against' "a damaged comparison is shown"
says "$bad/report.html" '<strong>finetune.compare.h5</strong> cannot be read' "a damaged comparison, in the page"
says "$bad/report.html" 'id="m0-training"' "the training beside a damaged comparison"
compare() { # MESSAGE PYTHON: rows r of /comparison are changed
  reform finetune.compare.h5 "$1" "r = f['comparison'][()]; $2; replace('comparison', r)"
  says_not "$bad/report.html" 'm0-against' "$2"
}
compare "/comparison, row 1: the interval's ends are exchanged" 'r["low"][1], r["high"][1] = 2, 1'
compare '/comparison, row 2: p_holm of 1.5' 'r["p_holm"][2] = 1.5'
compare '/comparison: there is no "units"' 'names = list(r.dtype.names); names.remove("units"); q = np.empty(len(r), [(n, r.dtype[n]) for n in names]); q[:] = r[names]; r = q'
compare '/comparison: "ppl" must hold numbers' 'r = r.astype([(n, "S8" if n == "ppl" else r.dtype[n]) for n in r.dtype.names])'
compare '/comparison has no rows' 'r = r[:0]'
compare '/comparison, row 5: "control: evaluation_more" has no place' 'r = r[[0, 1, 2, 3, 4, 3]]'
compare '/comparison, row 0: "plan: evaluation" has no place' 'r = r[1:]'
compare '/comparison, row 2: ".*evaluation_more" has no place' 'r = r[[0, 1, 5]]'
compare '/comparison, row 1: "plan: evaluation" has no place' 'r["hard"][1] = 1'
compare '/comparison: rows 1 and 4 are the same' 'r = r[[0, 1, 2, 0, 1]]'
compare '/comparison, row 4: a change by 3 %' 'r["delta_pct"][4], r["low"][4], r["high"][4] = 3, 2, 4'
compare '/comparison, row 0: a perplexity of -1' 'r["ppl"][0] = -1'
compare '/comparison, row 1: a perplexity of .* from inf units' 'r["units"][1] = np.inf'
compare 'of other runs than finetune.h5, which has no range evaluation_most' \
  'r["name"][3:5] = b"control: evaluation_most", b"plan: evaluation_most"; r = r[:5]'
compare 'of other runs than finetune.h5, which ends with a perplexity' \
  'k = r["ppl"][1] * 1.01; r["ppl"][1] = k; r["delta_pct"][1] = 100 * (k / r["ppl"][0] - 1); r["low"][1], r["high"][1] = -99, 99'
reform finetune.compare.h5 'of other runs than finetune.h5, whose chain is' 'set_text(f, "chain", b"0123456789abcdef")'
reform finetune.compare.h5 'of other runs than finetune.h5, whose tokens_seen is' 'f.attrs.modify("tokens_seen", 1)'
reform finetune.compare.h5 'its model is .* (0123456789abcdef), that of' 'set_text(f, "model_fingerprint", b"0123456789abcdef")'
reform finetune.h5 '/timing has 4 rows for 13 steps' \
  'replace("/timing/seconds", f["/timing/seconds"][:4]); replace("/timing/exposed", f["/timing/exposed"][:4])'
reform control.h5 '/timing, row 2: a step of -1 s' 't = f["/timing/seconds"][()]; t[2] = -1; replace("/timing/seconds", t)'
cp "$other/finetune.compare.h5" "$bad" # the same tokens, another plan
report "$bad"
says "$work/log" 'finetune.compare.h5: of other runs than finetune.h5, which ends with a perplexity' "another plan's comparison"
cp "$fair/finetune.compare.h5" "$bad"
edit "$bad/control.h5" 'set_text(f, "chain", b"0123456789abcdef")'
report "$bad"
says "$work/log" 'finetune.compare.h5: of other runs than control.h5, whose chain is' "another control"
says "$bad/report.html" 'are not to be ranked' "another control, in the page"

"$python" "$oracle/report_hostile.py" "$fair" "$work/hostile_training"
report "$work/hostile_training"
recompute "$work/hostile_training" "$work/hostile_training"
says "$work/hostile_training/tables/m0-against.csv" 'evaluation_<i' "a hostile range"

"$program" report --compare "$fair" "$other" >"$work/log" 2>&1 || { cat "$work/log"; fail "--compare of trainings"; }
sed -n '/^Plan against its control at equal tokens$/,/^Numbers/p' "$work/log" >"$work/variants"
[ "$(grep -c '^evaluation' "$work/variants")" -eq 4 ] || fail "comparisons compared: $(cat "$work/log")"
says "$work/log" '^finetune.compare.h5 /comparison: ppl ' "numbers of comparisons"

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

printf '#!/bin/sh\nexit 9\n' >"$work/bin/gnuplot"
PATH=$work/bin report "$work/both" "report.inputs=$one"
grep -q 'gnuplot failed without a word, exit status 9' "$work/both/report.html" || fail "gnuplot's exit status"
printf '#!/bin/sh\nkill -9 $$\n' >"$work/bin/gnuplot"
PATH=$work/bin report "$work/both" "report.inputs=$one"
grep -q 'gnuplot was ended by signal 9' "$work/both/report.html" || fail "gnuplot's signal"

# One that never ends: the page comes without figures; a request to stop is heard at once.
printf '#!/bin/sh\nexec sleep 1000\n' >"$work/bin/gnuplot"
PATH=$work/bin "$program" report output.dir="$work/late" report.tolerance=1 report.inputs="$one" \
  >"$work/late.log" 2>&1 &
late=$!
cp -r "$work/both" "$work/stopped"
sum=$(state "$work/stopped")
PATH=$work/bin "$program" report output.dir="$work/stopped" report.inputs="$one" >"$work/stopped.log" 2>&1 &
stopped=$!
for _ in $(seq 100); do
  [ ! -e "$work/stopped/report.html.tmp" ] || break
  sleep 0.1
done
begun=$SECONDS
kill -TERM $stopped
code=0
wait $stopped || code=$?
[ $code -eq 75 ] && [ $((SECONDS - begun)) -le 5 ] || fail "stopped: $code after $((SECONDS - begun)) s: $(cat "$work/stopped.log")"
[ "$(state "$work/stopped")" = "$sum" ] || fail "the earlier report has changed"

# Rubbish is no figure.
for rubbish in '</svg>' '<svg viewBox="0 0 9 9" onload="x()"><g id="a"></g></svg>' \
  '<svg viewBox="0 0 9 9"><g id="a"><script>x()</script></g></svg>' '<svg viewBox="0 0 9 9"><g id="a">'; do
  printf '#!/bin/sh\ncat <<"END"\n%s\nEND\n' "$rubbish" >"$work/bin/gnuplot"
  PATH=$work/bin report "$work/both" "report.inputs=$one"
  [ "$(grep -c "This figure is missing: what gnuplot has written is no drawing" "$work/both/report.html")" -eq 7 ] || fail "$rubbish"
done

printf '#!/bin/sh\nexec yes\n' >"$work/bin/gnuplot"
PATH=$work/bin report "$work/both" "report.inputs=$one"
grep -q 'gnuplot had written more than 64 MiB' "$work/both/report.html" || fail "output without an end"

# gnuplot is given its own files and no other.
printf '#!/bin/sh\nls -l /proc/self/fd >%s\nexit 1\n' "$work/descriptors" >"$work/bin/gnuplot"
PATH=$work/bin report "$work/both" "report.inputs=$one"
! grep -q 'report.html\|socket:\|pipe:' "$work/descriptors" || fail "descriptors of gnuplot: $(cat "$work/descriptors")"

# All files of a report or none.
cp -r "$one" "$work/whole"
sum=$(state "$work/whole")
for name in tables/claims.csv report.html; do
  mv "$work/whole/$name" "$work/kept"
  mkdir "$work/whole/$name"
  code=0
  "$program" report output.dir="$work/whole" report.tolerance=0 >"$work/log" 2>&1 || code=$?
  [ $code -eq 4 ] && grep -q "$name: cannot write: a directory has that name" "$work/log" || fail "$name: $code: $(cat "$work/log")"
  rmdir "$work/whole/$name"
  mv "$work/kept" "$work/whole/$name"
  [ "$(state "$work/whole")" = "$sum" ] || fail "a report that failed at $name has changed the one before"
done

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
! grep -q 'in one only' "$work/log" || fail "the same layers and gates: $(cat "$work/log")"
grep -Eq '^gates.h5 /gate: auc_low +[1-9] of 6 ' "$work/log" || fail "other tables: $(cat "$work/log")"
! grep -q '^surrogates.h5 /fit' "$work/log" || fail "equal tables: $(cat "$work/log")"
cp -r "$work/two" "$work/fewer"
rm "$work/fewer/sweep.h5" "$work/fewer/surrogates.h5"
run_job 1 run "$work/fewer" "${gates[@]}" fit.layers=[1,6,7] "sweep.joint=([1,6])" report.enabled=false || fail "third run"
"$program" report --compare "$one" "$work/fewer" >"$work/log" 2>&1 || fail "--compare of other layers"
[ "$(grep -Ec '^ +[0-9]+ .*not measured.*in one only$' "$work/log")" -eq 5 ] || fail "layers of one run: $(cat "$work/log")"
grep -Eq '^1-3: surrogate .*in one only$' "$work/log" && grep -Eq '^1,6: surrogate .* - .*in one only$' "$work/log" ||
  fail "sets of one run: $(cat "$work/log")"
grep -Eq '^fit.layers ' "$work/log" || fail "settings of files on both sides: $(cat "$work/log")"
"$program" report --compare "$one" "$one" >"$work/log" 2>&1 || fail "--compare with itself"
! grep -q ') (' "$work/log" || fail "a directory is named twice: $(cat "$work/log")"
grep -q 'no setting of the files on both sides differs' "$work/log" || fail "the same run differs: $(cat "$work/log")"

# The picture of sweep tables, with and without the column of sums; sets are left out.
printf 'full 10 0 - -\n0 11 10.0 - [9.0, 11.0] x\n1 12 20.0 - [19.0, 21.0]\n0,1 14 40 30 [39, 41]\n' >"$work/sums"
printf '0 11 10.0 [9.0, 11.0] x\n1 12 20.0 [19.0, 21.0]\n' >"$work/plain"
points=()
for table in sums plain; do
  bash "$(dirname "$0")/../../jobs/figure.sh" "$work/$table.svg" costs "$work/$table" || fail "figure.sh of $table"
  points+=("$(grep -c "href='#gpPt6'" "$work/$table.svg")")
done
[ "${points[0]}" -ge 2 ] && [ "${points[0]}" -eq "${points[1]}" ] || fail "figure.sh draws ${points[*]} points"

wait $late || fail "with a gnuplot that never ends: $(cat "$work/late.log")"
grep -q 'gnuplot had not ended after 30 seconds and was killed' "$work/late/report.html" || fail "gnuplot's time"
[ "$(grep -c 'gnuplot had not ended' "$work/late/report.html")" -eq 7 ] || fail "not every figure is tried or told"
grep -q 'id="m0-layers"' "$work/late/report.html" || fail "no tables with a gnuplot that never ends"

report "$work/dry" "report.inputs=$one" -n
[ ! -e "$work/dry" ] || fail "a dry run wrote something"
expect() { # CODE MESSAGE ARGUMENT...
  local code=0 want=$1 message=$2
  shift 2
  "$mpiexec" -n 2 "$program" report "$@" >"$work/log" 2>&1 || code=$?
  [ "$code" -eq "$want" ] || fail "$*: exit code $code: $(cat "$work/log")"
  grep -q -- "$message" "$work/log" || fail "$*: $(cat "$work/log")"
}
expect 3 'no such directory of results' output.dir="$work/dry" report.inputs="$work/absent"
mkdir "$work/empty"
expect 3 'no result file in this directory' output.dir="$work/dry" report.inputs="$work/empty"
expect 3 'none of its result files can be read' output.dir="$work/dry" report.inputs="$work/none"
expect 3 'none of its result files can be read' --compare "$one" "$work/none"
expect 2 'names one directory twice' output.dir="$work/dry" report.inputs="[$one, $work/part, $work/part/../one/]"
expect 2 'output.dir is empty' output.dir= report.inputs="$one"
expect 2 'output.dir is empty' output.dir= -n
expect 2 "two directories of results; a third is $work/part" --compare "$one" "$work/two" "$work/part"
expect 2 'takes two directories of results; the second is missing' --compare "$one"
expect 2 'takes two directories of results; the first is -n' --compare -n "$one" "$one"
expect 2 'takes two directories of results; the second is an empty name' --compare "$one" ""
expect 2 'a name in report.inputs is empty' output.dir="$work/dry" 'report.inputs=[""]'
expect 3 'no such directory of results' output.dir="$work/typo"
[ ! -e "$work/typo" ] && [ ! -e "$work/dry" ] || fail "a report of nothing has made a directory"
expect 2 'must name two directories' report.compare="$one"
echo "the report says what the files say"
