#include "wanamaker/measure/allocate.h"

#include "wanamaker/base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* A layer goes to another option. */
typedef struct {
  int64_t layer;
  int32_t option;
  double cost, saved; /* what is expected to be added, then what was */
  int64_t plan;       /* where it leads, once measured */
} move_t;

typedef struct {
  const wm_allocate_problem_t *problem;
  wm_allocate_measure_t measure;
  void *context;
  wm_allocation_t *all;
  int64_t *first;       /* [n_layers + 1] number of (layer, option 1) among all options */
  double *cost, *saved; /* [options] as last measured, beside the full MLP in the same place */
  move_t *moves;        /* [options] */
  int32_t *batch;       /* [options, n_layers] plans to be measured */
} search_t;

/* ---- Plans that were measured ---------------------------------------------------------------- */

static int32_t *plan_of(const wm_allocation_t *a, int64_t plan) {
  return a->plans + plan * a->n_layers;
}

static int64_t find(const wm_allocation_t *a, const int32_t *plan) {
  for (int64_t i = 0; i < a->n; i++)
    if (memcmp(plan_of(a, i), plan, (size_t)a->n_layers * sizeof *plan) == 0)
      return i;
  return -1;
}

static wm_status_t grow(wm_allocation_t *a, int64_t n, wm_error_t *err) {
  if (n <= a->capacity)
    return WM_OK;
  const int64_t capacity = n > 2 * a->capacity ? n : 2 * a->capacity;
  void *plans = a->plans, *cost = a->cost, *saved = a->saved;
  int64_t had[3] = {a->capacity * a->n_layers, a->capacity, a->capacity};
  wm_status_t status;
  WM_TRY(wm_grow(&plans, &had[0], a->n * a->n_layers, capacity * a->n_layers, sizeof(int32_t),
                 "plans", err));
  a->plans = plans;
  WM_TRY(wm_grow(&cost, &had[1], a->n, capacity, sizeof(double), "plans", err));
  a->cost = cost;
  WM_TRY(wm_grow(&saved, &had[2], a->n, capacity, sizeof(double), "plans", err));
  a->saved = saved;
  a->capacity = capacity;
cleanup:
  return status;
}

static bool exhausted(const search_t *s) {
  return s->problem->max_measurements > 0 && s->all->n >= s->problem->max_measurements;
}

/* Measures those of plans[n] that are new. */
static wm_status_t measure_new(search_t *s, const int32_t *plans, int64_t n, wm_error_t *err) {
  wm_allocation_t *a = s->all;
  const int64_t L = a->n_layers, before = a->n;
  wm_status_t status;
  WM_TRY(grow(a, a->n + n, err));
  for (int64_t i = 0; i < n; i++)
    if (find(a, plans + i * L) < 0)
      memcpy(plan_of(a, a->n++), plans + i * L, (size_t)L * sizeof *plans);
  if (a->n > before)
    status = s->measure(s->context, a->n - before, plan_of(a, before), a->cost + before,
                        a->saved + before, err);
cleanup:
  if (status != WM_OK)
    a->n = before;
  return status;
}

/* ---- Moves ----------------------------------------------------------------------------------- */

static int64_t number(const search_t *s, int64_t layer, int32_t option) {
  return s->first[layer] + option - 1;
}

/* Is a the better move? What costs nothing comes first, then what saves more per cost. Every pair
 * of different moves is ordered. */
static bool better(const move_t *a, const move_t *b) {
  const bool free_a = a->cost <= 0, free_b = b->cost <= 0;
  if (free_a != free_b)
    return free_a;
  double x = free_a ? a->saved : a->saved * b->cost, y = free_a ? b->saved : b->saved * a->cost;
  if (x != y)
    return x > y;
  if (a->layer != b->layer)
    return a->layer < b->layer;
  return a->option < b->option;
}

static int compare_moves(const void *a, const void *b) {
  return better(a, b) ? -1 : better(b, a) ? 1 : 0;
}

/* Moves from `plan` that are expected to save, most promising first; returns how many. */
static int64_t list_moves(const search_t *s, const int32_t *plan) {
  int64_t n = 0;
  for (int64_t l = 0; l < s->problem->n_layers; l++)
    for (int32_t o = 1; o <= s->problem->n_options[l]; o++) {
      int64_t to = number(s, l, o);
      double cost = s->cost[to], saved = s->saved[to];
      if (plan[l] > 0) {
        cost -= s->cost[number(s, l, plan[l])];
        saved -= s->saved[number(s, l, plan[l])];
      }
      if (o != plan[l] && isfinite(cost) && saved > 0)
        s->moves[n++] = (move_t){.layer = l, .option = o, .cost = cost, .saved = saved};
    }
  qsort(s->moves, (size_t)n, sizeof *s->moves, compare_moves);
  return n;
}

/* Measures moves first .. first + n - 1 from plan `at`; learns what they add. */
static wm_status_t try_moves(search_t *s, int64_t at, int64_t first, int64_t n, wm_error_t *err) {
  const wm_allocation_t *a = s->all;
  const int64_t L = a->n_layers;
  for (int64_t i = 0; i < n; i++) {
    memcpy(s->batch + i * L, plan_of(a, at), (size_t)L * sizeof *s->batch);
    s->batch[i * L + s->moves[first + i].layer] = s->moves[first + i].option;
  }
  wm_status_t status = measure_new(s, s->batch, n, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < n; i++) {
    move_t *m = &s->moves[first + i];
    const int32_t now = plan_of(a, at)[m->layer];
    const int64_t to = number(s, m->layer, m->option);
    m->plan = find(a, s->batch + i * L);
    m->cost = a->cost[m->plan] - a->cost[at];
    m->saved = a->saved[m->plan] - a->saved[at];
    s->cost[to] = m->cost + (now > 0 ? s->cost[number(s, m->layer, now)] : 0);
    s->saved[to] = m->saved + (now > 0 ? s->saved[number(s, m->layer, now)] : 0);
  }
  return WM_OK;
}

/* The best measured move from plan `at` that fits: *next is its plan, -1 if there is none. */
static wm_status_t step(search_t *s, int64_t at, double budget, int64_t *next, wm_error_t *err) {
  const wm_allocation_t *a = s->all;
  const int64_t n = list_moves(s, plan_of(a, at));
  const int64_t width = s->problem->shortlist > 0 ? s->problem->shortlist : n;
  *next = -1;
  for (int64_t first = 0; first < n && *next < 0 && !exhausted(s); first += width) {
    const int64_t count = n - first < width ? n - first : width;
    wm_status_t status = try_moves(s, at, first, count, err);
    if (status != WM_OK)
      return status;
    const move_t *best = NULL;
    for (int64_t i = first; i < first + count; i++) {
      const move_t *m = &s->moves[i];
      bool fits = isfinite(m->cost) && m->saved > 0 && a->cost[m->plan] <= budget;
      if (fits && (best == NULL || better(m, best)))
        best = m;
    }
    if (best != NULL)
      *next = best->plan;
  }
  return WM_OK;
}

/* ---- The search ------------------------------------------------------------------------------ */

static wm_status_t search_create(search_t *s, wm_error_t *err) {
  const int64_t L = s->problem->n_layers;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, L + 1, sizeof(int64_t), "search", err));
  s->first = memory;
  for (int64_t l = 0; l < L; l++)
    s->first[l + 1] = s->first[l] + s->problem->n_options[l];
  const int64_t n = s->first[L];
  WM_TRY(wm_alloc(&memory, 2 * n, sizeof(double), "search", err));
  s->cost = memory;
  s->saved = s->cost + n;
  WM_TRY(wm_alloc(&memory, n, sizeof(move_t), "search", err));
  s->moves = memory;
  WM_TRY(wm_alloc(&memory, n * L, sizeof(int32_t), "search", err));
  s->batch = memory;
cleanup:
  return status;
}

static void search_destroy(search_t *s) {
  free(s->first);
  free(s->cost);
  free(s->moves);
  free(s->batch);
}

/* The full model, and every option alone. */
static wm_status_t measure_singles(search_t *s, wm_error_t *err) {
  wm_allocation_t *a = s->all;
  const int64_t L = a->n_layers, n = s->first[L];
  wm_status_t status = grow(a, 1, err);
  if (status != WM_OK)
    return status;
  memset(plan_of(a, 0), 0, (size_t)L * sizeof *a->plans);
  a->cost[0] = a->saved[0] = 0;
  a->n = 1;
  memset(s->batch, 0, (size_t)(n * L) * sizeof *s->batch);
  for (int64_t l = 0; l < L; l++)
    for (int32_t o = 1; o <= s->problem->n_options[l]; o++)
      s->batch[number(s, l, o) * L + l] = o;
  return measure_new(s, s->batch, n, err);
}

/* Each descent begins with what is known of single layers, so that it takes the steps of the one
 * before, which need no measuring, until the budget makes a difference. */
static wm_status_t descend(search_t *s, double budget, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t at = 0;
  memcpy(s->cost, s->all->cost + 1, (size_t)s->first[s->all->n_layers] * sizeof *s->cost);
  memcpy(s->saved, s->all->saved + 1, (size_t)s->first[s->all->n_layers] * sizeof *s->saved);
  for (int64_t next = 0; next >= 0 && status == WM_OK && !exhausted(s);) {
    status = step(s, at, budget, &next, err);
    at = next;
  }
  return status;
}

static void mark_front(wm_allocation_t *a) {
  for (int64_t i = 0; i < a->n; i++) {
    a->front[i] = isfinite(a->cost[i]) && isfinite(a->saved[i]);
    for (int64_t k = 0; k < a->n && a->front[i]; k++) {
      bool as_good = a->cost[k] <= a->cost[i] && a->saved[k] >= a->saved[i];
      bool better_one = a->cost[k] < a->cost[i] || a->saved[k] > a->saved[i] || k < i;
      a->front[i] = !(as_good && better_one);
    }
  }
}

static int64_t best_within(const wm_allocation_t *a, double budget) {
  int64_t best = 0;
  for (int64_t i = 1; i < a->n; i++) {
    if (!(a->cost[i] <= budget)) /* nor NaN */
      continue;
    bool more = a->saved[i] > a->saved[best];
    best = more || (a->saved[i] == a->saved[best] && a->cost[i] < a->cost[best]) ? i : best;
  }
  return best;
}

static wm_status_t finish(const wm_allocate_problem_t *p, wm_allocation_t *a, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, a->n, sizeof(bool), "plans", err));
  a->front = memory;
  WM_TRY(wm_alloc(&memory, p->n_budgets, sizeof(int64_t), "plans", err));
  a->chosen = memory;
  mark_front(a);
  for (int64_t b = 0; b < p->n_budgets; b++)
    a->chosen[b] = best_within(a, p->budgets[b]);
cleanup:
  return status;
}

wm_status_t wm_allocate(const wm_allocate_problem_t *p, wm_allocate_measure_t measure,
                        void *context, wm_allocation_t *out, wm_error_t *err) {
  search_t s = {.problem = p, .measure = measure, .context = context, .all = out};
  wm_status_t status = WM_OK;
  *out = (wm_allocation_t){.n_layers = p->n_layers};
  for (int64_t b = 1; b < p->n_budgets; b++)
    if (!(p->budgets[b] > p->budgets[b - 1]))
      return wm_fail(err, WM_USAGE, "budgets must ascend: %g is followed by %g", p->budgets[b - 1],
                     p->budgets[b]);
  WM_TRY(search_create(&s, err));
  WM_TRY(measure_singles(&s, err));
  for (int64_t b = 0; b < p->n_budgets; b++)
    WM_TRY(descend(&s, p->budgets[b], err));
  out->complete = !exhausted(&s);
  WM_TRY(finish(p, out, err));
cleanup:
  search_destroy(&s);
  if (status != WM_OK)
    wm_allocation_destroy(out);
  return status;
}

void wm_allocation_destroy(wm_allocation_t *a) {
  free(a->plans);
  free(a->cost);
  free(a->saved);
  free(a->front);
  free(a->chosen);
  *a = (wm_allocation_t){0};
}

double wm_allocation_sum_of_singles(const wm_allocation_t *a, int64_t plan) {
  double sum = 0;
  for (int64_t l = 0; l < a->n_layers; l++) {
    const int32_t option = plan_of(a, plan)[l];
    for (int64_t i = 1; option > 0 && i < a->n; i++) {
      const int32_t *single = plan_of(a, i);
      bool same = single[l] == option;
      for (int64_t k = 0; k < a->n_layers && same; k++)
        same = k == l || single[k] == 0;
      if (same) {
        sum += isfinite(a->cost[i]) ? a->cost[i] : NAN;
        break;
      }
    }
  }
  return sum;
}
