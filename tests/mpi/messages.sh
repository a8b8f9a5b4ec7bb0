#!/usr/bin/env bash
# What ranks send each other in a fit, the fit of gates and a sweep, counted call by call (messages.c), beside what the
# plan says; for two ranks also with sets of layers that are made one layer after another. Tolerances: collective calls 3 %; bytes 5 % in fit and sweep, 15 % with gates, whose number of Newton steps
# the text decides. Who fetches how many units is a race: of the n that the plan cuts, the others than rank 0 fetch none
# at least and all at most, in two messages each, and are told once that there are no more.
#   messages.sh WANAMAKER MPIEXEC MODEL_DIR MESSAGES_LIBRARY      (WM_RANKS="1 2 4")
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
library=$4
make_text 1500 0

settings=(model.path="$model" corpora.main.path="$work/text.txt" protocol.window=64 protocol.kind=stream
  "ranges.fit.tokens=[0,4000]" "ranges.gates.tokens=[4000,6000]" "ranges.validation.tokens=[6000,8000]"
  "ranges.evaluation.tokens=[8000,12000]" compute.block_tokens=300 bootstrap.resamples=200 sweep.group=4
  gate.enabled=true "sweep.joint=()" watchdog.seconds=0)

counted() { # RANKS STAGE: "messages, collective calls of a rank, bytes" of the program's own
  "$mpiexec" -n "$1" env LD_PRELOAD="$library" WM_MESSAGES="$work/calls" "$program" "$2" "${settings[@]}" \
    output.dir="$work/out.$1" >"$work/log" 2>&1 || fail "$2 on $1 ranks: $(tail -n 20 "$work/log")"
  awk -F '\t' -v ranks="$1" '$1 == "program" { bytes += $4; if ($2 == "send") sent = $3; else calls += $3 }
    END { print sent + 0, calls / ranks, bytes }' "$work/calls"
}

planned() { # RANKS STAGE: the same
  "$program" plan "${settings[@]}" output.dir="$work/out.$1" plan.print=stages plan.core_gflops=10 "plan.cores=$1" \
    "plan.ranks=$1" plan.threads=1 "plan.stages=$2" >"$work/plan" || fail "plan $2 for $1 ranks"
  awk -F '\t' '$1 == "stage" { print $9, $10, $11 }' "$work/plan"
}

within() { # VALUE EXPECTED PERCENT
  awk -v a="$1" -v b="$2" -v p="$3" 'BEGIN { d = a - b; exit !((d < 0 ? -d : d) <= p / 100 * b) }'
}

compare() { # RANKS
  local ranks=$1 stage sent calls bytes plan_sent plan_calls plan_bytes
  counted "$ranks" tokenize >/dev/null
  for stage in fit gate sweep; do
    read -r sent calls bytes < <(counted "$ranks" $stage)
    read -r plan_sent plan_calls plan_bytes < <(planned "$ranks" $stage)
    printf '%-6s %5d  %9d %9d  %9.0f %9d  %12d %12d\n' $stage "$ranks" "$sent" "$plan_sent" "$calls" "$plan_calls" \
      "$bytes" "$plan_bytes"
    within "$calls" "$plan_calls" 3 || fail "$stage on $ranks ranks: collective calls"
    within "$bytes" "$plan_bytes" "$([ $stage = gate ] && echo 15 || echo 5)" || fail "$stage on $ranks ranks: bytes"
    # The plan has the mean: n (P - 1) / P fetches and P - 1 ends of a phase.
    awk -v s="$sent" -v p="$plan_sent" -v r="$ranks" 'BEGIN { exit !(r == 1 || p == 0 ? s == 0 && p == 0 : s >= 2 * (r - 1) &&
      s <= p * r / (r - 1)) }' || fail "$stage on $ranks ranks: messages"
  done
}

printf '%-6s %5s  %9s %9s  %9s %9s  %12s %12s\n' stage ranks messages planned calls planned bytes planned
for ranks in ${WM_RANKS:-1 2 4}; do
  compare "$ranks"
done
rm -rf "$work/out.2"
settings+=("sweep.joint=([2,3])" "sweep.routed=([2,3,4])" fit.sequential=true "gate.kinds=linear pca norm")
compare 2
