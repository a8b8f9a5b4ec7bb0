#include "joint.h"

#include "gate_sequential.h"
#include "losses.h"
#include "stages.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/report/table.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

/* --- sums of single costs -----------------------------------------------------------------------
 */

static bool same_change(const wm_change_t *a, const wm_change_t *b) {
  if (a->layer != b->layer || a->gate != b->gate)
    return false;
  return a->gate < 0 || a->threshold == b->threshold ||
         (isnan(a->threshold) && isnan(b->threshold));
}

/* The variant that makes this change alone; -1: there is none. */
static int64_t single(const wm_variants_t *variants, const wm_change_t *change) {
  for (int64_t v = 1; v < variants->n; v++) {
    int64_t n;
    const wm_change_t *c = wm_variants_changes(variants, v, &n);
    if (n == 1 && same_change(c, change))
      return v;
  }
  return -1;
}

double wm_joint_sum_of_singles(const wm_sweep_t *s, int64_t variant) {
  int64_t n;
  const wm_change_t *changes = wm_variants_changes(s->variants, variant, &n);
  double sum = 0;
  for (int64_t i = 0; i < n; i++) {
    const int64_t v = single(s->variants, &changes[i]);
    sum += v >= 0 ? s->effects[v].delta : NAN;
  }
  return n > 1 ? sum : NAN;
}

/* --- surrogates fitted one after the other ------------------------------------------------------
 */

/* The variant that changes the layers of a set, all of them linear or all routed, and nothing else;
 * -1: there is none. */
static int64_t find_set(const wm_variants_t *variants, const int64_t *layers, int64_t n,
                        bool routed) {
  for (int64_t v = 1; v < variants->n; v++) {
    int64_t count;
    const wm_change_t *c = wm_variants_changes(variants, v, &count);
    bool same = count == n;
    for (int64_t i = 0; i < n && same; i++) { /* a set names a layer once */
      const wm_change_t *at = wm_variants_change(variants, v, layers[i]);
      same = at != NULL && (at->gate >= 0) == routed;
    }
    if (same && c != NULL)
      return v;
  }
  return -1;
}

typedef struct {
  wm_effect_t effect;
  double routed;
  int64_t variant; /* of the sweep */
} joint_t;

/* Collective. Set number `set` with its own surrogates on the sweep's text. */
static wm_status_t measure_set(const wm_inputs_t *in, int64_t set, const int64_t *layers, int64_t n,
                               joint_t *out, wm_error_t *err) {
  const wm_run_t *run = in->run;
  const wm_arch_t *arch = wm_model_arch(in->model);
  char path[WM_PATH_SIZE], name[64];
  wm_surrogates_t *surrogates = NULL;
  wm_variants_t variants = {0};
  wm_sweep_t sweep = {0};
  wm_status_t status;
  snprintf(name, sizeof name, "losses.joint-%" PRId64, set);
  WM_TRY(wm_joint_path(run, set, "h5", path, err));
  if (run->comm->rank == 0 && access(path, R_OK) != 0)
    status = wm_fail(err, WM_INPUT,
                     "%s: cannot read it; with fit.sequential the job fit makes surrogates for the "
                     "sets of sweep.joint: run it again",
                     path);
  WM_TRY(wm_agree(run->comm->world, status, err));
  WM_TRY(wm_surrogates_open(run->comm, path, arch->n_layers, arch->d_model,
                            wm_config_int(run->config, "compute.tile_rows"), wm_compute_of(run),
                            &surrogates, err));
  WM_TRY(wm_stage_same_fit(in, path, err));
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    if (!wm_surrogates_has(surrogates, layers[i]))
      status = wm_fail(err, WM_INPUT,
                       "%s: is of another set of layers (it lacks layer %" PRId64
                       "); run the job fit again",
                       path, layers[i]);
  if (status == WM_OK)
    status = wm_variants_create(&variants, err);
  if (status == WM_OK)
    status = wm_variants_add(&variants, layers, n, arch->n_layers, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  wm_losses_stage_t stage = {.in = in,
                             .text = &in->text[WM_ROLE_EVALUATION],
                             .surrogates = surrogates,
                             .variants = &variants,
                             .name = name};
  WM_TRY(wm_losses_prepare(&stage, err));
  WM_TRY(wm_losses_obtain(&stage, &sweep, err));
  out->effect = sweep.effects[1];
cleanup:
  wm_sweep_destroy(&sweep);
  wm_variants_destroy(&variants);
  wm_surrogates_close(surrogates);
  return status;
}

/* --- gates fitted one after the other -----------------------------------------------------------
 */

/* Collective. Routed set number `set` with its own surrogates and gates on the sweep's text; an
 * effect that is not defined if there are none. */
static wm_status_t measure_routed(const wm_inputs_t *in, const wm_surrogates_t *untouched,
                                  int64_t set, const int64_t *layers, int64_t n, joint_t *out,
                                  wm_error_t *err) {
  const wm_run_t *run = in->run;
  wm_sequence_t sequence = {0};
  wm_variants_t variants = {0};
  wm_sweep_t sweep = {0};
  char name[64];
  wm_status_t status;
  out->effect = wm_effect_undefined();
  WM_TRY(wm_sequence_read(in, untouched, set, layers, n, &sequence, err));
  if (sequence.n == 0)
    goto cleanup;
  snprintf(name, sizeof name, "losses.routed-%" PRId64, set);
  status = wm_variants_create(&variants, err);
  variants.gates = sequence.gates;
  if (status == WM_OK)
    status = wm_variants_add_changes(&variants, sequence.changes, sequence.n,
                                     wm_model_arch(in->model)->n_layers, err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  wm_losses_stage_t stage = {.in = in,
                             .text = &in->text[WM_ROLE_EVALUATION],
                             .surrogates = sequence.surrogates,
                             .variants = &variants,
                             .name = name};
  WM_TRY(wm_losses_prepare(&stage, err));
  WM_TRY(wm_losses_obtain(&stage, &sweep, err));
  out->effect = sweep.effects[1];
  out->routed = sweep.measures[1].routed;
cleanup:
  wm_sweep_destroy(&sweep);
  wm_variants_destroy(&variants);
  wm_sequence_destroy(&sequence);
  return status;
}

/* --- table --------------------------------------------------------------------------------------
 */

static wm_status_t print(const wm_inputs_t *in, const wm_sweep_t *s, const joint_t *joint,
                         int64_t n, bool routed, wm_error_t *err) {
  char interval[48];
  snprintf(interval, sizeof interval, "%.4g %% interval",
           100 * wm_config_float(in->run->config, "bootstrap.confidence"));
  const wm_column_t columns[] = {{"layers", NULL, WM_ALIGN_LEFT, 0},
                                 {"sum of single", "%", WM_ALIGN_RIGHT, 3},
                                 {"untouched", "joint, %", WM_ALIGN_RIGHT, 3},
                                 {"untouched", interval, WM_ALIGN_RIGHT, 0},
                                 {"sequential", "joint, %", WM_ALIGN_RIGHT, 3},
                                 {"sequential", interval, WM_ALIGN_RIGHT, 0},
                                 {"untouched", "routed, %", WM_ALIGN_RIGHT, 1},
                                 {"sequential", "routed, %", WM_ALIGN_RIGHT, 1}};
  wm_table_t *t;
  wm_status_t status = wm_table_create(columns, routed ? 8 : 6, &t, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < n; i++) {
    const wm_effect_t *once = &s->effects[joint[i].variant], *after = &joint[i].effect;
    char label[128], bounds[96];
    wm_variants_label(s->variants, joint[i].variant, label, sizeof label);
    wm_table_text(t, label);
    wm_table_float(t, wm_joint_sum_of_singles(s, joint[i].variant));
    wm_table_float(t, once->delta);
    wm_interval_text(once->low, once->high, bounds, sizeof bounds);
    wm_table_text(t, bounds);
    wm_table_float(t, after->delta);
    wm_interval_text(after->low, after->high, bounds, sizeof bounds);
    wm_table_text(t, bounds);
    if (routed) {
      wm_table_float(t, 100 * s->measures[joint[i].variant].routed);
      wm_table_float(t, 100 * joint[i].routed);
    }
  }
  fprintf(in->run->out,
          "\n%s fitted on the untouched model, and sequentially (each on the model in "
          "which those before it are %s):\n",
          routed ? "surrogates and gates" : "surrogates", routed ? "routed" : "replaced");
  status = wm_table_print(t, WM_TABLE_TEXT, in->run->out, err);
  wm_table_free(t);
  return status;
}

/* Collective. All sets of one setting, and their table. */
static wm_status_t compare(const wm_inputs_t *in, const wm_surrogates_t *untouched,
                           const wm_sweep_t *s, const char *setting, bool routed, wm_error_t *err) {
  const wm_run_t *run = in->run;
  const int64_t *offsets;
  int64_t n;
  const int64_t *sets = wm_config_lists(run->config, setting, &offsets, &n);
  void *memory;
  wm_status_t status;
  if (n == 0)
    return WM_OK;
  status = wm_alloc(&memory, n, sizeof(joint_t), "joint sets", err);
  joint_t *joint = memory;
  WM_TRY(wm_agree(run->comm->world, status, err));
  for (int64_t i = 0; i < n; i++) {
    const int64_t *layers = sets + offsets[i], count = offsets[i + 1] - offsets[i];
    joint[i].variant = find_set(s->variants, layers, count, routed);
    joint[i].routed = NAN;
    WM_TRY(routed ? measure_routed(in, untouched, i, layers, count, &joint[i], err)
                  : measure_set(in, i, layers, count, &joint[i], err));
  }
  if (run->comm->rank == 0)
    status = wm_output_shown(run, print(in, s, joint, n, routed, err));
  WM_TRY(wm_agree(run->comm->world, status, err));
cleanup:
  free(memory);
  return status;
}

wm_status_t wm_joint_compare(const wm_inputs_t *in, const wm_surrogates_t *untouched,
                             const wm_sweep_t *s, wm_error_t *err) {
  wm_status_t status;
  if (!wm_config_bool(in->run->config, "fit.sequential"))
    return WM_OK;
  WM_TRY(compare(in, untouched, s, "sweep.joint", false, err));
  if (s->variants->gates != NULL)
    WM_TRY(compare(in, untouched, s, "sweep.routed", true, err));
cleanup:
  return status;
}
