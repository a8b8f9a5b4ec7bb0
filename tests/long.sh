#!/usr/bin/env bash
# The long tier (tests/run.sh --all): the reference stack in a virtual environment, the other product
# backend, MPICH, sanitizers, valgrind, and a minute of fuzzing each reader.
#   bash tests/long.sh BUILD_DIR [PART...]   BUILD_DIR: a finished build, e.g. build/tests; without
#                                            PARTs all of them: programs stack models tokenizer pipeline
#                                            gates finetune export probes overlap kills faults cblas mpich sanitizers
#                                            slurm study messages times browser fuzz valgrind
# WM_SHARED_DATA may name a directory with the full tokenizers and corpora for the tokenizer oracle.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
source jobs/setup.sh
build=$1
shift
wanted=" $* "
venv=build/oracle
failed=()

part() {
  local key=$1 name=$2
  shift 2
  [ "$wanted" = "  " ] || [[ $wanted == *" $key "* ]] || return 0
  echo "== $name =="
  "$@" || failed+=("$name")
}

programs() {
  (cd "$build" && ctest -L '^long$' --output-on-failure)
}

reference_stack() {
  wm_install python3-venv python3-torch python3-numpy python3-h5py
  [ -x $venv/bin/python ] || /usr/bin/python3 -m venv --system-site-packages $venv
  $venv/bin/pip install -q -r tests/oracle/requirements.txt
}

oracle_pipeline() {
  local text=build/demo_text.txt model
  [ -s $text ] || bash jobs/demo_text.sh $text
  for model in demo_gpt2 demo_gpt_neox; do
    $venv/bin/python tests/oracle/pipeline_compare.py "$build/wanamaker" "tests/data/$model" $text \
      "build/oracle_run/$model" --protocol stream || return 1
    $venv/bin/python tests/oracle/pipeline_compare.py "$build/wanamaker" "tests/data/$model" $text \
      "build/oracle_run/$model.documents" --protocol documents --keep-newline --ranks 2 || return 1
  done
}

oracle_gates() {
  local text=build/demo_text.txt model
  [ -s $text ] || bash jobs/demo_text.sh $text
  for model in demo_gpt2 demo_gpt_neox; do
    $venv/bin/python tests/oracle/gates_compare.py "$build/wanamaker" "tests/data/$model" $text \
      "build/oracle_run/$model.gates" --protocol stream --ranks 2 || return 1
    $venv/bin/python tests/oracle/gates_compare.py "$build/wanamaker" "tests/data/$model" $text \
      "build/oracle_run/$model.gates.documents" --protocol documents || return 1
  done
}

oracle_probes() {
  local text=build/demo_text.txt other=build/oracle_run/code.txt model
  [ -s $text ] || bash jobs/demo_text.sh $text
  mkdir -p build/oracle_run
  cat src/base/*.c src/io/*.c >$other
  for model in demo_gpt2 demo_gpt_neox; do
    $venv/bin/python tests/oracle/probes_compare.py "$build/wanamaker" "tests/data/$model" $text $other \
      "build/oracle_run/$model.probes" --ranks 2 || return 1
  done
}

oracle_finetune() {
  local text=build/demo_text.txt model
  [ -s $text ] || bash jobs/demo_text.sh $text
  for model in demo_gpt2 demo_gpt_neox; do
    $venv/bin/python tests/oracle/finetune_compare.py "$build/wanamaker" "tests/data/$model" $text \
      "build/oracle_run/$model.finetune" --ranks 2 || return 1
    # The whole training, six thousand steps, takes an hour: the same without --steps.
    $venv/bin/python tests/oracle/pretrain_compare.py "$build/wanamaker" "tests/data/$model" \
      "build/oracle_run/$model.pretrain" --steps 200 || return 1
  done
}

oracle_export() {
  local text=build/demo_text.txt model
  [ -s $text ] || bash jobs/demo_text.sh $text
  for model in demo_gpt2 demo_gpt_neox; do
    $venv/bin/python tests/oracle/export_compare.py "$build/wanamaker" "tests/data/$model" $text \
      "build/oracle_run/$model.export" --ranks 2 || return 1
  done
}

oracle_models() {
  $venv/bin/python tests/oracle/model_compare.py "$build/tests/oracle/forward_tool" &&
    $venv/bin/python tests/oracle/model_compare.py "$build/tests/oracle/forward_tool" \
      tests/data/demo_gpt2 tests/data/demo_gpt_neox
}

# A later release than the reference stack's transformers accepts: its Unicode tables are newer.
oracle_tokenizer() {
  [ -x $venv-tokenizer/bin/python ] || /usr/bin/python3 -m venv $venv-tokenizer
  $venv-tokenizer/bin/pip install -q tokenizers==0.23.3 &&
    $venv-tokenizer/bin/python tests/oracle/tokenizer_compare.py "$build/tests/oracle/tokenize_tool"
}

overlap() {
  $venv/bin/python tests/oracle/overlap_check.py build/overlap
}

kills() {
  (cd "$build" && WM_KILLS=50 ctest -R '^fault_kill$' --verbose)
}

# With mounts of their own (full disks, read-only places, a small /dev/shm) where that is allowed.
faults() {
  (cd "$build" && WM_FAULTS=all ctest -R '^fault_program$' --verbose --timeout 3000)
}

cblas() {
  wm_build build/cblas -DWM_GEMM=cblas -DWM_WERROR=ON &&
    (cd build/cblas && ctest --output-on-failure --timeout 600)
}

# MPICH's ranks wait busily: more of them than cores take minutes over a millisecond's work.
mpich() {
  local leave_out=none
  [ "$(wm_cores)" -ge 4 ] || leave_out='_4$'
  wm_install mpich libmpich-dev libhdf5-mpich-dev libscalapack-mpich-dev
  wm_build build/mpich -DWM_HDF5_PKG=hdf5-mpich -DWM_SCALAPACK=scalapack-mpich \
    -DMPI_C_COMPILER=mpicc.mpich -DMPIEXEC_EXECUTABLE=/usr/bin/mpiexec.mpich &&
    (cd build/mpich && ctest --output-on-failure --timeout 600 -E "$leave_out")
}

sanitizers() {
  wm_build build/sanitize -DWM_SANITIZE=ON -DWM_WERROR=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
    (cd build/sanitize && ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 \
      ctest --output-on-failure --timeout 1200)
}

# What one node can't show; root alone can make nodes.
two_nodes() {
  [ "$(id -u)" -eq 0 ] || {
    echo "left out: needs root"
    return 0
  }
  wm_install slurm-wlm munge iproute2
  bash tests/slurm/check.sh "$build"
}

# A whole study under Slurm, with everything that goes wrong at night.
study() {
  [ "$(id -u)" -eq 0 ] || {
    echo "left out: needs root"
    return 0
  }
  wm_install slurm-wlm munge iproute2 hdf5-tools
  local quiet=$build/study_quiet
  rm -rf "$quiet"
  WM_STUDY_QUIET=$quiet bash tests/slurm/study.sh "$build" && WM_STUDY_QUIET=$quiet bash tests/slurm/study.sh "$build" 30
}

# Messages of up to 16 ranks, whatever cores there are.
messages() {
  (cd "$build" && WM_RANKS="1 2 4 8 16" ctest -R '^program_messages$' --verbose)
}

# On a machine that does nothing else.
times() {
  bash tests/mpi/plan_times.sh "$build/wanamaker" mpiexec tests/data/demo_gpt2 tests/data/demo_gpt_neox gpt2
}

# A report's every number, and its page in headless Chromium; screenshots go to build/browser.
check_report() { # REPORT RESULTS...
  local report=$1
  /usr/bin/python3 tests/oracle/report_check.py "$report" results/reference 3 "${@:2}" &&
    /usr/bin/python3 tests/oracle/report_browser.py "$report" "build/browser/pictures_${report##*/}"
}

train() { # OUT PLAN SETTING...: demo_gpt2, on the tokens behind those of the ranges
  mkdir -p "$1"
  cp build/browser/demo_gpt2/tokens.* "$1"
  "$build/wanamaker" finetune configs/demo.cfg model.path=tests/data/demo_gpt2 corpora.demo.path=build/demo_text.txt \
    output.dir="$1" "finetune.tokens=[100000,120000]" finetune.plan="$2" "${@:3}" >/dev/null
}

# Training with its control and probes besides, as if of a model of the study.
report_with_all() {
  local out=build/browser/all study=build/browser/study
  local training=(finetune.length=64 finetune.sequences=8 finetune.steps=20 finetune.evaluate_every=10
    "finetune.layers=[2,3,4,5]")
  rm -rf $out $study
  mkdir -p $out
  cp build/browser/demo_gpt2/{surrogates,sweep}.h5 $out/
  train $out control_study "${training[@]}" && mv $out/finetune.h5 $out/control.h5 &&
    train $out linearize "${training[@]}" &&
    "$build/wanamaker" probe configs/demo.cfg model.path=tests/data/demo_gpt2 corpora.demo.path=build/demo_text.txt \
      output.dir=$out "probe.layers=[1,4]" >/dev/null &&
    /usr/bin/python3 tests/oracle/report_study.py $out $study 512000 102400 &&
    "$build/wanamaker" report output.dir=$study >$study.log &&
    cat $study.log &&
    check_report $study $study
}

# Both models with gates and plans; one with probes, three sets of gated layers compared with their
# controls, and layers made linear one after another.
report_of_study() {
  local out=build/browser model set key
  local short=(finetune.length=128 finetune.sequences=4 finetune.steps=30 finetune.gate_steps=36
    finetune.gate_rate=2e-2 finetune.evaluate_every=15 "ranges.evaluation.tokens=[50000,60000]")
  rm -rf $out/{gates_*,set*,progressive*,full}
  for model in demo_gpt2 demo_gpt_neox; do
    local settings=(configs/demo-gates.cfg model.path="tests/data/$model" corpora.demo.path=build/demo_text.txt
      output.dir="$out/gates_$model" "ranges.gates.tokens=[10000,20000]" "ranges.evaluation.tokens=[50000,70000]"
      "gate.kinds=linear pca norm" fit.sequential=false allocate.shortlist=3 allocate.max_plans=40)
    "$build/wanamaker" run "${settings[@]}" >/dev/null && "$build/wanamaker" allocate "${settings[@]}" >/dev/null || return 1
  done
  "$build/wanamaker" probe configs/demo.cfg model.path=tests/data/demo_gpt2 corpora.demo.path=build/demo_text.txt \
    output.dir=$out/gates_demo_gpt2 "probe.layers=[0,3,7]" >/dev/null || return 1
  for set in 3,4 2,3,4,5 0,1,2,3,4,5,6,7; do
    key=$out/set${set//,/}
    train "$key" two_phase finetune.compare=true "finetune.layers=[$set]" "${short[@]}" || return 1
  done
  train $out/progressive progressive finetune.count=6 finetune.starts=random finetune.length=128 \
    finetune.sequences=1 finetune.steps=50 finetune.rate=5e-6 finetune.schedule=constant finetune.evaluate_every=0 \
    "ranges.evaluation.tokens=[50000,60000]" &&
    /usr/bin/python3 tests/oracle/report_study.py $out/progressive $out/progressive_study &&
    "$build/wanamaker" report output.dir=$out/full \
      report.inputs="$out/gates_demo_gpt2,$out/gates_demo_gpt_neox,$out/set34,$out/set2345,$out/set01234567,$out/progressive_study" \
      >$out/full.log &&
    cat $out/full.log &&
    check_report $out/full $out/gates_demo_gpt2 $out/gates_demo_gpt_neox $out/set34 $out/set2345 $out/set01234567 \
      $out/progressive_study || return 1
  rm -rf $out/hostile_{probes,set,page}
  /usr/bin/python3 tests/oracle/report_hostile.py $out/gates_demo_gpt2 $out/hostile_probes &&
    /usr/bin/python3 tests/oracle/report_hostile.py $out/set34 $out/hostile_set &&
    "$build/wanamaker" report output.dir=$out/hostile_page \
      report.inputs="$out/hostile_probes,$out/hostile_set,$out/set2345" >/dev/null &&
    check_report $out/hostile_page $out/hostile_probes $out/hostile_set $out/set2345
}

# The demo's report, one of all that there is, and one of a study.
browser() {
  local text=build/demo_text.txt model
  wm_install chromium gnuplot-nox python3-h5py
  [ -s $text ] || bash jobs/demo_text.sh $text
  for model in demo_gpt2 demo_gpt_neox; do
    "$build/wanamaker" run configs/demo.cfg model.path="tests/data/$model" corpora.demo.path=$text \
      output.dir="build/browser/$model" >/dev/null || return 1
  done
  "$build/wanamaker" report report.inputs=build/browser/demo_gpt2,build/browser/demo_gpt_neox \
    output.dir=build/browser/both &&
    check_report build/browser/both build/browser/demo_gpt2 build/browser/demo_gpt_neox &&
    report_with_all && report_of_study
}

fuzz() {
  bash tests/fuzz/run.sh 60
}

part programs "longer runs of the whole program" programs
part stack "reference stack" reference_stack
part models "oracle: models" oracle_models
part tokenizer "oracle: tokenizer" oracle_tokenizer
part pipeline "oracle: pipeline" oracle_pipeline
part gates "oracle: gates" oracle_gates
part probes "oracle: probes" oracle_probes
part finetune "oracle: fine-tuning" oracle_finetune
part export "oracle: export" oracle_export
part overlap "demo text is disjoint from the training text" overlap
part kills "50 kills and stops of a run" kills
part faults "faults of the whole program" faults
part cblas "CBLAS backend" cblas
part mpich "MPICH" mpich
part sanitizers "sanitizers" sanitizers
part slurm "two Slurm nodes" two_nodes
part study "a study under Slurm" study
part messages "messages against the plan" messages
part times "times against the plan" times
part browser "report in a browser" browser
part fuzz "fuzz targets" fuzz
part valgrind "valgrind" bash tests/valgrind.sh

if [ ${#failed[@]} -gt 0 ]; then
  printf 'failed: %s\n' "${failed[@]}"
  exit 1
fi
echo "the long tier passed"
