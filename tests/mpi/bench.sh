#!/usr/bin/env bash
# The job bench on 1 and 2 ranks: all parts on a tiny model of either family, what it writes, dry runs,
# settings that can't be, and a random model that goes through files into the other jobs.
#   bench.sh WANAMAKER MPIEXEC MODEL_DIR
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"

cat >"$work/gpt2.json" <<'END'
{"model_type": "gpt2", "n_layer": 3, "n_embd": 96, "n_head": 3, "n_positions": 128, "vocab_size": 1003}
END
cat >"$work/neox.json" <<'END'
{"model_type": "gpt_neox", "num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2,
 "intermediate_size": 256, "max_position_embeddings": 128, "vocab_size": 701, "rotary_pct": 0.5}
END

bench() { # RANKS CONFIG OUT [SETTING...]
  local ranks=$1 config=$2 out=$3
  shift 3
  "$mpiexec" -n "$ranks" "$program" bench bench.config="$config" output.dir="$out" bench.window=64 \
    bench.windows=2 bench.documents=300 bench.repeat=1 bench.seconds=1 compute.tile_rows=64 \
    compute.block_tokens=128 "$@" >"$out.log" 2>&1
}

expect() { # STATUS TEXT COMMAND...
  local wanted=$1 text=$2 status=0
  shift 2
  "$@" || status=$?
  [ "$status" -eq "$wanted" ] || fail "exit $status instead of $wanted: $*"
  grep -qF -- "$text" "$4.log" || { cat "$4.log" >&2; fail "\"$text\" is not said: $*"; }
}

# Members of a dataset's rows as lines of numbers, names left out.
values() { # FILE DATASET
  h5dump -y -w 1 -d "$2" "$1" | sed -n '/DATA {/,$p' | grep -oE '^ *-?(nan|[0-9.e+-]+),? *$' | tr -d ' ,'
}

common='/forward/rates /forward/kernels /forward/document_kernels /fit /sweep/times /sweep/kernels
/scaling /memory /machine/products /machine/memory /routing/layers /routing/last /routing/losses
/routing/full_kernels /routing/kernels /training/rates /training/kernels'
several='/machine/allreduce /machine/latency'

for ranks in 1 2; do
  for family in gpt2 neox; do
    parts=all
    [ "$family" = gpt2 ] || parts='forward, documents fit,sweep routing scaling training'
    out=$work/$family.$ranks
    bench "$ranks" "$work/$family.json" "$out" bench.parts="\"$parts\"" || { cat "$out.log" >&2; fail "$family on $ranks ranks"; }
    grep -q 'peak memory [0-9.]* GiB on the node' "$out.log" || fail "memory is not told"
    [ "$(h5dump -a /complete "$out/bench.h5" | grep -c '(0): 1')" -eq 1 ] || fail "bench.h5 is not complete"
    for data in $common $([ "$ranks" -eq 1 ] || echo "$several"); do
      [ "$parts" = all ] || [[ $data != /machine/* ]] || continue
      h5dump -H -d "$data" "$out/bench.h5" >/dev/null || fail "$data is missing ($family, $ranks)"
    done
  done
  # operations of the sweep by those of four full models: a matter of sizes alone
  h5dump -a /sweep/times/note "$work/gpt2.$ranks/bench.h5" | grep '0.622 of their operations' >/dev/null ||
    fail "operations of the sweep on $ranks ranks"
  # the last two rows of kernels are what is left and the whole; shares are the second member
  values "$work/gpt2.$ranks/bench.h5" /forward/kernels | awk 'NR % 5 == 2 { share[++n] = $1 } END {
    for (i = 1; i < n; i++) sum += share[i]
    exit !(n >= 10 && share[n] == 100 && sum > 99.9 && sum < 100.1) }' || fail "shares of the kernels"
done
# A training step: eight windows whatever the ranks, three times a forward pass's operations, all of them
# counted in its kernels; one rank alone is told beside two, with the same operations.
for ranks in 1 2; do
  file=$work/gpt2.$ranks/bench.h5
  values "$file" /training/rates | awk -v ranks="$ranks" '
    function near(a, b, what) { if ((a - b) ^ 2 > 1e-9 * b ^ 2) { print what, a, b; bad = 1 } }
    { v[(NR - 1) % 9 + 1] = $1 }
    NR == 3 { best = $1 }
    NR % 9 == 0 {
      near(v[1], 512, "tokens"); near(v[4], 512 / v[2], "tokens/s")
      near(v[5] * 1e9 * v[2], 3 * 8 * (3 * 64 * (2 * 12 * 96 * 96 + 4 * 96 * 32.5) + 63 * 2 * 96 * 1003), "operations")
      if (v[2] <= 0 || v[7] < 0 || v[7] > 100 || v[8] <= 0 || v[9] <= 0) bad = 1
      rows++
    }
    END { exit bad || rows != ranks || (ranks == 1 && v[8] != 1) }' || fail "rates of training on $ranks ranks"
  step=$(values "$file" /training/rates | awk 'NR == 2 { s = $1 } NR == 5 { printf "%.17g", s * $1 }')
  values "$file" /training/kernels | awk -v step="$step" '
    NR % 5 == 1 { seconds = $1; n++ }
    NR % 5 == 2 { share[n] = $1 }
    NR % 5 == 3 { flops[n] = $1 ~ /nan/ ? 0 : $1 * seconds }
    END { for (i = 1; i < n; i++) { sum += share[i]; all += flops[i] }
      exit !(n > 25 && sum > 99.9 && sum < 100.1 && (all / step - 1) ^ 2 < 1e-6 && (flops[n] / step - 1) ^ 2 < 1e-4) }' ||
    fail "kernels of training on $ranks ranks"
done
# Batches of 1 and 4 windows; random and gate at 25, 50, 75 %, then all linear. A gate's threshold makes
# its fraction exact; operations saved are a matter of sizes alone: of the layers without head, with the
# head of one position of 64, and of 63; a gate costs 2 d.
routing() { # FILE DATASET HEADS
  values "$1" "$2" | awk -v heads="$3" '
    function near(a, b, what) { if ((a - b) ^ 2 > 1e-8 * b ^ 2) { print what, a, b; bad = 1 } }
    { v[(NR - 1) % 10 + 1] = $1 }
    NR % 10 == 0 {
      row = (NR / 10 - 1) % 7; layer = 2 * 12 * 96 * 96 + 4 * 96 * 32.5
      wanted = row == 6 ? 100 : 25 * (1 + int(row / 2))
      if (row % 2 == 1 || row == 6) near(v[1], wanted, "routed")
      else if (v[1] < wanted - 15 || v[1] > wanted + 15) { print "random", v[1], wanted; bad = 1 }
      saved = v[1] / 100 * (4 * 96 * 384 - 2 * 96 * 96) - (row % 2 == 1 ? 2 * 96 : 0)
      near(v[7], 100 * 3 * saved / (3 * layer + heads / 64 * 2 * 96 * 1003), "operations")
      near(v[6], v[2] / v[3], "speedup")
      near(100 + v[9] * v[7] / 100, 100 + 100 * (1 - v[3] / v[2]), "appears")
    }
    END { exit bad || NR != 140 }' || fail "$2 of $1"
}
for ranks in 1 2; do
  routing "$work/gpt2.$ranks/bench.h5" /routing/layers 0
  routing "$work/gpt2.$ranks/bench.h5" /routing/last 1
  routing "$work/gpt2.$ranks/bench.h5" /routing/losses 63
done
[ "$(values "$work/gpt2.2/bench.h5" /scaling | wc -l)" -eq 10 ] || fail "scaling over two ranks"

# a rate is told as a part of the peak of its own type: rows are f32, f32 and, where there is one, bf16
peak() { # FILE ATTRIBUTE
  h5dump -m %.17g -a "/$2" "$1" | sed -n 's/.*(0): *//p'
}
for ranks in 1 2; do
  file=$work/gpt2.$ranks/bench.h5
  values "$file" /forward/rates | awk -v f32="$(peak "$file" peak_flops)" -v bf16="$(peak "$file" peak_flops_bf16)" '
    NR % 7 == 5 { rate = $1 * 1e9 }
    NR % 7 == 6 { wanted = 100 * rate / (++n == 3 ? bf16 : f32); if ($1 < 0.999 * wanted || $1 > 1.001 * wanted) bad = 1 }
    END { exit bad || n < 2 || (n == 3) != (bf16 + 0 > 0) }' || fail "shares of the peak on $ranks ranks"
done
# kernels are timed by the wall clock: of a peak by the processor they are no parts
bench 1 "$work/gpt2.json" "$work/clock" bench.parts='"machine forward"' bench.clock=processor || fail "processor time"
values "$work/clock/bench.h5" /forward/kernels | awk 'NR % 5 == 4 && $1 !~ /nan/ { exit 1 }' || fail "shares of two clocks"
values "$work/clock/bench.h5" /forward/rates | awk 'NR == 6 && $1 !~ /nan/ { found = 1 } END { exit !found }' || fail "shares of one clock"

for ranks in 1 2; do
  out=$work/dry.$ranks
  expect 0 '3 layers of width 96, random weights' bench "$ranks" "$work/gpt2.json" "$out" -n
  expect 0 'f16 in 2 file(s)' bench "$ranks" "$work/gpt2.json" "$out" -n bench.save="$work/none" \
    bench.save_dtype=f16 bench.save_shards=2
  [ ! -e "$out" ] && [ ! -e "$work/none" ] || fail "a dry run wrote something"
  expect 2 'bench.parts: no part "swep"' bench "$ranks" "$work/gpt2.json" "$out" bench.parts='"fit swep"'
  expect 2 'bench.batches names no batch' bench "$ranks" "$work/gpt2.json" "$out" bench.batches='[]'
  expect 2 'bench.fractions' bench "$ranks" "$work/gpt2.json" "$out" bench.fractions='[0.5, 1.5]'
  expect 2 'names no part' bench "$ranks" "$work/gpt2.json" "$out" bench.parts='" ,"'
  expect 2 'at most 128 positions' bench "$ranks" "$work/gpt2.json" "$out" bench.window=129
  expect 3 'missing.json' bench "$ranks" "$work/missing.json" "$out"
  expect 2 'bench.repeat' bench "$ranks" "$work/gpt2.json" "$out" bench.repeat=0
done

# A model made of config.json alone goes through the whole program.
for i in $(seq 200); do echo "Line $i of a text in which the $((i * 7919 % 101)) wise men walked"; done >"$work/text.txt"
expect 0 'wrote a model with random weights' bench 2 "$model" "$work/save" bench.save="$work/saved" \
  bench.save_dtype=f16 bench.save_shards=2
expect 2 'already holds a model' bench 2 "$model" "$work/save" bench.save="$work/saved"
"$mpiexec" -n 2 "$program" run model.path="$work/saved" tokenizer.path="$model" \
  corpora.main.path="$work/text.txt" output.dir="$work/run" protocol.window=64 \
  ranges.fit.tokens=[0,1000] ranges.validation.tokens=[1000,1500] \
  ranges.evaluation.tokens=[1500,2500] bootstrap.resamples=100 >"$work/run.log" 2>&1 ||
  { cat "$work/run.log" >&2; fail "run on a saved random model"; }
h5dump -a /peak_memory "$work/run/sweep.h5" | grep -E '\(0\): [1-9][0-9]{6,}' >/dev/null || fail "peak_memory of sweep.h5"
echo "bench: 1 and 2 ranks"
