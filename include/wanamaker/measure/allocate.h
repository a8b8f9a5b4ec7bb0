/* Which layers to linearise or route: the allocator (method.md, section 5).
 *
 * A plan chooses for every layer one of its options: 0 is the full MLP, the others (the surrogate
 * everywhere, a gate at a threshold) save operations. What a plan costs is never inferred from
 * single layers: a callback measures it, jointly, for many plans at once.
 *
 * For each budget the search starts at the full model and takes, step by step, the move (one layer
 * to another option that saves more) with the most operations saved per cost added, among those
 * whose measured cost stays within the budget; moves that cost nothing come first. In each step
 * only the `shortlist` moves that promise most are measured, by what they added when they were last
 * measured (at first: alone); if none of them fits the budget, the next ones are, until one fits or
 * none is left. What was measured is not measured again.
 *
 *   steps   <= sum of options,   measurements <= 1 + sum of options + steps x shortlist   (typical)
 *
 * A greedy search is not exhaustive: a set of moves that pay only together may be missed.
 * Everything is a function of the callback's numbers: equal numbers, equal result. Not collective
 * by itself: ranks that call it alike, with a callback that returns the same on all, stay alike.
 */
#ifndef WANAMAKER_MEASURE_ALLOCATE_H
#define WANAMAKER_MEASURE_ALLOCATE_H

#include "wanamaker/base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Measures n plans, plans[n, n_layers]: cost[n], e.g. delta of the perplexity in percent (not
 * finite: unusable), and saved[n], e.g. percent of the model's operations. */
typedef wm_status_t (*wm_allocate_measure_t)(void *context, int64_t n, const int32_t *plans,
                                             double *cost, double *saved, wm_error_t *err);

typedef struct {
  int64_t n_layers;
  const int32_t *n_options; /* [n_layers] options beside the full MLP; may be 0 */
  const double *budgets;    /* [n_budgets] most cost, ascending */
  int64_t n_budgets;
  int64_t shortlist;        /* moves measured at once; 0: all */
  int64_t max_measurements; /* the search ends when so many plans are measured; 0: no limit */
} wm_allocate_problem_t;

/* All plans that were measured, in that order: plan 0 is the full model (cost and saving 0), the
 * next ones are the single-layer plans, layer by layer. Caller-owned: wm_allocation_destroy. */
typedef struct {
  int64_t n_layers, n, capacity;
  int32_t *plans; /* [n, n_layers] */
  double *cost, *saved;
  bool *front;     /* [n] no other plan costs as little and saves as much, or better */
  int64_t *chosen; /* [n_budgets] the plan that saves most within the budget; of equals the
                      cheapest */
  bool complete;   /* the search did not end at max_measurements */
} wm_allocation_t;

/* WM_USAGE: budgets are not ascending. Whatever the callback returns on failure. */
wm_status_t wm_allocate(const wm_allocate_problem_t *problem, wm_allocate_measure_t measure,
                        void *context, wm_allocation_t *out, wm_error_t *err);
void wm_allocation_destroy(wm_allocation_t *allocation);

/* Cost of plan `plan` as its layers' single-layer costs add up; NaN if one was not usable. */
double wm_allocation_sum_of_singles(const wm_allocation_t *allocation, int64_t plan);

#endif
