#include "wanamaker/base/profile.h"

const char *wm_kernel_name(wm_kernel_t kernel) {
  static const char *const names[WM_KERNELS] = {[WM_KERNEL_EMBED] = "embedding",
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
                                                [WM_KERNEL_IO] = "files"};
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
