#!/usr/bin/env bash
# The probes of both small models on two corpora of different kind, prose and source code: installs
# what is missing, builds, and prints every table.
#   bash jobs/probe_demo.sh [KEY=VALUE...]     settings of the job probe, e.g. probe.layers=[2,5]
set -euo pipefail
cd "$(dirname "$0")/.."
source jobs/setup.sh

case ${1:-} in
-h | --help)
  sed -n '2,4s/^# //p' "$0"
  exit 0
  ;;
esac
wm_setup
mkdir -p build results/probe_demo
wm_build build/demo -DWM_TESTS=OFF
prose=results/probe_demo/prose.txt code=results/probe_demo/code.txt
[ -s "$prose" ] || bash jobs/demo_text.sh "$prose"
cat src/*/*.c >"$code.new"
cmp -s "$code.new" "$code" || cp "$code.new" "$code"
rm "$code.new"

begin=$SECONDS ranks=$(wm_cores)
[ "$ranks" -le 4 ] || ranks=4
for model in demo_gpt2 demo_gpt_neox; do
  echo
  echo "== $model: is it the token or its context? =="
  start=$SECONDS
  wm_mpirun "$ranks" 1 build/demo/wanamaker probe configs/probe_demo.cfg \
    model.path="tests/data/$model" corpora.prose.path="$prose" corpora.code.path="$code" \
    output.dir="results/probe_demo/$model" "$@"
  echo "$model: $((SECONDS - start)) s on $ranks ranks"
done
echo "all tables: $((SECONDS - begin)) s; how to read them: results/README.md, \"probes.h5\""
