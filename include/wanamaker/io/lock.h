/* One run at a time in a directory.
 *
 * The lock lies on DIR/.lock, whose text names its holder. It is the open file that is locked (an
 * open file description lock: it works over NFS too, and ends with the process, however that ends),
 * so that a file which a dead run left is no obstacle. */
#ifndef WANAMAKER_IO_LOCK_H
#define WANAMAKER_IO_LOCK_H

#include "wanamaker/base/status.h"

typedef struct {
  int file; /* descriptor + 1; 0: nothing is held */
} wm_lock_t;

/* Not collective: rank 0 takes it, the caller agrees. DIR must exist. WM_ENVIRONMENT, with the
 * holder's host and process id, when another run has it. Where the file system has no locks the
 * result is WM_OK, nothing is held, and *reason is the system's word for it (NULL otherwise). */
wm_status_t wm_lock_take(const char *dir, wm_lock_t *out, const char **reason, wm_error_t *err);
/* Harmless on a zeroed object. The file stays: removing it could part two runs that wait for it. */
void wm_lock_release(wm_lock_t *lock);

#endif
