/* The training pass on several ranks: sequences shared out give the same losses, masks and, to
 * rounding, gradients; values are one memory for all ranks of a node. A failed check ends the run
 * at once. */
#include "wanamaker/base/mem.h"
#include "wanamaker/model/training.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../unit/row_order.h"

static wm_comm_t *comm, *self;
static wm_error_t err;

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: rank %d: %s (%s)\n", __FILE__, __LINE__, comm->rank, #condition,     \
              err.message);                                                                        \
      MPI_Abort(MPI_COMM_WORLD, 1);                                                                \
    }                                                                                              \
  } while (0)

enum { SEQUENCES = 7, LENGTH = 9, V = 23, D = 12 }; /* of the golden model gpt2_inverse_layer */

typedef struct {
  wm_model_t *model;
  wm_training_t *training;
} trainee_t;

static trainee_t make(const wm_comm_t *c, const wm_layer_path_t *paths) {
  const char *root = getenv("WM_TEST_DATA");
  char *config = wm_format("%s/model/gpt2_inverse_layer/config.json", root != NULL ? root : ".");
  const wm_model_options_t kind = {.tile_rows = 16, .tile_vocab = 16, .writable = true};
  const wm_training_options_t options = {.trainable = (1u << WM_GROUP_COUNT) - 1,
                                         .paths = paths,
                                         .gate_hidden = 5,
                                         .drop_embedding = 0.1,
                                         .drop_attention = 0.2,
                                         .drop_residual = 0.1,
                                         .max_rows = SEQUENCES * LENGTH,
                                         .max_length = LENGTH};
  trainee_t t;
  CHECK(wm_model_create_random(c, config, 3, &kind, NULL, &t.model, &err) == WM_OK);
  CHECK(wm_training_create(t.model, &options, &t.training, &err) == WM_OK);
  free(config);
  return t;
}

static void free_trainee(trainee_t *t) {
  wm_training_free(t->training);
  wm_model_close(t->model);
}

/* Gradients of sequences first, first + step, ...; their losses go to nll[sequence]. */
static void run(const trainee_t *t, int first, int step, double *nll) {
  int64_t starts[SEQUENCES + 1] = {0}, numbers[SEQUENCES];
  int32_t ids[SEQUENCES * LENGTH], targets[SEQUENCES * LENGTH];
  double sums[SEQUENCES], gates[SEQUENCES];
  int n = 0;
  for (int s = first; s < SEQUENCES; s += step, n++) {
    numbers[n] = s;
    starts[n + 1] = starts[n] + LENGTH;
    for (int i = 0; i < LENGTH; i++) {
      ids[n * LENGTH + i] = (131 * s + 7 * i) % V;
      targets[n * LENGTH + i] = (17 * s + 5 * i) % V;
    }
  }
  const wm_training_batch_t batch = {.rows = {n, starts},
                                     .ids = ids,
                                     .targets = targets,
                                     .step = 2,
                                     .sequences = numbers,
                                     .nll_scale = 1.0 / (SEQUENCES * LENGTH),
                                     .gate_scale = 0.1};
  wm_training_result_t result = {sums, gates};
  CHECK(wm_training_accumulate(t->training, &batch, NULL, &result, &err) == WM_OK);
  for (int k = 0; k < n; k++)
    nll[numbers[k]] = sums[k];
}

static void compare(trainee_t *together, trainee_t *alone) {
  int64_t count;
  const float *mine = wm_training_gradients(together->training, &count);
  const float *whole = wm_training_gradients(alone->training, &count);
  double *sum = calloc((size_t)count, sizeof *sum), error = 0, size = 0;
  CHECK(sum != NULL);
  for (int64_t i = 0; i < count; i++)
    sum[i] = (double)mine[i];
  MPI_Allreduce(MPI_IN_PLACE, sum, (int)count, MPI_DOUBLE, MPI_SUM, comm->world);
  for (int64_t i = 0; i < count; i++) {
    error += pow(sum[i] - (double)whole[i], 2);
    size += pow((double)whole[i], 2);
  }
  CHECK(size > 0 && sqrt(error) <= 1e-6 * sqrt(size)); /* seven float32 sums */
  free(sum);
}

static void test_sequences_are_shared_out(void **state) {
  (void)state;
  float weight[D * D], bias[D] = {0.5f};
  for (int i = 0; i < D * D; i++)
    weight[i] = (float)(i * 37 % 19) / 40;
  const wm_layer_path_t paths[] = {{WM_MLP_GATED, weight, bias}, {WM_MLP_FULL, NULL, NULL}};
  trainee_t together = make(comm, paths), alone = make(self, paths);
  double nll[SEQUENCES] = {0}, expected[SEQUENCES];
  run(&alone, 0, 1, expected);
  run(&together, comm->rank, comm->size, nll);
  MPI_Allreduce(MPI_IN_PLACE, nll, SEQUENCES, MPI_DOUBLE, MPI_SUM, comm->world);
  CHECK(rows_are_told_apart() || memcmp(nll, expected, sizeof nll) == 0);
  for (int i = 0; i < SEQUENCES; i++) /* sums of eight losses */
    CHECK(fabs(nll[i] - expected[i]) <= 1e-5 * expected[i]);
  compare(&together, &alone);
  free_trainee(&together);
  free_trainee(&alone);
}

/* Each rank of the node changes some parameters, gates among them; then all see all changes. */
static void test_values_are_shared(void **state) {
  (void)state;
  float weight[D * D] = {1}, bias[D] = {0};
  const wm_layer_path_t paths[] = {{WM_MLP_GATED, weight, bias}, {WM_MLP_GATED, weight, bias}};
  trainee_t t = make(comm, paths);
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(t.training, &count);
  wm_training_sync(t.training);
  for (int64_t i = comm->node_rank; i < count; i += comm->node_size)
    p[i].value[p[i].elements - 1] = (float)i;
  wm_training_sync(t.training);
  for (int64_t i = 0; i < count; i++)
    CHECK(p[i].value[p[i].elements - 1] == (float)i);
  free_trainee(&t);
}

/* A surrogate that only one rank finds not finite: all learn of it. */
static void test_bad_surrogates_are_refused_by_all(void **state) {
  (void)state;
  const char *root = getenv("WM_TEST_DATA");
  char *config = wm_format("%s/model/gpt2_inverse_layer/config.json", root != NULL ? root : ".");
  float weight[D * D] = {0}, bias[D] = {0};
  const wm_layer_path_t paths[] = {{WM_MLP_FULL, NULL, NULL}, {WM_MLP_SURROGATE, weight, bias}};
  const wm_model_options_t kind = {.tile_rows = 16, .tile_vocab = 16, .writable = true};
  const wm_training_options_t options = {
      .paths = paths, .gate_hidden = 5, .max_rows = 9, .max_length = 9};
  wm_model_t *model;
  wm_training_t *training;
  weight[5] = comm->rank == comm->size - 1 ? NAN : 0;
  CHECK(wm_model_create_random(comm, config, 3, &kind, NULL, &model, &err) == WM_OK);
  CHECK(wm_training_create(model, &options, &training, &err) == WM_INPUT);
  CHECK(training == NULL && strstr(err.message, "layer 1 is not finite") != NULL);
  wm_model_close(model);
  free(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sequences_are_shared_out),
      cmocka_unit_test(test_values_are_shared),
      cmocka_unit_test(test_bad_surrogates_are_refused_by_all),
  };
  int provided;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (wm_comm_create(MPI_COMM_WORLD, &comm, &err) != WM_OK ||
      wm_comm_create(MPI_COMM_SELF, &self, &err) != WM_OK)
    MPI_Abort(MPI_COMM_WORLD, 1);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  if (failed != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  wm_comm_free(self);
  wm_comm_free(comm);
  MPI_Finalize();
  return 0;
}
