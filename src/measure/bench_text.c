/* Text of random ids, whole windows or documents of realistic lengths, and passes over it. */
#include "bench_internal.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/rng.h"
#include "wanamaker/measure/typical.h"

#include <string.h>

/* Number `i` of a sequence whose every part has the distribution: a golden-ratio sequence, begun at
 * another place by each rank. */
static int64_t document_length(const wm_bench_t *bench, int64_t i) {
  const wm_bench_options_t *o = bench->options;
  double start = wm_rng_uniform((wm_rng_t){o->seed, 1}, (uint64_t)o->comm->rank);
  double u = start + 0.6180339887498949 * (double)i;
  int64_t n = wm_typical_length(u - (double)(int64_t)u);
  return n < o->window ? n : o->window;
}

static double flops_of(const wm_arch_t *a, const wm_windows_t *w) {
  double flops = (double)w->n_predicted * wm_arch_flops_head(a);
  for (int64_t i = 0; i < w->n; i++) {
    double n = (double)w->length[i];
    flops += n * (double)a->n_layers *
             (wm_arch_flops_layer(a) + wm_arch_flops_attention(a, (n + 1) / 2));
  }
  return flops;
}

double wm_bench_forward_flops(const wm_bench_options_t *o, const wm_arch_t *a) {
  double n = (double)o->window;
  double layer = wm_arch_flops_layer(a) + wm_arch_flops_attention(a, (n + 1) / 2);
  return (double)o->windows * (n * (double)a->n_layers * layer + (n - 1) * wm_arch_flops_head(a));
}

static wm_status_t draw_ids(const wm_bench_t *bench, int64_t n, wm_bench_text_t *t,
                            wm_error_t *err) {
  void *memory;
  wm_status_t status = wm_alloc(&memory, n, sizeof(int32_t), "text of the bench", err);
  if (status != WM_OK)
    return status;
  t->ids = memory;
  wm_rng_t rng = {bench->options->seed, 2 + (uint64_t)bench->options->comm->rank};
  for (int64_t i = 0; i < n; i++)
    t->ids[i] = (int32_t)wm_rng_below(rng, (uint64_t)i, (uint64_t)bench->arch.vocab_size);
  return WM_OK;
}

static wm_status_t cut(const wm_bench_t *bench, const wm_token_view_t *view,
                       wm_protocol_kind_t kind, wm_bench_text_t *t, wm_error_t *err) {
  wm_protocol_t protocol = {kind, bench->options->window, bench->options->window, 2};
  wm_range_t range = {.name = "bench", .kind = WM_RANGE_TOKENS, .end = view->n_tokens};
  wm_status_t status = wm_windows_create(view, &protocol, &range, &t->windows, err);
  if (status == WM_OK)
    status = wm_blocks_create(&t->windows, bench->options->block_tokens, &t->blocks, err);
  if (status == WM_OK)
    t->flops = flops_of(&bench->arch, &t->windows);
  return status;
}

wm_status_t wm_bench_text_fixed(const wm_bench_t *bench, wm_bench_text_t *out, wm_error_t *err) {
  *out = (wm_bench_text_t){0};
  int64_t n = bench->options->windows * bench->options->window;
  wm_token_view_t view = {.name = "random ids", .encoding = "ids", .n_tokens = n};
  wm_status_t status = draw_ids(bench, n, out, err);
  return status == WM_OK ? cut(bench, &view, WM_PROTOCOL_STREAM, out, err) : status;
}

/* Tokens and number of as many documents as there are asked for, and then as many as fit the last
 * block: a cut one would count for more here than in a corpus. */
static int64_t count_documents(const wm_bench_t *bench, int64_t *rows) {
  const wm_bench_options_t *o = bench->options;
  int64_t n = 0, filled = 0;
  for (*rows = 0;; (*rows)++) {
    int64_t length = document_length(bench, *rows);
    bool opens = filled > 0 && filled + length > o->block_tokens;
    if (opens && n >= o->documents)
      return n;
    filled = opens ? length : filled + length;
    n += length;
  }
}

wm_status_t wm_bench_text_documents(const wm_bench_t *bench, wm_bench_text_t *out,
                                    wm_error_t *err) {
  *out = (wm_bench_text_t){0};
  int64_t rows, n = count_documents(bench, &rows);
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, rows + 1, sizeof(int64_t), "text of the bench", err));
  out->row_first = memory;
  WM_TRY(wm_alloc(&memory, rows, sizeof(uint8_t), "text of the bench", err));
  out->row_flags = memory;
  for (int64_t r = 0; r < rows; r++)
    out->row_first[r + 1] = out->row_first[r] + document_length(bench, r);
  WM_TRY(draw_ids(bench, n, out, err));
  wm_token_view_t view = {.name = "random documents",
                          .encoding = "documents",
                          .n_tokens = n,
                          .n_rows = rows,
                          .row_first = out->row_first,
                          .row_flags = out->row_flags};
  status = cut(bench, &view, WM_PROTOCOL_DOCUMENTS, out, err);
cleanup:
  return status;
}

void wm_bench_text_destroy(wm_bench_text_t *t) {
  wm_blocks_destroy(&t->blocks);
  wm_windows_destroy(&t->windows);
  free(t->ids);
  free(t->row_first);
  free(t->row_flags);
  *t = (wm_bench_text_t){0};
}

/* --- passes -------------------------------------------------------------------------------------
 */

wm_status_t wm_bench_pass_create(const wm_bench_t *bench, wm_model_t *model,
                                 const wm_bench_text_t *text, const wm_variants_t *variants,
                                 const wm_surrogates_t *surrogates, wm_bench_pass_t *out,
                                 wm_error_t *err) {
  *out = (wm_bench_pass_t){.text = text, .variants = variants->n - 1};
  void *memory;
  wm_status_t status;
  WM_TRY(wm_block_create(&text->blocks, &out->block, err));
  WM_TRY(wm_evaluator_create(model, surrogates, variants, &text->blocks, out->variants,
                             bench->options->stack_rows, false, &out->evaluator, err));
  WM_TRY(wm_alloc(&memory, variants->n * text->blocks.max_rows, sizeof(float), "losses", err));
  out->nll = memory;
cleanup:
  return status;
}

void wm_bench_pass_destroy(wm_bench_pass_t *pass) {
  wm_evaluator_free(pass->evaluator);
  wm_block_destroy(&pass->block);
  free(pass->nll);
  *pass = (wm_bench_pass_t){0};
}

wm_status_t wm_bench_pass_run(void *context, wm_error_t *err) {
  wm_bench_pass_t *p = context;
  wm_status_t status = WM_OK;
  for (int64_t b = 0; b < p->text->blocks.n && status == WM_OK; b++) {
    wm_pulse();
    wm_block_load(&p->text->blocks, p->text->ids, b, &p->block);
    status = wm_evaluate_block(p->evaluator, &p->block, 1, p->variants, p->nll, NULL, err);
  }
  return status;
}
