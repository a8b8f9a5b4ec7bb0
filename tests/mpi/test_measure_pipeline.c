/* Fit and sweep on a trained model: ranks against one rank, stacked branches against one model at a
 * time, passes and grids against each other. Every rank also works alone on MPI_COMM_SELF; the two
 * results are compared in the process. */
#include "test_measure_fixture.h"

#include "../unit/row_order.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/fit.h"
#include "wanamaker/measure/sweep.h"
#include "wanamaker/model/kernels.h"

#include <math.h>

enum { N_TOKENS = 2600, FIT_END = 1500, HELDOUT_END = 2000, BLOCK = 200 };

/* What all tests share: built once by the group's set-up. */
typedef struct {
  wm_comm_t *world, *self;
  char dir[256];
  int32_t ids[N_TOKENS];
  wm_windows_t fit, heldout, evaluation;
  wm_blocks_t fit_blocks, heldout_blocks, evaluation_blocks;
} shared_t;

static shared_t S;

static wm_model_t *open_model(const wm_comm_t *comm, const char *name) {
  return open_demo(comm, name, WM_COMPUTE_F32, false);
}

static void cut(int64_t begin, int64_t end, const char *name, wm_windows_t *w, wm_blocks_t *b) {
  cut_tokens(S.ids, N_TOKENS, begin, end, BLOCK, name, w, b);
}

static int set_up(void **state) {
  (void)state;
  OK(wm_comm_create(MPI_COMM_WORLD, &S.world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &S.self, err));
  make_directory(S.world, S.dir);
  draw_ids(S.ids, N_TOKENS);
  cut(0, FIT_END, "fit", &S.fit, &S.fit_blocks);
  cut(FIT_END, HELDOUT_END, "validation", &S.heldout, &S.heldout_blocks);
  cut(HELDOUT_END, N_TOKENS, "evaluation", &S.evaluation, &S.evaluation_blocks);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  if (remove_directory(S.world, S.dir) != 0)
    return 1;
  wm_blocks_destroy(&S.fit_blocks);
  wm_blocks_destroy(&S.heldout_blocks);
  wm_blocks_destroy(&S.evaluation_blocks);
  wm_windows_destroy(&S.fit);
  wm_windows_destroy(&S.heldout);
  wm_windows_destroy(&S.evaluation);
  wm_comm_free(S.self);
  wm_comm_free(S.world);
  return 0;
}

static const double LAMBDAS[] = {0.01, 1.0, 1000.0};

static wm_fit_options_t fit_all(const wm_model_t *model) {
  int64_t n = wm_model_arch(model)->n_layers;
  return (wm_fit_options_t){.lambda = 0.01,
                            .lambdas = LAMBDAS,
                            .n_lambdas = 3,
                            .spectrum = true,
                            .layers = all_layers(n),
                            .n_layers = n,
                            .block = 24,
                            .gram_bytes = INT64_C(1) << 32};
}

/* A fit into dir/name; SELF fits get a name of their own per rank. */
static void fit_to(const wm_comm_t *comm, wm_model_t *model, const wm_fit_options_t *o,
                   const char *name, char *path, wm_fit_summary_t *summaries) {
  wm_h5_t *file = NULL;
  snprintf(path, 512, "%s/%s.%d.h5", S.dir, name, comm == S.self ? S.world->rank : -1);
  OK(wm_h5_create(comm->world, path, &file, err));
  OK(wm_fit_surrogates(comm, model, &S.fit_blocks, S.ids, &S.heldout_blocks, S.ids, o, file, NULL,
                       summaries, err));
  OK(wm_h5_publish(file, err));
}

/* [rows, D] MLP inputs x and outputs y of a layer for block 0 of the evaluation. */
typedef struct {
  int64_t rows, d;
  float *x, *y;
  double scale; /* root mean square of y */
} io_t;

static void mlp_io(wm_model_t *model, const wm_blocks_t *blocks, int64_t layer, io_t *io) {
  wm_block_t block;
  wm_workspace_t *ws = NULL;
  OK(wm_block_create(blocks, &block, err));
  OK(wm_workspace_create(model, blocks->max_rows, blocks->windows->max_length, &ws, err));
  wm_block_load(blocks, S.ids, 0, &block);
  io->rows = block.rows;
  io->d = wm_model_arch(model)->d_model;
  float *h = zeroed(blocks->max_rows * io->d, sizeof(float));
  io->x = zeroed(blocks->max_rows * io->d, sizeof(float));
  io->y = zeroed(blocks->max_rows * io->d, sizeof(float));
  OK(wm_model_embed(model, &block.batch, block.ids, h, err));
  for (int64_t l = 0; l <= layer; l++) {
    OK(wm_model_attend(model, l, &block.batch, h, io->x, ws, err));
    OK(wm_model_mlp(model, l, io->x, block.rows, io->y, ws, err));
    wm_add_rows(h, io->y, block.rows * io->d);
  }
  double sum = 0;
  for (int64_t i = 0; i < io->rows * io->d; i++)
    sum += (double)io->y[i] * io->y[i];
  io->scale = sqrt(sum / (double)(io->rows * io->d));
  free(h);
  wm_workspace_free(ws);
  wm_block_destroy(&block);
}

/* float64 weights of layer `index` as the file holds them. */
static void read_weights(const char *path, int64_t index, int64_t d, double *weight, double *bias) {
  wm_h5_t *file = NULL;
  OK(wm_h5_open(MPI_COMM_SELF, path, &file, err));
  int64_t offset[3] = {index, 0, 0}, count[3] = {1, d, d};
  OK(wm_h5_read(file, "/weight", H5T_NATIVE_DOUBLE, offset, count, weight, err));
  OK(wm_h5_read(file, "/bias", H5T_NATIVE_DOUBLE, offset, count, bias, err));
  wm_h5_close(file);
}

static double predict(const float *x, const double *weight, const double *bias, int64_t d,
                      int64_t j) {
  double sum = bias[j];
  for (int64_t i = 0; i < d; i++)
    sum += (double)x[i] * weight[i * d + j];
  return sum;
}

/* Largest difference of the predictions of two files' surrogates on the evaluation's first block,
 * relative to the layer's output. */
static double prediction_difference(wm_model_t *model, const char *a, const char *b) {
  int64_t d = wm_model_arch(model)->d_model, n = wm_model_arch(model)->n_layers;
  double *w = zeroed(2 * d * (d + 1), sizeof(double)), *v = w + d * (d + 1), worst = 0;
  for (int64_t l = 0; l < n; l++) {
    io_t io;
    mlp_io(model, &S.evaluation_blocks, l, &io);
    read_weights(a, l, d, w, w + d * d);
    read_weights(b, l, d, v, v + d * d);
    for (int64_t r = 0; r < io.rows; r += 7)
      for (int64_t j = 0; j < d; j++) {
        double p = predict(io.x + r * d, w, w + d * d, d, j);
        double q = predict(io.x + r * d, v, v + d * d, d, j);
        worst = fmax(worst, fabs(p - q) / io.scale);
      }
    free(io.x);
    free(io.y);
  }
  free(w);
  return worst;
}

/* method.md, section 1: at the condition numbers of activations, sums in another order move a
 * prediction by less than 1e-9 of the output's size. */
static const double PREDICTION_BOUND = 1e-9;

static void fit_agrees_across_ranks(void **state) {
  const char *name = *state;
  wm_model_t *world = open_model(S.world, name), *self = open_model(S.self, name);
  wm_fit_options_t o = fit_all(world);
  wm_fit_summary_t a[64], b[64];
  char pa[512], pb[512];
  fit_to(S.world, world, &o, "ranks", pa, a);
  fit_to(S.self, self, &o, "alone", pb, b);
  for (int64_t l = 0; l < o.n_layers; l++) {
    assert_true(fabs(a[l].r2 - b[l].r2) < 1e-10);
    assert_true(fabs(a[l].r2_heldout - b[l].r2_heldout) < 1e-8);
    assert_true(fabs(a[l].effective_rank / b[l].effective_rank - 1) < 1e-9);
    assert_true(a[l].r2 > 0.1 && a[l].r2 <= 1 && a[l].r2_heldout < a[l].r2);
  }
  double difference = prediction_difference(self, pa, pb);
  if (S.world->rank == 0)
    print_message("%s: %d ranks against 1: predictions differ by %.1e of the output\n", name,
                  S.world->size, difference);
  assert_true(difference < PREDICTION_BOUND);
  wm_model_close(self);
  wm_model_close(world);
}

/* Passes over layer groups give the bits of a single pass. */
static void layer_groups_change_nothing(void **state) {
  wm_model_t *model = open_model(S.world, *state);
  wm_fit_options_t o = fit_all(model);
  wm_fit_summary_t a[64], b[64];
  char pa[512], pb[512];
  fit_to(S.world, model, &o, "whole", pa, a);
  int64_t d = wm_model_arch(model)->d_model;
  o.gram_bytes = 3 * (2 * (2 * d * d + 3 * d + 1) + 2 * d) * 8; /* three layers a pass */
  wm_fit_plan_t plan;
  OK(wm_fit_plan(S.world, wm_model_arch(model), &o, &plan, err));
  assert_int_equal(plan.layers_per_pass, 3);
  fit_to(S.world, model, &o, "groups", pb, b);
  double *w = zeroed(2 * d * (d + 1), sizeof(double)), *v = w + d * (d + 1);
  for (int64_t l = 0; l < o.n_layers; l++) {
    read_weights(pa, l, d, w, w + d * d);
    read_weights(pb, l, d, v, v + d * d);
    assert_memory_equal(w, v, (size_t)(d * (d + 1)) * sizeof *w);
  }
  free(w);
  wm_model_close(model);
}

/* MLP inputs and outputs of `layer` at the fit's positions [n, D], in the model in which the layers
 * before it that have a surrogate are replaced (NULL: none). */
static io_t fit_io(wm_model_t *model, const wm_surrogates_t *replaced, int64_t layer) {
  const int64_t d = wm_model_arch(model)->d_model, most = S.fit_blocks.max_rows;
  io_t io = {.d = d};
  io.x = zeroed(S.fit.n_positions * d, sizeof(float));
  io.y = zeroed(S.fit.n_positions * d, sizeof(float));
  float *h = zeroed(most * d, sizeof(float)), *x = zeroed(most * d, sizeof(float));
  float *y = zeroed(most * d, sizeof(float));
  wm_block_t block;
  wm_workspace_t *ws = NULL;
  OK(wm_block_create(&S.fit_blocks, &block, err));
  OK(wm_workspace_create(model, most, S.fit.max_length, &ws, err));
  for (int64_t b = 0; b < S.fit_blocks.n; b++) {
    wm_block_load(&S.fit_blocks, S.ids, b, &block);
    OK(wm_model_embed(model, &block.batch, block.ids, h, err));
    for (int64_t l = 0; l <= layer; l++) {
      OK(wm_model_attend(model, l, &block.batch, h, x, ws, err));
      if (l < layer && replaced != NULL && wm_surrogates_has(replaced, l))
        OK(wm_surrogates_apply(replaced, l, x, block.rows, y, err));
      else
        OK(wm_model_mlp(model, l, x, block.rows, y, ws, err));
      wm_add_rows(h, y, block.rows * d);
    }
    for (int64_t k = 0; k < block.n_kept; k++, io.rows++) {
      memcpy(io.x + io.rows * d, x + block.kept[k] * d, (size_t)d * sizeof *x);
      memcpy(io.y + io.rows * d, y + block.kept[k] * d, (size_t)d * sizeof *y);
    }
  }
  assert_int_equal(io.rows, S.fit.n_positions);
  wm_workspace_free(ws);
  wm_block_destroy(&block);
  free(h);
  free(x);
  free(y);
  return io;
}

static void io_destroy(io_t *io) {
  free(io->x);
  free(io->y);
}

/* How far W, b are from the ridge solution on io (method.md, section 1): the largest element of
 * Xc'(Yc - Xc W) - lambda W for three outputs, over the sums of absolute values. */
static double ridge_gradient(const io_t *io, const double *weight, const double *bias,
                             double lambda) {
  const int64_t d = io->d;
  double *mean = zeroed(d, sizeof(double)), worst = 0;
  for (int64_t r = 0; r < io->rows; r++)
    for (int64_t i = 0; i < d; i++)
      mean[i] += (double)io->x[r * d + i] / (double)io->rows;
  for (int64_t j = 0; j < d; j += d / 3)
    for (int64_t i = 0; i < d; i += 5) {
      double gradient = -lambda * weight[i * d + j], size = 0;
      for (int64_t r = 0; r < io->rows; r++) {
        double residual = io->y[r * d + j] - predict(io->x + r * d, weight, bias, d, j);
        double xc = io->x[r * d + i] - mean[i];
        gradient += xc * residual;
        size += fabs(xc * residual);
      }
      worst = fmax(worst, fabs(gradient) / size);
    }
  free(mean);
  return worst;
}

/* In a sequential fit the first layer is that of any other; the next ones solve the ridge problem
 * of the model in which those before them are replaced, and no longer that of the untouched one. */
static void sequential_fit_sees_replaced_layers(void **state) {
  static const int64_t chosen[] = {1, 2, 4};
  wm_model_t *model = open_model(S.world, *state), *self = open_model(S.self, *state);
  const wm_arch_t *arch = wm_model_arch(model);
  const int64_t d = arch->d_model;
  wm_fit_options_t o = fit_all(model);
  wm_fit_summary_t a[64], b[64], c[64];
  char once[512], sequential[512], alone[512];
  o.layers = chosen;
  o.n_layers = 3;
  o.spectrum = false;
  fit_to(S.world, model, &o, "once", once, a);
  o.sequential = true;
  o.tile_rows = 64;
  fit_to(S.world, model, &o, "sequential", sequential, b);
  fit_to(S.self, self, &o, "sequential", alone, c);
  double *w = zeroed(2 * d * (d + 1), sizeof(double)), *v = w + d * (d + 1);
  read_weights(once, 0, d, w, w + d * d);
  read_weights(sequential, 0, d, v, v + d * d);
  assert_memory_equal(w, v, (size_t)(d * (d + 1)) * sizeof *w);
  wm_surrogates_t *replaced = NULL;
  OK(wm_surrogates_open(S.self, sequential, arch->n_layers, d, 64, WM_COMPUTE_F32, &replaced, err));
  for (int64_t i = 1; i < 3; i++) {
    io_t touched = fit_io(self, replaced, chosen[i]);
    read_weights(once, i, d, w, w + d * d);
    read_weights(sequential, i, d, v, v + d * d);
    double right = ridge_gradient(&touched, v, v + d * d, o.lambda);
    double wrong = ridge_gradient(&touched, w, w + d * d, o.lambda);
    if (S.world->rank == 0)
      print_message("%s, layer %d: gradient %.1e; of the untouched model's surrogate %.1e\n",
                    (const char *)*state, (int)chosen[i], right, wrong);
    assert_true(right < 1e-6 && wrong > 100 * right && wrong > 1e-5);
    assert_true(fabs(b[i].r2 - c[i].r2) < 1e-6 && fabs(b[i].r2 - a[i].r2) > 1e-6);
    io_destroy(&touched);
  }
  wm_surrogates_close(replaced);
  free(w);
  wm_model_close(self);
  wm_model_close(model);
}

/* A layer that is fitted on a model in which others are linear has the surrogate that a sequential
 * fit gives it, bit for bit; surrogates can be taken one by one from a file. */
static void fit_on_a_modified_model(void **state) {
  static const int64_t chosen[] = {1, 2, 4}, before[] = {1, 2};
  wm_model_t *model = open_model(S.world, *state);
  const wm_arch_t *arch = wm_model_arch(model);
  const int64_t d = arch->d_model, numbers = d * (d + 1);
  wm_fit_options_t o = fit_all(model);
  wm_fit_summary_t all[64], one[64];
  char sequential[512], based[512];
  wm_surrogates_t *some = NULL;
  wm_variants_t variants;
  wm_error_t why = {0};
  o.layers = chosen;
  o.n_layers = 3;
  o.spectrum = false;
  o.sequential = true;
  o.tile_rows = 64;
  fit_to(S.world, model, &o, "sequential", sequential, all);
  OK(wm_surrogates_create_empty(S.world, before, 2, arch->n_layers, d, 64, WM_COMPUTE_F32, &some,
                                err));
  for (int i = 0; i < 2; i++)
    OK(wm_surrogates_put_filed(some, S.world, sequential, before[i], err));
  assert_int_equal(wm_surrogates_put_filed(some, S.world, sequential, 3, &why), WM_INPUT);
  assert_non_null(strstr(why.message, "layer 3 has no surrogate"));
  OK(wm_variants_create(&variants, err));
  OK(wm_variants_add(&variants, before, 2, arch->n_layers, err));
  const wm_base_t base = {some, &variants, 1};
  o.sequential = false;
  o.base = &base;
  o.layers = &chosen[2];
  o.n_layers = 1;
  fit_to(S.world, model, &o, "based", based, one);
  double *w = zeroed(2 * numbers, sizeof(double)), *v = w + numbers;
  read_weights(sequential, 2, d, w, w + d * d);
  read_weights(based, 0, d, v, v + d * d);
  assert_memory_equal(w, v, (size_t)numbers * sizeof *w);
  assert_true(one[0].r2 == all[2].r2);
  free(w);
  wm_variants_destroy(&variants);
  wm_surrogates_close(some);
  wm_model_close(model);
}

static void grids_agree(void **state) {
  static const int grids[][2] = {{1, 1}, {1, 2}, {2, 1}, {1, 3}, {2, 2}};
  wm_model_t *model = open_model(S.world, *state), *self = open_model(S.self, *state);
  wm_fit_options_t o = fit_all(model);
  wm_fit_summary_t s[64];
  char first[512] = "", path[512], name[32];
  for (int g = 0; g < 5; g++) {
    if (grids[g][0] * grids[g][1] > S.world->size)
      continue;
    o.grid_rows = grids[g][0];
    o.grid_columns = grids[g][1];
    snprintf(name, sizeof name, "grid%d", g);
    fit_to(S.world, model, &o, name, path, s);
    if (g == 0)
      strcpy(first, path);
    assert_true(prediction_difference(self, first, path) < PREDICTION_BOUND);
  }
  wm_model_close(self);
  wm_model_close(model);
}

/* R^2 from Gram matrices against R^2 from the predictions themselves, on held-out rows. */
static void heldout_r2_is_that_of_predictions(void **state) {
  wm_model_t *model = open_model(S.self, *state);
  wm_fit_options_t o = fit_all(model);
  wm_fit_summary_t s[64];
  char path[512];
  wm_blocks_t one;
  OK(wm_blocks_create(&S.heldout, N_TOKENS, &one, err));
  fit_to(S.self, model, &o, "r2", path, s);
  int64_t d = wm_model_arch(model)->d_model;
  double *w = zeroed(d * (d + 1), sizeof(double));
  for (int64_t l = 0; l < o.n_layers; l += 3) {
    io_t io;
    mlp_io(model, &one, l, &io);
    read_weights(path, l, d, w, w + d * d);
    double sse = 0, total = 0;
    for (int64_t j = 0; j < d; j++) {
      double mean = 0;
      for (int64_t r = 0; r < io.rows; r++)
        mean += (double)io.y[r * d + j] / (double)io.rows;
      for (int64_t r = 0; r < io.rows; r++) {
        double y = io.y[r * d + j], e = y - predict(io.x + r * d, w, w + d * d, d, j);
        sse += e * e;
        total += (y - mean) * (y - mean);
      }
    }
    assert_true(fabs(s[l].r2_heldout - (1 - sse / total)) < 1e-8);
    free(io.x);
    free(io.y);
  }
  free(w);
  wm_blocks_destroy(&one);
  wm_model_close(model);
}

static void make_variants(const wm_model_t *model, wm_variants_t *v) {
  int64_t n = wm_model_arch(model)->n_layers;
  OK(wm_variants_create(v, err));
  for (int64_t l = 0; l < n; l++) {
    OK(wm_variants_add(v, &l, 1, n, err));
    if (l == 2)
      OK(wm_variants_add(v, (int64_t[]){5, 2, 3}, 3, n, err));
  }
}

/* One variant by itself: no stack, no trunk. */
static void alone(wm_model_t *model, const wm_surrogates_t *surrogates, const wm_variants_t *v,
                  int64_t variant, const wm_block_t *block, wm_workspace_t *ws, double *nll) {
  int64_t d = wm_model_arch(model)->d_model, rows = block->rows;
  float *h = zeroed(3 * rows * d, sizeof(float)), *x = h + rows * d, *y = x + rows * d;
  OK(wm_model_embed(model, &block->batch, block->ids, h, err));
  for (int64_t l = 0; l < wm_model_arch(model)->n_layers; l++) {
    OK(wm_model_attend(model, l, &block->batch, h, x, ws, err));
    if (wm_variants_path(v, variant, l) == WM_PATH_SURROGATE)
      OK(wm_surrogates_apply(surrogates, l, x, rows, y, err));
    else
      OK(wm_model_mlp(model, l, x, rows, y, ws, err));
    wm_add_rows(h, y, rows * d);
  }
  OK(wm_model_nll(model, h, rows, block->targets, nll, ws, err));
  free(h);
}

static void stacked_branches_equal_single_models(void **state) {
  skip_if_blas_tells_rows_apart();
  wm_model_t *model = open_model(S.self, *state);
  wm_fit_options_t o = fit_all(model);
  wm_fit_summary_t s[64];
  char path[512];
  fit_to(S.self, model, &o, "stack", path, s);
  wm_surrogates_t *surrogates = open_surrogates(S.self, model, path);
  const wm_blocks_t *blocks = &S.evaluation_blocks;
  wm_variants_t v;
  make_variants(model, &v);
  wm_block_t block;
  wm_workspace_t *ws = NULL;
  OK(wm_block_create(blocks, &block, err));
  OK(wm_workspace_create(model, blocks->max_rows, blocks->windows->max_length, &ws, err));
  float *nll = zeroed(v.n * blocks->max_rows, sizeof(float));
  double *one = zeroed(blocks->max_rows, sizeof(double));
  /* stacks of one, two and all slots */
  for (int64_t rows = BLOCK; rows <= 16 * BLOCK; rows *= 4) {
    wm_evaluator_t *e = NULL;
    OK(wm_evaluator_create(model, surrogates, &v, blocks, v.n - 1, rows, false, &e, err));
    for (int64_t b = 0; b < blocks->n; b += blocks->n - 1) {
      wm_block_load(blocks, S.ids, b, &block);
      OK(wm_evaluate_block(e, &block, 1, v.n - 1, nll, NULL, err));
      for (int64_t variant = 0; variant < v.n; variant++) {
        alone(model, surrogates, &v, variant, &block, ws, one);
        for (int64_t r = 0, p = 0; r < block.rows; r++)
          if (block.targets[r] >= 0)
            assert_true(nll[variant * block.n_predictions + p++] == (float)one[r]);
      }
    }
    wm_evaluator_free(e);
  }
  free(one);
  free(nll);
  wm_workspace_free(ws);
  wm_block_destroy(&block);
  wm_variants_destroy(&v);
  wm_surrogates_close(surrogates);
  wm_model_close(model);
}

static void run_sweep(const wm_comm_t *comm, wm_model_t *model, const wm_surrogates_t *surrogates,
                      const wm_variants_t *v, int64_t group, wm_sweep_t *out) {
  wm_sweep_options_t o = {.max_group = group,
                          .stack_rows = 3 * BLOCK,
                          .unit = WM_UNIT_WINDOW,
                          .bootstrap = {.resamples = 500, .seed = 3, .confidence = 0.95}};
  OK(wm_sweep_run(comm, model, surrogates, v, &S.evaluation_blocks, S.ids, &o, NULL, out, err));
}

/* The same surrogates: bitwise equal losses and statistics for any number of ranks, and, where rows
 * of a product are independent, for any grouping of the variants. */
static void sweep_is_bitwise_equal(void **state) {
  wm_model_t *world = open_model(S.world, *state), *self = open_model(S.self, *state);
  wm_fit_options_t o = fit_all(world);
  wm_fit_summary_t s[64];
  char path[512];
  fit_to(S.world, world, &o, "sweep", path, s);
  wm_surrogates_t *sw = open_surrogates(S.world, world, path);
  wm_surrogates_t *ss = open_surrogates(S.self, self, path);
  wm_variants_t v;
  make_variants(world, &v);
  wm_sweep_t a, b;
  size_t bytes = (size_t)(v.n * S.evaluation.n_predicted) * sizeof(float);
  run_sweep(S.self, self, ss, &v, 64, &b);
  for (int64_t group = rows_are_told_apart() ? 64 : 2; group <= 64; group += 62) {
    run_sweep(S.world, world, sw, &v, group, &a);
    assert_memory_equal(a.nll.data, b.nll.data, bytes);
    assert_true(a.perplexity == b.perplexity);
    for (int64_t i = 1; i < v.n; i++) {
      assert_true(a.effects[i].delta == b.effects[i].delta);
      assert_true(a.effects[i].low == b.effects[i].low);
      assert_true(a.effects[i].high == b.effects[i].high);
      assert_true(a.effects[i].p_holm == b.effects[i].p_holm);
      assert_true(a.effects[i].delta != 0);
    }
    wm_sweep_destroy(&a);
  }
  wm_sweep_destroy(&b);
  wm_variants_destroy(&v);
  wm_surrogates_close(ss);
  wm_surrogates_close(sw);
  wm_model_close(self);
  wm_model_close(world);
}

#define ON_BOTH(test)                                                                              \
  {#test " (GPT-2)", test, NULL, NULL, "demo_gpt2"}, {                                             \
#test " (GPT-NeoX)", test, NULL, NULL, "demo_gpt_neox"                                         \
  }

int main(int argc, char **argv) {
  wm_h5_environment();
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      ON_BOTH(fit_agrees_across_ranks),
      ON_BOTH(layer_groups_change_nothing),
      ON_BOTH(sequential_fit_sees_replaced_layers),
      ON_BOTH(fit_on_a_modified_model),
      ON_BOTH(grids_agree),
      ON_BOTH(heldout_r2_is_that_of_predictions),
      ON_BOTH(stacked_branches_equal_single_models),
      ON_BOTH(sweep_is_bitwise_equal),
  };
  int failed = cmocka_run_group_tests(tests, set_up, tear_down);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed != 0;
}
