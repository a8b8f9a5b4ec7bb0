#!/usr/bin/env bash
# The newcomer's command: installs what is missing, builds, and runs the main job on the two small
# models in tests/data, on a text that a Debian package ships, or on yours.
#   bash jobs/demo.sh [FILE]     FILE: plain text, a paragraph a line, or .jsonl
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/setup.sh

case ${1:-} in
-h | --help)
  sed -n '2,4s/^# //p' "$0"
  exit 0
  ;;
esac
[ $# -le 1 ] || { echo "usage: bash jobs/demo.sh [FILE]" >&2; exit 2; }

wm_setup
mkdir -p build results/demo
wm_build build/demo -DWM_TESTS=OFF
if [ $# -eq 1 ]; then
  text=$1
  [ -r "$text" ] || { echo "$text: cannot read it" >&2; exit 3; }
else
  text=results/demo/text.txt
  [ -s "$text" ] || bash jobs/demo_text.sh "$text"
fi

# A rank per core, at most four; threads beyond that would idle on models this small.
ranks=$(nproc)
[ "$ranks" -le 4 ] || ranks=4
for model in demo_gpt2 demo_gpt_neox; do
  echo
  echo "== $model: cost of replacing each layer's MLP by its ridge surrogate =="
  wm_mpirun "$ranks" 1 build/demo/wanamaker run configs/demo.cfg \
    model.path="tests/data/$model" corpora.demo.path="$text" output.dir="results/demo/$model"
done
echo
echo "Every token's loss and the statistics: results/demo/demo_gpt2/sweep.h5 and"
echo "results/demo/demo_gpt_neox/sweep.h5 (read them with h5py or h5dump; see results/README.md)."
