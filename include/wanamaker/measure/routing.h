/* Hard routing: every token's MLP output is computed by one path only (method.md, section 5).
 *
 *   x [rows, D]      route    gathered, a tile at a time      y [rows, D]
 *   ------------              --------------------------      ------------
 *   token 0            0  ->  MLP:        tokens 0, 2, 3  ->  scattered to
 *   token 1            1  ->  surrogate:  tokens 1, 4     ->  their places
 *   ...                       (each tile padded with zeros)
 *
 * A row's bits are those that the full MLP or the surrogate gives it among any other rows, for
 * products in fixed tiles tell no rows apart (linalg/gemm.h); that does not hold for some kernels
 * of CBLAS (wm_sweep_cells_are_independent), nor for fitted tiles. With those, time follows the
 * number of rows of either route. When all rows are on one route nothing is copied.
 */
#ifndef WANAMAKER_MEASURE_ROUTING_H
#define WANAMAKER_MEASURE_ROUTING_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/model/model.h"

#include <stdint.h>

/* A row's route. Any other byte than 0 is the surrogate. */
enum { WM_ROUTE_MLP = 0, WM_ROUTE_SURROGATE = 1 };

/* Scratch memory of one caller, for at most max_rows rows at once. Not collective. */
typedef struct wm_routing wm_routing_t;
wm_status_t wm_routing_create(const wm_model_t *model, int64_t max_rows, wm_routing_t **out,
                              wm_error_t *err);
/* NULL is allowed. */
void wm_routing_free(wm_routing_t *routing);
/* Bytes that such an object takes. */
int64_t wm_routing_bytes(const wm_model_t *model, int64_t max_rows);

/* y[rows, D] <- MLP or surrogate of `layer` applied to x[rows, D], as route[rows] says. x and y may
 * not overlap; rows = 0 is allowed. The surrogates' products must have the model's tiles; they are
 * needed only where a row asks for one. Both paths and the copies are counted in the model's
 * profile. Not collective; all threads of the process, one caller at a time per
 * model and object. */
wm_status_t wm_routing_apply(wm_routing_t *routing, wm_model_t *model,
                             const wm_surrogates_t *surrogates, int64_t layer, const float *x,
                             const uint8_t *route, int64_t rows, float *y,
                             wm_workspace_t *workspace, wm_error_t *err);

/* The surrogate alone, for all rows, counted in the model's profile. */
wm_status_t wm_routing_surrogate(wm_model_t *model, const wm_surrogates_t *surrogates,
                                 int64_t layer, const float *x, int64_t rows, float *y,
                                 wm_error_t *err);

#endif
