/* The checksum of datasets against its definition, and how hyperslabs are cut. */
#include "test_io_common.h"

#include "../../src/io/checksum.h"
#include "../../src/io/hdf5_private.h"

static uint64_t mix(uint64_t x) {
  x ^= x >> 30;
  x *= UINT64_C(0xbf58476d1ce4e5b9);
  x ^= x >> 27;
  x *= UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* Word for word what hdf5.h says. */
static uint64_t definition(const unsigned char *data, int64_t size, int64_t count) {
  int64_t words = (size + 7) / 8;
  uint64_t sum = 0;
  for (int64_t k = 0; k < count; k++)
    for (int64_t j = 0; j < words; j++) {
      uint64_t w = 0;
      for (int64_t i = 8 * j; i < size && i < 8 * j + 8; i++)
        w |= (uint64_t)data[k * size + i] << 8 * (i - 8 * j);
      sum += mix((uint64_t)(k * words + j + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ w);
    }
  return sum;
}

enum { BYTES = 24 * 315 };
static unsigned char data[BYTES];

static int setup(void **state) {
  (void)state;
  for (int i = 0; i < BYTES; i++)
    data[i] = (unsigned char)(i * 131 + i / 7);
  return 0;
}

static void test_definition(void **state) {
  (void)state;
  for (int64_t size = 1; size <= 24; size++)
    for (int64_t count = 0; count <= 315; count += 63)
      assert_true(wm_checksum_run(data, size, 0, count) == definition(data, size, count));
}

/* A change of one bit, and an exchange of two elements, change the sum. */
static void test_sensitivity(void **state) {
  (void)state;
  unsigned char copy[64];
  memcpy(copy, data, sizeof copy);
  uint64_t sum = wm_checksum_run(copy, 4, 0, 16);
  for (int bit = 0; bit < 512; bit++) {
    copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
    assert_false(wm_checksum_run(copy, 4, 0, 16) == sum);
    copy[bit / 8] ^= (unsigned char)(1 << bit % 8);
  }
  for (int i = 0; i < 4; i++) {
    copy[i] = data[4 + i];
    copy[4 + i] = data[i];
  }
  assert_false(wm_checksum_run(copy, 4, 0, 16) == sum);
  static const unsigned char zeros[64];
  assert_false(wm_checksum_run(zeros, 4, 0, 16) == 0); /* what was never written is no match */
}

/* Cuts of an array in four dimensions: the pieces' sums add up to the whole's. */
static void test_pieces(void **state) {
  (void)state;
  static const int64_t dims[4] = {3, 5, 3, 7}, zero[4] = {0};
  enum { N = 315 };
  uint64_t whole = definition(data, 6, N);
  assert_true(wm_checksum_slab(data, 6, 4, dims, zero, dims) == whole);
  for (int64_t most = 1; most <= N + 1; most++) {
    wm_h5_cut_t cut = wm_h5_cut(4, dims, most);
    uint64_t sum = 0;
    int64_t elements = 0;
    for (int64_t k = 0; k < cut.pieces; k++) {
      int64_t offset[4], extent[4];
      assert_int_equal(wm_h5_piece(&cut, k, offset, extent), elements); /* contiguous, in order */
      int64_t n = wm_h5_elements(4, extent);
      assert_true(n >= 1 && n <= most);
      sum += wm_checksum_slab(data + 6 * elements, 6, 4, dims, offset, extent);
      elements += n;
    }
    assert_int_equal(elements, N);
    assert_true(sum == whole);
  }
}

/* Slabs that are not contiguous: every cell of a grid of cuts, copied out and summed. */
static void test_slabs(void **state) {
  (void)state;
  static const int64_t dims[3] = {9, 5, 7};
  static const int64_t cuts[3][4] = {{0, 2, 3, 9}, {0, 1, 4, 5}, {0, 3, 6, 7}};
  uint64_t sum = 0;
  for (int a = 0; a < 27; a++) {
    int64_t offset[3], count[3];
    for (int d = 0, r = a; d < 3; d++, r /= 3) {
      offset[d] = cuts[d][r % 3];
      count[d] = cuts[d][r % 3 + 1] - offset[d];
    }
    uint32_t packed[315], *to = packed;
    for (int64_t i = 0; i < count[0]; i++)
      for (int64_t j = 0; j < count[1]; j++)
        for (int64_t k = 0; k < count[2]; k++)
          memcpy(to++,
                 data + 4 * (((offset[0] + i) * dims[1] + offset[1] + j) * dims[2] + offset[2] + k),
                 4);
    sum += wm_checksum_slab(packed, 4, 3, dims, offset, count);
  }
  assert_true(sum == definition(data, 4, 315));
}

static void test_empty(void **state) {
  (void)state;
  static const int64_t dims[2] = {5, 0}, zero[2] = {0};
  assert_int_equal(wm_h5_cut(2, dims, 10).pieces, 0);
  assert_true(wm_checksum_slab(data, 4, 2, dims, zero, dims) == 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_definition), cmocka_unit_test(test_sensitivity),
      cmocka_unit_test(test_pieces),     cmocka_unit_test(test_slabs),
      cmocka_unit_test(test_empty),
  };
  return cmocka_run_group_tests(tests, setup, NULL);
}
