/* Files of surrogates that must be refused: each is a good one with one thing changed, and right
 * checksums. */
#include "test_io_mpi.h"

#include "wanamaker/measure/surrogates.h"

#include <math.h>

enum { LAYERS = 3, D = 4, ROWS = 16 };

typedef struct {
  int64_t shape[3], bias[2], entries; /* of /weight, /bias and the tables */
  int64_t layers[2];
  float weight; /* the last of layer 1 */
  hid_t type;   /* of /weight in the file */
  const char *missing, *message;
} fault_t;

static const char *const TABLES[] = {"/layers", "/fit/r2", "/fit/r2_heldout"};

static const char *file_name(const char *name) {
  static char path[2 * PATH];
  return join(path, dir, name);
}

static void dataset(wm_h5_t *f, const fault_t *x, const char *name, hid_t type, hid_t memory,
                    int n_dims, const int64_t *dims, const void *data) {
  wm_error_t err = {0};
  int64_t zero[3] = {0}, count[3] = {0};
  if (x->missing != NULL && strcmp(name, x->missing) == 0)
    return;
  for (int i = 0; i < n_dims; i++)
    count[i] = i > 0 || comm->rank == 0 ? dims[i] : 0;
  CHECK_OK(wm_h5_dataset(f, name, type, n_dims, dims, "", &err));
  CHECK_OK(wm_h5_write(f, name, memory, zero, count, data, &err));
}

static void write_fault(const fault_t *x) {
  static float weight[LAYERS * (D + 1) * (D + 1)], bias[LAYERS * (D + 1)];
  static const double r2[3] = {0.5, 0.25, 0.125};
  const int64_t layers[3] = {x->layers[0], x->layers[1], 0};
  wm_h5_t *f;
  wm_error_t err = {0};
  weight[2 * D * D - 1] = x->weight;
  CHECK_OK(wm_h5_create(comm->world, file_name("s.h5"), &f, &err));
  hid_t memory = x->type == H5T_STD_I32LE ? H5T_NATIVE_INT32 : H5T_NATIVE_FLOAT;
  dataset(f, x, "/weight", x->type, memory, 3, x->shape, weight);
  dataset(f, x, "/bias", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 2, x->bias, bias);
  dataset(f, x, TABLES[0], H5T_STD_I64LE, H5T_NATIVE_INT64, 1, &x->entries, layers);
  for (int i = 1; i < 3; i++)
    dataset(f, x, TABLES[i], H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, 1, &x->entries, r2);
  CHECK_OK(wm_h5_publish(f, &err));
}

static void test_refused(void **state) {
  (void)state;
  const fault_t good = {{2, D, D}, {2, D}, 2, {0, 2}, 1, H5T_IEEE_F32LE, NULL, NULL};
  fault_t faults[20], *x = faults;
#define FAULT(change, words)                                                                       \
  do {                                                                                             \
    *x = good;                                                                                     \
    x->message = (words);                                                                          \
    x->change;                                                                                     \
    x++;                                                                                           \
  } while (0)
  FAULT(weight = 2, NULL);
  FAULT(type = H5T_IEEE_F32BE, NULL); /* HDF5 converts */
  FAULT(shape[1] = D + 1, "/weight is [2, 5, 4], but the model has 3 layers of width 4");
  FAULT(shape[0] = LAYERS + 1, "/weight is [4, 4, 4]");
  FAULT(bias[0] = 3, "/bias does not fit /weight");
  FAULT(bias[1] = 3, "/bias does not fit /weight");
  FAULT(entries = 3, "/layers has 3 entries, expected 2");
  FAULT(layers[1] = 0, "/layers[1] = 0 is repeated or out of range");
  FAULT(layers[1] = LAYERS, "/layers[1] = 3 is repeated or out of range");
  FAULT(layers[0] = -1, "/layers[0] = -1 is repeated or out of range");
  FAULT(weight = NAN, "not finite in float32 (element 31)");
  FAULT(weight = INFINITY, "not finite in float32 (element 31)");
  FAULT(type = H5T_STD_I32LE, "/weight");
  FAULT(missing = "/weight", "/weight");
  FAULT(missing = "/bias", "/bias");
  FAULT(missing = TABLES[0], "/layers");
  FAULT(missing = TABLES[2], "/fit/r2_heldout");
  for (const fault_t *f = faults; f < x; f++) {
    wm_surrogates_t *s = NULL;
    wm_error_t err = {0};
    write_fault(f);
    if (f->message == NULL) {
      CHECK_OK(
          wm_surrogates_open(comm, file_name("s.h5"), LAYERS, D, ROWS, WM_COMPUTE_F32, &s, &err));
      CHECK(wm_surrogates_has(s, 0) && !wm_surrogates_has(s, 1) && wm_surrogates_has(s, 2));
      wm_surrogates_close(s);
      continue;
    }
    CHECK_FAILS(
        wm_surrogates_open(comm, file_name("s.h5"), LAYERS, D, ROWS, WM_COMPUTE_F32, &s, &err),
        WM_INPUT, f->message);
    CHECK(s == NULL && strstr(err.message, "s.h5") != NULL);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_refused)};
  return run_mpi_tests(tests, 1);
}
