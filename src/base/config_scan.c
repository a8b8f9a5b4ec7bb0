/* What libconfig 1.5 would get wrong without a word, refused before it sees the text: integers that
 * wrap, directives that end the process, comments and strings that swallow the rest, nesting deeper
 * than its parser's stack. The scanner knows just enough of the syntax to tell strings, comments,
 * names and numbers apart, as libconfig's lexer does. */
#include "config_internal.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

/* A place in the text while it is scanned. */
typedef struct {
  const char *at, *name; /* `name` is what messages call the text */
  int line, depth;
} scan_t;

/* Passes a number. An integer that needs 64 bits must say so: libconfig would wrap it. Hexadecimal
 * is refused (no setting is a bit pattern). */
static wm_status_t scan_number(scan_t *s, wm_error_t *err) {
  char *end, *float_end;
  errno = 0;
  long long value = strtoll(s->at, &end, 10);
  bool overflow = errno != 0;
  if (*end == 'x' || *end == 'X')
    return wm_fail(err, WM_USAGE, "%s:%d: write numbers in decimal", s->name, s->line);
  strtod(s->at, &float_end);
  int length = (int)(end - s->at);
  const char *number = s->at;
  s->at = float_end > end ? float_end : end;
  if (float_end > end)
    return WM_OK;
  if (overflow)
    return wm_fail(err, WM_USAGE, "%s:%d: the integer %.*s does not fit 64 bits", s->name, s->line,
                   length < 60 ? length : 60, number);
  if (*end != 'L' && (value < INT_MIN || value > INT_MAX))
    return wm_fail(err, WM_USAGE,
                   "%s:%d: the integer %.*s does not fit 32 bits; write it with the suffix L",
                   s->name, s->line, length, number);
  return WM_OK;
}

static wm_status_t scan_comment(scan_t *s, wm_error_t *err) {
  if (s->at[0] == '#' || s->at[1] == '/') {
    s->at += strcspn(s->at, "\n");
    return WM_OK;
  }
  const char *end = strstr(s->at + 2, "*/");
  if (end == NULL)
    return wm_fail(err, WM_USAGE, "%s:%d: the comment is not closed", s->name, s->line);
  for (; s->at < end + 2; s->at++)
    s->line += *s->at == '\n';
  return WM_OK;
}

static wm_status_t scan_string(scan_t *s, wm_error_t *err) {
  int first_line = s->line;
  for (s->at++; *s->at != '"'; s->at++) {
    if (strncmp(s->at, "\\x00", 4) == 0)
      return wm_fail(err, WM_USAGE, "%s:%d: \\x00 would end the string", s->name, s->line);
    if (s->at[0] == '\\' && s->at[1] != '\0')
      s->at++;
    if (*s->at == '\0')
      return wm_fail(err, WM_USAGE, "%s:%d: the string is not closed", s->name, first_line);
    s->line += *s->at == '\n';
  }
  s->at++;
  return WM_OK;
}

/* Passes anything else: directives and deep nesting (a stack of libconfig's) are refused. */
static wm_status_t scan_other(scan_t *s, wm_error_t *err) {
  char c = *s->at++;
  s->line += c == '\n';
  if (c == '@')
    return wm_fail(err, WM_USAGE, "%s:%d: directives such as @include are not supported", s->name,
                   s->line);
  if (strchr("({[", c) != NULL && ++s->depth > MAX_DEPTH)
    return wm_fail(err, WM_USAGE, "%s:%d: groups and lists are nested too deeply", s->name,
                   s->line);
  if (strchr(")}]", c) != NULL)
    s->depth--;
  return WM_OK;
}

wm_status_t wm_config_scan(const char *text, const char *name, wm_error_t *err) {
  scan_t s = {.at = text, .name = name, .line = 1};
  wm_status_t status = WM_OK;
  while (*s.at != '\0' && status == WM_OK) {
    unsigned char c = (unsigned char)s.at[0], next = (unsigned char)s.at[1];
    if (c == '"')
      status = scan_string(&s, err);
    else if (c == '#' || (c == '/' && (next == '/' || next == '*')))
      status = scan_comment(&s, err);
    else if (isalpha(c) || c == '_')
      s.at += strspn(s.at, WM_NAME_CHARS);
    else if (isdigit(c) || (strchr("+-.", c) != NULL && isdigit(next)))
      status = scan_number(&s, err);
    else
      status = scan_other(&s, err);
  }
  return status;
}
