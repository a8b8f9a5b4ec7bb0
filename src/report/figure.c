#include "wanamaker/report/figure.h"

#include "table_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* ---- scripts --------------------------------------------------------------------------------- */

wm_status_t wm_figure_begin(wm_figure_t *figure, int width, int height, wm_error_t *err) {
  *figure = (wm_figure_t){0};
  figure->script = open_memstream(&figure->text, &figure->bytes);
  if (figure->script == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a figure");
  fprintf(figure->script,
          "set terminal svg size %d,%d dynamic font 'sans-serif,13' noenhanced\n"
          "set encoding utf8\n"
          "set border 3 lw 1 lc rgb " WM_INK "\n"
          "set tics nomirror textcolor rgb " WM_INK "\n"
          "set grid ytics lt 1 lw 1 lc rgb " WM_GRID "\n"
          "set key textcolor rgb " WM_INK " opaque samplen 3 spacing 1.15\n"
          "set style fill solid 1.0\n"
          "set xlabel textcolor rgb " WM_INK "\nset ylabel textcolor rgb " WM_INK "\n"
          "set title textcolor rgb " WM_INK "\n",
          width, height);
  return WM_OK;
}

void wm_figure_label(FILE *script, const char *text) {
  enum { LONGEST = 60 };
  fputc('\'', script);
  for (int n = 0; *text != '\0' && n < LONGEST; n++) {
    utf8proc_uint8_t bytes[4];
    utf8proc_int32_t c = wm_next_character(&text);
    if (wm_is_control(c) || c == '`') /* no command substitution, whatever the rules of quoting */
      c = 0xfffd;
    if (c == '\'')
      fputc('\'', script);
    size_t used = (size_t)utf8proc_encode_char(c, bytes);
    fwrite(bytes, 1, used, script);
  }
  fputs(*text != '\0' ? "…'" : "'", script);
}

void wm_figure_number(FILE *script, double value) {
  if (isfinite(value) && fabs(value) < 1e12)
    fprintf(script, " %.10g", value);
  else
    fputs(" NaN", script);
}

/* ---- gnuplot --------------------------------------------------------------------------------- */

/* Whole content of a descriptor, terminated. */
static wm_status_t read_all(int fd, char **out, wm_error_t *err) {
  off_t bytes = lseek(fd, 0, SEEK_END);
  void *memory;
  wm_status_t status = wm_alloc(&memory, (int64_t)(bytes < 0 ? 0 : bytes) + 1, 1, "figure", err);
  *out = memory;
  if (status != WM_OK)
    return status;
  for (off_t at = 0; at < bytes;) {
    ssize_t n = pread(fd, *out + at, (size_t)(bytes - at), at);
    if (n <= 0)
      return wm_fail(err, WM_ENVIRONMENT, "cannot read a figure: %s", strerror(errno));
    at += n;
  }
  return WM_OK;
}

static int spawn(const int fd[3], pid_t *child) {
  static const char *const arguments[] = {"gnuplot", "-d", "-", NULL};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  sigset_t defaults;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  sigemptyset(&defaults); /* what main ignores, a child would ignore as well */
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
  for (int i = 0; i < 3; i++)
    posix_spawn_file_actions_adddup2(&actions, fd[i], i);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3); /* MPI's sockets, the page: not its own */
  int code =
      posix_spawnp(child, "gnuplot", &actions, &attributes, (char *const *)arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  return code;
}

enum { MOST_BYTES = 64 << 20 };

static bool has_overrun(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && info.st_size > MOST_BYTES;
}

/* Waits for the child's code, but not for ever, and not for an output of any size: *why is then the
 * reason (a heap string). WM_STOPPED. */
static wm_status_t await(pid_t child, const int fd[3], int *code, char **why, wm_error_t *err) {
  const double start = wm_seconds();
  wm_status_t status = WM_OK;
  while (waitpid(child, code, WNOHANG) == 0) {
    if (wm_stop_requested())
      status =
          wm_fail(err, WM_STOPPED, "report: stopped by %s; an earlier report is left as it was",
                  wm_stop_reason());
    else if (wm_seconds() - start > WM_FIGURE_SECONDS)
      *why = wm_format("gnuplot had not ended after %d seconds and was killed", WM_FIGURE_SECONDS);
    else if (has_overrun(fd[1]) || has_overrun(fd[2]))
      *why = wm_format("gnuplot had written more than %d MiB and was killed", MOST_BYTES >> 20);
    if (status != WM_OK || *why != NULL) {
      kill(child, SIGKILL);
      waitpid(child, code, 0);
      break;
    }
    wm_pulse();
    wm_sleep(0.002);
  }
  return status;
}

/* What a child that failed has said, or how it ended. */
static char *failure(int code, const char *said) {
  if (said[strspn(said, " \t\r\n")] != '\0')
    return wm_format("gnuplot failed: %s", said);
  if (WIFSIGNALED(code))
    return wm_format("gnuplot was ended by signal %d (%s)", WTERMSIG(code),
                     strsignal(WTERMSIG(code)));
  return wm_format("gnuplot failed without a word, exit status %d", WEXITSTATUS(code));
}

static wm_status_t run(const int fd[3], char **svg, char **why, wm_error_t *err) {
  pid_t child;
  char *said = NULL;
  int code = spawn(fd, &child);
  wm_status_t status = WM_OK;
  if (code != 0) {
    *why = code == ENOENT ? wm_format("gnuplot is not installed (Debian: gnuplot-nox)")
                          : wm_format("gnuplot cannot be started: %s", strerror(code));
  } else if ((status = await(child, fd, &code, why, err)) != WM_OK || *why != NULL) {
    return status;
  } else if (WIFEXITED(code) && WEXITSTATUS(code) == 127) {
    *why = wm_format("gnuplot is not installed (Debian: gnuplot-nox)");
  } else if (code != 0) {
    status = read_all(fd[2], &said, err);
    *why = status == WM_OK ? failure(code, said) : NULL;
  } else {
    status = read_all(fd[1], svg, err);
  }
  free(said);
  if (status == WM_OK && *svg == NULL && *why == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate a message");
  return status;
}

/* ---- SVG ------------------------------------------------------------------------------------- */

/* Values of gnuplot's colours in the page. */
static const char *variable(int r, int g, int b) {
  static const char *const names[] = {"ink", "grid", "muted", "s1", "s2", "s3", "s4"};
  return r == 1 && g == 1 && b >= 1 && b <= 7 ? names[b - 1] : NULL;
}

/* What `at` begins with, replaced on `f`; the length of what was replaced, 0: nothing. */
static size_t replace(const char *at, const char *id, FILE *f) {
  static const char *const references[] = {"id=\"", "id='", "href='#", "href=\"#", "url(#"};
  static const struct {
    const char *from, *to;
  } words[] = {{"\"black\"", "\"var(--ink)\""},
               {"'black'", "'var(--ink)'"},
               {"\"gray\"", "\"var(--grid)\""},
               {"'gray'", "'var(--grid)'"},
               {"\"white\"", "\"var(--page)\""},
               {"'white'", "'var(--page)'"},
               {"xlink:href", "href"},
               {" font-family=\"sans-serif\"", ""},
               {"rgb(255, 255, 255)", "var(--page)"}};
  int r, g, b, n = 0;
  for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
    if (strncmp(at, words[i].from, strlen(words[i].from)) == 0) {
      if (strcmp(words[i].to, "href") == 0) { /* and its target gets the figure's name */
        size_t skip = strlen(words[i].from) + 3;
        fprintf(f, "href=%c#%s-", at[skip - 2], id);
        return skip;
      }
      fputs(words[i].to, f);
      return strlen(words[i].from);
    }
  static const char plot[] = "id=\"gnuplot_plot_"; /* comes twice in one picture */
  if (strncmp(at, plot, strlen(plot)) == 0)
    return strlen(plot) + strspn(at + strlen(plot), "0123456789ab") + 1;
  for (size_t i = 0; i < sizeof references / sizeof references[0]; i++)
    if (strncmp(at, references[i], strlen(references[i])) == 0) {
      fprintf(f, "%s%s-", references[i], id);
      return strlen(references[i]);
    }
  if (sscanf(at, "rgb(%d ,%d ,%d )%n", &r, &g, &b, &n) == 3 && n > 0 && variable(r, g, b) != NULL) {
    fprintf(f, "var(--%s)", variable(r, g, b));
    return (size_t)n;
  }
  return 0;
}

/* "<g ...>\n</g>\n" without anything in it: its length, 0 if `at` is none. */
static size_t empty_group(const char *at) {
  if (strncmp(at, "<g ", 3) != 0)
    return 0;
  size_t tag = strcspn(at, ">");
  size_t rest = strspn(at + tag + (at[tag] == '>'), " \t\n");
  const char *end = at + tag + 1 + rest;
  if (at[tag] != '>' || strncmp(end, "</g>", 4) != 0)
    return 0;
  return (size_t)(end - at) + 4 + strspn(end + 4, "\n");
}

static void put_svg(const char *svg, const char *id, FILE *f) {
  const char *box = strstr(svg, "viewBox="), *body = strstr(svg, "<g id=");
  fprintf(f,
          "<svg class=\"plot\" role=\"img\" aria-labelledby=\"cap-%s\" %.*s "
          "xmlns=\"http://www.w3.org/2000/svg\">\n",
          id, box != NULL ? (int)strcspn(box, "\n>") : 0, box != NULL ? box : "");
  for (const char *at = body; at != NULL && *at != '\0';) {
    size_t n = empty_group(at);
    if (n == 0)
      n = replace(at, id, f);
    if (n == 0)
      fputc(*at, f);
    at += n > 0 ? n : 1;
  }
}

/* Is it a whole drawing, without anything that a browser would run? Whatever was found as gnuplot
 * has written it. */
static bool is_drawing(const char *svg) {
  static const char end[] = "</svg>";
  size_t bytes = strlen(svg);
  while (bytes > 0 && strchr(" \t\r\n", svg[bytes - 1]) != NULL)
    bytes--;
  if (strstr(svg, "<svg") == NULL || strstr(svg, "viewBox=") == NULL ||
      strstr(svg, "<g id=") == NULL || bytes < sizeof end - 1 ||
      strncmp(svg + bytes - (sizeof end - 1), end, sizeof end - 1) != 0)
    return false;
  bool in_tag = false;
  for (const char *at = svg; *at != '\0'; at++) {
    if (*at == '<' &&
        (strncasecmp(at + 1, "script", 6) == 0 || strncasecmp(at + 1, "foreignObject", 13) == 0))
      return false;
    in_tag = *at == '<' || (in_tag && *at != '>');
    if (in_tag && isspace((unsigned char)at[0]) && strncasecmp(at + 1, "on", 2) == 0 &&
        at[1 + strspn(at + 1, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")] == '=')
      return false;
  }
  return true;
}

wm_status_t wm_figure_adopt(const char *svg, const char *id, char **out, wm_error_t *err) {
  size_t bytes;
  *out = NULL;
  FILE *f = open_memstream(out, &bytes);
  if (f != NULL)
    put_svg(svg, id, f);
  if (f == NULL || fclose(f) != 0)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate a figure");
  return WM_OK;
}

static wm_status_t send(int fd, const char *text, size_t bytes, wm_error_t *err) {
  for (size_t at = 0; at < bytes;) {
    ssize_t n = pwrite(fd, text + at, bytes - at, (off_t)at);
    if (n <= 0)
      return wm_fail(err, WM_ENVIRONMENT, "cannot write a figure's script: %s", strerror(errno));
    at += (size_t)n;
  }
  return WM_OK;
}

static void release(wm_figure_t *figure) {
  free(figure->text);
  *figure = (wm_figure_t){0};
}

wm_status_t wm_figure_drop(wm_figure_t *figure, const char *reason, char **why, wm_error_t *err) {
  fclose(figure->script);
  release(figure);
  return wm_strdup(why, reason, err);
}

wm_status_t wm_figure_end(wm_figure_t *figure, const char *directory, const char *id, char **svg,
                          char **why, wm_error_t *err) {
  int fd[3] = {-1, -1, -1};
  char *raw = NULL;
  wm_status_t status = WM_OK;
  *svg = *why = NULL;
  if (fclose(figure->script) != 0)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate a figure");
  for (int i = 0; i < 3 && status == WM_OK; i++)
    if ((fd[i] = wm_nameless_file(directory)) < 0)
      status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write a temporary file: %s", directory,
                       strerror(errno));
  if (status == WM_OK)
    status = send(fd[0], figure->text, figure->bytes, err);
  if (status == WM_OK)
    status = run(fd, &raw, why, err);
  if (status == WM_OK && raw != NULL && !is_drawing(raw)) {
    *why = wm_format("what gnuplot has written is no drawing");
    free(raw);
    raw = NULL;
  }
  if (status == WM_OK && raw != NULL)
    status = wm_figure_adopt(raw, id, svg, err);
  for (int i = 0; i < 3; i++)
    if (fd[i] >= 0)
      close(fd[i]);
  free(raw);
  release(figure);
  return status;
}
