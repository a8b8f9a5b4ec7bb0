/* Corpora as rows of text, or as arrays of token ids.
 *
 * Formats:
 *   text   a row a line, ended by LF or CRLF (the end is not part of the row; a CR alone ends no
 *          line); a last line without an end counts. Bytes are passed on as they are, a byte order
 *          mark and ill-formed UTF-8 included
 *   jsonl  a JSON object a line; the row is its string member `field`, escapes decoded. Lone
 *          surrogates and maximal ill-formed parts of UTF-8 become U+FFFD and are counted. Lines
 * end at LF only; blank lines and a byte order mark are skipped npy    one-dimensional array of
 * token ids (NumPy format 1 to 3; little-endian u2, i4, u4, i8; C order) A row is blank when it
 * holds nothing but white space, as Python's str.strip() sees it. With keep_newline a row that is
 * not blank ends in "\n" (added unless it is there) and a blank row is empty, as in the hub's
 * WikiText.
 *
 * Byte positions address the file. A row belongs to the byte at which its line begins, so that
 * ranks share out a file by bytes without reading it first.
 */
#ifndef WANAMAKER_IO_CORPUS_H
#define WANAMAKER_IO_CORPUS_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum { WM_CORPUS_AUTO, WM_CORPUS_TEXT, WM_CORPUS_JSONL, WM_CORPUS_NPY } wm_corpus_format_t;

typedef struct {
  const char *path;
  wm_corpus_format_t format; /* AUTO: by the name's ending: .jsonl .ndjson .npy, else text */
  const char *field;         /* jsonl; NULL means "text" */
  bool keep_newline;
} wm_corpus_spec_t;

typedef struct wm_corpus wm_corpus_t;

/* Maps the file. Not collective. Unreadable, empty or no regular file (a pipe): WM_INPUT. Strings
 * of `spec` are copied. */
wm_status_t wm_corpus_open(const wm_corpus_spec_t *spec, wm_corpus_t **out, wm_error_t *err);
void wm_corpus_close(wm_corpus_t *corpus);

wm_corpus_format_t wm_corpus_format(const wm_corpus_t *corpus); /* never AUTO */
int64_t wm_corpus_bytes(const wm_corpus_t *corpus);
/* Of the file as this process found it: equal as long as nobody writes to it or replaces it. */
uint64_t wm_corpus_stamp(const wm_corpus_t *corpus);
/* Not collective. WM_INPUT if the file was written to or shortened since it was opened. */
wm_status_t wm_corpus_unchanged(const wm_corpus_t *corpus, wm_error_t *err);
/* Collective over comm->world. Fingerprint of the whole file's contents and the settings that
 * change its rows. The ranks share the reading: every block of 64 MiB is hashed alone, and the
 * fingerprint is the hash of format, keep_newline, field (jsonl), length and the blocks' hashes in
 * order, so it does not depend on the number of ranks. WM_STOPPED on request. */
wm_status_t wm_corpus_fingerprint(const wm_comm_t *comm, const wm_corpus_t *corpus, uint64_t *out,
                                  wm_error_t *err);

/* Position of the first line that begins at or after `byte` (the file's size if there is none). */
int64_t wm_corpus_line_at(const wm_corpus_t *corpus, int64_t byte);

/* A row; `text` is borrowed from the cursor until the next call (or from the map), not terminated.
 * A heading is white space, "= ", a title that neither begins nor ends with "=", " =", white space.
 */
typedef struct {
  const char *text;
  int64_t bytes;
  int64_t position; /* byte at which its line begins */
  bool blank;
  bool heading; /* a level-1 heading of WikiText, " = Title = ": an article begins */
} wm_row_t;

typedef struct {
  const wm_corpus_t *corpus;
  int64_t next, line; /* byte; line number counted from where the cursor began, for messages */
  char *buffer;
  int64_t capacity;
  int64_t replaced; /* lone surrogates and ill-formed parts of UTF-8 (jsonl) */
} wm_row_cursor_t;

/* Starts at the line at `byte` (a value of wm_corpus_line_at). */
void wm_row_cursor_init(wm_row_cursor_t *cursor, const wm_corpus_t *corpus, int64_t byte);
void wm_row_cursor_destroy(wm_row_cursor_t *cursor);
/* Next row, or *more = false at the end. Malformed JSON, a missing or non-string field: WM_INPUT
 * with file and byte position. */
wm_status_t wm_row_cursor_next(wm_row_cursor_t *cursor, wm_row_t *row, bool *more, wm_error_t *err);

/* npy corpora. Number of ids; ids [first, first + count) as int32, negative or > 2^31 - 1: WM_INPUT
 * with the index. */
int64_t wm_corpus_token_count(const wm_corpus_t *corpus);
wm_status_t wm_corpus_tokens(const wm_corpus_t *corpus, int64_t first, int64_t count, int32_t *out,
                             wm_error_t *err);

#endif
