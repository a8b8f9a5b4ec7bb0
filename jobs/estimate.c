/* How long work will take, from the rate of a short product on this machine. */
#include "inputs.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/linalg/gemm.h"

#include <stddef.h>

/* Operations per second of products of a type on this rank; 0 if they can't be tried. */
static double product_rate(wm_compute_t compute) {
  enum { ROWS = 512, WIDTH = 1024, REPEATS = 5 };
  wm_error_t ignored = {0};
  wm_linear_t *linear = NULL;
  wm_gemm_scratch_t scratch = {0};
  void *memory;
  double best = 0;
  if (wm_alloc(&memory, WIDTH * WIDTH + 2 * ROWS * WIDTH, sizeof(float), "a trial product",
               &ignored) != WM_OK)
    return 0;
  float *x = (float *)memory + WIDTH * WIDTH, *y = x + ROWS * WIDTH;
  const wm_weight_t weight = {compute == WM_COMPUTE_F32 ? WM_DTYPE_F32 : WM_DTYPE_BF16,
                              WM_WEIGHT_IN_OUT, memory};
  if (wm_linear_create_typed(&linear, WIDTH, WIDTH, &weight, NULL, WM_ACT_NONE, ROWS, compute,
                             &scratch, &ignored) == WM_OK)
    for (int i = 0; i < REPEATS; i++) {
      double start = wm_seconds();
      if (wm_linear_apply(linear, x, ROWS, y, &ignored) != WM_OK)
        break;
      double rate = 2.0 * ROWS * WIDTH * WIDTH / (wm_seconds() - start);
      best = rate > best ? rate : best;
    }
  wm_linear_free(linear);
  wm_gemm_scratch_destroy(&scratch);
  free(memory);
  return best;
}

double wm_stage_rate(const wm_run_t *run) {
  double rate = run->comm->rank == 0 ? product_rate(wm_compute_of(run)) : 0;
  wm_broadcast(run->comm->world, 0, &rate, sizeof rate);
  return rate;
}

int64_t wm_memory_bytes(const wm_run_t *run) {
  return (int64_t)(wm_config_float(run->config, "compute.memory_gib") * 0x1p30);
}

void wm_stage_duration(const wm_run_t *run, double flops, double f32_flops, char *text,
                       size_t size) {
  const wm_compute_t compute = wm_compute_of(run);
  double rate = product_rate(compute);
  double f32_rate =
      compute != WM_COMPUTE_F32 && f32_flops > 0 ? product_rate(WM_COMPUTE_F32) : rate;
  bool known = rate > 0 && f32_rate > 0;
  double seconds = known ? (flops / rate + f32_flops / f32_rate) / run->comm->size : 0;
  if (!known)
    snprintf(text, size, "unknown");
  else if (seconds < 90)
    snprintf(text, size, "%.0f s", seconds < 1 ? 1 : seconds);
  else if (seconds < 5400)
    snprintf(text, size, "%.0f min", seconds / 60);
  else
    snprintf(text, size, "%.1f h", seconds / 3600);
}
