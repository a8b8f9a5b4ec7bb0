#!/usr/bin/env bash
# Fine-tuning, the program as a whole: ranks agree to rounding and see the same tokens; killed and
# stopped runs go on to the same bits, from the older generation where the newer one is damaged; what
# is frozen does not change; a loss that is not finite is told; all plans run, and a plan is compared
# with its control.
#   finetune.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 2000 0

run() { # RANKS OUT [SETTING...]
  local ranks=$1 out=$2
  shift 2
  run_job "$ranks" finetune "$out" protocol.kind=stream protocol.window=32 \
    ranges.evaluation.tokens=[7000,7600] "ranges.${more:-evaluation_more}.tokens=[7600,8000]" \
    ranges.fit.tokens=[0,1500] ranges.validation.tokens=[4000,4300] bootstrap.resamples=100 \
    "finetune.layers=[2,3]" "finetune.tokens=[10000,30000]" finetune.length=32 finetune.sequences=5 \
    finetune.pass_tokens=64 finetune.steps=8 finetune.layer_steps=3 finetune.gate_steps=5 \
    finetune.evaluate_every=3 finetune.rate=1e-4 checkpoint.minutes=0 "$@"
}

must() { # as run
  run "$@" || { cat "$2.log" >&2; fail "finetune on $1 ranks"; }
}

expect() { # PATTERN FILE WHAT
  grep -Eq "$1" "$2" || { cat "$2" >&2; fail "$3"; }
}

# A directory with the corpus's tokens.
fresh() { # OUT
  mkdir -p "$1"
  cp "$work/tokens/"tokens.*.h5 "$1/"
}

values() { # FILE DATASET BYTES
  local raw
  raw=$(mktemp -p "$work")
  h5dump -b LE -o "$raw" -d "$2" "$1" >/dev/null
  od -An -v -t "f$3" -w"$3" "$raw"
}

# The largest difference of two datasets is at most BOUND times the largest value.
close() { # FILE FILE DATASET BYTES BOUND
  paste <(values "$1" "$3" "$4") <(values "$2" "$3" "$4") | awk -v bound="$5" '
    NF == 2 { d = $1 - $2; d = d < 0 ? -d : d; a = $1 < 0 ? -$1 : $1; n++
              worst = d > worst ? d : worst; most = a > most ? a : most }
    END { print n, "values, largest", most, "difference", worst
          exit !(n > 0 && worst <= bound * most) }' >"$work/diff" ||
    { cat "$work/diff" >&2; return 1; }
}

run_job 1 tokenize "$work/tokens" protocol.kind=stream || fail "tokenize"

# This script again in a mount namespace: a disk that has room for one checkpoint but not for two.
if [ -n "${WM_FULL_DISK:-}" ]; then
  disk=$work/disk
  mkdir "$disk"
  mount -t tmpfs -o size=20m tmpfs "$disk" || exit 77
  trap 'umount "$disk"; rm -rf -- "$work"' EXIT
  fresh "$disk"
  code=0
  run 2 "$disk" finetune.checkpoint_steps=1 || code=$?
  [ "$code" -eq 4 ] || { cat "$disk.log" >&2; fail "a full disk ends with $code"; }
  expect 'checkpoint.1.h5.tmp: cannot reserve [0-9]+ bytes: No space left on device' "$disk.log" \
    "no word of the full disk"
  mount -o remount,size=400m "$disk"
  must 2 "$disk" finetune.checkpoint_steps=1
  expect 'goes on after step 1 ' "$disk.log" "the checkpoint before the full disk is not used"
  h5diff "$WM_FULL_DISK/finetune.h5" "$disk/finetune.h5" /steps || fail "steps after a full disk"
  exit 0
fi

one=$work/one
fresh "$one"
must 1 "$one" -n
expect 'phase "linearize": 8 steps, 2 layers linear or gated' "$one.log" "a dry run does not say the plan"
expect 'memory: [0-9.]+ GiB a rank' "$one.log" "a dry run does not say the memory"
[ ! -e "$one/finetune.h5" ] || fail "a dry run writes"
must 1 "$one"
expect 'linearize, end +8 ' "$one.log" "no evaluation at the end"
[ ! -e "$one/finetune.checkpoint.0.h5" ] || fail "a checkpoint is left"
must 1 "$one"
expect 'finetune: complete for these inputs; skipped' "$one.log" "a second run did something"
must 1 "$one" -n
expect 'plan linearize, complete, would be skipped' "$one.log" "a dry run does not know the result"
more=evaluation_other must 1 "$one" -n
if grep -q 'would be skipped' "$one.log"; then fail "a result without evaluation_other is complete"; fi

# Ranks: more of them than sequences, too.
for ranks in 2 3 6; do
  fresh "$work/r$ranks"
  must "$ranks" "$work/r$ranks"
  h5diff "$one/finetune.h5" "$work/r$ranks/finetune.h5" /steps/chain || fail "tokens of $ranks ranks"
  close "$one/finetune.h5" "$work/r$ranks/finetune.h5" /steps/loss 8 2e-6 || fail "losses of $ranks ranks"
  for tensor in wte.weight h.3.attn.c_attn.weight h.0.mlp.c_proj.weight; do
    close "$one/finetune.model.h5" "$work/r$ranks/finetune.model.h5" "/weights/$tensor" 4 2e-5 ||
      fail "$tensor of $ranks ranks"
  done
done
echo "ranks agree"

same() { # EXPECTED OUT WHAT
  local data
  for data in /steps /evaluation/nll /evaluation_more/nll; do
    h5diff "$1/finetune.h5" "$2/finetune.h5" $data >"$work/diff" || { cat "$work/diff" >&2; fail "$3: $data"; }
  done
  h5diff "$1/finetune.model.h5" "$2/finetune.model.h5" /weights || fail "$3: weights"
}
two=$work/r2

# A time limit of next to nothing: one step a run. Then the last generation is damaged, and the older
# one takes over.
damaged=$work/damaged
fresh "$damaged"
for i in 1 2 3; do
  code=0
  run 2 "$damaged" finetune.time_limit=1e-9 || code=$?
  [ "$code" -eq 75 ] || { cat "$damaged.log" >&2; fail "time limit $i ends with $code"; }
done
cp -r "$damaged" "$work/other"
newest=$(ls -t "$damaged"/finetune.checkpoint.*.h5 | sed -n 1p)
size=$(stat -c %s "$newest")
dd if=/dev/zero of="$newest" bs=1 seek=$((size / 2)) count=4096 conv=notrunc 2>/dev/null
must 2 "$damaged"
expect 'checkpoint not used' "$damaged.log" "damage is not told"
expect 'goes on after step 2 ' "$damaged.log" "the older generation is not used"
same "$two" "$damaged" "from the older generation"

# Killed and asked to stop while checkpoints are written after every step, of which there are enough
# for three runs to be caught before the last one.
many=(finetune.checkpoint_steps=1 finetune.steps=48 finetune.evaluate_every=0)
whole=$work/whole
fresh "$whole"
must 2 "$whole" "${many[@]}"
killed=$work/killed
fresh "$killed"
for signal in KILL TERM KILL; do
  run 2 "$killed" "${many[@]}" 2>/dev/null &
  pid=$!
  for i in $(seq 600); do # until there is a checkpoint that this run has written
    [ -e "$killed/finetune.checkpoint.0.h5" ] && [ "$killed/finetune.checkpoint.0.h5" -nt "$killed/begun" ] && break
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.05
  done
  pkill -"$signal" -P "$pid" 2>/dev/null || true
  wait "$pid" || true
  touch "$killed/begun"
  for i in $(seq 200); do # ranks outlive a killed mpiexec by a moment
    pgrep -f "output.dir=$killed" >/dev/null || break
    sleep 0.05
  done
done
must 2 "$killed" "${many[@]}"
expect 'goes on after step' "$killed.log" "what was killed begins anew"
same "$whole" "$killed" "killed and resumed"
echo "killed, stopped and damaged runs end with the same bits"

# Files that change places: the newest is found wherever it lies.
cp -r "$work/other" "$work/exchanged"
mv "$work/exchanged/finetune.checkpoint.0.h5" "$work/exchanged/third"
mv "$work/exchanged/finetune.checkpoint.1.h5" "$work/exchanged/finetune.checkpoint.0.h5"
mv "$work/exchanged/third" "$work/exchanged/finetune.checkpoint.1.h5"
code=0
run 2 "$work/exchanged" finetune.time_limit=1e-9 || code=$?
[ "$code" -eq 75 ] || { cat "$work/exchanged.log" >&2; fail "exchanged checkpoints end with $code"; }
expect 'stopped after step 4 of 8 by finetune.time_limit' "$work/exchanged.log" "no word of the limit"
must 2 "$work/exchanged"
expect 'goes on after step 4 ' "$work/exchanged.log" "the checkpoint before is not used"
same "$two" "$work/exchanged" "from exchanged checkpoints"

# A result that is complete leaves the checkpoint of a run with other settings alone.
code=0
run 2 "$work/exchanged" finetune.steps=9 finetune.time_limit=1e-9 || code=$?
[ "$code" -eq 75 ] || { cat "$work/exchanged.log" >&2; fail "another run ends with $code"; }
must 2 "$work/exchanged" bootstrap.resamples=101
expect 'complete for these inputs; skipped' "$work/exchanged.log" "the earlier result is not found"
expect 'are of other settings of bootstrap' "$work/exchanged.log" "no word of older statistics"
must 2 "$work/exchanged" finetune.steps=9
expect 'goes on after step 1 of 9' "$work/exchanged.log" "another run's checkpoint is gone"
must 1 "$work/exchanged" finetune.steps=9
if grep -q 'of other settings' "$work/exchanged.log"; then fail "statistics of the same settings are told"; fi

must 3 "$work/other"
expect 'goes on after step 3 ' "$work/other.log" "not resumed on 3 ranks"
close "$one/finetune.h5" "$work/other/finetune.h5" /steps/loss 8 2e-6 || fail "resumed on 3 ranks"

# A full disk, where a mount of one's own is permitted.
code=0
if unshare -m true 2>/dev/null; then
  WM_FULL_DISK=$two unshare -m bash "$0" "$program" "$mpiexec" "$model" || code=$?
else
  code=77
fi
[ "$code" -eq 0 ] || [ "$code" -eq 77 ] || fail "a full disk"
[ "$code" -eq 0 ] && echo "a full disk leaves the last checkpoint" || echo "full disk: left out, no private mount"

# A loss that is not finite.
fresh "$work/nan"
code=0
run 2 "$work/nan" finetune.rate=1 finetune.schedule=constant finetune.clip=0 finetune.weight_decay=1e6 \
  finetune.checkpoint_steps=1 finetune.evaluate_every=0 || code=$?
[ "$code" -eq 5 ] || { cat "$work/nan.log" >&2; fail "a loss that is not finite ends with $code"; }
expect 'not finite in step [0-9]+ .* after [0-9]+ tokens; the last checkpoint is finetune.checkpoint' \
  "$work/nan.log" "no word of step, tokens and checkpoint"

# What can't be meant is refused before anything is computed, by a dry run too.
refused() { # CODE PATTERN WHAT [SETTING...]
  local wanted=$1 pattern=$2 what=$3 code=0 ranks
  shift 3
  for ranks in 1 2; do
    code=0
    run "$ranks" "$work/refused" -n "$@" || code=$?
    [ "$code" -eq "$wanted" ] || { cat "$work/refused.log" >&2; fail "$what ends with $code"; }
    expect "$pattern" "$work/refused.log" "no word of $what"
  done
}
fresh "$work/refused"
refused 2 'nothing trains in phase "linearize".*finetune.train = "mlp"' "a phase that trains nothing" \
  "finetune.layers=[0,1,2,3,4,5,6,7]" 'finetune.train="mlp"'
refused 2 'finetune.steps' "a number of steps that nobody does" finetune.steps=9223372036854775807L
refused 2 '3000000000 steps of 16777216 x 512 tokens are more than can be counted' "too many tokens" \
  'finetune.plan="progressive"' finetune.layer_steps=1000000000 finetune.steps=1000000000 \
  finetune.sequences=16777216 finetune.length=512 'finetune.exhausted="wrap"'
mkdir "$work/dropped"
ln -s "$model"/*.safetensors "$model"/tokenizer.json "$work/dropped/"
for rate in 1 -0.25; do
  sed 's/"attn_pdrop": [0-9.]*/"attn_pdrop": '"$rate/" "$model/config.json" >"$work/dropped/config.json"
  refused 3 "dropped/config.json: \"attn_pdrop\" must be in \[0, 1\) .* but is $rate" "dropout of $rate" \
    model.path="$work/dropped"
done
run 1 "$work/refused" -n model.path="$work/dropped" finetune.dropout=false ||
  { cat "$work/refused.log" >&2; fail "a rate of dropout that is not used is refused"; }

# Plans.
for plan in progressive two_phase control_study; do
  fresh "$work/$plan"
  must 2 "$work/$plan" "finetune.plan=\"$plan\""
done
for gated in false true; do
  fresh "$work/pretrain_$gated"
  must 2 "$work/pretrain_$gated" 'finetune.plan="pretrain"' model.path="$model/config.json" \
    tokenizer.path="$model" finetune.gated=$gated finetune.rate=1e-3 finetune.warm_up=2
  h5diff -q "$work/pretrain_false/finetune.h5" "$work/pretrain_$gated/finetune.h5" /steps/chain ||
    fail "tokens of pretraining"
done
expect 'layer 3, end' "$work/progressive.log" "no phase for layer 3"
expect 'gates at the end' "$work/two_phase.log" "no distribution of gates"
fresh "$work/compare"
must 2 "$work/compare" 'finetune.plan="two_phase"' finetune.compare=true
expect 'plan, gates that decide: evaluation' "$work/compare.log" "no comparison"
h5diff "$work/compare/finetune.h5" "$work/compare/control.h5" /steps/chain || fail "the control's tokens"

# Too few tokens.
run 1 "$work/compare" "finetune.tokens=[10000,10500]" && fail "too few tokens are accepted"
expect 'are enough for 3; see finetune.exhausted' "$work/compare.log" "no word of too few tokens"
fresh "$work/wrap"
must 2 "$work/wrap" "finetune.tokens=[10000,10500]" 'finetune.exhausted="wrap"'
fresh "$work/stop"
must 1 "$work/stop" "finetune.tokens=[10000,10500]" 'finetune.exhausted="stop"'
expect 'used up after 3 of 8 steps' "$work/stop.log" "it does not say where it stops"
run 1 "$work/stop" "ranges.evaluation.tokens=[10000,10600]" && fail "an overlap is accepted"
expect 'overlaps the tokens \[10000, 30000\) that are trained on' "$work/stop.log" "no word of the overlap"
echo "plans, comparison and refusals"
