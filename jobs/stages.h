/* Stages that jobs share: `run` does them one after another on the same inputs. */
#ifndef WANAMAKER_JOBS_STAGES_H
#define WANAMAKER_JOBS_STAGES_H

#include "inputs.h"
#include "wanamaker/measure/records.h"
#include "wanamaker/measure/trunk.h"

/* Collective. Each skips what is complete for the same inputs; in a dry run it says what it would
 * do. *complete: its result is there for these inputs (after a dry run it may not be). */
wm_status_t wm_stage_tokenize(const wm_run_t *run, bool *complete, wm_error_t *err);
wm_status_t wm_stage_fit(const wm_inputs_t *inputs, bool *complete, wm_error_t *err);
/* The same for layers[n] alone, into output.dir/NAME.h5, from the inputs' fit and validation texts.
 */
wm_status_t wm_stage_fit_layers(const wm_inputs_t *inputs, const int64_t *layers, int64_t n,
                                const char *name, bool *complete, wm_error_t *err);
wm_status_t wm_stage_sweep(const wm_inputs_t *inputs, wm_error_t *err);
/* Collective. The surrogate of one layer, fitted on the model `base` (base_key: of all that it is),
 * into the file `path`; what is kept on the way into the folder `parts`. */
wm_status_t wm_stage_fit_on(const wm_inputs_t *inputs, int64_t layer, const wm_base_t *base,
                            uint64_t base_key, const char *path, const char *parts,
                            wm_error_t *err);
/* output.dir/surrogates.joint-SET.ENDING: what fit.sequential fits for a set of sweep.joint. */
wm_status_t wm_joint_path(const wm_run_t *run, int64_t set, const char *ending, char *path,
                          wm_error_t *err);
/* Collective. report.html, tables/ and summary.json of what is in output.dir (or report.inputs). */
wm_status_t wm_stage_report(const wm_run_t *run, wm_error_t *err);
wm_status_t wm_stage_gate(const wm_inputs_t *inputs, wm_error_t *err);
/* Not collective. The gates' settings, as far as they can be checked before there are surrogates.
 */
wm_status_t wm_gate_check(const wm_run_t *run, const wm_arch_t *arch, wm_error_t *err);
/* Range on which gates are chosen: validation, or evaluation as gate.selection says. */
wm_role_t wm_gate_choice(const wm_run_t *run);

/* Collective. WM_INPUT if the tokens of a corpus are there but were made from another text or
 * tokenizer than the settings name. A corpus whose file is gone is left to its tokens. */
wm_status_t wm_tokens_current(const wm_run_t *run, wm_error_t *err);

/* Not collective. Will the sweep's layers exist and have surrogates, once fit.layers are fitted? */
wm_status_t wm_sweep_check(const wm_run_t *run, const wm_arch_t *arch, wm_error_t *err);

/* On rank 0. Prints the records as a table under their description. */
wm_status_t wm_print_records(const wm_run_t *run, const wm_records_t *records, wm_error_t *err);
/* Collective. The records printed by rank 0 and written. */
wm_status_t wm_show_and_write(const wm_run_t *run, const wm_records_t *records, wm_h5_t *file,
                              wm_error_t *err);

/* Collective. Operations per second of a short product of compute.type on rank 0, the same number
 * on all ranks; 0 if it can't be tried. */
double wm_stage_rate(const wm_run_t *run);
/* compute.memory_gib in bytes; 0: no limit. */
int64_t wm_memory_bytes(const wm_run_t *run);

/* An estimate of how long `flops` operations of compute.type and f32_flops of float32, shared out
 * over all ranks, take, e.g. "4 min", from the rates of short products on this rank. */
void wm_stage_duration(const wm_run_t *run, double flops, double f32_flops, char *text,
                       size_t size);

#endif
