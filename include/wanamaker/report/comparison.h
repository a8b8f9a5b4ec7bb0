/* Two runs side by side: what changed in inputs, settings and results. Not collective. */
#ifndef WANAMAKER_REPORT_COMPARISON_H
#define WANAMAKER_REPORT_COMPARISON_H

#include "wanamaker/report/results.h"

#include <stdio.h>

/* Prints, to `out`: files that only one has; root attributes that differ (of their making:
 * versions, fingerprints, ranges, ranks); settings that differ; every layer's cost in both, and
 * that of gates and sets of layers that both have; where their trainings end, and what each plan is
 * beside its control at equal tokens; with "apart" where the two intervals do not touch. Costs on
 * different texts are compared all the same, and that is said. WM_ENVIRONMENT: memory, or the
 * stream fails. */
wm_status_t wm_comparison_print(const wm_results_t *a, const wm_results_t *b, FILE *out,
                                wm_error_t *err);

#endif
