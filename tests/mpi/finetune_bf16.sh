#!/usr/bin/env bash
# Fine-tuning with products of operands rounded to bfloat16: near float32's trajectory and not on it; the
# effect on the trained model's losses is told; ranks agree; stopped runs go on to the same bits; neither
# type takes the other's checkpoints; bf16 where the CPU lacks it.
#   finetune_bf16.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 2000 0

run() { # RANKS OUT TYPE [SETTING...]
  local ranks=$1 out=$2 type=$3
  shift 3
  mkdir -p "$out"
  cp "$work/tokens/"tokens.*.h5 "$out/"
  run_job "$ranks" finetune "$out" compute.type="$type" protocol.kind=stream protocol.window=32 \
    ranges.evaluation.tokens=[7000,7600] ranges.evaluation_more.tokens=[7600,8000] \
    ranges.fit.tokens=[0,1500] ranges.validation.tokens=[4000,4300] bootstrap.resamples=100 \
    "finetune.layers=[2,3]" "finetune.tokens=[10000,30000]" finetune.length=32 finetune.sequences=5 \
    finetune.pass_tokens=64 finetune.steps=12 finetune.gate_steps=4 finetune.evaluate_every=0 \
    finetune.rate=1e-3 checkpoint.minutes=0 "$@"
}

must() { # as run
  run "$@" || { cat "$2.log" >&2; fail "finetune in $3 on $1 ranks"; }
}

values() { # FILE DATASET
  h5dump -y -w 1 -m %.17g -d "$2" "$1" | sed -n '/DATA {/,$p' | grep -oE '^ *-?(nan|[0-9.e+-]+),? *$' | tr -d ' ,'
}

# The largest relative difference of two runs' losses.
apart() { # OUT OUT
  paste <(values "$1/finetune.h5" /steps/loss) <(values "$2/finetune.h5" /steps/loss) |
    awk 'NF == 2 { d = ($1 - $2) / $1; d = d < 0 ? -d : d; n++; worst = d > worst ? d : worst }
      END { if (n != 12) exit 1; printf "%.3g\n", worst }'
}

within() { # VALUE LOW HIGH WHAT
  awk -v x="$1" -v a="$2" -v b="$3" 'BEGIN { exit !(x >= a && x <= b) }' || fail "$4: $1 is not in [$2, $3]"
  echo "$4: $1"
}

run_job 1 tokenize "$work/tokens" protocol.kind=stream || fail "tokenize"
must 1 "$work/f32" f32
must 1 "$work/b1" bf16_emulated
within "$(apart "$work/f32" "$work/b1")" 1e-6 5e-3 "trajectories of both types differ by"
h5dump -a /compute "$work/b1/finetune.h5" | grep '"bf16_emulated"' >/dev/null || fail "attribute compute"

# The effect: a row a range, small, and of a size that can be seen; float32 has none.
grep -q 'effect of products in bf16_emulated on the trained model, against products in f32' "$work/b1.log" ||
  fail "no word of the effect: $(cat "$work/b1.log")"
h5dump -H -d /compute_effect "$work/f32/finetune.h5" >/dev/null 2>&1 && fail "an effect of float32"
values "$work/b1/finetune.h5" /compute_effect | awk '
  NR % 6 == 1 { f32 = $1 }
  NR % 6 == 2 { ppl = $1 }
  NR % 6 == 3 { d = 100 * (ppl / f32 - 1) - $1; bad += d * d > 1e-8 || $1 * $1 > 1 || $1 == 0; delta = $1 }
  NR % 6 == 4 { bad += $1 > delta }
  NR % 6 == 5 { bad += $1 < delta }
  NR % 6 == 0 { bad += $1 <= 0 || $1 > 1 }
  END { exit bad || NR != 12 }' || fail "the effect: $(values "$work/b1/finetune.h5" /compute_effect)"

# Ranks: sums of gradients in another order are roundings of 1e-7, which rounding of weights to 8 bits
# now and then magnifies.
for ranks in 2 3 4; do
  must "$ranks" "$work/b$ranks" bf16_emulated
  h5diff "$work/b1/finetune.h5" "$work/b$ranks/finetune.h5" /steps/chain || fail "tokens of $ranks ranks"
  within "$(apart "$work/b1" "$work/b$ranks")" 0 1e-3 "$ranks ranks differ by"
done

# Stopped and resumed, float32's checkpoints refused.
code=0
run 2 "$work/stopped" f32 finetune.time_limit=1e-9 || code=$?
[ "$code" -eq 75 ] || fail "a time limit ends with $code"
for i in 1 2 3; do
  code=0
  run 2 "$work/stopped" bf16_emulated finetune.time_limit=1e-9 || code=$?
  [ "$code" -eq 75 ] || fail "time limit $i ends with $code"
  [ "$i" -ne 1 ] || grep -q 'checkpoint not used: .* is of a run with other settings' "$work/stopped.log" ||
    fail "the other type's checkpoint: $(cat "$work/stopped.log")"
done
must 2 "$work/stopped" bf16_emulated
grep -q 'goes on after step 3 ' "$work/stopped.log" || fail "begins anew: $(cat "$work/stopped.log")"
for data in /steps /evaluation/nll /evaluation_more/nll; do
  h5diff "$work/b2/finetune.h5" "$work/stopped/finetune.h5" $data || fail "resumed: $data"
done
h5diff "$work/b2/finetune.model.h5" "$work/stopped/finetune.model.h5" /weights || fail "resumed: weights"

# Gates, whose own products are float32, and layers that are linear from the start.
must 2 "$work/gates" bf16_emulated 'finetune.plan="two_phase"'
grep -q 'effect of products in bf16_emulated' "$work/gates.log" || fail "no effect of a gated model"
values "$work/gates/finetune.h5" /compute_effect | awk 'NR % 6 == 3 && $1 * $1 > 1 { exit 1 }' || fail "the gated model's effect"
must 2 "$work/pretrain" bf16_emulated 'finetune.plan="pretrain"' model.path="$model/config.json" \
  tokenizer.path="$model" finetune.warm_up=2
must 2 "$work/pretrain32" f32 'finetune.plan="pretrain"' model.path="$model/config.json" \
  tokenizer.path="$model" finetune.warm_up=2
within "$(apart "$work/pretrain32" "$work/pretrain")" 1e-7 5e-3 "pretraining differs by"

if "$program" --version | grep '^products .* bf16,' >/dev/null; then
  must 2 "$work/hw" bf16
  within "$(apart "$work/b2" "$work/hw")" 0 1e-3 "the CPU's own bf16 differs from the emulated by"
else
  code=0
  run 2 "$work/hw" bf16 || code=$?
  [ "$code" -eq 4 ] || fail "bf16 on a CPU without it: exit code $code"
  grep -q 'bf16 are not to be had here.*bf16_emulated' "$work/hw.log" || fail "message: $(cat "$work/hw.log")"
fi
echo "training with products in bfloat16"
