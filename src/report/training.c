/* What the files of trainings say: where plan and control end, how they stand beside each other at
 * equal tokens, and how fast they were. */
#include "results_internal.h"
#include "wanamaker/measure/effects.h"

#include <math.h>
#include <string.h>

/* ---- evaluations ----------------------------------------------------------------------------- */

const wm_frame_t *wm_training_range(const wm_training_result_t *t, const char *name) {
  for (int i = 0; i < t->n; i++)
    if (strcmp(t->ranges[i].name, name) == 0)
      return &t->ranges[i].table;
  return NULL;
}

int64_t wm_training_end(const wm_frame_t *table) {
  int64_t last = -1;
  for (int64_t i = 1; table != NULL && i < table->n; i++)
    if (wm_frame_number(table, i, "hard") == 0)
      last = i;
  return last;
}

bool wm_training_is_fair(const wm_results_t *r) {
  const wm_attributes_t *a = &r->files[WM_FILE_FINETUNE].attributes;
  const wm_attributes_t *b = &r->files[WM_FILE_CONTROL].attributes;
  return strcmp(wm_attribute(a, "tokens_seen"), wm_attribute(b, "tokens_seen")) == 0 &&
         strcmp(wm_attribute(a, "chain"), wm_attribute(b, "chain")) == 0;
}

bool wm_training_has_rival(const wm_results_t *r) {
  const char *plan = wm_attribute(&r->files[WM_FILE_FINETUNE].attributes, "plan");
  return strncmp(plan, "control", strlen("control")) != 0 && strcmp(plan, "pretrain") != 0;
}

/* ---- speed ----------------------------------------------------------------------------------- */

wm_training_speed_t wm_training_speed(const wm_results_t *r, wm_file_kind_t kind) {
  const wm_attributes_t *a = &r->files[kind].attributes;
  const wm_frame_t *timing = kind == WM_FILE_CONTROL ? &r->control.timing : &r->training.timing;
  wm_training_speed_t speed = {.ranks = wm_attribute_number(a, "ranks"),
                               .threads = wm_attribute_number(a, "threads"),
                               .steps = wm_attribute_number(a, "steps"),
                               .median = wm_attribute_number(a, "step_seconds"),
                               .longest = NAN,
                               .tokens_per_second = wm_attribute_number(a, "tokens_per_second"),
                               .exposed = wm_attribute_number(a, "exposed_percent"),
                               .read_tokens_per_second =
                                   wm_attribute_number(a, "read_tokens_per_second")};
  for (int64_t i = 0; i < timing->n; i++)
    speed.longest = fmax(speed.longest, wm_frame_number(timing, i, "seconds"));
  return speed;
}

/* ---- against the control --------------------------------------------------------------------- */

const char *wm_standing_name(wm_standing_t standing) {
  static const char *const names[] = {[WM_BETTER] = "better than its control",
                                      [WM_WORSE] = "worse than its control",
                                      [WM_SAME] = "cannot be told apart",
                                      [WM_UNJUDGED] = "not judged"};
  return names[standing];
}

wm_compared_t wm_compared(const wm_frame_t *comparison, int64_t row, const char **range) {
  static const char *const who[] = {[WM_COMPARED_CONTROL] = "control: ",
                                    [WM_COMPARED_PLAN] = "plan: ",
                                    [WM_COMPARED_HARD] = "plan, gates that decide: "};
  const char *name = wm_frame_text(comparison, row, "name");
  for (int k = WM_COMPARED_CONTROL; k <= WM_COMPARED_HARD; k++)
    if (strncmp(name, who[k], strlen(who[k])) == 0) {
      *range = name + strlen(who[k]);
      return (wm_compared_t)k;
    }
  *range = "";
  return WM_COMPARED_NOTHING;
}

/* As the job finetune says it of the same numbers. */
static wm_standing_t judge(const wm_against_t *a, double confidence) {
  if (isnan(a->delta) || isnan(a->low) || isnan(a->high) || isnan(a->p_holm) || isnan(a->units) ||
      !(confidence > 0 && confidence < 1))
    return WM_UNJUDGED;
  const wm_effect_t effect = {.units = (int64_t)a->units, .p_holm = a->p_holm};
  if (!wm_effect_significant(&effect, 1 - confidence))
    return WM_SAME;
  return a->delta < 0 ? WM_BETTER : WM_WORSE;
}

double wm_against_confidence(const wm_results_t *r) {
  return wm_configuration_number(
      wm_attribute(&r->files[WM_FILE_COMPARE].attributes, "configuration"), "bootstrap",
      "confidence");
}

bool wm_against(const wm_results_t *r, int64_t row, wm_against_t *out) {
  const wm_frame_t *f = &r->comparison;
  const char *range;
  const wm_compared_t what = wm_compared(f, row, &range);
  if (what != WM_COMPARED_PLAN && what != WM_COMPARED_HARD)
    return false;
  const int64_t control = row - (int64_t)what; /* a range's rows begin with its control */
  *out = (wm_against_t){.hard = what == WM_COMPARED_HARD,
                        .control_ppl = wm_frame_number(f, control, "ppl"),
                        .ppl = wm_frame_number(f, row, "ppl"),
                        .delta = wm_frame_number(f, row, "delta_pct"),
                        .low = wm_frame_number(f, row, "low"),
                        .high = wm_frame_number(f, row, "high"),
                        .p_two_sided = wm_frame_number(f, row, "p_two_sided"),
                        .p_holm = wm_frame_number(f, row, "p_holm"),
                        .units = wm_frame_number(f, row, "units")};
  wm_compared(f, control + 1, &range); /* names are cut short at its end, least in this row */
  snprintf(out->range, sizeof out->range, "%s", range);
  out->standing = judge(out, wm_against_confidence(r));
  return true;
}

bool wm_against_evaluation(const wm_results_t *r, wm_against_t *out) {
  for (int64_t row = 0; row < r->comparison.n; row++)
    if (wm_against(r, row, out) && !out->hard && strcmp(out->range, "evaluation") == 0)
      return true;
  return false;
}

const char *wm_against_state(const wm_results_t *r) {
  if (r->files[WM_FILE_COMPARE].state == WM_FILE_READ)
    return "compared";
  if (r->control.n == 0)
    return "no control here";
  if (r->training.n == 0)
    return "no plan here";
  if (!wm_training_is_fair(r))
    return "control saw other tokens";
  return r->files[WM_FILE_COMPARE].state == WM_FILE_BAD ? "comparison refused" : "not compared yet";
}
