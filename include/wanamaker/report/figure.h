/* Figures: a gnuplot script becomes SVG that stands inside a page.
 *
 * gnuplot is a child process of the one rank that calls (posix_spawn: nothing of this process is
 * copied, so that MPI's memory is safe), with its files passed as descriptors without names.
 * Without gnuplot, or when it fails, there is no figure and the reason is told: pages are written
 * all the same. Not collective.
 *
 * Scripts use the colours below, which the page's style sheet gives their values, light and dark;
 * series differ in shape and dash, too, so that they can be told apart in grey. Text from outside
 * goes through wm_figure_label.
 */
#ifndef WANAMAKER_REPORT_FIGURE_H
#define WANAMAKER_REPORT_FIGURE_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdio.h>

#define WM_INK "'#010101'"   /* axes and text */
#define WM_GRID "'#010102'"  /* lines behind the data */
#define WM_MUTED "'#010103'" /* of secondary importance: the study's curves, limits */
#define WM_FIRST "'#010104'" /* series */
#define WM_SECOND "'#010105'"
#define WM_THIRD "'#010106'"
#define WM_FOURTH "'#010107'"

enum { WM_FIGURE_WIDTH = 760, WM_FIGURE_HEIGHT = 330, WM_FIGURE_SECONDS = 30 };

/* A figure under way: write commands to `script`, then wm_figure_end. */
typedef struct {
  FILE *script;
  char *text;
  size_t bytes;
} wm_figure_t;

/* Starts a script with the common settings. */
wm_status_t wm_figure_begin(wm_figure_t *figure, int width, int height, wm_error_t *err);
/* "'text'" in gnuplot's syntax, of at most 60 characters. */
void wm_figure_label(FILE *script, const char *text);
/* A number, "NaN" where there is none or it has no place on an axis. */
void wm_figure_number(FILE *script, double value);

/* Runs gnuplot in `directory` (for its nameless files). *svg is a heap string whose ids begin with
 * `id`, whose root is <svg class="plot" role="img" aria-labelledby="cap-ID">; NULL, with the reason
 * in *why (a heap string), if gnuplot is missing, fails, or takes more than WM_FIGURE_SECONDS, when
 * it is killed. Ends the figure in any case. WM_STOPPED: asked to stop meanwhile; WM_ENVIRONMENT:
 * memory, descriptors. */
wm_status_t wm_figure_end(wm_figure_t *figure, const char *directory, const char *id, char **svg,
                          char **why, wm_error_t *err);

/* Ends a figure that is not drawn, for this reason. */
wm_status_t wm_figure_drop(wm_figure_t *figure, const char *reason, char **why, wm_error_t *err);

/* The second half alone: SVG as gnuplot writes it to SVG as pages have it. */
wm_status_t wm_figure_adopt(const char *svg, const char *id, char **out, wm_error_t *err);

#endif
