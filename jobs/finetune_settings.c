/* finetune: from settings to plan, data order and options. */
#include "finetune.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/hdf5.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* --- layers -------------------------------------------------------------------------------------
 */

typedef struct {
  double cost;
  int64_t layer;
} priced_t;

static int by_cost(const void *a, const void *b) {
  const priced_t *x = a, *y = b;
  if (x->cost != y->cost)
    return x->cost < y->cost ? -1 : 1;
  return x->layer < y->layer ? -1 : x->layer > y->layer;
}

/* Collective. Is the file a sweep, and of the model that is trained? */
static wm_status_t check_sweep(const wm_model_t *model, wm_h5_t *file, wm_error_t *err) {
  char own[WM_HASH_TEXT], *stage = NULL, *of = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_get_string(file, "/", "stage", &stage, err));
  if (strcmp(stage, "sweep") != 0)
    WM_TRY(wm_fail(err, WM_INPUT,
                   "%s: is a result of %s; finetune.sweep must be a sweep.h5, of the job sweep",
                   wm_h5_path(file), stage));
  WM_TRY(wm_h5_get_string(file, "/", "model_fingerprint", &of, err));
  wm_hash_text(wm_model_fingerprint(model), own);
  if (strcmp(of, own) != 0)
    status = wm_fail(err, WM_INPUT,
                     "%s: its costs are of another model than model.path's; see finetune.sweep",
                     wm_h5_path(file));
cleanup:
  free(stage);
  free(of);
  return status;
}

/* Collective. Costs of layers changed alone and everywhere, from a sweep's losses; NaN: unknown.
 * costs: [n_layers]. */
static wm_status_t read_costs(const wm_run_t *run, const wm_model_t *model, int64_t n_layers,
                              double *costs, wm_error_t *err) {
  const char *path = wm_config_string(run->config, "finetune.sweep");
  wm_h5_t *file = NULL;
  void *memory = NULL, *losses = NULL;
  int64_t n, zero = 0, dims[2];
  wm_status_t status;
  if (path[0] == '\0')
    return wm_fail(err, WM_USAGE,
                   "finetune.order = \"cheapest\" needs finetune.sweep, a sweep.h5 with the "
                   "layers' costs");
  WM_TRY(wm_h5_open(run->comm->world, path, &file, err));
  WM_TRY(wm_h5_verify(file, err));
  WM_TRY(wm_agree(run->comm->world, check_sweep(model, file, err), err));
  WM_TRY(wm_h5_dims(file, "/changes/variant", 1, &n, err));
  WM_TRY(wm_h5_dims(file, "/nll", 2, dims, err));
  status = wm_alloc(&memory, 3 * n, sizeof(int64_t), "a sweep's changes", err);
  if (status == WM_OK)
    status = wm_alloc(&losses, dims[1], sizeof(float), "a sweep's losses", err);
  WM_TRY(wm_agree(run->comm->world, status, err));
  int64_t *variant = memory, *layer = variant + n, *gate = layer + n;
  float *nll = losses;
  WM_TRY(wm_h5_read(file, "/changes/variant", H5T_NATIVE_INT64, &zero, &n, variant, err));
  WM_TRY(wm_h5_read(file, "/changes/layer", H5T_NATIVE_INT64, &zero, &n, layer, err));
  WM_TRY(wm_h5_read(file, "/changes/gate", H5T_NATIVE_INT64, &zero, &n, gate, err));
  for (int64_t i = 0; i < n; i++) {
    bool alone = (i == 0 || variant[i - 1] != variant[i]) &&
                 (i + 1 == n || variant[i + 1] != variant[i]) && gate[i] < 0;
    int64_t offset[2] = {variant[i], 0}, count[2] = {1, dims[1]};
    if (!alone || layer[i] < 0 || layer[i] >= n_layers)
      continue;
    WM_TRY(wm_h5_read(file, "/nll", H5T_NATIVE_FLOAT, offset, count, nll, err));
    costs[layer[i]] = wm_sum_nll(nll, dims[1]); /* their order is that of the perplexities */
  }
cleanup:
  wm_h5_close(file);
  free(memory);
  free(losses);
  return status;
}

/* Collective. order[L] <- all layers, the cheapest first. */
static wm_status_t order_by_cost(const wm_finetune_t *f, const wm_model_t *model,
                                 const int64_t *wanted, int64_t n_wanted, int64_t *order,
                                 wm_error_t *err) {
  const int64_t n_layers = wm_model_arch(model)->n_layers;
  void *costs = NULL, *sorted = NULL;
  wm_status_t status = wm_alloc(&costs, n_layers, sizeof(double), "costs", err);
  if (status == WM_OK)
    status = wm_alloc(&sorted, n_layers, sizeof(priced_t), "costs", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  priced_t *p = sorted;
  double *cost = costs;
  for (int64_t i = 0; i < n_layers; i++)
    cost[i] = NAN;
  WM_TRY(read_costs(f->run, model, n_layers, cost, err));
  for (int64_t i = 0; i < n_wanted; i++)
    if (isnan(cost[wanted[i]])) {
      status = wm_fail(err, WM_INPUT,
                       "%s: has no cost of layer %" PRId64
                       " alone; finetune.order = \"cheapest\" needs those of all its layers",
                       wm_config_string(f->run->config, "finetune.sweep"), wanted[i]);
      goto cleanup;
    }
  for (int64_t i = 0; i < n_layers; i++)
    p[i] = (priced_t){isnan(cost[i]) ? INFINITY : cost[i], i};
  qsort(p, (size_t)n_layers, sizeof *p, by_cost);
  for (int64_t i = 0; i < n_layers; i++)
    order[i] = p[i].layer;
cleanup:
  free(costs);
  free(sorted);
  return status;
}

wm_status_t wm_finetune_layers(const wm_config_t *c, int64_t n_layers, const int64_t *order,
                               int64_t *layers, int64_t *n, wm_error_t *err) {
  const int64_t limit = wm_config_int(c, "finetune.count");
  int64_t count;
  const int64_t *given = wm_config_ints(c, "finetune.layers", &count);
  void *memory;
  wm_status_t status;
  *n = 0;
  if (count == 0 && order == NULL)
    return WM_OK;
  status = wm_layer_list("finetune.layers", given, count, n_layers, layers, n, err);
  if (status != WM_OK || order == NULL)
    return status;
  status = wm_alloc(&memory, n_layers, sizeof(bool), "layers", err);
  if (status != WM_OK)
    return status;
  bool *chosen = memory;
  for (int64_t i = 0; i < *n; i++)
    chosen[layers[i]] = true;
  *n = 0;
  for (int64_t i = 0; i < n_layers && (limit == 0 || *n < limit); i++)
    if (chosen[order[i]])
      layers[(*n)++] = order[i];
  free(memory);
  return WM_OK;
}

/* Collective. settings.layers; of a progressive plan in its order. */
static wm_status_t read_layers(wm_finetune_t *f, const wm_model_t *model, bool progressive,
                               wm_error_t *err) {
  const wm_config_t *c = f->run->config;
  const int64_t n_layers = wm_model_arch(model)->n_layers;
  int64_t n;
  void *memory;
  wm_status_t status = wm_alloc(&memory, 2 * n_layers, sizeof(int64_t), "layers", err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  f->layers = memory;
  int64_t *order = f->layers + n_layers;
  wm_plan_centre_outward(n_layers, order);
  if (progressive && strcmp(wm_config_string(c, "finetune.order"), "cheapest") == 0) {
    int64_t count;
    const int64_t *given = wm_config_ints(c, "finetune.layers", &count);
    WM_TRY(wm_layer_list("finetune.layers", given, count, n_layers, f->layers, &n, err));
    WM_TRY(order_by_cost(f, model, f->layers, n, order, err));
  }
  status = wm_finetune_layers(c, n_layers, progressive ? order : NULL, f->layers, &n, err);
  WM_TRY(wm_agree(f->run->comm->world, status, err));
  f->settings.layers = f->layers;
  f->settings.n_layers = n;
cleanup:
  return status;
}

/* --- plan ---------------------------------------------------------------------------------------
 */

/* Bits of the groups that a text names; 0: it names none. */
static wm_status_t read_groups(const wm_config_t *c, const wm_arch_t *arch, uint32_t *out,
                               wm_error_t *err) {
  const char *text = wm_config_string(c, "finetune.train");
  *out = 0;
  while (*(text += strspn(text, " ")) != '\0') {
    size_t length = strcspn(text, " ");
    int g = 0;
    while (g < WM_GROUP_GATES && (strlen(wm_group_name((wm_group_t)g)) != length ||
                                  strncmp(wm_group_name((wm_group_t)g), text, length) != 0))
      g++;
    if (g == WM_GROUP_GATES)
      return wm_fail(err, WM_USAGE,
                     "finetune.train: \"%.*s\" is no group of parameters; there are tokens, "
                     "positions, attention, mlp, norms, final_norm and head",
                     (int)length, text);
    *out |= 1u << (g == WM_GROUP_HEAD && arch->tied_head ? (int)WM_GROUP_TOKENS : g);
    text += length;
  }
  return WM_OK;
}

static wm_schedule_t read_schedule(const wm_config_t *c) {
  const double rate = wm_config_float(c, "finetune.rate");
  const bool cosine = strcmp(wm_config_string(c, "finetune.schedule"), "cosine") == 0;
  return (wm_schedule_t){.kind = cosine ? WM_SCHEDULE_COSINE : WM_SCHEDULE_CONSTANT,
                         .rate = rate,
                         .final = rate * wm_config_float(c, "finetune.final_rate"),
                         .warm_up = wm_config_int(c, "finetune.warm_up")};
}

wm_status_t wm_finetune_plan(const wm_config_t *c, const wm_arch_t *arch, bool control,
                             wm_plan_settings_t *s, bool *progressive, wm_error_t *err) {
  *s = (wm_plan_settings_t){0};
  wm_plan_parse(wm_config_string(c, "finetune.plan"), &s->kind);
  wm_plan_parse(wm_config_string(c, "finetune.control_of"), &s->subject);
  if (control) {
    s->subject = s->kind;
    s->kind = WM_PLAN_CONTROL;
  }
  s->model_layers = arch->n_layers;
  s->tied_head = arch->tied_head;
  s->gated = wm_config_bool(c, "finetune.gated");
  s->steps = wm_config_int(c, "finetune.steps");
  s->layer_steps = wm_config_int(c, "finetune.layer_steps");
  s->gate_steps = wm_config_int(c, "finetune.gate_steps");
  s->schedule = read_schedule(c);
  s->gate_schedule =
      (wm_schedule_t){.kind = WM_SCHEDULE_COSINE, .rate = wm_config_float(c, "finetune.gate_rate")};
  s->adamw = (wm_adamw_t){.beta1 = wm_config_float(c, "finetune.beta1"),
                          .beta2 = wm_config_float(c, "finetune.beta2"),
                          .epsilon = wm_config_float(c, "finetune.epsilon"),
                          .weight_decay = wm_config_float(c, "finetune.weight_decay")};
  s->penalty = wm_config_float(c, "finetune.gate_penalty");
  s->penalty_after = wm_config_float(c, "finetune.gate_penalty_after");
  *progressive = s->kind == WM_PLAN_PROGRESSIVE ||
                 (s->kind != WM_PLAN_LINEARIZE && s->kind != WM_PLAN_TWO_PHASE &&
                  s->kind != WM_PLAN_PRETRAIN && s->subject == WM_PLAN_PROGRESSIVE);
  return read_groups(c, arch, &s->groups, err);
}

/* --- data ---------------------------------------------------------------------------------------
 */

/* Drops the steps that there are no tokens for, from the last phase on. */
static void shorten(wm_plan_t *plan, int64_t steps) {
  plan->steps = 0;
  for (int64_t i = 0; i < plan->n; i++) {
    wm_phase_t *p = &plan->phases[i];
    int64_t left = steps - p->first_data;
    if (p->steps > left)
      p->steps = left > 0 ? left : 0;
    p->first_step = plan->steps;
    plan->steps += p->steps;
  }
}

/* The order, from the settings and the length of the corpus. */
static wm_status_t read_order(wm_finetune_t *f, int64_t tokens, wm_error_t *err) {
  const wm_config_t *c = f->run->config;
  int64_t count;
  const int64_t *range = wm_config_ints(c, "finetune.tokens", &count);
  const char *exhausted = wm_config_string(c, "finetune.exhausted");
  wm_data_order_t *o = &f->order;
  *o = (wm_data_order_t){.end = tokens,
                         .length = wm_config_int(c, "finetune.length"),
                         .sequences = wm_config_int(c, "finetune.sequences"),
                         .wrap = strcmp(exhausted, "wrap") == 0,
                         .seed = (uint64_t)wm_config_int(c, "finetune.seed")};
  if (strcmp(wm_config_string(c, "finetune.starts"), "random") == 0)
    o->starts = WM_STARTS_RANDOM;
  if (count != 0 && (count != 2 || range[0] >= range[1]))
    return wm_fail(err, WM_USAGE, "finetune.tokens must be two numbers [a, b] with a < b");
  if (count == 2 && range[1] > tokens)
    return wm_fail(err, WM_INPUT,
                   "finetune.tokens ends at %" PRId64 ", but corpus %s has %" PRId64 " tokens",
                   range[1], wm_data_info(f->data)->corpus, tokens);
  if (count == 2) {
    o->begin = range[0];
    o->end = range[1];
  }
  int64_t there = wm_data_order_steps(o), wanted = wm_plan_data_steps(&f->plan);
  if (f->plan.steps > INT64_MAX / o->sequences / o->length)
    return wm_fail(err, WM_USAGE,
                   "finetune: %" PRId64 " steps of %" PRId64 " x %" PRId64
                   " tokens are more than can be counted",
                   f->plan.steps, o->sequences, o->length);
  if (there >= wanted)
    return WM_OK;
  if (strcmp(exhausted, "stop") != 0 || there == 0)
    return wm_fail(err, WM_USAGE,
                   "%" PRId64 " steps of %" PRId64 " x %" PRId64
                   " tokens are asked for, but tokens [%" PRId64 ", %" PRId64 ") of corpus %s are "
                   "enough for %" PRId64 "; see finetune.exhausted",
                   wanted, o->sequences, o->length, o->begin, o->end, wm_data_info(f->data)->corpus,
                   there);
  wm_log(f->run->log, WM_LOG_WARN,
         "%s: the tokens are used up after %" PRId64 " of %" PRId64 " steps, where it stops",
         f->stem, there, wanted);
  shorten(&f->plan, there);
  return WM_OK;
}

/* --- everything ---------------------------------------------------------------------------------
 */

static wm_status_t check(const wm_finetune_t *f, const wm_arch_t *arch, wm_error_t *err) {
  const wm_config_t *c = f->run->config;
  if (wm_config_int(c, "finetune.length") > arch->max_positions)
    return wm_fail(err, WM_USAGE,
                   "finetune.length = %" PRId64 ", but the model takes at most %" PRId64
                   " positions",
                   wm_config_int(c, "finetune.length"), arch->max_positions);
  if (wm_config_bool(c, "finetune.dropout")) {
    wm_status_t status = wm_arch_check_dropout(wm_config_string(c, "model.path"), arch, err);
    if (status != WM_OK)
      return status;
  }
  return wm_compute_check(wm_compute_of(f->run), err);
}

wm_status_t wm_finetune_settings(wm_finetune_t *f, const wm_model_t *model, bool control,
                                 wm_error_t *err) {
  const wm_arch_t *arch = wm_model_arch(model);
  const wm_config_t *c = f->run->config;
  bool progressive;
  wm_status_t status;
  WM_TRY(check(f, arch, err));
  WM_TRY(wm_finetune_plan(c, arch, control, &f->settings, &progressive, err));
  WM_TRY(read_layers(f, model, progressive, err));
  WM_TRY(wm_plan_create(&f->settings, &f->plan, err));
  WM_TRY(read_order(f, wm_data_info(f->data)->tokens, err));
  int64_t pass = wm_config_int(c, "finetune.pass_tokens") / f->order.length;
  f->trainer_options = (wm_trainer_options_t){.clip = wm_config_float(c, "finetune.clip"),
                                              .sequences = f->order.sequences,
                                              .length = f->order.length,
                                              .pass_sequences = pass > 0 ? pass : 1};
cleanup:
  return status;
}

wm_training_options_t wm_finetune_options(const wm_finetune_t *f, int64_t phase,
                                          wm_layer_path_t *paths, bool *frozen) {
  const wm_config_t *c = f->run->config;
  const wm_arch_t *arch = wm_model_arch(f->inputs.model);
  int64_t rows = f->trainer_options.pass_sequences * f->order.length, length = f->order.length;
  for (int64_t i = 0; i < f->n_evaluations; i++) {
    const wm_text_t *text = f->evaluations[i].text;
    rows = text->blocks.max_rows > rows ? text->blocks.max_rows : rows;
    length = text->windows.max_length > length ? text->windows.max_length : length;
  }
  const bool dropout = wm_config_bool(c, "finetune.dropout");
  wm_training_options_t o = {.gate_hidden = wm_config_int(c, "finetune.gate_hidden"),
                             .study_gradients =
                                 strcmp(wm_config_string(c, "finetune.gradients"), "study") == 0,
                             .compute = wm_compute_of(f->run),
                             .checkpointing = wm_config_bool(c, "finetune.recompute"),
                             .drop_embedding = dropout ? arch->drop_embedding : 0,
                             .drop_attention = dropout ? arch->drop_attention : 0,
                             .drop_residual = dropout ? arch->drop_residual : 0,
                             .seed = (uint64_t)wm_config_int(c, "finetune.seed"),
                             .max_rows = rows,
                             .max_length = length};
  o.logits_bytes = phase < 0; /* none are kept */
  if (phase < 0)
    return o;
  o.trainable = f->plan.phases[phase].groups;
  o.train_surrogates = f->settings.kind == WM_PLAN_PRETRAIN;
  o.paths = paths;
  o.frozen_mlps = frozen;
  for (int64_t l = 0; l < arch->n_layers; l++) {
    wm_layer_mode_t mode = f->plan.phases[phase].modes[l];
    bool replaced = mode == WM_MODE_LINEAR || mode == WM_MODE_GATED;
    bool known = replaced && f->surrogates != NULL && wm_surrogates_has(f->surrogates, l);
    frozen[l] = mode == WM_MODE_FROZEN;
    paths[l] = (wm_layer_path_t){.path = mode == WM_MODE_LINEAR  ? WM_MLP_SURROGATE
                                         : mode == WM_MODE_GATED ? WM_MLP_GATED
                                                                 : WM_MLP_FULL,
                                 .weight = known ? wm_surrogates_weight(f->surrogates, l) : NULL,
                                 .bias = known ? wm_surrogates_bias(f->surrogates, l) : NULL};
  }
  return o;
}

static uint64_t hash_int(int64_t value, uint64_t h) {
  return wm_hash(&value, sizeof value, h);
}

static uint64_t hash_float(double value, uint64_t h) {
  return wm_hash(&value, sizeof value, h);
}

static uint64_t hash_schedule(const wm_schedule_t *s, uint64_t h) {
  h = hash_float(s->rate, hash_int(s->kind, h));
  h = hash_int(s->warm_up, hash_float(s->final, h));
  return hash_int(s->total_steps, h);
}

static uint64_t hash_phase(const wm_finetune_t *f, const wm_phase_t *p, uint64_t h) {
  const wm_adamw_t *a = &p->adamw;
  const double numbers[] = {a->beta1, a->beta2, a->epsilon, a->weight_decay, p->penalty};
  for (int64_t l = 0; l < f->plan.model_layers; l++)
    h = hash_int(p->modes[l], h);
  h = hash_int(p->groups, h);
  h = hash_int(p->steps, h);
  h = hash_int(p->first_data, h);
  h = hash_int(p->penalty_from, h);
  h = wm_hash(numbers, sizeof numbers, h);
  return hash_schedule(&p->schedule, h);
}

uint64_t wm_finetune_key(const wm_finetune_t *f) {
  const wm_config_t *c = f->run->config;
  const wm_data_info_t *info = wm_data_info(f->data);
  const wm_data_order_t *o = &f->order;
  const int64_t data[] = {(int64_t)info->corpus_fingerprint,
                          (int64_t)info->tokenizer_fingerprint,
                          o->begin,
                          o->end,
                          o->length,
                          o->sequences,
                          o->starts,
                          o->wrap};
  uint64_t h = wm_hash(data, sizeof data, wm_model_fingerprint(f->inputs.model));
  h = wm_hash(info->encoding, strlen(info->encoding), h);
  for (int64_t i = 0; i < f->plan.n; i++)
    h = hash_phase(f, &f->plan.phases[i], h);
  bool fits = f->surrogates != NULL && f->settings.kind != WM_PLAN_PRETRAIN;
  if (fits) {
    h = wm_text_fingerprint(&f->inputs.text[WM_ROLE_FIT], h);
    h = hash_float(wm_config_float(c, "fit.lambda"), h);
  }
  for (int64_t i = 0; i < f->n_evaluations; i++) {
    const char *name = f->evaluations[i].name; /* results have it */
    h = wm_hash(name, strlen(name), wm_text_fingerprint(f->evaluations[i].text, h));
  }
  h = hash_int(wm_config_int(c, "finetune.evaluate_every"), h);
  h = hash_int(wm_config_int(c, "finetune.seed"), h);
  h = hash_int(wm_config_bool(c, "finetune.dropout"), h);
  h = hash_int(wm_config_int(c, "finetune.gate_hidden"), h);
  h = hash_float(f->trainer_options.clip, h);
  const char *gradients = wm_config_string(c, "finetune.gradients");
  h = wm_hash(gradients, strlen(gradients), h);
  h = hash_int(wm_compute_of(f->run), h);
  return wm_hash(f->run->provenance.version, strlen(f->run->provenance.version), h);
}
