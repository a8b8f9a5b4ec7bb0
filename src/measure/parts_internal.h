/* What parts.c and parts_read.c share. */
#ifndef WANAMAKER_SRC_MEASURE_PARTS_INTERNAL_H
#define WANAMAKER_SRC_MEASURE_PARTS_INTERNAL_H

#include "wanamaker/measure/parts.h"

struct wm_parts {
  const wm_comm_t *comm;
  const wm_blocks_t *blocks;
  const char *folder; /* NULL: nothing is kept */
  const wm_log_t *log;
  int64_t n_variants, n_cells;
  char key[17], cut[17];
  uint64_t *done;  /* bits [n_cells], cell = variant * blocks + block */
  uint64_t *fresh; /* the same: finished by this rank since the last part */
  int64_t *used;   /* [n_used] numbers of parts that are not damaged, ascending */
  int64_t n_used;
  int64_t next; /* least number that may be free */
  bool exist;   /* parts hold cells of this sweep */
};

static inline bool wm_parts_bit(const uint64_t *bits, int64_t i) {
  return bits[i / 64] >> (i % 64) & 1;
}

static inline void wm_parts_set_bit(uint64_t *bits, int64_t i) {
  bits[i / 64] |= UINT64_C(1) << (i % 64);
}

static inline int64_t wm_parts_words(const wm_parts_t *p) {
  return (p->n_cells + 63) / 64;
}

static inline int64_t wm_parts_cell_of(const wm_parts_t *p, int64_t variant, int64_t block) {
  return variant * p->blocks->n + block;
}

static inline int64_t wm_parts_first_prediction(const wm_parts_t *p, int64_t block) {
  return p->blocks->windows->predicted_offset[p->blocks->first_window[block]];
}

static inline int64_t wm_parts_predictions(const wm_parts_t *p, int64_t block) {
  return wm_parts_first_prediction(p, block + 1) - wm_parts_first_prediction(p, block);
}

/* Place of a cell's losses in [V, N]. */
static inline int64_t wm_parts_place(const wm_parts_t *p, const int64_t cell[2]) {
  return cell[0] * p->blocks->windows->n_predicted + wm_parts_first_prediction(p, cell[1]);
}

/* What a cell counts, as a row of /counts. */
enum { WM_PART_COUNTS = 3 };

#endif
