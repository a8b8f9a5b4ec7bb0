/* probes.h5: tables, and what is known of every position. */
#include "probe.h"

#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"

#include <inttypes.h>
#include <string.h>

/* --- positions ----------------------------------------------------------------------------------
 */

/* Collective. One column [N] of a corpus, of which each rank writes a part. */
static wm_status_t write_column(const wm_probe_job_t *j, wm_h5_t *file, const char *path,
                                hid_t stored, hid_t type, int64_t n, const void *data, size_t size,
                                const char *description, wm_error_t *err) {
  int64_t first, count;
  wm_partition(n, j->run->comm->size, j->run->comm->rank, &first, &count);
  wm_status_t status = wm_h5_dataset(file, path, stored, 1, &n, description, err);
  if (status != WM_OK)
    return status;
  return wm_h5_write(file, path, type, &first, &count, (const char *)data + (size_t)first * size,
                     err);
}

/* Collective. */
static wm_status_t write_tokens(const wm_probe_job_t *j, const wm_probe_corpus_t *c, wm_h5_t *file,
                                wm_error_t *err) {
  const wm_probe_text_t *t = &c->text;
  void *memory;
  char path[256];
  wm_status_t status = wm_alloc(&memory, t->n, sizeof(int32_t), "token ids", err);
  WM_TRY(wm_agree(j->run->comm->world, status, err));
  for (int k = 0; k < WM_KEYS; k++) {
    int32_t *id = memory;
    for (int64_t i = 0; i < t->n; i++)
      id[i] = wm_probe_token(t, (wm_probe_key_t)k, i);
    snprintf(path, sizeof path, "/tokens/%s/%s", c->name, k == WM_KEY_INPUT ? "id" : "target");
    WM_TRY(write_column(j, file, path, H5T_STD_I32LE, H5T_NATIVE_INT32, t->n, id, sizeof *id,
                        "[position] token there, or predicted there", err));
  }
  snprintf(path, sizeof path, "/tokens/%s/position", c->name);
  WM_TRY(write_column(j, file, path, H5T_STD_I32LE, H5T_NATIVE_INT32, t->n, t->position,
                      sizeof *t->position, "[position] place in its window, from 0", err));
  snprintf(path, sizeof path, "/tokens/%s/unit", c->name);
  WM_TRY(write_column(j, file, path, H5T_STD_I32LE, H5T_NATIVE_INT32, t->n, t->unit,
                      sizeof *t->unit, "[position] unit that the bootstrap draws", err));
  snprintf(path, sizeof path, "/tokens/%s/test", c->name);
  WM_TRY(write_column(j, file, path, H5T_STD_U8LE, H5T_NATIVE_UINT8, t->n, t->test, 1,
                      "[position] 1: held out from the fits of probes", err));
cleanup:
  free(memory);
  return status;
}

/* A column [layers, N] of a case. */
typedef struct {
  const char *name;
  hid_t stored, type;
  size_t size;
  const void *data;
  const char *description;
} layered_t;

enum { LAYERED = 7 };

static void list_layered(const wm_probe_positions_t *p, layered_t out[LAYERED]) {
  const hid_t f64 = H5T_IEEE_F64LE, here = H5T_NATIVE_DOUBLE;
  const hid_t u8 = H5T_STD_U8LE, u8_here = H5T_NATIVE_UINT8;
  const layered_t all[LAYERED] = {
      {"delta", f64, here, 8, p->delta,
       "[layer, position] loss with the surrogate less that of "
       "the full model, nats"},
      {"divergence", f64, here, 8, p->divergence, "[layer, position] KL(full || surrogate), nats"},
      {"agreed", f64, here, 8, p->agreed, "[layer, position] 1: the same most likely token"},
      {"factor", f64, here, 8, p->factor,
       "[layer, position] what the MLP's layer norm multiplies "
       "by, 1 / sqrt(variance + eps)"},
      {"used", u8, u8_here, 1, p->used, "[layer, position] 1: counted by the probes"},
      {"classes", u8, u8_here, 1, p->classes,
       "[layer, position] bits: 1 position 0, 2 first positions, 4 end of text, 8 high norm"},
      {"cluster", H5T_STD_I32LE, H5T_NATIVE_INT32, 4, p->cluster,
       "[layer, position] cluster, by descending size; -1: none"}};
  memcpy(out, all, sizeof all);
}

static void layered_path(const wm_probe_job_t *j, const wm_probe_case_t *k, const char *name,
                         char path[256]) {
  snprintf(path, 256, "/layers/%s.%s/%s", j->corpora[k->corpus].name, k->kind, name);
}

/* Collective. Layer number `index` from the part, each rank some positions. */
static wm_status_t write_layer(const wm_probe_job_t *j, const wm_probe_case_t *k, int64_t index,
                               const wm_probe_positions_t *p, wm_h5_t *file, wm_error_t *err) {
  int64_t first, count;
  char path[256];
  layered_t c[LAYERED];
  wm_partition(p->n, j->run->comm->size, j->run->comm->rank, &first, &count);
  list_layered(p, c);
  for (int i = 0; i < LAYERED; i++) {
    const int64_t offset[2] = {index, first}, extent[2] = {1, count};
    layered_path(j, k, c[i].name, path);
    wm_status_t status = wm_h5_write(file, path, c[i].type, offset, extent,
                                     (const char *)c[i].data + (size_t)first * c[i].size, err);
    if (status != WM_OK)
      return status;
  }
  return WM_OK;
}

/* Collective. */
static wm_status_t write_case(const wm_probe_job_t *j, const wm_probe_case_t *k, wm_h5_t *file,
                              wm_error_t *err) {
  const int64_t n = j->corpora[k->corpus].text.n, dims[2] = {j->n_layers, n};
  wm_probe_positions_t p = {0};
  wm_probe_tables_t ignored;
  char path[256];
  layered_t c[LAYERED];
  wm_probe_tables_init(&ignored);
  wm_status_t status = wm_probe_positions_create(n, &p, err);
  WM_TRY(wm_agree(j->run->comm->world, status, err));
  list_layered(&p, c);
  for (int i = 0; i < LAYERED; i++) {
    layered_path(j, k, c[i].name, path);
    WM_TRY(wm_h5_dataset(file, path, c[i].stored, 2, dims, c[i].description, err));
  }
  for (int64_t i = 0; i < j->n_layers; i++) {
    WM_TRY(wm_probe_part_read(j->run->comm, k->parts, j->layers[i], &p, &ignored, err));
    WM_TRY(write_layer(j, k, i, &p, file, err));
  }
  layered_path(j, k, "full", path);
  WM_TRY(write_column(j, file, path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n, p.full, 8,
                      "[position] loss of the full model, nats", err));
  layered_path(j, k, "entropy", path);
  WM_TRY(write_column(j, file, path, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, n, p.entropy, 8,
                      "[position] entropy of the full model's prediction, nats", err));
cleanup:
  wm_probe_positions_destroy(&p);
  wm_probe_tables_destroy(&ignored);
  return status;
}

/* --- result -------------------------------------------------------------------------------------
 */

/* Collective. What the probes rest on, as attributes of a corpus's group. */
static wm_status_t describe_corpus(const wm_probe_corpus_t *c, wm_h5_t *file, wm_error_t *err) {
  const wm_text_t *fit = &c->in.text[WM_ROLE_FIT], *probe = &c->in.text[WM_ROLE_EVALUATION];
  char path[256], key[WM_STAGE_KEY_SIZE];
  wm_status_t status;
  snprintf(path, sizeof path, "/tokens/%s", c->name);
  WM_TRY(wm_h5_set_string(file, path, "range_fit", fit->windows.label, err));
  WM_TRY(wm_h5_set_string(file, path, "range_probe", probe->windows.label, err));
  WM_TRY(wm_h5_set_string(file, path, "bootstrap_unit", wm_unit_name(c->text.unit_kind), err));
  WM_TRY(wm_h5_set_int(file, path, "units", c->text.n_units, err));
  wm_hash_text(wm_text_fingerprint(probe, 0), key);
  WM_TRY(wm_h5_set_string(file, path, "text_fingerprint", key, err));
cleanup:
  return status;
}

/* Collective. */
static wm_status_t write_layers(const wm_probe_job_t *j, wm_h5_t *file, wm_error_t *err) {
  const int64_t zero = 0, count = j->run->comm->rank == 0 ? j->n_layers : 0;
  wm_status_t status = wm_h5_dataset(file, "/layers/layers", H5T_STD_I64LE, 1, &j->n_layers,
                                     "[layer] layers that are probed, ascending", err);
  if (status != WM_OK)
    return status;
  return wm_h5_write(file, "/layers/layers", H5T_NATIVE_INT64, &zero, &count, j->layers, err);
}

wm_status_t wm_probe_write(wm_probe_job_t *j, wm_error_t *err) {
  const bool writer = j->run->comm->rank == 0;
  wm_h5_t *file = NULL;
  wm_status_t status;
  WM_TRY(wm_h5_create(j->run->comm->world, j->path, &file, err));
  WM_TRY(wm_probe_tables_write(&j->tables, writer, file, err));
  WM_TRY(write_layers(j, file, err));
  for (int i = 0; i < j->n_corpora; i++) {
    WM_TRY(write_tokens(j, &j->corpora[i], file, err));
    WM_TRY(describe_corpus(&j->corpora[i], file, err));
  }
  for (int i = 0; i < j->n_cases; i++)
    WM_TRY(write_case(j, &j->cases[i], file, err));
  WM_TRY(wm_agree(j->run->comm->world, wm_model_unchanged(j->in.model, err), err));
  WM_TRY(wm_stage_describe(&j->corpora[0].in, file, "probe", j->key, err));
  WM_TRY(wm_h5_set_string(file, "/", "bootstrap_interval",
                          wm_interval_name(j->options.bootstrap.interval), err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
  wm_log(j->run->log, WM_LOG_INFO, "probe: wrote %s", j->path);
cleanup:
  wm_h5_close(file);
  return status;
}

/* --- features -----------------------------------------------------------------------------------
 */

/* Collective. Rows of this rank, a block at a time, into layer `layer` of [layers, N, D], or into
 * [N, D] if layer < 0. */
static wm_status_t write_rows(const wm_probe_job_t *j, const wm_probe_rows_t *r, wm_h5_t *file,
                              const char *path, int64_t layer, int64_t n_blocks, const float *x,
                              wm_error_t *err) {
  const int64_t rounds = (n_blocks + j->run->comm->size - 1) / j->run->comm->size;
  int64_t row = 0;
  for (int64_t i = 0; i < rounds; i++) {
    int64_t end = row;
    const int64_t block = i * j->run->comm->size + j->run->comm->rank;
    while (end < r->n && r->block[end] == block)
      end++;
    const int64_t at = row < r->n ? r->place[row] : 0;
    const int64_t offset[3] = {layer, at, 0}, count[3] = {1, end - row, r->d};
    wm_status_t status = wm_h5_write(file, path, H5T_NATIVE_FLOAT, layer < 0 ? offset + 1 : offset,
                                     layer < 0 ? count + 1 : count, x + row * r->d, err);
    if (status != WM_OK)
      return status;
    row = end;
  }
  return WM_OK;
}

/* Collective. The file, if features are to be kept and it is not open yet. */
static wm_status_t open_features(const wm_probe_job_t *j, const wm_probe_corpus_t *c,
                                 const wm_probe_rows_t *r, int64_t n, wm_h5_t **file,
                                 wm_error_t *err) {
  const int64_t x[3] = {n, r->total, r->d}, e[2] = {r->total, r->d};
  char name[128], path[WM_PATH_SIZE];
  snprintf(name, sizeof name, "probe_features.%s.h5", c->name);
  wm_status_t status = wm_output_path(j->run, name, path, err);
  if (status == WM_OK)
    status = wm_h5_create(j->run->comm->world, path, file, err);
  if (status == WM_OK)
    status =
        wm_h5_dataset(*file, "/x", H5T_IEEE_F32LE, 3, x, "[layer, position, D] MLP inputs", err);
  if (status == WM_OK)
    status = wm_h5_dataset(*file, "/e", H5T_IEEE_F32LE, 2, e, "[position, D] embeddings", err);
  return status;
}

wm_status_t wm_probe_keep_features(const wm_probe_job_t *j, const wm_probe_corpus_t *c,
                                   const wm_probe_rows_t *r, int64_t first, int64_t n,
                                   wm_h5_t **file, wm_error_t *err) {
  const int64_t n_blocks = c->in.text[WM_ROLE_EVALUATION].blocks.n;
  const bool fresh = *file == NULL;
  wm_status_t status = WM_OK;
  if (!wm_config_bool(j->run->config, "probe.keep_features"))
    return WM_OK;
  if (fresh) {
    WM_TRY(open_features(j, c, r, n, file, err));
    WM_TRY(write_rows(j, r, *file, "/e", -1, n_blocks, r->e, err));
  }
  for (int64_t i = 0; i < r->n_layers; i++)
    WM_TRY(write_rows(j, r, *file, "/x", first + i, n_blocks, r->x + i * r->n * r->d, err));
cleanup:
  return status;
}
