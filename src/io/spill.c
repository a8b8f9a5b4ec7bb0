#include "spill.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

wm_status_t wm_spill_init(wm_spill_t *spill, const char *beside, const char *what,
                          int64_t block_bytes, wm_error_t *err) {
  assert(block_bytes > 0);
  void *memory;
  *spill = (wm_spill_t){0};
  wm_status_t status = wm_alloc(&memory, block_bytes, 1, what, err);
  if (status == WM_OK)
    *spill = (wm_spill_t){
        .beside = beside, .what = what, .fd = -1, .block = memory, .block_bytes = block_bytes};
  return status;
}

void wm_spill_destroy(wm_spill_t *spill) {
  if (spill->block == NULL)
    return;
  if (spill->fd >= 0)
    close(spill->fd);
  free(spill->block);
  free(spill->hashes);
  *spill = (wm_spill_t){0};
}

static wm_status_t fail(const wm_spill_t *s, const char *verb, const char *reason,
                        wm_error_t *err) {
  return wm_fail(err, WM_ENVIRONMENT,
                 "%s: cannot %s the temporary file of %s in its directory, after %lld bytes: %s",
                 s->beside, verb, s->what, (long long)(s->n_written * s->block_bytes), reason);
}

/* A file without a name; where the file system has none, one that loses its name at once. */
static wm_status_t open_file(wm_spill_t *s, wm_error_t *err) {
  const char *slash = strrchr(s->beside, '/');
  int length = slash == NULL ? 1 : (int)(slash - s->beside) + 1; /* with the slash */
  const char *directory = slash == NULL ? "." : s->beside;
  char *place = wm_format("%.*s", length, directory);
  int reason = ENOMEM;
  if (place != NULL) {
    s->fd = wm_nameless_file(place);
    reason = errno;
  }
  free(place);
  return s->fd >= 0 ? WM_OK : fail(s, "make", strerror(reason), err);
}

/* Writes or reads the whole block at its place in the file. */
static wm_status_t transfer(const wm_spill_t *s, int64_t k, int64_t bytes, bool writing,
                            wm_error_t *err) {
  for (int64_t done = 0; done < bytes;) {
    char *at = s->block + done;
    off_t place = (off_t)(k * s->block_bytes + done);
    ssize_t n = writing ? pwrite(s->fd, at, (size_t)(bytes - done), place)
                        : pread(s->fd, at, (size_t)(bytes - done), place);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return fail(s, writing ? "write" : "read", n < 0 ? strerror(errno) : "it is too short", err);
    done += n;
  }
  return WM_OK;
}

/* Moves the block in memory to the file. */
static wm_status_t flush(wm_spill_t *s, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (s->fd < 0)
    WM_TRY(open_file(s, err));
  WM_TRY(wm_grow((void **)&s->hashes, &s->hashes_capacity, s->n_written, s->n_written + 1,
                 sizeof *s->hashes, s->what, err));
  WM_TRY(transfer(s, s->n_written, s->used, true, err));
  s->hashes[s->n_written++] = wm_hash(s->block, (size_t)s->used, 0);
  s->last_bytes = s->used;
  s->used = 0;
cleanup:
  return status;
}

wm_status_t wm_spill_append(wm_spill_t *spill, const void *data, int64_t bytes, wm_error_t *err) {
  const char *from = data;
  while (bytes > 0) {
    if (spill->used == spill->block_bytes) {
      wm_status_t status = flush(spill, err);
      if (status != WM_OK)
        return status;
    }
    int64_t room = spill->block_bytes - spill->used, n = bytes < room ? bytes : room;
    memcpy(spill->block + spill->used, from, (size_t)n);
    spill->used += n;
    from += n;
    bytes -= n;
  }
  return WM_OK;
}

wm_status_t wm_spill_finish(wm_spill_t *spill, wm_error_t *err) {
  return spill->n_written > 0 && spill->used > 0 ? flush(spill, err) : WM_OK;
}

int64_t wm_spill_blocks(const wm_spill_t *spill) {
  return spill->n_written > 0 ? spill->n_written : spill->used > 0;
}

wm_status_t wm_spill_block(wm_spill_t *spill, int64_t k, void **data, int64_t *bytes,
                           wm_error_t *err) {
  assert(k >= 0 && k < wm_spill_blocks(spill));
  *data = spill->block;
  *bytes = spill->used;
  if (spill->n_written == 0) /* all of it is still in memory */
    return WM_OK;
  *bytes = k < spill->n_written - 1 ? spill->block_bytes : spill->last_bytes;
  wm_status_t status = transfer(spill, k, *bytes, false, err);
  if (status == WM_OK && wm_hash(spill->block, (size_t)*bytes, 0) != spill->hashes[k])
    status = fail(spill, "read back", "the contents are not what was written", err);
  return status;
}
