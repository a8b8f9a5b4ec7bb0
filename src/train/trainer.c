#include "wanamaker/train/trainer.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/par/shards.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct wm_trainer {
  const wm_comm_t *comm;
  wm_training_t *training;
  wm_trainer_options_t options;
  wm_shards_t *shards;
  float *gradients; /* of the training pass */
  int64_t n_gradients;
  float *own; /* sums of this rank's shard: on one rank the gradients themselves */
  float *first, *second;
  const wm_parameter_t *trained; /* [n_trained] those with a gradient, in its order */
  int64_t n_trained;
  void *trained_memory;
  int64_t first_sequence, n_sequences; /* this rank's */
  int64_t segment;                     /* the next one to be reduced */
  double exposed;
  /* of a pass */
  int64_t *starts, *numbers;
  int32_t *targets;
  double
      *sums; /* [2 sequences + 2] losses and gates of the step's sequences, squared norm, waits */
};

static wm_status_t list_trained(wm_trainer_t *t, wm_error_t *err) {
  int64_t count;
  const wm_parameter_t *all = wm_training_parameters(t->training, &count);
  wm_status_t status = wm_alloc(&t->trained_memory, count, sizeof *all, "trained parameters", err);
  if (status != WM_OK)
    return status;
  wm_parameter_t *to = t->trained_memory;
  for (int64_t i = 0; i < count; i++)
    if (all[i].gradient != NULL)
      to[t->n_trained++] = all[i];
  t->trained = to;
  return WM_OK;
}

static wm_status_t reserve_pass(wm_trainer_t *t, wm_error_t *err) {
  const wm_trainer_options_t *o = &t->options;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, o->pass_sequences + 1, sizeof *t->starts, "sequences", err));
  t->starts = memory;
  WM_TRY(wm_alloc(&memory, o->pass_sequences, sizeof *t->numbers, "sequences", err));
  t->numbers = memory;
  WM_TRY(wm_alloc(&memory, o->pass_sequences * o->length, sizeof *t->targets, "targets", err));
  t->targets = memory;
  WM_TRY(wm_alloc(&memory, 2 * o->sequences + 2, sizeof *t->sums, "losses of sequences", err));
  t->sums = memory;
  for (int64_t i = 0; i <= o->pass_sequences; i++)
    t->starts[i] = i * o->length;
cleanup:
  return status;
}

static wm_status_t reserve_state(wm_trainer_t *t, wm_error_t *err) {
  int64_t own = wm_shards_own(t->shards);
  void *memory;
  wm_status_t status;
  t->own = t->gradients;
  if (t->comm->size > 1) {
    WM_TRY(wm_alloc(&memory, own, sizeof(float), "summed gradients", err));
    t->own = memory;
  }
  WM_TRY(wm_alloc(&memory, own, sizeof(float), "moments", err));
  t->first = memory;
  WM_TRY(wm_alloc(&memory, own, sizeof(float), "moments", err));
  t->second = memory;
cleanup:
  return status;
}

/* Collective. */
static wm_status_t create_shards(wm_trainer_t *t, wm_error_t *err) {
  int64_t n = wm_training_segments(t->training), first;
  void *counts = NULL;
  wm_status_t status = wm_alloc(&counts, n, sizeof(int64_t), "segments", err);
  WM_TRY(wm_agree(t->comm->world, status, err));
  for (int64_t i = 0; i < n; i++)
    wm_training_segment(t->training, i, &first, (int64_t *)counts + i);
  WM_TRY(wm_shards_create(t->comm, counts, n, t->options.piece, &t->shards, err));
cleanup:
  free(counts);
  return status;
}

wm_status_t wm_trainer_create(const wm_comm_t *comm, wm_training_t *training,
                              const wm_trainer_options_t *options, wm_trainer_t **out,
                              wm_error_t *err) {
  assert(options->length >= 2 && options->sequences > 0 && options->pass_sequences > 0);
  wm_trainer_t *t = NULL;
  void *memory;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof *t, "trainer", err);
  WM_TRY(wm_agree(comm->world, status, err));
  t = memory;
  *t = (wm_trainer_t){.comm = comm, .training = training, .options = *options};
  t->gradients = wm_training_gradients(training, &t->n_gradients);
  wm_partition(options->sequences, comm->size, comm->rank, &t->first_sequence, &t->n_sequences);
  WM_TRY(create_shards(t, err));
  status = list_trained(t, err);
  if (status == WM_OK)
    status = reserve_pass(t, err);
  if (status == WM_OK)
    status = reserve_state(t, err);
  WM_TRY(wm_agree(comm->world, status, err));
  *out = t;
  return WM_OK;
cleanup:
  wm_trainer_free(t);
  return status;
}

void wm_trainer_free(wm_trainer_t *t) {
  if (t == NULL)
    return;
  wm_shards_free(t->shards);
  if (t->own != t->gradients)
    free(t->own);
  free(t->first);
  free(t->second);
  free(t->trained_memory);
  free(t->starts);
  free(t->numbers);
  free(t->targets);
  free(t->sums);
  free(t);
}

int64_t wm_trainer_bytes(int64_t elements, int ranks) {
  int64_t shard = (elements + ranks - 1) / ranks;
  return (elements + (ranks > 1 ? 3 : 2) * shard) * (int64_t)sizeof(float) +
         wm_shards_bytes(elements, ranks);
}

/* --- gradients ----------------------------------------------------------------------------------
 */

/* The hook of the last pass. */
static wm_status_t reduce_segment(void *context, int64_t segment, float *gradients, int64_t count,
                                  wm_error_t *err) {
  wm_trainer_t *t = context;
  (void)gradients, (void)count, (void)err;
  const double start = wm_profile_start(wm_training_profile(t->training));
  wm_shards_reduce(t->shards, segment, t->gradients, t->own);
  wm_profile_stop(wm_training_profile(t->training), WM_KERNEL_REDUCE, start, 0, 0);
  t->segment = segment + 1;
  return WM_OK;
}

static void let_messages_go_on(void *context) {
  wm_trainer_t *t = context;
  const double start = wm_profile_start(wm_training_profile(t->training));
  wm_shards_poke(t->shards);
  wm_profile_stop(wm_training_profile(t->training), WM_KERNEL_REDUCE, start, 0, 0);
}

/* One pass over n of this rank's sequences from number `first` of them. */
static wm_status_t run_pass(wm_trainer_t *t, const wm_trainer_step_t *step, int64_t first,
                            int64_t n, bool last, wm_error_t *err) {
  const wm_trainer_options_t *o = &t->options;
  const int32_t *ids = step->ids + first * o->length;
  const double predicted = (double)(o->sequences * (o->length - 1));
  for (int64_t i = 0; i < n; i++) {
    t->numbers[i] = t->first_sequence + first + i;
    for (int64_t j = 0; j < o->length; j++)
      t->targets[i * o->length + j] = j + 1 < o->length ? ids[i * o->length + j + 1] : -1;
  }
  const wm_training_batch_t batch = {.rows = {n, t->starts},
                                     .ids = ids,
                                     .targets = t->targets,
                                     .step = step->draw,
                                     .sequences = t->numbers,
                                     .nll_scale = 1 / predicted,
                                     .gate_scale =
                                         step->penalty / (double)(o->sequences * o->length)};
  const wm_training_hook_t hook = {reduce_segment, let_messages_go_on, t};
  wm_training_result_t result = {.nll = t->sums + t->numbers[0],
                                 .gate = t->sums + o->sequences + t->numbers[0]};
  return wm_training_accumulate(t->training, &batch, last ? &hook : NULL, &result, err);
}

/* Collective. All passes of this rank, and the sums of all ranks'. A rank that fails, or has no
 * sequence, sends what it has. */
static wm_status_t gradients(wm_trainer_t *t, const wm_trainer_step_t *step, wm_error_t *err) {
  const int64_t each = t->options.pass_sequences, n = t->n_sequences;
  wm_status_t status = WM_OK;
  memset(t->sums, 0, (size_t)(2 * t->options.sequences + 2) * sizeof *t->sums);
  wm_training_zero(t->training);
  t->segment = 0;
  for (int64_t i = 0; i < n && status == WM_OK; i += each) {
    status = run_pass(t, step, i, n - i < each ? n - i : each, n - i <= each, err);
    wm_pulse();
  }
  while (t->segment < wm_training_segments(t->training))
    reduce_segment(t, t->segment, NULL, 0, err);
  const double start = wm_profile_start(wm_training_profile(t->training));
  t->exposed = wm_shards_wait(t->shards);
  wm_profile_stop(wm_training_profile(t->training), WM_KERNEL_REDUCE, start, 0, 0);
  return wm_agree(t->comm->world, status, err);
}

/* --- the update ---------------------------------------------------------------------------------
 */

/* Calls `visit` for every stretch of the array's elements [first, first + count) that is one
 * tensor's: `at` its first element in the array. Gaps between tensors are left out. */
typedef void (*visit_t)(void *context, float *value, int64_t at, int64_t count);

static void visit_values(const wm_trainer_t *t, int64_t first, int64_t count, visit_t visit,
                         void *context) {
  int64_t low = 0, high = t->n_trained; /* the first tensor that ends behind `first` */
  while (low < high) {
    int64_t middle = (low + high) / 2;
    const wm_parameter_t *p = &t->trained[middle];
    if (p->gradient - t->gradients + p->elements <= first)
      low = middle + 1;
    else
      high = middle;
  }
  for (int64_t i = low; i < t->n_trained; i++) {
    const wm_parameter_t *p = &t->trained[i];
    int64_t begin = p->gradient - t->gradients, end = begin + p->elements;
    int64_t from = begin > first ? begin : first;
    int64_t to = end < first + count ? end : first + count;
    if (begin >= first + count)
      return;
    if (from < to)
      visit(context, p->value + (from - begin), from, to - from);
  }
}

typedef struct {
  wm_trainer_t *t;
  const wm_trainer_step_t *step;
  double factor;
  int64_t shift; /* from the array to the shard */
} update_t;

static void update_values(void *context, float *value, int64_t at, int64_t count) {
  const update_t *u = context;
  const wm_trainer_t *t = u->t;
  int64_t place = at + u->shift;
  wm_adamw_step(&t->options.adamw, u->step->number + 1, u->step->rate, u->factor, t->own + place,
                count, value, t->first + place, t->second + place);
}

/* Gradient, parameter and moments are read, all but the gradient written. */
static void update_own(wm_trainer_t *t, const wm_trainer_step_t *step, double factor) {
  wm_profile_t *profile = wm_training_profile(t->training);
  const double start = wm_profile_start(profile);
  for (int64_t i = 0; i < wm_shards_pieces(t->shards); i++) {
    const wm_shards_piece_t *p = wm_shards_piece(t->shards, i);
    update_t u = {t, step, factor, p->own_place - p->own_first};
    visit_values(t, p->own_first, p->own_count, update_values, &u);
    wm_pulse();
  }
  wm_profile_stop(profile, WM_KERNEL_ADAMW, start, 0, 28.0 * (double)wm_shards_own(t->shards));
}

typedef struct {
  float *out;
  const float *in;
  int64_t first;
} exchange_t;

static void pack_values(void *context, float *value, int64_t at, int64_t count) {
  const exchange_t *e = context;
  memcpy(e->out + (at - e->first), value, (size_t)count * sizeof *value);
}

static void unpack_values(void *context, float *value, int64_t at, int64_t count) {
  const exchange_t *e = context;
  memcpy(value, e->in + (at - e->first), (size_t)count * sizeof *value);
}

static void pack(void *context, int64_t first, int64_t count, float *out) {
  exchange_t e = {.out = out, .first = first};
  memset(out, 0, (size_t)count * sizeof *out); /* gaps */
  visit_values(context, first, count, pack_values, &e);
}

static void unpack(void *context, int64_t first, int64_t count, const float *in) {
  exchange_t e = {.in = in, .first = first};
  visit_values(context, first, count, unpack_values, &e);
}

/* Collective. Losses in the order of the sequences, and the norm; equal on all ranks. */
static void summarise(wm_trainer_t *t, wm_trainer_result_t *out) {
  const wm_trainer_options_t *o = &t->options;
  const int64_t n = o->sequences;
  wm_profile_t *profile = wm_training_profile(t->training);
  const double start = wm_profile_start(profile);
  t->sums[2 * n] = wm_sum_squares(t->own, wm_shards_own(t->shards));
  wm_profile_stop(profile, WM_KERNEL_SQUARES, start, 0, 4.0 * (double)wm_shards_own(t->shards));
  t->sums[2 * n + 1] = t->exposed / t->comm->size;
  const double sent = wm_profile_start(profile);
  wm_sum_f64(t->comm->world, t->sums, 2 * n + 2); /* each sequence is one rank's */
  wm_profile_stop(profile, WM_KERNEL_REDUCE, sent, 0, 0);
  *out = (wm_trainer_result_t){.norm = sqrt(t->sums[2 * n]), .exposed = t->sums[2 * n + 1]};
  for (int64_t s = 0; s < n; s++) {
    out->loss += t->sums[s];
    out->gate += t->sums[n + s];
  }
  out->loss /= (double)(n * (o->length - 1));
  out->gate /= (double)(n * o->length);
}

/* Collective. All ranks see all changes; returns the seconds that it took. */
static double exchange(wm_trainer_t *t) {
  wm_profile_t *profile = wm_training_profile(t->training);
  const wm_shards_copy_t copy = {pack, unpack, t};
  const double start = wm_seconds();
  wm_training_sync(t->training);
  if (t->comm->node_count > 1) {
    wm_shards_gather(t->shards, &copy);
    wm_training_sync(t->training);
  }
  wm_profile_stop(profile, WM_KERNEL_REDUCE, start, 0, 0);
  return wm_seconds() - start;
}

wm_status_t wm_trainer_step(wm_trainer_t *t, const wm_trainer_step_t *step,
                            wm_trainer_result_t *out, wm_error_t *err) {
  wm_status_t status;
  *out = (wm_trainer_result_t){0};
  WM_TRY(gradients(t, step, err));
  summarise(t, out);
  if (!isfinite(out->loss) || !isfinite(out->norm))
    return wm_fail(err, WM_NUMERICAL, "the %s is not finite",
                   isfinite(out->loss) ? "gradient's norm" : "loss");
  update_own(t, step, wm_clip_factor(out->norm, t->options.clip));
  out->exposed += exchange(t);
cleanup:
  return status;
}

/* --- files --------------------------------------------------------------------------------------
 */

static const char *const moment_paths[] = {"/moments/first", "/moments/second"};

wm_status_t wm_trainer_save(const wm_trainer_t *t, wm_h5_t *file, wm_error_t *err) {
  static const char *const descriptions[] = {
      "first moments of AdamW, in the order of the gradients",
      "second moments of AdamW, in the order of the gradients"};
  const float *const moments[] = {t->first, t->second};
  wm_status_t status = WM_OK;
  for (int k = 0; k < 2; k++) {
    WM_TRY(wm_h5_dataset(file, moment_paths[k], H5T_IEEE_F32LE, 1, &t->n_gradients, descriptions[k],
                         err));
    for (int64_t i = 0; i < wm_shards_pieces(t->shards); i++) {
      const wm_shards_piece_t *p = wm_shards_piece(t->shards, i);
      WM_TRY(wm_h5_write(file, moment_paths[k], H5T_NATIVE_FLOAT, &p->own_first, &p->own_count,
                         moments[k] + p->own_place, err));
    }
  }
cleanup:
  return status;
}

wm_status_t wm_trainer_load(wm_trainer_t *t, wm_h5_t *file, wm_error_t *err) {
  float *const moments[] = {t->first, t->second};
  wm_status_t status = WM_OK;
  for (int k = 0; k < 2; k++) {
    int64_t there;
    WM_TRY(wm_h5_dims(file, moment_paths[k], 1, &there, err));
    if (there != t->n_gradients)
      return wm_fail(err, WM_INPUT, "%s: %s has %lld elements, expected %lld", wm_h5_path(file),
                     moment_paths[k], (long long)there, (long long)t->n_gradients);
    for (int64_t i = 0; i < wm_shards_pieces(t->shards); i++) {
      const wm_shards_piece_t *p = wm_shards_piece(t->shards, i);
      WM_TRY(wm_h5_read(file, moment_paths[k], H5T_NATIVE_FLOAT, &p->own_first, &p->own_count,
                        moments[k] + p->own_place, err));
    }
  }
cleanup:
  return status;
}
