#include "wanamaker/par/shards.h"

#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* A piece is 16 MiB: its parts are large enough for messages on some hundred ranks, and those on
 * their way take little memory. */
enum { PIECE = 1 << 22, FLIGHTS = 4 };

/* A piece on its way. */
typedef struct {
  int64_t piece; /* -1: none */
  bool between;  /* nodes; else within them */
  MPI_Request *requests;
  int n_requests;
  float *received;      /* parts of the others, one behind the other */
  float *sum;           /* of this node, of the parts of this rank's column; NULL: not needed */
  const float *partial; /* that, or what stands for it */
} flight_t;

/* Columns: ranks of the same number within their nodes, which exchange their nodes' sums. */
struct wm_shards {
  const wm_comm_t *comm;
  MPI_Comm ordered;  /* all ranks, column after column, node after node */
  int place, column; /* of this rank */
  int columns;       /* as many as the smallest node has ranks */
  int *column_start; /* [columns + 1] places */
  int *node_of;      /* [ranks] by place */
  int *mates;        /* [node_size] places of this node's ranks */
  int *collectors;   /* [nodes] place of the rank that sums this column in each node */
  wm_shards_piece_t *pieces;
  int64_t n_pieces, own, largest;
  flight_t flights[FLIGHTS];
  int64_t next, released; /* pieces: the first that was not begun, the first that must not be yet */
  const float *array;
  float *shard;
  const float **terms; /* [node_size or nodes] of a sum */
  double seconds;      /* in messages, since the last wait */
  float *buffer;       /* [largest piece] on leaders, where there are several nodes */
  int *node_counts, *node_offsets;
};

static int64_t max(int64_t a, int64_t b) {
  return a > b ? a : b;
}

static bool collects(const wm_shards_t *s) {
  return s->comm->node_rank < s->columns;
}

/* --- the arrangement ----------------------------------------------------------------------------
 */

/* Elements of a piece before those of a place. */
static int64_t before(const wm_shards_t *s, const wm_shards_piece_t *p, int place) {
  int64_t start, length;
  if (place == s->comm->size)
    return p->count;
  wm_partition(p->count, s->comm->size, place, &start, &length);
  return start;
}

/* Elements of the places [from, to) in a piece, which are neighbours. */
static void parts(const wm_shards_t *s, const wm_shards_piece_t *p, int from, int to,
                  int64_t *first, int64_t *count) {
  const int64_t start = before(s, p, from);
  *first = p->first + start;
  *count = before(s, p, to) - start;
}

static void part_of_column(const wm_shards_t *s, const wm_shards_piece_t *p, int column,
                           int64_t *first, int64_t *count) {
  parts(s, p, s->column_start[column], s->column_start[column + 1], first, count);
}

/* Collective. Who is where. */
static wm_status_t arrange(wm_shards_t *s, wm_error_t *err) {
  const wm_comm_t *c = s->comm;
  void *memory;
  wm_status_t status;
  s->columns = c->node_size;
  MPI_Allreduce(MPI_IN_PLACE, &s->columns, 1, MPI_INT, MPI_MIN, c->world);
  s->column = c->node_rank % s->columns;
  MPI_Comm_split(c->world, 0, (s->column * c->node_count + c->node_index) * c->size + c->node_rank,
                 &s->ordered);
  MPI_Comm_rank(s->ordered, &s->place);
  status = wm_alloc(&memory, s->columns + 1 + 3 * c->size + c->node_size + 3 * c->node_count,
                    sizeof(int), "places of ranks", err);
  WM_TRY(wm_agree(c->world, status, err));
  s->column_start = memory;
  s->node_of = s->column_start + s->columns + 1;
  int *all = s->node_of + c->size; /* node, number in it */
  s->mates = all + 2 * c->size;
  s->collectors = s->mates + c->node_size;
  s->node_counts = s->collectors + c->node_count;
  s->node_offsets = s->node_counts + c->node_count;
  const int own[2] = {c->node_index, c->node_rank};
  MPI_Allgather(own, 2, MPI_INT, all, 2, MPI_INT, s->ordered);
  for (int place = 0; place < c->size; place++) {
    const int node = all[2 * place], number = all[2 * place + 1];
    s->node_of[place] = node;
    s->column_start[number % s->columns + 1] = place + 1;
    if (node == c->node_index)
      s->mates[number] = place;
    if (number == s->column)
      s->collectors[node] = place;
  }
cleanup:
  return status;
}

static int64_t count_pieces(const int64_t *counts, int64_t n, int64_t piece) {
  int64_t pieces = 0;
  for (int64_t i = 0; i < n; i++)
    pieces += (counts[i] + piece - 1) / piece;
  return pieces;
}

static void add_piece(wm_shards_t *s, int64_t segment, int64_t first, int64_t count) {
  wm_shards_piece_t p = {.segment = segment, .first = first, .count = count, .own_place = s->own};
  parts(s, &p, s->place, s->place + 1, &p.own_first, &p.own_count);
  s->own += p.own_count;
  s->largest = max(s->largest, count);
  s->pieces[s->n_pieces++] = p;
}

/* Parts of the largest piece are the largest ones. */
static wm_status_t reserve_flights(wm_shards_t *s, wm_error_t *err) {
  const wm_comm_t *c = s->comm;
  const int column = s->column_start[s->column + 1] - s->column_start[s->column];
  const wm_shards_piece_t p = {.count = s->largest};
  int64_t first, whole, own;
  void *memory;
  wm_status_t status;
  part_of_column(s, &p, s->column, &first, &whole);
  parts(s, &p, s->place, s->place + 1, &first, &own);
  const int64_t within = collects(s) ? (c->node_size - 1) * whole : 0;
  const int64_t between = c->node_count > 1 ? c->node_count * own : 0;
  for (int k = 0; k < FLIGHTS; k++) {
    flight_t *f = &s->flights[k];
    WM_TRY(wm_alloc(&memory, max(s->columns + c->node_size, column + c->node_count),
                    sizeof(MPI_Request), "messages", err));
    f->requests = memory;
    WM_TRY(wm_alloc(&memory, max(within, between), sizeof(float), "received gradients", err));
    f->received = memory;
    if (c->node_count > 1 && c->node_size > 1 && collects(s)) {
      WM_TRY(wm_alloc(&memory, whole, sizeof(float), "sums of a node", err));
      f->sum = memory;
    }
  }
  WM_TRY(wm_alloc(&memory, max(c->node_size, c->node_count), sizeof(float *), "terms", err));
  s->terms = memory;
  if (c->node_count > 1 && c->node_rank == 0) {
    WM_TRY(wm_alloc(&memory, s->largest, sizeof(float), "buffer for other nodes", err));
    s->buffer = memory;
  }
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
    for (int k = 0; k < FLIGHTS; k++)
      s->flights[k].piece = -1;
    status = wm_alloc(&memory, count_pieces(counts, n, piece), sizeof *s->pieces,
                      "pieces of the gradients", err);
    s->pieces = memory;
  }
  WM_TRY(wm_agree(comm->world, status, err));
  WM_TRY(arrange(s, err));
  for (int64_t i = 0; i < n; first += counts[i], i++)
    for (int64_t at = 0; at < counts[i]; at += piece)
      add_piece(s, i, first + at, counts[i] - at < piece ? counts[i] - at : piece);
  WM_TRY(wm_agree(comm->world, reserve_flights(s, err), err));
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
  for (int k = 0; k < FLIGHTS; k++) {
    free(s->flights[k].requests);
    free(s->flights[k].received);
    free(s->flights[k].sum);
  }
  free(s->column_start);
  free(s->pieces);
  free(s->terms);
  free(s->buffer);
  free(s);
}

int64_t wm_shards_bytes(int64_t elements, int ranks) {
  return ranks == 1 ? 0
                    : FLIGHTS * 2 * (elements < PIECE ? elements : PIECE) * (int64_t)sizeof(float);
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

/* --- sums ---------------------------------------------------------------------------------------
 */

/* out <- sum of the terms in their order. */
static void sum_terms(const wm_shards_t *s, int n, float *out, int64_t count) {
  enum { BLOCK = 4096 };
#pragma omp parallel for schedule(static)
  for (int64_t first = 0; first < count; first += BLOCK) {
    const int64_t length = count - first < BLOCK ? count - first : BLOCK;
    memcpy(out + first, s->terms[0] + first, (size_t)length * sizeof *out);
    for (int k = 1; k < n; k++)
      for (int64_t i = first; i < first + length; i++)
        out[i] += s->terms[k][i];
  }
}

/* Other pieces may be sent before this one on another rank. */
static int tag_of(const flight_t *f) {
  enum { TAGS = 8192 }; /* far more than flights, and MPI has at least 32768 */
  return (int)(2 * (f->piece % TAGS)) + f->between;
}

static void send(const wm_shards_t *s, flight_t *f, const float *data, int64_t count, int place) {
  if (count > 0)
    MPI_Isend(data, (int)count, MPI_FLOAT, place, tag_of(f), s->ordered,
              &f->requests[f->n_requests++]);
}

static void receive(const wm_shards_t *s, flight_t *f, float *data, int64_t count, int place) {
  if (count > 0)
    MPI_Irecv(data, (int)count, MPI_FLOAT, place, tag_of(f), s->ordered,
              &f->requests[f->n_requests++]);
}

/* Every rank of the node sends each column's parts to the one that sums them. */
static void begin_within(wm_shards_t *s, flight_t *f, int64_t piece) {
  const wm_shards_piece_t *p = &s->pieces[piece];
  const int mine = s->comm->node_rank;
  float *to = f->received;
  int64_t first, count;
  f->piece = piece;
  f->between = false;
  f->n_requests = 0;
  if (collects(s)) {
    part_of_column(s, p, mine, &first, &count);
    for (int k = 0; k < s->comm->node_size; k++)
      if (k != mine) {
        receive(s, f, to, count, s->mates[k]);
        to += count;
      }
  }
  for (int column = 0; column < s->columns; column++) {
    part_of_column(s, p, column, &first, &count);
    if (column != mine)
      send(s, f, s->array + first, count, s->mates[column]);
  }
}

/* Sums of this rank's column in its node, where it collects them. */
static void sum_within(wm_shards_t *s, flight_t *f) {
  const wm_shards_piece_t *p = &s->pieces[f->piece];
  const bool last = s->comm->node_count == 1; /* then the column has one owner */
  const float *from = f->received;
  int64_t first, count;
  if (!collects(s))
    return;
  part_of_column(s, p, s->column, &first, &count);
  f->partial = s->array + first;
  if (s->comm->node_size == 1)
    return;
  for (int k = 0; k < s->comm->node_size; k++)
    if (k == s->comm->node_rank) {
      s->terms[k] = s->array + first;
    } else {
      s->terms[k] = from;
      from += count;
    }
  float *out = last ? s->shard + p->own_place : f->sum;
  sum_terms(s, s->comm->node_size, out, count);
  f->partial = out;
}

/* The nodes' sums go to their owners. */
static void begin_between(wm_shards_t *s, flight_t *f) {
  const wm_shards_piece_t *p = &s->pieces[f->piece];
  float *to = f->received;
  int64_t begin, first, count;
  f->between = true;
  f->n_requests = 0;
  for (int k = 0; k < s->comm->node_count; k++)
    if (s->collectors[k] != s->place) {
      receive(s, f, to, p->own_count, s->collectors[k]);
      to += p->own_count;
    }
  if (!collects(s))
    return;
  part_of_column(s, p, s->column, &begin, &count);
  for (int place = s->column_start[s->column]; place < s->column_start[s->column + 1]; place++) {
    parts(s, p, place, place + 1, &first, &count);
    if (place != s->place)
      send(s, f, f->partial + (first - begin), count, place);
  }
}

static void sum_between(wm_shards_t *s, const flight_t *f) {
  const wm_shards_piece_t *p = &s->pieces[f->piece];
  const float *from = f->received;
  int64_t begin, count;
  part_of_column(s, p, s->column, &begin, &count);
  for (int k = 0; k < s->comm->node_count; k++)
    if (s->collectors[k] == s->place) {
      s->terms[k] = f->partial + (p->own_first - begin);
    } else {
      s->terms[k] = from;
      from += p->own_count;
    }
  sum_terms(s, s->comm->node_count, s->shard + p->own_place, p->own_count);
}

/* Takes a piece one step further if its messages are there; tells whether it did. */
static bool advance(wm_shards_t *s, flight_t *f) {
  int done;
  MPI_Testall(f->n_requests, f->requests, &done, MPI_STATUSES_IGNORE);
  if (!done)
    return false;
  if (f->between) {
    sum_between(s, f);
    f->piece = -1;
    return true;
  }
  sum_within(s, f);
  if (s->comm->node_count > 1)
    begin_between(s, f);
  else
    f->piece = -1;
  return true;
}

static void go_on(wm_shards_t *s) {
  bool moved;
  do {
    moved = false;
    for (int k = 0; k < FLIGHTS; k++) {
      flight_t *f = &s->flights[k];
      if (f->piece >= 0)
        moved |= advance(s, f);
      if (f->piece < 0 && s->next < s->released) {
        begin_within(s, f, s->next++);
        moved = true;
      }
    }
  } while (moved);
}

/* NULL: all are there. */
static flight_t *oldest(wm_shards_t *s) {
  flight_t *f = NULL;
  for (int k = 0; k < FLIGHTS; k++)
    if (s->flights[k].piece >= 0 && (f == NULL || s->flights[k].piece < f->piece))
      f = &s->flights[k];
  return f;
}

void wm_shards_reduce(wm_shards_t *s, int64_t segment, const float *array, float *shard) {
  if (s->comm->size == 1)
    return;
  const double start = wm_seconds();
  s->array = array;
  s->shard = shard;
  while (s->released < s->n_pieces && s->pieces[s->released].segment == segment)
    s->released++;
  go_on(s);
  s->seconds += wm_seconds() - start;
}

void wm_shards_poke(wm_shards_t *s) {
  if (oldest(s) == NULL)
    return;
  const double start = wm_seconds();
  go_on(s);
  s->seconds += wm_seconds() - start;
}

/* The oldest piece that is missing anywhere is among the flights of every rank, so that all ranks
 * may wait for their oldest one. */
double wm_shards_wait(wm_shards_t *s) {
  const double start = wm_seconds();
  for (flight_t *f = oldest(s); f != NULL; f = oldest(s)) {
    MPI_Waitall(f->n_requests, f->requests, MPI_STATUSES_IGNORE);
    go_on(s);
    wm_pulse();
  }
  assert(s->comm->size == 1 || s->next == s->n_pieces);
  s->next = s->released = 0;
  const double seconds = s->seconds + wm_seconds() - start;
  s->seconds = 0;
  return seconds;
}

/* --- what the owners have changed ---------------------------------------------------------------
 */

typedef void (*visit_t)(const wm_shards_copy_t *copy, int64_t first, int64_t count, float *buffer);

static void pack(const wm_shards_copy_t *copy, int64_t first, int64_t count, float *buffer) {
  copy->pack(copy->context, first, count, buffer);
}

static void unpack(const wm_shards_copy_t *copy, int64_t first, int64_t count, float *buffer) {
  copy->unpack(copy->context, first, count, buffer);
}

/* Where a piece's parts lie in the buffer, which has them node after node. */
static void lay_out(wm_shards_t *s, const wm_shards_piece_t *p) {
  const int nodes = s->comm->node_count;
  int64_t first, count;
  memset(s->node_counts, 0, (size_t)nodes * sizeof *s->node_counts);
  for (int place = 0; place < s->comm->size; place++) {
    parts(s, p, place, place + 1, &first, &count);
    s->node_counts[s->node_of[place]] += (int)count;
  }
  s->node_offsets[0] = 0;
  for (int k = 1; k < nodes; k++)
    s->node_offsets[k] = s->node_offsets[k - 1] + s->node_counts[k - 1];
}

/* Calls `visit` for the parts of this node, or of all others; lay_out goes before. */
static void visit_parts(const wm_shards_t *s, const wm_shards_piece_t *p, bool own, visit_t visit,
                        const wm_shards_copy_t *copy) {
  int *at = s->node_counts; /* counted anew */
  int64_t first, count;
  memset(at, 0, (size_t)s->comm->node_count * sizeof *at);
  for (int place = 0; place < s->comm->size; place++) {
    const int node = s->node_of[place];
    parts(s, p, place, place + 1, &first, &count);
    if ((node == s->comm->node_index) == own && count > 0)
      visit(copy, first, count, s->buffer + s->node_offsets[node] + at[node]);
    at[node] += (int)count;
  }
}

void wm_shards_gather(wm_shards_t *s, const wm_shards_copy_t *copy) {
  const wm_comm_t *c = s->comm;
  if (c->node_count == 1 || c->node_rank != 0)
    return;
  for (int64_t i = 0; i < s->n_pieces; i++) {
    const wm_shards_piece_t *p = &s->pieces[i];
    lay_out(s, p);
    visit_parts(s, p, true, pack, copy);
    MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, s->buffer, s->node_counts, s->node_offsets,
                   MPI_FLOAT, c->leaders);
    visit_parts(s, p, false, unpack, copy);
    wm_pulse();
  }
}
