#include "wanamaker/measure/evaluate.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/measure/routing.h"

#include <assert.h>
#include <math.h>
#include <string.h>

struct wm_evaluator {
  wm_model_t *model;
  const wm_surrogates_t *surrogates;
  const wm_variants_t *variants;
  int64_t max_slots;  /* trunk and branches */
  int64_t chunk_rows; /* rows of a chunk of whole slots */
  float *h;           /* [max_slots, block rows, D] */
  float *x, *y;       /* [chunk_rows, D] */
  int64_t *starts;    /* of the sequences of a chunk of slots */
  int32_t *targets;   /* [chunk_rows] */
  double *losses;     /* [chunk_rows] */
  uint8_t *route;     /* [chunk_rows] */
  float *delta;       /* [block rows] */
  const float *nll;   /* [V, N] borrowed; NULL: no variant needs losses */
  wm_routing_t *routing;
  wm_comparison_t *comparison; /* NULL: divergence is not measured */
  double *divergence;          /* [max_slots] */
  int64_t *agreed;             /* [max_slots] */
  int64_t n_predicted;         /* N */
  wm_workspace_t *workspace;
  const wm_evaluator_watch_t *watch; /* borrowed; NULL: none */
};

/* One evaluation in progress. */
typedef struct {
  wm_evaluator_t *e;
  const wm_block_t *block;
  wm_cell_t *cells; /* [1 + count] NULL: not wanted */
  int64_t rows, d;  /* of a slot */
  int64_t first;    /* variant of slot 1 */
  int64_t count;    /* variants of the group */
  int64_t slots;    /* in use: trunk and branches so far */
  int64_t per_pass; /* slots that go through a layer at once */
} stack_t;

/* --- life ---------------------------------------------------------------------------------------
 */

static int64_t whole_slots(int64_t stack_rows, int64_t block_rows, int64_t max_slots) {
  int64_t slots = block_rows > 0 ? stack_rows / block_rows : 1;
  return slots < 1 ? 1 : slots > max_slots ? max_slots : slots;
}

/* Bytes for slots of `rows` rows, of which `chunk` go through a layer at once. */
static int64_t bytes_for(const wm_model_t *model, int64_t rows, int64_t slots, int64_t chunk,
                         int64_t max_length, bool divergence) {
  const int64_t d = wm_model_arch(model)->d_model;
  return (slots * rows + 2 * chunk * rows) * d * (int64_t)sizeof(float) +
         chunk * rows * (int64_t)(sizeof(int32_t) + sizeof(double) + sizeof(uint8_t)) +
         rows * (int64_t)sizeof(float) + wm_routing_bytes(model, chunk * rows) +
         (divergence ? wm_comparison_bytes(model, slots, rows) : 0) +
         wm_workspace_bytes(model, chunk * rows, max_length) + wm_model_scratch_bytes(model);
}

int64_t wm_evaluator_bytes(const wm_model_t *model, const wm_blocks_t *blocks, int64_t max_variants,
                           int64_t stack_rows, bool divergence) {
  return bytes_for(model, blocks->max_rows, 1 + max_variants,
                   whole_slots(stack_rows, blocks->max_rows, 1 + max_variants),
                   blocks->windows->max_length, divergence);
}

/* Most rows of a block with which one variant fits; 0 if not even the longest window does. */
static int64_t fitting_rows(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes,
                            bool divergence) {
  int64_t low = 0, high = blocks->max_rows;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (bytes_for(model, middle, 2, 1, blocks->windows->max_length, divergence) <= bytes)
      low = middle;
    else
      high = middle;
  }
  return low < blocks->windows->max_length ? 0 : low;
}

static wm_status_t too_large(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes,
                             bool divergence, wm_error_t *err) {
  const double least = (double)wm_evaluator_bytes(model, blocks, 1, 1, divergence) / 0x1p30;
  const int64_t rows = fitting_rows(model, blocks, bytes, divergence);
  if (rows > 0)
    return wm_fail(err, WM_USAGE,
                   "compute.memory_gib = %.3f is too little: one variant on a block of %lld tokens "
                   "takes %.3f GiB a rank; compute.block_tokens = %lld would fit",
                   (double)bytes / 0x1p30, (long long)blocks->max_rows, least, (long long)rows);
  return wm_fail(err, WM_USAGE,
                 "compute.memory_gib = %.3f is too little: one variant on a block of %lld tokens "
                 "takes %.3f GiB a rank, and the longest window (%lld tokens) alone does not fit",
                 (double)bytes / 0x1p30, (long long)blocks->max_rows, least,
                 (long long)blocks->windows->max_length);
}

wm_status_t wm_evaluator_fit(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes,
                             bool divergence, int64_t *max_variants, int64_t *stack_rows,
                             wm_error_t *err) {
  if (bytes <= 0)
    return WM_OK;
  while (wm_evaluator_bytes(model, blocks, *max_variants, *stack_rows, divergence) > bytes) {
    if (*stack_rows > blocks->max_rows)
      *stack_rows = *stack_rows / 2 > blocks->max_rows ? *stack_rows / 2 : blocks->max_rows;
    else if (*max_variants > 1)
      *max_variants = (*max_variants + 1) / 2;
    else
      return too_large(model, blocks, bytes, divergence, err);
  }
  return WM_OK;
}

wm_status_t wm_evaluator_create(wm_model_t *model, const wm_surrogates_t *surrogates,
                                const wm_variants_t *variants, const wm_blocks_t *blocks,
                                int64_t max_variants, int64_t stack_rows, bool divergence,
                                wm_evaluator_t **out, wm_error_t *err) {
  const int64_t d = wm_model_arch(model)->d_model;
  wm_status_t status;
  void *memory;
  *out = NULL;
  WM_TRY(wm_alloc(&memory, 1, sizeof(wm_evaluator_t), "evaluator", err));
  wm_evaluator_t *e = *out = memory;
  int64_t slots = whole_slots(stack_rows, blocks->max_rows, 1 + max_variants);
  *e = (wm_evaluator_t){.model = model,
                        .surrogates = surrogates,
                        .variants = variants,
                        .max_slots = 1 + max_variants,
                        .n_predicted = blocks->windows->n_predicted,
                        .chunk_rows = slots * blocks->max_rows};
  WM_TRY(wm_alloc(&memory, e->max_slots * blocks->max_rows * d, sizeof(float),
                  "hidden states of stacked branches", err));
  e->h = memory;
  WM_TRY(wm_alloc(&memory, e->chunk_rows * d, sizeof(float), "stacked MLP inputs", err));
  e->x = memory;
  WM_TRY(wm_alloc(&memory, e->chunk_rows * d, sizeof(float), "stacked MLP outputs", err));
  e->y = memory;
  WM_TRY(wm_alloc(&memory, e->max_slots * blocks->max_sequences + 1, sizeof(int64_t), "sequences",
                  err));
  e->starts = memory;
  WM_TRY(wm_alloc(&memory, e->chunk_rows, sizeof(int32_t), "targets", err));
  e->targets = memory;
  WM_TRY(wm_alloc(&memory, e->chunk_rows, sizeof(double), "losses", err));
  e->losses = memory;
  WM_TRY(wm_alloc(&memory, e->chunk_rows, sizeof(uint8_t), "routes", err));
  e->route = memory;
  WM_TRY(wm_alloc(&memory, blocks->max_rows, sizeof(float), "differences of losses", err));
  e->delta = memory;
  WM_TRY(wm_alloc(&memory, e->max_slots, sizeof(double), "divergences", err));
  e->divergence = memory;
  WM_TRY(wm_alloc(&memory, e->max_slots, sizeof(int64_t), "agreements", err));
  e->agreed = memory;
  WM_TRY(wm_routing_create(model, e->chunk_rows, &e->routing, err));
  if (divergence)
    WM_TRY(wm_comparison_create(model, e->max_slots, blocks->max_rows, &e->comparison, err));
  WM_TRY(
      wm_workspace_create(model, e->chunk_rows, blocks->windows->max_length, &e->workspace, err));
cleanup:
  if (status != WM_OK) {
    wm_evaluator_free(*out);
    *out = NULL;
  }
  return status;
}

void wm_evaluator_free(wm_evaluator_t *e) {
  if (e == NULL)
    return;
  free(e->h);
  free(e->x);
  free(e->y);
  free(e->starts);
  free(e->targets);
  free(e->losses);
  free(e->route);
  free(e->delta);
  free(e->divergence);
  free(e->agreed);
  wm_routing_free(e->routing);
  wm_comparison_free(e->comparison);
  wm_workspace_free(e->workspace);
  free(e);
}

void wm_evaluator_set_losses(wm_evaluator_t *evaluator, const float *nll) {
  evaluator->nll = nll;
}

void wm_evaluator_set_detail(wm_evaluator_t *evaluator, const wm_position_detail_t *detail) {
  assert(evaluator->comparison != NULL);
  wm_comparison_set_detail(evaluator->comparison, detail);
}

void wm_evaluator_set_watch(wm_evaluator_t *e, const wm_evaluator_watch_t *watch) {
  e->watch = watch;
}

/* --- slots --------------------------------------------------------------------------------------
 */

static float *slot_at(const stack_t *s, int64_t slot) {
  return s->e->h + slot * s->rows * s->d;
}

/* Path of a slot at a layer. */
static wm_path_t path_of(const stack_t *s, int64_t slot, int64_t layer) {
  return slot == 0 ? WM_PATH_FULL : wm_variants_path(s->e->variants, s->first + slot - 1, layer);
}

/* The block's sequences, repeated for `slots` slots. */
static wm_batch_t batch_of(const stack_t *s, int64_t slots) {
  const wm_batch_t *b = &s->block->batch;
  int64_t *starts = s->e->starts;
  for (int64_t i = 0; i < slots; i++)
    for (int64_t q = 0; q < b->n_sequences; q++)
      starts[i * b->n_sequences + q] = i * s->rows + b->starts[q];
  starts[slots * b->n_sequences] = slots * s->rows;
  return (wm_batch_t){.n_sequences = slots * b->n_sequences, .starts = starts};
}

/* --- routes -------------------------------------------------------------------------------------
 */

/* e->delta <- measured loss of the layer's all-linear variant less that of the full model; NaN
 * where nothing is predicted. */
static const float *measured_delta(const stack_t *s, int64_t layer) {
  const wm_evaluator_t *e = s->e;
  const int64_t n = e->n_predicted, linear = wm_variants_linear(e->variants, layer);
  assert(e->nll != NULL && linear > 0);
  const float *full = e->nll + s->block->first_prediction, *own = full + linear * n;
  for (int64_t r = 0, p = 0; r < s->rows; r++) {
    bool predicts = s->block->targets[r] >= 0;
    e->delta[r] = predicts ? own[p] - full[p] : NAN;
    p += predicts;
  }
  return e->delta;
}

/* route[rows] <- where the slot's variant, whose MLP input is x, takes the surrogate. */
static void find_route(const stack_t *s, const wm_change_t *change, const float *x,
                       uint8_t *route) {
  const wm_gates_t *gates = s->e->variants->gates;
  const wm_gate_t *gate = &gates->gates[change->gate];
  wm_profile_t *profile = wm_model_profile(s->e->model);
  const float *delta = gate->kind == WM_GATE_ORACLE ? measured_delta(s, change->layer) : NULL;
  double start = wm_profile_start(profile);
  wm_gates_route(gates, change->gate, change->threshold, x, s->block->tokens, delta, s->rows,
                 route);
  wm_profile_stop(profile, WM_KERNEL_ROUTE, start, (double)s->rows * wm_gate_flops(gate, s->d), 0);
}

/* Counts a slot's predicted positions that take the surrogate; route NULL: all. */
static void count_routed(const stack_t *s, int64_t slot, const uint8_t *route) {
  int64_t n = 0;
  for (int64_t r = 0; r < s->rows; r++)
    n += s->block->targets[r] >= 0 && (route == NULL || route[r] != WM_ROUTE_MLP);
  if (s->cells != NULL)
    s->cells[slot].routed += (double)n;
}

static const wm_change_t *change_of(const stack_t *s, int64_t slot, int64_t layer) {
  return wm_variants_change(s->e->variants, s->first + slot - 1, layer);
}

/* Slots [begin, end), all with a gate: their rows are shared out between MLP and surrogate. x and y
 * are slot `begin`'s. */
static wm_status_t apply_gates(const stack_t *s, int64_t layer, int64_t begin, int64_t end,
                               const float *x, float *y, wm_error_t *err) {
  const wm_evaluator_t *e = s->e;
  for (int64_t slot = begin; slot < end; slot++) {
    uint8_t *route = e->route + (slot - begin) * s->rows;
    find_route(s, change_of(s, slot, layer), x + (slot - begin) * s->rows * s->d, route);
    count_routed(s, slot, route);
  }
  return wm_routing_apply(e->routing, e->model, e->surrogates, layer, x, e->route,
                          (end - begin) * s->rows, y, e->workspace, err);
}

/* --- one layer ----------------------------------------------------------------------------------
 */

/* Slots [begin, end), all on the same path. */
static wm_status_t apply_path(const stack_t *s, int64_t layer, wm_path_t path, int64_t begin,
                              int64_t end, const float *x, float *y, wm_error_t *err) {
  const wm_evaluator_t *e = s->e;
  const int64_t rows = (end - begin) * s->rows;
  if (path == WM_PATH_FULL)
    return wm_model_mlp(e->model, layer, x, rows, y, e->workspace, err);
  if (path == WM_PATH_GATE)
    return apply_gates(s, layer, begin, end, x, y, err);
  for (int64_t slot = begin; slot < end; slot++)
    count_routed(s, slot, NULL);
  return wm_routing_surrogate(e->model, e->surrogates, layer, x, rows, y, err);
}

/* y <- what the slots' paths make of x, slots [base, end) of a chunk; neighbours on the same path
 * go together. */
static wm_status_t apply_paths(const stack_t *s, int64_t layer, int64_t base, int64_t end,
                               wm_error_t *err) {
  const int64_t slot_size = s->rows * s->d;
  wm_status_t status = WM_OK;
  for (int64_t begin = base, stop; begin < end && status == WM_OK; begin = stop) {
    wm_path_t path = path_of(s, begin, layer);
    stop = begin + 1;
    while (stop < end && path_of(s, stop, layer) == path)
      stop++;
    status = apply_path(s, layer, path, begin, stop, s->e->x + (begin - base) * slot_size,
                        s->e->y + (begin - base) * slot_size, err);
  }
  return status;
}

/* A new branch <- the trunk's residual plus, row by row, its MLP's or its surrogate's output.
 * `linear`, the latter, may be the branch's own place. route NULL: the surrogate's everywhere. */
static void start_branch(const stack_t *s, int64_t slot, const float *linear,
                         const uint8_t *route) {
  float *branch = slot_at(s, slot);
  for (int64_t r = 0; r < s->rows; r++) {
    bool full = route != NULL && route[r] == WM_ROUTE_MLP;
    const float *from = (full ? s->e->y : linear) + r * s->d;
    if (from != branch + r * s->d)
      memcpy(branch + r * s->d, from, (size_t)s->d * sizeof *from);
  }
  wm_model_add(s->e->model, branch, slot_at(s, 0), s->rows * s->d);
}

/* Starts the variants whose first changed layer this is. x and y hold the trunk's MLP input and
 * output and slot 0 its residual, without the output. The surrogate's output is computed once, in
 * the place of the first of them, which is therefore made last. */
static wm_status_t branch_off(stack_t *s, int64_t layer, wm_error_t *err) {
  const wm_evaluator_t *e = s->e;
  const int64_t n_layers = wm_model_arch(e->model)->n_layers, begin = s->slots;
  int64_t end = begin;
  while (end - 1 < s->count &&
         wm_variants_first_layer(e->variants, s->first + end - 1, n_layers) == layer)
    end++;
  if (end == begin)
    return WM_OK;
  wm_status_t status =
      wm_routing_surrogate(e->model, e->surrogates, layer, e->x, s->rows, slot_at(s, begin), err);
  if (status != WM_OK)
    return status;
  for (int64_t slot = end - 1; slot >= begin; slot--) {
    const wm_change_t *change = change_of(s, slot, layer);
    const uint8_t *route = change->gate >= 0 ? e->route : NULL;
    if (route != NULL)
      find_route(s, change, e->x, e->route);
    count_routed(s, slot, route);
    start_branch(s, slot, slot_at(s, begin), route);
  }
  s->slots = end;
  return WM_OK;
}

/* Between pieces of work. */
static wm_status_t go_on(wm_error_t *err) {
  return wm_stop_requested() ? wm_fail(err, WM_STOPPED, "stopped on request") : WM_OK;
}

static wm_status_t run_layer(stack_t *s, int64_t layer, wm_error_t *err) {
  const int64_t before = s->slots, size = s->rows * s->d;
  wm_status_t status = WM_OK;
  for (int64_t base = 0; base < before; base += s->per_pass) {
    WM_TRY(go_on(err));
    int64_t end = base + s->per_pass < before ? base + s->per_pass : before;
    wm_batch_t batch = batch_of(s, end - base);
    if (base == 0 && s->e->watch != NULL)
      s->e->watch->front(s->e->watch->object, layer, slot_at(s, 0));
    WM_TRY(wm_model_attend(s->e->model, layer, &batch, slot_at(s, base), s->e->x, s->e->workspace,
                           err));
    if (base == 0 && s->e->watch != NULL)
      s->e->watch->input(s->e->watch->object, layer, slot_at(s, 0), s->e->x);
    WM_TRY(apply_paths(s, layer, base, end, err));
    if (base == 0)
      WM_TRY(branch_off(s, layer, err));
    wm_model_add(s->e->model, slot_at(s, base), s->e->y, (end - base) * size);
  }
cleanup:
  return status;
}

/* --- losses -------------------------------------------------------------------------------------
 */

static wm_status_t losses_alone(const stack_t *s, float *nll, wm_error_t *err) {
  wm_evaluator_t *e = s->e;
  for (int64_t base = 0; base < s->slots; base += s->per_pass) {
    wm_status_t status = go_on(err);
    if (status != WM_OK)
      return status;
    int64_t end = base + s->per_pass < s->slots ? base + s->per_pass : s->slots;
    for (int64_t slot = base; slot < end; slot++)
      memcpy(e->targets + (slot - base) * s->rows, s->block->targets,
             (size_t)s->rows * sizeof *e->targets);
    status = wm_model_nll(e->model, slot_at(s, base), (end - base) * s->rows, e->targets, e->losses,
                          e->workspace, err);
    if (status != WM_OK)
      return status;
    for (int64_t slot = base; slot < end; slot++) {
      float *out = nll + slot * s->block->n_predictions;
      for (int64_t r = 0; r < s->rows; r++)
        if (s->block->targets[r] >= 0)
          *out++ = (float)e->losses[(slot - base) * s->rows + r];
    }
  }
  return WM_OK;
}

static wm_status_t losses(const stack_t *s, float *nll, wm_error_t *err) {
  wm_evaluator_t *e = s->e;
  if (e->comparison == NULL || s->cells == NULL) {
    for (int64_t slot = 0; slot < s->slots && s->cells != NULL; slot++)
      s->cells[slot].agreed = s->cells[slot].divergence = NAN;
    return losses_alone(s, nll, err);
  }
  wm_status_t status =
      wm_model_compare(e->model, e->comparison, e->h, s->slots, s->rows, s->block->targets, nll,
                       e->divergence, e->agreed, e->workspace, err);
  for (int64_t slot = 0; slot < s->slots && status == WM_OK; slot++) {
    s->cells[slot].agreed = (double)e->agreed[slot];
    s->cells[slot].divergence = e->divergence[slot];
  }
  return status;
}

wm_status_t wm_evaluate_block(wm_evaluator_t *evaluator, const wm_block_t *block, int64_t first,
                              int64_t count, float *nll, wm_cell_t *cells, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(evaluator->model);
  assert(first >= 1 && count < evaluator->max_slots && block->rows > 0);
  stack_t s = {.e = evaluator,
               .block = block,
               .cells = cells,
               .rows = block->rows,
               .d = arch->d_model,
               .first = first,
               .count = count,
               .slots = 1,
               .per_pass = whole_slots(evaluator->chunk_rows, block->rows, evaluator->max_slots)};
  wm_status_t status;
  if (cells != NULL)
    memset(cells, 0, (size_t)(1 + count) * sizeof *cells);
  WM_TRY(wm_model_embed(evaluator->model, &block->batch, block->ids, slot_at(&s, 0), err));
  for (int64_t l = 0; l < arch->n_layers; l++)
    WM_TRY(run_layer(&s, l, err));
  assert(s.slots == 1 + count);
  WM_TRY(losses(&s, nll, err));
cleanup:
  return status;
}

double wm_evaluate_layer_passes(const wm_variants_t *variants, int64_t first, int64_t count,
                                int64_t n_layers) {
  double passes = (double)n_layers;
  for (int64_t v = first; v < first + count; v++)
    passes += (double)(n_layers - 1 - wm_variants_first_layer(variants, v, n_layers));
  return passes;
}

/* Operations that a variant's changes add, per row: at its first layer both outputs exist anyway.
 */
static double change_flops(const wm_variants_t *v, int64_t variant, const wm_arch_t *arch) {
  int64_t n;
  const wm_change_t *c = wm_variants_changes(v, variant, &n);
  const double saved = wm_arch_flops_surrogate(arch) - wm_arch_flops_mlp(arch);
  double flops = 0;
  for (int64_t i = 0; i < n; i++) {
    if (c[i].gate >= 0)
      flops += wm_gate_flops(&v->gates->gates[c[i].gate], arch->d_model);
    if (i > 0)
      flops += c[i].gate >= 0 ? 0.5 * saved : saved;
  }
  return flops;
}

double wm_evaluate_flops(const wm_variants_t *variants, int64_t first, int64_t count,
                         const wm_arch_t *arch, double context) {
  double passes = wm_evaluate_layer_passes(variants, first, count, arch->n_layers);
  double flops = passes * (wm_arch_flops_layer(arch) + wm_arch_flops_attention(arch, context)) +
                 (double)(1 + count) * wm_arch_flops_head(arch);
  for (int64_t v = first, last = -1; v < first + count; v++) {
    int64_t layer = wm_variants_first_layer(variants, v, arch->n_layers);
    flops += change_flops(variants, v, arch);
    flops += layer != last ? wm_arch_flops_surrogate(arch) : 0;
    last = layer;
  }
  return flops;
}
