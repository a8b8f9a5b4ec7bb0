#!/usr/bin/env bash
# Writes the demo's corpus: the entries A to D of the lexicon of the Jargon File 4.4.7 (public domain), which Debian
# ships as the package jargon-text; UTF-8, one paragraph a line, a headword on the line of its first paragraph.
#
#   bash jobs/demo_text.sh OUT          the demo's text
#   bash jobs/demo_text.sh --rest OUT   everything else of the file (the demo models were trained on that part)
#
# The file is looked for in $WANAMAKER_JARGON, then where the package installs it; otherwise the package is downloaded
# with apt-get and unpacked into a temporary directory: nothing is installed and no root rights are needed. OUT appears
# whole or not at all.
set -euo pipefail
export LC_ALL=C
source "$(dirname "$0")/setup.sh"

die() {
    printf 'demo_text: %s\n' "$*" >&2
    exit 1
}

part=demo
if [ "${1-}" = --rest ]; then
    part=rest
    shift
fi
[ $# -eq 1 ] || die "usage: demo_text.sh [--rest] OUT"
out=$1
[ ! -d "$out" ] || die "$out is a directory"

work=$(mktemp -d)
partial=
trap 'rm -rf -- "$work"; [ -z "$partial" ] || rm -f -- "$partial"' EXIT

installed=/usr/share/doc/jargon-text/jargon.txt
source=
for candidate in "${WANAMAKER_JARGON-}" "$installed.gz" "$installed"; do
    if [ -n "$candidate" ] && [ -r "$candidate" ]; then
        source=$candidate
        break
    fi
done
if [ -z "$source" ]; then
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null ||
        die "no Jargon File here and no apt-get: set WANAMAKER_JARGON to a jargon.txt of version 4.4.7"
    wm_unpack jargon-text "$work/deb" || exit 1
    source=$work/deb$installed.gz
    [ -r "$source" ] || die "the package jargon-text holds no ${installed#/}.gz"
fi

case $source in
*.gz) gzip -dc -- "$source" >"$work/jargon.txt" ;;
*) cat -- "$source" >"$work/jargon.txt" ;;
esac

# Paragraphs are separated by blank lines. Left out: the table of contents, the list of headwords, tables, preformatted
# text (its first line is indented by more than three spaces), and headings (not indented).
extract='
function emit(text) {
    if ((inside && headword < "e") == (part == "demo")) print text
}
BEGIN { RS = ""; FS = "\n" }
/^Chapter/ { started = 1 }
/^Glossary/ { lexicon = 1; started = 0; next }
/^Appendix/ { emit_pending(); lexicon = 0; inside = 0 }
lexicon && /^   :/ { started = 1; inside = 1 }
!started || /═|─|│/ || !/^   [^ ]/ { next }
{
    text = ""
    for (i = 1; i <= NF; i++) {
        line = $i
        gsub(/[ \t]+/, " ", line)
        sub(/^ /, "", line)
        sub(/ $/, "", line)
        if (line != "") text = text (text == "" ? "" : " ") line
    }
}
inside && /^   :/ {
    emit_pending()
    pending = text
    headword = tolower(substr(text, 2))
    next
}
{
    if (pending != "") text = pending " " text
    pending = ""
    emit(text)
}
END { emit_pending() }
function emit_pending() {
    if (pending != "") emit(pending)
    pending = ""
}'
mkdir -p -- "$(dirname -- "$out")"
partial=$(mktemp -- "$out.XXXXXX")
awk -v part="$part" "$extract" "$work/jargon.txt" >"$partial"
[ -s "$partial" ] || die "$source does not look like the Jargon File 4.4.7"
chmod 644 -- "$partial"
mv -f -- "$partial" "$out"
partial=
