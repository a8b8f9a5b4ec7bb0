/* Settings are kept flat: an array of (key, schema entry, value), the schema's order for plain
 * keys, the order of appearance for names that the user chose. */
#include "wanamaker/base/config.h"

#include "config_internal.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static void setting_destroy(wm_setting_t *s) {
  free(s->key);
  free(s->string);
  free(s->ints);
  free(s->floats);
  free(s->offsets);
}

void wm_config_free(wm_config_t *config) {
  if (config == NULL)
    return;
  for (int64_t i = 0; i < config->count; i++)
    setting_destroy(&config->settings[i]);
  for (int64_t i = 0; i < config->name_count; i++)
    free(config->names[i]);
  free(config->names);
  free(config->settings);
  free(config->text);
  free(config);
}

bool wm_config_key_matches(const char *pattern, const char *key) {
  while (*pattern != '\0' && *key != '\0') {
    if (*pattern == '*') {
      size_t length = strcspn(key, ".");
      if (length == 0)
        return false;
      pattern++;
      key += length;
    } else if (*pattern++ != *key++) {
      return false;
    }
  }
  return *pattern == '\0' && *key == '\0';
}

wm_setting_t *wm_config_find(const wm_config_t *config, const char *key) {
  for (int64_t i = 0; i < config->count; i++)
    if (strcmp(config->settings[i].key, key) == 0)
      return &config->settings[i];
  return NULL;
}

const wm_schema_t *wm_config_schema_of(const wm_schema_t *schema, const char *key) {
  for (; schema->key != NULL; schema++)
    if (wm_config_key_matches(schema->key, key))
      return schema;
  return NULL;
}

wm_status_t wm_config_slot(wm_config_t *config, const char *key, wm_setting_t **out,
                           wm_error_t *err) {
  *out = wm_config_find(config, key);
  if (*out != NULL)
    return WM_OK;
  void *memory = config->settings;
  wm_status_t status = wm_grow(&memory, &config->capacity, config->count, config->count + 1,
                               sizeof(wm_setting_t), "settings", err);
  config->settings = memory;
  if (status != WM_OK)
    return status;
  wm_setting_t *s = &config->settings[config->count];
  memset(s, 0, sizeof *s);
  status = wm_strdup(&s->key, key, err);
  if (status != WM_OK)
    return status;
  s->schema = wm_config_schema_of(config->schema, key);
  config->count++;
  *out = s;
  return WM_OK;
}

/* Notes the name that stands for "*" in a key like "corpora.NAME.path". */
wm_status_t wm_config_note_name(wm_config_t *config, const char *pattern, const char *key,
                                wm_error_t *err) {
  const char *star = strchr(pattern, '*');
  if (star == NULL)
    return WM_OK;
  size_t prefix = (size_t)(star - pattern);
  size_t whole = prefix + strcspn(key + prefix, ".");
  for (int64_t i = 0; i < config->name_count; i++)
    if (strlen(config->names[i]) == whole && strncmp(config->names[i], key, whole) == 0)
      return WM_OK;
  void *memory = config->names;
  wm_status_t status = wm_grow(&memory, &config->name_capacity, config->name_count,
                               config->name_count + 1, sizeof(char *), "names", err);
  config->names = memory;
  if (status != WM_OK)
    return status;
  char *copy = strndup(key, whole);
  if (copy == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a name");
  config->names[config->name_count++] = copy;
  return WM_OK;
}

const char *wm_config_name(const wm_config_t *config, const char *prefix, int64_t index) {
  size_t length = strlen(prefix);
  for (int64_t i = 0; i < config->name_count; i++)
    if (strncmp(config->names[i], prefix, length) == 0 && index-- == 0)
      return config->names[i] + length;
  return NULL;
}

static const wm_setting_t *must_find(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = wm_config_find(config, key);
  assert(s != NULL && s->set);
  return s;
}

bool wm_config_bool(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_BOOL);
  return s->ints[0] != 0;
}

int64_t wm_config_int(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_INT);
  return s->ints[0];
}

double wm_config_float(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_FLOAT);
  return s->floats[0];
}

const char *wm_config_string(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_STRING || s->schema->type == WM_SETTING_CHOICE);
  return s->string;
}

const int64_t *wm_config_ints(const wm_config_t *config, const char *key, int64_t *count) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_INTS);
  *count = s->count;
  return s->ints;
}

const double *wm_config_floats(const wm_config_t *config, const char *key, int64_t *count) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_FLOATS);
  *count = s->count;
  return s->floats;
}

const int64_t *wm_config_lists(const wm_config_t *config, const char *key, const int64_t **offsets,
                               int64_t *count) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_INT_LISTS);
  *offsets = s->offsets;
  *count = s->count;
  return s->ints;
}

int64_t wm_config_count(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_STRINGS);
  return s->count;
}

const char *wm_config_element(const wm_config_t *config, const char *key, int64_t index) {
  const wm_setting_t *s = must_find(config, key);
  assert(s->schema->type == WM_SETTING_STRINGS && index >= 0 && index < s->count);
  return s->string + s->offsets[index];
}

bool wm_config_given(const wm_config_t *config, const char *key) {
  const wm_setting_t *s = wm_config_find(config, key);
  return s != NULL && s->given;
}

const char *wm_config_text(const wm_config_t *config) {
  return config->text;
}
