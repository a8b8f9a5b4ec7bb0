#!/usr/bin/env bash
# A study of the two small models through slurm/submit.sh on a real Slurm (two_nodes.sh), with a killed rank, a request
# by scancel --signal, a preemption and a time limit of one minute: it ends by itself, and with the numbers of an
# undisturbed run. Then one stage by mpirun. Or, with KILLS, so many SIGKILLs to random ranks at random moments instead.
#   study.sh BUILD_DIR [KILLS]     (WM_STUDY_QUIET: directory that keeps the undisturbed run for the next study)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
build=$(realpath "$1")
program=$build/wanamaker

kills=${2:-0}

if [ "${3:-}" != inside ]; then
  work=$(mktemp -d -p "${WM_TEST_WORK:-/tmp}")
  trap 'rm -rf -- "$work"' EXIT
  bash "$here/two_nodes.sh" bash "$0" "$build" "$kills" inside "$work"
  exit
fi

work=$4
cd "$root"
export OMP_NUM_THREADS=1 OMPI_MCA_mpi_yield_when_idle=1 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

begun=$(date +%s)

say() {
  printf '%4d s  %s\n' $(($(date +%s) - begun)) "$*"
}

fail() {
  echo "FAILED: $*" >&2
  squeue >&2 || true
  tail -n 20 "$work"/study/*.log "$work"/study/*.state >&2 || true
  exit 1
}

make_text() {
  local i
  for i in $(seq 8000); do
    echo "Line $i of a text in which the $((i * 7919 % 101)) wise men of number $((i * 31 % 17)) walked; who counts them?"
  done >"$work/text.txt"
}

# Settings of both the study and the run that nobody disturbs. Checkpoints are frequent for so short a work.
settings=(corpora.demo.path="$work/text.txt" checkpoint.minutes=0.05 sweep.group=2 bootstrap.resamples=500
  "ranges.evaluation.tokens=[50000,80000]")

# $quiet/seconds: what the last of them took.
quiet=${WM_STUDY_QUIET:-$work/quiet}
undisturbed() {
  local model start
  for model in demo_gpt2 demo_gpt_neox; do
    [ ! -e "$quiet/$model/sweep.h5" ] || [ ! -e "$quiet/seconds" ] || continue
    start=$SECONDS
    mpirun --oversubscribe --bind-to none -n 2 "$program" run configs/demo.cfg model.path="tests/data/$model" \
      output.dir="$quiet/$model" "${settings[@]}" >"$work/quiet.$model.log" 2>&1 || {
      cat "$work/quiet.$model.log" >&2
      fail "the undisturbed run of $model"
    }
    echo $((SECONDS - start)) >"$quiet/seconds"
  done
}

study=$work/study
job_of() { # LABEL STAGE
  awk -F '\t' -v l="$1" -v s="$2" '$2 == l && $3 == s { print $1 }' "$study/jobs"
}

has_event() { # LABEL STAGE EVENT
  grep -q $'\t'"$3"$'\t' "$study/$1.$2.state" 2>/dev/null
}

running_steps() { # JOB
  squeue -h -s -j "$1" -o %i 2>/dev/null | grep -v -E 'batch|extern' | sed -n 1p
}

# Ranks of a job, wherever they run: Slurm puts its number into their environment.
ranks_of() { # JOB
  local pid
  for pid in $(pgrep -x wanamaker); do
    ! { tr '\0' '\n' <"/proc/$pid/environ"; } 2>/dev/null | grep "^SLURM_JOB_ID=$1\$" >/dev/null || echo "$pid"
  done
}

# A job that was queued again waits two minutes: here a few seconds do, in which its last step goes.
declare -A hurried=()
hurry() {
  local id restarts
  for id in $(squeue -h -t PD -o '%i %r' | awk '$2 == "BeginTime" { print $1 }'); do
    restarts=$(scontrol show job "$id" | grep -o 'Restarts=[0-9]*')
    [ -z "${hurried[$id.$restarts]:-}" ] || continue
    hurried[$id.$restarts]=1
    scontrol update JobId="$id" StartTime=now+4 2>/dev/null || true
  done
}

killed=0 signalled=0 preempted=0
disturb() {
  local fit sweep other
  fit=$(job_of demo_gpt2 fit) sweep=$(job_of demo_gpt2 sweep) other=$(job_of demo_gpt_neox sweep)
  if [ $killed -eq 0 ] && [ "$(ranks_of "$fit" | wc -l)" -eq 2 ]; then
    kill -KILL "$(ranks_of "$fit" | tail -n 1)" 2>/dev/null && killed=1 && say "killed a rank of demo_gpt2.fit"
  fi
  # When it has kept something, so that it goes on from there.
  if [ $signalled -eq 0 ] && [ -n "$(ls "$study/../out/demo_gpt2/sweep.parts" 2>/dev/null)" ] &&
    [ "$(ranks_of "$sweep" | wc -l)" -eq 2 ]; then
    scancel --signal=USR1 "$sweep" && signalled=1 && say "scancel --signal=USR1 for demo_gpt2.sweep"
  fi
  # Not while the killed job is ending: it would take the one for the other.
  if [ $preempted -eq 0 ] && has_event demo_gpt2 fit "done" && [ -n "$(ls "$study/../out/demo_gpt_neox/sweep.parts" 2>/dev/null)" ] &&
    [ "$(ranks_of "$other" | wc -l)" -eq 2 ]; then
    say "both nodes are wanted by the partition urgent"
    srun -p urgent -N2 --ntasks-per-node=8 true && preempted=1 && say "urgent job done"
  fi
}

# SIGKILL to one rank of any job that runs; its others are gone when Slurm's KillWait (5 s here) has passed, which it gives
# them after a SIGTERM: within 10 s of the kill.
strikes=0
strike() {
  local job victims end
  [ $strikes -lt "$kills" ] && [ $((RANDOM % 2)) -eq 0 ] || return 0
  job=$(squeue -h -t R -o %i | shuf -n 1)
  [ -n "$job" ] || return 0
  victims=$(ranks_of "$job")
  [ -n "$victims" ] || return 0
  kill -KILL "$(shuf -n 1 <<<"$victims")" 2>/dev/null || return 0
  strikes=$((strikes + 1))
  end=$((SECONDS + 11)) # whole seconds
  while [ $SECONDS -lt $end ]; do
    # (a rank that began later belongs to the next attempt)
    [ -n "$(comm -12 <(sort <<<"$victims") <(ranks_of "$job" | sort))" ] || return 0
    sleep 0.1
  done
  fail "kill $strikes, job $job: ranks are left after 10 s"
}

watch_study() { # SECONDS
  local code last="" now
  for _ in $(seq "$1"); do
    code=0
    bash slurm/status.sh "$study" >"$work/status" || code=$?
    now=$(awk 'NR > 1 && NF > 3 && $2 != "of" { printf "%s.%s %s, ", $1, $2, $4 }' "$work/status" | sed 's/, $//')
    [ "$now" = "$last" ] || say "$now"
    last=$now
    [ $code -ne 0 ] || return 0
    [ $code -ne 1 ] || fail "a stage failed: $(cat "$work/status")"
    if [ "$kills" -gt 0 ]; then strike; else disturb; fi
    hurry
    sleep 1
  done
  fail "not done after $1 s"
}

same_results() {
  local model file
  for model in demo_gpt2 demo_gpt_neox; do
    for file in surrogates.h5 sweep.h5; do
      h5diff -q "$work/out/$model/$file" "$quiet/$model/$file" "$([ $file = sweep.h5 ] && echo /nll || echo /weight)" ||
        fail "$model/$file differs from that of the undisturbed run"
    done
    [ ! -e "$work/out/$model/sweep.parts" ] || fail "$model: sweep.parts was left behind"
    [ -z "$(find "$work/out/$model" -name '*.tmp*')" ] || fail "$model: temporary files were left behind"
  done
}

make_text
say "undisturbed runs"
undisturbed
for model in demo_gpt2 demo_gpt_neox; do
  echo "configs/demo.cfg model.path=tests/data/$model output.dir=$work/out/$model"
done >"$work/demo.study"
# A limit of one minute must be felt on a quick machine as on a busy one: it is announced after about as long as the
# undisturbed run took, in which half a machine is not done.
heard=$(cat "$quiet/seconds")
heard=$((heard < 10 ? 10 : heard > 45 ? 45 : heard))
options=(--program "$program" --ranks 2 --threads 1 --margin $((60 - heard)) --attempts $((5 + kills)) --dir "$study")
[ "$kills" -gt 0 ] || options+=(--time 1)
bash slurm/submit.sh "${options[@]}" --dry-run "$work/demo.study" "${settings[@]}" >"$work/dry"
[ "$(grep -c '^#!/usr/bin/env bash' "$work/dry")" -ge 6 ] && [ ! -e "$study" ] || fail "--dry-run: $(cat "$work/dry")"
bash slurm/submit.sh "${options[@]}" "$work/demo.study" "${settings[@]}"
bash slurm/submit.sh "${options[@]}" "$work/demo.study" "${settings[@]}" 2>"$work/second" && fail "a second submission was accepted"
grep -q "in the queue" "$work/second" || fail "a second submission: $(cat "$work/second")"
watch_study "${WM_STUDY_SECONDS:-900}"
cat "$work/status"
tail -n 50 "$study"/*.state
if [ "$kills" -gt 0 ]; then
  same_results
  say "$strikes kills, and the same numbers as the undisturbed runs"
  [ $strikes -eq "$kills" ] || fail "the study was done after $strikes kills"
  exit
fi
[ $killed -eq 1 ] && [ $signalled -eq 1 ] && [ $preempted -eq 1 ] ||
  fail "the study was too quick: killed $killed, signalled $signalled, preempted $preempted"
has_event demo_gpt2 fit fault || fail "the killed rank was not noticed"
has_event demo_gpt2 sweep again || fail "the request to stop was not followed"
[ "$(grep -c $'\tstart\t' "$study/demo_gpt_neox.sweep.state")" -ge 2 ] || fail "the preempted job did not start again"
grep -q $'\tasked\tSIGUSR1' "$study"/*.state || fail "no job came to its time limit"
same_results
say "the same numbers as the undisturbed runs"
squeue -h | grep . && fail "jobs are left"

say "one stage by mpirun"
bash slurm/submit.sh "${options[@]}" --dir "$work/study2" --launcher mpirun --stages tokenize --no-report \
  configs/demo.cfg model.path=tests/data/demo_gpt2 output.dir="$work/out2" "${settings[@]}"
study=$work/study2
watch_study 120
[ -s "$work/out2/tokens.demo.stream.h5" ] || fail "mpirun: no tokens"
echo "study: all well"
