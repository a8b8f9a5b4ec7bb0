#include "wanamaker/measure/probe_text.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"

#include <string.h>

const char *wm_probe_key_name(wm_probe_key_t key) {
  return key == WM_KEY_INPUT ? "input" : "target";
}

/* --- types --------------------------------------------------------------------------------------
 */

static int ascending(const void *a, const void *b) {
  const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
  return (x > y) - (x < y);
}

static int32_t number_of(const wm_probe_types_t *t, int32_t id) {
  int64_t low = 0, high = t->n;
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    if (t->id[middle] <= id)
      low = middle;
    else
      high = middle;
  }
  return (int32_t)low;
}

static wm_status_t number_types(const int32_t *token, int64_t n, wm_probe_types_t *t,
                                wm_error_t *err) {
  wm_status_t status;
  void *memory;
  WM_TRY(wm_alloc(&memory, n, sizeof *t->id, "token types", err));
  t->id = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof *t->number, "token types", err));
  t->number = memory;
  memcpy(t->id, token, (size_t)n * sizeof *token);
  qsort(t->id, (size_t)n, sizeof *t->id, ascending);
  for (int64_t i = 0; i < n; i++)
    if (i == 0 || t->id[i] != t->id[t->n - 1])
      t->id[t->n++] = t->id[i];
  WM_TRY(wm_alloc(&memory, t->n, sizeof *t->count, "token types", err));
  t->count = memory;
  for (int64_t i = 0; i < n; i++) {
    t->number[i] = number_of(t, token[i]);
    t->count[t->number[i]]++;
  }
cleanup:
  return status;
}

/* --- held-out units -----------------------------------------------------------------------------
 */

typedef struct {
  double draw;
  int64_t unit, positions;
} drawn_t;

static int by_draw(const void *a, const void *b) {
  const drawn_t *x = a, *y = b;
  return x->draw != y->draw ? (x->draw > y->draw ? 1 : -1)
                            : (x->unit > y->unit) - (x->unit < y->unit);
}

static wm_status_t hold_out(wm_probe_text_t *t, double share, uint64_t seed, wm_error_t *err) {
  void *units = NULL, *held = NULL;
  wm_status_t status;
  WM_TRY(wm_alloc(&units, t->n_units, sizeof(drawn_t), "units", err));
  WM_TRY(wm_alloc(&held, t->n_units, 1, "units", err));
  drawn_t *d = units;
  uint8_t *is_held = held;
  for (int64_t u = 0; u < t->n_units; u++)
    d[u] = (drawn_t){wm_rng_uniform((wm_rng_t){seed, 0}, (uint64_t)u), u, 0};
  for (int64_t i = 0; i < t->n; i++)
    d[t->unit[i]].positions++;
  qsort(d, (size_t)t->n_units, sizeof *d, by_draw);
  int64_t taken = 0;
  for (int64_t u = 0; u < t->n_units; u++) {
    is_held[d[u].unit] = (double)taken >= share * (double)t->n;
    taken += d[u].positions;
  }
  for (int64_t i = 0; i < t->n; i++)
    t->test[i] = is_held[t->unit[i]];
cleanup:
  free(units);
  free(held);
  return status;
}

/* --- texts --------------------------------------------------------------------------------------
 */

static wm_status_t allocate(int64_t n, wm_probe_text_t *t, wm_error_t *err) {
  wm_status_t status;
  void *memory;
  *t = (wm_probe_text_t){.n = n};
  WM_TRY(wm_alloc(&memory, n, sizeof *t->position, "positions", err));
  t->position = memory;
  WM_TRY(wm_alloc(&memory, n, sizeof *t->unit, "positions", err));
  t->unit = memory;
  WM_TRY(wm_alloc(&memory, n, 1, "positions", err));
  t->test = memory;
cleanup:
  return status;
}

wm_status_t wm_probe_text_make(int64_t n, const int32_t *input, const int32_t *target,
                               const int32_t *position, const int32_t *unit, int64_t n_units,
                               double train_share, uint64_t seed, wm_probe_text_t *t,
                               wm_error_t *err) {
  wm_status_t status;
  WM_TRY(allocate(n, t, err));
  t->n_units = n_units;
  memcpy(t->position, position, (size_t)n * sizeof *position);
  memcpy(t->unit, unit, (size_t)n * sizeof *unit);
  WM_TRY(number_types(input, n, &t->type[WM_KEY_INPUT], err));
  WM_TRY(number_types(target, n, &t->type[WM_KEY_TARGET], err));
  WM_TRY(hold_out(t, train_share, seed, err));
cleanup:
  return status;
}

wm_status_t wm_probe_text_create(const wm_windows_t *w, const int32_t *ids, wm_unit_kind_t unit,
                                 double train_share, uint64_t seed, wm_probe_text_t *t,
                                 wm_error_t *err) {
  void *memory = NULL;
  wm_status_t status;
  const int64_t n = w->n_predicted;
  int64_t at = 0, n_units;
  WM_TRY(wm_alloc(&memory, 4 * n, sizeof(int32_t), "positions", err));
  int32_t *input = memory, *target = input + n, *position = target + n, *units = position + n;
  for (int64_t i = 0; i < w->n; i++)
    for (int64_t p = w->first_predicted[i]; p + 1 < w->length[i]; p++, at++) {
      input[at] = ids[w->first[i] + p];
      target[at] = ids[w->first[i] + p + 1];
      position[at] = (int32_t)p;
    }
  const wm_unit_kind_t kind = wm_unit_resolve(w, unit);
  WM_TRY(wm_windows_units(w, kind, units, &n_units, err));
  WM_TRY(wm_probe_text_make(n, input, target, position, units, n_units, train_share, seed, t, err));
  t->unit_kind = kind;
cleanup:
  free(memory);
  return status;
}

void wm_probe_text_destroy(wm_probe_text_t *t) {
  free(t->position);
  free(t->unit);
  free(t->test);
  for (int k = 0; k < WM_KEYS; k++) {
    free(t->type[k].id);
    free(t->type[k].count);
    free(t->type[k].number);
  }
  memset(t, 0, sizeof *t);
}
