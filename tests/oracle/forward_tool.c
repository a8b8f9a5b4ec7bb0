/* Runs a model over sequences of token ids and writes what it computes, for model_compare.py.
 *
 *   forward_tool MODEL_DIR IDS.i32 STARTS.i64 OUT_DIR TILE_ROWS TILE_VOCAB REPEATS
 *
 * IDS: int32, sequence after sequence; STARTS: int64 [sequences + 1]. OUT_DIR gets raw arrays:
 * logits.f32 [N, V], nll.f64 [N], x.f32 and y.f32 [L, N, D]. Prints the best time of REPEATS
 * passes without logits, x and y. REPEATS = 0 writes, and times nothing. */
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"
#include "wanamaker/model/kernels.h"
#include "wanamaker/model/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A batch with its targets, and arrays of a whole pass. */
typedef struct {
  wm_model_t *model;
  wm_workspace_t *workspace;
  wm_batch_t batch;
  const int32_t *ids;
  int32_t *targets;
  int64_t n, longest;
  float *h, *x, *y, *logits;
  double *nll;
} run_t;

/* `keep` false: x and y of one layer overwrite those of the one before. */
static wm_status_t pass(run_t *r, bool keep, wm_error_t *err) {
  const wm_arch_t *a = wm_model_arch(r->model);
  int64_t size = r->n * a->d_model;
  wm_status_t status;
  WM_TRY(wm_model_embed(r->model, &r->batch, r->ids, r->h, err));
  for (int64_t l = 0; l < a->n_layers; l++) {
    float *x = r->x + (keep ? l * size : 0), *y = r->y + (keep ? l * size : 0);
    WM_TRY(wm_model_attend(r->model, l, &r->batch, r->h, x, r->workspace, err));
    WM_TRY(wm_model_mlp(r->model, l, x, r->n, y, r->workspace, err));
    wm_add_rows(r->h, y, size);
  }
  WM_TRY(wm_model_nll(r->model, r->h, r->n, r->targets, r->nll, r->workspace, err));
cleanup:
  return status;
}

static wm_status_t allocate(run_t *r, bool keep, wm_error_t *err) {
  const wm_arch_t *a = wm_model_arch(r->model);
  int64_t size = r->n * a->d_model, layers = keep ? a->n_layers : 1;
  void *p[6] = {0};
  wm_status_t status;
  WM_TRY(wm_alloc(&p[0], size, sizeof(float), "h", err));
  WM_TRY(wm_alloc(&p[1], layers * size, sizeof(float), "x", err));
  WM_TRY(wm_alloc(&p[2], layers * size, sizeof(float), "y", err));
  WM_TRY(wm_alloc(&p[3], keep ? r->n * a->vocab_size : 1, sizeof(float), "logits", err));
  WM_TRY(wm_alloc(&p[4], r->n, sizeof(double), "nll", err));
  WM_TRY(wm_alloc(&p[5], r->n, sizeof(int32_t), "targets", err));
  r->h = p[0], r->x = p[1], r->y = p[2], r->logits = p[3], r->nll = p[4], r->targets = p[5];
  for (int64_t s = 0; s < r->batch.n_sequences; s++)
    for (int64_t i = r->batch.starts[s]; i < r->batch.starts[s + 1]; i++) {
      int64_t length = r->batch.starts[s + 1] - r->batch.starts[s];
      r->longest = length > r->longest ? length : r->longest;
      r->targets[i] = i + 1 < r->batch.starts[s + 1] ? r->ids[i + 1] : -1;
    }
  WM_TRY(wm_workspace_create(r->model, r->n, r->longest, &r->workspace, err));
cleanup:
  return status;
}

static wm_status_t write_array(const char *dir, const char *name, const void *data, int64_t bytes,
                               wm_error_t *err) {
  char *path = wm_format("%s/%s", dir, name);
  FILE *f = path != NULL ? fopen(path, "wb") : NULL;
  bool written = f != NULL && fwrite(data, 1, (size_t)bytes, f) == (size_t)bytes;
  if (f != NULL && fclose(f) != 0)
    written = false;
  free(path);
  return written ? WM_OK : wm_fail(err, WM_ENVIRONMENT, "cannot write %s/%s", dir, name);
}

static wm_status_t compute_and_write(run_t *r, const char *dir, wm_error_t *err) {
  const wm_arch_t *a = wm_model_arch(r->model);
  int64_t size = a->n_layers * r->n * a->d_model * (int64_t)sizeof(float);
  wm_status_t status;
  WM_TRY(pass(r, true, err));
  WM_TRY(wm_model_logits(r->model, r->h, r->n, r->logits, r->workspace, err));
  WM_TRY(write_array(dir, "logits.f32", r->logits, r->n * a->vocab_size * (int64_t)sizeof(float),
                     err));
  WM_TRY(write_array(dir, "nll.f64", r->nll, r->n * (int64_t)sizeof(double), err));
  WM_TRY(write_array(dir, "x.f32", r->x, size, err));
  WM_TRY(write_array(dir, "y.f32", r->y, size, err));
cleanup:
  return status;
}

static wm_status_t time_passes(run_t *r, int repeats, wm_error_t *err) {
  const wm_arch_t *a = wm_model_arch(r->model);
  double best = 1e30;
  for (int i = 0; i < repeats; i++) {
    double start = wm_seconds();
    wm_status_t status = pass(r, false, err);
    if (status != WM_OK)
      return status;
    double seconds = wm_seconds() - start;
    best = seconds < best ? seconds : best;
  }
  double flops = 0;
  for (int64_t s = 0; s < r->batch.n_sequences; s++) {
    double length = (double)(r->batch.starts[s + 1] - r->batch.starts[s]);
    flops += (double)a->n_layers * length *
                 (wm_arch_flops_layer(a) + wm_arch_flops_attention(a, (length + 1) / 2)) +
             (length - 1) * wm_arch_flops_head(a);
  }
  printf("%lld tokens, %.3f s, %.0f tokens/s, %.1f GF/s\n", (long long)r->n, best,
         (double)r->n / best, flops / best * 1e-9);
  return WM_OK;
}

static wm_status_t run(const wm_comm_t *comm, char **argv, wm_error_t *err) {
  run_t r = {0};
  wm_map_t ids = {0}, starts = {0};
  wm_log_t log = {.level = WM_LOG_INFO, .rank = comm->rank};
  wm_model_options_t options = {.tile_rows = atoll(argv[5]), .tile_vocab = atoll(argv[6])};
  int repeats = atoi(argv[7]);
  wm_status_t status;
  WM_TRY(wm_model_open(comm, argv[1], &options, &log, &r.model, err));
  WM_TRY(wm_map_open(argv[2], &ids, err));
  WM_TRY(wm_map_open(argv[3], &starts, err));
  r.ids = ids.data;
  r.n = ids.bytes / (int64_t)sizeof(int32_t);
  r.batch = (wm_batch_t){starts.bytes / (int64_t)sizeof(int64_t) - 1, starts.data};
  WM_TRY(allocate(&r, repeats == 0, err));
  WM_TRY(repeats == 0 ? compute_and_write(&r, argv[4], err) : time_passes(&r, repeats, err));
cleanup:
  wm_workspace_free(r.workspace);
  free(r.h), free(r.x), free(r.y), free(r.logits), free(r.nll), free(r.targets);
  wm_map_close(&ids);
  wm_map_close(&starts);
  wm_model_close(r.model);
  return status;
}

int main(int argc, char **argv) {
  if (argc != 8) {
    fprintf(stderr, "forward_tool MODEL_DIR IDS STARTS OUT_DIR TILE_ROWS TILE_VOCAB REPEATS\n");
    return WM_USAGE;
  }
  int provided;
  wm_error_t err = {0};
  wm_comm_t *comm;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  wm_status_t status = wm_comm_create(MPI_COMM_WORLD, &comm, &err);
  if (status == WM_OK)
    status = run(comm, argv, &err);
  if (status != WM_OK)
    fprintf(stderr, "%s\n", err.message);
  wm_comm_free(comm);
  MPI_Finalize();
  return status;
}
