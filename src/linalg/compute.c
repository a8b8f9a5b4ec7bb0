/* Types of products: their names, and whether this machine has them. */
#include "wanamaker/linalg/cpu.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/linalg/gemm_backend.h"

#include <stddef.h>
#include <string.h>

static const char *const names[] = {[WM_COMPUTE_F32] = "f32",
                                    [WM_COMPUTE_BF16] = "bf16",
                                    [WM_COMPUTE_BF16_EMULATED] = "bf16_emulated"};

const char *wm_compute_name(wm_compute_t compute) {
  return names[compute];
}

bool wm_compute_parse(const char *name, wm_compute_t *out) {
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
    if (strcmp(name, names[i]) == 0) {
      *out = (wm_compute_t)i;
      return true;
    }
  return false;
}

/* A library may offer bfloat16 on a CPU without the instructions, by slower ones: that is not what
 * is asked for. */
wm_status_t wm_compute_check(wm_compute_t compute, wm_error_t *err) {
  enum { SIZE = 64 };
  if (compute != WM_COMPUTE_BF16)
    return WM_OK;
  wm_error_t reason = {0};
  wm_status_t status = WM_OK;
  if (!wm_cpu_bf16())
    status = wm_fail(&reason, WM_ENVIRONMENT, "no AVX512_BF16 or AMX-BF16 instructions");
  for (int layout = WM_WEIGHT_IN_OUT; status == WM_OK && layout <= WM_WEIGHT_OUT_IN; layout++) {
    wm_gemm_plan_t *plan;
    status = wm_gemm_plan_create(&plan, SIZE, SIZE, SIZE, WM_DTYPE_BF16, (wm_weight_layout_t)layout,
                                 WM_TILES_FIXED, &reason);
    wm_gemm_plan_free(plan);
  }
  if (status == WM_OK)
    return WM_OK;
  return wm_fail(err, WM_ENVIRONMENT,
                 "products in bf16 are not to be had here: %s (CPU: %s; products by %s); use f32, "
                 "or bf16_emulated for the same rounding and memory at the speed of f32",
                 reason.message, wm_cpu_features(), wm_gemm_backend());
}
