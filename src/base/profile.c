#include "wanamaker/base/profile.h"

const char *wm_kernel_name(wm_kernel_t kernel) {
  static const char *const names[WM_KERNELS] = {
      [WM_KERNEL_EMBED] = "embedding",
      [WM_KERNEL_NORM] = "layer norm",
      [WM_KERNEL_QKV] = "QKV",
      [WM_KERNEL_ROTARY] = "rotary positions",
      [WM_KERNEL_ATTENTION] = "attention",
      [WM_KERNEL_PROJECT] = "projection",
      [WM_KERNEL_UP] = "MLP up, activation",
      [WM_KERNEL_DOWN] = "MLP down",
      [WM_KERNEL_SURROGATE] = "surrogate",
      [WM_KERNEL_ROUTE] = "routing",
      [WM_KERNEL_ADD] = "residual add",
      [WM_KERNEL_HEAD] = "head",
      [WM_KERNEL_LOG_SUM] = "log-sum-exp",
      [WM_KERNEL_GRAM] = "Gram matrices",
      [WM_KERNEL_SOLVE] = "ridge, spectrum",
      [WM_KERNEL_REDUCE] = "messages",
      [WM_KERNEL_IO] = "files",
      [WM_KERNEL_QKV_INPUT] = "QKV, dX",
      [WM_KERNEL_QKV_WEIGHT] = "QKV, dW",
      [WM_KERNEL_PROJECT_INPUT] = "projection, dX",
      [WM_KERNEL_PROJECT_WEIGHT] = "projection, dW",
      [WM_KERNEL_UP_INPUT] = "MLP up, dX",
      [WM_KERNEL_UP_WEIGHT] = "MLP up, dW",
      [WM_KERNEL_DOWN_INPUT] = "MLP down, dX",
      [WM_KERNEL_DOWN_WEIGHT] = "MLP down, dW",
      [WM_KERNEL_SURROGATE_INPUT] = "surrogate, dX",
      [WM_KERNEL_SURROGATE_WEIGHT] = "surrogate, dW",
      [WM_KERNEL_HEAD_INPUT] = "head, dX",
      [WM_KERNEL_HEAD_WEIGHT] = "head, dW",
      [WM_KERNEL_BIAS] = "biases, db",
      [WM_KERNEL_ACTIVATION] = "activation",
      [WM_KERNEL_ACTIVATION_BACKWARD] = "activation, backward",
      [WM_KERNEL_ATTENTION_BACKWARD] = "attention, backward",
      [WM_KERNEL_ROTARY_BACKWARD] = "rotary, backward",
      [WM_KERNEL_NORM_BACKWARD] = "layer norm, backward",
      [WM_KERNEL_SOFTMAX_BACKWARD] = "softmax, backward",
      [WM_KERNEL_EMBED_BACKWARD] = "embedding, backward",
      [WM_KERNEL_GATE] = "gates in training",
      [WM_KERNEL_DROPOUT] = "dropout",
      [WM_KERNEL_COPY] = "copies, zeros",
      [WM_KERNEL_SQUARES] = "gradient's norm",
      [WM_KERNEL_ADAMW] = "AdamW"};
  return names[kernel];
}

void wm_profile_stop(wm_profile_t *profile, wm_kernel_t kernel, double start, double flops,
                     double bytes) {
  if (profile == NULL)
    return;
  wm_counter_t *c = &profile->kernels[kernel];
  c->calls++;
  c->seconds += wm_seconds() - start;
  c->flops += flops;
  c->bytes += bytes;
}

double wm_profile_seconds(const wm_profile_t *profile) {
  double sum = 0;
  for (int k = 0; k < WM_KERNELS; k++)
    sum += profile->kernels[k].seconds;
  return sum;
}
