#!/usr/bin/env bash
# A picture of sweep tables: cost of linearising each layer, with its interval.
#   wanamaker sweep ... | bash jobs/figure.sh OUT.svg [TITLE]
#   bash jobs/figure.sh OUT.svg TITLE TABLE [TITLE TABLE ...]     TABLE: saved standard output of sweeps
# Needs gnuplot (Debian: gnuplot-nox). Joint sets are left out.
set -euo pipefail
[ $# -ge 1 ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
out=$1
shift
[ $# -ge 2 ] || set -- "${1:-cost of a linear MLP}" /dev/stdin
command -v gnuplot >/dev/null || { echo "gnuplot is missing: apt-get install gnuplot-nox" >&2; exit 4; }

work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
plots=()
i=0
last=0
while [ $# -ge 2 ]; do
  # layer PPL delta [sum of singles] [low, high] ...: the sum is there with sets of layers alone
  awk '$1 ~ /^[0-9]+$/ {
    at = $4 ~ /^\[/ ? 4 : 5
    if ($at ~ /^\[/) { gsub(/[][,]/, ""); print $1, $3, $at, $(at + 1) }
  }' "$2" >"$work/$i"
  [ -s "$work/$i" ] || { echo "$2: no sweep table with intervals in it" >&2; exit 3; }
  last=$(awk -v last="$last" '{ if ($1 > last) last = $1 } END { print last }' "$work/$i")
  shift_x=$(awk -v i=$i 'BEGIN { print 0.16 * i - 0.08 }')
  plots+=("'$work/$i' using (\$1+$shift_x):2:3:4 with yerrorbars pt 7 ps 0.7 lw 1.5 title '${1//\'/}'")
  i=$((i + 1))
  shift 2
done
gnuplot <<EOF
set terminal svg size 760,340 font 'sans-serif,13' background '#ffffff'
set output '$work/picture.svg'
set xlabel 'layer whose MLP is replaced by its ridge surrogate'
set ylabel 'perplexity, % above the full model'
set grid ytics lc rgb '#dddddd'
set xtics 1
set xrange [-0.6:$last + 0.6]
set key top right
set xzeroaxis lw 1
plot $(IFS=,; echo "${plots[*]}")
EOF
mv -- "$work/picture.svg" "$out"
