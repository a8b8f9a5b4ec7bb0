#!/usr/bin/env bash
# The program on 1, 2, 3 and 4 ranks: tokens.h5 equal byte for byte; given the same surrogates,
# sweep.h5's data equal bit for bit; a second run does nothing.
#   ranks.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see, for its files)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 600 13

run() { # RANKS JOB OUT [SETTING...]
  run_job "$@" protocol.kind="$kind" bootstrap.unpaired=true || { cat "$3.log" >&2; fail "$2 on $1 ranks ($kind)"; }
}

for kind in documents stream; do
  one=$work/$kind.1
  run 1 run "$one"
  run 1 run "$one"
  [ "$(grep -c 'complete for these inputs; skipped' "$one.log")" -eq 3 ] || fail "a second run did something"
  grep -q 'times as wide as paired ones, median over [1-9][0-9]* layers' "$one.log" ||
    fail "the study's intervals are not compared"
  for ranks in 2 3 4; do
    out=$work/$kind.$ranks
    run "$ranks" run "$out"
    cmp "$one/tokens.main.$kind.h5" "$out/tokens.main.$kind.h5" || fail "tokens on $ranks ranks"
    # That surrogates agree to rounding is test_measure_pipeline's business.
    cp "$one/surrogates.h5" "$out/surrogates.h5"
    rm "$out/sweep.h5"
    run "$ranks" sweep "$out"
    for data in /nll /variants /tokens /blocks; do
      h5diff "$one/sweep.h5" "$out/sweep.h5" $data || fail "$data on $ranks ranks ($kind)"
    done
  done
done

# Plain percentiles are another result on the same losses, and a file says which it has.
plain=$work/plain
mkdir "$plain"
cp "$one/tokens.main.$kind.h5" "$one/surrogates.h5" "$plain"
run 2 sweep "$plain" bootstrap.interval=percentile
h5diff "$one/sweep.h5" "$plain/sweep.h5" /nll || fail "losses depend on the interval"
! h5diff -q "$one/sweep.h5" "$plain/sweep.h5" /variants || fail "the interval makes no difference"
for which in "$one expanded" "$plain percentile"; do
  h5dump -a /bootstrap_interval "${which% *}/sweep.h5" >"$work/attribute"
  grep -q "\"${which#* }\"" "$work/attribute" || fail "sweep.h5 does not name its intervals: $which"
done
run 2 sweep "$plain" # another key: done again, now with the usual intervals
h5diff "$one/sweep.h5" "$plain/sweep.h5" /variants || fail "the interval is no part of the key"
echo "1, 2, 3 and 4 ranks agree"
