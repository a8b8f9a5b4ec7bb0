#include "allocation.h"

#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- options ------------------------------------------------------------------------------------
 */

static wm_status_t add_option(wm_options_t *o, wm_change_t change, wm_error_t *err) {
  for (int64_t i = o->first[change.layer]; i < o->n; i++)
    if (o->changes[i].gate == change.gate &&
        (change.gate < 0 || o->changes[i].threshold == change.threshold))
      return WM_OK;
  void *memory = o->changes;
  wm_status_t status =
      wm_grow(&memory, &o->capacity, o->n, o->n + 1, sizeof(wm_change_t), "options", err);
  o->changes = memory;
  if (status == WM_OK) {
    o->changes[o->n++] = change;
    o->count[change.layer]++;
  }
  return status;
}

/* The layer's gate of allocate.gates: the selected one, or the linear one if none is selected. */
static int64_t gate_of(const wm_gates_t *gates, const char *which, int64_t layer) {
  const wm_gate_layer_t *l = wm_gates_layer(gates, layer);
  int64_t linear = -1;
  for (int64_t g = gates->n - 1; g >= 0; g--)
    if (gates->gates[g].layer == layer && gates->gates[g].kind == WM_GATE_LINEAR)
      linear = g;
  bool selected = l != NULL && l->selected >= 0 && strcmp(which, "selected") == 0 &&
                  wm_gate_has_score(gates->gates[l->selected].kind);
  return selected ? l->selected : linear;
}

/* The gate at the thresholds of the settings, and at the one that was selected with it. */
static wm_status_t add_gate(const wm_config_t *c, const wm_gates_t *gates, int64_t layer,
                            wm_options_t *o, wm_error_t *err) {
  const char *which = wm_config_string(c, "allocate.gates");
  int64_t n;
  const double *thresholds = wm_config_floats(c, "allocate.thresholds", &n);
  if (gates == NULL || strcmp(which, "none") == 0)
    return WM_OK;
  const int64_t gate = gate_of(gates, which, layer);
  if (gate < 0)
    return WM_OK;
  const wm_gate_layer_t *l = wm_gates_layer(gates, layer);
  wm_status_t status = WM_OK;
  if (l != NULL && l->selected == gate && isfinite(l->selected_threshold))
    status = add_option(o, (wm_change_t){layer, gate, l->selected_threshold}, err);
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status = add_option(o, (wm_change_t){layer, gate, thresholds[i]}, err);
  return status;
}

static bool is_among(const int64_t *layers, int64_t n, int64_t layer) {
  for (int64_t i = 0; i < n; i++)
    if (layers[i] == layer)
      return true;
  return false;
}

wm_status_t wm_options_create(const wm_run_t *run, const int64_t *have, int64_t n_have,
                              const wm_gates_t *gates, int64_t n_layers, wm_options_t *out,
                              wm_error_t *err) {
  int64_t given, n;
  const int64_t *layers = wm_config_ints(run->config, "allocate.layers", &given);
  void *memory, *list = NULL;
  wm_status_t status;
  *out = (wm_options_t){.n_layers = n_layers};
  WM_TRY(wm_alloc(&memory, n_layers + 1, sizeof(int64_t), "options", err));
  out->first = memory;
  WM_TRY(wm_alloc(&memory, n_layers, sizeof(int32_t), "options", err));
  out->count = memory;
  WM_TRY(wm_alloc(&list, n_layers, sizeof(int64_t), "layers", err));
  WM_TRY(wm_layer_list("allocate.layers", given > 0 ? layers : have, given > 0 ? given : n_have,
                       n_layers, list, &n, err));
  for (int64_t l = 0, next = 0; l < n_layers; l++) {
    out->first[l] = out->n;
    if (next < n && ((int64_t *)list)[next] == l) {
      next++;
      if (!is_among(have, n_have, l)) {
        status = wm_fail(err, WM_USAGE, "allocate.layers: layer %" PRId64 " has no surrogate", l);
        goto cleanup;
      }
      WM_TRY(add_option(out, (wm_change_t){l, -1, NAN}, err));
      WM_TRY(add_gate(run->config, gates, l, out, err));
    }
    out->first[l + 1] = out->n;
  }
cleanup:
  free(list);
  return status;
}

void wm_options_destroy(wm_options_t *o) {
  free(o->first);
  free(o->count);
  free(o->changes);
  *o = (wm_options_t){0};
}

/* --- plans --------------------------------------------------------------------------------------
 */

wm_status_t wm_options_add(const wm_options_t *o, const int32_t *plan, wm_variants_t *variants,
                           wm_error_t *err) {
  void *memory;
  int64_t n = 0;
  wm_status_t status = wm_alloc(&memory, o->n_layers, sizeof(wm_change_t), "a plan", err);
  if (status != WM_OK)
    return status;
  wm_change_t *changes = memory;
  for (int64_t l = 0; l < o->n_layers; l++)
    if (plan[l] > 0)
      changes[n++] = o->changes[o->first[l] + plan[l] - 1];
  status = wm_variants_add_changes(variants, changes, n, o->n_layers, err);
  free(memory);
  return status;
}

int64_t wm_options_first_layer(const wm_options_t *o, const int32_t *plan) {
  int64_t l = 0;
  while (l < o->n_layers && plan[l] == 0)
    l++;
  return l;
}

void wm_options_label(const wm_options_t *o, const wm_gates_t *gates, const int32_t *plan,
                      char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "%s", "");
  for (int routed = 0; routed < 2; routed++)
    for (int64_t l = 0; l < o->n_layers && used < size; l++) {
      const wm_change_t *c = plan[l] > 0 ? &o->changes[o->first[l] + plan[l] - 1] : NULL;
      if (c == NULL || (c->gate >= 0) != routed)
        continue;
      const char *blank = used > 0 ? " " : "";
      char gate[32];
      if (!routed) {
        used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, blank, l);
        continue;
      }
      wm_gate_label(&gates->gates[c->gate], gate, sizeof gate);
      used += (size_t)snprintf(text + used, size - used, "%s%" PRId64 ":%s>%.3g", blank, l, gate,
                               c->threshold);
    }
  if (used == 0)
    snprintf(text, size, "full");
}

/* --- file ---------------------------------------------------------------------------------------
 */

/* A dataset of one or two dimensions; rank 0 writes. */
static wm_status_t put(wm_h5_t *file, const wm_comm_t *comm, const char *path, hid_t file_type,
                       hid_t type, int rank, const int64_t *dims, const void *data,
                       const char *description, wm_error_t *err) {
  const int64_t zero[2] = {0}, count[2] = {comm->rank == 0 ? dims[0] : 0, rank > 1 ? dims[1] : 0};
  wm_status_t status = wm_h5_dataset(file, path, file_type, rank, dims, description, err);
  return status == WM_OK ? wm_h5_write(file, path, type, zero, count, data, err) : status;
}

static wm_status_t put_floats(wm_h5_t *file, const wm_comm_t *comm, const char *path, int64_t n,
                              const double *data, const char *description, wm_error_t *err) {
  return put(file, comm, path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &n, data, description, err);
}

static wm_status_t put_ints(wm_h5_t *file, const wm_comm_t *comm, const char *path, int64_t n,
                            const int64_t *data, const char *description, wm_error_t *err) {
  return put(file, comm, path, H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &n, data, description, err);
}

static wm_status_t write_options(const wm_options_t *o, const wm_comm_t *comm, wm_h5_t *file,
                                 wm_error_t *err) {
  void *integers = NULL, *floats = NULL;
  wm_status_t status = wm_alloc(&integers, 2 * o->n, sizeof(int64_t), "options", err);
  if (status == WM_OK)
    status = wm_alloc(&floats, o->n, sizeof(double), "options", err);
  int64_t *layer = integers, *gate = layer + o->n;
  double *threshold = floats;
  WM_TRY(wm_agree(comm->world, status, err));
  for (int64_t i = 0; i < o->n; i++) {
    layer[i] = o->changes[i].layer;
    gate[i] = o->changes[i].gate;
    threshold[i] = o->changes[i].threshold;
  }
  WM_TRY(put_ints(file, comm, "/options/layer", o->n, layer,
                  "[option] layer; a layer's options are numbered from 1 in this order", err));
  WM_TRY(put_ints(file, comm, "/options/gate", o->n, gate,
                  "[option] number of the gate in gates.h5; -1: the surrogate everywhere", err));
  WM_TRY(put_floats(file, comm, "/options/threshold", o->n, threshold,
                    "[option] surrogate where p_linear is above; NaN without a gate", err));
cleanup:
  free(integers);
  free(floats);
  return status;
}

static wm_status_t write_plans(const wm_allocation_t *a, const wm_comm_t *comm, wm_h5_t *file,
                               wm_error_t *err) {
  const int64_t dims[2] = {a->n, a->n_layers};
  void *integers = NULL, *floats = NULL;
  wm_status_t status = wm_alloc(&integers, a->n, sizeof(int64_t), "plans", err);
  if (status == WM_OK)
    status = wm_alloc(&floats, a->n, sizeof(double), "plans", err);
  int64_t *front = integers;
  double *singles = floats;
  WM_TRY(wm_agree(comm->world, status, err));
  for (int64_t i = 0; i < a->n; i++) {
    front[i] = a->front[i];
    singles[i] = wm_allocation_sum_of_singles(a, i);
  }
  WM_TRY(put(file, comm, "/plans/option", H5T_STD_I32LE, H5T_NATIVE_INT32, 2, dims, a->plans,
             "[plan, layer] option that the layer takes; 0: its full MLP", err));
  WM_TRY(put_floats(file, comm, "/plans/delta_pct", a->n, a->cost,
                    "[plan] measured joint cost on the validation range, percent", err));
  WM_TRY(put_floats(file, comm, "/plans/sum_of_singles_pct", a->n, singles,
                    "[plan] its layers' costs when each is changed alone, added up", err));
  WM_TRY(put_floats(file, comm, "/plans/saved_pct", a->n, a->saved,
                    "[plan] operations saved, percent of the whole model's", err));
  WM_TRY(put_ints(file, comm, "/plans/front", a->n, front,
                  "[plan] 1: no other measured plan costs as little and saves as much", err));
cleanup:
  free(integers);
  free(floats);
  return status;
}

wm_status_t wm_allocation_write(const wm_allocation_t *a, const wm_options_t *o,
                                const double *budgets, int64_t n_budgets, const wm_comm_t *comm,
                                wm_h5_t *file, wm_error_t *err) {
  const int64_t complete = a->complete;
  wm_status_t status;
  WM_TRY(write_options(o, comm, file, err));
  WM_TRY(write_plans(a, comm, file, err));
  WM_TRY(put_floats(file, comm, "/budgets/delta_pct", n_budgets, budgets,
                    "[budget] most cost, percent", err));
  WM_TRY(put_ints(file, comm, "/budgets/plan", n_budgets, a->chosen,
                  "[budget] the plan that saves most within it", err));
  WM_TRY(put_ints(file, comm, "/search_complete", 1, &complete,
                  "[1] 0: the search ended at allocate.max_plans", err));
cleanup:
  return status;
}

/* A dataset of n elements, by every rank whole. */
static wm_status_t get(wm_h5_t *file, const char *path, hid_t type, int64_t n, void *data,
                       wm_error_t *err) {
  int64_t dims[1];
  const int64_t zero[1] = {0};
  wm_status_t status = wm_h5_dims(file, path, 1, dims, err);
  if (status == WM_OK && dims[0] != n)
    status = wm_fail(err, WM_INPUT, "%s: %s has %" PRId64 " entries, expected %" PRId64,
                     wm_h5_path(file), path, dims[0], n);
  return status == WM_OK ? wm_h5_read(file, path, type, zero, &n, data, err) : status;
}

static wm_status_t make_room(wm_allocation_t *a, int64_t n_budgets, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, a->n * a->n_layers, sizeof(int32_t), "plans", err));
  a->plans = memory;
  WM_TRY(wm_alloc(&memory, a->n, sizeof(double), "plans", err));
  a->cost = memory;
  WM_TRY(wm_alloc(&memory, a->n, sizeof(double), "plans", err));
  a->saved = memory;
  WM_TRY(wm_alloc(&memory, a->n, sizeof(bool), "plans", err));
  a->front = memory;
  WM_TRY(wm_alloc(&memory, n_budgets, sizeof(int64_t), "plans", err));
  a->chosen = memory;
cleanup:
  return status;
}

static wm_status_t read_plans(wm_allocation_t *a, int64_t n_budgets, wm_h5_t *file,
                              wm_error_t *err) {
  const int64_t zero[2] = {0}, dims[2] = {a->n, a->n_layers};
  int64_t complete;
  void *front;
  wm_status_t status = wm_alloc(&front, a->n, sizeof(int64_t), "plans", err);
  if (status != WM_OK)
    return status;
  WM_TRY(wm_h5_read(file, "/plans/option", H5T_NATIVE_INT32, zero, dims, a->plans, err));
  WM_TRY(get(file, "/plans/delta_pct", H5T_NATIVE_DOUBLE, a->n, a->cost, err));
  WM_TRY(get(file, "/plans/saved_pct", H5T_NATIVE_DOUBLE, a->n, a->saved, err));
  WM_TRY(get(file, "/plans/front", H5T_NATIVE_INT64, a->n, front, err));
  WM_TRY(get(file, "/budgets/plan", H5T_NATIVE_INT64, n_budgets, a->chosen, err));
  WM_TRY(get(file, "/search_complete", H5T_NATIVE_INT64, 1, &complete, err));
  a->complete = complete != 0;
  for (int64_t i = 0; i < a->n; i++)
    a->front[i] = ((int64_t *)front)[i] != 0;
  for (int64_t b = 0; b < n_budgets; b++)
    if (a->chosen[b] < 0 || a->chosen[b] >= a->n)
      status = wm_fail(err, WM_INPUT, "%s: /budgets/plan names no plan", wm_h5_path(file));
cleanup:
  free(front);
  return status;
}

wm_status_t wm_allocation_read(const wm_comm_t *comm, const char *path, int64_t n_layers,
                               int64_t n_budgets, wm_allocation_t *out, wm_error_t *err) {
  wm_h5_t *file;
  int64_t dims[2];
  *out = (wm_allocation_t){.n_layers = n_layers};
  wm_status_t status = wm_h5_open(comm->world, path, &file, err);
  if (status != WM_OK)
    return status;
  WM_TRY(wm_h5_dims(file, "/plans/option", 2, dims, err));
  if (dims[1] != n_layers) {
    status = wm_fail(err, WM_INPUT, "%s: plans are of %" PRId64 " layers, expected %" PRId64, path,
                     dims[1], n_layers);
    goto cleanup;
  }
  out->n = out->capacity = dims[0];
  WM_TRY(wm_agree(comm->world, make_room(out, n_budgets, err), err));
  WM_TRY(read_plans(out, n_budgets, file, err));
cleanup:
  wm_h5_close(file);
  return status;
}
