#!/usr/bin/env bash
# Fine-tuning of a small model with its middle layers linear: the plans linearize, progressive and
# two_phase, each beside its control on the same tokens, and a report that compares them.
#   bash jobs/finetune_demo.sh [KEY=VALUE...]     settings of the job finetune, e.g. finetune.seed=2
set -euo pipefail

case ${1:-} in
-h | --help)
  sed -n '2,4s/^# //p' "$0"
  exit 0
  ;;
esac
cd "$(dirname "$0")/.."
source jobs/setup.sh

wm_setup
wm_install gnuplot-nox
out=results/finetune_demo
mkdir -p build $out
wm_build build/demo -DWM_TESTS=OFF
[ -s $out/prose.txt ] || bash jobs/demo_text.sh $out/prose.txt
[ -s $out/perl_train.txt ] && [ -s $out/perl_test.txt ] || bash jobs/perl_text.sh $out/perl_train.txt $out/perl_test.txt

ranks=$(wm_cores)
[ "$ranks" -le 2 ] || ranks=2 # a step has two sequences
run() { # NAME SETTING...
  local name=$1 begin=$SECONDS
  shift
  echo
  echo "== $name and its control =="
  wm_mpirun "$ranks" 1 build/demo/wanamaker tokenize configs/finetune_demo.cfg "$@" output.dir="$out/$name"
  wm_mpirun "$ranks" 1 build/demo/wanamaker finetune configs/finetune_demo.cfg "$@" output.dir="$out/$name"
  echo "$name: $((SECONDS - begin)) s on $ranks ranks"
}
run linearize "$@"
run progressive finetune.plan=progressive finetune.layer_steps=100 finetune.steps=600 "$@"
run two_phase finetune.plan=two_phase finetune.steps=500 finetune.gate_steps=500 "$@"

echo
echo "== all of them =="
build/demo/wanamaker report report.inputs=$out/linearize,$out/progressive,$out/two_phase output.dir=$out
echo "The report, for a browser: $PWD/$out/report.html"
