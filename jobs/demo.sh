#!/usr/bin/env bash
# The newcomer's command: installs what is missing, builds, and runs the main job on the two small
# models in tests/data, on a text that a Debian package ships, or on yours, and writes a report.
#   bash jobs/demo.sh [FILE]     FILE: plain text, a paragraph a line, or .jsonl
set -euo pipefail

case ${1:-} in
-h | --help)
  sed -n '2,4s/^# //p' "$0"
  exit 0
  ;;
esac
[ $# -le 1 ] || { echo "usage: bash jobs/demo.sh [FILE]" >&2; exit 2; }
if [ $# -eq 1 ]; then
  [ -r "$1" ] || { echo "$1: cannot read it" >&2; exit 3; }
  text=$(realpath -- "$1") # before the change of directory
fi
cd "$(dirname "$0")/.."
source jobs/setup.sh

wm_setup
wm_install hdf5-tools gnuplot-nox
mkdir -p build results/demo
wm_build build/demo -DWM_TESTS=OFF
if [ $# -eq 0 ]; then
  text=results/demo/text.txt
  [ -s "$text" ] || bash jobs/demo_text.sh "$text"
fi

# The default ranges end at token 100 000; a shorter text of yours is shared out in the same
# proportions.
scale_ranges() { # TOKENS_FILE
  local n
  n=$(h5dump -H -d /tokens "$1" | sed -n 's/.*SIMPLE { ( \([0-9]*\) ).*/\1/p')
  [ "$n" -lt 100000 ] || return 0
  echo "the text has $n tokens: ranges are scaled down; a long text gives narrower intervals"
  ranges=("ranges.fit.tokens=[0,$((n / 10))]" "ranges.validation.tokens=[$((n * 35 / 100)),$((n * 47 / 100))]"
    "ranges.evaluation.tokens=[$((n / 2)),$n]")
}

# A rank per core, at most four; threads beyond that would idle on models this small.
ranks=$(wm_cores)
[ "$ranks" -le 4 ] || ranks=4
for model in demo_gpt2 demo_gpt_neox; do
  echo
  echo "== $model: cost of replacing each layer's MLP by its ridge surrogate =="
  settings=(configs/demo.cfg model.path="tests/data/$model" corpora.demo.path="$text"
    output.dir="results/demo/$model")
  wm_mpirun "$ranks" 1 build/demo/wanamaker tokenize "${settings[@]}"
  ranges=()
  scale_ranges "results/demo/$model/tokens.demo.stream.h5"
  wm_mpirun "$ranks" 1 build/demo/wanamaker run "${settings[@]}" "${ranges[@]}" report.enabled=false
done
echo
echo "== both models: which layers are wasted, at what cost, how sure =="
build/demo/wanamaker report report.inputs=results/demo/demo_gpt2,results/demo/demo_gpt_neox \
  output.dir=results/demo
echo
echo "The report, for a browser: $PWD/results/demo/report.html"
echo "Every token's loss and the statistics: results/demo/demo_gpt2/sweep.h5 and"
echo "results/demo/demo_gpt_neox/sweep.h5 (read them with h5py or h5dump; see results/README.md)."
