/* How long work will take, from the rate of a short product on this machine. */
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/linalg/gemm.h"

#include <stddef.h>

/* Operations per second of the network's products on this rank; 0 if they can't be tried. */
static double product_rate(void) {
  enum { ROWS = 512, WIDTH = 1024, REPEATS = 5 };
  wm_error_t ignored = {0};
  wm_linear_t *linear = NULL;
  void *memory;
  double best = 0;
  if (wm_alloc(&memory, WIDTH * WIDTH + 2 * ROWS * WIDTH, sizeof(float), "a trial product",
               &ignored) != WM_OK)
    return 0;
  float *weight = memory, *x = weight + WIDTH * WIDTH, *y = x + ROWS * WIDTH;
  if (wm_linear_create(&linear, WIDTH, WIDTH, weight, WM_WEIGHT_IN_OUT, NULL, WM_ACT_NONE, ROWS,
                       &ignored) == WM_OK)
    for (int i = 0; i < REPEATS; i++) {
      double start = wm_seconds();
      if (wm_linear_apply(linear, x, ROWS, y, &ignored) != WM_OK)
        break;
      double rate = 2.0 * ROWS * WIDTH * WIDTH / (wm_seconds() - start);
      best = rate > best ? rate : best;
    }
  wm_linear_free(linear);
  free(memory);
  return best;
}

double wm_stage_rate(const wm_run_t *run) {
  double rate = run->comm->rank == 0 ? product_rate() : 0;
  wm_broadcast(run->comm->world, 0, &rate, sizeof rate);
  return rate;
}

int64_t wm_memory_bytes(const wm_run_t *run) {
  return (int64_t)(wm_config_float(run->config, "compute.memory_gib") * 0x1p30);
}

void wm_stage_duration(const wm_run_t *run, double flops, char *text, size_t size) {
  double rate = product_rate() * run->comm->size;
  double seconds = rate > 0 ? flops / rate : 0;
  if (rate <= 0)
    snprintf(text, size, "unknown");
  else if (seconds < 90)
    snprintf(text, size, "%.0f s", seconds < 1 ? 1 : seconds);
  else if (seconds < 5400)
    snprintf(text, size, "%.0f min", seconds / 60);
  else
    snprintf(text, size, "%.1f h", seconds / 3600);
}
