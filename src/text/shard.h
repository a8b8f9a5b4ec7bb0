/* A rank's share of a corpus, encoded piece by piece.
 *
 * A piece is what comes of about piece_bytes of text: memory does not grow with the share. Text
 * that cannot be cut (wm_tokenizer_can_cut) is one piece however long it is, and a row that must be
 * decoded (JSON Lines) is held whole. What the pieces hold together does not depend on piece_bytes.
 */
#ifndef WM_TEXT_SHARD_H
#define WM_TEXT_SHARD_H

#include "utf8.h"
#include "wanamaker/io/corpus.h"
#include "wanamaker/io/tokens.h"
#include "wanamaker/text/encode.h"
#include "wanamaker/text/tokenizer.h"

#include <stdbool.h>
#include <stdint.h>

/* The bytes [begin, end) of the corpus file in which the lines of share `index` of `count` begin.
 */
typedef struct {
  int64_t begin, end;
} wm_share_t;

wm_share_t wm_share_of(const wm_corpus_t *corpus, int index, int count);

/* A row of the stream whose first byte has not been encoded. */
typedef struct {
  int64_t start; /* in the joined text */
  int64_t replaced;
  bool blank, heading;
} wm_stream_row_t;

/* Text of the stream that is at hand; positions are counted in the text joined from the share's
 * first row on. */
typedef struct {
  wm_string_t text;
  int64_t start;   /* position of text.data[0] */
  int64_t scanned; /* no place before it is the cut that is looked for */
  int64_t border;  /* of the first row behind the share; -1: not reached */
  wm_stream_row_t *rows;
  int64_t n_rows, capacity;
  bool begun, first_row_read, exhausted;
} wm_stream_t;

typedef struct {
  const wm_corpus_t *corpus; /* borrowed, as is the tokenizer */
  wm_tokenizer_t *tokenizer;
  wm_encode_mode_t mode;
  int64_t piece_bytes;
  wm_share_t share; /* npy: of elements */
  wm_row_cursor_t cursor;
  wm_row_t row;
  int64_t row_taken; /* bytes of the row that are encoded (documents) or joined (stream) */
  wm_stream_t stream;
  /* the piece */
  wm_token_list_t tokens;
  int64_t *first_token;
  uint8_t *flags;
  int64_t rows, first_capacity, flags_capacity;
  /* so far */
  int64_t done; /* of share.end - share.begin */
  int64_t documents, replaced;
  bool finished;
} wm_shard_t;

/* Share `index` of `count`: what it holds follows from the corpus, these two and the mode alone.
 * wm_shard_destroy in any case. Not collective, as all here. */
wm_status_t wm_shard_init(wm_shard_t *shard, const wm_corpus_t *corpus, wm_tokenizer_t *tokenizer,
                          wm_encode_mode_t mode, int index, int count, int64_t piece_bytes,
                          wm_error_t *err);
void wm_shard_destroy(wm_shard_t *shard);

/* The next piece, possibly empty, borrowed until the next call; shard->finished is set with the
 * last one. */
wm_status_t wm_shard_next(wm_shard_t *shard, wm_token_part_t *piece, wm_error_t *err);

/* For the modes: the next piece of the stream; a row of the piece whose first token is
 * `first_token`; the first place at or after `from` where text[bytes] may be cut, else `bytes`. */
wm_status_t wm_shard_next_stream(wm_shard_t *shard, wm_error_t *err);
wm_status_t wm_shard_add_row(wm_shard_t *shard, bool blank, bool heading, int64_t first_token,
                             wm_error_t *err);
int64_t wm_next_cut(const wm_tokenizer_t *tokenizer, const char *text, int64_t bytes, int64_t from);

#endif
