/* Safetensors files: good ones, malformed ones, shards; conversion to float32. */
#include "test_io_scratch.h"

#include "wanamaker/io/safetensors.h"

#include <math.h>

/* A file that announces a header of `announced` bytes (< 0: as many as there are) and has `bytes`
 * bytes of data, byte i of which is 37 i. */
static void write_tensors(const char *name, const char *header, int64_t announced, size_t bytes) {
  size_t length = strlen(header);
  unsigned char file[4096];
  uint64_t n = announced < 0 ? length : (uint64_t)announced;
  assert_true(8 + length + bytes <= sizeof file);
  for (int i = 0; i < 8; i++)
    file[i] = (unsigned char)(n >> 8 * i);
  memcpy(file + 8, header, length);
  for (size_t i = 0; i < bytes; i++)
    file[8 + length + i] = (unsigned char)(37 * i);
  write_file(dir, name, file, 8 + length + bytes);
}

static const char good[] =
    "{\"__metadata__\":{},"
    "\"b\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},"
    "\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[24,26]},"
    "\"none\":{\"dtype\":\"I64\",\"shape\":[4,0],\"data_offsets\":[26,26]},"
    "\"mask\":{\"dtype\":\"BOOL\",\"shape\":[1,1,1,1,1,1,1,3],\"data_offsets\":[26,29]}}   ";

static void test_good(void **state) {
  (void)state;
  wm_tensors_t *t;
  wm_error_t err = {0};
  write_tensors("model.safetensors", good, -1, 29);
  assert_int_equal(wm_tensors_open(dir, &t, &err), WM_OK);
  assert_int_equal(wm_tensors_count(t), 4);
  static const char *const names[] = {"a", "b", "mask", "none"};
  for (int i = 0; i < 4; i++)
    assert_string_equal(wm_tensors_at(t, i)->name, names[i]);
  const wm_tensor_t *b = wm_tensors_find(t, "b"), *a = wm_tensors_find(t, "a");
  assert_int_equal(b->dtype, WM_DTYPE_F32);
  assert_int_equal(b->n_dims, 2);
  assert_int_equal(b->shape[0], 2);
  assert_int_equal(b->shape[1], 3);
  assert_int_equal(b->elements, 6);
  assert_int_equal(b->bytes, 24);
  assert_int_equal(((const unsigned char *)b->data)[23], (37 * 23) & 255);
  assert_int_equal(a->n_dims, 0);
  assert_int_equal(a->elements, 1);
  assert_int_equal(((const unsigned char *)a->data)[0], (37 * 24) & 255);
  assert_int_equal(wm_tensors_find(t, "none")->elements, 0);
  assert_int_equal(wm_tensors_find(t, "mask")->n_dims, 8);
  assert_null(wm_tensors_find(t, "c"));
  assert_non_null(strstr(a->file, "model.safetensors"));
  wm_tensors_close(t);
}

#define T(extra) "{\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}" extra "}"
#define X(fields) "{\"x\":{" fields "}}"
#define Y(begin, end)                                                                              \
  ",\"y\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" #begin "," #end "]}"

static void test_malformed(void **state) {
  (void)state;
  static const struct {
    const char *header;
    int64_t announced;
    size_t bytes;
    const char *message;
  } cases[] = {
      {T(""), 1 << 20, 8, "announces a header of 1048576 bytes, but only"},
      {T(""), INT64_MAX, 8, "at most 100000000"},
      {T(""), 20, 8, "not valid JSON"},
      {"", 0, 0, "must begin with '{'"},
      {"[]", -1, 0, "must begin with '{'"},
      {" {}", -1, 0, "must begin with '{'"},
      {"{}", -1, 5, "5 bytes follow the last tensor"},
      {T("} x"), -1, 8, "not valid JSON"},
      {T(",\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}"), -1, 8, "duplicate"},
      {T(",\"__metadata__\":[]"), -1, 8, "\"__metadata__\" must be an object"},
      {T(",\"__metadata__\":{\"k\":1}"), -1, 8, "\"k\" must be a string"},
      {T(",\"__metadata__\":{\"k\":{\"l\":\"\"}}"), -1, 8, "\"k\" must be a string"},
      {T(",\"__metadata__\":{\"k\":\"\",\"k\":\"\"}"), -1, 8, "duplicate"},
      {T(",\"__metadata__\":null"), -1, 8, "\"__metadata__\" must be an object"},
      {X("\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]"), -1, 2,
       "tensor \"x\": dtype F8_E4M3 is not supported"},
      {X("\"shape\":[2],\"data_offsets\":[0,8]"), -1, 8, "\"dtype\" must be a string"},
      {X("\"dtype\":\"F32\",\"data_offsets\":[0,8]"), -1, 8, "\"shape\" must be an array"},
      {X("\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,8]"), -1, 8, "\"shape\" must be"},
      {X("\"dtype\":\"F32\",\"shape\":{},\"data_offsets\":[0,8]"), -1, 8, "\"shape\" must be"},
      {X("\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]"), -1, 8, "not negative"},
      {X("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]"), -1, 8, "integers"},
      {X("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]"), -1, 8,
       "has 9 dimensions"},
      {X("\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,0]"), -1, 0,
       "passes 2^63"},
      {X("\"dtype\":\"U8\",\"shape\":[4294967296,4294967296,0],\"data_offsets\":[0,0]"), -1, 0,
       "passes 2^63"}, /* before the zero comes */
      {X("\"dtype\":\"F32\",\"shape\":[1e1],\"data_offsets\":[0,40]"), -1, 40, "integers"},
      {X("\"dtype\":\"F32\",\"shape\":[-0],\"data_offsets\":[0,4]"), -1, 4,
       "make 0 bytes, but data_offsets span 4"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0.0,8.0]"), -1, 8, "two integers"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[9223372036854775807,8]"), -1, 8,
       "[9223372036854775807, 8)"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-9223372036854775808,8]"), -1, 8,
       "[-9223372036854775808, 8)"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,18446744073709551624]"), -1, 8,
       "too big integer"},
      {X("\"dtype\":\"f32\",\"shape\":[2],\"data_offsets\":[0,8]"), -1, 8, "dtype f32 is not"},
      {X("\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[4,4]"), -1, 8,
       "begins at byte 4 of the data, where 0 is expected (a gap"}, /* empty, but not in place */
      {X("\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,0]"), -1, 0,
       "passes 2^63"},
      {X("\"dtype\":\"F32\",\"shape\":[99999999999999999999],\"data_offsets\":[0,0]"), -1, 0,
       "not valid JSON"},
      {X("\"dtype\":\"F32\",\"shape\":[2]"), -1, 8, "\"data_offsets\" must be"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0]"), -1, 8, "\"data_offsets\" must"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]"), -1, 8, "\"data_offsets\""},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]"), -1, 8, "[-8, 0)"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), -1, 8, "[8, 0)"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]"), -1, 7, "is the file complete"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,9223372036854775807]"), -1, 8,
       "is the file complete"},
      {X("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,8]"), -1, 8,
       "make 12 bytes, but data_offsets span 8"},
      {"{\"x\":1}", -1, 0, "must be an object"},
      {T(Y(9, 13)), -1, 13,
       "tensor \"y\": begins at byte 9 of the data, where 8 is expected (a gap"},
      {T(Y(4, 8)), -1, 8, "tensors overlap"},
      {T(Y(8, 12)), -1, 14, "2 bytes follow the last tensor"},
      {X("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), -1, 12, "a gap"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    wm_tensors_t *t;
    wm_error_t err = {0};
    write_tensors("model.safetensors", cases[i].header, cases[i].announced, cases[i].bytes);
    assert_int_equal(wm_tensors_open(dir, &t, &err), WM_INPUT);
    assert_null(t);
    assert_message(err.message, cases[i].message);
    assert_message(err.message, "model.safetensors");
  }
  write_file(dir, "model.safetensors", "short", 5);
  wm_tensors_t *t;
  wm_error_t err = {0};
  assert_int_equal(wm_tensors_open(dir, &t, &err), WM_INPUT);
  assert_message(err.message, "holds 5 bytes");
}

/* The header may be padded with spaces, as the reference writes it, and with nothing else. */
static void test_padding(void **state) {
  (void)state;
  static const char header[] = T("");
  for (int pad = 0; pad < 3; pad++) {
    unsigned char file[8 + sizeof header - 1 + 4 + 8] = {0};
    size_t length = sizeof header - 1;
    file[0] = (unsigned char)(length + 4);
    memcpy(file + 8, header, length);
    memset(file + 8 + length, pad == 0 ? ' ' : pad == 1 ? '\0' : 'x', 4);
    write_file(dir, "model.safetensors", file, sizeof file);
    wm_tensors_t *t;
    wm_error_t err = {0};
    wm_status_t status = wm_tensors_open(dir, &t, &err);
    assert_int_equal(status, pad == 0 ? WM_OK : WM_INPUT);
    if (pad > 0)
      assert_message(err.message, ": not valid JSON: end of file expected");
    wm_tensors_close(t);
  }
}

static void test_nothing(void **state) {
  (void)state;
  wm_tensors_t *t;
  wm_error_t err = {0};
  char path[2 * PATH];
  unlink(join(path, dir, "model.safetensors"));
  assert_int_equal(wm_tensors_open(dir, &t, &err), WM_INPUT);
  assert_message(err.message, "neither model.safetensors nor model.safetensors.index.json");
  write_file(dir, "pytorch_model.bin", "", 0);
  assert_int_equal(wm_tensors_open(dir, &t, &err), WM_INPUT);
  assert_message(err.message, "pytorch_model.bin");
  assert_int_equal(wm_tensors_open(join(path, dir, "none"), &t, &err), WM_INPUT);
  assert_message(err.message, "no such directory");
}

#define ONE(name) "{\"" name "\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static wm_status_t open_sharded(const char *map, wm_tensors_t **t, wm_error_t *err) {
  char text[1024];
  snprintf(text, sizeof text, "{\"metadata\":{\"total_size\":8},\"weight_map\":%s}", map);
  write_file(dir, "model.safetensors.index.json", text, strlen(text));
  return wm_tensors_open(dir, t, err);
}

static void test_shards(void **state) {
  (void)state;
  wm_tensors_t *t;
  wm_error_t err = {0};
  char path[2 * PATH];
  unlink(join(path, dir, "model.safetensors"));
  write_tensors("1.safetensors", ONE("a"), -1, 4);
  write_tensors("2.safetensors", ONE("b"), -1, 4);
  write_tensors("again.safetensors", ONE("a"), -1, 4);
  assert_int_equal(open_sharded("{\"b\":\"2.safetensors\",\"a\":\"1.safetensors\"}", &t, &err),
                   WM_OK);
  assert_int_equal(wm_tensors_count(t), 2);
  assert_non_null(strstr(wm_tensors_find(t, "b")->file, "2.safetensors"));
  uint64_t sharded = wm_tensors_fingerprint(t);
  wm_tensors_close(t);

  static const struct {
    const char *map, *message;
  } cases[] = {
      {"{\"a\":\"1.safetensors\",\"b\":\"3.safetensors\"}", "3.safetensors: cannot open"},
      {"{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}", "\"c\" is not in 2.safetensors"},
      {"{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}", "\"a\" is in"},
      {"{\"a\":\"1.safetensors\",\"b\":\"again.safetensors\"}", "\"a\" is also in"},
      {"{\"a\":\"./1.safetensors\"}", "must name a file in the same directory"},
      {"{\"a\":\"\"}", "must name a file in the same directory"},
      {"{\"a\":\"..\"}", "is a directory"},
      {"{\"a\":\"../1.safetensors\"}", "must name a file in the same directory"},
      {"{\"a\":\"1.safetensors\",\"a\":\"2.safetensors\"}", "duplicate object key"},
      {"{\"b\":\"1.safetensors\"}", "\"b\" is not in 1.safetensors"},
      {"{\"a\":1}", "must be a string"},
      {"{}", "\"weight_map\" must be"},
      {"[]", "\"weight_map\" must be"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    assert_int_equal(open_sharded(cases[i].map, &t, &err), WM_INPUT);
    assert_message(err.message, cases[i].message);
    assert_message(err.message, "model.safetensors.index.json");
  }
  /* The same tensors in one file have the same fingerprint; other data have another. */
  static const char both[] = "{\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]},"
                             "\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}";
  write_tensors("model.safetensors", both, -1, 8);
  assert_int_equal(wm_tensors_open(dir, &t, &err), WM_OK);
  assert_int_not_equal(wm_tensors_fingerprint(t), sharded); /* b's bytes differ */
  wm_tensors_close(t);
  unsigned char file[8 + sizeof both - 1 + 8] = {sizeof both - 1};
  memcpy(file + 8, both, sizeof both - 1);
  for (int i = 0; i < 8; i++)
    file[8 + sizeof both - 1 + i] = (unsigned char)(37 * (i % 4));
  write_file(dir, "model.safetensors", file, sizeof file);
  assert_int_equal(wm_tensors_open(dir, &t, &err), WM_OK);
  assert_int_equal(wm_tensors_fingerprint(t), sharded);
  wm_tensors_close(t);
}

/* The fingerprint of a large tensor sees every byte: its first, its last, one in between. */
static void test_fingerprint_large(void **state) {
  (void)state;
  static const char header[] =
      "{\"x\":{\"dtype\":\"U8\",\"shape\":[3000000],\"data_offsets\":[0,3000000]}}";
  enum { BYTES = 3000000, HEAD = 8 + sizeof header - 1 };
  unsigned char *file = calloc(1, HEAD + BYTES);
  uint64_t prints[4];
  file[0] = sizeof header - 1;
  memcpy(file + 8, header, sizeof header - 1);
  for (int i = 0; i < 4; i++) {
    wm_tensors_t *t;
    wm_error_t err = {0};
    file[HEAD] = i == 1;
    file[HEAD + BYTES - 1] = i == 2;
    file[HEAD + 1234567] = i == 3;
    write_file(dir, "model.safetensors", file, HEAD + BYTES);
    assert_int_equal(wm_tensors_open(dir, &t, &err), WM_OK);
    prints[i] = wm_tensors_fingerprint(t);
    wm_tensors_close(t);
  }
  free(file);
  for (int i = 1; i < 4; i++)
    assert_int_not_equal(prints[0], prints[i]);
}

/* By the definition of the format: (-1)^s 2^(e-15) 1.f, (-1)^s 2^-14 0.f. */
static double half_value(unsigned h) {
  int e = h >> 10 & 31, f = h & 1023;
  double m = e == 0 ? ldexp(f, -24) : e == 31 ? (f == 0 ? INFINITY : NAN) : ldexp(1024 + f, e - 25);
  return h & 0x8000 ? -m : m;
}

static void test_halves(void **state) {
  (void)state;
  enum { N = 65536 };
  unsigned char *bytes = malloc(2 * N + 1);
  float *out = malloc(N * sizeof *out), *single = malloc(N * sizeof *out);
  for (int shift = 0; shift < 2; shift++) { /* aligned and not */
    for (unsigned h = 0; h < N; h++) {
      bytes[shift + 2 * h] = (unsigned char)h;
      bytes[shift + 2 * h + 1] = (unsigned char)(h >> 8);
    }
    wm_to_f32(WM_DTYPE_F16, bytes + shift, N, out);
    for (int h = 0; h < N; h++) /* one at a time: the scalar path */
      wm_to_f32(WM_DTYPE_F16, bytes + shift + 2 * h, 1, single + h);
    for (unsigned h = 0; h < N; h++) {
      double wanted = half_value(h);
      if (isnan(wanted))
        assert_true(isnan(out[h]) && isnan(single[h]));
      else
        assert_true((double)out[h] == wanted && !signbit(out[h]) == !signbit(wanted));
      assert_memory_equal(&out[h], &single[h], sizeof(float));
    }
    wm_to_f32(WM_DTYPE_BF16, bytes + shift, N, out);
    for (uint32_t h = 0; h < N; h++) {
      uint32_t bits;
      memcpy(&bits, &out[h], sizeof bits);
      assert_int_equal(bits, h << 16);
    }
  }
  free(bytes);
  free(out);
  free(single);
}

static void test_wide(void **state) {
  (void)state;
  static const double in[] = {0.0, -0.0, 1.0 / 3, 1e300, -INFINITY, 0x1p-149, 0x1p-151};
  enum { N = sizeof in / sizeof in[0] };
  unsigned char bytes[sizeof in + 1];
  float out[N], again[N];
  memcpy(bytes + 1, in, sizeof in);
  wm_to_f32(WM_DTYPE_F64, bytes + 1, N, out);
  static const float wanted[] = {0.0f, -0.0f, 1.0f / 3, INFINITY, -INFINITY, 0x1p-149f, 0.0f};
  assert_memory_equal(out, wanted, sizeof wanted);
  memcpy(bytes + 1, wanted, sizeof wanted);
  wm_to_f32(WM_DTYPE_F32, bytes + 1, N, again);
  assert_memory_equal(again, wanted, sizeof wanted);
  wm_to_f32(WM_DTYPE_F16, NULL, 0, NULL);
}

/* More than one piece per thread, with a rest. */
static void test_long(void **state) {
  (void)state;
  enum { N = 200003 };
  uint16_t *in = malloc(N * sizeof *in);
  float *out = malloc(N * sizeof *out);
  for (int i = 0; i < N; i++)
    in[i] = (uint16_t)(i % 31744);
  wm_to_f32(WM_DTYPE_F16, in, N, out);
  for (int i = 0; i < N; i++)
    assert_true((double)out[i] == half_value(in[i]));
  free(in);
  free(out);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_good),    cmocka_unit_test(test_malformed),
      cmocka_unit_test(test_padding), cmocka_unit_test(test_nothing),
      cmocka_unit_test(test_shards),  cmocka_unit_test(test_fingerprint_large),
      cmocka_unit_test(test_halves),  cmocka_unit_test(test_wide),
      cmocka_unit_test(test_long),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
