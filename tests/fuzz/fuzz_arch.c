/* Input: config.json of a model. */
#include "fuzz.h"

#include "wanamaker/model/arch.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

static void check(const wm_arch_t *a) {
  assert(a->n_layers > 0 && a->n_heads > 0 && a->d_model > 0 && a->d_mlp > 0);
  assert(a->vocab_size > 0 && a->max_positions > 0);
  assert(a->d_head * a->n_heads == a->d_model);
  assert(isfinite(a->layer_norm_eps) && a->layer_norm_eps >= 0);
  if (a->family == WM_FAMILY_GPT_NEOX) {
    assert(a->rotary_dims >= 0 && a->rotary_dims <= a->d_head && a->rotary_dims % 2 == 0);
    assert(isfinite(a->rotary_base) && a->rotary_base > 0);
  }
  assert(wm_arch_flops_layer(a) > 0 && wm_arch_flops_head(a) > 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_write("config.json", (fuzz_bytes_t){(const char *)data, size});
  wm_error_t err = {0};
  wm_arch_t arch;
  wm_status_t status = wm_arch_read(fuzz_directory(), &arch, &err);
  fuzz_check_failure(status, &err, WM_INPUT, "config.json");
  if (status == WM_OK)
    check(&arch);
  char *unknown;
  wm_status_t listed = wm_arch_unknown_keys(fuzz_directory(), &unknown, &err);
  fuzz_check_failure(listed, &err, WM_INPUT, "config.json");
  assert(listed == WM_OK || status != WM_OK);
  assert((listed == WM_OK) == (unknown != NULL));
  free(unknown);
  return 0;
}
