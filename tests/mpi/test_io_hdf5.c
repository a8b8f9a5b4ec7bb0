/* Result files: round trips under other partitions, equal bytes for any number of ranks,
 * attributes, and what is refused. */
#include "test_io_mpi.h"

#include "wanamaker/io/provenance.h"

static const char *file_name(const char *name) {
  static char path[2 * PATH];
  return join(path, dir, name);
}

static double value_at(int64_t k) {
  return (double)(k * 7 % 1009) - 0.25 * (double)(k % 4);
}

/* This rank's slab of an array cut along dimension `d`. */
static void own_slab(const wm_comm_t *c, int n_dims, const int64_t *dims, int d, int64_t *offset,
                     int64_t *count) {
  for (int i = 0; i < n_dims; i++) {
    offset[i] = 0;
    count[i] = dims[i];
  }
  wm_partition(dims[d], c->size, c->rank, &offset[d], &count[d]);
}

static int64_t volume(int n_dims, const int64_t *count) {
  int64_t n = 1;
  for (int d = 0; d < n_dims; d++)
    n *= count[d];
  return n;
}

/* Linear index in the array of element `e` of a packed slab. */
static int64_t index_of(int n_dims, const int64_t *dims, const int64_t *offset,
                        const int64_t *count, int64_t e) {
  int64_t at[WM_H5_MAX_DIMS], k = 0;
  for (int d = n_dims - 1; d >= 0; d--) {
    at[d] = offset[d] + e % count[d];
    e /= count[d];
  }
  for (int d = 0; d < n_dims; d++)
    k = k * dims[d] + at[d];
  return k;
}

static double *make_slab(int n_dims, const int64_t *dims, const int64_t *offset,
                         const int64_t *count) {
  int64_t n = volume(n_dims, count);
  double *data = malloc((size_t)(n + 1) * sizeof *data);
  for (int64_t e = 0; e < n; e++)
    data[e] = value_at(index_of(n_dims, dims, offset, count, e));
  return data;
}

static const struct {
  int n_dims;
  int64_t dims[WM_H5_MAX_DIMS];
} shapes[] = {{1, {1}},    {1, {3}},       {1, {1009}},   {2, {3, 101}},
              {2, {0, 5}}, {3, {5, 7, 3}}, {2, {101, 1}}, {4, {2, 3, 5, 7}}};
enum { N_SHAPES = sizeof shapes / sizeof shapes[0] };

/* Written cut along one dimension, read back along another, stored as float32 and float64. */
static void test_round_trip(void **state) {
  (void)state;
  for (int s = 0; s < N_SHAPES; s++)
    for (int d = 0; d < shapes[s].n_dims; d++) {
      const int n = shapes[s].n_dims;
      const int64_t *dims = shapes[s].dims;
      int64_t offset[WM_H5_MAX_DIMS], count[WM_H5_MAX_DIMS], found[WM_H5_MAX_DIMS];
      const char *path = file_name("round.h5");
      wm_h5_t *f;
      wm_error_t err = {0};
      own_slab(comm, n, dims, d, offset, count);
      double *data = make_slab(n, dims, offset, count);
      CHECK_OK(wm_h5_create(comm->world, path, &f, &err));
      CHECK(strcmp(wm_h5_path(f), path) == 0 && wm_h5_id(f) >= 0);
      CHECK_OK(wm_h5_dataset(f, "/x/single", H5T_IEEE_F32LE, n, dims, "converted", &err));
      CHECK_OK(wm_h5_dataset(f, "/x/y/double", H5T_IEEE_F64LE, n, dims, "as it is", &err));
      CHECK_OK(wm_h5_write(f, "/x/single", H5T_NATIVE_DOUBLE, offset, count, data, &err));
      CHECK_OK(wm_h5_write(f, "/x/y/double", H5T_NATIVE_DOUBLE, offset, count, data, &err));
      CHECK(!wm_file_exists(path) || s + d > 0); /* not before it is published */
      CHECK_OK(wm_h5_publish(f, &err));
      free(data);
      CHECK_OK(wm_h5_open(comm->world, path, &f, &err));
      CHECK_OK(wm_h5_verify(f, &err));
      own_slab(comm, n, dims, n - 1 - d, offset, count);
      data = make_slab(n, dims, offset, count);
      double *back = calloc((size_t)volume(n, count) + 1, sizeof *back);
      static const char *const names[] = {"/x/single", "/x/y/double"};
      for (int i = 0; i < 2; i++) {
        CHECK_OK(wm_h5_dims(f, names[i], n, found, &err));
        CHECK(memcmp(found, dims, (size_t)n * sizeof *dims) == 0);
        CHECK_OK(wm_h5_read(f, names[i], H5T_NATIVE_DOUBLE, offset, count, back, &err));
        CHECK(memcmp(back, data, (size_t)volume(n, count) * sizeof *data) == 0);
      }
      wm_h5_close(f);
      free(data);
      free(back);
    }
}

/* Several calls for one dataset, and ranks without any data. */
static void test_pieces_and_empty_ranks(void **state) {
  (void)state;
  const int64_t dims[2] = {10, 6};
  wm_h5_t *f;
  wm_error_t err = {0};
  const char *path = file_name("pieces.h5");
  CHECK_OK(wm_h5_create(comm->world, path, &f, &err));
  CHECK_OK(wm_h5_dataset(f, "/a", H5T_STD_I64LE, 2, dims, "cells", &err));
  for (int64_t r = 9; r >= 0; r--) { /* row r by rank r % size, last row first */
    int64_t row[6], offset[2] = {r, 0}, count[2] = {1, 6};
    for (int64_t j = 0; j < 6; j++)
      row[j] = 6 * r + j - 30;
    count[1] = r % comm->size == comm->rank ? 6 : 0;
    CHECK_OK(
        wm_h5_write(f, "/a", H5T_NATIVE_INT64, offset, count, count[1] == 0 ? NULL : row, &err));
  }
  CHECK_OK(wm_h5_publish(f, &err));
  CHECK_OK(wm_h5_open(comm->world, path, &f, &err));
  int64_t all[60], zero[2] = {0, 0}, none[2] = {0, 6};
  if (comm->rank == comm->size - 1) {
    CHECK_OK(wm_h5_read(f, "/a", H5T_NATIVE_INT64, zero, dims, all, &err));
    for (int i = 0; i < 60; i++)
      CHECK(all[i] == i - 30);
  } else {
    CHECK_OK(wm_h5_read(f, "/a", H5T_NATIVE_INT64, zero, none, NULL, &err));
  }
  wm_h5_close(f);
}

typedef struct {
  int8_t small; /* followed by padding, which must not reach the file */
  double large;
  char name[5];
} record_t;

static hid_t record_type(void) {
  hid_t type = H5Tcreate(H5T_COMPOUND, sizeof(record_t)), text = H5Tcopy(H5T_C_S1);
  H5Tset_size(text, 5);
  H5Tinsert(type, "small", HOFFSET(record_t, small), H5T_NATIVE_INT8);
  H5Tinsert(type, "large", HOFFSET(record_t, large), H5T_NATIVE_DOUBLE);
  H5Tinsert(type, "name", HOFFSET(record_t, name), text);
  H5Tclose(text);
  return type;
}

static void fill_records(record_t *records, int64_t first, int64_t n, int garbage) {
  memset(records, garbage, (size_t)n * sizeof *records);
  for (int64_t i = 0; i < n; i++) {
    memset(records[i].name, 0, sizeof records[i].name);
    snprintf(records[i].name, sizeof records[i].name, "n%d", (int)(first + i));
    records[i].small = (int8_t)(first + i);
    records[i].large = value_at(first + i);
  }
}

/* Writes one file with everything in it over the communicator `c`. */
static void write_sample(const wm_comm_t *c, const char *path, int garbage) {
  const int64_t dims[2] = {7, 1009}, n_records = 11;
  int64_t offset[2], count[2];
  wm_h5_t *f;
  wm_error_t err = {0};
  hid_t type = record_type();
  record_t records[11];
  CHECK_OK(wm_h5_create(c->world, path, &f, &err));
  CHECK_OK(wm_h5_set_string(f, "/", "text", "some \xc3\xa9 text", &err));
  CHECK_OK(wm_h5_set_float(f, "/", "pi", 3.25, &err));
  CHECK_OK(wm_h5_dataset(f, "/g/x", H5T_IEEE_F32LE, 2, dims, "a plane", &err));
  CHECK_OK(wm_h5_dataset(f, "/g/h/records", type, 1, &n_records, "records", &err));
  CHECK_OK(wm_h5_set_int(f, "/g/x", "rows", 7, &err));
  own_slab(c, 2, dims, 1, offset, count);
  double *data = make_slab(2, dims, offset, count);
  CHECK_OK(wm_h5_write(f, "/g/x", H5T_NATIVE_DOUBLE, offset, count, data, &err));
  free(data);
  own_slab(c, 1, &n_records, 0, offset, count);
  fill_records(records, offset[0], count[0], garbage);
  CHECK_OK(wm_h5_write(f, "/g/h/records", type, offset, count, records, &err));
  CHECK_OK(wm_h5_publish(f, &err));
  H5Tclose(type);
}

/* The ranks split up into teams of every size; all files are equal, byte for byte. */
static void test_same_bytes(void **state) {
  (void)state;
  char reference[2 * PATH];
  wm_error_t err = {0};
  write_sample(comm, join(reference, dir, "same.h5"), 0);
  for (int size = 1; size < comm->size; size++) {
    MPI_Comm team;
    wm_comm_t *c;
    MPI_Comm_split(comm->world, comm->rank < size, comm->rank, &team);
    CHECK_OK(wm_comm_create(team, &c, &err));
    if (comm->rank < size)
      write_sample(c, file_name("other.h5"), 0xab);
    MPI_Barrier(comm->world);
    wm_map_t a, b;
    CHECK_OK(wm_map_open(reference, &a, &err));
    CHECK_OK(wm_map_open(file_name("other.h5"), &b, &err));
    CHECK(a.bytes == b.bytes && memcmp(a.data, b.data, (size_t)a.bytes) == 0);
    wm_map_close(&a);
    wm_map_close(&b);
    MPI_Barrier(comm->world);
    wm_comm_free(c);
    MPI_Comm_free(&team);
  }
  /* Again, later by more than the resolution of HDF5's times. */
  sleep(1);
  write_sample(comm, file_name("other.h5"), 0x5a);
  wm_map_t a, b;
  CHECK_OK(wm_map_open(reference, &a, &err));
  CHECK_OK(wm_map_open(file_name("other.h5"), &b, &err));
  CHECK(a.bytes == b.bytes && memcmp(a.data, b.data, (size_t)a.bytes) == 0);
  /* The checksum was computed from the definition by an independent script. */
  wm_h5_t *f;
  char *sum;
  CHECK_OK(wm_h5_open(comm->world, reference, &f, &err));
  CHECK_OK(wm_h5_get_string(f, "/g/x", "checksum", &sum, &err));
  CHECK(strcmp(sum, "d55dd91656e76432") == 0);
  free(sum);
  record_t records[11], wanted[11];
  memset(records, 0, sizeof records);
  fill_records(wanted, 0, 11, 0);
  hid_t type = record_type();
  CHECK_OK(wm_h5_read(f, "/g/h/records", type, (int64_t[]){0}, (int64_t[]){11}, records, &err));
  for (int i = 0; i < 11; i++)
    CHECK(records[i].small == wanted[i].small && records[i].large == wanted[i].large &&
          strcmp(records[i].name, wanted[i].name) == 0);
  H5Tclose(type);
  wm_h5_close(f);
  wm_map_close(&a);
  wm_map_close(&b);
}

static void test_attributes(void **state) {
  (void)state;
  enum { LONGER = 200000 }; /* than the old format's 64 KiB */
  const int64_t one = 1;
  wm_h5_t *f;
  wm_error_t err = {0};
  char *text;
  int64_t i = 0;
  double x = 0;
  char *longer = malloc(LONGER + 1);
  memset(longer, 'x', LONGER);
  longer[LONGER] = '\0';
  CHECK_OK(wm_h5_create(comm->world, file_name("a.h5"), &f, &err));
  CHECK_OK(wm_h5_dataset(f, "/d", H5T_STD_U8LE, 1, &one, "one value", &err));
  CHECK_OK(wm_h5_write(f, "/d", H5T_NATIVE_UINT8, (int64_t[]){0},
                       (int64_t[]){comm->rank == 0 ? 1 : 0}, "\x07", &err));
  CHECK_OK(wm_h5_set_string(f, "/", "s", "first", &err));
  CHECK_OK(wm_h5_set_string(f, "/", "s", "second, longer", &err)); /* replaced */
  CHECK_OK(wm_h5_set_string(f, "/d", "empty", "", &err));
  CHECK_OK(wm_h5_set_string(f, "/", "long", longer, &err));
  CHECK_OK(wm_h5_set_int(f, "/d", "i", INT64_MIN, &err));
  CHECK_OK(wm_h5_set_float(f, "/", "x", 0.1, &err));
  CHECK_FAILS(wm_h5_set_int(f, "/none", "i", 1, &err), WM_ENVIRONMENT, "/none");
  CHECK_OK(wm_h5_publish(f, &err));

  CHECK_OK(wm_h5_open(comm->world, file_name("a.h5"), &f, &err));
  CHECK(wm_h5_has_attribute(f, "/d", "i") && !wm_h5_has_attribute(f, "/d", "j") &&
        !wm_h5_has_attribute(f, "/e", "i"));
  CHECK_OK(wm_h5_get_string(f, "/", "s", &text, &err));
  CHECK(strcmp(text, "second, longer") == 0);
  free(text);
  CHECK_OK(wm_h5_get_string(f, "/d", "empty", &text, &err));
  CHECK(strcmp(text, "") == 0);
  free(text);
  CHECK_OK(wm_h5_get_string(f, "/", "long", &text, &err));
  CHECK(strcmp(text, longer) == 0);
  free(text);
  CHECK_OK(wm_h5_get_string(f, "/d", "description", &text, &err));
  CHECK(strcmp(text, "one value") == 0);
  free(text);
  CHECK_OK(wm_h5_get_int(f, "/d", "i", &i, &err));
  CHECK(i == INT64_MIN);
  CHECK_OK(wm_h5_get_float(f, "/", "x", &x, &err));
  CHECK(x == 0.1);
  CHECK_FAILS(wm_h5_get_int(f, "/", "none", &i, &err), WM_INPUT, "\"none\" is missing");
  CHECK_FAILS(wm_h5_get_int(f, "/", "x", &i, &err), WM_INPUT, "\"x\" must be an integer");
  CHECK_FAILS(wm_h5_get_float(f, "/d", "i", &x, &err), WM_INPUT, "must be a floating-point");
  CHECK_FAILS(wm_h5_get_string(f, "/d", "i", &text, &err), WM_INPUT, "must be a string");
  CHECK(text == NULL);
  wm_h5_close(f);
  free(longer);
}

/* Reads that the file can't satisfy. */
static void test_refused_reads(void **state) {
  (void)state;
  const int64_t dims[2] = {4, 3}, zero[2] = {0, 0};
  wm_h5_t *f;
  wm_error_t err = {0};
  int64_t offset[2], count[2], found[2];
  double back[20];
  write_sample(comm, file_name("r.h5"), 0);
  CHECK_OK(wm_h5_open(comm->world, file_name("r.h5"), &f, &err));
  CHECK_FAILS(wm_h5_dims(f, "/none", 2, found, &err), WM_INPUT, "/none");
  CHECK_FAILS(wm_h5_dims(f, "/g/x", 1, found, &err), WM_INPUT, "/g/x: must have 1 dimension");
  CHECK_FAILS(wm_h5_read(f, "/none", H5T_NATIVE_DOUBLE, zero, dims, back, &err), WM_INPUT, "/none");
  CHECK_FAILS(wm_h5_read(f, "/g/x", H5T_NATIVE_INT, zero, dims, back, &err), WM_INPUT,
              "do not fit the type");
  /* On one rank only: all must hear of it. */
  own_slab(comm, 2, dims, 0, offset, count);
  if (comm->rank == comm->size - 1) {
    offset[0] = 7;
    count[0] = 1;
  }
  CHECK_FAILS(wm_h5_read(f, "/g/x", H5T_NATIVE_DOUBLE, offset, count, back, &err), WM_INPUT,
              "indices [7, 8) of dimension 0 are wanted, but its extent is 7");
  wm_h5_close(f);
}

static void test_narrowing(void **state) {
  (void)state;
  const int64_t n = 1, zero = 0, mine = comm->rank == 0 ? 1 : 0;
  const int64_t big = INT64_C(1) << 40;
  wm_h5_t *f;
  wm_error_t err = {0};
  int32_t small;
  int64_t wide;
  uint64_t without_sign;
  CHECK_OK(wm_h5_create(comm->world, file_name("n.h5"), &f, &err));
  CHECK_OK(wm_h5_dataset(f, "/i", H5T_STD_I64LE, 1, &n, "a wide integer", &err));
  CHECK_OK(wm_h5_write(f, "/i", H5T_NATIVE_INT64, &zero, &mine, &big, &err));
  CHECK_OK(wm_h5_publish(f, &err));
  CHECK_OK(wm_h5_open(comm->world, file_name("n.h5"), &f, &err));
  CHECK_FAILS(wm_h5_read(f, "/i", H5T_NATIVE_INT32, &zero, &n, &small, &err), WM_INPUT, "fit");
  CHECK_FAILS(wm_h5_read(f, "/i", H5T_NATIVE_UINT64, &zero, &n, &without_sign, &err), WM_INPUT,
              "fit");
  CHECK_OK(wm_h5_read(f, "/i", H5T_NATIVE_INT64, &zero, &n, &wide, &err));
  CHECK(wide == big);
  wm_h5_close(f);
}

static void test_provenance(void **state) {
  (void)state;
  wm_h5_t *f;
  wm_error_t err = {0};
  char *text;
  int64_t nodes, ranks;
  /* The start differs between the ranks, as it does in a run. */
  wm_provenance_t p = {.version = "0.1",
                       .commit = "abc",
                       .configuration = "x = 1;\n",
                       .ranks = comm->size,
                       .threads = 1,
                       .backend = "naive",
                       .start = 86400.0 + comm->rank};
  CHECK_OK(wm_h5_create(comm->world, file_name("p.h5"), &f, &err));
  CHECK_OK(wm_provenance_write(f, comm, &p, &err));
  CHECK_OK(wm_h5_publish(f, &err));
  CHECK_OK(wm_h5_open(comm->world, file_name("p.h5"), &f, &err));
  static const char *const names[] = {"program", "version", "commit", "configuration",
                                      "compute", "mpi",     "hdf5",   "blas",
                                      "gemm",    "host",    "start",  "end"};
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    CHECK_OK(wm_h5_get_string(f, "/", names[i], &text, &err));
    CHECK(text[0] != '\0');
    CHECK(strcmp(names[i], "start") != 0 || strcmp(text, "1970-01-02T00:00:00Z") == 0);
    free(text);
  }
  CHECK_OK(wm_h5_get_int(f, "/", "ranks", &ranks, &err));
  CHECK_OK(wm_h5_get_int(f, "/", "nodes", &nodes, &err));
  CHECK(ranks == comm->size && nodes == comm->node_count);
  wm_h5_close(f);
}

/* Large datasets begin at multiples of the alignment, small ones anywhere; and what is in them
 * stays as it is. */
static void test_alignment(void **state) {
  (void)state;
  enum { ALIGNMENT = 1 << 16, LARGE = ALIGNMENT / sizeof(double) };
  static const char *const names[] = {"/small", "/one", "/two"};
  const int64_t dims[] = {3, LARGE, LARGE + 5};
  const char *path = file_name("aligned.h5");
  wm_error_t err = {0};
  wm_h5_t *f;
  wm_h5_align(ALIGNMENT);
  CHECK_OK(wm_h5_create(comm->world, path, &f, &err));
  for (int i = 0; i < 3; i++) {
    int64_t offset, count;
    own_slab(comm, 1, &dims[i], 0, &offset, &count);
    double *data = make_slab(1, &dims[i], &offset, &count);
    CHECK_OK(wm_h5_dataset(f, names[i], H5T_IEEE_F64LE, 1, &dims[i], "numbers", &err));
    CHECK_OK(wm_h5_write(f, names[i], H5T_NATIVE_DOUBLE, &offset, &count, data, &err));
    free(data);
  }
  CHECK_OK(wm_h5_publish(f, &err));
  wm_h5_align(0);
  CHECK_OK(wm_h5_open(comm->world, path, &f, &err));
  CHECK(wm_h5_place(f, "/small", H5T_NATIVE_DOUBLE) > 0);
  CHECK(wm_h5_place(f, "/one", H5T_NATIVE_DOUBLE) % ALIGNMENT == 0);
  CHECK(wm_h5_place(f, "/two", H5T_NATIVE_DOUBLE) % ALIGNMENT == 0);
  CHECK_OK(wm_h5_verify(f, &err));
  wm_h5_close(f);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_pieces_and_empty_ranks),
      cmocka_unit_test(test_same_bytes),    cmocka_unit_test(test_attributes),
      cmocka_unit_test(test_refused_reads), cmocka_unit_test(test_narrowing),
      cmocka_unit_test(test_provenance),    cmocka_unit_test(test_alignment),
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
