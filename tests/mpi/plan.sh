#!/usr/bin/env bash
# Plans of published models that are not there, for people and for scripts; bench.h5 as the machine; what submit.sh makes
# of them; an installation that has been moved.
#   plan.sh WANAMAKER MPIEXEC MODEL_DIR
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
machine=configs/machines/cluster64.cfg

"$program" plan configs/gpt2-medium.cfg plan.machine=$machine plan.nodes=[1,4] >"$work/plan"
for text in "1 node of 64 cores" "4 nodes of 64 cores" "largest useful number of nodes" "assumed, from plan.core_gflops" " 1024 "; do
  grep -q "$text" "$work/plan" || fail "the plan does not say \"$text\": $(cat "$work/plan")"
done
# All configurations can be planned; more nodes are never slower than a tenth above fewer.
for config in configs/*.cfg; do
  [[ $config != *demo* && $config != *six_models* ]] || continue # a list, for submit.sh
  "$program" plan "$config" plan.machine=$machine plan.print=stages >"$work/stages" || fail "$config"
  grep -q $'^stage\ttokenize\t1\t' "$work/stages" || fail "$config: $(cat "$work/stages")"
done
"$mpiexec" -n 2 "$program" plan configs/gpt2.cfg plan.print=stages gate.enabled=true allocate.max_plans=10 >"$work/stages"
[ "$(awk '$1 == "stage" { printf "%s ", $2 }' "$work/stages")" = "tokenize fit gate sweep allocate " ] ||
  fail "stages: $(cat "$work/stages")"
# What submit.sh asks for follows what the stages do; what the text decides is called so.
gate_seconds() { # SETTING...
  "$program" plan configs/gpt2.cfg plan.machine=$machine gate.enabled=true plan.stages=gate plan.print=stages "$@" |
    awk '$1 == "stage" { print $8 }'
}
once=$(gate_seconds) each=$(gate_seconds fit.sequential=true "sweep.routed=([2,3,4,5])") few=$(gate_seconds "gate.kinds=linear")
awk "BEGIN { exit !($each > 1.1 * $once && $few < 0.7 * $once) }" || fail "gates: $once s, one by one $each, one kind $few"
"$program" plan configs/gpt2.cfg plan.machine=$machine allocate.max_plans=77 plan.stages="tokenize gate allocate finetune probe" \
  finetune.layers=[2] corpora.main.path="$work/none.txt" >"$work/plan"
for text in "^tokenize .*rough: its text is not there" "^allocate .*for 77 plans; the text decides" "^probe .*at most: what iterates"; do
  grep -q "$text" "$work/plan" || fail "the plan does not say \"$text\": $(cat "$work/plan")"
done
! grep -Eq '^(gate|finetune) .*(rough|at most|decides)' "$work/plan" || fail "notes: $(cat "$work/plan")"
code=0
"$program" plan configs/gpt2.cfg plan.stages="fit swep" 2>"$work/error" || code=$?
[ $code -eq 2 ] && grep -q 'no job "swep"' "$work/error" || fail "plan.stages: $code, $(cat "$work/error")"
code=0
"$program" plan configs/gpt2.cfg plan.machine=$machine plan.memory_gib=0.2 2>"$work/error" >/dev/null || code=$?
[ $code -eq 2 ] && grep -q 'does not fit a node' "$work/error" || fail "memory: $code, $(cat "$work/error")"

"$program" bench bench.config="$model" bench.parts="fit sweep" bench.windows=1 bench.window=64 bench.repeat=1 \
  output.dir="$work/bench" >/dev/null
"$program" plan configs/gpt2.cfg plan.bench="$work/bench/bench.h5" plan.cores=2 >"$work/plan"
grep -q "measured on 1 cores" "$work/plan" || fail "bench.h5: $(cat "$work/plan")"

bash slurm/submit.sh --program "$program" --dry-run --machine $machine --nodes 8 configs/six_models.cfg >"$work/scripts"
[ "$(grep -c '^exec bash' "$work/scripts")" -ge 18 ] && [ "$(grep -c 'behind afterok' "$work/scripts")" -eq 12 ] ||
  fail "submit.sh: $(cat "$work/scripts")"
awk '/^#!/ { n++ } { print > ("'"$work"'/script." n) }' "$work/scripts"
for script in "$work"/script.?*; do
  sed '/^---/d' "$script" | bash -n || fail "$script is no shell script"
done
code=0
bash slurm/submit.sh --program "$program" --dry-run configs/gpt2.cfg configs/gpt2.cfg >"$work/scripts" 2>&1 || code=$?
[ $code -eq 2 ] && grep -q "both write into" "$work/scripts" || fail "one output.dir for two: $(cat "$work/scripts")"

build=$(dirname "$program")
cmake --install "$build" --prefix "$work/first" >/dev/null || fail "cmake --install"
mv "$work/first" "$work/moved"
(cd "$work/moved/share/wanamaker" && "$work/moved/bin/wanamaker" --version >/dev/null &&
  bash slurm/submit.sh --dry-run configs/gpt2.cfg output.dir="$work/x" >"$work/scripts") || fail "a moved installation"
grep -q "$work/moved/bin/wanamaker" "$work/scripts" || fail "a moved installation: $(cat "$work/scripts")"
! grep -a -q "$work/first" "$work/moved/bin/wanamaker" || fail "the program names the place it was installed in"

# A stage whose state cannot be written at first (a file system that is away for a while) is noted all the same.
mkdir "$work/bin"
printf '#!/usr/bin/env bash\nshift 2\nexec "$@"\n' >"$work/bin/mpirun"
chmod +x "$work/bin/mpirun"
(sleep 3; mkdir "$work/away") &
PATH=$work/bin:$PATH WM_STUDY=$work/away WM_LABEL=model WM_STAGE=fit WM_LAUNCHER=mpirun bash slurm/stage.sh true fit \
  >"$work/log" 2>&1 || fail "stage.sh: $(cat "$work/log")"
[ "$(cut -f 2 "$work/away/model.fit.state" | paste -sd ' ')" = "start done" ] || fail "stage.sh: $(cat "$work"/away/*)"
