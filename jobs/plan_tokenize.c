/* The plan of the job tokenize: bytes to read, encode and write. */
#include "plan_stages.h"

#include <math.h>
#include <sys/stat.h>

/* Steps (wm_machine_t) of a byte's encoding, and bytes of text that become a token. */
enum { OF_BYTE = 40, BYTES_OF_TOKEN = 4 };

/* Bytes of the corpora; *missing: are there some that are not there yet? */
static double corpus_bytes(const wm_run_t *run, bool *missing) {
  double bytes = 0;
  const char *name;
  *missing = wm_config_name(run->config, "corpora.", 0) == NULL;
  for (int64_t i = 0; (name = wm_config_name(run->config, "corpora.", i)) != NULL; i++) {
    char key[256];
    struct stat file;
    snprintf(key, sizeof key, "corpora.%s.path", name);
    const char *path = wm_config_string(run->config, key);
    if (path[0] != '\0' && stat(path, &file) == 0)
      bytes += (double)file.st_size;
    else
      *missing = true;
  }
  return bytes;
}

/* The corpus is read twice, for its fingerprint and to be encoded, which the ranks share out. */
wm_status_t wm_plan_job_tokenize(wm_plan_at_t *at, wm_error_t *err) {
  const wm_machine_t *m = at->m;
  bool missing;
  const double bytes = corpus_bytes(at->run, &missing);
  (void)err;
  *at->total = (wm_cost_t){.seconds = m->start + OF_BYTE * bytes / ((double)at->l.ranks * m->steps),
                           .file_bytes = 2 * bytes + 4 * bytes / BYTES_OF_TOKEN,
                           .memory = 0x1p30, /* pieces of the text, and the tokenizer */
                           .busy = NAN};
  at->total->seconds += at->total->file_bytes / m->files;
  if (missing) {
    at->total->seconds = 300;
    snprintf(at->note, WM_PLAN_NOTE, "rough: its text is not there");
  }
  return WM_OK;
}
