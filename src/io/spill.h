/* A sequence of bytes of any length that is written front to back and then read once, in bounded
 * memory: blocks of a fixed size, of which one is in memory and the others in a temporary file. The
 * file has no name (it is unlinked as soon as it is made), so it is gone with the process however
 * that ends. A sequence of one block makes no file.
 *
 * Blocks are read back against a hash of what was written: some network file systems report a full
 * disk after the write that did not fit. */
#ifndef WANAMAKER_SRC_IO_SPILL_H
#define WANAMAKER_SRC_IO_SPILL_H

#include "wanamaker/base/status.h"

#include <stdint.h>

typedef struct {
  const char *beside; /* borrowed; a path: the file is made in its directory */
  const char *what;   /* borrowed; for messages, e.g. "token ids" */
  int fd;             /* -1: no file yet */
  char *block;
  int64_t block_bytes, used;           /* used: of the block in memory */
  int64_t n_written;                   /* blocks in the file */
  uint64_t *hashes;                    /* [n_written] */
  int64_t hashes_capacity, last_bytes; /* last_bytes: of the last block */
} wm_spill_t;

/* Not collective, all of them. */
wm_status_t wm_spill_init(wm_spill_t *spill, const char *beside, const char *what,
                          int64_t block_bytes, wm_error_t *err);
/* Harmless on a zeroed object. */
void wm_spill_destroy(wm_spill_t *spill);

/* WM_ENVIRONMENT naming `beside` when the disk is full. */
wm_status_t wm_spill_append(wm_spill_t *spill, const void *data, int64_t bytes, wm_error_t *err);

/* Ends the writing. */
wm_status_t wm_spill_finish(wm_spill_t *spill, wm_error_t *err);
/* After it: number of blocks, and block `k`, borrowed until the next call (it may be changed). All
 * but the last have block_bytes bytes. */
int64_t wm_spill_blocks(const wm_spill_t *spill);
wm_status_t wm_spill_block(wm_spill_t *spill, int64_t k, void **data, int64_t *bytes,
                           wm_error_t *err);

#endif
