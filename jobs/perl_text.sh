#!/usr/bin/env bash
# Writes prose from Perl's manual pages, which Debian ships as the package perl-doc: plain paragraphs,
# one a line, without code, headings and markup. Every eighth page goes into the second file, so that no
# page is in both.
#
#   bash jobs/perl_text.sh TRAIN TEST
#
# The pages are looked for in $WANAMAKER_PERL, then where the package installs them; otherwise it is
# downloaded and unpacked into a temporary directory: nothing is installed and no root rights are needed.
# The files appear whole or not at all.
set -euo pipefail
export LC_ALL=C
source "$(dirname "$0")/setup.sh"

[ $# -eq 2 ] || { echo "usage: perl_text.sh TRAIN TEST" >&2; exit 2; }
for out in "$@"; do
  [ ! -d "$out" ] || { echo "perl_text: $out is a directory" >&2; exit 2; }
done
work=$(mktemp -d)
partial=
trap 'rm -rf -- "$work"; [ -z "$partial" ] || rm -f -- "$partial"' EXIT
shopt -s nullglob
pages=("${WANAMAKER_PERL-}"/*.pod)
[ ${#pages[@]} -gt 0 ] || pages=(/usr/share/perl/5.*/pod/perl*.pod)
if [ ${#pages[@]} -lt 8 ]; then
  wm_unpack perl-doc "$work/deb"
  pages=("$work"/deb/usr/share/perl/5.*/pod/perl*.pod)
fi
[ ${#pages[@]} -ge 8 ] || { echo "perl_text: fewer than 8 manual pages (*.pod) to be found" >&2; exit 3; }

# Each page once, by whatever names it is found (Debian's 5.36 is a link to 5.36.0), and without the one
# that comes with another package; in an order that is no order of subjects, and the same every time.
mapfile -t pages < <(realpath -- "${pages[@]}" | grep -v '/perldiag[.]pod$' | sort -u | shuf --random-source=<(yes))

# A formatting code is a capital before an angle bracket; the innermost are taken away first. Of a link
# its text stays, or else the name of the page.
extract='
BEGIN { RS = ""; FS = "\n" }
FNR == 1 { inside = 1 }
/^=(begin|for)/ { inside = 0 }
/^=(end|cut|pod|head|over|item|back)/ { inside = 1; next }
!inside || /^[ \t=]/ { next }
{
  gsub(/[ \t\n]+/, " ")
  gsub(/E<lt>/, "\001"); gsub(/E<gt>/, "\002"); gsub(/E<[a-z0-9]+>/, ""); gsub(/[XZ]<[^<>]*>/, "")
  while (match($0, /[A-Z]<<+ ([^>]|>[^>])* >>+/)) { # doubled brackets may hold single ones
    text = substr($0, RSTART, RLENGTH)
    before = substr($0, 1, RSTART - 1)
    after = substr($0, RSTART + RLENGTH)
    sub(/^[A-Z]<<+ /, "", text)
    sub(/ >>+$/, "", text)
    gsub(/</, "\001", text)
    gsub(/>/, "\002", text)
    $0 = before text after
  }
  while (match($0, /[A-Z]<[^<>]*>/)) {
    code = substr($0, RSTART, RLENGTH)
    text = substr(code, 3, RLENGTH - 3)
    if (code ~ /^L</) sub(/[|].*/, "", text)
    $0 = substr($0, 1, RSTART - 1) text substr($0, RSTART + RLENGTH)
  }
  gsub(/\001/, "<"); gsub(/\002/, ">")
  if (length($0) >= 40) print
}'

write() { # OUT PAGE...
  local out=$1
  shift
  mkdir -p -- "$(dirname -- "$out")"
  partial=$(mktemp -- "$out.XXXXXX")
  awk "$extract" "$@" >"$partial"
  [ -s "$partial" ] || { echo "perl_text: no prose in the manual pages for $out" >&2; exit 3; }
  chmod 644 -- "$partial"
  mv -f -- "$partial" "$out"
  partial=
}
train=() tested=()
for i in "${!pages[@]}"; do
  if [ $((i % 8)) -eq 7 ]; then tested+=("${pages[i]}"); else train+=("${pages[i]}"); fi
done
write "$1" "${train[@]}"
write "$2" "${tested[@]}"
