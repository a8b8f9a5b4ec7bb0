/* Random weights for models that are made on the fly: any rank can draw any part of any tensor. */
#ifndef WANAMAKER_SRC_MODEL_RANDOM_H
#define WANAMAKER_SRC_MODEL_RANDOM_H

#include "weights.h"

/* The tensor that a file would hold for `want`: float32, data NULL. Name and file are borrowed. */
wm_tensor_t wm_random_tensor(const wm_want_t *want);

/* out[0 .. n - 1] <- elements first .. first + n - 1 of the wanted tensor: a matrix's are normal
 * with deviation 0.02, a vector's 1 if its name ends in ".weight" (layer norm) and 0 otherwise. A
 * function of seed, name and place alone. With OpenMP threads. */
void wm_random_fill(uint64_t seed, const wm_want_t *want, int64_t first, int64_t n, float *out);

#endif
