#include "wanamaker/measure/hidden_probe.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/par/comm.h"

#include <lbfgs.h>
#include <math.h>
#include <omp.h>
#include <string.h>

enum { TILE = 256 };

/* A thread's tile. */
typedef struct {
  float *z;      /* [TILE, D] */
  float *h;      /* [TILE, hidden] */
  float *dh;     /* [TILE, hidden] */
  float *dw;     /* [hidden, D] */
  int64_t *sums; /* [parameters + 1] multiples of the unit; the loss last */
} tile_t;

typedef struct {
  MPI_Comm comm;
  const wm_hidden_rows_t *rows;
  const wm_hidden_options_t *o;
  int64_t parameters, total, n_tiles;
  int64_t *first; /* [n_tiles + 1] first row of each tile */
  double unit;    /* 2^-s */
  float *w;       /* [hidden, D] */
  tile_t *tiles;  /* [threads] */
  int threads;
  void *memory, *sums; /* of the tiles */
  wm_status_t status;  /* of what the callback did */
  wm_error_t *err;
  int64_t iterations;
} work_t;

int64_t wm_hidden_parameters(int64_t d, int64_t hidden) {
  return hidden * (d + 2) + 1;
}

/* --- tiles --------------------------------------------------------------------------------------
 */

/* Tiles end with their block. Returns how many there are; first: NULL, or [tiles + 1]. */
static int64_t cut_tiles(const wm_hidden_rows_t *r, int64_t *first) {
  int64_t n = 0, begin = 0;
  for (int64_t i = 1; i <= r->n; i++)
    if (i == r->n || r->block[i] != r->block[i - 1] || i - begin == TILE) {
      if (first != NULL)
        first[n] = begin;
      begin = i;
      n++;
    }
  if (first != NULL)
    first[n] = r->n;
  return n;
}

static void load_rows(const wm_hidden_rows_t *r, int64_t begin, int64_t rows, float *z) {
  for (int64_t i = 0; i < rows; i++) {
    const float *from = r->x + r->index[begin + i] * r->d;
    for (int64_t j = 0; j < r->d; j++)
      z[i * r->d + j] = (from[j] - r->mean[j]) / r->scale[j];
  }
}

/* h [rows, hidden] <- tanh(z W' + b). */
static wm_status_t hidden_units(const wm_hidden_rows_t *r, int64_t hidden, const float *w,
                                const double *b, const float *z, int64_t rows, float *h,
                                wm_error_t *err) {
  wm_status_t status =
      wm_sgemm_serial('N', 'T', rows, hidden, r->d, 1, z, r->d, w, r->d, 0, h, hidden, err);
  for (int64_t i = 0; i < rows && status == WM_OK; i++)
    for (int64_t u = 0; u < hidden; u++)
      h[i * hidden + u] = tanhf(h[i * hidden + u] + (float)b[u]);
  return status;
}

/* Rounded to the unit: sums of such numbers have no order. */
static int64_t units_of(const work_t *k, double x) {
  return llrint(x / k->unit);
}

/* A tile's share of loss and gradient but for W's. */
static void back_rows(const work_t *k, const tile_t *t, const double *p, int64_t begin,
                      int64_t rows) {
  const int64_t hidden = k->o->hidden, d = k->rows->d;
  const double *v = p + hidden * (d + 1), c = v[hidden];
  int64_t *db = t->sums + hidden * d, *dv = db + hidden;
  for (int64_t i = 0; i < rows; i++) {
    const float *h = t->h + i * hidden;
    double s = c;
    for (int64_t u = 0; u < hidden; u++)
      s += v[u] * (double)h[u];
    const double y = k->rows->label[begin + i], e = exp(-fabs(s));
    const double q = (s >= 0 ? 1 / (1 + e) : e / (1 + e)) - y;
    dv[hidden] += units_of(k, q);
    t->sums[k->parameters] += units_of(k, (s > 0 ? s : 0) + log1p(e) - y * s);
    for (int64_t u = 0; u < hidden; u++) {
      const double back = q * v[u] * (1 - (double)h[u] * (double)h[u]);
      t->dh[i * hidden + u] = (float)back;
      db[u] += units_of(k, back);
      dv[u] += units_of(k, q * (double)h[u]);
    }
  }
}

static wm_status_t run_tile(const work_t *k, const tile_t *t, const double *p, int64_t tile,
                            wm_error_t *err) {
  const int64_t begin = k->first[tile], rows = k->first[tile + 1] - begin;
  const int64_t hidden = k->o->hidden, d = k->rows->d;
  wm_status_t status;
  load_rows(k->rows, begin, rows, t->z);
  WM_TRY(hidden_units(k->rows, hidden, k->w, p + hidden * d, t->z, rows, t->h, err));
  back_rows(k, t, p, begin, rows);
  WM_TRY(wm_sgemm_serial('T', 'N', hidden, d, rows, 1, t->dh, hidden, t->z, d, 0, t->dw, d, err));
  for (int64_t i = 0; i < hidden * d; i++)
    t->sums[i] += units_of(k, (double)t->dw[i]);
cleanup:
  return status;
}

/* --- objective ----------------------------------------------------------------------------------
 */

/* The tiles' sums over all threads, in the first thread's. */
static wm_status_t run_tiles(work_t *k, const double *p, wm_error_t *err) {
  const int64_t size = k->parameters + 1;
  wm_status_t status = WM_OK;
  for (int64_t i = 0; i < k->o->hidden * k->rows->d; i++)
    k->w[i] = (float)p[i];
  for (int i = 0; i < k->threads; i++)
    memset(k->tiles[i].sums, 0, (size_t)size * sizeof(int64_t));
#pragma omp parallel for schedule(dynamic) num_threads(k->threads)
  for (int64_t tile = 0; tile < k->n_tiles; tile++) {
    wm_error_t own = {0};
    wm_pulse();
    if (run_tile(k, &k->tiles[omp_get_thread_num()], p, tile, &own) != WM_OK) {
#pragma omp critical
      {
        *err = own;
        status = own.status;
      }
    }
  }
  for (int i = 1; i < k->threads; i++)
    for (int64_t j = 0; j < size; j++)
      k->tiles[0].sums[j] += k->tiles[i].sums[j];
  return status;
}

/* Collective. */
static wm_status_t evaluate(work_t *k, const double *p, double *gradient, double *objective,
                            wm_error_t *err) {
  const int64_t hidden = k->o->hidden, d = k->rows->d, n = k->parameters;
  const double rows = k->total > 0 ? (double)k->total : 1;
  wm_status_t status = wm_agree(k->comm, run_tiles(k, p, err), err);
  if (status != WM_OK)
    return status;
  int64_t *sums = k->tiles[0].sums;
  double squares = 0;
  wm_sum_i64(k->comm, sums, n + 1);
  for (int64_t i = 0; i < n; i++) {
    const bool weight = i < hidden * d || (i >= hidden * (d + 1) && i < hidden * (d + 2));
    gradient[i] = (double)sums[i] * k->unit / rows;
    if (weight) {
      gradient[i] += k->o->penalty * p[i] / rows;
      squares += p[i] * p[i];
    }
  }
  *objective = ((double)sums[n] * k->unit + k->o->penalty * squares / 2) / rows;
  return isfinite(*objective) ? WM_OK
                              : wm_fail(err, WM_NUMERICAL, "a probe's objective is not finite");
}

/* --- memory -------------------------------------------------------------------------------------
 */

static wm_status_t open_tiles(work_t *k, wm_error_t *err) {
  const int64_t d = k->rows->d, hidden = k->o->hidden;
  const int64_t each = TILE * d + 2 * TILE * hidden + hidden * d, sums = k->parameters + 1;
  wm_status_t status;
  void *memory;
  k->threads = omp_get_max_threads();
  k->n_tiles = cut_tiles(k->rows, NULL);
  WM_TRY(wm_alloc(&memory, k->n_tiles + 1, sizeof *k->first, "tiles of a probe", err));
  k->first = memory;
  cut_tiles(k->rows, k->first);
  WM_TRY(wm_alloc(&memory, k->threads, sizeof *k->tiles, "tiles of a probe", err));
  k->tiles = memory;
  WM_TRY(wm_alloc(&memory, hidden * d, sizeof *k->w, "a probe", err));
  k->w = memory;
  WM_TRY(wm_alloc(&k->memory, k->threads * each, sizeof(float), "a probe", err));
  WM_TRY(wm_alloc(&k->sums, k->threads * sums, sizeof(int64_t), "a probe", err));
  for (int i = 0; i < k->threads; i++) {
    tile_t *t = &k->tiles[i];
    t->sums = (int64_t *)k->sums + i * sums;
    t->z = (float *)k->memory + i * each;
    t->h = t->z + TILE * d;
    t->dh = t->h + TILE * hidden;
    t->dw = t->dh + TILE * hidden;
  }
cleanup:
  return status;
}

static void close_work(work_t *k) {
  free(k->first);
  free(k->tiles);
  free(k->w);
  free(k->memory);
  free(k->sums);
}

/* Collective. Sums of rows stay below total * 2^12 units: |s| of a row would have to exceed that
 * for more. */
static wm_status_t open_work(work_t *k, wm_error_t *err) {
  enum { BITS = 62, ROOM = 12 };
  k->parameters = wm_hidden_parameters(k->rows->d, k->o->hidden);
  k->total = k->rows->n;
  wm_sum_i64(k->comm, &k->total, 1);
  int bits = 0;
  while (((int64_t)1 << bits) < k->total)
    bits++;
  k->unit = ldexp(1, bits + ROOM - BITS);
  return wm_agree(k->comm, open_tiles(k, err), err);
}

/* --- L-BFGS -------------------------------------------------------------------------------------
 */

static lbfgsfloatval_t call_objective(void *context, const lbfgsfloatval_t *x, lbfgsfloatval_t *g,
                                      const int n, const lbfgsfloatval_t step) {
  work_t *k = context;
  double objective = INFINITY;
  (void)step;
  if (k->status == WM_OK)
    k->status = evaluate(k, x, g, &objective, k->err);
  if (k->status != WM_OK)
    memset(g, 0, (size_t)n * sizeof *g);
  return objective;
}

/* Non-zero ends the search. Collective. */
static int call_progress(void *context, const lbfgsfloatval_t *x, const lbfgsfloatval_t *g,
                         const lbfgsfloatval_t f, const lbfgsfloatval_t x_norm,
                         const lbfgsfloatval_t g_norm, const lbfgsfloatval_t step, int n,
                         int iteration, int evaluations) {
  work_t *k = context;
  int64_t asked = wm_stop_requested();
  (void)x, (void)g, (void)f, (void)x_norm, (void)g_norm, (void)step, (void)n, (void)evaluations;
  k->iterations = iteration;
  wm_sum_i64(k->comm, &asked, 1);
  if (asked > 0)
    k->status = wm_fail(k->err, WM_STOPPED, "stopped on request");
  return k->status != WM_OK;
}

static void draw_start(const work_t *k, double *p) {
  const int64_t d = k->rows->d, hidden = k->o->hidden;
  const wm_rng_t rng = {k->o->seed, k->o->stream};
  memset(p, 0, (size_t)k->parameters * sizeof *p);
  for (int64_t i = 0; i < hidden * d; i++)
    p[i] = wm_rng_normal(rng, (uint64_t)i) / sqrt((double)d);
  for (int64_t u = 0; u < hidden; u++)
    p[hidden * (d + 1) + u] = wm_rng_normal(rng, (uint64_t)(hidden * d + u)) / sqrt((double)hidden);
}

static const char *note_of(int code) {
  if (code == LBFGS_SUCCESS || code == LBFGS_STOP || code == LBFGS_ALREADY_MINIMIZED)
    return "";
  if (code == LBFGSERR_MAXIMUMITERATION)
    return "iterations used up";
  return "line search ended at the limit of float32";
}

wm_status_t wm_hidden_fit(MPI_Comm comm, const wm_hidden_rows_t *rows, const wm_hidden_options_t *o,
                          double *parameters, wm_hidden_t *out, wm_error_t *err) {
  work_t k = {.comm = comm, .rows = rows, .o = o, .err = err};
  lbfgs_parameter_t settings;
  lbfgsfloatval_t *x = NULL;
  int n;
  *out = (wm_hidden_t){.objective = NAN, .note = ""};
  wm_status_t status = open_work(&k, err);
  if (status == WM_OK)
    status = wm_to_int(k.parameters, "parameters of a probe", &n, err);
  WM_TRY(status);
  x = lbfgs_malloc(n);
  WM_TRY(wm_agree(comm, x != NULL ? WM_OK : wm_fail(err, WM_ENVIRONMENT, "no memory for a probe"),
                  err));
  lbfgs_parameter_init(&settings);
  settings.max_iterations = (int)o->iterations;
  settings.epsilon = 1e-4;
  settings.past = 5;
  settings.delta = 1e-5;
  draw_start(&k, x);
  const int code = lbfgs(n, x, &out->objective, call_objective, call_progress, &k, &settings);
  WM_TRY(k.status);
  memcpy(parameters, x, (size_t)n * sizeof *parameters);
  out->iterations = k.iterations;
  out->note = note_of(code);
cleanup:
  if (x != NULL)
    lbfgs_free(x);
  close_work(&k);
  return status;
}

wm_status_t wm_hidden_objective(MPI_Comm comm, const wm_hidden_rows_t *rows,
                                const wm_hidden_options_t *o, const double *parameters,
                                double *gradient, double *objective, wm_error_t *err) {
  work_t k = {.comm = comm, .rows = rows, .o = o, .err = err};
  wm_status_t status = open_work(&k, err);
  if (status == WM_OK)
    status = evaluate(&k, parameters, gradient, objective, err);
  close_work(&k);
  return status;
}

wm_status_t wm_hidden_score(const wm_hidden_rows_t *r, int64_t hidden, const double *p,
                            double *score, wm_error_t *err) {
  const double *v = p + hidden * (r->d + 1);
  void *memory;
  wm_status_t status = wm_alloc(&memory, hidden * r->d + TILE * (r->d + hidden), sizeof(float),
                                "a probe's scores", err);
  if (status != WM_OK)
    return status;
  float *w = memory, *z = w + hidden * r->d, *h = z + TILE * r->d;
  for (int64_t i = 0; i < hidden * r->d; i++)
    w[i] = (float)p[i];
  for (int64_t begin = 0; begin < r->n && status == WM_OK; begin += TILE) {
    const int64_t rows = r->n - begin < TILE ? r->n - begin : TILE;
    load_rows(r, begin, rows, z);
    status = hidden_units(r, hidden, w, p + hidden * r->d, z, rows, h, err);
    for (int64_t i = 0; i < rows && status == WM_OK; i++) {
      score[begin + i] = v[hidden];
      for (int64_t u = 0; u < hidden; u++)
        score[begin + i] += v[u] * (double)h[i * hidden + u];
    }
  }
  free(memory);
  return status;
}
