#!/usr/bin/env bash
# Types of products: a bf16_emulated run on 1, 2, 3 and 4 ranks, equal bit for bit given the same
# surrogates; neither type is taken for the other; bf16 where the CPU lacks it.
#   compute.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see, for its files)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 500 0

run() { # RANKS JOB OUT TYPE [SETTING...]
  local ranks=$1 job=$2 out=$3 type=$4
  shift 4
  run_job "$ranks" "$job" "$out" protocol.kind=stream compute.type="$type" "$@"
}

run 1 run "$work/f32" f32 || fail "f32: $(cat "$work/f32.log")"
run 1 run "$work/bf1" bf16_emulated report.enabled=false || fail "bf16_emulated: $(cat "$work/bf1.log")"
for ranks in 2 3 4; do
  out=$work/bf$ranks
  cp -r "$work/bf1" "$out"
  rm "$out/sweep.h5"
  run "$ranks" sweep "$out" bf16_emulated || fail "$ranks ranks: $(cat "$out.log")"
  for data in /nll /variants /check; do
    h5diff "$work/bf1/sweep.h5" "$out/sweep.h5" $data || fail "$data on $ranks ranks"
  done
done

# The check against f32 is told again when the result is kept.
table() { tables_of "$work/bf1.log" | grep -A 20 '^layer.*f32'; }
table >"$work/table" || fail "no check in $(cat "$work/bf1.log")"
grep -q '^bf16_emulated effect: .* tokens' "$work/table" || fail "no check in $(cat "$work/table")"
run 2 run "$work/bf1" bf16_emulated report.enabled=false || fail "again: $(cat "$work/bf1.log")"
table | cmp - "$work/table" || fail "another table: $(cat "$work/bf1.log")"
run 1 run "$work/bf1" bf16_emulated report.enabled=false sweep.check_tokens=0 || fail "without a check: $(cat "$work/bf1.log")"
grep -q 'effect' "$work/bf1.log" && fail "a check that was not asked for"

for out in f32 bf1; do
  type=$([ $out = f32 ] && echo f32 || echo bf16_emulated)
  h5dump -a /compute "$work/$out/sweep.h5" | grep "\"$type\"" >/dev/null || fail "attribute compute of $out"
done
h5diff -q "$work/f32/sweep.h5" "$work/bf1/sweep.h5" /nll && fail "bf16_emulated changes no loss"

# Another type: the run does everything anew, a sweep alone refuses the other type's surrogates.
run 1 sweep "$work/f32" bf16_emulated && fail "a sweep took another type's surrogates"
grep -q 'another compute ("f32", here "bf16_emulated")' "$work/f32.log" || fail "refusal: $(cat "$work/f32.log")"
run 2 run "$work/f32" bf16_emulated || fail "run over another type: $(cat "$work/f32.log")"
[ "$(grep -c 'complete for these inputs; skipped' "$work/f32.log")" -eq 1 ] || fail "more than tokens were kept"

if "$program" --version | grep '^products .* bf16,' >/dev/null; then
  run 2 run "$work/hw" bf16 || fail "bf16: $(cat "$work/hw.log")"
else
  for ranks in 1 2; do
    code=0
    run $ranks run "$work/hw" bf16 || code=$?
    [ $code -eq 4 ] || fail "bf16 on a CPU without it: exit code $code"
    grep -q 'bf16 are not to be had here.*bf16_emulated' "$work/hw.log" || fail "message: $(cat "$work/hw.log")"
    [ ! -e "$work/hw/tokens.main.stream.h5" ] || fail "work was done before bf16 was refused"
  done
fi
echo "types of products are kept apart, and ranks agree"
