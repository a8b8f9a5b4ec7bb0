/* What the tests of model/ share: MPI start, opening a golden model, a whole forward pass. */
#ifndef WANAMAKER_TESTS_MODEL_FIXTURE_H
#define WANAMAKER_TESTS_MODEL_FIXTURE_H

#include "wanamaker/base/mem.h"
#include "wanamaker/io/safetensors.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Group setup and teardown; *state is the communicator. */
static inline int fixture_start(void **state) {
  wm_error_t err = {0};
  int provided;
  MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
  wm_comm_t *comm;
  if (wm_comm_create(MPI_COMM_WORLD, &comm, &err) != WM_OK)
    return -1;
  *state = comm;
  return 0;
}

static inline int fixture_stop(void **state) {
  wm_comm_free(*state);
  MPI_Finalize();
  return 0;
}

static inline const char *golden_root(void) {
  const char *root = getenv("WM_TEST_DATA");
  return root != NULL ? root : "tests/data";
}

/* WM_TEST_DATA/model/NAME; free(). */
static inline char *golden_path(const char *name) {
  char *path = wm_format("%s/model/%s", golden_root(), name);
  assert_non_null(path);
  return path;
}

static inline wm_model_t *open_model(const wm_comm_t *comm, const char *dir, int64_t tile_rows,
                                     int64_t tile_vocab) {
  wm_error_t err = {0};
  wm_model_options_t options = {.tile_rows = tile_rows, .tile_vocab = tile_vocab};
  wm_model_t *model;
  if (wm_model_open(comm, dir, &options, NULL, &model, &err) != WM_OK)
    fail_msg("%s: %s", dir, err.message);
  return model;
}

static inline void *array(int64_t count, size_t size) {
  void *memory;
  wm_error_t err = {0};
  assert_int_equal(wm_alloc(&memory, count, size, "test", &err), WM_OK);
  return memory;
}

/* Results of a forward pass over a batch of N rows. */
typedef struct {
  int64_t n;
  float *x, *y; /* [L, N, D] */
  float *logits;
  double *nll;
} pass_t;

static inline void pass_free(pass_t *pass) {
  free(pass->x);
  free(pass->y);
  free(pass->logits);
  free(pass->nll);
}

static inline void check(wm_status_t status, const wm_error_t *err) {
  if (status != WM_OK)
    fail_msg("%s", err->message);
}

/* Runs the whole model; the target of a row is the next token of its sequence. */
static inline pass_t run_model(wm_model_t *model, const wm_batch_t *batch, const int32_t *ids) {
  const wm_arch_t *a = wm_model_arch(model);
  int64_t n = batch->starts[batch->n_sequences], d = a->d_model, longest = 0;
  wm_error_t err = {0};
  wm_workspace_t *ws;
  pass_t p = {.n = n,
              .x = array(a->n_layers * n * d, sizeof(float)),
              .y = array(a->n_layers * n * d, sizeof(float)),
              .logits = array(n * a->vocab_size, sizeof(float)),
              .nll = array(n, sizeof(double))};
  float *h = array(n * d, sizeof(float));
  int32_t *targets = array(n, sizeof *targets);
  for (int64_t s = 0; s < batch->n_sequences; s++) {
    int64_t length = batch->starts[s + 1] - batch->starts[s];
    longest = length > longest ? length : longest;
    for (int64_t i = batch->starts[s]; i < batch->starts[s + 1]; i++)
      targets[i] = i + 1 < batch->starts[s + 1] ? ids[i + 1] : -1;
  }
  check(wm_workspace_create(model, n, longest, &ws, &err), &err);
  check(wm_model_embed(model, batch, ids, h, &err), &err);
  for (int64_t l = 0; l < a->n_layers; l++) {
    float *x = p.x + l * n * d, *y = p.y + l * n * d;
    check(wm_model_attend(model, l, batch, h, x, ws, &err), &err);
    check(wm_model_mlp(model, l, x, n, y, ws, &err), &err);
    for (int64_t i = 0; i < n * d; i++)
      h[i] += y[i];
  }
  check(wm_model_nll(model, h, n, targets, p.nll, ws, &err), &err);
  check(wm_model_logits(model, h, n, p.logits, ws, &err), &err);
  wm_workspace_free(ws);
  free(targets);
  free(h);
  return p;
}

/* max |a - b| / max |b| */
static inline double relative_difference(const float *a, const float *b, int64_t n) {
  double difference = 0, size = 0;
  for (int64_t i = 0; i < n; i++) {
    double delta = a[i] > b[i] ? (double)a[i] - (double)b[i] : (double)b[i] - (double)a[i];
    if (!(delta <= difference))
      difference = delta;
    double magnitude = b[i] > 0 ? (double)b[i] : -(double)b[i];
    size = magnitude > size ? magnitude : size;
  }
  return size > 0 ? difference / size : difference;
}

#endif
