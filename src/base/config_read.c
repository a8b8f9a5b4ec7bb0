/* From libconfig's tree and key=value overrides to checked settings. */
#include "config_internal.h"
#include "wanamaker/base/config.h"
#include "wanamaker/base/mem.h"

#include <ctype.h>
#include <errno.h>
#include <libconfig.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

/* libconfig compares every name with all others of its group: the limit keeps that to seconds. */
enum { KEY_SIZE = WM_KEY_SIZE, NAME_SIZE = 64, MAX_CONFIG_BYTES = 1 << 18 };

/* --- values ----------------------------------------------------------------------------------- */

/* Where a value stands, for messages: "file:12" or "command line". */
typedef struct {
  const char *name;
  int line; /* 0: not in a file */
} place_t;

static wm_status_t fail_at(wm_error_t *err, place_t at, const char *key, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static wm_status_t fail_at(wm_error_t *err, place_t at, const char *key, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (at.line > 0)
    return wm_fail(err, WM_USAGE, "%s:%d: %s %s", at.name, at.line, key, text);
  return wm_fail(err, WM_USAGE, "%s: %s %s", at.name, key, text);
}

static bool is_integer(const config_setting_t *node) {
  int type = config_setting_type(node);
  return type == CONFIG_TYPE_INT || type == CONFIG_TYPE_INT64;
}

static bool is_number(const config_setting_t *node) {
  return is_integer(node) || config_setting_type(node) == CONFIG_TYPE_FLOAT;
}

static double number_of(const config_setting_t *node) {
  return is_integer(node) ? (double)config_setting_get_int64(node) : config_setting_get_float(node);
}

static wm_status_t check_range(const wm_setting_t *s, double value, place_t at, wm_error_t *err) {
  const wm_schema_t *e = s->schema;
  if (!isfinite(value))
    return fail_at(err, at, s->key, "must be a finite number");
  if (e->min > e->max || (value >= e->min && value <= e->max))
    return WM_OK;
  if (e->max >= 1e300)
    return fail_at(err, at, s->key, "= %.10g must be at least %.10g", value, e->min);
  return fail_at(err, at, s->key, "= %.10g must lie between %.10g and %.10g", value, e->min,
                 e->max);
}

static wm_status_t take_int(wm_setting_t *s, const config_setting_t *node, int64_t *out, place_t at,
                            wm_error_t *err) {
  if (!is_integer(node))
    return fail_at(err, at, s->key, "must be an integer");
  *out = config_setting_get_int64(node);
  return check_range(s, (double)*out, at, err);
}

static bool is_sequence(const config_setting_t *node) {
  return config_setting_is_array(node) || config_setting_is_list(node);
}

static wm_status_t take_numbers(wm_setting_t *s, const config_setting_t *node, place_t at,
                                wm_error_t *err) {
  bool floats = s->schema->type == WM_SETTING_FLOATS;
  bool scalar = is_number(node); /* layers = 3 means [3] */
  if (!scalar && !is_sequence(node))
    return fail_at(err, at, s->key, "must be an array of %s", floats ? "numbers" : "integers");
  s->count = scalar ? 1 : config_setting_length(node);
  void *memory;
  wm_status_t status = wm_alloc(&memory, s->count, 8, s->key, err);
  if (status != WM_OK)
    return status;
  if (floats)
    s->floats = memory;
  else
    s->ints = memory;
  for (int64_t i = 0; i < s->count && status == WM_OK; i++) {
    const config_setting_t *element =
        scalar ? node : config_setting_get_elem(node, (unsigned int)i);
    if (!floats) {
      status = take_int(s, element, &s->ints[i], at, err);
    } else if (!is_number(element)) {
      status = fail_at(err, at, s->key, "must be an array of numbers");
    } else {
      s->floats[i] = number_of(element);
      status = check_range(s, s->floats[i], at, err);
    }
  }
  return status;
}

static wm_status_t take_lists(wm_setting_t *s, const config_setting_t *node, place_t at,
                              wm_error_t *err) {
  if (!config_setting_is_list(node))
    return fail_at(err, at, s->key, "must be a list of integer arrays, such as ([1, 2], [3])");
  s->count = config_setting_length(node);
  int64_t total = 0;
  for (int64_t i = 0; i < s->count; i++) {
    const config_setting_t *inner = config_setting_get_elem(node, (unsigned int)i);
    if (!is_sequence(inner) || config_setting_length(inner) == 0)
      return fail_at(err, at, s->key, "must be a list of integer arrays, such as ([1, 2], [3])");
    total += config_setting_length(inner);
  }
  void *ints, *offsets;
  wm_status_t status = wm_alloc(&ints, total, sizeof(int64_t), s->key, err);
  if (status != WM_OK)
    return status;
  s->ints = ints;
  status = wm_alloc(&offsets, s->count + 1, sizeof(int64_t), s->key, err);
  if (status != WM_OK)
    return status;
  s->offsets = offsets;
  for (int64_t i = 0; i < s->count && status == WM_OK; i++) {
    const config_setting_t *inner = config_setting_get_elem(node, (unsigned int)i);
    int64_t n = config_setting_length(inner), at_value = s->offsets[i];
    s->offsets[i + 1] = at_value + n;
    for (int64_t j = 0; j < n && status == WM_OK; j++)
      status = take_int(s, config_setting_get_elem(inner, (unsigned int)j), &s->ints[at_value + j],
                        at, err);
  }
  return status;
}

static bool among(const char *choices, const char *value) {
  size_t length = strlen(value);
  for (const char *p = choices; *p != '\0';) {
    size_t n = strcspn(p, " ");
    if (n == length && strncmp(p, value, n) == 0)
      return true;
    p += n + strspn(p + n, " ");
  }
  return false;
}

static wm_status_t take_text(wm_setting_t *s, const char *value, place_t at, wm_error_t *err) {
  if (s->schema->type == WM_SETTING_CHOICE && !among(s->schema->choices, value))
    return fail_at(err, at, s->key, "= \"%.60s\" must be one of: %s", value, s->schema->choices);
  return wm_strdup(&s->string, value, err);
}

static void clear_value(wm_setting_t *s) {
  free(s->string);
  free(s->ints);
  free(s->floats);
  free(s->offsets);
  s->string = NULL;
  s->ints = NULL;
  s->floats = NULL;
  s->offsets = NULL;
  s->count = 0;
}

static wm_status_t take_scalar(wm_setting_t *s, const config_setting_t *node, place_t at,
                               wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, 1, 8, s->key, err);
  if (status != WM_OK)
    return status;
  if (s->schema->type == WM_SETTING_FLOAT) {
    s->floats = memory;
    if (!is_number(node))
      return fail_at(err, at, s->key, "must be a number");
    s->floats[0] = number_of(node);
    return check_range(s, s->floats[0], at, err);
  }
  s->ints = memory;
  if (s->schema->type == WM_SETTING_INT)
    return take_int(s, node, &s->ints[0], at, err);
  if (config_setting_type(node) != CONFIG_TYPE_BOOL)
    return fail_at(err, at, s->key, "must be true or false");
  s->ints[0] = config_setting_get_bool(node);
  return WM_OK;
}

/* An array of strings, or one string. */
static wm_status_t take_strings(wm_setting_t *s, const config_setting_t *node, place_t at,
                                wm_error_t *err) {
  bool scalar = config_setting_type(node) == CONFIG_TYPE_STRING;
  if (!scalar && !is_sequence(node))
    return fail_at(err, at, s->key, "must be an array of strings, such as [\"a\", \"b\"]");
  int64_t n = scalar ? 1 : config_setting_length(node);
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(char *), s->key, err);
  const char **texts = memory;
  for (int64_t i = 0; i < n && status == WM_OK; i++) {
    texts[i] =
        config_setting_get_string(scalar ? node : config_setting_get_elem(node, (unsigned int)i));
    if (texts[i] == NULL)
      status = fail_at(err, at, s->key, "must be an array of strings");
  }
  if (status == WM_OK)
    status = wm_config_set_strings(s, n, texts, err);
  free(texts);
  return status;
}

static wm_status_t take_value(wm_setting_t *s, const config_setting_t *node, place_t at,
                              wm_error_t *err) {
  clear_value(s);
  s->set = true;
  switch (s->schema->type) {
  case WM_SETTING_BOOL:
  case WM_SETTING_INT:
  case WM_SETTING_FLOAT:
    return take_scalar(s, node, at, err);
  case WM_SETTING_INTS:
  case WM_SETTING_FLOATS:
    return take_numbers(s, node, at, err);
  case WM_SETTING_INT_LISTS:
    return take_lists(s, node, at, err);
  case WM_SETTING_STRINGS:
    return take_strings(s, node, at, err);
  case WM_SETTING_STRING:
  case WM_SETTING_CHOICE:
    break;
  }
  if (config_setting_type(node) != CONFIG_TYPE_STRING)
    return fail_at(err, at, s->key, "must be a string in double quotes");
  return take_text(s, config_setting_get_string(node), at, err);
}

/* --- file, overrides, defaults ---------------------------------------------------------------- */

/* Can every component of `key` be written in a file? Overrides could hold anything. */
static bool is_key(const char *key) {
  for (;; key++) {
    size_t length = strspn(key, WM_NAME_CHARS);
    if (length == 0 || length > NAME_SIZE || !isalpha((unsigned char)*key))
      return false;
    key += length;
    if (*key != '.')
      return *key == '\0';
  }
}

/* Is a component of `key` what a file's grammar takes for a truth value? */
static bool has_truth_value(const char *key) {
  for (;; key++) {
    size_t length = strcspn(key, ".");
    if ((length == 4 && strncasecmp(key, "true", 4) == 0) ||
        (length == 5 && strncasecmp(key, "false", 5) == 0))
      return true;
    key += length;
    if (*key == '\0')
      return false;
  }
}

/* Finds or makes the setting of a key that the user wrote. */
static wm_status_t user_slot(wm_config_t *c, const char *key, place_t at, wm_setting_t **out,
                             wm_error_t *err) {
  const wm_schema_t *e = wm_config_schema_of(c->schema, key);
  if (e == NULL) {
    char nearest[2 * KEY_SIZE];
    wm_config_nearest(c->schema, key, nearest, sizeof nearest);
    return fail_at(err, at, key, "is not a setting; the nearest is %s", nearest);
  }
  if (!is_key(key))
    return fail_at(err, at, key,
                   "holds a name that is not a letter followed by at most %d letters, digits, _ "
                   "or -",
                   NAME_SIZE - 1);
  if (has_truth_value(key))
    return fail_at(err, at, key, "holds the name true or false, which files have for values alone");
  wm_status_t status = wm_config_note_name(c, e->key, key, err);
  if (status == WM_OK)
    status = wm_config_slot(c, key, out, err);
  return status;
}

/* Is there a setting below `key`, so that it may be a group? */
static bool is_group_key(const wm_schema_t *schema, const char *key) {
  char probe[KEY_SIZE];
  for (; schema->key != NULL; schema++) {
    snprintf(probe, sizeof probe, "%s", schema->key);
    for (char *dot = strrchr(probe, '.'); dot != NULL; dot = strrchr(probe, '.')) {
      *dot = '\0';
      if (wm_config_key_matches(probe, key))
        return true;
    }
  }
  return false;
}

/* A text that is being read, and how far. */
typedef struct {
  wm_config_t *config;
  const char *file;
  const char *at; /* start of line number `line` */
  int line;
} reader_t;

/* Does `line` end in WM_DEFAULT_MARK? Lines are asked for in ascending order. */
static bool marks_default(reader_t *r, int line) {
  for (; r->line < line && *r->at != '\0'; r->line++) {
    r->at += strcspn(r->at, "\n");
    r->at += *r->at == '\n';
  }
  size_t length = strcspn(r->at, "\n"), mark = strlen(WM_DEFAULT_MARK);
  return length >= mark && strncmp(r->at + length - mark, WM_DEFAULT_MARK, mark) == 0;
}

static wm_status_t walk(reader_t *r, const config_setting_t *node, const char *prefix,
                        wm_error_t *err) {
  const wm_schema_t *schema = r->config->schema;
  int n = config_setting_length(node);
  for (int i = 0; i < n; i++) {
    const config_setting_t *child = config_setting_get_elem(node, (unsigned int)i);
    place_t at = {r->file, (int)config_setting_source_line(child)};
    char key[KEY_SIZE];
    if (snprintf(key, sizeof key, "%s%s", prefix, config_setting_name(child)) >=
        (int)sizeof key - 1)
      return fail_at(err, at, config_setting_name(child), "is too long a name");
    wm_status_t status;
    if (config_setting_is_group(child)) {
      if (!is_group_key(schema, key)) {
        char nearest[2 * KEY_SIZE];
        wm_config_nearest(schema, key, nearest, sizeof nearest);
        return fail_at(err, at, key, "is not a group of settings; the nearest setting is %s",
                       nearest);
      }
      strcat(key, ".");
      status = walk(r, child, key, err);
    } else {
      wm_setting_t *s;
      status = user_slot(r->config, key, at, &s, err);
      if (status == WM_OK) {
        s->given = !marks_default(r, at.line);
        status = take_value(s, child, at, err);
      }
    }
    if (status != WM_OK)
      return status;
  }
  return WM_OK;
}

static wm_status_t parse_into(config_t *tree, const char *text, const char *name, wm_error_t *err) {
  wm_status_t status = wm_config_scan(text, name, err);
  if (status != WM_OK)
    return status;
  char *whole = wm_format("%s\n", text); /* libconfig knows no comment without an end of line */
  if (whole == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate the text of a configuration");
  if (config_read_string(tree, whole) != CONFIG_TRUE) {
    const char *what = config_error_text(tree);
    bool mixed = strstr(what, "mismatched element") != NULL;
    status = wm_fail(err, WM_USAGE, "%s:%d: %s%s", name, config_error_line(tree), what,
                     mixed ? " (write all of them alike: 1.0, or with the suffix L)" : "");
  }
  free(whole);
  return status;
}

/* Reads `text` as the value of `s`: libconfig's syntax, or for strings also bare words. */
static wm_status_t take_literal(wm_setting_t *s, const char *text, place_t at, wm_error_t *err) {
  bool wants_text = s->schema->type == WM_SETTING_STRING || s->schema->type == WM_SETTING_CHOICE;
  if (wants_text && text[0] != '"') {
    clear_value(s);
    s->set = true;
    return take_text(s, text, at, err);
  }
  if (s->schema->type == WM_SETTING_STRINGS && strchr(text, '"') == NULL) {
    clear_value(s);
    s->set = true;
    return wm_config_split_strings(s, text, err);
  }
  char *assignment = wm_format("value = %s;", text);
  if (assignment == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate an override");
  config_t tree;
  config_init(&tree);
  wm_status_t status = parse_into(&tree, assignment, at.name, err);
  if (status == WM_OK && config_setting_length(config_root_setting(&tree)) != 1)
    status = wm_fail(err, WM_USAGE, "%s:1: a single value is expected", at.name);
  if (status == WM_USAGE)
    status = fail_at(err, at, s->key, "= %.200s is not a valid value%s", text,
                     strstr(err->message, ": ")); /* the reason without its place */
  else if (status == WM_OK)
    status = take_value(s, config_setting_get_elem(config_root_setting(&tree), 0), at, err);
  config_destroy(&tree);
  free(assignment);
  return status;
}

static wm_status_t apply_override(wm_config_t *c, const char *override, wm_error_t *err) {
  const char *equals = strchr(override, '=');
  place_t at = {"command line", 0};
  if (equals == NULL || equals == override)
    return wm_fail(err, WM_USAGE, "command line: \"%s\" is not of the form key=value", override);
  char key[KEY_SIZE];
  if (snprintf(key, sizeof key, "%.*s", (int)(equals - override), override) >= (int)sizeof key)
    return wm_fail(err, WM_USAGE, "command line: too long a name in \"%.60s...\"", override);
  wm_setting_t *s;
  wm_status_t status = user_slot(c, key, at, &s, err);
  if (status != WM_OK)
    return status;
  s->given = true;
  return take_literal(s, equals + 1, at, err);
}

static wm_status_t default_of(wm_config_t *c, const wm_schema_t *e, const char *key, unsigned job,
                              wm_error_t *err) {
  wm_setting_t *s;
  wm_status_t status = wm_config_slot(c, key, &s, err);
  if (status != WM_OK || s->set)
    return status;
  if (e->fallback == NULL) {
    if (job != 0 && (e->jobs == 0 || (e->jobs & job) != 0))
      return wm_fail(err, WM_USAGE, "%s must be given: %s", key, e->help);
    return WM_OK;
  }
  return take_literal(s, e->fallback, (place_t){"built-in default", 0}, err);
}

static wm_status_t fill_defaults(wm_config_t *c, unsigned job, wm_error_t *err) {
  for (const wm_schema_t *e = c->schema; e->key != NULL; e++) {
    const char *star = strchr(e->key, '*');
    if (star == NULL) {
      wm_status_t status = default_of(c, e, e->key, job, err);
      if (status != WM_OK)
        return status;
      continue;
    }
    for (int64_t i = 0; i < c->name_count; i++) {
      char key[2 * KEY_SIZE];
      size_t prefix = (size_t)(star - e->key);
      if (strncmp(c->names[i], e->key, prefix) != 0)
        continue;
      snprintf(key, sizeof key, "%s%s", c->names[i], star + 1);
      wm_status_t status = default_of(c, e, key, job, err);
      if (status != WM_OK)
        return status;
    }
  }
  return WM_OK;
}

wm_status_t wm_config_parse(const wm_schema_t *schema, const char *text, const char *name,
                            const char *const *overrides, int n_overrides, unsigned job,
                            wm_config_t **out, wm_error_t *err) {
  *out = NULL;
  void *memory;
  config_t tree;
  config_init(&tree);
  wm_status_t status = WM_OK;
  wm_config_t *c = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof *c, "configuration", err));
  c = memory;
  c->schema = schema;
  if (strncmp(text, "\xef\xbb\xbf", 3) == 0) /* the byte order mark of some editors */
    text += 3;
  WM_TRY(parse_into(&tree, text, name, err));
  reader_t reader = {.config = c, .file = name, .at = text, .line = 1};
  WM_TRY(walk(&reader, config_root_setting(&tree), "", err));
  for (int i = 0; i < n_overrides; i++)
    WM_TRY(apply_override(c, overrides[i], err));
  WM_TRY(fill_defaults(c, job, err));
  WM_TRY(wm_config_render(c, err));
  *out = c;
  c = NULL;
cleanup:
  wm_config_free(c);
  config_destroy(&tree);
  return status;
}

/* Is `path` a regular file of a configuration's size? Asked before it is opened: to open a FIFO
 * waits for a writer. */
static wm_status_t check_file(const char *path, int64_t *bytes, wm_error_t *err) {
  struct stat info;
  if (stat(path, &info) != 0)
    return wm_fail(err, WM_USAGE, "%s: cannot open the configuration: %s", path, strerror(errno));
  if (!S_ISREG(info.st_mode))
    return wm_fail(err, WM_USAGE, "%s: not a regular file", path);
  if (info.st_size > MAX_CONFIG_BYTES)
    return wm_fail(err, WM_USAGE, "%s: %lld bytes are too many for a configuration (limit %d)",
                   path, (long long)info.st_size, MAX_CONFIG_BYTES);
  *bytes = info.st_size;
  return WM_OK;
}

/* Whole text of a regular file. */
static wm_status_t slurp(const char *path, char **out, wm_error_t *err) {
  int64_t bytes = 0;
  void *memory;
  FILE *f = NULL;
  wm_status_t status;
  *out = NULL;
  WM_TRY(check_file(path, &bytes, err));
  WM_TRY(wm_alloc(&memory, bytes + 1, 1, path, err));
  *out = memory;
  f = fopen(path, "rb");
  if (f == NULL)
    status = wm_fail(err, WM_USAGE, "%s: cannot open the configuration: %s", path, strerror(errno));
  else if (fread(*out, 1, (size_t)bytes, f) != (size_t)bytes)
    status = wm_fail(err, WM_USAGE, "%s: cannot read %lld bytes", path, (long long)bytes);
  else if (strlen(*out) != (size_t)bytes)
    status = wm_fail(err, WM_USAGE, "%s: a NUL byte at position %zu", path, strlen(*out));
cleanup:
  if (f != NULL)
    fclose(f);
  return status;
}

wm_status_t wm_config_read(const wm_schema_t *schema, const char *path,
                           const char *const *overrides, int n_overrides, unsigned job,
                           wm_config_t **out, wm_error_t *err) {
  *out = NULL;
  char *text = NULL;
  wm_status_t status = path == NULL ? WM_OK : slurp(path, &text, err);
  if (status == WM_OK)
    status = wm_config_parse(schema, text == NULL ? "" : text, path == NULL ? "defaults" : path,
                             overrides, n_overrides, job, out, err);
  free(text);
  return status;
}
