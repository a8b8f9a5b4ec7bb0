#!/usr/bin/env bash
# The export job, the program as a whole: a model with linear layers, and a fine-tuned one, are
# written as checkpoints, read again by the program and cost what they cost before; what can't be
# written is refused, and what is there is left alone.
#   export.sh WANAMAKER MPIEXEC MODEL_DIR     (demo_gpt_neox lies beside it)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 2000 0
neox=$(dirname "$model")/demo_gpt_neox

job() { # RANKS JOB OUT [SETTING...]
  run_job "$@" protocol.kind=stream fit.spectrum=false
}

must() { # as job
  job "$@" || { cat "$3.log" >&2; fail "$2 on $1 ranks, $3"; }
}

expect() { # PATTERN FILE WHAT
  grep -Eq "$1" "$2" || { cat "$2" >&2; fail "$3"; }
}

refused() { # PATTERN WHAT RANKS JOB OUT [SETTING...]
  local pattern=$1 what=$2
  shift 2
  job "$@" && fail "$what is accepted"
  expect "$pattern" "$3.log" "no word of $what"
}

# Losses of one variant (row) of sweep.h5, or of a fine-tuned model's last evaluation.
losses() { # FILE DATASET ROW
  local raw columns
  raw=$(mktemp -p "$work")
  columns=$(h5dump -H -d "$2" "$1" | sed -n 's/.*SIMPLE { ( [0-9]*, \([0-9]*\) ).*/\1/p' | sed -n 1p)
  h5dump -b LE -o "$raw" -d "$2" -s "$3,0" -c "1,$columns" "$1" >/dev/null
  od -An -v -t f4 -w4 "$raw"
}

perplexity() { # as losses
  losses "$@" | awk '{ sum += $1; n++ } END { if (n == 0) exit 1; printf "%.9g\n", exp(sum / n) }'
}

# Perplexity of a checkpoint: the model itself is a sweep's first variant.
of_checkpoint() { # CHECKPOINT OUT
  mkdir -p "$2"
  model=$1 must 1 fit "$2" "fit.layers=[0]"
  model=$1 must 1 sweep "$2" "sweep.joint=()" "sweep.layers=[0]"
  perplexity "$2/sweep.h5" /nll 0
}

agree() { # A B WHAT
  echo "$3: $1 and $2"
  awk -v a="$1" -v b="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(a > 1 && d <= 1e-5 * a) }' ||
    fail "$3: $1 and $2"
}

differ() { # A B WHAT
  awk -v a="$1" -v b="$2" 'BEGIN { d = a > b ? a - b : b - a; exit !(d > 1e-4 * a) }' ||
    fail "$3 makes no difference: $1 and $2"
}

# Two linear layers, against the sweep's joint variant of the same.
linearised() { # NAME
  local out=$work/$1 before joint after
  mkdir "$out"
  must 1 tokenize "$out"
  must 2 fit "$out"
  must 2 sweep "$out" "sweep.joint=([1,3])" "sweep.single=false"
  before=$(perplexity "$out/sweep.h5" /nll 0)
  joint=$(perplexity "$out/sweep.h5" /nll 1)
  must 1 export "$out" "export.layers=[1,3]" -n
  expect "2 of them linear" "$out.log" "a dry run does not say the layers"
  [ ! -e "$out/export" ] || fail "a dry run writes"
  must 2 export "$out" "export.layers=[1,3]"
  mkdir "$work/$1.again"
  cp "$out/"tokens.*.h5 "$work/$1.again/"
  after=$(of_checkpoint "$out/export" "$work/$1.again")
  agree "$joint" "$after" "$1 with two linear layers"
  differ "$before" "$after" "two linear layers of $1"
}

model=$neox linearised neox
linearised gpt2

# What is there is left alone.
out=$work/gpt2
[ -e "$out/export/surrogates.safetensors" ] || fail "no surrogates beside the checkpoint"
touch "$work/before"
must 1 export "$out" "export.layers=[1,3]"
expect 'complete for these inputs; skipped' "$out.log" "a second run did something"
[ -z "$(find "$out/export" -newer "$work/before")" ] || fail "a second run wrote something"
refused 'is there already, and is no export of these inputs' "another export" \
  2 export "$out" "export.layers=[1]"
refused 'export.layers: 8 is not a layer' "a layer too many" 2 export "$out" "export.layers=[8]" \
  "export.dir=$work/none"
model=$neox refused 'surrogates are of another model' "another model's surrogates" 2 export "$out" \
  "export.layers=[1]" "export.dir=$work/none"
refused 'holds neither tokenizer.json' "a missing tokenizer" 2 export "$out" "export.dir=$work/none" \
  "tokenizer.path=$work"
if [ -e "$work/none" ] || [ -e "$work/none.partial" ]; then
  fail "a refused export writes"
fi
mkdir "$work/mine.partial"
echo notes >"$work/mine.partial/notes.txt"
refused 'mine.partial: is there already and holds what no export wrote' "somebody's directory" 2 export "$out" \
  "export.dir=$work/mine"
[ "$(cat "$work/mine.partial/notes.txt")" = notes ] && [ ! -e "$work/mine" ] || fail "somebody's directory is used"
rm "$work/mine.partial/notes.txt"
touch "$work/mine.partial/model.safetensors.tmp" "$work/mine.partial/config.json" # a killed export's
must 1 export "$out" "export.dir=$work/mine"
[ ! -e "$work/mine/model.safetensors.tmp" ] || fail "a killed export's file is published"
echo "refusals"

# A fine-tuned model: two layers linear, two steps.
tuned() { # OUT [SETTING...]
  local out=$1
  shift
  must 2 finetune "$out" "$@" "finetune.layers=[2,3]" "finetune.tokens=[10000,30000]" finetune.length=32 \
    finetune.sequences=2 finetune.steps=2 finetune.rate=1e-3 finetune.evaluate_every=0 "finetune.gate_steps=2"
}
out=$work/tuned
mkdir "$out"
cp "$work/gpt2/"tokens.*.h5 "$out/"
tuned "$out"
rows=$(h5dump -H -d /evaluation/nll "$out/finetune.h5" | sed -n 's/.*SIMPLE { ( \([0-9]*\), [0-9]* ).*/\1/p')
end=$(perplexity "$out/finetune.h5" /evaluation/nll $((rows - 1)))
start=$(perplexity "$out/finetune.h5" /evaluation/nll 0)
must 2 export "$out" "export.state=$out/finetune.model.h5"
mkdir "$work/tuned.again"
cp "$out/"tokens.*.h5 "$work/tuned.again/"
after=$(of_checkpoint "$out/export" "$work/tuned.again")
agree "$end" "$after" "fine-tuned with two linear layers"
differ "$start" "$after" "fine-tuning"

# Gates are in no ordinary checkpoint.
tuned "$out" 'finetune.plan="two_phase"'
refused 'layer 2 has a gate, which no ordinary checkpoint can express' "a gate" 2 export "$out" \
  "export.state=$out/finetune.model.h5" "export.dir=$work/gated"
must 2 export "$out" "export.state=$out/finetune.model.h5" "export.dir=$work/gated" \
  'export.gated="linear"'
[ -e "$work/gated/gates.safetensors" ] || fail "no gates beside the checkpoint"
model=$neox refused 'made with another config.json' "another model's state" 2 export "$out" \
  "export.state=$out/finetune.model.h5" "export.dir=$work/none"
refused 'finetune.h5: is no model; export.state must be a finetune.model.h5' "a result that is no model" 2 export \
  "$out" "export.state=$out/finetune.h5" "export.dir=$work/none"
echo "fine-tuned models"
