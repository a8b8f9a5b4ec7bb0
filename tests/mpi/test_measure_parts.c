/* Parts of a sweep and what a fit keeps: written by some ranks and used by others, damaged in every
 * way, and left behind by a stop. The result has to be, bit for bit, that of one undisturbed rank.
 * Losses that only parts can have given (MARK) show which cells were taken from where. */
#include "test_measure_fixture.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/measure/evaluate.h"
#include "wanamaker/measure/fit.h"
#include "wanamaker/measure/gram.h"
#include "wanamaker/measure/parts.h"
#include "wanamaker/measure/sweep.h"

#include <math.h>
#include <pthread.h>
#include <time.h>

enum { N_TOKENS = 1400, FIT_END = 900, BLOCK = 100 };
enum { MARK = 1000 }; /* no loss is as large */
static const uint64_t KEY = 77;

typedef struct {
  wm_comm_t *world, *self;
  wm_model_t *model, *alone; /* of the world, of this rank by itself */
  wm_surrogates_t *surrogates, *surrogates_alone;
  char dir[256];
  int32_t ids[N_TOKENS];
  wm_windows_t fit, evaluation;
  wm_blocks_t fit_blocks, blocks;
  wm_variants_t variants;
  int64_t cells, losses;
  float *expected; /* [V, N] by one undisturbed rank */
  double seconds;  /* that took */
} shared_t;

static shared_t S;

/* --- set-up -------------------------------------------------------------------------------------
 */

static void cut(int64_t begin, int64_t end, const char *name, wm_windows_t *w, wm_blocks_t *b) {
  cut_tokens(S.ids, N_TOKENS, begin, end, BLOCK, name, w, b);
}

static wm_fit_options_t fit_options(const char *parts) {
  int64_t n = wm_model_arch(S.model)->n_layers;
  return (wm_fit_options_t){.lambda = 0.01,
                            .layers = all_layers(n),
                            .n_layers = n,
                            .block = 24,
                            .gram_bytes = INT64_C(1) << 32,
                            .parts = parts,
                            .parts_key = KEY,
                            .checkpoint_seconds = 1e-9};
}

static wm_status_t fit_to(const wm_comm_t *comm, wm_model_t *model, const wm_fit_options_t *o,
                          const char *name, char *path, wm_error_t *why) {
  wm_fit_summary_t summaries[64];
  wm_h5_t *file = NULL;
  snprintf(path, 512, "%s/%s.h5", S.dir, name);
  OK(wm_h5_create(comm->world, path, &file, err));
  wm_status_t status = wm_fit_surrogates(comm, model, &S.fit_blocks, S.ids, NULL, NULL, o, file,
                                         NULL, summaries, why);
  if (status == WM_OK)
    return wm_h5_publish(file, why);
  wm_h5_close(file);
  return status;
}

static wm_sweep_options_t options_with(const char *parts, double seconds) {
  return (wm_sweep_options_t){.stack_rows = 3 * BLOCK,
                              .unit = WM_UNIT_WINDOW,
                              .parts = parts,
                              .parts_key = KEY,
                              .checkpoint_seconds = seconds,
                              .bootstrap = {.resamples = 100, .seed = 3, .confidence = 0.95}};
}

static wm_status_t sweep_world(const wm_blocks_t *blocks, const wm_sweep_options_t *o,
                               wm_sweep_t *out, wm_error_t *err) {
  return wm_sweep_run(S.world, S.model, S.surrogates, &S.variants, blocks, S.ids, o, NULL, out,
                      err);
}

static int set_up(void **state) {
  (void)state;
  char path[512];
  OK(wm_comm_create(MPI_COMM_WORLD, &S.world, err));
  OK(wm_comm_create(MPI_COMM_SELF, &S.self, err));
  make_directory(S.world, S.dir);
  draw_ids(S.ids, N_TOKENS);
  cut(0, FIT_END, "fit", &S.fit, &S.fit_blocks);
  cut(FIT_END, N_TOKENS, "evaluation", &S.evaluation, &S.blocks);
  S.model = open_demo(S.world, "demo_gpt2", WM_COMPUTE_F32, false);
  S.alone = open_demo(S.self, "demo_gpt2", WM_COMPUTE_F32, false);
  wm_fit_options_t o = fit_options(NULL);
  OK(fit_to(S.world, S.model, &o, "surrogates", path, err));
  S.surrogates = open_surrogates(S.world, S.model, path);
  S.surrogates_alone = open_surrogates(S.self, S.alone, path);
  OK(wm_variants_create(&S.variants, err));
  for (int64_t l = 0; l < o.n_layers; l++)
    OK(wm_variants_add(&S.variants, &l, 1, o.n_layers, err));
  S.cells = S.variants.n * S.blocks.n;
  S.losses = S.variants.n * S.evaluation.n_predicted;
  wm_sweep_t s;
  wm_sweep_options_t so = options_with(NULL, 0);
  double start = wm_seconds();
  OK(wm_sweep_run(S.self, S.alone, S.surrogates_alone, &S.variants, &S.blocks, S.ids, &so, NULL, &s,
                  err));
  S.seconds = wm_seconds() - start;
  void *memory = NULL;
  OK(wm_alloc(&memory, S.losses, sizeof(float), "expected", err));
  S.expected = memcpy(memory, s.nll.data, (size_t)S.losses * sizeof(float));
  wm_sweep_destroy(&s);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  if (remove_directory(S.world, S.dir) != 0)
    return 1;
  free(S.expected);
  wm_variants_destroy(&S.variants);
  wm_surrogates_close(S.surrogates_alone);
  wm_surrogates_close(S.surrogates);
  wm_model_close(S.alone);
  wm_model_close(S.model);
  wm_blocks_destroy(&S.fit_blocks);
  wm_blocks_destroy(&S.blocks);
  wm_windows_destroy(&S.fit);
  wm_windows_destroy(&S.evaluation);
  wm_comm_free(S.self);
  wm_comm_free(S.world);
  return 0;
}

/* --- helpers ------------------------------------------------------------------------------------
 */

/* A folder that does not exist yet. */
static const char *folder(const char *name) {
  static char path[300];
  snprintf(path, sizeof path, "%s/%s", S.dir, name);
  return path;
}

static void part_path(const char *dir, int number, char path[400]) {
  snprintf(path, 400, "%s/%04d.h5", dir, number);
}

static bool exists(const char *path) {
  int there = S.world->rank == 0 && access(path, F_OK) == 0;
  MPI_Bcast(&there, 1, MPI_INT, 0, S.world->world);
  return there;
}

static int64_t block_of(int64_t cell) {
  return cell % S.blocks.n;
}

static int64_t place(int64_t cell, int64_t *n) {
  const int64_t *offset = S.evaluation.predicted_offset, *first = S.blocks.first_window;
  int64_t b = block_of(cell), begin = offset[first[b]];
  *n = offset[first[b + 1]] - begin;
  return cell / S.blocks.n * S.evaluation.n_predicted + begin;
}

/* A part by all ranks of `comm` together, of the cells c with c % stride == phase: their own losses
 * plus `mark`. */
static void write_part(const wm_comm_t *comm, const char *dir, uint64_t key, int64_t stride,
                       int64_t phase, float mark) {
  wm_parts_t *p = NULL;
  void *memory = NULL;
  OK(wm_alloc(&memory, S.losses, sizeof(float), "losses", err));
  float *nll = memory;
  OK(wm_parts_create(comm, &S.blocks, S.variants.n, dir, key, NULL, &p, err));
  OK(wm_parts_read(p, nll, NULL, err)); /* learns which numbers are taken */
  for (int64_t i = 0; i < S.losses; i++)
    nll[i] = S.expected[i] + mark;
  for (int64_t c = phase; c < S.cells; c += stride)
    if (c / stride % comm->size == comm->rank)
      wm_parts_add(p, c / S.blocks.n, block_of(c));
  OK(wm_parts_publish(p, nll, NULL, err));
  wm_parts_free(p);
  free(nll);
}

/* A part with arbitrary cells, each with `losses` losses of MARK. Collective over the world. */
static void forge_part(const char *path, const char *like, const int64_t (*cells)[2], int64_t n,
                       int64_t losses) {
  wm_h5_t *good = NULL, *file = NULL;
  char *cut_text = NULL, *key = NULL;
  void *memory = NULL;
  OK(wm_alloc(&memory, losses, sizeof(float), "losses", err));
  for (int64_t i = 0; i < losses; i++)
    ((float *)memory)[i] = MARK;
  OK(wm_h5_open(S.world->world, like, &good, err));
  OK(wm_h5_get_string(good, "/", "cut", &cut_text, err));
  OK(wm_h5_get_string(good, "/", "parts_key", &key, err));
  wm_h5_close(good);
  int64_t dims[2] = {n, 2}, zero[2] = {0, 0}, first = S.world->rank == 0;
  int64_t count[2] = {first * n, 2}, own = first * losses;
  OK(wm_h5_create(S.world->world, path, &file, err));
  OK(wm_h5_dataset(file, "/cells", H5T_STD_I64LE, 2, dims, "cells", err));
  OK(wm_h5_dataset(file, "/nll", H5T_IEEE_F32LE, 1, &losses, "losses", err));
  OK(wm_h5_write(file, "/cells", H5T_NATIVE_INT64, zero, count, cells, err));
  OK(wm_h5_write(file, "/nll", H5T_NATIVE_FLOAT, zero, &own, memory, err));
  double counts[3 * 8] = {0};
  assert_true(n <= 8);
  dims[1] = count[1] = 3;
  OK(wm_h5_dataset(file, "/counts", H5T_IEEE_F64LE, 2, dims, "counts", err));
  OK(wm_h5_write(file, "/counts", H5T_NATIVE_DOUBLE, zero, count, counts, err));
  OK(wm_h5_set_string(file, "/", "parts_key", key, err));
  OK(wm_h5_set_string(file, "/", "cut", cut_text, err));
  OK(wm_h5_publish(file, err));
  free(cut_text);
  free(key);
  free(memory);
}

/* A sweep that goes on from `dir`: cells with c % stride == phase must be `mark` above what they
 * should be (they came from a part), the others right to the bit. stride 0: all are right. */
static void expect_resumed(const char *dir, int64_t stride, int64_t phase, float mark) {
  wm_sweep_t s;
  wm_sweep_options_t o = options_with(dir, 0);
  OK(sweep_world(&S.blocks, &o, &s, err));
  const float *nll = s.nll.data;
  for (int64_t c = 0; c < S.cells; c++) {
    int64_t n, at = place(c, &n);
    bool kept = stride > 0 && c % stride == phase;
    for (int64_t i = at; i < at + n; i++) {
      float right = kept ? S.expected[i] + mark : S.expected[i];
      if (memcmp(&nll[i], &right, sizeof right) != 0)
        fail_msg("cell %lld: %g, expected %g", (long long)c, (double)nll[i], (double)right);
    }
  }
  wm_sweep_destroy(&s);
}

static void damage(const char *path, bool truncated) {
  if (S.world->rank == 0) {
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    if (truncated) {
      assert_int_equal(ftruncate(fileno(f), size / 2), 0);
    } else { /* the losses are the largest part of the file, and the last */
      fseek(f, size / 2, SEEK_SET);
      int byte = fgetc(f);
      fseek(f, size / 2, SEEK_SET);
      fputc(byte ^ 0x10, f);
    }
    fclose(f);
  }
  MPI_Barrier(S.world->world);
}

/* --- parts --------------------------------------------------------------------------------------
 */

static void parts_of_one_rank_serve_all(void **state) {
  (void)state;
  const char *dir = folder("one");
  if (S.world->rank == 0)
    write_part(S.self, dir, KEY, 3, 1, MARK);
  MPI_Barrier(S.world->world);
  expect_resumed(dir, 3, 1, MARK);
}

static void parts_of_all_ranks_serve_one(void **state) {
  (void)state;
  const char *dir = folder("all");
  write_part(S.world, dir, KEY, 3, 2, MARK);
  if (S.world->rank == 0) {
    wm_sweep_t s;
    wm_sweep_options_t o = options_with(dir, 0);
    OK(wm_sweep_run(S.self, S.alone, S.surrogates_alone, &S.variants, &S.blocks, S.ids, &o, NULL,
                    &s, err));
    for (int64_t c = 0; c < S.cells; c++) {
      int64_t n, at = place(c, &n);
      float right = S.expected[at] + (c % 3 == 2 ? MARK : 0);
      assert_memory_equal((float *)s.nll.data + at, &right, sizeof right);
    }
    wm_sweep_destroy(&s);
  }
  MPI_Barrier(S.world->world);
}

/* A tiny interval: parts appear on the way, each with new cells alone, and go with the folder. */
static void rounds_leave_parts(void **state) {
  (void)state;
  const char *dir = folder("rounds");
  char path[400];
  wm_sweep_t s;
  wm_sweep_options_t o = options_with(dir, 1e-6);
  OK(sweep_world(&S.blocks, &o, &s, err));
  assert_memory_equal(s.nll.data, S.expected, (size_t)S.losses * sizeof(float));
  wm_sweep_destroy(&s);
  int64_t cells = 0;
  for (int i = 0; part_path(dir, i, path), exists(path); i++) {
    wm_h5_t *file = NULL;
    int64_t dims[2];
    OK(wm_h5_open(S.world->world, path, &file, err));
    OK(wm_h5_verify(file, err));
    OK(wm_h5_dims(file, "/cells", 2, dims, err));
    wm_h5_close(file);
    cells += dims[0];
  }
  assert_int_equal(cells, S.cells); /* the last round's too: statistics follow */
  part_path(dir, 0, path);
  damage(path, false);
  expect_resumed(dir, 0, 0, 0);
  wm_parts_remove(S.world, dir);
  assert_false(exists(dir));
}

/* Without rounds nothing is kept, unless work follows that could be stopped. */
static void all_is_kept_for_what_follows(void **state) {
  (void)state;
  char path[400];
  wm_sweep_t s;
  wm_sweep_options_t o = options_with(folder("whole"), 0);
  part_path(o.parts, 0, path);
  OK(sweep_world(&S.blocks, &o, &s, err));
  wm_sweep_destroy(&s);
  assert_false(exists(path));
  o.keep_whole = true;
  OK(sweep_world(&S.blocks, &o, &s, err));
  wm_sweep_destroy(&s);
  assert_true(exists(path));
  OK(sweep_world(&S.blocks, &o, &s, err));
  assert_int_equal(s.units_evaluated, 0);
  assert_memory_equal(s.nll.data, S.expected, (size_t)S.losses * sizeof(float));
  wm_sweep_destroy(&s);
}

/* A model that is written to while it is used: what was computed is not kept as its. */
static void nothing_is_kept_of_a_changed_model(void **state) {
  (void)state;
  char dir[300], weights[400], part[400], command[1200], result[512];
  snprintf(dir, sizeof dir, "%s/model", S.dir);
  snprintf(weights, sizeof weights, "%s/model.safetensors", dir);
  snprintf(command, sizeof command, "cp -r '%s/demo_gpt2' '%s'", getenv("WM_TEST_DATA"), dir);
  if (S.world->rank == 0)
    assert_int_equal(system(command), 0);
  MPI_Barrier(S.world->world);
  wm_model_t *model = open_typed(S.world, dir, WM_COMPUTE_F32, false);
  wm_sleep(0.05); /* file systems' clocks are coarse */
  if (S.world->rank == 0) {
    FILE *f = fopen(weights, "r+b");
    assert_non_null(f);
    int byte = fgetc(f);
    rewind(f);
    fputc(byte, f);
    fclose(f);
  }
  MPI_Barrier(S.world->world);
  wm_sweep_t s;
  wm_error_t why = {0};
  wm_sweep_options_t o = options_with(folder("changed"), 1e-6);
  assert_int_equal(
      wm_sweep_run(S.world, model, S.surrogates, &S.variants, &S.blocks, S.ids, &o, NULL, &s, &why),
      WM_INPUT);
  wm_sweep_destroy(&s);
  assert_non_null(strstr(why.message, "changed while it was read"));
  part_path(o.parts, 0, part);
  assert_false(exists(part));
  wm_fit_options_t fit = fit_options(folder("changed_fit"));
  assert_int_equal(fit_to(S.world, model, &fit, "changed", result, &why), WM_INPUT);
  snprintf(command, sizeof command, "%s/gram/0000.h5", fit.parts);
  assert_false(exists(command));
  wm_model_close(model);
}

/* The second of two parts is bad in some way: the first one is used, the second is not, and a part
 * that comes later takes its number. */
static void check_bad_part(const char *name, void (*spoil)(const char *good, const char *bad)) {
  const char *dir = folder(name);
  char good[400], bad[400];
  part_path(dir, 0, good);
  part_path(dir, 1, bad);
  write_part(S.world, dir, KEY, 4, 1, MARK);
  write_part(S.world, dir, KEY, 4, 3, 2 * MARK);
  assert_true(exists(bad));
  spoil(good, bad);
  expect_resumed(dir, 4, 1, MARK);
  write_part(S.world, dir, KEY, 4, 3, 0);
  wm_h5_t *file = NULL;
  OK(wm_h5_open(S.world->world, bad, &file, err));
  OK(wm_h5_verify(file, err));
  wm_h5_close(file);
  expect_resumed(dir, 4, 1, MARK);
}

static void flip(const char *good, const char *bad) {
  (void)good;
  damage(bad, false);
}

static void truncate_part(const char *good, const char *bad) {
  (void)good;
  damage(bad, true);
}

static void empty(const char *good, const char *bad) {
  (void)good;
  if (S.world->rank == 0)
    assert_int_equal(truncate(bad, 0), 0);
  MPI_Barrier(S.world->world);
}

static void out_of_range(const char *good, const char *bad) {
  const int64_t cells[1][2] = {{S.variants.n, 0}};
  forge_part(bad, good, cells, 1, 10);
}

static void negative(const char *good, const char *bad) {
  const int64_t cells[1][2] = {{0, -1}};
  forge_part(bad, good, cells, 1, 10);
}

static void twice(const char *good, const char *bad) {
  const int64_t cells[2][2] = {{0, 0}, {0, 0}};
  int64_t n;
  place(0, &n);
  forge_part(bad, good, cells, 2, 2 * n);
}

static void too_few_losses(const char *good, const char *bad) {
  const int64_t cells[1][2] = {{0, 0}};
  int64_t n;
  place(0, &n);
  forge_part(bad, good, cells, 1, n - 1);
}

static void bad_parts_are_left_out(void **state) {
  (void)state;
  check_bad_part("flip", flip);
  check_bad_part("truncated", truncate_part);
  check_bad_part("empty", empty);
  check_bad_part("range", out_of_range);
  check_bad_part("negative", negative);
  check_bad_part("twice", twice);
  check_bad_part("few", too_few_losses);
}

static void foreign_parts_are_left_out(void **state) {
  (void)state;
  const char *dir = folder("foreign");
  write_part(S.world, dir, KEY + 1, 4, 1, MARK);
  expect_resumed(dir, 0, 0, 0);
  /* they stay, for their settings may come back; ours go beside them */
  char foreign[400], own[400];
  part_path(dir, 0, foreign);
  part_path(dir, 1, own);
  write_part(S.world, dir, KEY, 4, 2, 2 * MARK);
  assert_true(exists(own));
  expect_resumed(dir, 4, 2, 2 * MARK);
  wm_h5_t *file = NULL;
  char *key = NULL, expected[17];
  snprintf(expected, sizeof expected, "%016llx", (unsigned long long)KEY + 1);
  OK(wm_h5_open(S.world->world, foreign, &file, err));
  OK(wm_h5_get_string(file, "/", "parts_key", &key, err));
  assert_string_equal(key, expected);
  free(key);
  wm_h5_close(file);
  /* the same key, another cut */
  wm_blocks_t other;
  wm_sweep_t s;
  wm_sweep_options_t o = options_with(folder("cut"), 0);
  write_part(S.world, o.parts, KEY, 4, 1, MARK);
  OK(wm_blocks_create(&S.evaluation, 2 * BLOCK, &other, err));
  assert_int_not_equal(other.n, S.blocks.n);
  OK(sweep_world(&other, &o, &s, err));
  for (int64_t i = 0; i < S.losses; i++)
    assert_true(((float *)s.nll.data)[i] < MARK);
  wm_sweep_destroy(&s);
  wm_blocks_destroy(&other);
}

/* Cells of two parts: the first one counts. Half-written files of dead runs go. */
static void first_of_two_parts_counts(void **state) {
  (void)state;
  const char *dir = folder("duplicates");
  char first[400], second[400], away[400], stale[400];
  part_path(dir, 0, first);
  part_path(dir, 1, second);
  snprintf(away, sizeof away, "%s/away", S.dir);
  snprintf(stale, sizeof stale, "%s/0007.h5.tmp", dir);
  write_part(S.world, dir, KEY, 4, 1, 2 * MARK);
  if (S.world->rank == 0)
    assert_int_equal(rename(first, away), 0);
  MPI_Barrier(S.world->world);
  write_part(S.world, dir, KEY, 4, 1, MARK);
  if (S.world->rank == 0) {
    assert_int_equal(rename(away, second), 0);
    FILE *f = fopen(stale, "w");
    assert_non_null(f);
    fclose(f);
  }
  MPI_Barrier(S.world->world);
  expect_resumed(dir, 4, 1, MARK);
  assert_false(exists(stale));
}

/* NaN is a loss like any other: its cells are there. */
static void nan_is_complete(void **state) {
  (void)state;
  const char *dir = folder("nan");
  wm_sweep_t s;
  wm_sweep_options_t o = options_with(dir, 0);
  write_part(S.world, dir, KEY, S.cells, S.cells - 1, NAN);
  OK(sweep_world(&S.blocks, &o, &s, err));
  int64_t n, at = place(S.cells - 1, &n);
  for (int64_t i = at; i < at + n; i++)
    assert_true(isnan(((float *)s.nll.data)[i]));
  assert_int_equal(s.non_finite, 1);
  wm_sweep_destroy(&s);
  write_part(S.world, dir, KEY, 1, 0, 0);
  OK(sweep_world(&S.blocks, &o, &s, err));
  assert_int_equal(s.units_evaluated, 0);
  wm_sweep_destroy(&s);
}

/* --- units --------------------------------------------------------------------------------------
 */

/* One block: the variants are split so that every rank has some of them. */
static void more_ranks_than_blocks(void **state) {
  (void)state;
  if (!wm_sweep_cells_are_independent())
    skip(); /* units are those of the configuration */
  wm_blocks_t one;
  wm_sweep_t s;
  wm_sweep_plan_t plan;
  wm_sweep_options_t o = options_with(NULL, 0);
  OK(wm_blocks_create(&S.evaluation, N_TOKENS, &one, err));
  assert_int_equal(one.n, 1);
  OK(wm_sweep_plan(S.world, S.model, &S.variants, &one, &o, &plan, err));
  assert_true(plan.units >= S.world->size);
  OK(sweep_world(&one, &o, &s, err));
  assert_true(s.units_evaluated >= 1);
  assert_memory_equal(s.nll.data, S.expected, (size_t)S.losses * sizeof(float));
  wm_sweep_destroy(&s);
  /* time matters too: units of at most an eighth of the interval */
  o.checkpoint_seconds = 80;
  o.rate = plan.flops / 100;
  OK(wm_sweep_plan(S.world, S.model, &S.variants, &one, &o, &plan, err));
  assert_true(plan.units >= 8);
  wm_blocks_destroy(&one);
}

static void memory_bounds_stack_then_group_then_block(void **state) {
  (void)state;
  int64_t most = S.variants.n - 1, rows = 8 * BLOCK, variants = most;
  const int64_t all = wm_evaluator_bytes(S.model, &S.blocks, most, rows, false);
  const int64_t low = wm_evaluator_bytes(S.model, &S.blocks, most, BLOCK, false);
  const int64_t least = wm_evaluator_bytes(S.model, &S.blocks, 1, BLOCK, false);
  wm_error_t why = {0};
  assert_true(least < low && low < all);
  assert_int_equal(wm_evaluator_fit(S.model, &S.blocks, all, false, &variants, &rows, &why), WM_OK);
  assert_true(variants == most && rows == 8 * BLOCK);
  assert_int_equal(wm_evaluator_fit(S.model, &S.blocks, all - 1, false, &variants, &rows, &why),
                   WM_OK);
  assert_true(variants == most && rows < 8 * BLOCK);
  assert_int_equal(wm_evaluator_fit(S.model, &S.blocks, low - 1, false, &variants, &rows, &why),
                   WM_OK);
  assert_true(variants < most && variants >= 1);
  assert_int_equal(wm_evaluator_fit(S.model, &S.blocks, least, false, &variants, &rows, &why),
                   WM_OK);
  assert_int_equal(variants, 1);
  assert_int_equal(wm_evaluator_fit(S.model, &S.blocks, least - 1, false, &variants, &rows, &why),
                   WM_USAGE);
  const char *at = strstr(why.message, "compute.block_tokens = ");
  assert_non_null(at);
  int64_t tokens = atoll(at + strlen("compute.block_tokens = "));
  wm_blocks_t smaller;
  OK(wm_blocks_create(&S.evaluation, tokens, &smaller, err));
  assert_int_equal(wm_evaluator_fit(S.model, &smaller, least - 1, false, &variants, &rows, &why),
                   WM_OK);
  wm_blocks_destroy(&smaller);
  assert_int_equal(wm_evaluator_fit(S.model, &S.blocks, 1000, false, &variants, &rows, &why),
                   WM_USAGE);
  assert_non_null(strstr(why.message, "longest window"));
  /* the fit's */
  wm_fit_options_t o = fit_options(NULL);
  int64_t bytes;
  OK(wm_fit_scratch(S.model, &S.fit_blocks, NULL, &o, &bytes, err));
  o.memory_bytes = bytes;
  OK(wm_fit_scratch(S.model, &S.fit_blocks, NULL, &o, &bytes, err));
  o.memory_bytes--;
  assert_int_equal(wm_fit_scratch(S.model, &S.fit_blocks, NULL, &o, &bytes, &why), WM_USAGE);
  assert_non_null(strstr(why.message, "compute.block_tokens = "));
}

/* --- stops: the process is asked once and for all, so these come last ---------------------------
 */

static void *ask_later(void *delay) {
  wm_sleep(*(double *)delay);
  wm_stop_request();
  return NULL;
}

/* A rank is asked to stop at some moment of the sweep: all leave, and what they leave is right. */
static void stop_leaves_a_part(void **state) {
  (void)state;
  const char *dir = folder("stop");
  uint64_t seed = (uint64_t)time(NULL);
  wm_broadcast(S.world->world, 0, &seed, sizeof seed);
  double delay = wm_rng_uniform((wm_rng_t){seed, 0}, 0) * 0.4 * S.seconds / S.world->size;
  bool asked =
      wm_rng_below((wm_rng_t){seed, 1}, 0, (uint64_t)S.world->size) == (uint64_t)S.world->rank;
  pthread_t thread;
  wm_sweep_t s;
  wm_error_t why = {0};
  wm_sweep_options_t o = options_with(dir, 0);
  if (asked)
    assert_int_equal(pthread_create(&thread, NULL, ask_later, &delay), 0);
  wm_status_t status = sweep_world(&S.blocks, &o, &s, &why);
  if (asked)
    pthread_join(thread, NULL);
  int worst = (int)status, best = (int)status;
  MPI_Allreduce(MPI_IN_PLACE, &worst, 1, MPI_INT, MPI_MAX, S.world->world);
  MPI_Allreduce(MPI_IN_PLACE, &best, 1, MPI_INT, MPI_MIN, S.world->world);
  if (worst != best || worst != WM_STOPPED)
    fail_msg("seed %llu: statuses %d to %d: %s", (unsigned long long)seed, best, worst,
             why.message);
  assert_true(wm_stop_requested()); /* on every rank */
  wm_sweep_destroy(&s);
  /* What is there is right, and not everything is. */
  wm_parts_t *p = NULL;
  void *memory = NULL;
  OK(wm_alloc(&memory, S.losses, sizeof(float), "losses", err));
  OK(wm_parts_create(S.self, &S.blocks, S.variants.n, dir, KEY, NULL, &p, err));
  OK(wm_parts_read(p, memory, NULL, err));
  assert_true(wm_parts_losses(p) < S.losses);
  for (int64_t c = 0; c < S.cells; c++) {
    int64_t n, at = place(c, &n);
    if (wm_parts_has(p, c / S.blocks.n, block_of(c)))
      assert_memory_equal((float *)memory + at, S.expected + at, (size_t)n * sizeof(float));
  }
  if (S.world->rank == 0)
    print_message("stopped after %.3f s of %.3f: %.0f %% kept\n", delay, S.seconds,
                  100.0 * (double)wm_parts_losses(p) / (double)S.losses);
  wm_parts_free(p);
  free(memory);
  MPI_Barrier(S.world->world);
}

/* A unit under way is left, not finished. */
static void stop_leaves_a_unit(void **state) {
  (void)state;
  wm_evaluator_t *e = NULL;
  wm_block_t block;
  wm_error_t why = {0};
  void *nll = NULL;
  assert_true(wm_stop_requested());
  OK(wm_block_create(&S.blocks, &block, err));
  OK(wm_alloc(&nll, 2 * S.blocks.max_rows, sizeof(float), "losses", err));
  OK(wm_evaluator_create(S.alone, S.surrogates_alone, &S.variants, &S.blocks, 1, BLOCK, false, &e,
                         err));
  wm_block_load(&S.blocks, S.ids, 0, &block);
  assert_int_equal(wm_evaluate_block(e, &block, 1, 1, nll, NULL, &why), WM_STOPPED);
  wm_evaluator_free(e);
  wm_block_destroy(&block);
  free(nll);
}

/* Fits with `o`, asked to stop again and again, on all ranks and on one in turn; returns how often
 * it was started. */
static int fit_in_steps(const wm_fit_options_t *o, const char *name, char *path) {
  int runs = 0;
  wm_status_t status;
  assert_true(wm_stop_requested());
  do {
    wm_error_t why = {0};
    bool alone = S.world->size > 1 && runs % 2 == 1;
    status = WM_OK;
    if (!alone)
      status = fit_to(S.world, S.model, o, name, path, &why);
    else if (S.world->rank == 0)
      status = fit_to(S.self, S.alone, o, name, path, &why);
    MPI_Bcast(&status, sizeof status, MPI_BYTE, 0, S.world->world);
    assert_true(status == WM_OK || status == WM_STOPPED);
    assert_true(++runs < 100);
  } while (status == WM_STOPPED);
  snprintf(path, 512, "%s/%s.h5", S.dir, name);
  return runs;
}

static double *weights_of(const char *path, int64_t count) {
  const int64_t d = wm_model_arch(S.model)->d_model, zero[3] = {0},
                shape[3] = {count / d / d, d, d};
  void *weights = NULL;
  wm_h5_t *file = NULL;
  OK(wm_alloc(&weights, count, sizeof(double), "weights", err));
  OK(wm_h5_open(S.world->world, path, &file, err));
  OK(wm_h5_verify(file, err));
  OK(wm_h5_read(file, "/weight", H5T_NATIVE_DOUBLE, zero, shape, weights, err));
  wm_h5_close(file);
  return weights;
}

/* A fit that does a step each time, on other numbers of ranks, gets there: the result is that of an
 * undisturbed fit. */
static void goes_on_step_by_step(const char *name, const wm_fit_options_t *o, int least_runs) {
  const int64_t d = wm_model_arch(S.model)->d_model, count = o->n_layers * d * d;
  char path[512];
  int runs = fit_in_steps(o, name, path);
  assert_true(runs >= least_runs);
  double *stepwise = weights_of(path, count);
  snprintf(path, sizeof path, "%s/surrogates.h5", S.dir);
  double *undisturbed = weights_of(path, count);
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < count; i++) {
    worst = fmax(worst, fabs(stepwise[i] - undisturbed[i]));
    largest = fmax(largest, fabs(undisturbed[i]));
  }
  if (S.world->rank == 0)
    print_message("%d runs; weights differ by %.1e of the largest\n", runs, worst / largest);
  /* One rank: the same sums in the same order. More: see PREDICTION_BOUND in
   * test_measure_pipeline.c; weights may move along directions that activations hardly have. */
  assert_true(S.world->size == 1 ? worst == 0 : worst / largest < 1e-6);
  wm_fit_remove_parts(S.world, o->parts);
  assert_false(exists(o->parts));
  free(stepwise);
  free(undisturbed);
}

static void fit_goes_on_step_by_step(void **state) {
  (void)state;
  wm_fit_options_t o = fit_options(folder("fit"));
  goes_on_step_by_step("steps", &o, 3);
}

/* Several passes over the text, each with a few layers' sums: solved layers of earlier passes and
 * the sums of the one under way are kept side by side. */
static void fit_of_several_passes_goes_on(void **state) {
  (void)state;
  wm_fit_options_t o = fit_options(folder("passes"));
  wm_fit_plan_t plan;
  o.gram_bytes = 3 * wm_gram_bytes_per_layer(wm_model_arch(S.model)->d_model);
  OK(wm_fit_plan(S.world, wm_model_arch(S.model), &o, &plan, err));
  assert_int_equal(plan.layers_per_pass, 3);
  assert_true(plan.passes >= 2);
  goes_on_step_by_step("passes", &o, 2 * (int)plan.passes);
}

int main(int argc, char **argv) {
  wm_h5_environment();
  MPI_Init(&argc, &argv);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(parts_of_one_rank_serve_all),
      cmocka_unit_test(parts_of_all_ranks_serve_one),
      cmocka_unit_test(rounds_leave_parts),
      cmocka_unit_test(all_is_kept_for_what_follows),
      cmocka_unit_test(nothing_is_kept_of_a_changed_model),
      cmocka_unit_test(bad_parts_are_left_out),
      cmocka_unit_test(foreign_parts_are_left_out),
      cmocka_unit_test(first_of_two_parts_counts),
      cmocka_unit_test(nan_is_complete),
      cmocka_unit_test(more_ranks_than_blocks),
      cmocka_unit_test(memory_bounds_stack_then_group_then_block),
      cmocka_unit_test(stop_leaves_a_part),
      cmocka_unit_test(stop_leaves_a_unit),
      cmocka_unit_test(fit_goes_on_step_by_step),
      cmocka_unit_test(fit_of_several_passes_goes_on),
  };
  int failed = cmocka_run_group_tests(tests, set_up, tear_down);
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed != 0;
}
