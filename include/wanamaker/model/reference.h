/* The forward pass in plain float64 loops, for tests: one statement of the equations, without
 * tiles, blocks, tables or shared code with the fast kernels. Weights are the model's own, in
 * whatever type it keeps them; nothing else is rounded. */
#ifndef WANAMAKER_MODEL_REFERENCE_H
#define WANAMAKER_MODEL_REFERENCE_H

#include "wanamaker/model/kernels.h"
#include "wanamaker/model/model.h"

/* out[rows, width] = gamma (x - mean) / sqrt(variance + eps) + beta. */
void wm_reference_norm(const wm_norm_t *norm, const double *x, int64_t rows, double *out);

/* wm_rotary_apply for rows 0, 1, ... of one sequence. */
void wm_reference_rotary(int64_t dims, double base, const wm_qkv_layout_t *layout, int64_t rows,
                         double *qkv);

/* wm_attention_apply for one sequence; out: [rows, n_heads * d_head]. */
void wm_reference_attention(const wm_qkv_layout_t *layout, const double *qkv, int64_t rows,
                            double scale, double *out);

/* -log softmax(logits[width])[target] */
double wm_reference_nll(const double *logits, int64_t width, int64_t target);

/* One sequence ids[n] through the model. x, y: [L, n, D], the MLPs' inputs and outputs; logits:
 * [n, V]. x and y may be NULL. */
wm_status_t wm_reference_forward(const wm_model_t *model, const int32_t *ids, int64_t n, double *x,
                                 double *y, double *logits, wm_error_t *err);

#endif
