#include "wanamaker/model/model.h"

#include "family.h"
#include "random.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/linalg/gemm.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static const wm_family_ops_t *const families[] = {
    [WM_FAMILY_GPT2] = &wm_gpt2, [WM_FAMILY_GPT_NEOX] = &wm_gpt_neox};

/* Collective. Rank 0 reads config.json for all. */
static wm_status_t read_arch(wm_model_t *m, const char *dir, wm_error_t *err) {
  char *unknown = NULL;
  wm_status_t status = WM_OK;
  if (m->comm->rank == 0) {
    status = wm_arch_read(dir, &m->arch, err);
    if (status == WM_OK)
      status = wm_arch_unknown_keys(dir, &unknown, err);
  }
  status = wm_agree(m->comm->world, status, err);
  if (status == WM_OK)
    wm_broadcast(m->comm->world, 0, &m->arch, sizeof m->arch);
  if (unknown != NULL && *unknown != '\0')
    wm_log(m->log, WM_LOG_WARN, "%s/config.json: unknown keys are ignored: %s", dir, unknown);
  free(unknown);
  return status;
}

/* Collective. Architecture and weights as rank 0 reads them. */
static void take_fingerprint(wm_model_t *m) {
  const wm_arch_t *a = &m->arch;
  char text[512];
  int length = snprintf(
      text, sizeof text, "%d %lld %lld %lld %lld %lld %lld %a %d %d %d %d %d %d %lld %a",
      (int)a->family, (long long)a->n_layers, (long long)a->n_heads, (long long)a->d_model,
      (long long)a->d_mlp, (long long)a->vocab_size, (long long)a->max_positions, a->layer_norm_eps,
      (int)a->activation, a->tied_head, a->scale_attn_weights, a->scale_attn_by_inverse_layer_idx,
      a->parallel_residual, a->attention_bias, (long long)a->rotary_dims, a->rotary_base);
  assert(length > 0 && (size_t)length < sizeof text);
  if (m->comm->rank == 0)
    m->fingerprint = wm_hash(text, (size_t)length, wm_weights_fingerprint(&m->weights));
  wm_broadcast(m->comm->world, 0, &m->fingerprint, sizeof m->fingerprint);
}

/* Not collective. Opens the files (`seed` NULL) and lists what they must hold. */
static wm_status_t declare(wm_model_t *m, const char *dir, const uint64_t *seed, wm_error_t *err) {
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, m->arch.n_layers, sizeof(wm_layer_t), "layers", err));
  m->layers = memory;
  const double range = m->arch.initializer_range;
  if (seed != NULL && !(range >= 0 && range <= 1)) {
    char *path = wm_arch_path(dir);
    status = wm_fail(err, WM_INPUT,
                     "%s: \"initializer_range\" must be in [0, 1] for random weights, but is %g",
                     path != NULL ? path : dir, range);
    free(path);
    return status;
  }
  if (seed != NULL)
    wm_weights_open_random(&m->weights, wm_random_of(&m->arch, *seed));
  else
    WM_TRY(wm_weights_open(&m->weights, dir, err));
  WM_TRY(m->family->declare(m, err));
cleanup:
  return status;
}

/* Not collective. Makes the matrix products once the weights are there. */
static wm_status_t create_linears(wm_model_t *m, wm_error_t *err) {
  for (int64_t i = 0; i < m->arch.n_layers; i++) {
    wm_status_t status = wm_block_create_linears(m, &m->layers[i], err);
    if (status != WM_OK)
      return status;
  }
  return wm_head_create(m, err);
}

wm_status_t wm_model_declare(wm_model_t *m, const char *dir, const uint64_t *seed,
                             wm_error_t *err) {
  wm_status_t status = read_arch(m, dir, err);
  if (status != WM_OK)
    return status;
  m->family = families[m->arch.family];
  return wm_agree(m->comm->world, declare(m, dir, seed, err), err);
}

static wm_matrices_t matrices_of(const wm_model_options_t *options) {
  if (options->compute != WM_COMPUTE_F32)
    return WM_MATRICES_BF16;
  return options->as_filed ? WM_MATRICES_AS_FILED : WM_MATRICES_F32;
}

static wm_status_t load(wm_model_t *m, const char *dir, const uint64_t *seed, wm_error_t *err) {
  wm_status_t status;
  WM_TRY(wm_model_declare(m, dir, seed, err));
  wm_weights_rules_t rules = m->family->rules;
  if (!m->arch.tied_head)
    rules.copy = NULL;
  m->weights.matrices = matrices_of(&m->options);
  m->weights.writable = m->options.writable;
  status = wm_weights_resolve(&m->weights, m->comm, &rules, err);
  if (status != WM_OK) {
    wm_error_prefix(err, "%s", dir);
    goto cleanup;
  }
  WM_TRY(wm_agree(m->comm->world, create_linears(m, err), err));
  take_fingerprint(m);
  wm_weights_release_files(&m->weights);
cleanup:
  return status;
}

static wm_status_t create(const wm_comm_t *comm, const char *dir, const uint64_t *seed,
                          const wm_model_options_t *options, const wm_log_t *log, wm_model_t **out,
                          wm_error_t *err) {
  assert(options->tile_rows > 0 && options->tile_vocab > 0);
  assert(!options->writable || (options->compute == WM_COMPUTE_F32 && !options->as_filed));
  void *memory;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof(wm_model_t), "model", err);
  if (status == WM_OK)
    status = wm_compute_check(options->compute, err);
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK) {
    free(memory);
    return status;
  }
  wm_model_t *m = memory;
  m->comm = comm;
  m->log = log;
  m->options = *options;
  /* The height that the products will take anyway, for whole tiles to be whole for both. */
  m->options.tile_rows = wm_gemm_tile_rows(options->tile_rows);
  status = load(m, dir, seed, err);
  if (status != WM_OK) {
    wm_model_close(m);
    return status;
  }
  wm_log(log, WM_LOG_DEBUG, "%s: %s, %lld layers of width %lld, %lld parameters", dir,
         wm_family_name(m->arch.family), (long long)m->arch.n_layers, (long long)m->arch.d_model,
         (long long)wm_model_parameters(m));
  *out = m;
  return WM_OK;
}

wm_status_t wm_model_open(const wm_comm_t *comm, const char *dir, const wm_model_options_t *options,
                          const wm_log_t *log, wm_model_t **out, wm_error_t *err) {
  return create(comm, dir, NULL, options, log, out, err);
}

wm_status_t wm_model_create_random(const wm_comm_t *comm, const char *config, uint64_t seed,
                                   const wm_model_options_t *options, const wm_log_t *log,
                                   wm_model_t **out, wm_error_t *err) {
  return create(comm, config, &seed, options, log, out, err);
}

void wm_model_close(wm_model_t *model) {
  if (model == NULL)
    return;
  wm_head_free(model);
  for (int64_t i = 0; model->layers != NULL && i < model->arch.n_layers; i++)
    wm_block_free_linears(&model->layers[i]);
  free(model->layers);
  wm_rotary_destroy(&model->rotary);
  wm_gemm_scratch_destroy(&model->scratch);
  wm_weights_close(&model->weights);
  free(model);
}

const wm_arch_t *wm_model_arch(const wm_model_t *model) {
  return &model->arch;
}

void wm_model_set_profile(wm_model_t *model, wm_profile_t *profile) {
  model->profile = profile;
}

wm_profile_t *wm_model_profile(const wm_model_t *model) {
  return model->profile;
}

uint64_t wm_model_fingerprint(const wm_model_t *model) {
  return model->fingerprint;
}

wm_status_t wm_model_unchanged(const wm_model_t *model, wm_error_t *err) {
  return wm_weights_unchanged(&model->weights, err);
}

void wm_model_mlp_norm(const wm_model_t *model, int64_t layer, const float **gamma,
                       const float **beta, double *eps) {
  const wm_norm_t *norm = &model->layers[layer].mlp_norm;
  *gamma = norm->gamma;
  *beta = norm->beta;
  *eps = norm->eps;
}

int64_t wm_model_embedding_rows(const wm_model_t *model) {
  return model->arch.vocab_size;
}

int64_t wm_model_parameters(const wm_model_t *model) {
  return wm_weights_elements(&model->weights);
}

wm_compute_t wm_model_compute(const wm_model_t *model) {
  return model->options.compute;
}

int64_t wm_model_tile_rows(const wm_model_t *model) {
  return model->options.tile_rows;
}

wm_tiles_t wm_model_tiles(const wm_model_t *model) {
  return model->tiles;
}

wm_status_t wm_model_set_tiles(wm_model_t *model, wm_tiles_t tiles, wm_error_t *err) {
  wm_status_t status;
  for (int64_t i = 0; i < model->arch.n_layers; i++)
    WM_TRY(wm_block_set_tiles(&model->layers[i], tiles, err));
  for (int64_t t = 0; t < model->n_head_tiles; t++)
    WM_TRY(wm_linear_set_tiles(model->head_tiles[t], tiles, err));
  model->tiles = tiles;
cleanup:
  return status;
}

int64_t wm_model_scratch_bytes(const wm_model_t *model) {
  return wm_gemm_scratch_bytes(&model->scratch);
}

int64_t wm_model_shared_bytes(const wm_model_t *model) {
  return model->weights.window.bytes;
}
