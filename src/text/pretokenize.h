/* Words of the GPT-2 pattern
 *
 *   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
 *
 * found by a scanner of constant memory that visits every character at most twice: a pattern
 * matcher would backtrack through long runs, and would bring its own version of Unicode.
 */
#ifndef WM_TEXT_PRETOKENIZE_H
#define WM_TEXT_PRETOKENIZE_H

#include <stdint.h>

/* End of the word that begins at byte `at` of text[bytes] (at < bytes; well-formed UTF-8). `flags`
 * is the table of wm_unicode_table. */
int64_t wm_word_end(const uint8_t *flags, const char *text, int64_t bytes, int64_t at);

#endif
