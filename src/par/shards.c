#include "wanamaker/par/shards.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"

#include <stdlib.h>

enum { PIECE = 1 << 24 };

struct wm_shards {
  const wm_comm_t *comm;
  MPI_Comm ordered; /* all ranks, node after node */
  int place;        /* of this rank among them */
  int *node_start;  /* [nodes + 1] */
  wm_shards_piece_t *pieces;
  int64_t n_pieces, own, largest;
  int *counts;           /* [pieces, ranks] */
  MPI_Request *requests; /* [pieces]; those that run come first */
  int n_requests;
  double seconds; /* in messages, since the last wait */
  float *buffer;  /* [largest piece] on leaders, where there are several nodes */
  int *node_counts, *node_offsets;
};

/* Ranks of the nodes before each node. */
static void number_nodes(wm_shards_t *s) {
  const wm_comm_t *c = s->comm;
  for (int i = 0; i <= c->node_count; i++)
    s->node_start[i] = 0;
  s->node_start[c->node_index + 1] = c->node_rank == 0 ? c->node_size : 0;
  MPI_Allreduce(MPI_IN_PLACE, s->node_start, c->node_count + 1, MPI_INT, MPI_SUM, c->world);
  for (int i = 0; i < c->node_count; i++)
    s->node_start[i + 1] += s->node_start[i];
}

static void add_piece(wm_shards_t *s, int64_t segment, int64_t first, int64_t count) {
  const wm_comm_t *c = s->comm;
  wm_shards_piece_t p = {.segment = segment, .first = first, .count = count, .own_place = s->own};
  for (int r = 0; r < c->size; r++) {
    int64_t start, length;
    wm_partition(count, c->size, r, &start, &length);
    s->counts[s->n_pieces * c->size + r] = (int)length; /* at most `piece` */
    if (r == s->place) {
      p.own_first = first + start;
      p.own_count = length;
    }
    if (r == s->node_start[c->node_index])
      p.node_first = first + start;
    if (r >= s->node_start[c->node_index] && r < s->node_start[c->node_index + 1])
      p.node_count += length;
  }
  s->own += p.own_count;
  s->largest = count > s->largest ? count : s->largest;
  s->pieces[s->n_pieces++] = p;
}

static int64_t count_pieces(const int64_t *counts, int64_t n, int64_t piece) {
  int64_t pieces = 0;
  for (int64_t i = 0; i < n; i++)
    pieces += (counts[i] + piece - 1) / piece;
  return pieces;
}

static wm_status_t reserve(wm_shards_t *s, int64_t pieces, wm_error_t *err) {
  const wm_comm_t *c = s->comm;
  void *memory;
  wm_status_t status;
  WM_TRY(wm_alloc(&memory, c->node_count + 1, sizeof(int), "nodes", err));
  s->node_start = memory;
  WM_TRY(wm_alloc(&memory, pieces, sizeof *s->pieces, "pieces of the gradients", err));
  s->pieces = memory;
  WM_TRY(wm_alloc(&memory, pieces * c->size, sizeof(int), "parts of the gradients", err));
  s->counts = memory;
  WM_TRY(wm_alloc(&memory, pieces, sizeof(MPI_Request), "messages", err));
  s->requests = memory;
  WM_TRY(wm_alloc(&memory, 2 * c->node_count, sizeof(int), "nodes", err));
  s->node_counts = memory;
  s->node_offsets = s->node_counts + c->node_count;
cleanup:
  return status;
}

wm_status_t wm_shards_create(const wm_comm_t *comm, const int64_t *counts, int64_t n, int64_t piece,
                             wm_shards_t **out, wm_error_t *err) {
  wm_shards_t *s = NULL;
  void *memory = NULL;
  int64_t first = 0;
  if (piece <= 0)
    piece = PIECE;
  *out = NULL;
  wm_status_t status = wm_alloc(&memory, 1, sizeof *s, "shards", err);
  if (status == WM_OK) {
    s = memory;
    *s = (wm_shards_t){.comm = comm, .ordered = MPI_COMM_NULL};
    status = reserve(s, count_pieces(counts, n, piece), err);
  }
  WM_TRY(wm_agree(comm->world, status, err));
  MPI_Comm_split(comm->world, 0, comm->node_index * comm->size + comm->node_rank, &s->ordered);
  MPI_Comm_rank(s->ordered, &s->place);
  number_nodes(s);
  for (int64_t i = 0; i < n; first += counts[i], i++)
    for (int64_t at = 0; at < counts[i]; at += piece)
      add_piece(s, i, first + at, counts[i] - at < piece ? counts[i] - at : piece);
  if (comm->node_count > 1 && comm->node_rank == 0) {
    status = wm_alloc(&memory, s->largest, sizeof(float), "buffer for other nodes", err);
    s->buffer = memory;
  }
  WM_TRY(wm_agree(comm->world, status, err));
  *out = s;
  return WM_OK;
cleanup:
  wm_shards_free(s);
  return status;
}

void wm_shards_free(wm_shards_t *s) {
  if (s == NULL)
    return;
  if (s->ordered != MPI_COMM_NULL)
    MPI_Comm_free(&s->ordered);
  free(s->node_start);
  free(s->pieces);
  free(s->counts);
  free(s->requests);
  free(s->buffer);
  free(s->node_counts);
  free(s);
}

int64_t wm_shards_own(const wm_shards_t *s) {
  return s->own;
}

int64_t wm_shards_pieces(const wm_shards_t *s) {
  return s->n_pieces;
}

const wm_shards_piece_t *wm_shards_piece(const wm_shards_t *s, int64_t index) {
  return &s->pieces[index];
}

void wm_shards_reduce(wm_shards_t *s, int64_t segment, const float *array, float *shard) {
  if (s->comm->size == 1)
    return;
  const double start = wm_seconds();
  for (int64_t i = 0; i < s->n_pieces; i++) {
    const wm_shards_piece_t *p = &s->pieces[i];
    if (p->segment == segment)
      MPI_Ireduce_scatter(array + p->first, shard + p->own_place, s->counts + i * s->comm->size,
                          MPI_FLOAT, MPI_SUM, s->ordered, &s->requests[s->n_requests++]);
  }
  s->seconds += wm_seconds() - start;
  wm_shards_poke(s);
}

void wm_shards_poke(wm_shards_t *s) {
  int done;
  const double start = wm_seconds();
  if (s->n_requests == 0)
    return;
  MPI_Testall(s->n_requests, s->requests, &done, MPI_STATUSES_IGNORE);
  s->seconds += wm_seconds() - start;
}

double wm_shards_wait(wm_shards_t *s) {
  double start = wm_seconds();
  for (int i = 0; i < s->n_requests; i++) {
    MPI_Wait(&s->requests[i], MPI_STATUS_IGNORE);
    wm_pulse();
  }
  s->n_requests = 0;
  const double seconds = s->seconds + wm_seconds() - start;
  s->seconds = 0;
  return seconds;
}

/* Where the parts of each node lie in a piece. */
static void node_parts(wm_shards_t *s, int64_t piece) {
  const int *counts = s->counts + piece * s->comm->size;
  int offset = 0;
  for (int k = 0; k < s->comm->node_count; k++) {
    s->node_offsets[k] = offset;
    for (int r = s->node_start[k]; r < s->node_start[k + 1]; r++)
      offset += counts[r];
    s->node_counts[k] = offset - s->node_offsets[k];
  }
}

void wm_shards_gather(wm_shards_t *s, const wm_shards_copy_t *copy) {
  const wm_comm_t *c = s->comm;
  if (c->node_count == 1 || c->node_rank != 0)
    return;
  for (int64_t i = 0; i < s->n_pieces; i++) {
    const wm_shards_piece_t *p = &s->pieces[i];
    node_parts(s, i);
    copy->pack(copy->context, p->node_first, p->node_count, s->buffer + (p->node_first - p->first));
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, s->buffer, s->node_counts, s->node_offsets,
                   MPI_FLOAT, c->leaders);
    int64_t before = p->node_first - p->first, behind = before + p->node_count;
    copy->unpack(copy->context, p->first, before, s->buffer);
    copy->unpack(copy->context, p->first + behind, p->count - behind, s->buffer + behind);
    wm_pulse();
  }
}
