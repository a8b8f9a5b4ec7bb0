/* Tokenised corpora: the same bytes for any number of ranks, round trip, and what is refused. */
#include "test_io_mpi.h"

#include "wanamaker/base/control.h"
#include "wanamaker/io/corpus.h"
#include "wanamaker/io/tokens.h"

#include <stdbool.h>

enum { ROWS = 23, VOCABULARY = 50257 };

/* Tokens of row r: none in every fourth row. */
static int64_t row_length(int64_t r) {
  return r % 4 == 1 ? 0 : r * r % 11 + 1;
}

static int32_t token(int64_t i) {
  return (int32_t)(i * 7919 % VOCABULARY);
}

static uint8_t row_flags(int64_t r) {
  return (uint8_t)((r % 4 == 1 ? WM_ROW_BLANK : 0) | (r % 6 == 0 ? WM_ROW_ARTICLE : 0));
}

static int64_t first_token(int64_t r) {
  int64_t n = 0;
  for (int64_t i = 0; i < r; i++)
    n += row_length(i);
  return n;
}

static const wm_tokens_info_t info = {.encoding = "documents",
                                      .corpus = "corpus.txt",
                                      .corpus_fingerprint = 0x0123456789abcdef,
                                      .tokenizer_fingerprint = 7,
                                      .vocab_size = VOCABULARY,
                                      .replaced = 3,
                                      .configuration = "corpus = \"corpus.txt\";\n"};

typedef struct {
  int32_t ids[1024];
  int64_t row_first[ROWS];
  uint8_t flags[ROWS];
  wm_token_part_t shard;
} part_t;

/* Rows [first, first + n), without `late` of their last tokens, which go to the next shard. */
static void fill(part_t *p, int64_t first, int64_t n, int64_t early, int64_t late) {
  int64_t begin = first_token(first) - early, end = first_token(first + n) - late;
  for (int64_t i = begin; i < end; i++)
    p->ids[i - begin] = token(i);
  for (int64_t r = 0; r < n; r++) {
    int64_t at = first_token(first + r) - begin;
    p->row_first[r] = at < end - begin ? at : end - begin;
    p->flags[r] = row_flags(first + r);
  }
  p->shard = (wm_token_part_t){end - begin, n, p->ids, p->row_first, p->flags};
}

static void own_part(const wm_comm_t *c, part_t *p) {
  int64_t first, n;
  wm_partition(ROWS, c->size, c->rank, &first, &n);
  fill(p, first, n, 0, 0);
}

static const char *file_name(const char *name) {
  static char path[2 * PATH];
  return join(path, dir, name);
}

/* Writes the ranks' parts, a few rows at a time, through blocks of block_bytes (0: as the program
 * has them). */
static wm_status_t write_in_blocks(const wm_comm_t *c, const char *path, const wm_token_part_t *all,
                                   int64_t block_bytes, const wm_tokens_info_t *i,
                                   wm_error_t *err) {
  enum { FEW = 3 };
  wm_tokens_writer_t *w;
  int64_t tokens, rows, token = 0;
  CHECK(wm_tokens_writer_create(path, block_bytes, &w, err) == WM_OK);
  for (int64_t r = 0; r == 0 || r < all->n_rows; r += FEW) {
    int64_t n = all->n_rows - r < FEW ? all->n_rows - r : FEW, first[FEW];
    int64_t end = r + n < all->n_rows ? all->row_first_token[r + n] : all->n_tokens;
    for (int64_t k = 0; k < n; k++)
      first[k] = all->row_first_token[r + k] - token;
    const wm_token_part_t part = {end - token, n, all->ids + token, first,
                                  n > 0 ? all->row_flags + r : NULL};
    CHECK(wm_tokens_append(w, &part, err) == WM_OK);
    token = end;
  }
  wm_tokens_appended(w, &tokens, &rows);
  CHECK(tokens == all->n_tokens && rows == all->n_rows);
  wm_status_t status = wm_tokens_publish(c, w, i, NULL, err);
  wm_tokens_writer_free(w);
  return status;
}

static wm_status_t write_tokens(const wm_comm_t *c, const char *path, const wm_token_part_t *all,
                                const wm_tokens_info_t *i, wm_error_t *err) {
  return write_in_blocks(c, path, all, 0, i, err);
}

static void check_contents(const char *path) {
  wm_tokens_t *t;
  wm_error_t err = {0};
  CHECK_OK(wm_tokens_open(comm, path, &t, &err));
  CHECK(wm_tokens_count(t) == first_token(ROWS) && wm_tokens_rows(t) == ROWS);
  for (int64_t i = 0; i < wm_tokens_count(t); i++)
    CHECK(wm_tokens_ids(t)[i] == token(i));
  for (int64_t r = 0; r <= ROWS; r++)
    CHECK(wm_tokens_row_first(t)[r] == first_token(r));
  for (int64_t r = 0; r < ROWS; r++)
    CHECK(wm_tokens_row_flags(t)[r] == row_flags(r));
  const wm_tokens_info_t *i = wm_tokens_info(t);
  CHECK(strcmp(i->encoding, info.encoding) == 0 && strcmp(i->corpus, info.corpus) == 0 &&
        strcmp(i->configuration, info.configuration) == 0);
  CHECK(i->corpus_fingerprint == info.corpus_fingerprint &&
        i->tokenizer_fingerprint == info.tokenizer_fingerprint &&
        i->vocab_size == info.vocab_size && i->replaced == info.replaced);
  wm_tokens_close(t);
}

/* The directory holds nothing that a writer has left. */
static void check_nothing_left(void) {
  char command[2 * PATH];
  snprintf(command, sizeof command, "ls -A '%s' | grep -q -e tmp -e spill", dir);
  MPI_Barrier(comm->world);
  CHECK(system(command) != 0);
  MPI_Barrier(comm->world);
}

static void check_same(const char *a_name, const char *b_name) {
  wm_map_t a, b;
  wm_error_t err = {0};
  CHECK_OK(wm_map_open(file_name(a_name), &a, &err));
  CHECK_OK(wm_map_open(file_name(b_name), &b, &err));
  CHECK(a.bytes == b.bytes && memcmp(a.data, b.data, (size_t)a.bytes) == 0);
  wm_map_close(&a);
  wm_map_close(&b);
  MPI_Barrier(comm->world);
}

static void test_round_trip(void **state) {
  (void)state;
  part_t p;
  wm_error_t err = {0};
  own_part(comm, &p);
  CHECK_OK(write_tokens(comm, file_name("all.h5"), &p.shard, &info, &err));
  check_contents(file_name("all.h5"));
  /* From teams of every size. */
  for (int size = 1; size < comm->size; size++) {
    MPI_Comm team;
    wm_comm_t *c;
    MPI_Comm_split(comm->world, comm->rank < size, comm->rank, &team);
    CHECK_OK(wm_comm_create(team, &c, &err));
    if (comm->rank < size) {
      own_part(c, &p);
      CHECK_OK(write_tokens(c, file_name("team.h5"), &p.shard, &info, &err));
    }
    MPI_Barrier(comm->world);
    check_same("all.h5", "team.h5");
    wm_comm_free(c);
    MPI_Comm_free(&team);
  }
}

typedef struct {
  int64_t last, calls;
} told_t;

static void tell(void *context, int64_t done, int64_t total) {
  told_t *t = context;
  CHECK(done > t->last && done <= total);
  t->last = done;
  t->calls++;
}

/* Blocks of a few bytes go through files; the result is the same, and tells of its progress. */
static void test_blocks(void **state) {
  (void)state;
  part_t p;
  wm_error_t err = {0};
  static const int64_t sizes[] = {8, 16, 40, 1024};
  own_part(comm, &p);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    CHECK_OK(write_in_blocks(comm, file_name("blocks.h5"), &p.shard, sizes[i], &info, &err));
    check_same("all.h5", "blocks.h5");
    check_nothing_left();
  }
  told_t told = {0};
  const wm_tokens_progress_t progress = {tell, &told};
  wm_tokens_writer_t *w;
  CHECK_OK(wm_tokens_writer_create(file_name("blocks.h5"), 8, &w, &err));
  CHECK_OK(wm_tokens_append(w, &p.shard, &err));
  CHECK_OK(wm_tokens_publish(comm, w, &info, &progress, &err));
  wm_tokens_writer_free(w);
  CHECK(told.calls >= (first_token(ROWS) + 1) / 2 / comm->size && told.last == told.calls);
  /* Given up after some blocks. */
  CHECK_OK(wm_tokens_writer_create(file_name("given_up.h5"), 8, &w, &err));
  CHECK_OK(wm_tokens_append(w, &p.shard, &err));
  wm_tokens_writer_free(w);
  check_nothing_left();
  CHECK(!wm_file_exists(file_name("given_up.h5")));
}

static void test_no_directory(void **state) {
  (void)state;
  part_t p;
  wm_error_t err = {0};
  wm_tokens_writer_t *w;
  fill(&p, 0, ROWS, 0, 0);
  CHECK_OK(wm_tokens_writer_create(file_name("absent/x.h5"), 8, &w, &err));
  CHECK_FAILS(wm_tokens_append(w, &p.shard, &err), WM_ENVIRONMENT,
              "absent/x.h5: cannot make the temporary file of token ids in its directory");
  wm_tokens_writer_free(w);
}

/* Equal for any number of ranks, and every part of the file counts. */
static void test_fingerprint(void **state) {
  (void)state;
  const int64_t block = 64 << 20, bytes = 3 * block + 5;
  static const int64_t places[] = {0, 64 << 20, (128 << 20) + 7, (192 << 20) + 4};
  uint64_t prints[8] = {0};
  wm_error_t err = {0};
  char path[2 * PATH];
  join(path, dir, "sparse.txt");
  for (int i = 0; i < 6; i++) { /* as it is, with a byte changed in each place, longer */
    if (comm->rank == 0) {
      FILE *f = fopen(path, i == 0 ? "w" : "r+");
      CHECK(f != NULL && ftruncate(fileno(f), i < 5 ? bytes : bytes + 1) == 0);
      CHECK(i == 0 || i == 5 || (fseek(f, places[i - 1], SEEK_SET) == 0 && fputc('x', f) == 'x'));
      CHECK(fclose(f) == 0);
    }
    MPI_Barrier(comm->world);
    wm_corpus_t *c;
    wm_corpus_spec_t spec = {.path = path};
    CHECK_OK(wm_corpus_open(&spec, &c, &err));
    CHECK_OK(wm_corpus_fingerprint(comm, c, &prints[i], &err));
    CHECK(wm_all_equal(comm->world, &prints[i], sizeof prints[i]));
    for (int k = 0; k < i; k++)
      CHECK(prints[k] != prints[i]);
    if (i == 0) {
      wm_comm_t *self;
      uint64_t alone;
      CHECK_OK(wm_comm_create(MPI_COMM_SELF, &self, &err));
      CHECK_OK(wm_corpus_fingerprint(self, c, &alone, &err));
      CHECK(alone == prints[0]);
      wm_comm_free(self);
    }
    wm_corpus_close(c);
    MPI_Barrier(comm->world);
  }
  if (comm->rank == 0)
    unlink(path);
}

static uint64_t print_of(wm_corpus_spec_t spec) {
  wm_corpus_t *c;
  uint64_t print;
  wm_error_t err = {0};
  CHECK_OK(wm_corpus_open(&spec, &c, &err));
  CHECK_OK(wm_corpus_fingerprint(comm, c, &print, &err));
  wm_corpus_close(c);
  return print;
}

/* The settings that change rows count, others do not. */
static void test_fingerprint_of_settings(void **state) {
  (void)state;
  char path[2 * PATH], other[2 * PATH];
  if (comm->rank == 0) {
    write_file(dir, "f.jsonl", "{\"a\": \"b\"}\n", 11);
    write_file(dir, "g.jsonl", "{\"a\": \"c\"}\n", 11);
  }
  MPI_Barrier(comm->world);
  join(path, dir, "f.jsonl");
  join(other, dir, "g.jsonl");
  uint64_t print = print_of((wm_corpus_spec_t){.path = path});
  CHECK(print == print_of((wm_corpus_spec_t){.path = path, .field = "text"}));
  CHECK(print != print_of((wm_corpus_spec_t){.path = path, .field = "a"}));
  CHECK(print != print_of((wm_corpus_spec_t){.path = path, .keep_newline = true}));
  CHECK(print != print_of((wm_corpus_spec_t){.path = other}));
  CHECK(print != print_of((wm_corpus_spec_t){.path = path, .format = WM_CORPUS_TEXT}));
}

/* A request on one rank stops all before a file is published. */
static void test_stop(void **state) {
  (void)state;
  part_t p;
  wm_error_t err = {0};
  own_part(comm, &p);
  if (comm->rank == comm->size - 1)
    wm_stop_request();
  CHECK_FAILS(write_in_blocks(comm, file_name("stop.h5"), &p.shard, 8, &info, &err), WM_STOPPED,
              "corpus.txt: stopped by request");
  check_nothing_left();
  CHECK(!wm_file_exists(file_name("stop.h5")));
}

/* All rows on one rank; then a rank's last row whose tokens begin in the next shard. */
static void test_uneven(void **state) {
  (void)state;
  part_t p;
  wm_error_t err = {0};
  for (int owner = 0; owner < comm->size; owner++) {
    fill(&p, 0, comm->rank == owner ? ROWS : 0, 0, 0);
    CHECK_OK(write_tokens(comm, file_name("one.h5"), &p.shard, &info, &err));
    check_same("all.h5", "one.h5");
  }
  int64_t first, n, last = comm->size - 1;
  wm_partition(ROWS, comm->size, comm->rank, &first, &n);
  int64_t early = comm->rank > 0 ? row_length(first - 1) : 0;
  fill(&p, first, n, early, comm->rank < last ? row_length(first + n - 1) : 0);
  CHECK_OK(write_tokens(comm, file_name("late.h5"), &p.shard, &info, &err));
  check_same("all.h5", "late.h5");
}

static void test_no_rows(void **state) {
  (void)state;
  part_t p = {0};
  wm_error_t err = {0};
  wm_tokens_t *t;
  wm_tokens_info_t ids = info;
  ids.encoding = "ids";
  p.shard = (wm_token_part_t){5, 0, p.ids, NULL, NULL};
  for (int i = 0; i < 5; i++)
    p.ids[i] = comm->rank;
  CHECK_OK(write_tokens(comm, file_name("ids.h5"), &p.shard, &ids, &err));
  CHECK_OK(wm_tokens_open(comm, file_name("ids.h5"), &t, &err));
  CHECK(wm_tokens_count(t) == 5 * comm->size && wm_tokens_rows(t) == 0);
  CHECK(wm_tokens_row_first(t)[0] == 5 * comm->size);
  for (int i = 0; i < 5 * comm->size; i++)
    CHECK(wm_tokens_ids(t)[i] == i / 5);
  wm_tokens_close(t);
}

static void test_refused_writes(void **state) {
  (void)state;
  part_t p;
  wm_error_t err = {0};
  fill(&p, 1, comm->rank == 0 ? 1 : 0, 0, 0); /* a blank row */
  CHECK_FAILS(write_tokens(comm, file_name("none.h5"), &p.shard, &info, &err), WM_INPUT,
              "corpus.txt: the corpus has no tokens");
  own_part(comm, &p);
  int32_t *victim = comm->rank == comm->size - 1 ? &p.ids[2] : NULL;
  if (victim != NULL)
    *victim = VOCABULARY;
  CHECK_FAILS(write_tokens(comm, file_name("none.h5"), &p.shard, &info, &err), WM_INPUT,
              "has id 50257, outside of [0, 50257)");
  if (victim != NULL)
    *victim = -1;
  CHECK_FAILS(write_tokens(comm, file_name("none.h5"), &p.shard, &info, &err), WM_INPUT,
              "has id -1");
  CHECK(!wm_file_exists(file_name("none.h5")));
}

/* A file with one thing wrong in it, and right checksums. */
typedef struct {
  int64_t first_entry, last_entry, middle_entry;
  int32_t id;
  uint8_t flags;
  const char *encoding, *fingerprint;
  int64_t rows, vocabulary;
  const char *message;
  bool narrow; /* ids as int16: no fault, but they cannot be mapped */
} fault_t;

static void write_fault(const fault_t *x) {
  const int64_t tokens = 10, rows = x->rows, entries = 5;
  int64_t first[5] = {x->first_entry, 2, x->middle_entry, 9, x->last_entry}, zero = 0;
  int64_t n_ids = comm->rank == 0 ? 10 : 0, n_rows = comm->rank == 0 ? rows : 0;
  int64_t n_entries = comm->rank == 0 ? entries : 0;
  int32_t all[10] = {0, 1, 2, 3, x->id};
  uint8_t flags[5] = {0, 3, x->flags};
  wm_h5_t *f;
  wm_error_t err = {0};
  CHECK_OK(wm_h5_create(comm->world, file_name("fault.h5"), &f, &err));
  int16_t narrow[10];
  for (int i = 0; i < 10; i++)
    narrow[i] = (int16_t)all[i];
  CHECK_OK(
      wm_h5_dataset(f, "/tokens", x->narrow ? H5T_STD_I16LE : H5T_STD_I32LE, 1, &tokens, "", &err));
  CHECK_OK(wm_h5_dataset(f, "/rows/first_token", H5T_STD_I64LE, 1, &entries, "", &err));
  CHECK_OK(wm_h5_dataset(f, "/rows/flags", H5T_STD_U8LE, 1, &rows, "", &err));
  CHECK_OK(wm_h5_write(f, "/tokens", x->narrow ? H5T_NATIVE_INT16 : H5T_NATIVE_INT32, &zero, &n_ids,
                       x->narrow ? (const void *)narrow : all, &err));
  CHECK_OK(wm_h5_write(f, "/rows/first_token", H5T_NATIVE_INT64, &zero, &n_entries, first, &err));
  CHECK_OK(wm_h5_write(f, "/rows/flags", H5T_NATIVE_UINT8, &zero, &n_rows, flags, &err));
  CHECK_OK(wm_h5_set_string(f, "/", "encoding", x->encoding, &err));
  CHECK_OK(wm_h5_set_string(f, "/", "corpus", "c", &err));
  CHECK_OK(wm_h5_set_string(f, "/", "configuration", "", &err));
  CHECK_OK(wm_h5_set_string(f, "/", "corpus_fingerprint", x->fingerprint, &err));
  CHECK_OK(wm_h5_set_string(f, "/", "tokenizer_fingerprint", "0000000000000001", &err));
  CHECK_OK(wm_h5_set_int(f, "/", "vocab_size", x->vocabulary, &err));
  CHECK_OK(wm_h5_set_int(f, "/", "replaced", 0, &err));
  CHECK_OK(wm_h5_publish(f, &err));
}

static void test_refused_reads(void **state) {
  (void)state;
  const char *good = "00000000000000ff";
  const fault_t faults[] = {
      {0, 10, 5, 4, 0, "stream", good, 4, 5, NULL, false},
      {0, 10, 5, 4, 0, "stream", good, 4, 5, NULL, true},
      {0, 10, 5, 5, 0, "stream", good, 4, 5, "token 4 has id 5, outside of [0, 5)", true},
      {1, 10, 5, 4, 0, "stream", good, 4, 5, "runs from 1 to 10; expected 0 to 10", false},
      {0, 11, 5, 4, 0, "stream", good, 4, 5, "runs from 0 to 11", false},
      {0, 10, 1, 4, 0, "stream", good, 4, 5, "decreases behind row 1", false},
      {0, 10, 5, 5, 0, "stream", good, 4, 5, "token 4 has id 5, outside of [0, 5)", false},
      {0, 10, 5, -1, 0, "stream", good, 4, 5, "token 4 has id -1", false},
      {0, 10, 5, 4, 4, "stream", good, 4, 5, "row 2 has unknown flags 0x04", false},
      {0, 10, 5, 4, 0, "streams", good, 4, 5, "\"encoding\" is \"streams\"", false},
      {0, 10, 5, 4, 0, "stream", "ff", 4, 5, "16 hexadecimal digits expected, not ff", false},
      {0, 10, 5, 4, 0, "stream", good, 5, 5, "has 5 entries, but there are 5 rows", false},
      {0, 10, 5, 4, 0, "stream", good, 4, 0, "\"vocab_size\" is 0", false},
  };
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    wm_tokens_t *t = NULL;
    wm_error_t err = {0};
    write_fault(&faults[i]);
    if (faults[i].message == NULL) {
      CHECK_OK(wm_tokens_open(comm, file_name("fault.h5"), &t, &err));
      for (int k = 0; k < 10; k++)
        CHECK(wm_tokens_ids(t)[k] == (k < 5 ? k : 0));
      CHECK(wm_tokens_row_first(t)[3] == 9 && wm_tokens_row_flags(t)[1] == 3);
      wm_tokens_close(t);
    } else {
      CHECK_FAILS(wm_tokens_open(comm, file_name("fault.h5"), &t, &err), WM_INPUT,
                  faults[i].message);
      CHECK(t == NULL && strstr(err.message, "fault.h5") != NULL);
    }
  }
  wm_tokens_t *t;
  wm_error_t err = {0};
  CHECK_FAILS(wm_tokens_open(comm, file_name("absent.h5"), &t, &err), WM_INPUT, "absent.h5");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),
      cmocka_unit_test(test_uneven),
      cmocka_unit_test(test_no_rows),
      cmocka_unit_test(test_refused_writes),
      cmocka_unit_test(test_refused_reads),
      cmocka_unit_test(test_blocks),
      cmocka_unit_test(test_no_directory),
      cmocka_unit_test(test_fingerprint),
      cmocka_unit_test(test_fingerprint_of_settings),
      cmocka_unit_test(test_stop), /* last: the request stays */
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
