/* Clusters of MLP inputs: are there regions of x that are linear, or that are not? */
#include "probe_internal.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/design.h"
#include "wanamaker/measure/kmeans.h"
#include "wanamaker/measure/unit_moments.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct {
  const wm_probe_layer_t *l;
  wm_probe_tables_t *tables;
  int64_t components; /* that there are */
  double held;        /* part of the variance that they hold */
  wm_kmeans_t result;
  int64_t n;       /* used rows of this rank */
  int64_t *index;  /* [n] rows */
  int64_t *number; /* [n] their positions */
  double *points;  /* [n, components] */
  int32_t *own;    /* [n] */
  int64_t *whole;  /* [N] cluster + 1 of every position by descending size, 0: none */
  uint8_t *in;     /* [N] */
  int64_t linear, nonlinear;
} clusters_t;

/* --- points -------------------------------------------------------------------------------------
 */

static wm_status_t open_clusters(clusters_t *c, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, l->n, sizeof *c->index, "clusters", err));
  c->index = memory;
  WM_TRY(wm_alloc(&memory, l->n, sizeof *c->number, "clusters", err));
  c->number = memory;
  WM_TRY(wm_alloc(&memory, l->n * c->components, sizeof *c->points, "clusters", err));
  c->points = memory;
  WM_TRY(wm_alloc(&memory, l->n, sizeof *c->own, "clusters", err));
  c->own = memory;
  WM_TRY(wm_alloc(&memory, l->text->n, sizeof *c->whole, "clusters", err));
  c->whole = memory;
  WM_TRY(wm_alloc(&memory, l->text->n, 1, "clusters", err));
  c->in = memory;
  for (int64_t i = 0; i < l->n; i++)
    if (l->used[l->place[i]]) {
      c->index[c->n] = i;
      c->number[c->n++] = l->place[i];
    }
cleanup:
  return status;
}

static void close_clusters(clusters_t *c) {
  free(c->index);
  free(c->number);
  free(c->points);
  free(c->own);
  free(c->whole);
  free(c->in);
}

/* c->points: principal components of the standardised x. Collective. */
static wm_status_t project(clusters_t *c, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  const MPI_Comm world = l->comm->world;
  const int64_t d = l->d, k = c->components;
  void *memory;
  int64_t constant, total;
  wm_status_t status = wm_alloc(&memory, (2 + k) * d + k, sizeof(double), "components", err);
  WM_TRY(wm_agree(world, status, err));
  double *mean = memory, *scale = mean + d, *components = scale + d, *variance = components + k * d;
  const wm_design_t x = {
      .n = c->n, .k = d, .x = l->x, .index = c->index, .mean = mean, .scale = scale};
  wm_design_standardize(world, &x, mean, scale, &constant, &total);
  WM_TRY(wm_design_pca(world, &x, k, l->options->block, components, variance, err));
  WM_TRY(wm_agree(world, wm_design_project(&x, components, k, c->points, err), err));
  double sum = 0;
  for (int64_t i = 0; i < k; i++)
    sum += variance[i];
  c->held = wm_probe_share(sum, (double)(d - constant)); /* standardised: 1 for each feature */
cleanup:
  free(memory);
  return status;
}

/* --- clusters -----------------------------------------------------------------------------------
 */

typedef struct {
  int64_t size, cluster;
} sized_t;

static int by_size(const void *a, const void *b) {
  const sized_t *x = a, *y = b;
  return x->size != y->size ? (x->size < y->size ? 1 : -1)
                            : (x->cluster > y->cluster) - (x->cluster < y->cluster);
}

/* c->whole from c->own, numbered by descending size; empty clusters go. Collective. */
static wm_status_t gather(clusters_t *c, wm_error_t *err) {
  const int64_t n = c->l->text->n, k = c->result.k;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 2 * k + 1, sizeof(sized_t), "clusters", err);
  status = wm_agree(c->l->comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  sized_t *sized = memory, *place = sized + k;
  for (int64_t i = 0; i < c->n; i++)
    c->whole[c->number[i]] = c->own[i] + 1;
  wm_sum_i64(c->l->comm->world, c->whole, n);
  for (int64_t i = 0; i < k; i++)
    sized[i].cluster = i;
  for (int64_t i = 0; i < n; i++)
    if (c->whole[i] > 0)
      sized[c->whole[i] - 1].size++;
  qsort(sized, (size_t)k, sizeof *sized, by_size);
  c->result.k = 0;
  for (int64_t i = 0; i < k; i++) {
    place[sized[i].cluster].cluster = i;
    c->result.k += sized[i].size > 0;
  }
  for (int64_t i = 0; i < n; i++)
    c->whole[i] = c->whole[i] > 0 ? place[c->whole[i] - 1].cluster + 1 : 0;
  free(memory);
  return WM_OK;
}

static const char *verdict_of(const wm_probe_options_t *o, const wm_unit_statistic_t *m,
                              double positive) {
  if (m->low > 0 && positive >= o->consistent)
    return "nonlinear";
  return m->high < 0 && positive <= 1 - o->consistent ? "linear" : "";
}

/* Collective. */
static wm_status_t add_cluster(clusters_t *c, int64_t cluster, int64_t all, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  const wm_probe_table_id_t id = WM_PROBE_CLUSTERS;
  wm_unit_statistic_t m;
  double n = 0, positive = 0;
  for (int64_t i = 0; i < l->text->n; i++) {
    c->in[i] = c->whole[i] == cluster + 1;
    n += c->in[i];
    positive += c->in[i] && l->delta[i] > 0;
  }
  wm_status_t status =
      wm_unit_statistic(l->comm->world, WM_MOMENT_MEAN, l->delta, l->delta, c->in, l->text->unit,
                        l->text->n, l->text->n_units, &l->options->bootstrap, &m, err);
  if (status != WM_OK)
    return status;
  const char *verdict = verdict_of(l->options, &m, wm_probe_share(positive, n));
  c->linear += strcmp(verdict, "linear") == 0;
  c->nonlinear += strcmp(verdict, "nonlinear") == 0;
  wm_probe_case(l, c->tables, id);
  wm_probe_number(c->tables, id, (double)cluster);
  wm_probe_number(c->tables, id, n);
  wm_probe_number(c->tables, id, wm_probe_share(n, (double)all));
  wm_probe_number(c->tables, id, m.value);
  wm_probe_number(c->tables, id, m.low);
  wm_probe_number(c->tables, id, m.high);
  wm_probe_number(c->tables, id, n > 0 ? sqrt(m.all.yy / m.all.n) : NAN);
  wm_probe_number(c->tables, id, wm_probe_share(positive, n));
  wm_probe_text(c->tables, id, verdict);
  return WM_OK;
}

/* l->score <- minus the mean delta of the position's cluster: over training positions (the mean of
 * all of them for a cluster without any), or over all. */
static void score_means(const clusters_t *c, bool train, double *sum, double *count) {
  const wm_probe_layer_t *l = c->l;
  double all = 0, n = 0;
  memset(sum, 0, (size_t)c->result.k * sizeof *sum);
  memset(count, 0, (size_t)c->result.k * sizeof *count);
  for (int64_t i = 0; i < l->text->n; i++)
    if (c->whole[i] > 0 && !(train && l->text->test[i])) {
      sum[c->whole[i] - 1] += l->delta[i];
      count[c->whole[i] - 1]++;
      all += l->delta[i];
      n++;
    }
  for (int64_t i = 0; i < l->text->n; i++) {
    const int64_t own = c->whole[i] - 1;
    l->score[i] = own < 0 ? 0 : -(count[own] > 0 ? sum[own] / count[own] : n > 0 ? all / n : 0);
  }
}

/* R^2 of delta by the clusters' means. */
static double between(const clusters_t *c) {
  const wm_probe_layer_t *l = c->l;
  wm_moments_t m = {0};
  for (int64_t i = 0; i < l->text->n; i++)
    if (c->whole[i] > 0) {
      const double x = -l->score[i], y = l->delta[i];
      m.n++;
      m.x += x;
      m.y += y;
      m.xx += x * x;
      m.yy += y * y;
      m.xy += x * y;
    }
  return wm_moments_statistic(&m, WM_MOMENT_R2);
}

static void add_whole(const clusters_t *c, double r2, const wm_probe_labels_t *labels,
                      const wm_probe_judgement_t *j) {
  const wm_probe_table_id_t id = WM_PROBE_CLUSTERINGS;
  const int64_t wanted = c->l->options->k;
  char note[128] = "";
  if (c->result.k < wanted)
    snprintf(note, sizeof note, "%" PRId64 " clusters, not %" PRId64 ": too few distinct points",
             c->result.k, wanted);
  else if (!c->result.converged)
    snprintf(note, sizeof note, "not converged");
  wm_probe_case(c->l, c->tables, id);
  wm_probe_number(c->tables, id, (double)c->components);
  wm_probe_number(c->tables, id, c->held);
  wm_probe_number(c->tables, id, (double)c->result.k);
  wm_probe_number(c->tables, id, c->result.k > 0 ? c->result.inertia : NAN);
  wm_probe_number(c->tables, id, (double)c->result.iterations);
  wm_probe_number(c->tables, id, r2);
  wm_probe_number(c->tables, id, j->auc);
  wm_probe_number(c->tables, id, j->low);
  wm_probe_number(c->tables, id, j->high);
  wm_probe_number(c->tables, id, (double)c->linear);
  wm_probe_number(c->tables, id, (double)c->nonlinear);
  wm_probe_text(c->tables, id, wm_probe_judgement_note(c->l, labels, j, note));
}

/* Collective. */
static wm_status_t report(clusters_t *c, wm_error_t *err) {
  const wm_probe_layer_t *l = c->l;
  wm_probe_judgement_t judgement;
  wm_probe_labels_t labels;
  void *memory;
  int64_t all = 0;
  wm_status_t status = wm_alloc(&memory, 2 * c->result.k + 1, sizeof(double), "clusters", err);
  if (status == WM_OK)
    status = wm_probe_label(l, false, l->label, &labels, err);
  WM_TRY(wm_agree(l->comm->world, status, err));
  for (int64_t i = 0; i < l->text->n; i++)
    all += c->whole[i] > 0;
  for (int64_t k = 0; k < c->result.k; k++)
    WM_TRY(add_cluster(c, k, all, err));
  score_means(c, false, memory, (double *)memory + c->result.k);
  const double r2 = between(c);
  score_means(c, true, memory, (double *)memory + c->result.k);
  WM_TRY(wm_probe_judge(l, l->score, l->label, 0, &judgement, err));
  add_whole(c, r2, &labels, &judgement);
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_probe_clusters(const wm_probe_layer_t *l, wm_probe_tables_t *tables,
                              wm_error_t *err) {
  const wm_probe_options_t *o = l->options;
  clusters_t c = {.l = l, .tables = tables};
  c.components = o->components < l->d ? o->components : l->d;
  void *centre = NULL;
  const wm_kmeans_options_t options = {o->k, o->restarts, o->iterations, o->seed, WM_PROBE_KMEANS};
  wm_status_t status = open_clusters(&c, err);
  if (status == WM_OK)
    status = wm_alloc(&centre, o->k * c.components, sizeof(double), "centres", err);
  wm_probe_next(l, "clusters");
  WM_TRY(wm_agree(l->comm->world, status, err));
  WM_TRY(project(&c, err));
  WM_TRY(wm_kmeans(l->comm->world, c.points, c.number, c.n, c.components, &options, c.own, centre,
                   &c.result, err));
  WM_TRY(gather(&c, err));
  for (int64_t i = 0; i < l->text->n && l->cluster != NULL; i++)
    l->cluster[i] = (int32_t)(c.whole[i] - 1);
  WM_TRY(report(&c, err));
  wm_probe_done(l, WM_PROBE_STEPS_OF_CLUSTERS);
cleanup:
  free(centre);
  close_clusters(&c);
  return status;
}
