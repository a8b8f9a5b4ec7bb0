/* What the targets of tokenizers share. */
#ifndef WANAMAKER_TESTS_FUZZ_TOKENIZER_H
#define WANAMAKER_TESTS_FUZZ_TOKENIZER_H

#include "fuzz.h"
#include "wanamaker/text/tokenizer.h"

enum { FUZZ_BYTE_TOKENS = 0x1d }; /* stands for an entry "x": id for each of the 256 bytes */

/* Writes the file with its first FUZZ_BYTE_TOKENS spelled out: ids 0 to 255. */
void fuzz_write_vocabulary(const char *name, fuzz_bytes_t bytes);

/* Opens the tokenizer in fuzz_directory() and encodes a fixed text and `text` if that succeeds. */
void fuzz_use_tokenizer(fuzz_bytes_t text);

/* Encodes and checks ids, starts and what they decode to. */
void fuzz_encode(wm_tokenizer_t *tokenizer, const char *text, int64_t bytes, wm_token_list_t *list);

#endif
