/* Gradients summed into their owners' hands: right whatever the nodes, the sizes and the order in
 * which ranks get there; and what owners change reaches the other nodes. Values are small whole
 * numbers, whose sums float32 holds exactly. */
#include "test_par_common.h"

#include "wanamaker/base/rng.h"
#include "wanamaker/par/shards.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { SEGMENTS = 7, PIECE = 50 };
/* None, fewer than ranks, one piece exactly, several with a rest. */
static const int64_t counts[SEGMENTS] = {120, 0, 3, 50, 1, 333, 49};
enum { N = 120 + 3 + 50 + 1 + 333 + 49 };

static wm_error_t err;

/* The node of each rank in a made-up machine. */
typedef int (*layout_t)(int rank);

static int one_node(int rank) {
  (void)rank;
  return 0;
}

static int two_in_turn(int rank) {
  return rank % 2;
}

static int first_alone(int rank) {
  return rank > 0;
}

static int each_alone(int rank) {
  return rank;
}

static const layout_t layouts[] = {one_node, two_in_turn, first_alone, each_alone};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static wm_comm_t make(layout_t node_of) {
  wm_comm_t c = *comm;
  c.node_index = node_of(comm->rank);
  c.node_count = 0;
  for (int r = 0; r < comm->size; r++)
    c.node_count = node_of(r) + 1 > c.node_count ? node_of(r) + 1 : c.node_count;
  MPI_Comm_split(comm->world, c.node_index, comm->rank, &c.node);
  MPI_Comm_rank(c.node, &c.node_rank);
  MPI_Comm_size(c.node, &c.node_size);
  MPI_Comm_split(comm->world, c.node_rank == 0 ? 0 : MPI_UNDEFINED, comm->rank, &c.leaders);
  return c;
}

static void destroy(wm_comm_t *c) {
  if (c->leaders != MPI_COMM_NULL)
    MPI_Comm_free(&c->leaders);
  MPI_Comm_free(&c->node);
}

static float value(int rank, int64_t element, int64_t round) {
  return (float)wm_rng_below((wm_rng_t){7, (uint64_t)round}, (uint64_t)(rank * 100000 + element),
                             1000);
}

/* Every element is owned by one rank, which finds the sum there. */
static void check_sums(const wm_comm_t *c, const wm_shards_t *s, const float *shard,
                       int64_t round) {
  int owners[N] = {0};
  int64_t own = 0;
  for (int64_t i = 0; i < wm_shards_pieces(s); i++) {
    const wm_shards_piece_t *p = wm_shards_piece(s, i);
    CHECK(p->count > 0 && p->count <= PIECE && p->own_place == own);
    CHECK(p->own_first >= p->first && p->own_first + p->own_count <= p->first + p->count);
    for (int64_t e = p->own_first; e < p->own_first + p->own_count; e++) {
      float sum = 0;
      for (int r = 0; r < c->size; r++)
        sum += value(r, e, round);
      CHECK(shard[p->own_place + e - p->own_first] == sum);
      owners[e]++;
    }
    own += p->own_count;
  }
  CHECK(own == wm_shards_own(s));
  MPI_Allreduce(MPI_IN_PLACE, owners, N, MPI_INT, MPI_SUM, c->world);
  for (int64_t e = 0; e < N; e++)
    CHECK(owners[e] == 1);
}

/* Ranks get to their segments at different times, and some let messages go on between. */
static void dawdle(wm_shards_t *s, int64_t round, int64_t segment) {
  const uint64_t place = (uint64_t)(comm->rank * 1000 + segment);
  usleep((useconds_t)wm_rng_below((wm_rng_t){8, (uint64_t)round}, place, 2000));
  for (uint64_t n = wm_rng_below((wm_rng_t){9, (uint64_t)round}, place, 4); n > 0; n--)
    wm_shards_poke(s);
}

static void test_sums_reach_their_owners(void **state) {
  (void)state;
  for (int l = 0; l < LAYOUTS; l++) {
    wm_comm_t c = make(layouts[l]);
    wm_shards_t *s;
    float array[N], *shard;
    CHECK(wm_shards_create(&c, counts, SEGMENTS, PIECE, &s, &err) == WM_OK);
    shard = malloc((size_t)(wm_shards_own(s) + 1) * sizeof *shard);
    for (int64_t round = 0; round < 20; round++) {
      float *to = c.size == 1 ? array : shard;
      for (int64_t e = 0; e < N; e++)
        array[e] = value(c.rank, e, round);
      for (int64_t i = 0; i < SEGMENTS; i++) {
        wm_shards_reduce(s, i, array, to);
        dawdle(s, round, i);
      }
      CHECK(wm_shards_wait(s) >= 0);
      check_sums(&c, s, to, round);
    }
    wm_shards_free(s);
    free(shard);
    destroy(&c);
  }
}

/* Sums of values that round depend on ranks and nodes alone, not on who comes first. */
static void test_sums_have_one_order(void **state) {
  (void)state;
  for (int l = 0; l < LAYOUTS; l++) {
    wm_comm_t c = make(layouts[l]);
    wm_shards_t *s;
    float array[N];
    CHECK(wm_shards_create(&c, counts, SEGMENTS, PIECE, &s, &err) == WM_OK);
    const size_t bytes = (size_t)wm_shards_own(s) * sizeof(float);
    float *first = malloc(bytes + 1), *again = malloc(bytes + 1);
    for (int64_t e = 0; e < N; e++)
      array[e] = 1 / (1 + value(c.rank, e, 0));
    for (int64_t round = 0; round < 10; round++) {
      float *to = round == 0 ? first : again;
      for (int64_t i = 0; i < SEGMENTS; i++) {
        wm_shards_reduce(s, i, array, to);
        dawdle(s, round, i);
      }
      wm_shards_wait(s);
      CHECK(round == 0 || c.size == 1 || memcmp(first, again, bytes) == 0);
    }
    wm_shards_free(s);
    free(first);
    free(again);
    destroy(&c);
  }
}

static void pack(void *context, int64_t first, int64_t count, float *out) {
  memcpy(out, (float *)context + first, (size_t)count * sizeof *out);
}

static void unpack(void *context, int64_t first, int64_t count, const float *in) {
  memcpy((float *)context + first, in, (size_t)count * sizeof *in);
}

/* Each rank has an array of its own here, and what its node's ranks would have written to it. */
static void test_changes_reach_other_nodes(void **state) {
  (void)state;
  for (int l = 0; l < LAYOUTS; l++) {
    wm_comm_t c = make(layouts[l]);
    wm_shards_t *s;
    float array[N] = {0};
    const wm_shards_copy_t copy = {pack, unpack, array};
    CHECK(wm_shards_create(&c, counts, SEGMENTS, PIECE, &s, &err) == WM_OK);
    for (int64_t i = 0; i < wm_shards_pieces(s); i++) {
      const wm_shards_piece_t *p = wm_shards_piece(s, i);
      for (int64_t e = p->own_first; e < p->own_first + p->own_count; e++)
        array[e] = value(0, e, 3);
    }
    MPI_Allreduce(MPI_IN_PLACE, array, N, MPI_FLOAT, MPI_SUM, c.node); /* the node's memory */
    wm_shards_gather(s, &copy);
    for (int64_t e = 0; e < N; e++)
      CHECK(c.node_rank != 0 || array[e] == value(0, e, 3));
    wm_shards_free(s);
    destroy(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sums_reach_their_owners),
      cmocka_unit_test(test_sums_have_one_order),
      cmocka_unit_test(test_changes_reach_other_nodes),
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
