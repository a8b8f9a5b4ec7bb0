#!/usr/bin/env bash
# Progress of a study that submit.sh has submitted: a line for every job.
#   slurm/status.sh [DIR]       DIR: of the study (the newest results/*.study)
# Exit code: 0 all done, 1 something failed, 3 not all done yet.
set -euo pipefail
[ "${1:-}" != -h ] && [ "${1:-}" != --help ] || { sed -n '2,4s/^# //p' "$0"; exit 0; }
dir=${1:-$(find results -maxdepth 1 -name '*.study' -type d -printf '%T@ %p\n' 2>/dev/null | sort -n | tail -n 1 | cut -d ' ' -f 2-)}
[ -n "$dir" ] && [ -s "$dir/jobs" ] || { echo "status.sh: no study in \"${dir:-results}\" (see --help)" >&2; exit 2; }

# Job number -> Slurm's state and the reason to wait; nothing where it does not answer or has forgotten.
declare -A queue=()
while IFS='|' read -r id what why; do
  [ -z "$id" ] || queue[$id]="$what|$why"
done < <(squeue -h -o '%i|%T|%r' -j "$(cut -f 1 "$dir/jobs" | paste -sd ,)" 2>/dev/null || true)

last_event() { # STATE_FILE: event and its text
  [ -s "$1" ] && tail -n 1 "$1" | cut -f 2- || true
}

# "fit: 3 of 10 (30 %), 1m20s left" of the job's last attempt.
progress() { # LOG
  [ -r "$1" ] || return 0
  tail -c 8192 "$1" | tr '\r' '\n' | grep -oE '[a-z]+: [^:]* of [^:]*%\)[^;]*' | tail -n 1 || true
}

done_jobs=0 failed=0 total=0
printf '%-24s %-9s %8s %-11s %5s %7s  %s\n' model stage job state runs asked ""
while IFS=$'\t' read -r id label stage output; do
  total=$((total + 1))
  state_file=$dir/$label.$stage.state
  runs=$(grep -c $'\tstart\t' "$state_file" 2>/dev/null || true)
  asked=$(grep -c $'\tagain\t' "$state_file" 2>/dev/null || true)
  event=$(last_event "$state_file")
  slurm=${queue[$id]:-}
  text=${event#*$'\t'}
  case ${event%%$'\t'*} in
  done)
    word="done"
    text=$output
    done_jobs=$((done_jobs + 1))
    ;;
  failed)
    word=failed
    failed=$((failed + 1))
    ;;
  *)
    word=$(tr '[:upper:]' '[:lower:]' <<<"${slurm%%|*}")
    case $word in
    running) text=$(progress "$dir/$label.$stage.log") ;;
    pending) text=${slurm#*|}${text:+; $text} ;;
    "")
      # It is gone and has not said that it is done: cancelled, or what it waited for has failed.
      word=gone
      failed=$((failed + 1))
      ;;
    esac
    ;;
  esac
  printf '%-24s %-9s %8s %-11s %5s %7s  %s\n' "$label" "$stage" "$id" "$word" "${runs:-0}" "${asked:-0}" "$text"
done <"$dir/jobs"
echo "$done_jobs of $total jobs done$([ $failed -eq 0 ] || echo ", $failed failed")"
[ $failed -eq 0 ] || exit 1
[ $done_jobs -eq $total ] || exit 3
