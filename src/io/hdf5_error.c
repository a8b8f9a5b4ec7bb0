/* HDF5's error stack as one line of text. */
#include "hdf5_private.h"

#include <stdio.h>
#include <string.h>

enum { TEXT = 256 };

typedef struct {
  char outer[TEXT], inner[TEXT];
} messages_t;

static herr_t keep(unsigned n, const H5E_error2_t *entry, void *client) {
  messages_t *m = client;
  const char *text = entry->desc != NULL ? entry->desc : "";
  if (n == 0)
    snprintf(m->outer, TEXT, "%s", text);
  if (text[0] != '\0')
    snprintf(m->inner, TEXT, "%s", text);
  return 0;
}

wm_status_t wm_h5_fail(wm_error_t *err, wm_status_t status, const char *path, const char *object,
                       const char *what) {
  messages_t m = {"", ""};
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_DOWNWARD, keep, &m);
  bool both = strcmp(m.outer, m.inner) != 0;
  return wm_fail(err, status, "%s: %s%scannot %s: HDF5: %s%s%s", path, object != NULL ? object : "",
                 object != NULL ? ": " : "", what, m.outer[0] != '\0' ? m.outer : "no reason given",
                 both ? ": " : "", both ? m.inner : "");
}
