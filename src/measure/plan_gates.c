/* What a fit of gates takes: a pass of the model for the inputs of the layers' MLPs, Newton's
 * method for every gate, and what each is worth on both texts. */
#include "plan_internal.h"
#include "wanamaker/measure/auc.h"
#include "wanamaker/measure/features.h"

#include <math.h>

enum {
  OF_ROW = 60,    /* steps of a row's probability and weight in Newton's method */
  OF_FEATURE = 1, /* of one element of a row: read, shifted and scaled */
};

double wm_plan_sort(double n) {
  enum { OF_COMPARISON = 6 };
  return OF_COMPARISON * n * log2(n + 2);
}

double wm_plan_resample_auc(double positions, double units) {
  enum { OF_VISIT = 5, OF_DRAW = 3 };
  const bool paired = wm_auc_is_paired((int64_t)positions, (int64_t)fmax(units, 1));
  return OF_DRAW * units + (paired ? units * units : OF_VISIT * positions);
}

void wm_plan_regression(double rows, double m, bool from_floats, double *products, double *steps) {
  *products += WM_PLAN_HESSIANS * rows * m * m;
  /* A step makes the rows twice: for the gradient, and for what it changes. */
  *steps += WM_PLAN_NEWTON * rows * (OF_ROW + m * (1 + 2 * (from_floats ? OF_FEATURE : 0)));
}

/* What the ranks share out of one layer's gates. */
static void shared_work(const wm_plan_gates_t *g, double rows, double heldout, double *products,
                        double *steps) {
  const double d = (double)g->arch->d_model;
  double most = 0;
  *products = 0;
  *steps = 2 * rows * d * OF_FEATURE; /* mean and variance */
  for (int64_t i = 0; i < g->n_specs; i++) {
    const wm_gate_spec_t *s = &g->specs[i];
    const bool alone = s->kind == WM_GATE_COMPONENT;
    if (!wm_gate_has_score(s->kind))
      continue;
    most = (double)s->components > most ? (double)s->components : most;
    if (s->kind == WM_GATE_LINEAR)
      wm_plan_regression(rows, d + 1, true, products, steps);
    else if (s->kind == WM_GATE_PCA)
      wm_plan_regression(rows, (double)s->components + 1, false, products, steps);
    else
      wm_plan_regression(rows, 2, false, products, steps);
    if (s->kind != WM_GATE_LINEAR && s->kind != WM_GATE_PCA && !alone)
      *steps += rows * d;           /* the feature */
    *steps += (rows + heldout) * d; /* scores */
    *steps += (double)g->resamples * wm_plan_resample_auc(heldout, (double)g->units);
  }
  if (most > 0) {
    *products += rows * d * d;
    *steps += rows * d * (2 * OF_FEATURE + most); /* and the projection, a sum after another */
  }
}

/* What every rank does for itself of one layer's gates. */
static double own_steps(const wm_plan_gates_t *g, double rows, double heldout) {
  double steps = wm_plan_sort(rows) + wm_plan_sort(rows); /* labels; ends of the direction */
  for (int64_t i = 0; i < g->n_specs; i++)
    if (wm_gate_has_score(g->specs[i].kind))
      steps +=
          wm_plan_sort(rows) + 2 * wm_plan_sort(heldout) + WM_PLAN_OF_POSITION * (rows + heldout);
  return steps;
}

/* d^3 of a layer's solutions, and of its eigenvectors. */
static double algebra_seconds(const wm_plan_gates_t *g, const wm_machine_t *m, wm_layout_t l) {
  const double d = (double)g->arch->d_model, cube = d * d * d;
  double seconds = 0;
  bool components = false;
  for (int64_t i = 0; i < g->n_specs; i++) {
    if (g->specs[i].kind == WM_GATE_LINEAR)
      seconds += WM_PLAN_NEWTON * cube / m->solve;
    components |= g->specs[i].components > 0;
  }
  return (seconds + (components ? cube / m->spectrum : 0)) / wm_plan_team(g->arch, m, l);
}

/* Features of as many layers at once as a rank may hold. */
static double features_seconds(const wm_plan_gates_t *g, const wm_machine_t *m, wm_layout_t l,
                               wm_cost_t *out) {
  const int64_t ranks = l.nodes * l.ranks;
  const int64_t rows =
      (g->fit->windows->n_positions + g->heldout->windows->n_positions) / ranks + 1;
  int64_t each = g->n_layers;
  double seconds = 0;
  while (g->feature_bytes > 0 && each > 1 &&
         wm_features_bytes(rows, each, g->arch->d_model) > g->feature_bytes)
    each--;
  for (int64_t first = 0; first < g->n_layers; first += each) {
    const int64_t end = first + each < g->n_layers ? first + each : g->n_layers;
    const double depth = (double)(g->layers[end - 1] + 1);
    seconds += wm_plan_trunk(g->arch, m, l, g->fit, 1, depth, &out->flops) +
               wm_plan_trunk(g->arch, m, l, g->heldout, 1, depth, &out->flops);
  }
  out->memory = wm_plan_weights(g->arch) +
                (double)(l.ranks * wm_features_bytes(rows, each, g->arch->d_model));
  return seconds;
}

void wm_plan_gates(const wm_plan_gates_t *g, const wm_machine_t *m, wm_layout_t l, wm_cost_t *out) {
  const double layers = (double)g->n_layers, rows = (double)g->fit->windows->n_predicted,
               heldout = (double)g->heldout->windows->n_predicted;
  const double cores = (double)(l.nodes * l.ranks) * wm_plan_speed(m, l.threads);
  double products, steps;
  *out = (wm_cost_t){.busy = NAN};
  shared_work(g, rows, heldout, &products, &steps);
  out->seconds = features_seconds(g, m, l, out);
  out->seconds += layers * (products / (cores * m->gram) + steps / (cores * m->steps) +
                            own_steps(g, rows, heldout) / m->steps + algebra_seconds(g, m, l));
  out->flops64 = layers * products;
  wm_plan_gates_messages(g, l, out);
  out->seconds += wm_plan_meet(m, l, out->meetings);
}
