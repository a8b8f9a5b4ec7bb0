/* Where results go: the directory, and standard output. */
#include "inputs.h"

#include "wanamaker/io/files.h"

#include <string.h>

/* On rank 0. */
static wm_status_t take_output(const wm_run_t *run, wm_error_t *err) {
  const char *dir = wm_config_string(run->config, "output.dir"), *reason = NULL;
  enum { NAMES = 256 }; /* room for those of the files in it */
  if (strlen(dir) > WM_PATH_SIZE - NAMES)
    return wm_fail(err, WM_USAGE, "output.dir is too long: %zu bytes, at most %d", strlen(dir),
                   WM_PATH_SIZE - NAMES);
  wm_status_t status = wm_directory_ready(dir, err);
  if (status == WM_OK)
    status = wm_lock_take(dir, run->lock, &reason, err);
  if (status == WM_OK && reason == NULL)
    wm_remove_unfinished(dir);
  if (reason != NULL)
    wm_log(run->log, WM_LOG_WARN, "%s: cannot be locked against other runs: %s", dir, reason);
  return status;
}

wm_status_t wm_output_ready(const wm_run_t *run, wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (wm_config_string(run->config, "output.dir")[0] == '\0')
    return wm_fail(err, WM_USAGE, "output.dir is empty: it must name a directory");
  if (!run->dry_run && run->comm->rank == 0)
    status = take_output(run, err);
  return wm_agree(run->comm->world, status, err);
}

wm_status_t wm_output_shown(const wm_run_t *run, wm_status_t status) {
  return ferror(run->out) ? WM_OK : status;
}
