/* Features of the demo models and the gates of all their layers: any number of ranks and of passes,
 * against one rank and against the trunk itself. Losses are drawn. */
#include "test_measure_fixture.h"

#include "wanamaker/measure/features.h"
#include "wanamaker/measure/gate_pass.h"
#include "wanamaker/measure/trunk.h"

#include <math.h>

enum { N_TOKENS = 1100, FIT_END = 800, BLOCK = 100, LEAST = 3 };

typedef struct {
  wm_comm_t *world, *self;
  char dir[256];
  int32_t ids[N_TOKENS];
  wm_windows_t fit, heldout;
  wm_blocks_t fit_blocks, heldout_blocks;
  float *fit_nll, *heldout_nll; /* [1 + layers, N] */
} shared_t;

static shared_t S;

enum { LAYERS = 8 }; /* of both models */

/* Losses that lean a little on the position, with some that are not finite. */
static float *draw_nll(int64_t n, uint64_t stream) {
  float *nll = zeroed((1 + LAYERS) * n, sizeof *nll);
  wm_rng_t rng = {11, stream};
  for (int64_t i = 0; i < n; i++) {
    nll[i] = (float)(4 + wm_rng_normal(rng, (uint64_t)i));
    for (int64_t l = 1; l <= LAYERS; l++)
      nll[l * n + i] = nll[i] + (float)(0.3 * wm_rng_normal(rng, (uint64_t)(l * n + i)) - 0.01);
  }
  nll[2 * n + 5] = INFINITY;
  return nll;
}

static int set_up(void **state) {
  (void)state;
  OK(wm_comm_create(MPI_COMM_WORLD, &S.world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &S.self, err));
  make_directory(S.world, S.dir);
  draw_ids(S.ids, N_TOKENS);
  cut_tokens(S.ids, N_TOKENS, 0, FIT_END, BLOCK, "gates", &S.fit, &S.fit_blocks);
  cut_tokens(S.ids, N_TOKENS, FIT_END, N_TOKENS, BLOCK, "validation", &S.heldout,
             &S.heldout_blocks);
  S.fit_nll = draw_nll(S.fit.n_predicted, 1);
  S.heldout_nll = draw_nll(S.heldout.n_predicted, 2);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  wm_blocks_destroy(&S.fit_blocks);
  wm_blocks_destroy(&S.heldout_blocks);
  wm_windows_destroy(&S.fit);
  wm_windows_destroy(&S.heldout);
  free(S.fit_nll);
  free(S.heldout_nll);
  int failed = remove_directory(S.world, S.dir);
  wm_comm_free(S.self);
  wm_comm_free(S.world);
  return failed;
}

/* --- features -----------------------------------------------------------------------------------
 */

/* [N, D] MLP inputs of a layer at the predicted rows, by the trunk. */
static float *inputs_of(wm_model_t *model, const wm_blocks_t *blocks, int64_t layer) {
  const int64_t d = wm_model_arch(model)->d_model;
  float *x = zeroed(blocks->windows->n_predicted * d, sizeof *x), *to = x;
  wm_trunk_t t;
  OK(wm_trunk_create(model, blocks, &t, err));
  for (int64_t b = 0; b < blocks->n; b++) {
    OK(wm_trunk_begin(&t, S.ids, b, err));
    for (int64_t l = 0; l <= layer; l++)
      OK(wm_trunk_layer(&t, l, err));
    for (int64_t r = 0; r < t.block.rows; r++)
      if (t.block.targets[r] >= 0) {
        memcpy(to, t.x + r * d, (size_t)d * sizeof *to);
        to += d;
      }
  }
  wm_trunk_destroy(&t);
  return x;
}

static void features_are_mlp_inputs(void **state) {
  wm_model_t *model = open_demo(S.world, *state, WM_COMPUTE_F32, false);
  const int64_t d = wm_model_arch(model)->d_model, layers[] = {0, 2, 7};
  wm_features_t f;
  wm_progress_t progress;
  int64_t most, mine = wm_features_rows(S.world, &S.fit_blocks, &most), all = mine;
  wm_progress_start(&progress, NULL, "features", "tokens", 0);
  OK(wm_features_create(S.world, &S.fit_blocks, d, 3, &f, err));
  OK(wm_features_collect(&f, S.world, model, NULL, &S.fit_blocks, S.ids, layers, 3, &progress,
                         err));
  assert_int_equal(f.n, mine);
  assert_true(mine <= most);
  wm_sum_i64(S.world->world, &all, 1);
  assert_int_equal(all, S.fit.n_predicted);
  for (int64_t l = 0; l < 3; l++) {
    float *x = inputs_of(model, &S.fit_blocks, layers[l]);
    for (int64_t i = 0; i < f.n; i++)
      assert_memory_equal(wm_features_layer(&f, l) + i * d, x + f.place[i] * d,
                          (size_t)d * sizeof *x);
    free(x);
  }
  for (int64_t i = 1; i < f.n; i++)
    assert_true(f.place[i] > f.place[i - 1]);
  wm_features_destroy(&f);
  wm_model_close(model);
}

/* --- passes -------------------------------------------------------------------------------------
 */

static const wm_gate_spec_t SPECS[] = {
    {WM_GATE_LINEAR, 0}, {WM_GATE_PCA, 2}, {WM_GATE_MAX_ABS, 0}, {WM_GATE_RANDOM, 0}};

static wm_gate_pass_options_t options(void) {
  return (wm_gate_pass_options_t){
      .layers = all_layers(LAYERS),
      .n_layers = LAYERS,
      .fit = {.specs = SPECS, .n_specs = 4, .C = 1, .threshold = 0.5, .block = 32},
      .least_count = LEAST};
}

static wm_gates_t *run(const wm_comm_t *comm, wm_model_t *model, const wm_gate_pass_options_t *o,
                       wm_gate_ends_t *ends) {
  const wm_gate_source_t fit = {&S.fit_blocks, S.ids, S.fit_nll, NULL, 0};
  const wm_gate_source_t heldout = {&S.heldout_blocks, S.ids, S.heldout_nll, NULL, 0};
  wm_gates_t *gates = NULL;
  OK(wm_gates_create(LAYERS, wm_model_arch(model)->d_model, 2, &gates, err));
  OK(wm_gate_pass_run(comm, model, &fit, &heldout, o, NULL, gates, ends, err));
  assert_int_equal(gates->n, 4 * o->n_layers);
  return gates;
}

/* Scores of all gates on a layer's inputs. */
static double score_difference(wm_model_t *model, const wm_gates_t *a, const wm_gates_t *b) {
  const int64_t n = S.fit.n_predicted;
  double *s = zeroed(2 * n, sizeof *s), worst = 0;
  for (int64_t g = 0; g < a->n; g++) {
    if (!wm_gate_has_score(a->gates[g].kind))
      continue;
    float *x = inputs_of(model, &S.fit_blocks, a->gates[g].layer);
    wm_gates_score(a, g, x, n, s);
    wm_gates_score(b, g, x, n, s + n);
    for (int64_t i = 0; i < n; i++)
      worst = fmax(worst, fabs(s[i] - s[n + i]));
    free(x);
  }
  free(s);
  return worst;
}

static void ranks_agree(void **state) {
  wm_model_t *model = open_demo(S.world, *state, WM_COMPUTE_F32, false);
  wm_model_t *own = open_demo(S.self, *state, WM_COMPUTE_F32, false);
  wm_gate_pass_options_t o = options();
  wm_gate_ends_t a_ends[LAYERS], b_ends[LAYERS];
  wm_gates_t *a = run(S.world, model, &o, a_ends), *b = run(S.self, own, &o, b_ends);
  double difference = score_difference(own, a, b);
  if (S.world->rank == 0)
    print_message("%s: %d ranks against 1: scores differ by %.1e\n", (char *)*state, S.world->size,
                  difference);
  assert_true(difference < 1e-8); /* of log-odds, some 1 in size */
  for (int64_t l = 0; l < LAYERS; l++) {
    const wm_gate_layer_t *p = wm_gates_layer(a, l), *q = wm_gates_layer(b, l);
    assert_true(p->label_threshold == q->label_threshold && p->label_share == q->label_share);
    assert_int_equal(p->dropped, l == 1);
    assert_int_equal(p->dropped_heldout, l == 1);
    assert_memory_equal(a_ends[l].token, b_ends[l].token, sizeof a_ends[l].token);
    assert_memory_equal(a_ends[l].count, b_ends[l].count, sizeof a_ends[l].count);
  }
  wm_gates_free(a);
  wm_gates_free(b);
  wm_model_close(own);
  wm_model_close(model);
}

/* Three layers a pass, features kept in a file: the bits of one pass. */
static void passes_change_nothing(void **state) {
  wm_model_t *model = open_demo(S.world, *state, WM_COMPUTE_F32, false);
  const int64_t d = wm_model_arch(model)->d_model, n = S.fit.n_predicted;
  const wm_gate_source_t fit = {&S.fit_blocks, S.ids, NULL, NULL, 0};
  const wm_gate_source_t heldout = {&S.heldout_blocks, S.ids, NULL, NULL, 0};
  wm_gate_pass_options_t o = options();
  wm_gate_ends_t whole_ends[LAYERS], ends[LAYERS];
  wm_gate_pass_plan_t plan;
  char path[300];
  OK(wm_gate_pass_plan(S.world, model, &fit, &heldout, &o, &plan, err));
  assert_int_equal(plan.passes, 1);
  wm_gates_t *whole = run(S.world, model, &o, whole_ends);
  o.feature_bytes = plan.feature_bytes * 3 / LAYERS + plan.feature_bytes / 32;
  OK(wm_gate_pass_plan(S.world, model, &fit, &heldout, &o, &plan, err));
  assert_int_equal(plan.layers_per_pass, 3);
  assert_int_equal(plan.passes, 3);
  snprintf(path, sizeof path, "%s/features.h5", S.dir);
  OK(wm_h5_create(S.world->world, path, &o.keep, err));
  wm_gates_t *parts = run(S.world, model, &o, ends);
  OK(wm_h5_publish(o.keep, err));
  assert_true(wm_gates_fingerprint(whole) == wm_gates_fingerprint(parts));
  assert_memory_equal(ends, whole_ends, sizeof ends);
  wm_h5_t *file = NULL;
  OK(wm_h5_open(S.world->world, path, &file, err));
  float *kept = zeroed(n * d, sizeof *kept), *x = inputs_of(model, &S.fit_blocks, 4);
  const int64_t offset[3] = {4, 0, 0}, count[3] = {1, n, d};
  OK(wm_h5_read(file, "/features/x", H5T_NATIVE_FLOAT, offset, count, kept, err));
  assert_memory_equal(kept, x, (size_t)(n * d) * sizeof *x);
  wm_h5_close(file);
  free(kept);
  free(x);
  wm_gates_free(whole);
  wm_gates_free(parts);
  wm_model_close(model);
}

/* --- kept layers --------------------------------------------------------------------------------
 */

/* Have two sets the same gates at a layer, bit for bit? */
static bool same_layer(const wm_gates_t *a, const wm_gates_t *b, int64_t layer) {
  bool same =
      wm_gates_layer(a, layer)->label_threshold == wm_gates_layer(b, layer)->label_threshold;
  for (int64_t g = 4 * layer; g < 4 * layer + 4; g++) {
    const wm_gate_t *p = &a->gates[g], *q = &b->gates[g];
    assert_true(p->layer == layer && q->layer == layer && p->kind == q->kind);
    same = same && p->bias == q->bias && p->scale == q->scale && p->fraction == q->fraction &&
           (p->kind == WM_GATE_RANDOM || p->report.auc_heldout == q->report.auc_heldout);
    if (p->weight != NULL)
      same = same && memcmp(p->weight, q->weight, (size_t)a->d * sizeof *p->weight) == 0;
  }
  return same;
}

/* Gates fitted to other losses than those of the parts: a layer is that of `whole` if it was kept,
 * and only then. gone: layers of lost files; -1: all. */
static void check_kept(const wm_comm_t *comm, wm_model_t *model, const wm_gate_pass_options_t *o,
                       const wm_gates_t *whole, const wm_gate_ends_t *whole_ends,
                       const int64_t gone[2]) {
  wm_gate_ends_t ends[LAYERS];
  float *own = S.fit_nll;
  S.fit_nll = draw_nll(S.fit.n_predicted, 77);
  wm_gates_t *gates = run(comm, model, o, ends);
  for (int64_t l = 0; l < LAYERS; l++) {
    const bool kept = l < LAYERS - 1 && l != gone[0] && l != gone[1] && gone[0] >= 0;
    assert_int_equal(same_layer(whole, gates, l), kept);
    assert_int_equal(memcmp(&ends[l], &whole_ends[l], sizeof ends[l]) == 0, kept);
  }
  wm_gates_free(gates);
  free(S.fit_nll);
  S.fit_nll = own;
}

static void damage(const char *folder, int64_t number, bool cut) {
  char path[400];
  snprintf(path, sizeof path, "%s/%04d.h5", folder, (int)number);
  MPI_Barrier(S.world->world);
  if (S.world->rank == 0)
    assert_int_equal(cut ? truncate(path, 5000) : unlink(path), 0);
  MPI_Barrier(S.world->world);
}

static void kept_layers_are_not_fitted_again(void **state) {
  wm_model_t *model = open_demo(S.world, *state, WM_COMPUTE_F32, false);
  wm_model_t *own = open_demo(S.self, *state, WM_COMPUTE_F32, false);
  wm_gate_pass_options_t o = options();
  wm_gate_ends_t whole_ends[LAYERS], ends[LAYERS];
  wm_gates_t *whole = run(S.world, model, &o, whole_ends);
  char folder[300];
  snprintf(folder, sizeof folder, "%s/gates.parts", S.dir);
  o.parts = folder;
  o.parts_key = 5;
  o.checkpoint_seconds = 1e-9; /* a file for every layer, but for the last */
  wm_gates_t *kept = run(S.world, model, &o, ends);
  assert_true(wm_gates_fingerprint(whole) == wm_gates_fingerprint(kept));
  assert_memory_equal(ends, whole_ends, sizeof ends);
  o.checkpoint_seconds = 0;
  check_kept(S.self, own, &o, whole, whole_ends, (int64_t[]){99, 99}); /* on one rank */
  check_kept(S.world, model, &o, whole, whole_ends, (int64_t[]){99, 99});
  damage(folder, 2, false);
  damage(folder, 4, true);
  check_kept(S.world, model, &o, whole, whole_ends, (int64_t[]){2, 4});
  o.parts_key = 6;
  check_kept(S.world, model, &o, whole, whole_ends, (int64_t[]){-1, -1});
  wm_gate_pass_remove_parts(S.world, folder);
  assert_int_not_equal(access(folder, F_OK), 0);
  wm_gates_free(kept);
  wm_gates_free(whole);
  wm_model_close(own);
  wm_model_close(model);
}

/* --- modified models ----------------------------------------------------------------------------
 */

/* [N, D] inputs of a layer, by a trunk that is modified. */
static float *inputs_in(wm_model_t *model, const wm_base_t *base, const wm_surrogates_t *replaced,
                        int64_t layer) {
  const int64_t d = wm_model_arch(model)->d_model, layers[] = {layer};
  float *x = zeroed(S.fit.n_predicted * d, sizeof *x), *to = x;
  if (replaced == NULL) { /* as the fit of gates takes them */
    wm_features_t f;
    wm_progress_t progress;
    wm_progress_start(&progress, NULL, "features", "tokens", 0);
    OK(wm_features_create(S.self, &S.fit_blocks, d, 1, &f, err));
    OK(wm_features_collect(&f, S.self, model, base, &S.fit_blocks, S.ids, layers, 1, &progress,
                           err));
    memcpy(x, f.x, (size_t)(f.n * d) * sizeof *x);
    wm_features_destroy(&f);
    return x;
  }
  wm_trunk_t t;
  OK(wm_trunk_create(model, &S.fit_blocks, &t, err));
  t.replaced = replaced;
  for (int64_t b = 0; b < S.fit_blocks.n; b++) {
    OK(wm_trunk_begin(&t, S.ids, b, err));
    for (int64_t l = 0; l <= layer; l++)
      OK(wm_trunk_layer(&t, l, err));
    for (int64_t r = 0; r < t.block.rows; r++)
      if (t.block.targets[r] >= 0) {
        memcpy(to, t.x + r * d, (size_t)d * sizeof *to);
        to += d;
      }
  }
  wm_trunk_destroy(&t);
  return x;
}

static double farthest(const float *a, const float *b, int64_t n) {
  double worst = 0;
  for (int64_t i = 0; i < n; i++)
    worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
  return worst;
}

/* A layer that a gate always routes is as one with its surrogate, one that it never does as the
 * unmodified one, and one in between is neither. */
static void bases_are_modified(void **state) {
  enum { CHANGED = 2, AT = 4 };
  wm_model_t *model = open_demo(S.self, *state, WM_COMPUTE_F32, false);
  const int64_t d = wm_model_arch(model)->d_model, n = S.fit.n_predicted * d;
  const int64_t layers[] = {CHANGED};
  wm_surrogates_t *all, *one;
  wm_gates_t *gates;
  wm_variants_t variants;
  OK(wm_surrogates_create_random(S.self, LAYERS, d, TILE, WM_COMPUTE_F32, 3, &all, err));
  double *weight = zeroed(d * d + d, sizeof *weight), *basis = zeroed(d, sizeof *basis);
  OK(wm_surrogates_create_empty(S.self, layers, 1, LAYERS, d, TILE, WM_COMPUTE_F32, &one, err));
  float *unit = zeroed(d, sizeof *unit), *row = zeroed(d, sizeof *row);
  for (int64_t i = 0; i < d; i++) { /* the rows of W, for b is zero */
    memset(unit, 0, (size_t)d * sizeof *unit);
    unit[i] = 1;
    OK(wm_surrogates_apply(all, CHANGED, unit, 1, row, err));
    for (int64_t k = 0; k < d; k++)
      weight[i * d + k] = row[k];
  }
  OK(wm_surrogates_put(one, S.self, CHANGED, weight, weight + d * d, err));
  basis[0] = 1;
  OK(wm_gates_create(LAYERS, d, 0, &gates, err));
  OK(wm_gates_add_layer(gates, &(wm_gate_layer_t){.layer = CHANGED, .selected = -1}, err));
  OK(wm_gates_add(
      gates,
      &(wm_gate_t){.layer = CHANGED, .kind = WM_GATE_LINEAR, .weight = basis, .threshold = 0.5},
      err));
  OK(wm_variants_create(&variants, err));
  variants.gates = gates;
  OK(wm_variants_add(&variants, layers, 1, LAYERS, err));
  for (int i = 0; i <= 2; i++)
    OK(wm_variants_add_changes(&variants, &(wm_change_t){CHANGED, 0, 0.5 * i}, 1, LAYERS, err));
  float *replaced = inputs_in(model, NULL, one, AT), *plain = inputs_in(model, NULL, NULL, AT);
  assert_true(farthest(replaced, plain, n) > 1e-3);
  const float *expected[] = {replaced, replaced, NULL, plain};
  for (int64_t v = 1; v <= 4; v++) {
    float *x = inputs_in(model, &(wm_base_t){all, &variants, v}, NULL, AT);
    if (expected[v - 1] != NULL) {
      assert_true(farthest(x, expected[v - 1], n) < 1e-5);
    } else {
      assert_true(farthest(x, replaced, n) > 1e-3 && farthest(x, plain, n) > 1e-3);
    }
    free(x);
  }
  free(replaced);
  free(plain);
  free(weight);
  free(basis);
  free(unit);
  free(row);
  wm_variants_destroy(&variants);
  wm_gates_free(gates);
  wm_surrogates_close(one);
  wm_surrogates_close(all);
  wm_model_close(model);
}

static void too_little_memory(void **state) {
  wm_model_t *model = open_demo(S.world, *state, WM_COMPUTE_F32, false);
  const wm_gate_source_t fit = {&S.fit_blocks, S.ids, NULL, NULL, 0};
  wm_gate_pass_options_t o = options();
  wm_gate_pass_plan_t plan;
  wm_error_t err = {0};
  o.feature_bytes = 1000;
  assert_int_equal(wm_gate_pass_plan(S.world, model, &fit, NULL, &o, &plan, &err), WM_USAGE);
  assert_non_null(strstr(err.message, "gate.memory_gib"));
  wm_model_close(model);
}

/* --- ends ---------------------------------------------------------------------------------------
 */

/* Mean score and count of a token type on a layer, by looking at every position. */
static double mean_score(const double *score, int64_t layer, int32_t token, double *count) {
  const int64_t n = S.fit.n_predicted;
  double sum = 0;
  *count = 0;
  for (int64_t i = 0, place = 0; i < S.fit.n; i++)
    for (int64_t r = 0; r + 1 < S.fit.length[i]; r++, place++)
      if (S.ids[S.fit.first[i] + r] == token && isfinite(S.fit_nll[(1 + layer) * n + place])) {
        sum += score[place];
        ++*count;
      }
  return sum / *count;
}

static void ends_are_extreme(void **state) {
  wm_model_t *model = open_demo(S.world, *state, WM_COMPUTE_F32, false);
  wm_gate_pass_options_t o = options();
  wm_gate_ends_t ends[LAYERS], again[LAYERS];
  wm_gates_t *gates = run(S.world, model, &o, ends);
  const int64_t layer = 1; /* which has a delta that is not finite */
  double *score = zeroed(S.fit.n_predicted, sizeof *score), count;
  float *x = inputs_of(model, &S.fit_blocks, layer);
  wm_gates_score(gates, 4 * layer, x, S.fit.n_predicted, score);
  const wm_gate_ends_t *e = &ends[layer];
  for (int side = 0; side < 2; side++)
    for (int i = 0; i < WM_GATE_ENDS; i++) {
      assert_true(e->token[side][i] >= 0);
      double mean = mean_score(score, layer, e->token[side][i], &count);
      assert_true(count >= LEAST && count == e->count[side][i]);
      assert_true(fabs(mean - e->score[side][i]) < 1e-9);
      if (i > 0)
        assert_true(side == 0 ? e->score[0][i] <= e->score[0][i - 1]
                              : e->score[1][i] >= e->score[1][i - 1]);
    }
  for (int32_t token = 0; token < 1500; token++) { /* nothing is further out */
    double mean = mean_score(score, layer, token, &count);
    if (count >= LEAST)
      assert_true(mean <= e->score[0][0] + 1e-9 && mean >= e->score[1][0] - 1e-9);
  }
  char path[300];
  wm_h5_t *file = NULL;
  snprintf(path, sizeof path, "%s/ends.h5", S.dir);
  OK(wm_h5_create(S.world->world, path, &file, err));
  OK(wm_gate_ends_write(ends, LAYERS, S.world, file, err));
  OK(wm_h5_publish(file, err));
  OK(wm_h5_open(S.world->world, path, &file, err));
  memset(again, 0, sizeof again);
  OK(wm_gate_ends_read(again, LAYERS, file, err));
  wm_h5_close(file);
  assert_memory_equal(again, ends, sizeof ends);
  free(score);
  free(x);
  wm_gates_free(gates);
  wm_model_close(model);
}

int main(int argc, char **argv) {
  int provided;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
#define CASE(test, name)                                                                           \
  { #test " " name, test, NULL, NULL, (void *)name }
  const struct CMUnitTest tests[] = {
      CASE(features_are_mlp_inputs, "demo_gpt2"),
      CASE(features_are_mlp_inputs, "demo_gpt_neox"),
      CASE(ranks_agree, "demo_gpt2"),
      CASE(ranks_agree, "demo_gpt_neox"),
      CASE(passes_change_nothing, "demo_gpt2"),
      CASE(kept_layers_are_not_fitted_again, "demo_gpt2"),
      CASE(bases_are_modified, "demo_gpt2"),
      CASE(bases_are_modified, "demo_gpt_neox"),
      CASE(too_little_memory, "demo_gpt2"),
      CASE(ends_are_extreme, "demo_gpt_neox"),
  };
  int failures = cmocka_run_group_tests(tests, set_up, tear_down);
  MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  MPI_Finalize();
  return failures;
}
