/* tokens.h5 must be the same file for any number of ranks, and a failure is everyone's. The
 * contents are tested by tests/unit/test_text_shard.c. */
#include "../unit/test_io_common.h"

#include "wanamaker/base/control.h"
#include "wanamaker/io/files.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/io/tokens.h"
#include "wanamaker/par/comm.h"
#include "wanamaker/text/encode.h"

static wm_comm_t *comm;
static wm_error_t err;
static char dir[PATH]; /* the same on all ranks */
static char tokenizer_path[PATH];

/* Ends the run: a rank that only left its test would keep the others waiting. */
static void give_up(int line, const char *what) {
  fprintf(stderr, "%s:%d: rank %d: %s; message: \"%s\"\n", __FILE__, line, comm->rank, what,
          err.message);
  MPI_Abort(MPI_COMM_WORLD, 1);
}

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition))                                                                              \
      give_up(__LINE__, #condition);                                                               \
  } while (0)

#define CHECK_OK(call) CHECK((call) == WM_OK)

/* `call` must fail with status `kind` on every rank, with a message that holds `part`. */
#define CHECK_FAILS(call, kind, part)                                                              \
  CHECK((call) == (kind) && err.status == (kind) && strstr(err.message, (part)) != NULL)

static const char *file_name(const char *name) {
  static char paths[4][2 * PATH];
  static int next;
  char *path = paths[next++ % 4];
  join(path, dir, name);
  return path;
}

static void put(const char *name, const void *data, size_t bytes) {
  if (comm->rank == 0)
    write_file(dir, name, data, bytes);
  MPI_Barrier(comm->world);
}

static char *contents(const char *name, int64_t *bytes) {
  wm_map_t map;
  CHECK_OK(wm_map_open(file_name(name), &map, &err));
  char *copy = malloc((size_t)map.bytes);
  CHECK(copy != NULL);
  memcpy(copy, map.data, (size_t)map.bytes);
  *bytes = map.bytes;
  wm_map_close(&map);
  return copy;
}

static wm_encode_request_t request_of(const char *corpus, wm_encode_mode_t mode) {
  return (wm_encode_request_t){.corpus = {.path = file_name(corpus)},
                               .mode = mode,
                               .tokenizer_dir = tokenizer_path,
                               .corpus_fingerprint = 7,
                               .configuration = "corpus = \"test\";\n"};
}

/* Encodes on rank 0 alone and on all ranks, there in pieces of piece_bytes, and compares the files.
 */
static wm_encode_stats_t check_pieces(wm_encode_request_t request, int64_t piece_bytes) {
  wm_encode_stats_t stats, alone = {0};
  if (comm->rank == 0) {
    wm_comm_t *self;
    CHECK_OK(wm_comm_create(MPI_COMM_SELF, &self, &err));
    request.out_path = file_name("alone.h5");
    CHECK_OK(wm_encode_corpus(self, &request, NULL, &alone, &err));
    wm_comm_free(self);
  }
  request.out_path = file_name("all.h5");
  request.piece_bytes = piece_bytes;
  CHECK_OK(wm_encode_corpus(comm, &request, NULL, &stats, &err));
  CHECK(wm_all_equal(comm->world, &stats, sizeof stats));
  if (comm->rank == 0) {
    int64_t bytes_alone, bytes_all;
    char *file_alone = contents("alone.h5", &bytes_alone),
         *file_all = contents("all.h5", &bytes_all);
    CHECK(bytes_alone == bytes_all);
    CHECK(memcmp(file_alone, file_all, (size_t)bytes_all) == 0);
    CHECK(memcmp(&alone, &stats, sizeof stats) == 0);
    free(file_alone);
    free(file_all);
  }
  MPI_Barrier(comm->world);
  return stats;
}

static wm_encode_stats_t check_same_file(wm_encode_request_t request) {
  return check_pieces(request, 0);
}

static const char LITTLE[] = "a b";
static const char SMALL[] =
    " = Title = \n\nThe boats' number: 17.\n\nIt wasn't his\xFF. caf\xC3\xA9\n";
static const char ROWS[] = "\n{\"text\": \"The quay\\n flooded\"}\n\n{\"text\": \"\"}\n"
                           "{\"text\": \"lone \\ud800 half\"}\n";

static void test_same_file_for_any_number_of_ranks(void **state) {
  (void)state;
  enum { REPEATS = 24000 }; /* more than one chunk of the encoder */
  size_t unit = sizeof SMALL - 1;
  char *large = malloc(REPEATS * unit);
  CHECK(large != NULL);
  for (size_t i = 0; i < REPEATS; i++)
    memcpy(large + i * unit, SMALL, unit);
  put("little.txt", LITTLE, sizeof LITTLE - 1);
  put("small.txt", SMALL, unit);
  put("large.txt", large, REPEATS * unit);
  put("rows.jsonl", ROWS, sizeof ROWS - 1);
  free(large);
  for (int mode = WM_ENCODE_DOCUMENTS; mode <= WM_ENCODE_STREAM; mode++) {
    CHECK(check_same_file(request_of("little.txt", mode)).rows == 1);
    wm_encode_stats_t small = check_same_file(request_of("small.txt", mode));
    CHECK(small.rows == 5 && small.documents == 3 && small.replaced == 1);
    CHECK(small.bytes == (int64_t)unit && small.tokens > 10);
    wm_encode_stats_t many = check_same_file(request_of("large.txt", mode));
    CHECK(many.rows == 5 * REPEATS && many.replaced == REPEATS);
    wm_encode_stats_t rows = check_same_file(request_of("rows.jsonl", mode));
    CHECK(rows.rows == 3 && rows.documents == 2 && rows.replaced == 1);
  }
}

/* The tokens of this corpus as they have always been: checksums of the datasets. */
static void check_golden(const char *corpus, wm_encode_mode_t mode, const char *const golden[3]) {
  static const char *const names[] = {"/tokens", "/rows/first_token", "/rows/flags"};
  wm_h5_t *file;
  check_pieces(request_of(corpus, mode), 4096);
  CHECK_OK(wm_h5_open(comm->world, file_name("all.h5"), &file, &err));
  for (int i = 0; i < 3; i++) {
    char *checksum;
    CHECK_OK(wm_h5_get_string(file, names[i], "checksum", &checksum, &err));
    CHECK(strcmp(checksum, golden[i]) == 0);
    free(checksum);
  }
  wm_h5_close(file);
}

static void test_golden(void **state) {
  (void)state;
  static const char *const large[2][3] = {
      {"1a7d5cdef985004e", "3c5d341070ea510c", "7853d9b9a2c5062d"},
      {"5cc354d0ab8dd868", "0e6139b7075c1cc3", "7853d9b9a2c5062d"}};
  static const char *const rows[2][3] = {
      {"5a6c1c246e7fa324", "07788b1482c2ec41", "a7d092f360b5ff65"},
      {"924e2c48fc2ec67d", "fd361cc6fbfe19e3", "a7d092f360b5ff65"}};
  for (int mode = WM_ENCODE_DOCUMENTS; mode <= WM_ENCODE_STREAM; mode++) {
    check_golden("large.txt", mode, large[mode]);
    check_golden("rows.jsonl", mode, rows[mode]);
  }
}

/* Every boundary: pieces of a byte and more, cut in rows, characters, line ends and added tokens.
 */
static void test_tiny_pieces(void **state) {
  (void)state;
  static const char text[] = " = Title = \r\n\r\n### End\n### End### End \xE4\xB8\xAD\xE6\x96\x87\n"
                             "\xE3\x80\x80 \xE3\x80\x80\r\n\n\n a \xFF\xFF\n\xCC\x81 e\xCC\x81\n"
                             "wordwordwordwordwordwordwordwordwordwordwordwordwordwordwordword";
  static const char rows[] = "{\"text\": \"one two  three\\n\\nfour \\ud800 five\"}\r\n\n"
                             "{\"text\": \"\"}\n{\"text\": \"six seven eight nine ten\"}\n";
  static const int64_t pieces[] = {1, 5, 13};
  put("bounds.txt", text, sizeof text - 1);
  put("bounds.jsonl", rows, sizeof rows - 1);
  for (int mode = WM_ENCODE_DOCUMENTS; mode <= WM_ENCODE_STREAM; mode++)
    for (size_t i = 0; i < sizeof pieces / sizeof pieces[0]; i++) {
      CHECK(check_pieces(request_of("bounds.txt", mode), pieces[i]).tokens > 20);
      CHECK(check_pieces(request_of("bounds.jsonl", mode), pieces[i]).rows == 3);
      wm_encode_request_t kept = request_of("bounds.txt", mode);
      kept.corpus.keep_newline = true;
      check_pieces(kept, pieces[i]);
    }
}

/* A row longer than the default piece, among short ones: with and without places to cut. */
static void test_long_rows(void **state) {
  (void)state;
  enum { LONG = 3 << 20 };
  char *text = malloc(2 * LONG + 100);
  CHECK(text != NULL);
  int64_t n = snprintf(text, 100, "short\n");
  memset(text + n, 'x', LONG);
  n += LONG;
  n += snprintf(text + n, 100, "\nshort\n");
  for (int64_t i = 0; i < LONG; i += 6)
    n += snprintf(text + n, 10, "word, ");
  n += snprintf(text + n, 20, "\nend");
  put("long.txt", text, (size_t)n);
  free(text);
  for (int mode = WM_ENCODE_DOCUMENTS; mode <= WM_ENCODE_STREAM; mode++) {
    CHECK(check_pieces(request_of("long.txt", mode), 1000).rows == 5);
    CHECK(check_pieces(request_of("long.txt", mode), 16 << 20).rows == 5);
  }
}

/* NumPy format 1, one-dimensional uint16. */
static void put_array(const char *name, const uint16_t *ids, int n) {
  char file[2048] = "\x93NUMPY\x01";
  snprintf(file + 10, 119, "%-117s\n",
           n == 3 ? "{'descr': '<u2', 'fortran_order': False, 'shape': (3,), }"
                  : "{'descr': '<u2', 'fortran_order': False, 'shape': (100,), }");
  file[8] = 118;
  memcpy(file + 128, ids, (size_t)n * sizeof *ids);
  put(name, file, 128 + (size_t)n * sizeof *ids);
}

static void test_arrays_of_ids(void **state) {
  (void)state;
  uint16_t ids[100];
  for (int i = 0; i < 100; i++)
    ids[i] = (uint16_t)(i * 3);
  put_array("many.npy", ids, 100);
  put_array("few.npy", ids, 3);
  wm_encode_stats_t stats = check_same_file(request_of("many.npy", WM_ENCODE_STREAM));
  CHECK(stats.tokens == 100 && stats.rows == 1);
  CHECK(check_same_file(request_of("few.npy", WM_ENCODE_DOCUMENTS)).tokens == 3);

  wm_encode_request_t request = request_of("many.npy", WM_ENCODE_STREAM);
  check_pieces(request, 7);
  for (int piece = 0; piece <= 7; piece += 7) {
    request = request_of("many.npy", WM_ENCODE_STREAM);
    request.tokenizer_dir = NULL;
    check_pieces(request, piece);
  }
  wm_tokens_t *tokens;
  CHECK_OK(wm_tokens_open(comm, file_name("all.h5"), &tokens, &err));
  CHECK(wm_tokens_info(tokens)->vocab_size == 298);
  CHECK(strcmp(wm_tokens_info(tokens)->encoding, "ids") == 0);
  CHECK(wm_tokens_ids(tokens)[99] == 297);
  wm_tokens_close(tokens);

  ids[99] = 60000; /* the last rank's */
  put_array("many.npy", ids, 100);
  request = request_of("many.npy", WM_ENCODE_STREAM);
  request.out_path = file_name("bad.h5");
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_INPUT, "token 99");
  CHECK(!wm_file_exists(file_name("bad.h5")));
}

static void test_failures_are_everyones(void **state) {
  (void)state;
  static const char broken[] =
      "{\"text\": \"a\"}\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n{\"text\": 3}\n";
  wm_encode_stats_t stats;
  put("empty_rows.txt", "\n \n\n", 4);
  put("nothing.txt", "\n", 1);
  put("broken.jsonl", broken, sizeof broken - 1);
  wm_encode_request_t request = request_of("empty_rows.txt", WM_ENCODE_DOCUMENTS);
  request.out_path = file_name("none.h5");
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_INPUT, "empty_rows.txt");
  request.corpus.path = file_name("nothing.txt");
  request.mode = WM_ENCODE_STREAM;
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_INPUT, "nothing.txt");
  request.corpus.path = file_name("broken.jsonl");
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_INPUT, "broken.jsonl");
  request.corpus.path = file_name("absent.txt");
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_INPUT, "absent.txt");
  request.corpus.path = file_name("empty_rows.txt");
  request.tokenizer_dir = dir;
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_INPUT, "no tokenizer");
  request.tokenizer_dir = NULL;
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_USAGE, "needs a tokenizer");
  CHECK(!wm_file_exists(file_name("none.h5")));
}

typedef struct {
  int64_t last, total, written;
  bool good;
} progress_t;

static void see_encoded(void *context, int64_t done, int64_t total) {
  progress_t *p = context;
  p->good = p->good && done >= p->last && done <= total && p->written == 0;
  p->last = done;
  p->total = total;
}

static void see_written(void *context, int64_t done, int64_t total) {
  progress_t *p = context;
  p->good = p->good && done > p->written && done <= total;
  p->written = done;
}

static void test_progress(void **state) {
  (void)state;
  wm_encode_stats_t stats;
  for (int mode = WM_ENCODE_DOCUMENTS; mode <= WM_ENCODE_STREAM; mode++) {
    progress_t seen = {.last = -1, .good = true};
    wm_encode_request_t request = request_of("large.txt", mode);
    request.out_path = file_name("all.h5");
    request.encoded = see_encoded;
    request.written = see_written;
    request.context = &seen;
    CHECK_OK(wm_encode_corpus(comm, &request, NULL, &stats, &err));
    CHECK(seen.good && seen.last == seen.total && seen.written > 0);
    CHECK(seen.total >= stats.bytes); /* of all ranks together */
  }
}

static void test_stop(void **state) {
  (void)state;
  wm_encode_stats_t stats;
  wm_encode_request_t request = request_of("large.txt", WM_ENCODE_STREAM);
  char command[2 * PATH];
  request.out_path = file_name("stopped.h5");
  request.piece_bytes = 1000;
  if (comm->rank == comm->size - 1)
    wm_stop_request();
  CHECK_FAILS(wm_encode_corpus(comm, &request, NULL, &stats, &err), WM_STOPPED,
              "large.txt: stopped by request while it was tokenised");
  snprintf(command, sizeof command, "ls -A '%s' | grep -q -e tmp -e spill -e stopped", dir);
  MPI_Barrier(comm->world);
  CHECK(system(command) != 0);
  MPI_Barrier(comm->world);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_same_file_for_any_number_of_ranks),
      cmocka_unit_test(test_arrays_of_ids),
      cmocka_unit_test(test_failures_are_everyones),
      cmocka_unit_test(test_golden),
      cmocka_unit_test(test_tiny_pieces),
      cmocka_unit_test(test_long_rows),
      cmocka_unit_test(test_progress),
      cmocka_unit_test(test_stop), /* last: the request stays */
  };
  wm_h5_environment();
  MPI_Init(NULL, NULL);
  if (wm_comm_create(MPI_COMM_WORLD, &comm, &err) != WM_OK)
    MPI_Abort(MPI_COMM_WORLD, 1);
  if (comm->rank == 0)
    make_directory(dir);
  wm_broadcast(comm->world, 0, dir, sizeof dir);
  snprintf(tokenizer_path, sizeof tokenizer_path, "%s/tokenizer/neox", getenv("WM_TEST_DATA"));
  if (cmocka_run_group_tests(tests, NULL, NULL) != 0)
    MPI_Abort(MPI_COMM_WORLD, 1);
  MPI_Barrier(comm->world);
  if (comm->rank == 0)
    remove_directory(dir);
  wm_comm_free(comm);
  MPI_Finalize();
  return 0;
}
