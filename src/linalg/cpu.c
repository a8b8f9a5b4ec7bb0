#include "wanamaker/linalg/cpu.h"

const char *wm_cpu_features(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512bf16"))
    return "AVX-512, bf16";
  if (__builtin_cpu_supports("avx512f"))
    return "AVX-512, no bf16";
  if (__builtin_cpu_supports("avx2"))
    return "AVX2, no bf16";
  return "x86-64 without AVX2";
#else
  return "not x86-64";
#endif
}

bool wm_cpu_bf16(void) {
#if defined(__x86_64__)
  __builtin_cpu_init(); /* what has AMX has AVX512_BF16 too */
  return __builtin_cpu_supports("avx512bf16") != 0;
#else
  return true;
#endif
}
