#!/usr/bin/env bash
# valgrind's memcheck over the unit tests, the MPI tests on one rank, and a small run of the program.
#   bash tests/valgrind.sh [TEST...]    TEST: test_base_json, ..., or run; without any, all of them
# Errors and lost memory fail, except what tests/valgrind.supp says of the libraries. The build is for
# plain x86-64 (valgrind 3.19 knows no AVX-512), and valgrind's cpuid lets oneDNN and OpenBLAS choose
# code for AVX2, which needs no setting; OPENBLAS_CORETYPE is taken away because it would overrule
# that. Tests whose point is time, size, signals or what a process starts as are left out. Where files
# fail under HDF5 on purpose, lost memory does not count: it loses what it could not write or read.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
source jobs/setup.sh
root=$PWD
build=$root/build/valgrind
left_out="test_base_json test_io_environment test_io_files test_io_full_disk test_text_tokenizer
 test_par_memory test_par_queue test_par_queue_dealt"

wm_setup && wm_install libcmocka-dev valgrind
mkdir -p build
wm_build "$build" -DWM_NATIVE=OFF -DWM_WERROR=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo || exit 1
unset OPENBLAS_CORETYPE
# valgrind runs one thread at a time: others must not spin while they wait for it.
export OMP_WAIT_POLICY=passive GOMP_SPINCOUNT=0
export OMP_NUM_THREADS=1 WM_TEST_DATA=$root/tests/data OMPI_MCA_btl_vader_single_copy_mechanism=none \
  OMPI_MCA_fcoll=individual OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=()

memcheck() {
  local name=$1 log=$build/$1.valgrind kinds=definite
  shift
  [ "$name" != test_io_faults ] || kinds=none
  if (cd "$scratch" && valgrind -q --error-exitcode=99 --leak-check=full \
    --show-leak-kinds=definite --errors-for-leak-kinds=$kinds --num-callers=60 \
    --keep-debuginfo=yes --suppressions="$root/tests/valgrind.supp" --log-file="$log" "$@") \
    >"$build/$name.out" 2>&1; then
    echo "passed $name"
  else
    failed+=("$name")
    echo "FAILED $name: $log, $build/$name.out"
    head -n 20 "$log"
  fi
}

# Every job of the program on the smallest ranges that its settings take.
small_run() {
  local i model=$root/tests/data/demo_gpt2
  for i in $(seq 60); do
    echo "The $i quick brown foxes jump over lazy dog number $((7 * i)), and then they rest."
  done >"$scratch/text.txt"
  memcheck run "$build/wanamaker" run model.path="$model" corpora.m.path="$scratch/text.txt" \
    protocol.kind=stream protocol.window=16 "ranges.fit.tokens=[0,64]" \
    "ranges.validation.tokens=[64,96]" "ranges.evaluation.tokens=[100,164]" fit.layers=[0] \
    fit.lambda=1.0 sweep.layers=[0] bootstrap.resamples=100 output.dir="$scratch/out"
}

tests=("$@")
if [ $# -eq 0 ]; then
  for program in "$build"/tests/test_*; do
    name=${program##*/}
    [[ " ${left_out//$'\n'/} " == *" $name "* ]] || tests+=("$name")
  done
  tests+=(run)
fi
for name in "${tests[@]}"; do
  if [ "$name" = run ]; then
    small_run
  else
    memcheck "$name" "$build/tests/$name"
  fi
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}" >&2
  exit 1
fi
