#!/usr/bin/env bash
# Layers in the order of a sweep's costs, cheapest first; runs of unequal budgets are not ranked, neither
# by the job nor by the report; the time of steps.
#   finetune_order.sh WANAMAKER MPIEXEC MODEL_DIR PYTHON     (WM_TEST_WORK: a directory that all ranks see)
# PYTHON needs h5py (Debian: python3-h5py).
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
python=$4
make_text 2000 0
ranges=(protocol.kind=stream protocol.window=32 "ranges.fit.tokens=[0,1500]" "ranges.validation.tokens=[4000,4300]"
  "ranges.evaluation.tokens=[7000,7600]" bootstrap.resamples=100)

run() { # RANKS OUT [SETTING...]
  local ranks=$1 out=$2
  shift 2
  mkdir -p "$out"
  cp "$work/sweep/"tokens.*.h5 "$out/"
  run_job "$ranks" finetune "$out" "${ranges[@]}" "finetune.tokens=[10000,30000]" finetune.length=32 \
    finetune.sequences=4 finetune.pass_tokens=64 finetune.steps=6 finetune.layer_steps=2 \
    finetune.evaluate_every=0 checkpoint.minutes=0 "$@"
}

must() { # as run
  run "$@" || { cat "$2.log" >&2; fail "finetune on $1 ranks"; }
}

expect() { # PATTERN FILE WHAT
  grep -Eq "$1" "$2" || { cat "$2" >&2; fail "$3"; }
}

# A sweep as the job writes it, with joint variants, whose costs are no layer's. Its table gives the order.
run_job 2 run "$work/sweep" "${ranges[@]}" report.enabled=false || { cat "$work/sweep.log" >&2; fail "sweep"; }
order=$(tables_of "$work/sweep.log" | awk '/^layer +PPL/ { on = 1 } on && /^[0-9]+ +[0-9.]+ / { print $2, $1 }
  on && /^$/ { exit }' | sort -g | awk '{ print $2 }')
[ "$(wc -w <<<"$order")" -eq 8 ] || fail "the order of the sweep's table: $order"
[ "$(tr '\n' ' ' <<<"$order")" != "4 3 5 2 6 1 7 0 " ] || fail "this sweep's order is centre-outward: it tells nothing"

phases() { # LOG
  grep -oE 'layer [0-9]+, end: perplexity' "$1" | grep -oE '[0-9]+' | tr '\n' ' '
}
cheapest=('finetune.plan="progressive"' 'finetune.order="cheapest"' "finetune.sweep=$work/sweep/sweep.h5")
must 2 "$work/cheap" "${cheapest[@]}" finetune.count=3
[ "$(phases "$work/cheap.log")" = "$(head -n 3 <<<"$order" | tr '\n' ' ')" ] ||
  fail "the cheapest three are $(head -n 3 <<<"$order" | tr '\n' ' '), not $(phases "$work/cheap.log")"
some=$(grep -E '^[0135]$' <<<"$order" | tr '\n' ' ')
must 1 "$work/some" "${cheapest[@]}" "finetune.layers=[0,1,3,5]"
[ "$(phases "$work/some.log")" = "$some" ] || fail "of the layers 0, 1, 3 and 5: $some, not $(phases "$work/some.log")"
must 2 "$work/centre" 'finetune.plan="progressive"' finetune.count=3
[ "$(phases "$work/centre.log")" = "4 3 5 " ] || fail "from the centre: $(phases "$work/centre.log")"

# A sweep that lacks a layer; none; one that is damaged.
run_job 1 run "$work/part" "${ranges[@]}" report.enabled=false "fit.layers=[1,2,3]" "sweep.joint=()" ||
  { cat "$work/part.log" >&2; fail "part of a sweep"; }
refused() { # CODE PATTERN SWEEP
  local code=0
  run 2 "$work/refused" "${cheapest[@]}" finetune.sweep="$3" || code=$?
  [ "$code" -eq "$1" ] || { cat "$work/refused.log" >&2; fail "$3 ends with $code"; }
  expect "$2" "$work/refused.log" "no word of $3"
}
refused 3 'has no cost of layer 0 alone' "$work/part/sweep.h5"
refused 3 'none.h5' "$work/none.h5"
refused 2 'finetune.order = "cheapest" needs finetune.sweep' '""'
refused 3 'is a result of finetune; finetune.sweep must be a sweep.h5' "$work/centre/finetune.h5"
of=$work/of_another
mkdir "$of"
model=$(dirname "$model")/demo_gpt_neox run_job 1 run "$of" "${ranges[@]}" report.enabled=false "sweep.joint=()" ||
  { cat "$of.log" >&2; fail "a sweep of another model"; }
refused 3 "of_another/sweep.h5: its costs are of another model than model.path's" "$of/sweep.h5"
"$python" -c "
import sys
data = bytearray(open(sys.argv[1], 'rb').read())
data[len(data) // 2] ^= 0x55
open(sys.argv[2], 'wb').write(data)" "$work/sweep/sweep.h5" "$work/bad.h5"
refused 3 'bad.h5' "$work/bad.h5"
echo "cheapest first"

# Time of steps: one number each, the rate as their sum has it, messages a part of them.
for data in seconds exposed; do
  h5dump -H -d /timing/$data "$work/cheap/finetune.h5" >/dev/null || fail "no /timing/$data"
done
"$python" - "$work/cheap/finetune.h5" "$work/some/finetune.h5" <<'END' || fail "times of steps"
import sys
import h5py
import numpy as np
for path, ranks in zip(sys.argv[1:], (2, 1)):
    with h5py.File(path) as f:
        seconds, exposed = f["timing/seconds"][()], f["timing/exposed"][()]
        assert len(seconds) == len(f["steps/loss"]) == f.attrs["steps"] > 6 and (seconds > 0).all()
        assert (exposed >= 0).all() and (exposed <= seconds).all() and (ranks == 1 or exposed.sum() > 0)
        assert np.isclose(f.attrs["tokens_per_second"], f.attrs["tokens_seen"] / seconds.sum())
        assert np.isclose(f.attrs["step_seconds"], np.median(seconds))
        assert np.isclose(f.attrs["exposed_percent"], 100 * exposed.sum() / seconds.sum())
END
expect 'steps of [0-9.e-]+ s \(median\), [0-9.e+]+ tokens/s' "$work/cheap.log" "the log does not say how fast steps were"

# A plan and its control at equal tokens are ranked; if the control has seen others, or fewer, they are not.
compare=("finetune.layers=[2,3]" finetune.compare=true)
must 2 "$work/fair" "${compare[@]}"
expect 'plan: evaluation' "$work/fair.log" "equal budgets are not ranked"
[ -e "$work/fair/finetune.compare.h5" ] || fail "no comparison is written"
report() { # OUT
  "$program" report output.dir="$1" report.tolerance=1 >"$1.report" 2>&1 || { cat "$1.report" >&2; fail "report of $1"; }
}
report "$work/fair"
grep -q 'not to be ranked' "$work/fair/report.html" && fail "the report does not rank equal budgets"
for what in tokens_seen chain; do
  cp -r "$work/fair" "$work/$what"
  rm "$work/$what/finetune.compare.h5"
  PYTHONPATH=$(dirname "$0")/../oracle "$python" - "$work/$what/control.h5" $what <<'END'
import sys
import h5py
from h5_checksum import seal, set_text
with h5py.File(sys.argv[1], "r+") as f:
    old = f.attrs[sys.argv[2]]
    if sys.argv[2] == "chain":
        text = old.decode() if isinstance(old, bytes) else old
        set_text(f, "chain", text[::-1])
    else:
        f.attrs.modify(sys.argv[2], old // 2)
    seal(f)
END
  code=0
  run 2 "$work/$what" "${compare[@]}" || code=$?
  [ "$code" -eq 3 ] || { cat "$work/$what.log" >&2; fail "another $what ends with $code"; }
  expect 'runs of unequal budgets are not ranked' "$work/$what.log" "no word of another $what"
  [ ! -e "$work/$what/finetune.compare.h5" ] || fail "a comparison of another $what is written"
  report "$work/$what"
  grep -q 'not to be ranked' "$work/$what/report.html" || fail "the report ranks runs with another $what"
done

# Two runs of different length, compared by the report.
must 2 "$work/short" "finetune.layers=[2,3]" finetune.steps=4
"$program" report --compare "$work/fair" "$work/short" >"$work/pair" 2>&1 || { cat "$work/pair" >&2; fail "--compare"; }
expect 'different numbers of tokens and are not to be ranked' "$work/pair" "--compare ranks unequal budgets"
echo "unequal budgets are not ranked"
