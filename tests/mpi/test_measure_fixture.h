/* What the tests of fit and sweep work on: random tokens, windows and blocks of them, the demo
 * models, layers, a directory, and nodes that are none. */
#ifndef WANAMAKER_TESTS_MEASURE_FIXTURE_H
#define WANAMAKER_TESTS_MEASURE_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/surrogates.h"
#include "wanamaker/model/model.h"
#include "wanamaker/par/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WINDOW = 48, TILE = 64, MOST_LAYERS = 64 };

#define OK(call)                                                                                   \
  do {                                                                                             \
    wm_error_t ok_err = {0};                                                                       \
    wm_error_t *err = &ok_err;                                                                     \
    if ((call) != WM_OK)                                                                           \
      fail_msg("%s: %s", #call, err->message);                                                     \
  } while (0)

static inline void *zeroed(int64_t count, size_t size) {
  void *memory = NULL;
  OK(wm_alloc(&memory, count, size, "test", err));
  return memory;
}

/* Low ids are more frequent, as in text. */
static inline void draw_ids(int32_t *ids, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double u = wm_rng_uniform((wm_rng_t){7, 1}, (uint64_t)i);
    ids[i] = (int32_t)(1500 * u * u * u);
  }
}

/* Windows over tokens [begin, end) of ids[n], and blocks of `block` tokens. */
static inline void cut_tokens(const int32_t *ids, int64_t n, int64_t begin, int64_t end,
                              int64_t block, const char *name, wm_windows_t *w, wm_blocks_t *b) {
  const int64_t rows[2] = {0, n};
  const uint8_t flags[1] = {0};
  wm_token_view_t view = {.name = "test",
                          .encoding = "ids",
                          .n_tokens = n,
                          .n_rows = 1,
                          .ids = ids,
                          .row_first = rows,
                          .row_flags = flags};
  wm_protocol_t protocol = {WM_PROTOCOL_STREAM, WINDOW, WINDOW, 2};
  wm_range_t range = {.name = name, .kind = WM_RANGE_TOKENS, .begin = begin, .end = end};
  OK(wm_windows_create(&view, &protocol, &range, w, err));
  OK(wm_blocks_create(w, block, b, err));
}

static inline wm_model_t *open_typed(const wm_comm_t *comm, const char *path, wm_compute_t compute,
                                     bool as_filed) {
  wm_model_options_t options = {
      .tile_rows = TILE, .tile_vocab = 512, .compute = compute, .as_filed = as_filed};
  wm_model_t *model = NULL;
  OK(wm_model_open(comm, path, &options, NULL, &model, err));
  return model;
}

/* A model of tests/data. */
static inline wm_model_t *open_demo(const wm_comm_t *comm, const char *name, wm_compute_t compute,
                                    bool as_filed) {
  char path[512];
  assert_non_null(getenv("WM_TEST_DATA"));
  snprintf(path, sizeof path, "%s/%s", getenv("WM_TEST_DATA"), name);
  return open_typed(comm, path, compute, as_filed);
}

static inline wm_surrogates_t *open_surrogates(const wm_comm_t *comm, const wm_model_t *model,
                                               const char *path) {
  const wm_arch_t *a = wm_model_arch(model);
  wm_surrogates_t *s = NULL;
  OK(wm_surrogates_open(comm, path, a->n_layers, a->d_model, TILE, WM_COMPUTE_F32, &s, err));
  return s;
}

/* Numbers of all layers, for as long as the process. */
static inline const int64_t *all_layers(int64_t n) {
  static int64_t layers[MOST_LAYERS];
  assert_true(n <= MOST_LAYERS);
  for (int64_t l = 0; l < n; l++)
    layers[l] = l;
  return layers;
}

/* A directory that all ranks see. Memory syncs at once, but nodes don't share it: WM_TEST_WORK. */
static inline void make_directory(const wm_comm_t *comm, char dir[256]) {
  memset(dir, 0, 256);
  if (comm->rank == 0) {
    const char *base = getenv("WM_TEST_WORK");
    if (base == NULL)
      base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
    snprintf(dir, 256, "%s/wm_measure_XXXXXX", base);
    assert_non_null(mkdtemp(dir));
  }
  wm_broadcast(comm->world, 0, dir, 256);
}

/* 0, or 1 if it can't be removed. */
static inline int remove_directory(const wm_comm_t *comm, const char *dir) {
  char command[300];
  MPI_Barrier(comm->world);
  snprintf(command, sizeof command, "rm -r '%s'", dir);
  return comm->rank == 0 && system(command) != 0;
}

/* Even and odd ranks of the world as if they were two nodes. */
static inline wm_comm_t *two_nodes(const wm_comm_t *world) {
  wm_comm_t *c = zeroed(1, sizeof *c);
  MPI_Comm_dup(world->world, &c->world);
  c->rank = world->rank;
  c->size = world->size;
  c->node_index = c->rank % 2;
  c->node_count = c->size > 1 ? 2 : 1;
  MPI_Comm_split(c->world, c->node_index, c->rank, &c->node);
  MPI_Comm_rank(c->node, &c->node_rank);
  MPI_Comm_size(c->node, &c->node_size);
  MPI_Comm_split(c->world, c->node_rank == 0 ? 0 : MPI_UNDEFINED, c->rank, &c->leaders);
  return c;
}

#endif
