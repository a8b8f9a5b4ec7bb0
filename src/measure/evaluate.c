#include "wanamaker/measure/evaluate.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"

#include <assert.h>
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
  wm_workspace_t *workspace;
};

/* One evaluation in progress. */
typedef struct {
  wm_evaluator_t *e;
  const wm_block_t *block;
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
                         int64_t max_length) {
  const int64_t d = wm_model_arch(model)->d_model;
  return (slots * rows + 2 * chunk * rows) * d * (int64_t)sizeof(float) +
         chunk * rows * (int64_t)(sizeof(int32_t) + sizeof(double)) +
         wm_workspace_bytes(model, chunk * rows, max_length) + wm_model_scratch_bytes(model);
}

int64_t wm_evaluator_bytes(const wm_model_t *model, const wm_blocks_t *blocks, int64_t max_variants,
                           int64_t stack_rows) {
  return bytes_for(model, blocks->max_rows, 1 + max_variants,
                   whole_slots(stack_rows, blocks->max_rows, 1 + max_variants),
                   blocks->windows->max_length);
}

/* Most rows of a block with which one variant fits; 0 if not even the longest window does. */
static int64_t fitting_rows(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes) {
  int64_t low = 0, high = blocks->max_rows;
  while (high - low > 1) {
    int64_t middle = low + (high - low) / 2;
    if (bytes_for(model, middle, 2, 1, blocks->windows->max_length) <= bytes)
      low = middle;
    else
      high = middle;
  }
  return low < blocks->windows->max_length ? 0 : low;
}

static wm_status_t too_large(const wm_model_t *model, const wm_blocks_t *blocks, int64_t bytes,
                             wm_error_t *err) {
  const double least = (double)wm_evaluator_bytes(model, blocks, 1, 1) / 0x1p30;
  const int64_t rows = fitting_rows(model, blocks, bytes);
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
                             int64_t *max_variants, int64_t *stack_rows, wm_error_t *err) {
  if (bytes <= 0)
    return WM_OK;
  while (wm_evaluator_bytes(model, blocks, *max_variants, *stack_rows) > bytes) {
    if (*stack_rows > blocks->max_rows)
      *stack_rows = *stack_rows / 2 > blocks->max_rows ? *stack_rows / 2 : blocks->max_rows;
    else if (*max_variants > 1)
      *max_variants = (*max_variants + 1) / 2;
    else
      return too_large(model, blocks, bytes, err);
  }
  return WM_OK;
}

wm_status_t wm_evaluator_create(wm_model_t *model, const wm_surrogates_t *surrogates,
                                const wm_variants_t *variants, const wm_blocks_t *blocks,
                                int64_t max_variants, int64_t stack_rows, wm_evaluator_t **out,
                                wm_error_t *err) {
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
  wm_workspace_free(e->workspace);
  free(e);
}

/* --- one layer ----------------------------------------------------------------------------------
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

static wm_status_t apply_surrogate(const stack_t *s, int64_t layer, const float *x, int64_t rows,
                                   float *y, wm_error_t *err) {
  wm_profile_t *profile = wm_model_profile(s->e->model);
  double start = wm_profile_start(profile);
  wm_status_t status = wm_surrogates_apply(s->e->surrogates, layer, x, rows, y, err);
  wm_profile_stop(profile, WM_KERNEL_SURROGATE, start,
                  (double)rows * wm_arch_flops_surrogate(wm_model_arch(s->e->model)), 0);
  return status;
}

/* y <- what the slots' paths make of x, slots [begin, end) of a chunk that starts at `base`;
 * neighbours on the same path go together. */
static wm_status_t apply_paths(const stack_t *s, int64_t layer, int64_t base, int64_t end,
                               wm_error_t *err) {
  const int64_t slot_size = s->rows * s->d;
  wm_status_t status = WM_OK;
  for (int64_t begin = base; begin < end && status == WM_OK;) {
    wm_path_t path = path_of(s, begin, layer);
    int64_t stop = begin + 1;
    while (stop < end && path_of(s, stop, layer) == path)
      stop++;
    const float *x = s->e->x + (begin - base) * slot_size;
    float *y = s->e->y + (begin - base) * slot_size;
    int64_t rows = (stop - begin) * s->rows;
    if (path == WM_PATH_FULL)
      status = wm_model_mlp(s->e->model, layer, x, rows, y, s->e->workspace, err);
    else
      status = apply_surrogate(s, layer, x, rows, y, err);
    begin = stop;
  }
  return status;
}

/* Starts the variants whose first changed layer this is. x holds the trunk's MLP input and slot 0
 * its residual; their common surrogate output is computed once. */
static wm_status_t branch_off(stack_t *s, int64_t layer, wm_error_t *err) {
  const wm_evaluator_t *e = s->e;
  const int64_t n_layers = wm_model_arch(e->model)->n_layers, size = s->rows * s->d;
  bool ready = false;
  while (s->slots - 1 < s->count &&
         wm_variants_first_layer(e->variants, s->first + s->slots - 1, n_layers) == layer) {
    if (!ready) {
      wm_status_t status = apply_surrogate(s, layer, e->x, s->rows, e->y, err);
      if (status != WM_OK)
        return status;
      ready = true;
    }
    float *branch = slot_at(s, s->slots++);
    memcpy(branch, slot_at(s, 0), (size_t)size * sizeof *branch);
    wm_model_add(e->model, branch, e->y, size);
  }
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
    WM_TRY(wm_model_attend(s->e->model, layer, &batch, slot_at(s, base), s->e->x, s->e->workspace,
                           err));
    if (base == 0)
      WM_TRY(branch_off(s, layer, err));
    WM_TRY(apply_paths(s, layer, base, end, err));
    wm_model_add(s->e->model, slot_at(s, base), s->e->y, (end - base) * size);
  }
cleanup:
  return status;
}

/* --- losses -------------------------------------------------------------------------------------
 */

static wm_status_t losses(stack_t *s, float *nll, wm_error_t *err) {
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

wm_status_t wm_evaluate_block(wm_evaluator_t *evaluator, const wm_block_t *block, int64_t first,
                              int64_t count, float *nll, wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(evaluator->model);
  assert(first >= 1 && count < evaluator->max_slots && block->rows > 0);
  stack_t s = {.e = evaluator,
               .block = block,
               .rows = block->rows,
               .d = arch->d_model,
               .first = first,
               .count = count,
               .slots = 1,
               .per_pass = whole_slots(evaluator->chunk_rows, block->rows, evaluator->max_slots)};
  wm_status_t status;
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
