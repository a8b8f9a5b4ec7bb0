/* Variants with gates: against a plain forward pass whose rows are picked by hand, against full
 * model and all-linear variants at the ends of the threshold, and the same bits on any number of
 * ranks and from parts. KL and agreement against whole rows of logits. */
#include "test_measure_fixture.h"

#include "../unit/row_order.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/parts.h"
#include "wanamaker/measure/sweep.h"
#include "wanamaker/model/kernels.h"

#include <math.h>

enum { N_TOKENS = 700, BLOCK = 150, MAX_LAYERS = 16 };

/* One model with random surrogates and gates, on one communicator. */
typedef struct {
  wm_model_t *model;
  wm_surrogates_t *surrogates;
  wm_gates_t *gates;
  wm_variants_t variants;
  int64_t n_layers, d, v;
  int32_t ids[N_TOKENS];
  wm_windows_t windows;
  wm_blocks_t blocks;
} case_t;

static wm_comm_t *world, *self;
static char dir[256];

/* --- the case -----------------------------------------------------------------------------------
 */

/* Inputs are normed, so that such gates send some rows here and some there. */
static void add_gate(case_t *c, int64_t layer, wm_gate_kind_t kind) {
  double *weight = zeroed(c->d, sizeof *weight);
  for (int64_t i = 0; i < c->d; i++)
    weight[i] = wm_rng_normal((wm_rng_t){3, (uint64_t)layer}, (uint64_t)i);
  wm_gate_t g = {.layer = layer, .kind = kind, .threshold = 0.5, .fraction = 0.4, .seed = 9};
  g.weight = wm_gate_has_weight(kind) ? weight : NULL;
  g.scale = 1;
  g.bias = kind == WM_GATE_MAX_ABS ? -2.5 : 0;
  OK(wm_gates_add(c->gates, &g, err));
  free(weight);
}

enum { KINDS = 4 };
static const wm_gate_kind_t kinds[KINDS] = {WM_GATE_LINEAR, WM_GATE_MAX_ABS, WM_GATE_RANDOM,
                                            WM_GATE_ORACLE};

static void make_gates(case_t *c) {
  OK(wm_gates_create(c->n_layers, c->d, 0, &c->gates, err));
  for (int64_t l = 0; l < c->n_layers; l++) {
    wm_gate_layer_t layer = {.layer = l, .selected = -1};
    OK(wm_gates_add_layer(c->gates, &layer, err));
    for (int k = 0; k < KINDS; k++)
      add_gate(c, l, kinds[k]);
  }
}

static int64_t gate_of(int64_t layer, int kind) {
  return layer * KINDS + kind;
}

static void add(case_t *c, const wm_change_t *changes, int64_t n) {
  OK(wm_variants_add_changes(&c->variants, changes, n, c->n_layers, err));
}

/* Every layer with its surrogate and all kinds, compounds of all paths in front of layer 1's, and
 * oracles behind all others. */
static void make_variants(case_t *c) {
  OK(wm_variants_create(&c->variants, err));
  c->variants.gates = c->gates;
  for (int64_t l = 0; l < c->n_layers; l++) {
    add(c, &(wm_change_t){l, -1, 0}, 1);
    for (int k = 0; k < KINDS - 1; k++)
      add(c, &(wm_change_t){l, gate_of(l, k), 0.4}, 1);
    add(c, &(wm_change_t){l, gate_of(l, 0), 0.9}, 1);
    if (l == 0) {
      add(c, (wm_change_t[]){{0, gate_of(0, 0), 0.5}, {1, -1, 0}, {2, gate_of(2, 1), 0.5}}, 3);
      add(c, (wm_change_t[]){{2, gate_of(2, 0), 0.5}, {0, -1, 0}, {1, gate_of(1, 2), 0}}, 3);
    }
  }
  for (int64_t l = 0; l < c->n_layers; l++)
    if (l == 1)
      add(c, (wm_change_t[]){{1, gate_of(1, 3), 0}, {2, gate_of(2, 3), 0}}, 2);
    else
      add(c, &(wm_change_t){l, gate_of(l, 3), 0}, 1);
}

/* Random models of odd sizes; tiles do not divide rows or vocabulary. */
static const char *const configs[2] = {
    "{\"model_type\": \"gpt2\", \"n_embd\": 36, \"n_head\": 3, \"n_layer\": 5, \"n_inner\": 50, "
    "\"n_positions\": 64, \"vocab_size\": 211, \"activation_function\": \"gelu_new\", "
    "\"layer_norm_epsilon\": 1e-5}",
    "{\"model_type\": \"gpt_neox\", \"hidden_size\": 36, \"num_attention_heads\": 3, "
    "\"num_hidden_layers\": 4, \"intermediate_size\": 50, \"max_position_embeddings\": 64, "
    "\"vocab_size\": 211, \"hidden_act\": \"gelu\", \"layer_norm_eps\": 1e-5, \"rotary_pct\": 0.5, "
    "\"rotary_emb_base\": 10000, \"use_parallel_residual\": true, \"tie_word_embeddings\": false}"};

static wm_model_t *open_any(const wm_comm_t *comm, const char *name) {
  if (strncmp(name, "demo", 4) == 0)
    return open_demo(comm, name, WM_COMPUTE_F32, false);
  char path[300];
  snprintf(path, sizeof path, "%s/%s.json", dir, name);
  wm_model_options_t options = {.tile_rows = TILE, .tile_vocab = 64};
  wm_model_t *model = NULL;
  OK(wm_model_create_random(comm, path, 17, &options, NULL, &model, err));
  return model;
}

static void open_case(const wm_comm_t *comm, const char *name, case_t *c) {
  *c = (case_t){.model = open_any(comm, name)};
  const wm_arch_t *a = wm_model_arch(c->model);
  c->n_layers = a->n_layers;
  c->d = a->d_model;
  c->v = a->vocab_size;
  assert_true(c->n_layers >= 3 && c->n_layers <= MAX_LAYERS);
  OK(wm_surrogates_create_random(comm, c->n_layers, c->d, TILE, WM_COMPUTE_F32, 5, &c->surrogates,
                                 err));
  draw_ids(c->ids, N_TOKENS);
  for (int i = 0; i < N_TOKENS; i++)
    c->ids[i] %= (int32_t)c->v;
  cut_tokens(c->ids, N_TOKENS, 13, N_TOKENS, BLOCK, "evaluation", &c->windows, &c->blocks);
  make_gates(c);
  make_variants(c);
}

static void close_case(case_t *c) {
  wm_blocks_destroy(&c->blocks);
  wm_windows_destroy(&c->windows);
  wm_variants_destroy(&c->variants);
  wm_gates_free(c->gates);
  wm_surrogates_close(c->surrogates);
  wm_model_close(c->model);
}

/* --- by hand ------------------------------------------------------------------------------------
 */

/* What one variant does to one block, with whole rows of logits. */
typedef struct {
  float *nll, *logits; /* [predictions], [predictions, V] */
  double routed;
} outcome_t;

/* Does the row take the surrogate? Straight from gates.h's text. */
static bool takes_surrogate(const case_t *c, const wm_change_t *change, const float *x,
                            int64_t token, double delta) {
  if (change->gate < 0)
    return true;
  const wm_gate_t *g = &c->gates->gates[change->gate];
  if (g->kind == WM_GATE_ORACLE)
    return delta < 0;
  if (g->kind == WM_GATE_RANDOM)
    return wm_rng_uniform((wm_rng_t){g->seed, (uint64_t)g->layer}, (uint64_t)token) < g->fraction;
  double score = g->bias, most = 0;
  for (int64_t i = 0; i < c->d; i++) {
    score += g->kind == WM_GATE_LINEAR ? g->weight[i] * (double)x[i] : 0;
    most = fmax(most, fabs((double)x[i]));
  }
  score += g->kind == WM_GATE_MAX_ABS ? most : 0;
  return 1 / (1 + exp(-score)) > change->threshold;
}

/* delta[l]: [predictions] of the block, for the oracle. */
static outcome_t by_hand(case_t *c, int64_t variant, const wm_block_t *b, wm_workspace_t *ws,
                         const float *const *delta) {
  const int64_t d = c->d, rows = b->rows, size = rows * d;
  float *h = zeroed(4 * size, sizeof *h), *x = h + size, *y = x + size, *z = y + size;
  outcome_t o = {.nll = zeroed(rows, sizeof(float)), .logits = zeroed(rows * c->v, sizeof(float))};
  OK(wm_model_embed(c->model, &b->batch, b->ids, h, err));
  for (int64_t l = 0; l < c->n_layers; l++) {
    OK(wm_model_attend(c->model, l, &b->batch, h, x, ws, err));
    OK(wm_model_mlp(c->model, l, x, rows, y, ws, err));
    OK(wm_surrogates_apply(c->surrogates, l, x, rows, z, err));
    const wm_change_t *change = wm_variants_change(&c->variants, variant, l);
    for (int64_t r = 0, p = 0; r < rows && change != NULL; r++) {
      bool predicts = b->targets[r] >= 0;
      bool surrogate = takes_surrogate(c, change, x + r * d, b->tokens[r],
                                       predicts && delta != NULL ? delta[l][p] : NAN);
      if (surrogate)
        memcpy(y + r * d, z + r * d, (size_t)d * sizeof *y);
      o.routed += surrogate && predicts;
      p += predicts;
    }
    wm_add_rows(h, y, size);
  }
  double *nll = zeroed(rows, sizeof *nll);
  OK(wm_model_nll(c->model, h, rows, b->targets, nll, ws, err));
  int64_t n = 0;
  for (int64_t r = 0; r < rows; r++)
    if (b->targets[r] >= 0) {
      o.nll[n] = (float)nll[r];
      memcpy(x + n++ * d, h + r * d, (size_t)d * sizeof *x);
    }
  OK(wm_model_logits(c->model, x, n, o.logits, ws, err));
  free(nll);
  free(h);
  return o;
}

static void forget(outcome_t *o) {
  free(o->nll);
  free(o->logits);
}

static int64_t top_of(const float *x, int64_t n) {
  int64_t best = 0;
  for (int64_t i = 1; i < n; i++)
    best = x[i] > x[best] ? i : best;
  return best;
}

static double log_sum(const float *x, int64_t n) {
  double max = (double)x[top_of(x, n)], sum = 0;
  for (int64_t i = 0; i < n; i++)
    sum += exp((double)x[i] - max);
  return max + log(sum);
}

static double divergence(const float *f, const float *g, int64_t n) {
  double lf = log_sum(f, n), lg = log_sum(g, n), kl = 0;
  for (int64_t i = 0; i < n; i++)
    kl += exp((double)f[i] - lf) * (((double)f[i] - lf) - ((double)g[i] - lg));
  return kl;
}

/* Losses as the sweep stores them: [predictions] of the block, of each layer's delta. */
static void block_deltas(const case_t *c, const wm_block_t *b, const float *nll, float *memory,
                         const float **delta) {
  for (int64_t l = 0; l < c->n_layers; l++) {
    const float *own = nll + wm_variants_linear(&c->variants, l) * c->windows.n_predicted;
    float *to = memory + l * b->n_predictions;
    for (int64_t p = 0; p < b->n_predictions; p++)
      to[p] = own[b->first_prediction + p] - nll[b->first_prediction + p];
    delta[l] = to;
  }
}

/* Float32 products make logits right to about 1e-5 of their size, and so the divergence of a
 * position. */
static void compare_cell(const case_t *c, const outcome_t *full, const outcome_t *own,
                         const wm_cell_t *cell, int64_t n) {
  double kl = 0, agreed = 0;
  for (int64_t p = 0; p < n; p++) {
    const float *f = full->logits + p * c->v, *g = own->logits + p * c->v;
    kl += divergence(f, g, c->v);
    agreed += top_of(f, c->v) == top_of(g, c->v);
  }
  assert_true(cell->routed == own->routed);
  assert_true(cell->agreed == agreed);
  assert_true(fabs(cell->divergence - kl) <= 1e-6 * kl + 1e-6 * (double)n);
}

static wm_sweep_options_t options_with(const char *parts, double seconds, int64_t group) {
  return (wm_sweep_options_t){.max_group = group,
                              .stack_rows = 3 * BLOCK,
                              .unit = WM_UNIT_WINDOW,
                              .divergence = true,
                              .parts = parts,
                              .parts_key = 5,
                              .checkpoint_seconds = seconds,
                              .keep_whole = parts != NULL,
                              .bootstrap = {.resamples = 200, .seed = 3, .confidence = 0.95}};
}

static void run_sweep(const wm_comm_t *comm, case_t *c, const wm_sweep_options_t *o,
                      wm_sweep_t *out) {
  OK(wm_sweep_run(comm, c->model, c->surrogates, &c->variants, &c->blocks, c->ids, o, NULL, out,
                  err));
}

static void equals_rows_picked_by_hand(void **state) {
  skip_if_blas_tells_rows_apart();
  case_t c;
  wm_sweep_t s;
  wm_block_t b;
  wm_workspace_t *ws = NULL;
  open_case(self, *state, &c);
  wm_sweep_options_t o = options_with(NULL, 0, 0);
  run_sweep(self, &c, &o, &s);
  OK(wm_block_create(&c.blocks, &b, err));
  OK(wm_workspace_create(c.model, c.blocks.max_rows, c.windows.max_length, &ws, err));
  const float *nll = s.nll.data, *delta[MAX_LAYERS];
  float *memory = zeroed(c.n_layers * c.blocks.max_rows, sizeof *memory);
  const wm_cell_t *cells = s.cells.data;
  for (int64_t k = world->rank; k < c.blocks.n; k += world->size) {
    wm_block_load(&c.blocks, c.ids, k, &b);
    block_deltas(&c, &b, nll, memory, delta);
    outcome_t full = by_hand(&c, 0, &b, ws, NULL);
    for (int64_t v = 0; v < c.variants.n; v++) {
      outcome_t own = by_hand(&c, v, &b, ws, delta);
      assert_memory_equal(nll + v * c.windows.n_predicted + b.first_prediction, own.nll,
                          (size_t)b.n_predictions * sizeof *nll);
      compare_cell(&c, &full, &own, &cells[v * c.blocks.n + k], b.n_predictions);
      forget(&own);
    }
    forget(&full);
  }
  free(memory);
  wm_workspace_free(ws);
  wm_block_destroy(&b);
  wm_sweep_destroy(&s);
  close_case(&c);
}

/* Gates do route: some rows, not all; and what is said of a variant follows from its cells. */
static void measures_follow_from_cells(void **state) {
  case_t c;
  wm_sweep_t s;
  open_case(self, *state, &c);
  wm_sweep_options_t o = options_with(NULL, 0, 0);
  o.bootstrap.resamples = 4000; /* so that Holm leaves something */
  run_sweep(self, &c, &o, &s);
  const double n = (double)c.windows.n_predicted;
  double tested = 0, least = INFINITY, least_holm = INFINITY;
  for (int64_t v = 0; v < c.variants.n; v++) {
    const wm_sweep_measure_t *m = &s.measures[v];
    double routed = 0, agreed = 0, kl = 0;
    int64_t changes;
    wm_variants_changes(&c.variants, v, &changes);
    for (int64_t b = 0; b < c.blocks.n; b++) {
      const wm_cell_t *cell = (wm_cell_t *)s.cells.data + v * c.blocks.n + b;
      routed += cell->routed;
      agreed += cell->agreed;
      kl += cell->divergence;
    }
    assert_true(m->routed == (v == 0 ? 0 : routed / (n * (double)changes)));
    assert_true(m->agreement == agreed / n && m->divergence == kl / n);
    if (v == 0)
      assert_true(m->agreement == 1 && m->divergence == 0);
    else if (!wm_variants_is_routed(&c.variants, v))
      assert_true(m->routed == 1 && m->divergence > 0);
    else
      assert_true(m->routed > 0.01 && m->routed < 0.99 && m->divergence > 0);
    const wm_arch_t *a = wm_model_arch(c.model);
    wm_sweep_flops_t f = wm_sweep_flops(&s, v);
    double saved =
        (double)changes * m->routed *
        (4.0 * (double)(a->d_model * a->d_mlp) - 2.0 * (double)(a->d_model * a->d_model));
    double gates = 0;
    for (int64_t i = c.variants.offsets[v]; i < c.variants.offsets[v + 1]; i++)
      if (c.variants.changes[i].gate >= 0)
        gates += wm_gate_flops(&c.gates->gates[c.variants.changes[i].gate], a->d_model);
    double full = (double)a->n_layers * 4.0 * (double)(a->d_model * a->d_mlp);
    assert_true(fabs(f.mlp - (full - saved + gates)) < 1e-6 * full);
    if (wm_variants_needs_losses(&c.variants, v)) /* a reference, however low its losses are */
      assert_true(s.effects[v].delta < 0);
    if (v > 0) { /* references are no hypotheses */
      const bool reference = wm_variants_is_reference(&c.variants, v);
      assert_int_equal(isnan(s.effects[v].p_holm), reference);
      assert_true(!isnan(s.effects[v].p_two_sided) && !(reference && s.effects[v].beats_full));
      tested += !reference;
      least = fmin(least, reference ? INFINITY : s.effects[v].p_two_sided);
      least_holm = fmin(least_holm, reference ? INFINITY : s.effects[v].p_holm);
    }
    assert_true(v > 0 || (f.saved_pct == 0 && f.saved_body_pct == 0));
    assert_true(f.saved_body_pct >= f.saved_pct || f.saved_pct < 0);
  }
  /* The family is as large as the variants that are tested. */
  assert_true(fabs(least_holm - fmin(1, tested * least)) < 1e-12 && tested < (double)c.variants.n);
  wm_sweep_destroy(&s);
  close_case(&c);
}

/* What another sweep has of the full model and of surrogates alone is taken from it, not computed:
 * marks in its losses come out again; the rest is as it was. On all ranks, and with nodes. */
static void known_losses_are_taken(void **state) {
  skip_if_blas_tells_rows_apart();
  case_t c;
  wm_sweep_t whole, known, s;
  open_case(world, *state, &c);
  const int64_t n = c.windows.n_predicted, layers[] = {1, 2};
  wm_sweep_options_t o = options_with(NULL, 0, 0);
  run_sweep(world, &c, &o, &whole);
  wm_variants_t all = c.variants;
  OK(wm_variants_create(&c.variants, err));
  for (int i = 0; i < 2; i++)
    OK(wm_variants_add(&c.variants, &layers[i], 1, c.n_layers, err));
  run_sweep(world, &c, &o, &known);
  wm_variants_t some = c.variants;
  c.variants = all;
  float *nll = known.nll.data;
  MPI_Barrier(world->world);
  if (world->node_rank == 0)
    for (int64_t v = 1; v <= 2; v++)
      nll[v * n + 7] += 1;
  wm_shared_sync(&known.nll);
  known.variants = &some;
  o.known = &known;
  run_sweep(world, &c, &o, &s);
  for (int64_t v = 0; v < all.n; v++) {
    const int64_t w = wm_variants_same(&all, v, &some);
    const float *expected = w >= 0 ? nll + w * n : (const float *)whole.nll.data + v * n,
                *own = s.nll.data;
    if (wm_variants_needs_losses(&all, v))
      continue; /* an oracle goes by the losses that are marked */
    assert_memory_equal(own + v * n, expected, (size_t)n * sizeof *own);
    assert_true(s.measures[v].agreement == whole.measures[v].agreement);
    assert_true(s.measures[v].divergence == whole.measures[v].divergence);
  }
  wm_sweep_destroy(&s);
  wm_sweep_destroy(&known);
  wm_sweep_destroy(&whole);
  wm_variants_destroy(&some);
  close_case(&c);
}

/* Threshold 1 is the full model, threshold 0 the surrogate everywhere: bit for bit, one layer or
 * several at once. */
static void ends_of_the_threshold(void **state) {
  skip_if_blas_tells_rows_apart();
  case_t c;
  wm_sweep_t s;
  open_case(self, *state, &c);
  wm_variants_destroy(&c.variants);
  OK(wm_variants_create(&c.variants, err));
  c.variants.gates = c.gates;
  for (int k = 0; k < 2; k++) {
    double t = k == 0 ? 1 : 0;
    add(&c, (wm_change_t[]){{0, gate_of(0, 0), t}, {1, gate_of(1, 0), t}, {2, gate_of(2, 1), t}},
        3);
  }
  add(&c, (wm_change_t[]){{0, -1, 0}, {1, -1, 0}, {2, -1, 0}}, 3);
  add(&c, &(wm_change_t){2, gate_of(2, 0), 1}, 1);
  add(&c, &(wm_change_t){2, gate_of(2, 0), 0}, 1);
  add(&c, &(wm_change_t){2, -1, 0}, 1);
  wm_sweep_options_t o = options_with(NULL, 0, 0);
  run_sweep(self, &c, &o, &s);
  const float *nll = s.nll.data;
  const int64_t n = c.windows.n_predicted;
  const size_t bytes = (size_t)n * sizeof *nll;
  assert_memory_equal(nll + n, nll, bytes);
  assert_memory_equal(nll + 4 * n, nll, bytes);
  assert_memory_equal(nll + 2 * n, nll + 3 * n, bytes);
  assert_memory_equal(nll + 5 * n, nll + 6 * n, bytes);
  assert_true(memcmp(nll + 3 * n, nll, bytes) != 0 && memcmp(nll + 6 * n, nll, bytes) != 0);
  assert_true(s.measures[1].divergence == 0 && s.measures[1].agreement == 1);
  assert_true(s.measures[1].routed == 0 && s.measures[2].routed == 1);
  assert_true(s.measures[2].divergence == s.measures[3].divergence);
  wm_sweep_destroy(&s);
  close_case(&c);
}

/* --- ranks and parts ----------------------------------------------------------------------------
 */

static void expect_equal(const case_t *c, const wm_sweep_t *a, const wm_sweep_t *b) {
  const int64_t v = c->variants.n;
  assert_memory_equal(a->nll.data, b->nll.data,
                      (size_t)(v * c->windows.n_predicted) * sizeof(float));
  assert_memory_equal(a->cells.data, b->cells.data, (size_t)(v * c->blocks.n) * sizeof(wm_cell_t));
  assert_memory_equal(a->measures, b->measures, (size_t)v * sizeof *a->measures);
  for (int64_t i = 0; i < v; i++)
    assert_true(a->effects[i].delta == b->effects[i].delta);
}

/* Losses and counts of any number of ranks, groups and nodes; without divergence the same losses.
 */
static void ranks_change_nothing(void **state) {
  case_t one, all;
  wm_sweep_t a, b;
  open_case(self, *state, &one);
  open_case(world, *state, &all);
  wm_sweep_options_t o = options_with(NULL, 0, rows_are_told_apart() ? 64 : 0);
  run_sweep(self, &one, &o, &a);
  for (int64_t group = rows_are_told_apart() ? 64 : 3; group <= 64; group += 61) {
    o.max_group = group;
    run_sweep(world, &all, &o, &b);
    expect_equal(&one, &a, &b);
    wm_sweep_destroy(&b);
  }
  wm_comm_t *nodes = two_nodes(world);
  run_sweep(nodes, &all, &o, &b);
  expect_equal(&one, &a, &b);
  wm_sweep_destroy(&b);
  wm_comm_free(nodes);
  o.divergence = false;
  run_sweep(world, &all, &o, &b);
  if (!rows_are_told_apart())
    assert_memory_equal(a.nll.data, b.nll.data,
                        (size_t)(one.variants.n * one.windows.n_predicted) * sizeof(float));
  for (int64_t v = 0; v < one.variants.n; v++)
    assert_true(b.measures[v].routed == a.measures[v].routed && isnan(b.measures[v].divergence) &&
                isnan(b.measures[v].agreement));
  wm_sweep_destroy(&b);
  wm_sweep_destroy(&a);
  close_case(&all);
  close_case(&one);
}

/* Every second part of a sweep by all ranks is lost; one rank goes on, then all with nothing left
 * to do, and the file that is written says the same. */
static void goes_on_from_parts(void **state) {
  case_t one, all;
  wm_sweep_t a, b;
  char parts[300], path[400];
  open_case(self, *state, &one);
  open_case(world, *state, &all);
  wm_sweep_options_t o = options_with(NULL, 0, 4);
  run_sweep(self, &one, &o, &a);
  snprintf(parts, sizeof parts, "%s/parts", dir);
  o = options_with(parts, 1e-6, 4);
  run_sweep(world, &all, &o, &b);
  expect_equal(&one, &a, &b);
  wm_sweep_destroy(&b);
  MPI_Barrier(world->world);
  int removed = 0;
  for (int i = 0; i < 1000 && world->rank == 0; i += 2) {
    snprintf(path, sizeof path, "%s/%04d.h5", parts, i);
    removed += unlink(path) == 0;
  }
  assert_true(world->rank != 0 || removed > 3);
  MPI_Barrier(world->world);
  o.checkpoint_seconds = 0;
  run_sweep(world, &all, &o, &b);
  expect_equal(&one, &a, &b);
  assert_true(b.units_evaluated > 0 || world->size > 1);
  wm_sweep_destroy(&b);
  run_sweep(world, &all, &o, &b);
  expect_equal(&one, &a, &b);
  assert_int_equal(b.units_evaluated, 0);
  wm_h5_t *file = NULL;
  snprintf(path, sizeof path, "%s/sweep.h5", dir);
  OK(wm_h5_create(world->world, path, &file, err));
  OK(wm_sweep_write(&b, all.ids, file, err));
  OK(wm_h5_publish(file, err));
  wm_sweep_destroy(&b);
  OK(wm_sweep_read(world, path, all.model, &all.variants, &all.blocks, &o, &b, err));
  expect_equal(&one, &a, &b);
  wm_sweep_destroy(&b);
  wm_parts_remove(world, parts);
  wm_sweep_destroy(&a);
  close_case(&all);
  close_case(&one);
}

static void refuses_what_it_cannot_do(void **state) {
  case_t c;
  wm_sweep_t s;
  wm_error_t why = {0};
  open_case(self, *state, &c);
  wm_sweep_options_t o = options_with(NULL, 0, 0);
  wm_variants_destroy(&c.variants);
  OK(wm_variants_create(&c.variants, err));
  c.variants.gates = c.gates;
  add(&c, &(wm_change_t){1, gate_of(1, 3), 0}, 1);
  assert_int_equal(
      wm_sweep_run(self, c.model, c.surrogates, &c.variants, &c.blocks, c.ids, &o, NULL, &s, &why),
      WM_USAGE);
  assert_non_null(strstr(why.message, "oracle of layer 1"));
  wm_sweep_destroy(&s);
  add(&c, &(wm_change_t){1, -1, 0}, 1);
  assert_int_equal(
      wm_sweep_run(self, c.model, c.surrogates, &c.variants, &c.blocks, c.ids, &o, NULL, &s, &why),
      WM_USAGE);
  assert_non_null(strstr(why.message, "last"));
  wm_sweep_destroy(&s);
  add(&c, &(wm_change_t){0, -1, 0}, 1);
  assert_int_equal(
      wm_sweep_run(self, c.model, c.surrogates, &c.variants, &c.blocks, c.ids, &o, NULL, &s, &why),
      WM_USAGE);
  assert_non_null(strstr(why.message, "order of their first"));
  wm_sweep_destroy(&s);
  close_case(&c);
}

/* --- the group ----------------------------------------------------------------------------------
 */

static int set_up(void **state) {
  (void)state;
  OK(wm_comm_create(MPI_COMM_WORLD, &world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &self, err));
  make_directory(world, dir);
  for (int i = 0; i < 2 && world->rank == 0; i++) {
    char path[300];
    snprintf(path, sizeof path, "%s/%s.json", dir, i == 0 ? "gpt2" : "neox");
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(configs[i], file) >= 0 && fclose(file) == 0);
  }
  MPI_Barrier(world->world);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  int failed = remove_directory(world, dir);
  wm_comm_free(self);
  wm_comm_free(world);
  return failed;
}

#define ON(test, model)                                                                            \
  { #test " (" model ")", test, NULL, NULL, (void *)model }

int main(int argc, char **argv) {
  wm_h5_environment();
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      ON(equals_rows_picked_by_hand, "gpt2"),
      ON(equals_rows_picked_by_hand, "neox"),
      ON(equals_rows_picked_by_hand, "demo_gpt2"),
      ON(measures_follow_from_cells, "gpt2"),
      ON(measures_follow_from_cells, "neox"),
      ON(known_losses_are_taken, "gpt2"),
      ON(ends_of_the_threshold, "gpt2"),
      ON(ends_of_the_threshold, "demo_gpt_neox"),
      ON(ranks_change_nothing, "gpt2"),
      ON(ranks_change_nothing, "neox"),
      ON(goes_on_from_parts, "neox"),
      ON(refuses_what_it_cannot_do, "gpt2"),
  };
  int failed = cmocka_run_group_tests(tests, set_up, tear_down);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed != 0;
}
