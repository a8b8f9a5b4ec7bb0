/* JSON files through jansson, with errors that name the file and the place.
 *
 * Getters take the file's name for their messages. A key that is absent or null leaves *out as it
 * was and returns WM_OK unless `required`; a value of another type is WM_INPUT. Duplicate keys are
 * refused when the file is read. */
#ifndef WANAMAKER_BASE_JSON_H
#define WANAMAKER_BASE_JSON_H

#include "wanamaker/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Reads the file at `path`; *out is a new reference (json_decref). */
wm_status_t wm_json_load(const char *path, json_t **out, wm_error_t *err);

/* Parses `bytes` bytes of `text`; `name` is what messages call it. */
wm_status_t wm_json_parse(const char *text, size_t bytes, const char *name, json_t **out,
                          wm_error_t *err);

wm_status_t wm_json_get_int(const json_t *object, const char *file, const char *key, bool required,
                            int64_t *out, wm_error_t *err);
wm_status_t wm_json_get_float(const json_t *object, const char *file, const char *key,
                              bool required, double *out, wm_error_t *err);
wm_status_t wm_json_get_bool(const json_t *object, const char *file, const char *key, bool required,
                             bool *out, wm_error_t *err);
/* *out is borrowed from `object`. */
wm_status_t wm_json_get_string(const json_t *object, const char *file, const char *key,
                               bool required, const char **out, wm_error_t *err);

#endif
