/* Settings as text: the resolved configuration, and the table that --help prints. */
#include "config_internal.h"
#include "wanamaker/base/config.h"
#include "wanamaker/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Quotes as libconfig reads them back. */
static void print_string(FILE *out, const char *s) {
  fputc('"', out);
  for (; *s != '\0'; s++) {
    unsigned char c = (unsigned char)*s;
    if (c == '"' || c == '\\')
      fprintf(out, "\\%c", c);
    else if (c < 0x20 || c == 0x7f)
      fprintf(out, "\\x%02x", c);
    else
      fputc(c, out);
  }
  fputc('"', out);
}

static bool is_long(int64_t value) {
  return value > INT32_MAX || value < INT32_MIN;
}

static void print_int(FILE *out, int64_t value, bool as_long) {
  fprintf(out, "%lld%s", (long long)value, as_long ? "L" : "");
}

static void print_float(FILE *out, double value) {
  char text[64];
  snprintf(text, sizeof text, "%.17g", value);
  double back;
  for (int digits = 1; digits <= 17; digits++) { /* the shortest that reads back the same */
    snprintf(text, sizeof text, "%.*g", digits, value);
    if (sscanf(text, "%lf", &back) == 1 && back == value)
      break;
  }
  fprintf(out, "%s%s", text, strpbrk(text, ".e") == NULL ? ".0" : "");
}

static void print_ints(FILE *out, const int64_t *values, int64_t count) {
  bool as_long = false; /* libconfig wants the elements of an array alike */
  for (int64_t i = 0; i < count; i++)
    as_long |= is_long(values[i]);
  fputc('[', out);
  for (int64_t i = 0; i < count; i++) {
    fputs(i > 0 ? ", " : "", out);
    print_int(out, values[i], as_long);
  }
  fputc(']', out);
}

static void print_value(FILE *out, const wm_setting_t *s) {
  switch (s->schema->type) {
  case WM_SETTING_BOOL:
    fputs(s->ints[0] ? "true" : "false", out);
    break;
  case WM_SETTING_INT:
    print_int(out, s->ints[0], is_long(s->ints[0]));
    break;
  case WM_SETTING_FLOAT:
    print_float(out, s->floats[0]);
    break;
  case WM_SETTING_STRING:
  case WM_SETTING_CHOICE:
    print_string(out, s->string);
    break;
  case WM_SETTING_INTS:
    print_ints(out, s->ints, s->count);
    break;
  case WM_SETTING_FLOATS:
    fputc('[', out);
    for (int64_t i = 0; i < s->count; i++) {
      fputs(i > 0 ? ", " : "", out);
      print_float(out, s->floats[i]);
    }
    fputc(']', out);
    break;
  case WM_SETTING_INT_LISTS:
    fputc('(', out);
    for (int64_t i = 0; i < s->count; i++) {
      fputs(i > 0 ? ", " : "", out);
      print_ints(out, s->ints + s->offsets[i], s->offsets[i + 1] - s->offsets[i]);
    }
    fputc(')', out);
    break;
  case WM_SETTING_STRINGS:
    fputc('[', out);
    for (int64_t i = 0; i < s->count; i++) {
      fputs(i > 0 ? ", " : "", out);
      print_string(out, s->string + s->offsets[i]);
    }
    fputc(']', out);
    break;
  }
}

/* Length of the key up to its "*", 0 if it has none. */
static size_t star_prefix(const wm_schema_t *e) {
  return strchr(e->key, '*') != NULL ? strcspn(e->key, "*") : 0;
}

static bool same_prefix(const wm_schema_t *a, const wm_schema_t *b) {
  size_t n = star_prefix(a);
  return n > 0 && n == star_prefix(b) && strncmp(a->key, b->key, n) == 0;
}

/* Settings with a value that belong to `name`, in schema order from `e` on. */
static int64_t of_name(const wm_config_t *config, const wm_schema_t *e, const char *name,
                       const wm_setting_t **out) {
  int64_t n = 0;
  for (const wm_schema_t *other = e; other->key != NULL; other++) {
    if (!same_prefix(e, other))
      continue;
    char key[256]; /* holds every key: names are short */
    snprintf(key, sizeof key, "%s%s", name, other->key + star_prefix(e) + 1);
    const wm_setting_t *s = wm_config_find(config, key);
    if (s != NULL && s->set)
      out[n++] = s;
  }
  return n;
}

/* Settings that have a value, in schema order; the names that stand for "*" keep their order, which
 * has a meaning (the first corpus). */
static int64_t in_order(const wm_config_t *config, const wm_setting_t **out) {
  int64_t n = 0;
  for (const wm_schema_t *e = config->schema; e->key != NULL; e++) {
    size_t prefix = star_prefix(e);
    if (prefix == 0) {
      const wm_setting_t *s = wm_config_find(config, e->key);
      if (s != NULL && s->set)
        out[n++] = s;
      continue;
    }
    bool done = false;
    for (const wm_schema_t *before = config->schema; before < e && !done; before++)
      done = same_prefix(before, e);
    for (int64_t i = 0; i < config->name_count && !done; i++)
      if (strncmp(config->names[i], e->key, prefix) == 0)
        n += of_name(config, e, config->names[i], out + n);
  }
  return n;
}

/* Prints the settings below `prefix` ("", "fit."), groups in braces. A component is printed where
 * it first appears, with all its members: libconfig lets a group be opened only once. */
static void print_group(FILE *out, const wm_setting_t *const *settings, int64_t n,
                        const char *prefix, int depth) {
  size_t skip = strlen(prefix);
  for (int64_t i = 0; i < n; i++) {
    const char *key = settings[i]->key;
    if (strncmp(key, prefix, skip) != 0)
      continue;
    size_t whole = skip + strcspn(key + skip, ".");
    bool seen = false;
    for (int64_t j = 0; j < i && !seen; j++)
      seen = strncmp(settings[j]->key, key, whole) == 0 && settings[j]->key[whole] == '.';
    if (seen)
      continue;
    fprintf(out, "%*s%.*s", 2 * depth, "", (int)(whole - skip), key + skip);
    if (key[whole] == '\0') {
      fputs(" = ", out);
      print_value(out, settings[i]);
      fprintf(out, ";%s\n", settings[i]->given ? "" : " " WM_DEFAULT_MARK);
    } else {
      char inner[256];
      snprintf(inner, sizeof inner, "%.*s.", (int)whole, key);
      fputs(": {\n", out);
      print_group(out, settings, n, inner, depth + 1);
      fprintf(out, "%*s};\n", 2 * depth, "");
    }
  }
}

wm_status_t wm_config_render(wm_config_t *config, wm_error_t *err) {
  free(config->text);
  config->text = NULL;
  void *order;
  wm_status_t status = wm_alloc(&order, config->count, sizeof(wm_setting_t *), "settings", err);
  if (status != WM_OK)
    return status;
  int64_t n = in_order(config, order);
  size_t bytes;
  FILE *out = open_memstream(&config->text, &bytes);
  if (out != NULL)
    print_group(out, order, n, "", 0);
  if (out == NULL || fclose(out) != 0)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate the configuration's text");
  free(order);
  return status;
}

static const char *type_name(wm_setting_type_t type) {
  static const char *const names[] = {"bool", "int",    "float",     "string", "choice",
                                      "ints", "floats", "int lists", "strings"};
  return names[type];
}

static void print_limits(FILE *out, const wm_schema_t *e) {
  if (e->type == WM_SETTING_CHOICE)
    fprintf(out, "; one of: %s", e->choices);
  else if (e->min <= e->max && e->max < 1e300)
    fprintf(out, "; %.10g to %.10g", e->min, e->max);
  else if (e->min <= e->max)
    fprintf(out, "; at least %.10g", e->min);
}

void wm_config_print_help(const wm_schema_t *schema, unsigned jobs, FILE *out) {
  for (const wm_schema_t *e = schema; e->key != NULL; e++) {
    if (e->jobs != 0 && (e->jobs & jobs) == 0)
      continue;
    fprintf(out, "  %s\n      %s; ", e->key, type_name(e->type));
    if (e->fallback == NULL)
      fputs("required", out);
    else
      fprintf(out, "default %s", e->fallback[0] == '\0' ? "none" : e->fallback);
    print_limits(out, e);
    fprintf(out, "\n      %s\n", e->help);
  }
}
