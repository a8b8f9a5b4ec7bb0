/* What the processor offers to matrix products. */
#ifndef WANAMAKER_LINALG_CPU_H
#define WANAMAKER_LINALG_CPU_H

#include <stdbool.h>

/* "AVX2", "AVX-512, bf16", ... */
const char *wm_cpu_features(void);
/* Has it instructions that multiply bfloat16 numbers? On processors other than x86-64 the answer is
 * yes: there the library of products is asked alone. */
bool wm_cpu_bf16(void);

#endif
