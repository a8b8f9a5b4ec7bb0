/* Models with random weights: moments, the same bits for any number of ranks, and the way through
 * files back. A failed check ends the run at once. */
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/safetensors.h"
#include "wanamaker/model/model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

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

enum { SEED = 11, ROWS = 40, V = 5003, TENSORS = 4 + 2 * 12 }; /* of either model */
static const char *const configs[] = {
    "{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 48, \"n_head\": 3, \"n_positions\": "
    "64, "
    "\"vocab_size\": 5003}",
    "{\"model_type\": \"gpt_neox\", \"num_hidden_layers\": 2, \"hidden_size\": 48, "
    "\"num_attention_heads\": 3, \"intermediate_size\": 100, \"max_position_embeddings\": 64, "
    "\"vocab_size\": 5003, \"rotary_pct\": 0.25, \"initializer_range\": 0.05}"};

static char root[4096];

/* root/NAME; free(). */
static char *path_of(const char *name) {
  char *path = wm_format("%s/%s", root, name);
  CHECK(path != NULL);
  return path;
}

static char *write_config(int which) {
  char *path = path_of(which == 0 ? "gpt2.json" : "neox.json");
  if (comm->rank == 0) {
    FILE *file = fopen(path, "w");
    CHECK(file != NULL && fputs(configs[which], file) >= 0 && fclose(file) == 0);
  }
  MPI_Barrier(comm->world);
  return path;
}

static void losses(wm_model_t *model, double nll[ROWS]) {
  const int64_t starts[] = {0, 25, ROWS}, d = wm_model_arch(model)->d_model;
  wm_batch_t batch = {2, starts};
  int32_t ids[ROWS], targets[ROWS];
  float *h = calloc((size_t)(3 * ROWS * d), sizeof *h), *x = h + ROWS * d, *y = x + ROWS * d;
  wm_workspace_t *ws;
  CHECK(h != NULL);
  for (int i = 0; i < ROWS; i++) {
    ids[i] = 131 * i % V;
    targets[i] = 37 * i % V;
  }
  CHECK(wm_workspace_create(model, ROWS, ROWS, &ws, &err) == WM_OK);
  CHECK(wm_model_embed(model, &batch, ids, h, &err) == WM_OK);
  for (int64_t l = 0; l < wm_model_arch(model)->n_layers; l++) {
    CHECK(wm_model_attend(model, l, &batch, h, x, ws, &err) == WM_OK);
    CHECK(wm_model_mlp(model, l, x, ROWS, y, ws, &err) == WM_OK);
    wm_model_add(model, h, y, ROWS * d);
  }
  CHECK(wm_model_nll(model, h, ROWS, targets, nll, ws, &err) == WM_OK);
  wm_workspace_free(ws);
  free(h);
}

static const wm_model_options_t options = {.tile_rows = 32, .tile_vocab = 1024};

static void losses_of_random(const wm_comm_t *c, const char *config, uint64_t seed,
                             double nll[ROWS]) {
  wm_model_t *model;
  CHECK(wm_model_create_random(c, config, seed, &options, NULL, &model, &err) == WM_OK);
  losses(model, nll);
  wm_model_close(model);
}

static uint64_t pulses_of(const char *config) {
  wm_model_t *model;
  uint64_t before = wm_pulse_count();
  CHECK(wm_model_create_random(self, config, SEED, &options, NULL, &model, &err) == WM_OK);
  uint64_t count = wm_pulse_count() - before;
  wm_model_close(model);
  return count;
}

/* Slow disks take minutes over a large tensor: each is loaded with several pulses. */
static void test_large_tensors_pulse(void **state) {
  (void)state;
  char *large = path_of("large.json"), *small = write_config(0);
  if (comm->rank == 0) {
    FILE *file = fopen(large, "w"); /* embeddings of 9.6 million elements, and 200 times fewer */
    CHECK(file != NULL && fputs("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 48, "
                                "\"n_head\": 3, \"n_positions\": 64, \"vocab_size\": 200003}",
                                file) >= 0);
    CHECK(fclose(file) == 0 && pulses_of(large) >= pulses_of(small) + 2);
  }
  MPI_Barrier(comm->world);
  free(large);
  free(small);
}

static void losses_of_files(const char *dir, double nll[ROWS]) {
  wm_model_t *model;
  CHECK(wm_model_open(comm, dir, &options, NULL, &model, &err) == WM_OK);
  losses(model, nll);
  wm_model_close(model);
}

static void test_any_number_of_ranks(void **state) {
  (void)state;
  for (int which = 0; which < 2; which++) {
    char *config = write_config(which);
    double together[ROWS], alone[ROWS], other[ROWS];
    losses_of_random(comm, config, SEED, together);
    losses_of_random(self, config, SEED, alone);
    losses_of_random(comm, config, SEED + 1, other);
    CHECK(memcmp(together, alone, sizeof alone) == 0);
    for (int i = 0; i < ROWS; i++)
      CHECK(isfinite(alone[i]) && alone[i] != other[i]);
    free(config);
  }
}

/* Mean, deviation and the share within one deviation of a normal, each within five standard errors;
 * the matrix must not be made of repetitions either. */
static void check_normal(const float *x, int64_t n, double deviation) {
  double sum = 0, squares = 0, inside = 0, neighbours = 0;
  for (int64_t i = 0; i < n; i++) {
    double z = (double)x[i] / deviation;
    sum += z;
    squares += z * z;
    inside += fabs(z) < 1;
    neighbours += i > 0 ? z * (double)x[i - 1] / deviation : 0;
  }
  const double count = (double)n, p = 0.6826894921;
  CHECK(fabs(sum) < 5 * sqrt(count));
  CHECK(fabs(squares - count) < 5 * sqrt(2 * count));
  CHECK(fabs(inside - p * count) < 5 * sqrt(p * (1 - p) * count));
  CHECK(fabs(neighbours) < 5 * sqrt(count));
}

/* As transformers initialises: config.json's initializer_range (0.02), over the square root of 2 L
 * for GPT-2's projections into the residual stream. */
static double expected_deviation(const char *name, int which) {
  if (which == 1)
    return 0.05;
  return strstr(name, ".c_proj.") != NULL ? 0.02 / sqrt(2 * 2) : 0.02;
}

/* Names are those of the whole language model: without the base model's prefix transformers takes
 * a file with a head of its own for a damaged one. */
static void check_tensor(const wm_tensor_t *t, int which) {
  static const char *const prefixes[] = {"transformer.", "gpt_neox."};
  CHECK(strncmp(t->name, prefixes[which], strlen(prefixes[which])) == 0 ||
        strcmp(t->name, which == 0 ? "lm_head.weight" : "embed_out.weight") == 0);
  CHECK(t->dtype == WM_DTYPE_F32);
  const float *x = t->data;
  size_t length = strlen(t->name);
  float constant = strcmp(t->name + length - 7, ".weight") == 0 ? 1 : 0;
  if (t->n_dims == 2)
    check_normal(x, t->elements, expected_deviation(t->name, which));
  else
    for (int64_t i = 0; i < t->elements; i++)
      CHECK(x[i] == constant);
}

static void check_tensors(const char *dir, int which) {
  wm_tensors_t *tensors;
  CHECK(wm_tensors_open(dir, &tensors, &err) == WM_OK);
  CHECK(wm_tensors_count(tensors) == TENSORS);
  for (int64_t i = 0; i < wm_tensors_count(tensors); i++)
    check_tensor(wm_tensors_at(tensors, i), which);
  wm_tensors_close(tensors);
}

/* Single file: mapped and used in place, so that alignment matters too. */
static void test_f32_file(void **state) {
  (void)state;
  char *config = write_config(0), *dir = path_of("f32");
  double drawn[ROWS], read[ROWS];
  uint64_t pulses = wm_pulse_count();
  CHECK(wm_model_save_random(comm, config, SEED, WM_DTYPE_F32, 1, dir, NULL, &err) == WM_OK);
  pulses = wm_pulse_count() - pulses;
  losses_of_random(comm, config, SEED, drawn);
  losses_of_files(dir, read);
  CHECK(memcmp(drawn, read, sizeof read) == 0);
  check_tensors(dir, 0);
  /* Who writes shows a sign of life with every tensor: a large model takes minutes. */
  CHECK(comm->rank != 0 || pulses > TENSORS);
  CHECK(wm_model_save_random(comm, config, SEED, WM_DTYPE_F32, 1, dir, NULL, &err) == WM_USAGE);
  CHECK(strstr(err.message, "already holds a model") != NULL);
  free(dir);
  free(config);
}

/* A tied matrix is drawn once, be it embedding or head; an embedding and a bfloat16 head are two.
 */
static void test_memory(void **state) {
  (void)state;
  enum { PADDING = 64 };
  char *config = write_config(0);
  wm_model_options_t typed = options;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    wm_model_t *model;
    typed.compute = bf16 ? WM_COMPUTE_BF16_EMULATED : WM_COMPUTE_F32;
    CHECK(wm_model_create_random(comm, config, SEED, &typed, NULL, &model, &err) == WM_OK);
    int64_t least = 4 * wm_model_parameters(model), bytes = wm_model_shared_bytes(model);
    int64_t most = bf16 ? INT64_MAX : least + TENSORS * PADDING;
    if (bf16) /* halves, and the embedding besides */
      least = least / 2 + 4 * V * 48;
    CHECK(bytes >= least && bytes <= most);
    wm_model_close(model);
  }
  free(config);
}

/* Every half is the nearest one to the float32 draw. */
static void check_rounding(const char *exact_dir, const char *half_dir, wm_dtype_t dtype) {
  wm_tensors_t *exact, *half;
  CHECK(wm_tensors_open(exact_dir, &exact, &err) == WM_OK);
  CHECK(wm_tensors_open(half_dir, &half, &err) == WM_OK);
  CHECK(wm_tensors_count(exact) == wm_tensors_count(half));
  const double unit = dtype == WM_DTYPE_F16 ? 0x1p-11 : 0x1p-8;
  for (int64_t k = 0; k < wm_tensors_count(exact); k++) {
    const wm_tensor_t *a = wm_tensors_at(exact, k), *b = wm_tensors_at(half, k);
    float *rounded = malloc((size_t)a->elements * sizeof *rounded);
    CHECK(rounded != NULL && b->dtype == dtype && strcmp(a->name, b->name) == 0);
    wm_to_f32(b->dtype, b->data, b->elements, rounded);
    for (int64_t i = 0; i < a->elements; i++) {
      double x = (double)((const float *)a->data)[i];
      CHECK(fabs((double)rounded[i] - x) <= unit * fabs(x) + 0x1p-25);
    }
    free(rounded);
  }
  wm_tensors_close(exact);
  wm_tensors_close(half);
}

static void test_half_shards(void **state) {
  (void)state;
  static const struct {
    wm_dtype_t dtype;
    int64_t shards;
    const char *name;
  } cases[] = {{WM_DTYPE_F16, 2, "f16"}, {WM_DTYPE_BF16, 5, "bf16"}};
  char *config = write_config(1), *exact = path_of("neox_f32");
  double drawn[ROWS], read[ROWS];
  CHECK(wm_model_save_random(comm, config, SEED, WM_DTYPE_F32, 3, exact, NULL, &err) == WM_OK);
  losses_of_random(comm, config, SEED, drawn);
  losses_of_files(exact, read);
  check_tensors(exact, 1);
  CHECK(memcmp(drawn, read, sizeof read) == 0);
  for (int i = 0; i < 2; i++) {
    char *dir = path_of(cases[i].name);
    CHECK(wm_model_save_random(comm, config, SEED, cases[i].dtype, cases[i].shards, dir, NULL,
                               &err) == WM_OK);
    check_rounding(exact, dir, cases[i].dtype);
    losses_of_files(dir, read);
    for (int r = 0; r < ROWS; r++)
      CHECK(fabs(read[r] - drawn[r]) < 0.05);
    free(dir);
  }
  free(exact);
  free(config);
}

static void test_refusals(void **state) {
  (void)state;
  char *config = write_config(0), *dir = path_of("refused"), *missing = path_of("missing.json");
  wm_model_t *model;
  CHECK(wm_model_save_random(comm, config, SEED, WM_DTYPE_F32, 1000, dir, NULL, &err) == WM_USAGE);
  CHECK(wm_model_create_random(comm, missing, SEED, &options, NULL, &model, &err) == WM_INPUT);
  CHECK(strstr(err.message, "missing.json") != NULL && model == NULL);
  CHECK(wm_model_save_random(comm, missing, SEED, WM_DTYPE_F32, 1, dir, NULL, &err) == WM_INPUT);
  CHECK(wm_model_save_random(comm, config, SEED, WM_DTYPE_F32, 1, "/proc/no_model", NULL, &err) ==
        WM_ENVIRONMENT);
  CHECK(strstr(err.message, "/proc/no_model") != NULL);
  free(missing);
  char *wide = path_of("wide.json");
  if (comm->rank == 0) {
    FILE *file = fopen(wide, "w");
    CHECK(file != NULL && fputs("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 48, "
                                "\"n_head\": 3, \"initializer_range\": -0.5}",
                                file) >= 0);
    CHECK(fclose(file) == 0);
  }
  MPI_Barrier(comm->world);
  CHECK(wm_model_create_random(comm, wide, SEED, &options, NULL, &model, &err) == WM_INPUT);
  CHECK(strstr(err.message, "wide.json") != NULL && strstr(err.message, "-0.5") != NULL);
  free(wide);
  free(dir);
  free(config);
}

/* The files of configs/models describe the published models: their numbers of parameters. */
static void test_published(void **state) {
  (void)state;
  static const struct {
    const char *name;
    int64_t parameters;
  } published[] = {{"gpt2", 124439808},        {"gpt2-medium", 354823168},
                   {"gpt2-large", 774030080},  {"pythia-160m", 162322944},
                   {"pythia-410m", 405334016}, {"pythia-1b", 1011781632},
                   {"pythia-2.8b", 2775208960}};
  const char *data = getenv("WM_TEST_DATA");
  CHECK(data != NULL);
  for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
    char *path = wm_format("%s/../../configs/models/%s.json", data, published[i].name);
    wm_arch_t a;
    char *unknown = NULL;
    CHECK(wm_arch_read(path, &a, &err) == WM_OK);
    CHECK(wm_arch_unknown_keys(path, &unknown, &err) == WM_OK && unknown[0] == '\0');
    int64_t d = a.d_model, f = a.d_mlp;
    int64_t layer = 4 * d * d + 2 * d * f + 4 * d + f + d + 4 * d;
    int64_t positions = a.family == WM_FAMILY_GPT2 ? a.max_positions * d : 0;
    int64_t embeddings = (a.tied_head ? 1 : 2) * a.vocab_size * d;
    CHECK(embeddings + positions + a.n_layers * layer + 2 * d == published[i].parameters);
    free(unknown);
    free(path);
  }
}

static void make_root(void) {
  const char *base = getenv("TMPDIR");
  if (comm->rank == 0) {
    snprintf(root, sizeof root, "%s/wm_random_XXXXXX", base != NULL ? base : "/tmp");
    CHECK(mkdtemp(root) != NULL);
  }
  wm_broadcast(comm->world, 0, root, sizeof root);
}

static void remove_root(void) {
  char *command = wm_format("rm -rf -- '%s'", root);
  MPI_Barrier(comm->world);
  if (comm->rank == 0 && system(command) != 0)
    fprintf(stderr, "%s is left\n", root);
  free(command);
}

/* The last test: a request to stop stays. What is there then is no model and leaves no pieces. */
static void test_stop(void **state) {
  (void)state;
  char *config = write_config(0), *dir = path_of("stopped");
  char *made = path_of("stopped/config.json"), *piece = path_of("stopped/model.safetensors.tmp");
  wm_stop_request();
  CHECK(wm_model_save_random(comm, config, SEED, WM_DTYPE_F32, 1, dir, NULL, &err) == WM_STOPPED);
  CHECK(strstr(err.message, dir) != NULL);
  CHECK(access(made, F_OK) != 0 && access(piece, F_OK) != 0);
  free(piece);
  free(made);
  free(dir);
  free(config);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_any_number_of_ranks), cmocka_unit_test(test_f32_file),
      cmocka_unit_test(test_half_shards),         cmocka_unit_test(test_refusals),
      cmocka_unit_test(test_published),           cmocka_unit_test(test_memory),
      cmocka_unit_test(test_large_tensors_pulse), cmocka_unit_test(test_stop),
  };
  int provided;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  if (wm_comm_create(MPI_COMM_WORLD, &comm, &err) != WM_OK ||
      wm_comm_create(MPI_COMM_SELF, &self, &err) != WM_OK)
    MPI_Abort(MPI_COMM_WORLD, 1);
  make_root();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  remove_root();
  if (failed != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  wm_comm_free(self);
  wm_comm_free(comm);
  MPI_Finalize();
  return 0;
}
