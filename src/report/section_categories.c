/* Token category by depth: a heat map of means, and one of the spread within the categories.
 *
 *              layer 0   1   2 ...
 *   category  +------------------+
 *             | mean  (opacity)  |     opacity grows with the value, over the page's own colour:
 *             +------------------+     light and dark pages and grey prints read alike
 *   category  +------------------+
 *             | standard dev.    |
 *             +------------------+
 *              key of both
 */
#include "probes_internal.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  CELL = 21,         /* height in pixels */
  ABOVE = 24,        /* room above a panel, for its title */
  BELOW = 48,        /* and below, for layers and depths */
  KEY = 70,          /* of colours */
  LEFT = 150,        /* for the names of categories */
  MOST_WRITTEN = 12, /* more columns have no room for numbers */
  STEPS = 5          /* of a key */
};

static const double strongest = 0.6; /* opacity, which text can still be read on */

typedef struct {
  int64_t column, row;
  double layer, mean, low, high, sd;
  const char *category;
} cell_t;

typedef struct {
  cell_t *cells; /* [n] */
  int64_t n, columns, rows;
  double mean, sd; /* largest, of absolute values */
  double layers;   /* of the model */
} map_t;

/* ---- cells ----------------------------------------------------------------------------------- */

/* Categories come in one order for every layer. */
static void gather(const wm_frame_t *t, map_t *m) {
  for (int64_t i = 0; i < t->n; i++) {
    if (!wm_probe_is_first(t, i) || !wm_probe_is(t, i, "key", "input"))
      continue;
    const cell_t *last = m->n > 0 ? &m->cells[m->n - 1] : NULL;
    double layer = wm_frame_number(t, i, "layer");
    bool same = last != NULL && last->layer == layer;
    cell_t c = {.column = last == NULL ? 0 : last->column + !same,
                .row = same ? last->row + 1 : 0,
                .layer = layer,
                .mean = wm_frame_number(t, i, "mean"),
                .low = wm_frame_number(t, i, "low"),
                .high = wm_frame_number(t, i, "high"),
                .sd = wm_frame_number(t, i, "sd"),
                .category = wm_frame_text(t, i, "category")};
    m->cells[m->n++] = c;
    m->columns = c.column + 1;
    m->rows = c.row + 1 > m->rows ? c.row + 1 : m->rows;
    m->mean = fmax(m->mean, fabs(c.mean)); /* fmax leaves NaN out */
    m->sd = fmax(m->sd, c.sd);
  }
}

/* ---- colours and text ------------------------------------------------------------------------ */

/* gnuplot's "0xAARRGGBB", whose AA is transparency, of a colour "'#RRGGBB'" of figure.h. */
static void put_colour(FILE *f, const char *colour, double part) {
  long transparency = lround(255 * (1 - strongest * fmin(1, fabs(part))));
  fprintf(f, " 0x%02lx%.6s", transparency, colour + 2);
}

static const char *mean_colour(double mean) {
  return mean > 0 ? WM_SECOND : WM_FIRST;
}

/* In brackets where the interval holds zero; a mere sign where there is no room. */
static void put_mean_text(FILE *f, const cell_t *c, bool written) {
  bool sure = c->low > 0 || c->high < 0;
  if (written)
    fprintf(f, sure ? " \"%+.3f\"" : " \"(%+.3f)\"", c->mean);
  else
    fprintf(f, " \"%s\"", !sure ? "" : c->mean > 0 ? "+" : "−");
}

static void put_cells(FILE *f, const map_t *m, bool spread) {
  const bool written = m->columns <= MOST_WRITTEN;
  fprintf(f, "$%s << EOD\n", spread ? "sd" : "mean");
  for (int64_t i = 0; i < m->n; i++) {
    const cell_t *c = &m->cells[i];
    double value = spread ? c->sd : c->mean;
    if (isnan(value))
      continue;
    fprintf(f, "%lld %lld", (long long)c->column, (long long)c->row);
    put_colour(f, spread ? WM_FOURTH : mean_colour(value),
               spread ? value / m->sd : value / m->mean);
    if (!spread)
      put_mean_text(f, c, written);
    else if (written)
      fprintf(f, " \"%.3f\"", value);
    else
      fputs(" \"\"", f);
    fputc('\n', f);
  }
  fputs("NaN NaN 0 \"\"\nEOD\n", f);
}

/* Both keys in one row of boxes. */
static void put_key(FILE *f, const map_t *m) {
  fputs("$key << EOD\n", f);
  for (int k = 0; k < STEPS; k++) {
    double part = -1 + 2.0 * k / (STEPS - 1);
    fprintf(f, "%d 0", k);
    put_colour(f, mean_colour(part), part);
    fprintf(f, " \"%+.3g\"\n", part * m->mean);
  }
  for (int k = 0; k < STEPS; k++) {
    double part = (double)k / (STEPS - 1);
    fprintf(f, "%d 0", k + STEPS + 1);
    put_colour(f, WM_FOURTH, part);
    fprintf(f, " \"%.3g\"\n", part * m->sd);
  }
  fputs("EOD\n", f);
}

/* ---- panels ---------------------------------------------------------------------------------- */

static void put_category_tics(FILE *f, const map_t *m) {
  int64_t next = 0; /* each once: a layer may lack the last ones */
  fputs("set ytics (", f);
  for (int64_t i = 0; i < m->n; i++) {
    if (m->cells[i].row != next)
      continue;
    fputs(next > 0 ? ", " : "", f);
    wm_figure_label(f, m->cells[i].category);
    fprintf(f, " %lld", (long long)next++);
  }
  fputs(") scale 0\n", f);
}

/* Layers, and below them their place between the first (0) and the last (1). */
static void put_layer_tics(FILE *f, const map_t *m) {
  const int64_t every = m->columns > 24 ? 4 : m->columns > MOST_WRITTEN ? 2 : 1;
  fputs("set xtics (", f);
  for (int64_t i = 0; i < m->n; i++) {
    const cell_t *c = &m->cells[i];
    if (c->row != 0 || c->column % every != 0)
      continue;
    fprintf(f, "%s\"%g", c->column > 0 ? ", " : "", c->layer);
    if (m->layers > 1)
      fprintf(f, "\\n%.2f", c->layer / (m->layers - 1));
    fprintf(f, "\" %lld", (long long)c->column);
  }
  fputs(") scale 0\n", f);
}

static void put_panel(FILE *f, const map_t *m, int height, int top, const char *data,
                      const char *title) {
  const double tall = height;
  fprintf(
      f,
      "set tmargin at screen %.6f\nset bmargin at screen %.6f\n"
      "set label 1 '%s' at graph 0, screen %.6f left textcolor rgb " WM_INK "\n"
      "plot $%s using 1:2:(0.49):(0.47):3 with boxxyerror lc rgb variable fs solid noborder,\\\n"
      " $%s using 1:2:4 with labels font 'sans-serif,11' textcolor rgb " WM_INK "\n",
      1 - top / tall, 1 - (top + CELL * (double)m->rows) / tall, title, 1 - (top - 11) / tall, data,
      data);
}

static void draw(FILE *f, const map_t *m, int height) {
  const int panel = CELL * (int)m->rows;
  const int second = ABOVE + panel + BELOW + ABOVE, keys = second + panel + BELOW + 42;
  put_cells(f, m, false);
  put_cells(f, m, true);
  put_key(f, m);
  fprintf(f,
          "unset key\nunset grid\nunset border\nset multiplot\n"
          "set lmargin at screen %.6f\nset rmargin at screen 0.99\n"
          "set xrange [-0.5:%lld.5]\nset yrange [%lld.5:-0.5]\n",
          (double)LEFT / WM_FIGURE_WIDTH, (long long)m->columns - 1, (long long)m->rows - 1);
  put_category_tics(f, m);
  put_layer_tics(f, m);
  put_panel(f, m, height, ABOVE, "mean", "mean, nats");
  fprintf(f,
          "set label 4 'layer; below it, relative depth' at graph 0.5, screen %.6f center "
          "textcolor rgb " WM_INK "\n",
          1 - (keys - 36) / (double)height);
  put_panel(f, m, height, second, "sd", "standard deviation within the category, nats");
  fprintf(
      f,
      "unset label\nunset ytics\nunset xtics\n"
      "set xrange [-0.5:%d.5]\nset yrange [-0.5:0.5]\n"
      "set tmargin at screen %.6f\nset bmargin at screen %.6f\n"
      "set label 2 'key: means' at -0.5, graph 1.5 left textcolor rgb " WM_INK "\n"
      "set label 3 'key: standard deviations' at %d.5, graph 1.5 left textcolor rgb " WM_INK "\n"
      "plot $key using 1:2:(0.49):(0.49):3 with boxxyerror lc rgb variable fs solid noborder,\\\n"
      " $key using 1:2:4 with labels font 'sans-serif,11' textcolor rgb " WM_INK "\n"
      "unset multiplot\n",
      2 * STEPS, 1 - keys / (double)height, 1 - (keys + 20) / (double)height, STEPS);
}

/* ---- the section ----------------------------------------------------------------------------- */

static void draw_map(wm_page_t *page, int64_t model, const map_t *m) {
  const int height = 2 * (ABOVE + CELL * (int)m->rows + BELOW) + KEY;
  char id[64];
  wm_figure_t figure;
  if (!wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "categories"),
                      "Token category by depth.", height))
    return;
  wm_page_raw(page,
              "Difference of losses (surrogate less full model) by input token's category and "
              "layer. Above: its mean, of at most ");
  wm_page_number(page, "largest_category_nats", m->mean, 4);
  wm_page_raw(page, " nats up or down. Below: its standard deviation within the category, of at "
                    "most ");
  wm_page_number(page, "largest_category_sd_nats", m->sd, 4);
  wm_page_raw(page, " nats.");
  draw(figure.script, m, height);
  wm_page_end_figure(page, &figure, id,
                     m->columns <= MOST_WRITTEN
                         ? "The stronger the tint, the larger the value; a plus: the surrogate is "
                           "worse there on average, a minus: better, in brackets where the "
                           "interval of the mean holds zero. Where the lower map's numbers are far "
                           "larger than the upper one's, single positions differ more than "
                           "categories do: a category says little about a token."
                         : "The stronger the tint, the larger the value; a plus: the surrogate is "
                           "worse there on average, a minus: better, neither where the interval of "
                           "the mean holds zero. Where the lower map's numbers are far larger than "
                           "the upper one's, single positions differ more than categories do: a "
                           "category says little about a token.");
}

void wm_probe_categories(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"corpus", NULL, WM_ALIGN_LEFT, 0},
                                        {"surrogates", NULL, WM_ALIGN_LEFT, 0},
                                        {"layer", NULL, WM_ALIGN_RIGHT, 0},
                                        {"by", "token", WM_ALIGN_LEFT, 0},
                                        {"category", NULL, WM_ALIGN_LEFT, 0},
                                        {"positions", NULL, WM_ALIGN_RIGHT, 0},
                                        {"mean", "nats", WM_ALIGN_RIGHT, 4},
                                        {"from", NULL, WM_ALIGN_RIGHT, 4},
                                        {"to", NULL, WM_ALIGN_RIGHT, 4},
                                        {"spread", "sd, nats", WM_ALIGN_RIGHT, 4},
                                        {"worse", "part above 0", WM_ALIGN_RIGHT, 3}};
  static const char *const members[] = {"corpus", "surrogates", "layer", "key", "category", "n",
                                        "mean",   "low",        "high",  "sd",  "positive"};
  const wm_results_t *r = &page->report->results[model];
  const wm_frame_t *t = &r->categories;
  map_t m = {.layers = strtod(wm_results_attribute(r, "model_layers"), NULL)};
  wm_error_t err = {0};
  void *memory = NULL;
  wm_page_keep(page, wm_alloc(&memory, t->n, sizeof *m.cells, "categories", &err), &err);
  m.cells = memory;
  if (!wm_page_ok(page))
    return;
  gather(t, &m);
  if (m.mean > 0 && m.sd > 0)
    draw_map(page, model, &m);
  free(memory);
  wm_probe_table(page, model, "categories", "Numbers: categories, with the spread within them", t,
                 11, columns, members, 2);
}
