/* Settings: one schema table drives reading, validation, defaults and --help.
 *
 * A configuration file (libconfig syntax) and key=value overrides are flattened into dotted keys
 * ("fit.lambda"). A component "*" in the schema stands for a name of the user's choice:
 * "corpora.*.path" describes corpora.wikitext.path, and every name seen gets the other
 * "corpora.*" settings with their defaults. A name is a letter followed by at most 63 letters,
 * digits,
 * "_" or "-".
 *
 * Where libconfig is lax, this is not: an integer that does not fit 32 bits without the suffix L
 * (libconfig 1.5 would wrap it), hexadecimal numbers, @include, a comment that is not closed, a NUL
 * in a string, unknown keys (the nearest valid one is suggested), and values of the wrong type or
 * out of range are WM_USAGE with the file and line. A file may have 256 KiB.
 */
#ifndef WANAMAKER_BASE_CONFIG_H
#define WANAMAKER_BASE_CONFIG_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

typedef enum {
  WM_SETTING_BOOL,
  WM_SETTING_INT,
  WM_SETTING_FLOAT,
  WM_SETTING_STRING,
  WM_SETTING_CHOICE,    /* a string among `choices`, which are separated by spaces */
  WM_SETTING_INTS,      /* [1, 2] */
  WM_SETTING_FLOATS,    /* [0.1, 1.0] */
  WM_SETTING_INT_LISTS, /* ([1, 2], [3]) */
  WM_SETTING_STRINGS    /* ["a", "b"]; as an override also a,b or [a,b] */
} wm_setting_type_t;

typedef struct {
  const char *key;
  wm_setting_type_t type;
  const char *fallback; /* default, in the file's syntax; NULL: must be given to jobs in `jobs` */
  double min, max;      /* of numbers and of list elements; ignored when min > max */
  const char *choices;
  unsigned jobs; /* bit mask of the jobs that use it; 0 means all */
  const char *help;
} wm_schema_t; /* a table ends with key = NULL */

typedef struct wm_config wm_config_t;

/* Reads `path` (NULL: nothing but defaults and overrides) and applies `overrides`. `job` is the bit
 * whose required settings must be present (0: none is demanded). Not collective: rank 0 reads and
 * the text of wm_config_text() is what others read with wm_config_parse. `schema` is borrowed. */
wm_status_t wm_config_read(const wm_schema_t *schema, const char *path,
                           const char *const *overrides, int n_overrides, unsigned job,
                           wm_config_t **out, wm_error_t *err);

/* The same from text in memory; `name` is what messages call it. */
wm_status_t wm_config_parse(const wm_schema_t *schema, const char *text, const char *name,
                            const char *const *overrides, int n_overrides, unsigned job,
                            wm_config_t **out, wm_error_t *err);
void wm_config_free(wm_config_t *config);

/* Getters. The key must be in the schema with that type, and have a value: else it is a bug
 * (assertion). Arrays and strings are borrowed from the config. */
bool wm_config_bool(const wm_config_t *config, const char *key);
int64_t wm_config_int(const wm_config_t *config, const char *key);
double wm_config_float(const wm_config_t *config, const char *key);
const char *wm_config_string(const wm_config_t *config, const char *key); /* STRING or CHOICE */
const int64_t *wm_config_ints(const wm_config_t *config, const char *key, int64_t *count);
const double *wm_config_floats(const wm_config_t *config, const char *key, int64_t *count);
/* List i is values[offsets[i] .. offsets[i + 1] - 1]. */
const int64_t *wm_config_lists(const wm_config_t *config, const char *key, const int64_t **offsets,
                               int64_t *count);
/* Number of texts of a STRINGS setting, and text number `index` of them. */
int64_t wm_config_count(const wm_config_t *config, const char *key);
const char *wm_config_element(const wm_config_t *config, const char *key, int64_t index);
/* True if the user gave the key (in the file or as an override). wm_config_text() ends the lines of
 * all other values in "# default, not given", and what reads it back knows them by that. */
bool wm_config_given(const wm_config_t *config, const char *key);

/* Name number `index` that stands for "*" after `prefix` ("corpora."), or NULL past the last. */
const char *wm_config_name(const wm_config_t *config, const char *prefix, int64_t index);

/* All settings with their values in schema order, in the file's syntax; reading it back gives an
 * equal configuration. Borrowed. */
const char *wm_config_text(const wm_config_t *config);

/* Prints the schema's settings of the jobs in `jobs` as a table: key, type, default, range, help.
 */
void wm_config_print_help(const wm_schema_t *schema, unsigned jobs, FILE *out);

#endif
