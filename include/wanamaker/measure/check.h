/* What products in bfloat16 do to a sweep's deltas.
 *
 * A sample of the sweep's blocks, spread evenly over the evaluation, is evaluated again with
 * float32 products for all variants. On the sample, with b the losses of the sweep and f those in
 * float32, means over tokens written as b(v), f(v), and 0 the full model,
 *
 *     delta      = 100 (e^(b(v) - b(0)) - 1)         delta_f32 = 100 (e^(f(v) - f(0)) - 1)
 *     difference = delta - delta_f32                 of variant 0: 100 (e^(b(0) - f(0)) - 1)
 *
 * The standard error of the difference is paired and linearised (delta method): the tokens'
 * influences on it, summed by window, since a window's tokens share their context.
 *
 * Datasets of sweep.h5: /check/token [n] int64, the places in /nll and /tokens; /check/nll [V, n]
 * float32; /check/{delta,delta_f32,difference,standard_error} [V] float64.
 */
#ifndef WANAMAKER_MEASURE_CHECK_H
#define WANAMAKER_MEASURE_CHECK_H

#include "wanamaker/measure/sweep.h"

typedef struct {
  double delta, delta_f32, difference, standard_error; /* NaN: a loss is not finite, or 1 window */
} wm_check_effect_t;

typedef struct {
  wm_windows_t windows; /* the sampled blocks' */
  wm_blocks_t blocks;
  wm_shared_t nll;            /* [V, n] float32 products */
  int64_t n, n_variants;      /* n: tokens of the sample */
  int64_t *token;             /* [n] */
  wm_check_effect_t *effects; /* [V] */
} wm_check_t;

/* Not collective. Part of a sweep's work (0 to 1) that a check of so many tokens does again. */
double wm_check_share(const wm_blocks_t *blocks, int64_t tokens);

/* Collective over comm->world. `sweep` has its losses; `model` and `surrogates` are those of the
 * sweep with float32 products. About `tokens` > 0 predictions are sampled, in whole blocks.
 * Of `options` the memory and the cut into groups count; a stop request ends it with WM_STOPPED.
 * Equal on all ranks, for any number of them. Destroy with wm_check_destroy (collective), also
 * after a failure. */
wm_status_t wm_check_run(const wm_sweep_t *sweep, wm_model_t *model,
                         const wm_surrogates_t *surrogates, const int32_t *ids, int64_t tokens,
                         const wm_sweep_options_t *options, const wm_log_t *log, wm_check_t *out,
                         wm_error_t *err);
/* Collective. Writes the datasets above. */
wm_status_t wm_check_write(const wm_sweep_t *sweep, const wm_check_t *check, wm_h5_t *file,
                           wm_error_t *err);
/* Collective. `n` and the effects of a published sweep.h5 that has them. */
wm_status_t wm_check_read(const wm_comm_t *comm, const char *path, int64_t n_variants,
                          wm_check_t *out, wm_error_t *err);
/* Collective over the node. Harmless on a zeroed object. */
void wm_check_destroy(wm_check_t *check);

#endif
