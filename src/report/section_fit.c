/* Surrogates: quality, spectrum, lambda path. */
#include "page.h"
#include "wanamaker/base/mem.h"

#include <math.h>

/* First, middle and last are told apart, the others lie behind. */
static const char *style_of(int64_t i, int64_t n) {
  return i == 0       ? "lw 2 dt 1 lc rgb " WM_FIRST
         : i == n - 1 ? "lw 2 dt 2 lc rgb " WM_SECOND
         : i == n / 2 ? "lw 2 dt 4 lc rgb " WM_THIRD
                      : "lw 1 dt 1 lc rgb " WM_GRID;
}

static bool is_named(int64_t i, int64_t n) {
  return i == 0 || i == n - 1 || i == n / 2;
}

static void plot_lines(FILE *f, const wm_results_t *r, const char *with) {
  const int64_t n = r->layers.n;
  bool first = true;
  fputs("plot", f);
  for (int pass = 0; pass < 2; pass++) /* the named ones on top */
    for (int64_t i = 0; i < n; i++) {
      if (is_named(i, n) != (pass == 1))
        continue;
      fprintf(f, "%s $data index %lld using 1:2 with %s %s ", first ? "" : ",\\\n", (long long)i,
              with, style_of(i, n));
      if (pass == 1)
        fprintf(f, "title 'layer %g'", wm_frame_number(&r->layers, i, "layer"));
      else
        fputs("notitle", f);
      first = false;
    }
  fputc('\n', f);
}

static void draw_spectrum(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  const int64_t n = r->eigen_dims[0], d = r->eigen_dims[1];
  char id[64];
  wm_figure_t figure;
  if (r->eigenvalues == NULL || n == 0 || d == 0 ||
      !wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "spectrum"),
                      "Spectrum of the MLPs' inputs.", 330))
    return;
  wm_page_raw(page, "Eigenvalues of the centred inputs' Gram matrix, largest first, as shares of "
                    "their sum.");
  fputs("$data << EOD\n", figure.script);
  for (int64_t i = 0; i < n; i++) {
    double sum = 0;
    int64_t step = d > 400 ? d / 400 + 1 : 1;
    for (int64_t k = 0; k < d; k++)
      sum += r->eigenvalues[i * d + k];
    for (int64_t k = 0; k < d; k += k < 20 ? 1 : step) {
      fprintf(figure.script, "%lld", (long long)k + 1);
      wm_figure_number(figure.script, r->eigenvalues[i * d + d - 1 - k] / sum);
      fputc('\n', figure.script);
    }
    fputs("\n\n", figure.script);
  }
  fputs("EOD\nset logscale xy\nset format y '%g'\n"
        "set xlabel 'number of the eigenvalue'\nset ylabel 'share of the sum'\n"
        "set key bottom left\n",
        figure.script);
  plot_lines(figure.script, r, "lines");
  wm_page_end_figure(page, &figure, id,
                     "The steeper a line falls, the fewer directions hold the input, and the "
                     "easier a linear map is to fit from few tokens. First, middle and last layer "
                     "are named, the others lie behind in grey.");
}

static void draw_path(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  const int64_t n = r->path_dims[0], k = r->path_dims[1];
  char id[64];
  wm_figure_t figure;
  bool heldout = r->path_r2_heldout != NULL && n * k > 0 && !isnan(r->path_r2_heldout[0]);
  const double *r2 = heldout ? r->path_r2_heldout : r->path_r2;
  if (r2 == NULL || n * k == 0 ||
      !wm_page_figure(page, &figure, wm_model_id(id, sizeof id, model, "lambda"),
                      "The penalty's path.", 330))
    return;
  wm_page_raw(page, "R<sup>2</sup> of the surrogates on %s tokens against the ridge penalty.",
              heldout ? "held-out" : "the fit's");
  fputs("$data << EOD\n", figure.script);
  for (int64_t i = 0; i < n; i++) {
    for (int64_t j = 0; j < k; j++) {
      fprintf(figure.script, "%.10g", wm_frame_number(&r->path_lambda, j, "lambda"));
      wm_figure_number(figure.script, r2[i * k + j]);
      fputc('\n', figure.script);
    }
    fputs("\n\n", figure.script);
  }
  fputs("EOD\nset logscale x\nset format x '%g'\nset xlabel 'lambda, on the sum of squares'\n"
        "set ylabel 'R²'\nset key bottom left\n",
        figure.script);
  plot_lines(figure.script, r, "linespoints pt 6 ps 0.6");
  wm_page_end_figure(page, &figure, id,
                     "A line that rises before it falls is a layer whose surrogate is overfitted "
                     "at small penalties: more tokens or a larger lambda would serve.");
}

static void put_table(wm_page_t *page, int64_t model) {
  static const wm_column_t columns[] = {{"layer", NULL, WM_ALIGN_RIGHT, 0},
                                        {"R2", "fit", WM_ALIGN_RIGHT, 4},
                                        {"R2", "held out", WM_ALIGN_RIGHT, 4},
                                        {"effective rank", NULL, WM_ALIGN_RIGHT, 1},
                                        {"condition", NULL, WM_ALIGN_RIGHT, -4},
                                        {"norm of W", NULL, WM_ALIGN_RIGHT, -4},
                                        {"best lambda", "held out", WM_ALIGN_RIGHT, -3},
                                        {"R2 there", "held out", WM_ALIGN_RIGHT, 4}};
  const wm_results_t *r = &page->report->results[model];
  char id[64];
  wm_table_t *t = wm_page_table(page, columns, sizeof columns / sizeof columns[0]);
  for (int64_t i = 0; t != NULL && i < r->layers.n; i++) {
    int64_t best = -1, k = r->path_dims[1];
    for (int64_t j = 0; r->path_r2_heldout != NULL && j < k; j++)
      if (!isnan(r->path_r2_heldout[i * k + j]) &&
          (best < 0 || r->path_r2_heldout[i * k + j] > r->path_r2_heldout[i * k + best]))
        best = j;
    wm_table_int(t, (int64_t)wm_frame_number(&r->layers, i, "layer"));
    wm_table_float(t, wm_frame_number(&r->layers, i, "r2"));
    wm_table_float(t, wm_frame_number(&r->layers, i, "r2_heldout"));
    wm_table_float(t, wm_frame_number(&r->layers, i, "effective_rank"));
    wm_table_float(t, wm_frame_number(&r->layers, i, "condition"));
    wm_table_float(t, wm_frame_number(&r->layers, i, "weight_norm"));
    wm_table_float(t, wm_frame_number(&r->path_lambda, best, "lambda"));
    wm_table_float(t, best >= 0 ? r->path_r2_heldout[i * k + best] : NAN);
  }
  wm_page_put_table(page, t, wm_model_id(id, sizeof id, model, "surrogates"),
                    "Numbers: the surrogates", 1, true);
}

void wm_section_fit(wm_page_t *page, int64_t model) {
  const wm_results_t *r = &page->report->results[model];
  if (r->files[WM_FILE_SURROGATES].state != WM_FILE_READ || r->layers.n == 0)
    return;
  wm_page_raw(page, "<h3>Surrogates</h3>\n<div class=\"pair\"><div>\n");
  draw_spectrum(page, model);
  wm_page_raw(page, "</div><div>\n");
  draw_path(page, model);
  wm_page_raw(page, "</div></div>\n");
  put_table(page, model);
}
