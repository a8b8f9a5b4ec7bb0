/* Which token types lie at the two ends of a gate's direction, and the datasets that say it. */
#ifndef WANAMAKER_MEASURE_GATE_ENDS_H
#define WANAMAKER_MEASURE_GATE_ENDS_H

#include "wanamaker/base/status.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/windows.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

enum { WM_GATE_ENDS = 10 }; /* token types at each end of a direction */

/* Token types (of the input, method.md, section 7) whose positions have the highest and the lowest
 * mean score of the layer's linear gate on the fit's text. */
typedef struct {
  int32_t token[2][WM_GATE_ENDS];                        /* high, low; outermost first; -1: none */
  double count[2][WM_GATE_ENDS];                         /* positions */
  double score[2][WM_GATE_ENDS], delta[2][WM_GATE_ENDS]; /* means; NaN: none */
} wm_gate_ends_t;

/* Not collective. windows: of the text, ids: of its corpus; losses of the full model and of the
 * surrogate, and scores of the gate: [N], by the number of the prediction. Positions whose delta
 * and score are finite count; types with fewer than least_count of them are left out. */
wm_status_t wm_gate_ends_find(const wm_windows_t *windows, const int32_t *ids, const float *full,
                              const float *linear, const double *scores, int64_t least_count,
                              wm_gate_ends_t *out, wm_error_t *err);

/* Collective. Adds datasets /ends/token, /ends/count, /ends/score, /ends/delta, each
 * [n_layers, 2, WM_GATE_ENDS], to a file that is being written. */
wm_status_t wm_gate_ends_write(const wm_gate_ends_t *ends, int64_t n_layers, const wm_comm_t *comm,
                               wm_h5_t *file, wm_error_t *err);
/* Collective. Reads them again. */
wm_status_t wm_gate_ends_read(wm_gate_ends_t *ends, int64_t n_layers, wm_h5_t *file,
                              wm_error_t *err);

#endif
