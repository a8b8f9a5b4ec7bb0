/* Rotary settings of GPT-NeoX. transformers 4 keeps rotary_pct, rotary_emb_base and rope_scaling in
 * config.json; transformers 5 keeps one object, rope_parameters (an older file's rope_scaling
 * stands for it), and some releases in between wrote rope_theta and partial_rotary_factor beside
 * it. A value may be given in several of these places if it is the same in all. */
#include "arch_keys.h"
#include "wanamaker/base/json.h"

#include <math.h>
#include <string.h>

/* A number that may stand in several places. */
typedef struct {
  double value;
  const char *key; /* where it was found, NULL if it was not */
} given_t;

static wm_status_t take(const json_t *object, const char *file, const char *key, given_t *given,
                        wm_error_t *err) {
  double value = NAN;
  wm_status_t status = wm_json_get_float(object, file, key, false, &value, err);
  if (status != WM_OK || isnan(value))
    return status;
  if (given->key != NULL && given->value != value)
    return wm_fail(err, WM_INPUT, "%s: \"%s\" is %g, but \"%s\" is %g", file, key, value,
                   given->key, given->value);
  given->value = value;
  given->key = key;
  return WM_OK;
}

/* Only the plain kind of rotary embedding is computed; a scaled one is refused by name. */
static wm_status_t read_object(const json_t *object, const char *file, const char *name,
                               given_t *base, given_t *fraction, wm_error_t *err) {
  if (object == NULL || json_is_null(object))
    return WM_OK;
  if (!json_is_object(object))
    return wm_fail(err, WM_INPUT, "%s: \"%s\" must be an object", file, name);
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    if (strcmp(key, "rope_type") == 0 || strcmp(key, "type") == 0) {
      const char *type = json_string_value(value);
      if (type == NULL || strcmp(type, "default") != 0)
        return wm_fail(err, WM_INPUT,
                       "%s: \"%s\": \"%s\" = \"%s\" is not supported, only \"default\"", file, name,
                       key, type != NULL ? type : "(no string)");
    } else if (strcmp(key, "rope_theta") != 0 && strcmp(key, "partial_rotary_factor") != 0) {
      return wm_fail(err, WM_INPUT, "%s: \"%s\": \"%s\" is not supported", file, name, key);
    }
  }
  wm_status_t status = take(object, file, "rope_theta", base, err);
  return status != WM_OK ? status : take(object, file, "partial_rotary_factor", fraction, err);
}

wm_status_t wm_arch_read_rotary(const json_t *config, const char *file, wm_arch_t *arch,
                                wm_error_t *err) {
  given_t base = {10000, NULL}, fraction = {0.25, NULL};
  wm_status_t status;
  static const char *const objects[] = {"rope_parameters", "rope_scaling"};
  for (int i = 0; i < 2; i++)
    WM_TRY(
        read_object(json_object_get(config, objects[i]), file, objects[i], &base, &fraction, err));
  WM_TRY(take(config, file, "rotary_emb_base", &base, err));
  WM_TRY(take(config, file, "rope_theta", &base, err));
  WM_TRY(take(config, file, "rotary_pct", &fraction, err));
  WM_TRY(take(config, file, "partial_rotary_factor", &fraction, err));
  if (!(base.value > 0) || isinf(base.value))
    return wm_fail(err, WM_INPUT, "%s: the rotary base must be positive, but is %g", file,
                   base.value);
  if (!(fraction.value >= 0 && fraction.value <= 1))
    return wm_fail(err, WM_INPUT, "%s: the rotary part of a head must be in [0, 1], but is %g",
                   file, fraction.value);
  arch->rotary_base = base.value;
  arch->rotary_dims = (int64_t)((double)arch->d_head * fraction.value); /* rounded down */
  if (arch->rotary_dims % 2 != 0)
    return wm_fail(
        err, WM_INPUT,
        "%s: %g of %lld dimensions per head makes %lld rotary dimensions; the number must be even",
        file, fraction.value, (long long)arch->d_head, (long long)arch->rotary_dims);
cleanup:
  return status;
}
