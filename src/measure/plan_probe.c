/* What the probes of a corpus take: losses and inputs of its positions, the regressions that tell
 * token from context, clusters, and a probe with a hidden layer. The two that iterate until they
 * converge are counted to their limits. */
#include "plan_internal.h"
#include "wanamaker/measure/probe_rows.h"
#include "wanamaker/measure/probe_text.h"

#include <math.h>

/* Wide regressions of a layer: on x, and in every view on the token's part, the context's, their
 * product and the types' means by both keys; each for two labels, and once more for separability.
 * Small ones: in every view on the context's norm. */
static double wide_regressions(const wm_plan_probe_t *p) {
  return 2 * (1 + (double)p->views * (3 + WM_KEYS)) + 1;
}

static double small_regressions(const wm_plan_probe_t *p) {
  return 2 * (double)p->views;
}

/* Scores that are judged: of all regressions, at random, by the types' mean delta, of the clusters
 * and of the hidden layer. */
static double judgements(const wm_plan_probe_t *p) {
  return wide_regressions(p) + small_regressions(p) + 2 * (1 + WM_KEYS) + 1 + (p->hidden > 0);
}

/* Steps and products of one layer that the ranks share out. */
static void shared_work(const wm_plan_probe_t *p, double *products, double *steps) {
  const double d = (double)p->arch->d_model, n = (double)p->blocks->windows->n_predicted,
               train = p->train_share * n, test = n - train;
  const double k = (double)p->components < d ? (double)p->components : d;
  *products = n * d * d; /* the correlation matrix */
  *steps = 0;
  for (double i = 0; i < wide_regressions(p); i++)
    wm_plan_regression(train, d + 1, true, products, steps);
  for (double i = 0; i < small_regressions(p); i++)
    wm_plan_regression(train, 2, false, products, steps);
  *steps += wide_regressions(p) * 3 * n * d; /* standardisation and scores */
  *steps += (double)p->views * n * d * 24;   /* parts, their product, norms, types' means */
  *steps += judgements(p) * (double)p->resamples *
            wm_plan_resample_auc(test, (1 - p->train_share) * (double)p->units);
  *steps += n * d * (4 + k); /* standardisation and projection */
  /* Starts of k-means: k centres planted one after another, then all distances anew, four elements
   * in a step. */
  *steps += (double)(p->restarts * p->clusters) * n * k * (1 + (double)p->iterations) / 4;
}

/* Steps of every rank for itself. */
static double own_steps(const wm_plan_probe_t *p) {
  const double n = (double)p->blocks->windows->n_predicted;
  return judgements(p) * (3 * wm_plan_sort(n) + WM_PLAN_OF_POSITION * n) +
         /* moments by unit: five of geometry a view, clusters, features, categories */
         (5 * (double)p->views + (double)p->clusters + 40) *
             (WM_PLAN_OF_POSITION * n / 4 + (double)p->resamples * (double)p->units);
}

/* One pass for some layers: the full model and a variant for each. */
static wm_status_t pass_cost(const wm_plan_probe_t *p, const wm_machine_t *m, wm_layout_t l,
                             int64_t first, int64_t count, wm_cost_t *out, wm_error_t *err) {
  wm_work_t work = *p->work;
  wm_variants_t variants = {0};
  wm_status_t status = wm_variants_create(&variants, err);
  for (int64_t i = first; i < first + count && status == WM_OK; i++)
    status = wm_variants_add(&variants, &p->layers[i], 1, p->arch->n_layers, err);
  work.variants = &variants;
  work.evaluation = p->blocks;
  work.resamples = 0;
  if (status == WM_OK)
    status = wm_plan_sweep(&work, m, l, out, err);
  wm_variants_destroy(&variants);
  return status;
}

/* Passes of as many layers at once as a rank may hold, and what rows and probes take of memory. */
static wm_status_t rows_cost(const wm_plan_probe_t *p, const wm_machine_t *m, wm_layout_t l,
                             wm_cost_t *out, wm_error_t *err) {
  const int64_t ranks = l.nodes * l.ranks, n = p->blocks->windows->n_predicted,
                rows = n / ranks + 1, d = p->arch->d_model;
  int64_t group = wm_probe_rows_group(rows, n, p->n_layers, d, p->memory_bytes);
  wm_status_t status = WM_OK;
  *out = (wm_cost_t){.busy = NAN};
  if (group < 1)
    group = 1;
  for (int64_t first = 0; first < p->n_layers && status == WM_OK; first += group) {
    const int64_t count = p->n_layers - first < group ? p->n_layers - first : group;
    wm_cost_t pass;
    status = pass_cost(p, m, l, first, count, &pass, err);
    if (status == WM_OK)
      wm_plan_add(out, &pass);
  }
  out->memory += (double)(l.ranks * (wm_probe_rows_bytes(rows, n, group, d) +
                                     wm_probe_layer_bytes(p->options, rows, n, d)));
  return status;
}

wm_status_t wm_plan_probe(const wm_plan_probe_t *p, const wm_machine_t *m, wm_layout_t l,
                          wm_cost_t *out, wm_error_t *err) {
  const double d = (double)p->arch->d_model, cube = d * d * d, layers = (double)p->n_layers,
               rows = p->train_share * (double)p->blocks->windows->n_predicted;
  const double speed = wm_plan_speed(m, l.threads), cores = (double)(l.nodes * l.ranks) * speed;
  const double team = wm_plan_team(p->arch, m, l);
  double products, steps;
  wm_status_t status = rows_cost(p, m, l, out, err);
  if (status != WM_OK || p->brief)
    return status;
  shared_work(p, &products, &steps);
  /* Of the hidden layer: two products forward and back, and one for the gradient; they are narrow,
   * and reach half of what the model's do. */
  const double hidden = 6 * rows * d * (double)(p->hidden * p->hidden_iterations);
  out->seconds +=
      layers *
      (products / (cores * m->gram) + 2 * hidden / (cores * m->trunk) + steps / (cores * m->steps) +
       own_steps(p) / m->steps +
       (wide_regressions(p) * WM_PLAN_NEWTON * cube / m->solve + cube / m->spectrum) / team);
  out->flops += layers * hidden;
  out->flops64 += layers * products;
  return WM_OK;
}
