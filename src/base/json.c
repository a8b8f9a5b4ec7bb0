#include "wanamaker/base/json.h"

#include <errno.h>
#include <string.h>

static wm_status_t parse_failure(const char *name, const json_error_t *e, wm_error_t *err) {
  return wm_fail(err, WM_INPUT, "%s:%d:%d: not valid JSON: %s", name, e->line, e->column, e->text);
}

wm_status_t wm_json_load(const char *path, json_t **out, wm_error_t *err) {
  *out = NULL;
  FILE *f = fopen(path, "rb");
  if (f == NULL)
    return wm_fail(err, WM_INPUT, "%s: cannot open: %s", path, strerror(errno));
  json_error_t e;
  *out = json_loadf(f, JSON_REJECT_DUPLICATES, &e);
  fclose(f);
  return *out != NULL ? WM_OK : parse_failure(path, &e, err);
}

wm_status_t wm_json_parse(const char *text, size_t bytes, const char *name, json_t **out,
                          wm_error_t *err) {
  json_error_t e;
  *out = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &e);
  return *out != NULL ? WM_OK : parse_failure(name, &e, err);
}

/* Finds `key`; *out is NULL when it is absent or null and need not be there. */
static wm_status_t find(const json_t *object, const char *file, const char *key, bool required,
                        const json_t **out, wm_error_t *err) {
  *out = NULL;
  if (!json_is_object(object))
    return wm_fail(err, WM_INPUT, "%s: an object with \"%s\" is expected", file, key);
  *out = json_object_get(object, key);
  if (*out != NULL && json_is_null(*out))
    *out = NULL;
  if (*out == NULL && required)
    return wm_fail(err, WM_INPUT, "%s: \"%s\" is missing", file, key);
  return WM_OK;
}

static wm_status_t wrong_type(const char *file, const char *key, const char *expected,
                              const json_t *value, wm_error_t *err) {
  static const char *const names[] = {"an object", "an array", "a string", "an integer",
                                      "a number",  "true",     "false",    "null"};
  return wm_fail(err, WM_INPUT, "%s: \"%s\" must be %s, but is %s", file, key, expected,
                 names[json_typeof(value)]);
}

wm_status_t wm_json_get_int(const json_t *object, const char *file, const char *key, bool required,
                            int64_t *out, wm_error_t *err) {
  const json_t *v;
  wm_status_t status = find(object, file, key, required, &v, err);
  if (status != WM_OK || v == NULL)
    return status;
  if (!json_is_integer(v))
    return wrong_type(file, key, "an integer", v, err);
  *out = (int64_t)json_integer_value(v);
  return WM_OK;
}

wm_status_t wm_json_get_float(const json_t *object, const char *file, const char *key,
                              bool required, double *out, wm_error_t *err) {
  const json_t *v;
  wm_status_t status = find(object, file, key, required, &v, err);
  if (status != WM_OK || v == NULL)
    return status;
  if (!json_is_number(v))
    return wrong_type(file, key, "a number", v, err);
  *out = json_number_value(v);
  return WM_OK;
}

wm_status_t wm_json_get_bool(const json_t *object, const char *file, const char *key, bool required,
                             bool *out, wm_error_t *err) {
  const json_t *v;
  wm_status_t status = find(object, file, key, required, &v, err);
  if (status != WM_OK || v == NULL)
    return status;
  if (!json_is_boolean(v))
    return wrong_type(file, key, "true or false", v, err);
  *out = json_is_true(v);
  return WM_OK;
}

wm_status_t wm_json_get_string(const json_t *object, const char *file, const char *key,
                               bool required, const char **out, wm_error_t *err) {
  const json_t *v;
  wm_status_t status = find(object, file, key, required, &v, err);
  if (status != WM_OK || v == NULL)
    return status;
  if (!json_is_string(v))
    return wrong_type(file, key, "a string", v, err);
  *out = json_string_value(v);
  return WM_OK;
}
