#!/usr/bin/env bash
# jobs/perl_text.sh on pages whose prose is known.
#   perl_text.sh ROOT WORK_DIR
set -euo pipefail
root=$1 work=$2
rm -rf "$work"
mkdir -p "$work/pods"
for i in $(seq 0 15); do
  cat >"$work/pods/page$i.pod" <<END
=head1 Headings are not prose, however long they happen to be

Page $i has I<markup>, B<nested I<markup> too>, a L<link with text|perlfunc/open>,
L<perlop> on a second line, C<< \$a < \$b >> and E<lt>anglesE<gt>.X<an index entry>

    code = "that is indented, and so no prose for a model of prose";

=over 4

=item * an item's own line is left out as well as it is a heading

The item's paragraph stays.  It has to be of some length, page $i.

=back

Too short.

=begin html

<p>Formatted for others, and therefore left out of the text altogether</p>

=end html

The last paragraph of page $i comes after what was left out.
END
done
WANAMAKER_PERL=$work/pods bash "$root/jobs/perl_text.sh" "$work/train.txt" "$work/test.txt"
[ "$(wc -l <"$work/train.txt")" -eq 42 ] && [ "$(wc -l <"$work/test.txt")" -eq 6 ]
for i in $(seq 0 15); do
  cat <<END
Page $i has markup, nested markup too, a link with text, perlop on a second line, \$a < \$b and <angles>.
The item's paragraph stays. It has to be of some length, page $i.
The last paragraph of page $i comes after what was left out.
END
done | LC_ALL=C sort >"$work/expected.txt"
LC_ALL=C sort "$work/train.txt" "$work/test.txt" | diff "$work/expected.txt" -
# No page is in both, and the same is written every time.
[ -z "$(comm -12 <(LC_ALL=C sort "$work/train.txt") <(LC_ALL=C sort "$work/test.txt"))" ]
WANAMAKER_PERL=$work/pods bash "$root/jobs/perl_text.sh" "$work/train2.txt" "$work/test2.txt"
cmp "$work/train.txt" "$work/train2.txt"
cmp "$work/test.txt" "$work/test2.txt"
# A page that has two names, and blanks in names: as before. Nothing is left beside the texts.
mkdir "$work/with blanks"
mv "$work/pods" "$work/with blanks/pods=1"
ln -s page3.pod "$work/with blanks/pods=1/again.pod"
(cd "$work/with blanks" && WANAMAKER_PERL=pods=1 bash "$root/jobs/perl_text.sh" "a train.txt" "a test.txt")
cmp <(LC_ALL=C sort "$work/train.txt" "$work/test.txt") \
  <(LC_ALL=C sort "$work/with blanks/a train.txt" "$work/with blanks/a test.txt")
[ "$(find "$work/with blanks" -maxdepth 1 -type f | wc -l)" -eq 2 ]
# Pages without prose, a directory in the place of a text: earlier texts stay.
for i in $(seq 8); do echo "=head1 Nothing" >"$work/empty$i.pod"; done
code=0
WANAMAKER_PERL=$work bash "$root/jobs/perl_text.sh" "$work/train.txt" "$work/test.txt" 2>"$work/log" || code=$?
[ "$code" -eq 3 ] && grep -q "no prose in the manual pages for $work/train.txt" "$work/log"
code=0
bash "$root/jobs/perl_text.sh" "$work/train.txt" "$work/with blanks" 2>"$work/log" || code=$?
[ "$code" -eq 2 ] && grep -q 'with blanks is a directory' "$work/log"
cmp "$work/train.txt" "$work/train2.txt"
[ -z "$(find "$work" -name '*.txt.*')" ]
