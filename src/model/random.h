/* Random weights for models that are made on the fly: any rank can draw any part of any tensor. */
#ifndef WANAMAKER_SRC_MODEL_RANDOM_H
#define WANAMAKER_SRC_MODEL_RANDOM_H

#include "wanamaker/model/arch.h"
#include "weights.h"

/* What weights are drawn from. */
wm_random_t wm_random_of(const wm_arch_t *arch, uint64_t seed);

/* The tensor that a file would hold for `want`: float32, data NULL. Name and file are borrowed. */
wm_tensor_t wm_random_tensor(const wm_want_t *want);

/* out[0 .. n - 1] <- elements first .. first + n - 1 of the wanted tensor: a matrix's are normal, a
 * vector's 1 if its name ends in ".weight" (layer norm) and 0 otherwise. A function of *random,
 * name and place alone. With OpenMP threads. */
void wm_random_fill(const wm_random_t *random, const wm_want_t *want, int64_t first, int64_t n,
                    float *out);

#endif
