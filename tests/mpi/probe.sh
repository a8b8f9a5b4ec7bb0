#!/usr/bin/env bash
# The job probe on 1, 2 and 3 ranks: given the same surrogates, losses equal bit for bit and tables
# to rounding; a second run does nothing; a dry run writes nothing; a stopped run keeps finished
# layers and goes on; positions can be excluded; what can't be is told.
#   probe.sh WANAMAKER MPIEXEC MODEL_DIR     (WM_TEST_WORK: a directory that all ranks see, for its files)
# shellcheck source=tests/mpi/program.sh
source "$(dirname "$0")/program.sh"
make_text 300 13
sed -n '1,250 { s/wise men/small ships/; s/who counts/what sinks/; p }' "$work/text.txt" >"$work/other.txt"

words=$(cd "$(dirname "$0")/../../configs" && pwd)/words.txt
settings=(protocol.kind=stream corpora.other.path="$work/other.txt" "probe.words=$words"
  "ranges.fit.tokens=[0,2000]" "ranges.evaluation.tokens=[4000,5000]" "probe.layers=[1,6]"
  probe.resamples=50 probe.components=8 probe.clusters=4 probe.hidden=4 probe.views=normalised
  probe.least_count=5)
probe() { # RANKS OUT [SETTING...]
  local ranks=$1 out=$2
  shift 2
  "$mpiexec" -n "$ranks" "$program" probe model.path="$model" corpora.main.path="$work/text.txt" \
    output.dir="$out" protocol.window=64 compute.block_tokens=300 "${settings[@]}" "$@" \
    >"$out.log" 2>&1
}
try() { # RANKS OUT [SETTING...]
  probe "$@" || { cat "$2.log" >&2; fail "probe on $1 ranks"; }
}
# The numbers of a table of two files, to 1e-6.
numbers() { # DATASET FILE
  h5dump -y -w 1 -m %.17g -d "$1" "$2" | sed -n '/DATA {/,/}$/p' | grep -oE '[-+]?[0-9.]+(e[-+]?[0-9]+)?,?$|-?nan,?$' | tr -d ,
}
close_to() { # DATASET FILE FILE
  paste <(numbers "$1" "$2") <(numbers "$1" "$3") | awk '
    { a = ($1 ~ /nan/); b = ($2 ~ /nan/); d = $1 - $2; e = 1e-6 * (1 + ($1 < 0 ? -$1 : $1))
      if (a != b || (!a && (d > e || d < -e))) bad++ }
    END { exit bad > 0 || NR == 0 }'
}

one=$work/one
try 1 "$one"
[ ! -e "$one/probe.parts" ] || fail "parts are left behind"
for heading in 'Token against context' Forensics Categories 'No-Fly lists' 'Types across corpora' Clusters \
  Separability 'Distribution of delta' 'Positions apart'; do
  grep -q "^$heading" "$one.log" || fail "no table: $heading"
done
mkdir "$work/two" "$work/three"
for out in two three; do
  cp "$one"/tokens.*.h5 "$one"/surrogates.*.h5 "$work/$out"
done
try 2 "$work/two" -n
grep -q 'types across corpora alone' "$work/two.log" || fail "the plan of a dry run: $(cat "$work/two.log")"
[ ! -e "$work/two/probes.h5" ] || fail "a dry run wrote a result"
for ranks in 2 3; do
  out=$work/$([ $ranks -eq 2 ] && echo two || echo three)
  try $ranks "$out" probe.memory_gib=0.001 # a layer at a time
  for data in delta divergence agreed factor entropy cluster; do
    h5diff "$one/probes.h5" "$out/probes.h5" "/layers/main.own/$data" || fail "$data on $ranks ranks"
  done
  for table in context geometry forensics regression types correlations fates clusterings separability; do
    close_to /$table "$one/probes.h5" "$out/probes.h5" || fail "$table on $ranks ranks"
  done
done
try 2 "$work/two"
grep -q 'probes.h5 is complete for these inputs; skipped' "$work/two.log" || fail "a second run did something"

# A part that is there is not computed again, and one that is damaged is.
rm "$work/two/probes.h5"
try 2 "$work/two" "probe.layers=[1]" probe.seed=2
rm -r "$work/three/probes.h5"
(
  "$mpiexec" -n 1 "$program" probe model.path="$model" corpora.main.path="$work/text.txt" \
    output.dir="$work/three" protocol.window=64 compute.block_tokens=300 "${settings[@]}" \
    probe.memory_gib=0.002 >"$work/three.log" 2>&1 &
  pid=$!
  for _ in $(seq 600); do
    ! ls "$work"/three/probe.parts/main.own/0001.h5 >/dev/null 2>&1 || break
    sleep 0.05
  done
  kill -USR1 $pid 2>/dev/null
  code=0
  wait $pid || code=$?
  echo $code >"$work/code"
)
code=$(cat "$work/code")
if [ "$code" -eq 75 ]; then
  [ -e "$work/three/probe.parts/main.own/0001.h5" ] || fail "a finished layer was not kept"
elif [ "$code" -ne 0 ]; then
  fail "stopped with $code: $(tail -3 "$work/three.log")"
fi
try 2 "$work/three"
h5diff "$one/probes.h5" "$work/three/probes.h5" /layers || fail "a run that went on"
close_to /context "$one/probes.h5" "$work/three/probes.h5" || fail "tables of a run that went on"

try 1 "$one" "probe.exclude=position0 first" "probe.layers=[1]"
[ "$(h5dump -d /positions "$one/probes.h5" | grep -c '"position 0')" -gt 0 ] || fail "no row of position 0"

refuse() { # MESSAGE SETTING...
  local message=$1
  shift
  ! probe 2 "$one" "$@" || fail "$* was accepted"
  grep -q "$message" "$one.log" || fail "$*: $(tail -3 "$one.log")"
}
refuse 'layer 99 does not exist' "probe.layers=[99]"
refuse 'no corpus is called "nobody"' probe.corpora=nobody
refuse 'probe.views: "up" is unknown' probe.views=up
refuse 'probe.memory_gib = 0.000 is too little' probe.memory_gib=1e-6
refuse 'overlap' "corpora.other.probe=[1000,3000]"
refuse 'corpus other: ' "corpora.other.probe=[1000,3000000]"
printf 'word\n[function]\n' >"$work/words.txt"
refuse 'words.txt:1: a word before the first \[category\]' probe.words="$work/words.txt"
refuse 'nowhere.txt' probe.words="$work/nowhere.txt"
printf '[function]\nthe\n[\033[2J]\n' >"$work/words.txt"
refuse 'words.txt:3: control character U+001B' probe.words="$work/words.txt"
refuse 'corpus other: ' "corpora.other.probe=[4000,4001]"

# One document for the fit and one for the probes, which is one unit, and a file of no words at all: every table, with words where numbers are missing.
for part in 1,120p 121,240p; do
  sed -n "$part" "$work/other.txt" | tr '\n' ' '
  echo
done >"$work/line.txt"
: >"$work/words.txt"
settings=("corpora.other.path=$work/other.txt" probe.words="$work/words.txt" "ranges.fit.tokens=[0,512]" protocol.window=512
  "ranges.evaluation.tokens=[512,1024]" "probe.layers=[1]" probe.resamples=50 probe.components=8 probe.clusters=4
  probe.hidden=4 probe.least_count=5)
try 2 "$work/single" corpora.main.path="$work/line.txt" bootstrap.unit=line
tables_of "$work/single.log" >"$work/single.tables"
grep -q 'main: 1 bootstrap unit (line): no interval, and no positions are held out' "$work/single.log" ||
  fail "one unit: $(grep 'bootstrap unit' "$work/single.log")"
for note in 'no held-out positions' 'too few units or resamples for an interval' 'it or delta is constant'; do
  [ "$(grep -c "$note" "$work/single.tables")" -gt 0 ] || fail "one document: no word of \"$note\""
done
! grep -qwi -- '-\?nan' "$work/single.tables" || fail "NaN in a table"
echo "probes on 1, 2 and 3 ranks agree"
