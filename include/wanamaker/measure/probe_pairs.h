/* Token types on two corpora: do they cost the same on both (method.md, sections 6 and 7)?
 *
 * The study's construction: the No-Fly types of one corpus (enough observations, mean delta above a
 * threshold, most deltas above zero) are looked up on the other: found with a few observations,
 * still No-Fly, flipped in sign; correlation of mean deltas over those found. Types are selected by
 * their deltas on the first corpus, and so regress to the mean on the second one: r is biased
 * toward zero.
 *
 * Without selection: all types with enough observations on both sides: r of the mean deltas with a
 * bootstrap interval (units of both sides are drawn; resamples are moved on Fisher's scale to r,
 * for their noisier means bring them nearer to zero), the split-half reliability of each side, and
 * r / sqrt(their product), with an interval that takes reliabilities as known.
 *
 * Halves: every observation is drawn into one of two; the correlation of the halves' means,
 * averaged over options->halvings, stepped up by Spearman and Brown, 2 r / (1 + r).
 */
#ifndef WANAMAKER_MEASURE_PROBE_PAIRS_H
#define WANAMAKER_MEASURE_PROBE_PAIRS_H

#include "wanamaker/measure/probe.h"

/* One corpus's deltas at a layer; all pointers are borrowed. */
typedef struct {
  const char *corpus;
  const wm_probe_text_t *text;
  const double *delta; /* [N] */
  const uint8_t *used; /* [N] */
} wm_probe_side_t;

/* Mean deltas of the types of one key, over used positions. Not collective. */
typedef struct {
  int64_t n;
  double *count, *sum, *positive; /* [n]; one block of memory, at count */
} wm_type_sums_t;
wm_status_t wm_type_sums_create(const wm_probe_side_t *side, wm_probe_key_t key,
                                wm_type_sums_t *out, wm_error_t *err);
void wm_type_sums_destroy(wm_type_sums_t *sums);
bool wm_type_is_no_fly(const wm_type_sums_t *sums, int64_t type, const wm_probe_options_t *o);

/* Sums of the two halves of halving `h`: sums[0] and sums[1]. Not collective. */
wm_status_t wm_type_halves(const wm_probe_side_t *side, wm_probe_key_t key, uint64_t seed,
                           int64_t h, wm_type_sums_t sums[2], wm_error_t *err);

typedef struct {
  int64_t types, listed, found, still, flipped;
  double r;
} wm_probe_fate_t;
/* Not collective. The study's construction: types of `from`, looked up on `to`. */
wm_status_t wm_probe_fate(const wm_probe_side_t *from, const wm_probe_side_t *to,
                          wm_probe_key_t key, const wm_probe_options_t *o, wm_probe_fate_t *out,
                          wm_error_t *err);

typedef struct {
  int64_t types;
  double r, low, high, reliability[2], corrected;
} wm_probe_agreement_t;
/* Collective over `comm`; equal sides on all ranks. Without selection. */
wm_status_t wm_probe_agreement(MPI_Comm comm, const wm_probe_side_t *a, const wm_probe_side_t *b,
                               wm_probe_key_t key, const wm_probe_options_t *o,
                               wm_probe_agreement_t *out, wm_error_t *err);

/* Collective. Rows of both tables for the two corpora, both keys: fates in both directions. */
wm_status_t wm_probe_pair(const wm_comm_t *comm, const wm_probe_options_t *o, int64_t layer,
                          const char *surrogates, const wm_probe_side_t *a,
                          const wm_probe_side_t *b, wm_probe_tables_t *tables, wm_error_t *err);

#endif
