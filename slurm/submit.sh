#!/usr/bin/env bash
# Submits a study: for every model a chain of Slurm jobs, a stage each (tokenize, fit, gate, sweep, ...), and one report
# behind all of them. Jobs that were preempted, lost a node or ran out of time are queued again until they are done.
#
#   slurm/submit.sh [OPTION...] CONFIG|STUDY... [KEY=VALUE...]
#
#   CONFIG         a configuration (configs/gpt2.cfg)
#   STUDY          a list of them (configs/six_models.cfg): a line for each, "CONFIG [KEY=VALUE...]", paths from where
#                  you are
#   KEY=VALUE      settings for all of them, as on wanamaker's command line
#
#   --dry-run              print the scripts; submit and write nothing
#   --name NAME            of the study (the first file's name)
#   --dir DIR              for scripts, logs and states (results/NAME.study)
#   --machine FILE         a machine description (configs/machines): time, memory, ranks and threads come from
#                          "wanamaker plan"; without one the next three hold
#   --ranks R --threads T  ranks of a node, threads of a rank (4, 4)
#   --time MINUTES         limit of a job (240)
#   --nodes N              nodes of a job (1)
#   --stages "S..."        only these stages, in the order in which they run
#   --launcher srun|mpirun how ranks are started (srun)
#   --mpi NAME             srun's --mpi (pmix; empty: srun's default)
#   --margin SECONDS       before the limit at which a job is asked to stop (180)
#   --attempts N           times that a job may fail by the machine's fault (5); time limits and preemptions do not count
#   --setup FILE           sourced by every job, for "module load"
#   --sbatch OPTION        passed on, may be repeated: --sbatch --partition=long --sbatch --account=me
#   --program PATH         wanamaker (that beside this script, else the one in PATH)
#   --no-report            no report job
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
name="" dir="" machine="" ranks=4 threads=4 minutes=240 nodes=1 only="" launcher=srun mpi=pmix margin=180 attempts=5
setup="" program="" report=1 dry=0
sbatch_options=() configs=() settings=()

die() {
  echo "submit.sh: $*" >&2
  exit 2
}

usage() {
  sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//p}' "${BASH_SOURCE[0]}"
}

whole_number() { # OPTION VALUE
  [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 needs a whole number above 0, not \"$2\""
}

read_arguments() {
  while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --dry-run | -n) dry=1 ;;
    --no-report) report=0 ;;
    --name | --dir | --machine | --ranks | --threads | --time | --nodes | --stages | --launcher | --mpi | --margin | \
      --attempts | --setup | --sbatch | --program)
      [ $# -gt 1 ] || die "$1 needs a value"
      read_option "$1" "$2"
      shift
      ;;
    -*) die "unknown option $1 (see --help)" ;;
    *=*) settings+=("$1") ;;
    *) configs+=("$1") ;;
    esac
    shift
  done
  [ ${#configs[@]} -gt 0 ] || die "no configuration is named (see --help)"
}

read_option() { # OPTION VALUE
  case $1 in
  --ranks | --threads | --time | --nodes | --margin | --attempts) whole_number "$1" "$2" ;;
  --launcher) [[ $2 = srun || $2 = mpirun ]] || die "--launcher is srun or mpirun, not \"$2\"" ;;
  esac
  case $1 in
  --name) name=$2 ;;
  --dir) dir=$2 ;;
  --machine) machine=$2 ;;
  --ranks) ranks=$2 ;;
  --threads) threads=$2 ;;
  --time) minutes=$2 ;;
  --nodes) nodes=$2 ;;
  --stages) only=$2 ;;
  --launcher) launcher=$2 ;;
  --mpi) mpi=$2 ;;
  --margin) margin=$2 ;;
  --attempts) attempts=$2 ;;
  --setup) setup=$2 ;;
  --sbatch) sbatch_options+=("$2") ;;
  --program) program=$2 ;;
  esac
}

# In the build or install tree that this script belongs to, else in PATH.
find_program() {
  local candidate
  for candidate in "$program" "$here/../../../bin/wanamaker" "$here/../build/wanamaker" "$(command -v wanamaker || true)"; do
    [ -n "$candidate" ] && [ -x "$candidate" ] || continue
    program=$(realpath "$candidate")
    return
  done
  die "no wanamaker is found: build it in build/, install it, or name it by --program"
}

# Models of the study: models[i] is a configuration and its settings, each in quotes for the shell.
models=()
add_model() { # CONFIG [KEY=VALUE...]; it can be read
  local -a words=("$(realpath "$1")" "${@:2}" "${settings[@]}")
  models+=("${words[*]@Q}")
}

# A list's lines begin with a file's name; a configuration's, with a setting's.
is_list() { # FILE
  local first
  first=$(sed 's/#.*//' "$1" | awk 'NF && !seen { print $1; seen = 1 }')
  [[ $first =~ \.cfg$ ]]
}

read_study() { # FILE
  local line number=0
  local -a words
  while IFS= read -r line || [ -n "$line" ]; do
    number=$((number + 1))
    line=${line%%#*}
    read -r -a words <<<"$line"
    [ ${#words[@]} -gt 0 ] || continue
    [ -r "${words[0]}" ] || die "$1:$number: cannot read ${words[0]}"
    add_model "${words[@]}"
  done <"$1"
}

# --- jobs ---------------------------------------------------------------------------------------------------------

# What one model needs: $output and stages[i] = "NAME NODES RANKS THREADS MINUTES MEMORY_MIB".
ask_plan() { # CONFIG SETTING...
  local answer
  local -a machine_settings=()
  [ -z "$machine" ] || machine_settings=("plan.machine=$machine" "plan.nodes=[$nodes]")
  # One process needs no launcher; inside an allocation it must not be taken for a rank of it.
  answer=$(env -u SLURM_JOB_ID -u SLURM_JOBID -u PMIX_RANK "$program" plan "$@" plan.print=stages "${machine_settings[@]}") ||
    die "\"wanamaker plan $*\" failed"
  output=$(awk -F '\t' '$1 == "output" { print $2 }' <<<"$answer")
  mapfile -t stages < <(awk -F '\t' '$1 == "stage" { print $2, $3, $4, $5, $6, $7 }' <<<"$answer")
  [ -n "$output" ] && [ ${#stages[@]} -gt 0 ] || die "\"wanamaker plan $*\" named no stages"
}

# A plan is an estimate: half again, and what starting takes.
limit_of() { # MINUTES
  [ "$1" = - ] && echo "$minutes" || awk -v m="$1" -v s="$margin" 'BEGIN { print int(1.5 * m + 10 + s / 60 + 0.999) }'
}

batch_script() { # LABEL STAGE NODES RANKS THREADS MINUTES MEMORY COMMAND...
  local label=$1 stage=$2 n=$3 r=$4 t=$5 m=$6 memory=$7 option
  shift 7
  [ "$n" != - ] || n=$nodes
  [ "$r" != - ] || r=$ranks
  [ "$t" != - ] || t=$threads
  echo "#!/usr/bin/env bash"
  printf '#SBATCH %s\n' "--job-name=$name.$label.$stage" "--nodes=$n" "--ntasks-per-node=$r" "--cpus-per-task=$t" \
    "--time=$(limit_of "$m")" "--requeue" "--open-mode=append" "--signal=B:USR1@$margin" \
    "--output=$dir/$label.$stage.log"
  [ "$memory" = - ] || printf '#SBATCH --mem=%dM\n' "$memory"
  for option in "${sbatch_options[@]}"; do
    printf '#SBATCH %s\n' "$option"
  done
  cat <<SCRIPT
export OMP_NUM_THREADS=$t
export WM_STUDY=${dir@Q} WM_LABEL=${label@Q} WM_STAGE=$stage WM_ATTEMPTS=$attempts
export WM_LAUNCHER=$launcher WM_MPI=${mpi@Q} WM_SETUP=${setup@Q}
cd ${PWD@Q}
exec bash ${here@Q}/stage.sh ${program@Q} $*
SCRIPT
}

previous="" # the job that the next one waits for
last_jobs=()
count=0

# Prints the script, or submits it and notes the job in the study's list.
submit() { # LABEL STAGE DEPENDENCY; the script on standard input
  local script id
  local -a options=(--parsable --kill-on-invalid-dep=yes)
  script=$(cat)
  [ -z "$3" ] || options+=("--dependency=$3")
  if [ $dry -eq 1 ]; then
    id=$((++count))
    printf -- '--- %s.%s, job %s%s ---\n%s\n\n' "$1" "$2" "$id" "${3:+, behind $3}" "$script"
  else
    printf '%s\n' "$script" >"$dir/$1.$2.sh"
    id=$(sbatch "${options[@]}" "$dir/$1.$2.sh") || die "sbatch refused $dir/$1.$2.sh"
    id=${id%%;*}
    printf '%s\t%s\t%s\t%s\n' "$id" "$1" "$2" "$output" >>"$dir/jobs"
    echo "submitted $name.$1.$2 as job $id${3:+, behind $3}"
  fi
  previous=$id
}

is_wanted() { # STAGE
  [ -z "$only" ] || [[ " $only " == *" $1 "* ]]
}

declare -A taken=()
outputs=()
submit_model() { # the words of models[i]
  local label stage n r t m memory
  ask_plan "$@"
  label=$(basename "$output")
  [ -z "${taken[$output]:-}" ] || die "$1 and ${taken[$output]} both write into $output: set output.dir"
  taken[$output]=$1
  outputs+=("$output")
  previous=""
  for stage in "${stages[@]}"; do
    read -r stage n r t m memory <<<"$stage"
    is_wanted "$stage" || continue
    # (not a pipe: a subshell would keep the job's number to itself)
    submit "$label" "$stage" "${previous:+afterok:$previous}" < <(
      batch_script "$label" "$stage" "$n" "$r" "$t" "$m" "$memory" "$stage" "${@@Q}")
  done
  [ -z "$previous" ] || last_jobs+=("$previous")
}

# Reports what there is, also when a model has failed.
submit_report() {
  local list dependency target
  list=$(printf '"%s",' "${outputs[@]}")
  dependency=$(IFS=:; echo "afterany:${last_jobs[*]}")
  output=$dir/report
  list="report.inputs=[${list%,}]" target="output.dir=$output"
  submit all report "$dependency" < <(batch_script all report 1 1 1 - - report "${list@Q}" "${target@Q}")
}

has_job() { # NAME
  "$program" --help 2>/dev/null | grep "^  $1 " >/dev/null
}

jobs_in_queue() {
  [ -s "$dir/jobs" ] || return 0
  squeue -h -o %i -j "$(cut -f 1 "$dir/jobs" | paste -sd ,)" 2>/dev/null || true
}

start_directory() {
  local queued
  mkdir -p "$dir"
  queued=$(jobs_in_queue)
  [ -z "$queued" ] || die "$dir: jobs of this study are in the queue ($(paste -sd ' ' <<<"$queued")); scancel them, or wait"
  : >"$dir/jobs"
  rm -f "$dir"/*.state
}

read_arguments "$@"
find_program
[ -z "$machine" ] || [ -r "$machine" ] || die "$machine: cannot read it"
[ -z "$setup" ] || setup=$(realpath -e "$setup") || die "$setup: cannot read it"
[ -n "$name" ] || name=$(basename "${configs[0]%.*}")
[[ $name =~ ^[A-Za-z0-9._-]+$ ]] || die "--name: letters, digits, dots, dashes and underscores, not \"$name\""
dir=$(realpath -m "${dir:-results/$name.study}")
for file in "${configs[@]}"; do
  [ -r "$file" ] || die "$file: cannot read it"
  if is_list "$file"; then
    read_study "$file"
  else
    add_model "$file"
  fi
done
[ $dry -eq 1 ] || start_directory
for model in "${models[@]}"; do
  eval "submit_model $model" # quoted by add_model
done
if [ $report -eq 1 ] && [ ${#last_jobs[@]} -gt 0 ] && is_wanted report && has_job report; then
  submit_report
fi
[ $dry -eq 1 ] || echo "progress: $here/status.sh $dir"
