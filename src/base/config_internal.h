/* What the files of the settings share. */
#ifndef WANAMAKER_SRC_BASE_CONFIG_INTERNAL_H
#define WANAMAKER_SRC_BASE_CONFIG_INTERNAL_H

#include "wanamaker/base/config.h"

enum { WM_KEY_SIZE = 200 }; /* of dotted keys, with the terminator */

/* What a name may consist of after its first letter. */
#define WM_NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* Ends the lines of wm_config_text() whose values nobody gave, so that who parses it can tell. */
#define WM_DEFAULT_MARK "# default, not given"

typedef struct {
  char *key;
  const wm_schema_t *schema;
  bool set, given; /* has a value; the user gave it */
  char *string;    /* of STRINGS: all of them, each with its terminator */
  int64_t count;   /* of numbers, of strings, or of lists */
  int64_t *ints;
  double *floats;
  int64_t *offsets; /* [count + 1], of lists in `ints` and of strings in `string` */
} wm_setting_t;

struct wm_config {
  const wm_schema_t *schema;
  wm_setting_t *settings;
  int64_t count, capacity;
  char **names; /* "corpora.wikitext": prefix and name that stands for "*" */
  int64_t name_count, name_capacity;
  char *text;
};

bool wm_config_key_matches(const char *pattern, const char *key);
const wm_schema_t *wm_config_schema_of(const wm_schema_t *schema, const char *key);
wm_setting_t *wm_config_find(const wm_config_t *config, const char *key);
/* The setting of `key`, made if it is not there yet. */
wm_status_t wm_config_slot(wm_config_t *config, const char *key, wm_setting_t **out,
                           wm_error_t *err);
wm_status_t wm_config_note_name(wm_config_t *config, const char *pattern, const char *key,
                                wm_error_t *err);
/* The valid key that is most like `key`, cut to `size`. */
void wm_config_nearest(const wm_schema_t *schema, const char *key, char *out, size_t size);
/* Refuses what libconfig would misread; `name` is what messages call the text. */
wm_status_t wm_config_scan(const char *text, const char *name, wm_error_t *err);
/* Gives `s` these texts; each is copied. They replace what it had. */
wm_status_t wm_config_set_strings(wm_setting_t *s, int64_t n, const char *const *texts,
                                  wm_error_t *err);
/* The same from an override without quotes: "a,b" or "[a, b]". */
wm_status_t wm_config_split_strings(wm_setting_t *s, const char *text, wm_error_t *err);
/* Writes config->text. */
wm_status_t wm_config_render(wm_config_t *config, wm_error_t *err);

#endif
