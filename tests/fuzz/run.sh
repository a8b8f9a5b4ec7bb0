#!/usr/bin/env bash
# Fuzzes the readers, one target after the other.
#   bash tests/fuzz/run.sh SECONDS [TARGET...]   all targets when none is named: safetensors index
#                                                arch tokenizer_json merges encode rows npy config
# Prints what each target did and how much of the readers' own files its inputs reach, keeps inputs
# that fail in build/fuzz/found/TARGET and exits non-zero if there are any. Inputs that reach new
# code are kept in build/fuzz/corpus/TARGET: later runs begin with them.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit
source jobs/setup.sh

targets=(safetensors index arch tokenizer_json merges encode rows npy config)
declare -A files=(
  [safetensors]="io/safetensors io/safetensors_file base/dtype"
  [index]="io/safetensors io/safetensors_file"
  [arch]="model/arch model/arch_keys model/arch_rotary base/json"
  [tokenizer_json]="text/tokenizer_json text/vocabulary text/tokenizer text/matcher base/json"
  [merges]="text/vocabulary_read text/vocabulary text/bpe"
  [encode]="text/tokenizer text/bpe text/pretokenize text/matcher text/nfc text/offsets text/utf8"
  [rows]="io/corpus io/jsonl"
  [npy]="io/npy"
  [config]="base/config base/config_read base/config_scan base/config_text base/config_nearest")

seconds=${1:?seconds for each target}
shift
[ $# -eq 0 ] || targets=("$@")
build=build/fuzz
WM_FUZZ_DIR=$(mktemp -d -p /dev/shm wm_fuzz.XXXXXX)
export WM_FUZZ_DIR
trap 'rm -rf "$WM_FUZZ_DIR"' EXIT

prepare() {
  wm_install clang llvm libclang-rt-14-dev cmake pkg-config python3 libconfig-dev libjansson-dev \
    libutf8proc-dev libxxhash-dev libopenmpi-dev
  mkdir -p build
  wm_build $build -DWM_FUZZ=ON -DWM_WERROR=ON -DCMAKE_C_COMPILER=clang \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo &&
    rm -rf $build/seeds && python3 tests/fuzz/seeds.py $build/seeds
}

# The line of a figure that libFuzzer prints at its end.
figure() {
  awk -v key="stat::$1:" '$1 == key { print $2 }' "$2"
}

fuzz() {
  local name=$1 log=$build/$1.log
  mkdir -p "$build/corpus/$name" "$build/found/$name"
  ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1 UBSAN_OPTIONS=print_stacktrace=1 \
    "$build/tests/fuzz/fuzz_$name" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
    -max_len=65536 -print_final_stats=1 -dict="tests/fuzz/dict/$name.dict" \
    -artifact_prefix="$build/found/$name/" "$build/corpus/$name" "$build/seeds/$name" >"$log" 2>&1
  local status=$?
  printf '%-15s %10s executions, %7s a second, peak %s MB, %s inputs kept\n' "$name" \
    "$(figure number_of_executed_units "$log")" "$(figure average_exec_per_sec "$log")" \
    "$(figure peak_rss_mb "$log")" "$(find "$build/corpus/$name" -type f | wc -l)"
  if [ $status -ne 0 ]; then
    grep -E 'ERROR|SUMMARY|Assertion|runtime error|Test unit|expected' "$log" | head -n 8
    return 1
  fi
}

# Lines and regions of the target's files that its inputs reach.
coverage() {
  local name=$1 profile=$build/$1.profdata sources=() f
  for f in ${files[$name]}; do
    sources+=("src/$f.c")
  done
  LLVM_PROFILE_FILE=$build/$name.profraw "$build/tests/fuzz/cover_$name" -runs=0 -max_len=65536 \
    "$build/corpus/$name" "$build/seeds/$name" >/dev/null 2>&1
  llvm-profdata merge -o "$profile" "$build/$name.profraw" &&
    llvm-cov export -summary-only -instr-profile="$profile" "$build/tests/fuzz/cover_$name" \
      "${sources[@]}" | python3 -c '
import json, os, sys
for f in json.load(sys.stdin)["data"][0]["files"]:
    s = f["summary"]
    print("    %-28s lines %4d of %4d (%3.0f %%), regions %4d of %4d (%3.0f %%)" % (
        "/".join(f["filename"].split("/")[-2:]), s["lines"]["covered"], s["lines"]["count"],
        s["lines"]["percent"], s["regions"]["covered"], s["regions"]["count"], s["regions"]["percent"]))'
}

prepare || exit 1
failed=()
for name in "${targets[@]}"; do
  fuzz "$name" || failed+=("$name")
  coverage "$name"
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "failed: ${failed[*]}; the inputs are in $build/found" >&2
  exit 1
fi
