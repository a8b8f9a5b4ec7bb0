/* Where the time goes: counters of the kernels of a forward pass, a fit, a sweep and a training
 * step.
 *
 * A profile hangs on the model that the work goes through (model.h, wm_model_set_profile); without
 * one nothing is measured. Kernels are timed a call at a time, on the thread that starts them, and
 * a call takes at least tens of microseconds, so that two readings of the clock don't count.
 *
 * Operations are those that the result needs, two for a multiply-add: rows that fill up a tile and
 * the masked half of attention's blocks are not counted, so that a rate tells what they cost.
 * Bytes are those that a kernel must read and write at least; 0 where operations count. */
#ifndef WANAMAKER_BASE_PROFILE_H
#define WANAMAKER_BASE_PROFILE_H

#include "wanamaker/base/timer.h"

#include <stddef.h>
#include <stdint.h>

typedef enum {
  WM_KERNEL_EMBED,
  WM_KERNEL_NORM,
  WM_KERNEL_QKV,
  WM_KERNEL_ROTARY,
  WM_KERNEL_ATTENTION,
  WM_KERNEL_PROJECT,
  WM_KERNEL_UP, /* with the activation */
  WM_KERNEL_DOWN,
  WM_KERNEL_SURROGATE,
  WM_KERNEL_ROUTE, /* gates, and rows gathered and scattered by route */
  WM_KERNEL_ADD,   /* to the residual stream */
  WM_KERNEL_HEAD,
  WM_KERNEL_LOG_SUM,
  WM_KERNEL_GRAM,
  WM_KERNEL_SOLVE,
  WM_KERNEL_REDUCE, /* messages between ranks, waiting included */
  WM_KERNEL_IO,
  /* Training. A dense layer has three products: the forward pass's above, and the gradients with
   * respect to its input and, next in this list, to its weights. Its activation is counted apart.
   */
  WM_KERNEL_QKV_INPUT,
  WM_KERNEL_QKV_WEIGHT,
  WM_KERNEL_PROJECT_INPUT,
  WM_KERNEL_PROJECT_WEIGHT,
  WM_KERNEL_UP_INPUT,
  WM_KERNEL_UP_WEIGHT,
  WM_KERNEL_DOWN_INPUT,
  WM_KERNEL_DOWN_WEIGHT,
  WM_KERNEL_SURROGATE_INPUT,
  WM_KERNEL_SURROGATE_WEIGHT,
  WM_KERNEL_HEAD_INPUT,
  WM_KERNEL_HEAD_WEIGHT,
  WM_KERNEL_BIAS, /* gradients of biases */
  WM_KERNEL_ACTIVATION,
  WM_KERNEL_ACTIVATION_BACKWARD,
  WM_KERNEL_ATTENTION_BACKWARD,
  WM_KERNEL_ROTARY_BACKWARD,
  WM_KERNEL_NORM_BACKWARD,
  WM_KERNEL_SOFTMAX_BACKWARD, /* of the losses */
  WM_KERNEL_EMBED_BACKWARD,
  WM_KERNEL_GATE, /* that trains: forward and backward */
  WM_KERNEL_DROPOUT,
  WM_KERNEL_COPY,    /* what the backward pass needs later; zeros */
  WM_KERNEL_SQUARES, /* norm of the gradient */
  WM_KERNEL_ADAMW,
  WM_KERNELS
} wm_kernel_t;

typedef struct {
  int64_t calls;
  double seconds, flops, bytes;
} wm_counter_t;

/* Zero it to begin. One caller at a time. */
typedef struct {
  wm_counter_t kernels[WM_KERNELS];
} wm_profile_t;

/* "MLP up", ... */
const char *wm_kernel_name(wm_kernel_t kernel);

/* What wm_profile_stop takes as `start`. NULL is allowed in both: then nothing happens. */
static inline double wm_profile_start(const wm_profile_t *profile) {
  return profile != NULL ? wm_seconds() : 0;
}

/* Counts one call of `kernel` that began at `start`. */
void wm_profile_stop(wm_profile_t *profile, wm_kernel_t kernel, double start, double flops,
                     double bytes);

/* Seconds of all kernels. */
double wm_profile_seconds(const wm_profile_t *profile);

#endif
