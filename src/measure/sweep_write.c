/* sweep.h5: the datasets of a sweep. */
#include "sweep_internal.h"
#include "wanamaker/base/mem.h"

#include <math.h>
#include <string.h>

/* --- tokens -------------------------------------------------------------------------------------
 */

/* What a rank writes of /tokens: the predictions of its share of the windows. */
typedef struct {
  int64_t first, count;
  int32_t *id, *target, *position;
  int64_t *document, *window;
} rows_t;

static void rows_destroy(rows_t *r) {
  free(r->id);
  free(r->target);
  free(r->position);
  free(r->document);
  free(r->window);
}

static wm_status_t rows_create(int64_t count, rows_t *r, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, count, sizeof(int32_t), "token table", err));
  r->id = memory;
  WM_TRY(wm_alloc(&memory, count, sizeof(int32_t), "token table", err));
  r->target = memory;
  WM_TRY(wm_alloc(&memory, count, sizeof(int32_t), "token table", err));
  r->position = memory;
  WM_TRY(wm_alloc(&memory, count, sizeof(int64_t), "token table", err));
  r->document = memory;
  WM_TRY(wm_alloc(&memory, count, sizeof(int64_t), "token table", err));
  r->window = memory;
cleanup:
  return status;
}

static void fill_rows(const wm_windows_t *w, const int32_t *ids, int64_t begin, int64_t end,
                      rows_t *r) {
  int64_t at = 0;
  for (int64_t i = begin; i < end; i++) {
    const int32_t *text = ids + w->first[i];
    for (int64_t p = w->first_predicted[i]; p + 1 < w->length[i]; p++, at++) {
      r->id[at] = text[p];
      r->target[at] = text[p + 1];
      r->position[at] = (int32_t)p;
      r->document[at] = w->document[i] >= 0 ? w->document[i] : w->row[i];
      r->window[at] = i;
    }
  }
}

static wm_status_t write_column(wm_h5_t *file, const char *path, hid_t file_type, hid_t type,
                                int64_t n, int64_t first, int64_t count, const void *data,
                                const char *description, wm_error_t *err) {
  wm_status_t status = wm_h5_dataset(file, path, file_type, 1, &n, description, err);
  return status == WM_OK ? wm_h5_write(file, path, type, &first, &count, data, err) : status;
}

static wm_status_t write_tokens(const wm_sweep_t *s, const int32_t *ids, wm_h5_t *file,
                                wm_error_t *err) {
  const wm_windows_t *w = s->blocks->windows;
  int64_t begin, length, n = w->n_predicted;
  wm_partition(w->n, s->comm->size, s->comm->rank, &begin, &length);
  rows_t r = {.first = w->predicted_offset[begin]};
  r.count = w->predicted_offset[begin + length] - r.first;
  wm_status_t status;
  WM_TRY(wm_agree(s->comm->world, rows_create(r.count, &r, err), err));
  fill_rows(w, ids, begin, begin + length, &r);
  WM_TRY(write_column(file, "/tokens/id", H5T_STD_I32LE, H5T_NATIVE_INT32, n, r.first, r.count,
                      r.id, "[token] id at the position", err));
  WM_TRY(write_column(file, "/tokens/target", H5T_STD_I32LE, H5T_NATIVE_INT32, n, r.first, r.count,
                      r.target, "[token] id that is predicted there", err));
  WM_TRY(write_column(file, "/tokens/position", H5T_STD_I32LE, H5T_NATIVE_INT32, n, r.first,
                      r.count, r.position, "[token] position in its window, from 0", err));
  WM_TRY(write_column(file, "/tokens/document", H5T_STD_I64LE, H5T_NATIVE_INT64, n, r.first,
                      r.count, r.document,
                      "[token] document (protocol stream: row of the corpus) in which the window "
                      "begins; -1: the corpus has no rows",
                      err));
  WM_TRY(write_column(file, "/tokens/window", H5T_STD_I64LE, H5T_NATIVE_INT64, n, r.first, r.count,
                      r.window, "[token] number of its window in the range", err));
  WM_TRY(write_column(file, "/tokens/unit", H5T_STD_I32LE, H5T_NATIVE_INT32, n, r.first, r.count,
                      s->units + r.first, "[token] unit that the bootstrap draws", err));
cleanup:
  rows_destroy(&r);
  return status;
}

/* --- variants -----------------------------------------------------------------------------------
 */

enum { LABEL_SIZE = 128, PATH_SIZE = 16 };

typedef struct {
  int32_t id;
  char layers[LABEL_SIZE];
  char path[PATH_SIZE];
  char gate[PATH_SIZE];
  double threshold, mean_nll, ppl, delta_pct, low, high, unpaired_low, unpaired_high;
  double p_two_sided, p_holm, p_bh;
  int32_t beats_full;
  double routed_fraction, mlp_flops, flops, saved_pct, saved_body_pct, kl, top1_agreement;
} variant_row_t;

#define FIELD(name, type)                                                                          \
  { #name, offsetof(variant_row_t, name), type }

/* A compound type with the members of variant_row_t: the file's is the memory's. Negative on
 * failure. */
static hid_t variant_type(void) {
  hid_t label = H5Tcopy(H5T_C_S1), path = H5Tcopy(H5T_C_S1);
  hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(variant_row_t));
  if (label < 0 || path < 0 || type < 0)
    return -1;
  H5Tset_size(label, LABEL_SIZE);
  H5Tset_size(path, PATH_SIZE);
  const struct {
    const char *name;
    size_t offset;
    hid_t type;
  } fields[] = {
      FIELD(id, H5T_NATIVE_INT32),
      FIELD(layers, label),
      FIELD(path, path),
      FIELD(gate, path),
      FIELD(threshold, H5T_NATIVE_DOUBLE),
      FIELD(mean_nll, H5T_NATIVE_DOUBLE),
      FIELD(ppl, H5T_NATIVE_DOUBLE),
      FIELD(delta_pct, H5T_NATIVE_DOUBLE),
      FIELD(low, H5T_NATIVE_DOUBLE),
      FIELD(high, H5T_NATIVE_DOUBLE),
      FIELD(unpaired_low, H5T_NATIVE_DOUBLE),
      FIELD(unpaired_high, H5T_NATIVE_DOUBLE),
      FIELD(p_two_sided, H5T_NATIVE_DOUBLE),
      FIELD(p_holm, H5T_NATIVE_DOUBLE),
      FIELD(p_bh, H5T_NATIVE_DOUBLE),
      FIELD(beats_full, H5T_NATIVE_INT32),
      FIELD(routed_fraction, H5T_NATIVE_DOUBLE),
      FIELD(mlp_flops, H5T_NATIVE_DOUBLE),
      FIELD(flops, H5T_NATIVE_DOUBLE),
      FIELD(saved_pct, H5T_NATIVE_DOUBLE),
      FIELD(saved_body_pct, H5T_NATIVE_DOUBLE),
      FIELD(kl, H5T_NATIVE_DOUBLE),
      FIELD(top1_agreement, H5T_NATIVE_DOUBLE),
  };
  bool failed = false;
  for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
    failed |= H5Tinsert(type, fields[i].name, fields[i].offset, fields[i].type) < 0;
  H5Tclose(label);
  H5Tclose(path);
  if (failed)
    H5Tclose(type);
  return failed ? -1 : type;
}

static void fill_variant(const wm_sweep_t *s, int64_t v, variant_row_t *row) {
  const wm_effect_t *e = &s->effects[v];
  const wm_sweep_measure_t *m = &s->measures[v];
  const wm_sweep_flops_t flops = wm_sweep_flops(s, v);
  *row = (variant_row_t){.id = (int32_t)v,
                         .threshold = wm_variants_threshold(s->variants, v),
                         .mean_nll = e->mean_nll,
                         .ppl = e->perplexity,
                         .delta_pct = e->delta,
                         .low = e->low,
                         .high = e->high,
                         .unpaired_low = e->unpaired_low,
                         .unpaired_high = e->unpaired_high,
                         .p_two_sided = e->p_two_sided,
                         .p_holm = e->p_holm,
                         .p_bh = e->p_bh,
                         .beats_full = e->beats_full,
                         .routed_fraction = m->routed,
                         .mlp_flops = flops.mlp,
                         .flops = flops.model,
                         .saved_pct = flops.saved_pct,
                         .saved_body_pct = flops.saved_body_pct,
                         .kl = m->divergence,
                         .top1_agreement = m->agreement};
  wm_variants_label(s->variants, v, row->layers, sizeof row->layers);
  wm_variants_gate_label(s->variants, v, row->gate, sizeof row->gate);
  strcpy(row->path, v == 0 ? "full" : wm_variants_is_routed(s->variants, v) ? "gate" : "surrogate");
}

static wm_status_t write_variants(const wm_sweep_t *s, wm_h5_t *file, wm_error_t *err) {
  const int64_t n = s->variants->n;
  void *rows = NULL;
  hid_t type = variant_type();
  wm_status_t status = type < 0 ? wm_fail(err, WM_ENVIRONMENT, "cannot make an HDF5 type") : WM_OK;
  if (status == WM_OK)
    status = wm_alloc(&rows, n, sizeof(variant_row_t), "variants", err);
  WM_TRY(wm_agree(s->comm->world, status, err));
  for (int64_t v = 0; v < n; v++)
    fill_variant(s, v, (variant_row_t *)rows + v);
  WM_TRY(write_column(file, "/variants", type, type, n, 0, s->comm->rank == 0 ? n : 0, rows,
                      "[variant] what is measured: layers that take the path, perplexity, cost "
                      "in percent with its paired-bootstrap interval, p-values, and operations "
                      "per token of the MLPs and of the whole model",
                      err));
cleanup:
  free(rows);
  if (type >= 0)
    H5Tclose(type);
  return status;
}

/* --- losses -------------------------------------------------------------------------------------
 */

static wm_status_t write_losses(const wm_sweep_t *s, wm_h5_t *file, wm_error_t *err) {
  int64_t n = s->blocks->windows->n_predicted, dims[2] = {s->variants->n, n}, first, count;
  wm_status_t status = wm_h5_dataset(file, "/nll", H5T_IEEE_F32LE, 2, dims,
                                     "[variant, token] negative log-likelihood of the target in "
                                     "nats",
                                     err);
  if (status != WM_OK)
    return status;
  wm_partition(s->variants->n, s->comm->size, s->comm->rank, &first, &count);
  int64_t offset[2] = {first, 0}, extent[2] = {count, n};
  return wm_h5_write(file, "/nll", H5T_NATIVE_FLOAT, offset, extent,
                     (const float *)s->nll.data + first * n, err);
}

wm_status_t wm_sweep_write(const wm_sweep_t *s, const int32_t *ids, wm_h5_t *file,
                           wm_error_t *err) {
  wm_status_t status;
  int64_t blocks = s->blocks->n + 1;
  WM_TRY(write_tokens(s, ids, file, err));
  WM_TRY(write_losses(s, file, err));
  WM_TRY(write_variants(s, file, err));
  WM_TRY(wm_sweep_write_cells(s, file, err));
  WM_TRY(write_column(file, "/blocks/first_window", H5T_STD_I64LE, H5T_NATIVE_INT64, blocks, 0,
                      s->comm->rank == 0 ? blocks : 0, s->blocks->first_window,
                      "[block + 1] first window of each block of work", err));
cleanup:
  return status;
}
