/* What may not happen to result files: success that is none, a rank left behind, an older file
 * damaged, a temporary file left over. */
#include "test_io_mpi.h"

#include "wanamaker/io/tokens.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

enum { N = 50021 };
static double values[N];
static int spill_failures; /* of this rank, on a full disk */

static const char *file_name(const char *name) {
  static char path[2 * PATH];
  return join(path, dir, name);
}

static void put_old_file(const char *name) {
  if (comm->rank == 0)
    write_file(dir, name, "old contents", 12);
  MPI_Barrier(comm->world);
}

static void check_old_file(const char *name) {
  wm_error_t err = {0};
  char *text, path[2 * PATH];
  CHECK_OK(wm_read_text(join(path, dir, name), 1 << 30, &text, &err));
  CHECK(strcmp(text, "old contents") == 0);
  free(text);
  MPI_Barrier(comm->world);
}

static void check_no_temporary(const char *name) {
  char path[2 * PATH], temporary[2 * PATH + 4];
  snprintf(temporary, sizeof temporary, "%s.tmp", join(path, dir, name));
  MPI_Barrier(comm->world);
  CHECK(!wm_file_exists(temporary));
  MPI_Barrier(comm->world);
}

/* Two datasets and an attribute. Publishes unless `skip` (the elements of the last rank are left
 * out then). The object is gone afterwards. */
static wm_status_t write_result(const char *path, bool skip, wm_error_t *err) {
  const int64_t n = N;
  int64_t first, count;
  wm_h5_t *f = NULL;
  wm_status_t status;
  wm_partition(N, comm->size, comm->rank, &first, &count);
  if (skip && comm->rank == comm->size - 1)
    count--;
  WM_TRY(wm_h5_create(comm->world, path, &f, err));
  WM_TRY(wm_h5_dataset(f, "/a/x", H5T_IEEE_F64LE, 1, &n, "values", err));
  WM_TRY(wm_h5_dataset(f, "/a/y", H5T_IEEE_F32LE, 1, &n, "values", err));
  WM_TRY(wm_h5_write(f, "/a/x", H5T_NATIVE_DOUBLE, &first, &count, values + first, err));
  WM_TRY(wm_h5_write(f, "/a/y", H5T_NATIVE_DOUBLE, &first, &count, values + first, err));
  WM_TRY(wm_h5_set_string(f, "/", "note", "behind the data", err));
  wm_h5_t *done = f;
  f = NULL;
  status = wm_h5_publish(done, err);
cleanup:
  wm_h5_close(f);
  return status;
}

static void limit_file_size(rlim_t bytes) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_FSIZE, &limit) == 0);
  limit.rlim_cur = bytes < limit.rlim_max ? bytes : limit.rlim_max;
  CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
}

/* What must hold after an attempt to write `name`, whatever came of it. */
static void check_outcome(const char *name, wm_status_t status, const wm_error_t *e) {
  wm_error_t err = {0};
  int range[2] = {(int)status, -(int)status};
  MPI_Allreduce(MPI_IN_PLACE, range, 2, MPI_INT, MPI_MIN, comm->world);
  CHECK(range[0] == -range[1]); /* all ranks say the same */
  check_no_temporary(name);
  if (status != WM_OK) {
    CHECK(status == WM_ENVIRONMENT);
    CHECK(strstr(e->message, name) != NULL);
    check_old_file(name);
  } else {
    wm_h5_t *f;
    CHECK_OK(wm_h5_open(comm->world, file_name(name), &f, &err));
    CHECK_OK(wm_h5_verify(f, &err));
    wm_h5_close(f);
  }
}

/* Files may have `limit` bytes, on one rank or (victim < 0) on all. */
static wm_status_t write_limited(rlim_t limit, int victim) {
  wm_error_t err = {0};
  put_old_file("limited.h5");
  if (victim < 0 || comm->rank == victim)
    limit_file_size(limit);
  wm_status_t status = write_result(file_name("limited.h5"), false, &err);
  limit_file_size(RLIM_INFINITY);
  check_outcome("limited.h5", status, &err);
  return status;
}

static void test_limits(void **state) {
  (void)state;
  const rlim_t limits[] = {0, 8, 1000, 3000, 8 * N, 8 * N + (1 << 20), 12 * N, 12 * N + (2 << 20)};
  const int victims[] = {-1, 0, comm->size - 1};
  for (size_t v = 0; v < sizeof victims / sizeof victims[0]; v++)
    for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++)
      CHECK((write_limited(limits[i], victims[v]) == WM_OK) == (limits[i] > 12 * N + (1 << 20)));
}

/* A write that fails in MPI-IO, on some ranks alone, although the space had been reserved. */
static void test_write_error(void **state) {
  (void)state;
  const int64_t n = N;
  int64_t first, count;
  wm_partition(N, comm->size, comm->rank, &first, &count);
  const int victims[] = {-1, 0, comm->size - 1};
  for (int v = 0; v < 3; v++) {
    wm_h5_t *f;
    wm_error_t err = {0};
    put_old_file("error.h5");
    CHECK_OK(wm_h5_create(comm->world, file_name("error.h5"), &f, &err));
    CHECK_OK(wm_h5_dataset(f, "/x", H5T_IEEE_F64LE, 1, &n, "values", &err));
    if (victims[v] < 0 || comm->rank == victims[v])
      limit_file_size(1024);
    wm_status_t status =
        wm_h5_write(f, "/x", H5T_NATIVE_DOUBLE, &first, &count, values + first, &err);
    limit_file_size(RLIM_INFINITY);
    CHECK(status == WM_ENVIRONMENT);
    CHECK(strstr(err.message, "error.h5.tmp: /x: cannot write: HDF5: ") != NULL);
    wm_h5_close(f);
    check_outcome("error.h5", status, &err);
  }
}

/* Fills the file system of `dir` but for free_bytes; 0 or more. */
static void leave_free(int64_t free_bytes) {
  char ballast[2 * PATH];
  join(ballast, dir, "ballast");
  if (comm->rank == 0) {
    struct statvfs fs;
    int fd = open(ballast, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    CHECK(fd >= 0 && fstatvfs(fd, &fs) == 0);
    int64_t bytes = (int64_t)(fs.f_bavail * fs.f_frsize) - free_bytes;
    CHECK(bytes >= 0 && (bytes == 0 || posix_fallocate(fd, 0, (off_t)bytes) == 0));
    close(fd);
  }
  MPI_Barrier(comm->world);
}

static void remove_files(const char *name) {
  char ballast[2 * PATH];
  MPI_Barrier(comm->world);
  if (comm->rank == 0) {
    unlink(join(ballast, dir, "ballast"));
    unlink(file_name(name));
  }
  MPI_Barrier(comm->world);
}

/* On a small file system (WM_TEST_FULL_DISK names a directory on one of 1 to 4 MiB), with more and
 * more of it free: `write` must fail, and at last succeed. */
static void fill_disk(const char *name, wm_status_t (*write)(const char *path, wm_error_t *err)) {
  const char *full = getenv("WM_TEST_FULL_DISK");
  if (full == NULL) {
    if (comm->rank == 0)
      print_message("skipped: WM_TEST_FULL_DISK names no directory on a small file system\n");
    return;
  }
  char own[PATH];
  memcpy(own, dir, sizeof own);
  snprintf(dir, sizeof dir, "%s", full);
  int failures = 0, successes = 0;
  for (int64_t free_bytes = 0; free_bytes <= 2 << 20; free_bytes += 128 << 10) {
    wm_error_t err = {0};
    put_old_file(name);
    leave_free(free_bytes);
    wm_status_t status = write(file_name(name), &err);
    check_outcome(name, status, &err);
    failures += status != WM_OK;
    successes += status == WM_OK;
    remove_files(name);
  }
  memcpy(dir, own, sizeof own);
  CHECK(failures > 0 && successes > 0);
}

static wm_status_t write_whole(const char *path, wm_error_t *err) {
  return write_result(path, false, err);
}

static void test_full_disk(void **state) {
  (void)state;
  fill_disk("full.h5", write_whole);
}

/* Token ids that do not fit into memory's blocks lie in the same directory until they are
 * published. */
static wm_status_t write_spilled(const char *path, wm_error_t *err) {
  enum { TOKENS = 100000, PIECE = 1000 };
  static const int32_t ids[PIECE];
  static const int64_t row_first[1];
  static const uint8_t flags[1];
  const wm_token_part_t part = {PIECE, 1, ids, row_first, flags};
  const wm_tokens_info_t info = {
      .encoding = "stream", .corpus = path, .vocab_size = 1, .configuration = ""};
  int64_t first, n;
  wm_tokens_writer_t *w;
  wm_partition(TOKENS / PIECE, comm->size, comm->rank, &first, &n);
  wm_status_t status = wm_tokens_writer_create(path, 4096, &w, err);
  for (int64_t i = 0; i < n && status == WM_OK; i++)
    status = wm_tokens_append(w, &part, err);
  spill_failures += status != WM_OK;
  if (status != WM_OK)
    CHECK(strstr(err->message, ": cannot write the temporary file of token ids") != NULL &&
          strstr(err->message, "No space left on device") != NULL);
  status = wm_agree(comm->world, status, err);
  if (status == WM_OK)
    status = wm_tokens_publish(comm, w, &info, NULL, err);
  wm_tokens_writer_free(w);
  return status;
}

static void test_full_disk_of_spills(void **state) {
  (void)state;
  fill_disk("spilled.h5", write_spilled);
  MPI_Allreduce(MPI_IN_PLACE, &spill_failures, 1, MPI_INT, MPI_SUM, comm->world);
  CHECK(getenv("WM_TEST_FULL_DISK") == NULL || spill_failures > 0);
}

/* The file takes no more of the disk than its contents need. */
static void test_disk_usage(void **state) {
  (void)state;
  struct stat st;
  wm_error_t err = {0};
  CHECK_OK(write_result(file_name("usage.h5"), false, &err));
  CHECK(stat(file_name("usage.h5"), &st) == 0);
  CHECK(st.st_size < 12 * N + 16384);
  CHECK((int64_t)st.st_blocks * 512 <= (int64_t)st.st_size + 65536);
  MPI_Barrier(comm->world);
}

/* Data that change between the write and the publication are noticed. */
static void test_corrupted_data(void **state) {
  (void)state;
  const int64_t n = N;
  int64_t first, count;
  wm_h5_t *f;
  wm_error_t err = {0};
  static const int64_t places[] = {0, N / 2, N - 1};
  wm_partition(N, comm->size, comm->rank, &first, &count);
  for (int p = 0; p < 3; p++) {
    put_old_file("corrupt.h5");
    CHECK_OK(wm_h5_create(comm->world, file_name("corrupt.h5"), &f, &err));
    CHECK_OK(wm_h5_dataset(f, "/good", H5T_IEEE_F64LE, 1, &n, "values", &err));
    CHECK_OK(wm_h5_dataset(f, "/bad", H5T_IEEE_F64LE, 1, &n, "values", &err));
    CHECK_OK(wm_h5_write(f, "/good", H5T_NATIVE_DOUBLE, &first, &count, values + first, &err));
    CHECK_OK(wm_h5_write(f, "/bad", H5T_NATIVE_DOUBLE, &first, &count, values + first, &err));
    /* One element, behind the wrapper's back. */
    if (comm->rank == 0) {
      hid_t set = H5Dopen2(wm_h5_id(f), "/bad", H5P_DEFAULT), space = H5Dget_space(set);
      hsize_t at = (hsize_t)places[p], one = 1;
      hid_t memory = H5Screate_simple(1, &one, NULL);
      double value = values[places[p]] + 1e-9;
      CHECK(H5Sselect_elements(space, H5S_SELECT_SET, 1, &at) >= 0);
      CHECK(H5Dwrite(set, H5T_NATIVE_DOUBLE, memory, space, H5P_DEFAULT, &value) >= 0);
      H5Sclose(memory);
      H5Sclose(space);
      H5Dclose(set);
    }
    MPI_Barrier(comm->world);
    CHECK_FAILS(wm_h5_publish(f, &err), WM_ENVIRONMENT, "/bad: checksum");
    check_no_temporary("corrupt.h5");
    check_old_file("corrupt.h5");
  }
}

static void test_incomplete_data(void **state) {
  (void)state;
  wm_error_t err = {0};
  put_old_file("short.h5");
  CHECK_FAILS(write_result(file_name("short.h5"), true, &err), WM_ENVIRONMENT,
              "/a/x: 50020 of 50021 elements written");
  check_no_temporary("short.h5");
  check_old_file("short.h5");
}

/* Closing without publication leaves nothing. */
static void test_abandoned(void **state) {
  (void)state;
  const int64_t n = N;
  wm_h5_t *f;
  wm_error_t err = {0};
  put_old_file("left.h5");
  CHECK_OK(wm_h5_create(comm->world, file_name("left.h5"), &f, &err));
  CHECK_OK(wm_h5_dataset(f, "/x", H5T_IEEE_F64LE, 1, &n, "values", &err));
  CHECK(wm_file_exists(file_name("left.h5.tmp")));
  MPI_Barrier(comm->world);
  wm_h5_close(f);
  check_no_temporary("left.h5");
  check_old_file("left.h5");
  wm_h5_close(NULL);
}

static void test_unwritable(void **state) {
  (void)state;
  wm_h5_t *f;
  wm_error_t err = {0};
  CHECK_FAILS(wm_h5_create(comm->world, file_name("none/x.h5"), &f, &err), WM_ENVIRONMENT,
              "none/x.h5.tmp: cannot create: No such file or directory");
  CHECK(f == NULL);
}

/* Damages a published file by `change` and expects the message. */
static void damage(void (*change)(const char *path), const char *part) {
  wm_h5_t *f;
  wm_error_t err = {0};
  CHECK_OK(write_result(file_name("damaged.h5"), false, &err));
  if (comm->rank == 0)
    change(file_name("damaged.h5"));
  MPI_Barrier(comm->world);
  wm_status_t status = wm_h5_open(comm->world, file_name("damaged.h5"), &f, &err);
  if (status == WM_OK)
    status = wm_h5_verify(f, &err);
  CHECK_FAILS(status, WM_INPUT, part);
  CHECK(strstr(err.message, "damaged.h5") != NULL);
  wm_h5_close(f);
}

static void truncate_half(const char *path) {
  CHECK(truncate(path, 6 * N) == 0);
}

static void truncate_all(const char *path) {
  CHECK(truncate(path, 0) == 0);
}

static void remove_it(const char *path) {
  CHECK(unlink(path) == 0);
}

static void overwrite_start(const char *path) {
  int fd = open(path, O_WRONLY);
  CHECK(fd >= 0 && pwrite(fd, "no HDF5 file", 12, 0) == 12 && close(fd) == 0);
}

static void flip_bit(const char *path) {
  int fd = open(path, O_RDWR);
  unsigned char byte;
  CHECK(fd >= 0 && pread(fd, &byte, 1, 9 * N) == 1);
  byte ^= 4;
  CHECK(pwrite(fd, &byte, 1, 9 * N) == 1 && close(fd) == 0);
}

static void set_incomplete(const char *path) {
  int64_t zero = 0;
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  hid_t attribute = H5Aopen(file, "complete", H5P_DEFAULT);
  CHECK(H5Awrite(attribute, H5T_NATIVE_INT64, &zero) >= 0);
  H5Aclose(attribute);
  CHECK(H5Fclose(file) >= 0);
}

static void delete_complete(const char *path) {
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  CHECK(H5Adelete(file, "complete") >= 0);
  CHECK(H5Fclose(file) >= 0);
}

static void change_attribute(const char *path) {
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
  hid_t set = H5Dopen2(file, "/a/x", H5P_DEFAULT);
  hid_t attribute = H5Aopen(set, "description", H5P_DEFAULT), type = H5Aget_type(attribute);
  char text[64] = "";
  CHECK(H5Tget_size(type) <= sizeof text && H5Aread(attribute, type, text) >= 0);
  text[0] ^= 1;
  CHECK(H5Awrite(attribute, type, text) >= 0);
  H5Tclose(type);
  H5Aclose(attribute);
  H5Dclose(set);
  CHECK(H5Fclose(file) >= 0);
}

static void add_attribute(const char *path) {
  hid_t file = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT), space = H5Screate(H5S_SCALAR);
  hid_t attribute = H5Acreate2(file, "added", H5T_STD_I64LE, space, H5P_DEFAULT, H5P_DEFAULT);
  CHECK(attribute >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
  CHECK(H5Fclose(file) >= 0);
}

static void test_damaged(void **state) {
  (void)state;
  damage(truncate_half, "truncated");
  damage(truncate_all, "cannot open");
  damage(remove_it, "No such file");
  damage(overwrite_start, "cannot open");
  damage(flip_bit, "checksum");
  damage(change_attribute, "attributes: checksum");
  damage(add_attribute, "attributes: checksum");
  damage(set_incomplete, "is not complete");
  damage(delete_complete, "\"complete\" is missing");
}

/* Groups with many links and a root with many attributes, as results have them. */
static void write_crowded(const char *path) {
  const int64_t n = 3, zero = 0;
  const double three[] = {1, 2, 3};
  wm_h5_t *f;
  wm_error_t err = {0};
  CHECK_OK(wm_h5_create(MPI_COMM_SELF, path, &f, &err));
  for (int i = 0; i < 24; i++) {
    char name[32], text[200];
    snprintf(name, sizeof name, "/group/set_%d", i);
    CHECK_OK(wm_h5_dataset(f, name, H5T_IEEE_F64LE, 1, &n, "three numbers", &err));
    CHECK_OK(wm_h5_write(f, name, H5T_NATIVE_DOUBLE, &zero, &n, three, &err));
    memset(text, 'a' + i, sizeof text - 1);
    text[sizeof text - 1] = '\0';
    CHECK_OK(wm_h5_set_string(f, "/", name + 7, text, &err));
  }
  CHECK_OK(wm_h5_publish(f, &err));
}

/* Bytes changed all over a file: whoever reads it hears of it, or the byte is nobody's. Only a
 * change that no checksum could miss would show numbers or texts that were not written. */
static void test_any_byte(void **state) {
  (void)state;
  if (comm->rank == 0) {
    const char *path = file_name("crowded.h5");
    struct stat info;
    int64_t noticed = 0, tried = 0;
    write_crowded(path);
    CHECK(stat(path, &info) == 0);
    int fd = open(path, O_RDWR);
    CHECK(fd >= 0);
    for (off_t at = 0; at < info.st_size; at += 11, tried++) {
      unsigned char was, now;
      wm_h5_t *f;
      wm_error_t err = {0};
      char *text = NULL;
      CHECK(pread(fd, &was, 1, at) == 1);
      now = was ^ (unsigned char)(1 + at % 255);
      CHECK(pwrite(fd, &now, 1, at) == 1);
      wm_status_t status = wm_h5_open(MPI_COMM_SELF, path, &f, &err);
      if (status == WM_OK)
        status = wm_h5_verify(f, &err);
      if (status == WM_OK) {
        CHECK_OK(wm_h5_get_string(f, "/", "set_7", &text, &err));
        CHECK(text[0] == 'a' + 7 - 0 && strlen(text) == 199);
      } else {
        CHECK(status == WM_INPUT);
        noticed++;
      }
      free(text);
      wm_h5_close(f);
      CHECK(pwrite(fd, &was, 1, at) == 1);
    }
    close(fd);
    CHECK(10 * noticed > 8 * tried);
    print_message("%lld of %lld changed bytes noticed\n", (long long)noticed, (long long)tried);
  }
  MPI_Barrier(comm->world);
}

/* A rank whose own work has failed makes all of them stop before a file is begun. */
static void test_agreement(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_status_t status = WM_OK;
  if (comm->rank == comm->size - 1)
    status = wm_fail(&err, WM_NUMERICAL, "rank %d is singular", comm->rank);
  char wanted[64];
  snprintf(wanted, sizeof wanted, "rank %d is singular", comm->size - 1);
  CHECK_FAILS(wm_agree(comm->world, status, &err), WM_NUMERICAL, wanted);
}

static void test_environment(void **state) {
  (void)state;
  wm_error_t err = {0};
  CHECK_OK(wm_h5_check_environment(&err));
}

int main(void) {
  for (int i = 0; i < N; i++)
    values[i] = 1.0 / (i + 1);
  if (getenv("WM_TEST_FULL_DISK") != NULL)
    cmocka_set_test_filter("test_full_disk*");
  signal(SIGXFSZ, SIG_IGN); /* write() beyond a limit then fails with EFBIG */
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_environment),
      cmocka_unit_test(test_agreement),
      cmocka_unit_test(test_corrupted_data),
      cmocka_unit_test(test_incomplete_data),
      cmocka_unit_test(test_abandoned),
      cmocka_unit_test(test_unwritable),
      cmocka_unit_test(test_damaged),
      cmocka_unit_test(test_any_byte),
      cmocka_unit_test(test_limits),
      cmocka_unit_test(test_write_error),
      cmocka_unit_test(test_full_disk),
      cmocka_unit_test(test_disk_usage),
      cmocka_unit_test(test_full_disk_of_spills),
  };
  return run_mpi_tests(tests, sizeof tests / sizeof tests[0]);
}
