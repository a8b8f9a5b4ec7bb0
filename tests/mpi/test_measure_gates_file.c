/* gates.h5: what is written is read back, and files that must be refused. */
#include "test_io_mpi.h"

#include "wanamaker/measure/gates.h"

#include <math.h>

enum { LAYERS = 5, D = 6, K = 3 };

static const char *file_name(const char *name) {
  static char path[2 * PATH];
  return join(path, dir, name);
}

/* A set with a gate of every kind at layers 1 and 3; layer 3 has no scaler and no PCA. */
static wm_gates_t *make_set(void) {
  static double numbers[K * D];
  wm_gates_t *s;
  wm_error_t err = {0};
  for (int i = 0; i < K * D; i++)
    numbers[i] = 0.1 * (i + 1);
  CHECK_OK(wm_gates_create(LAYERS, D, K, &s, &err));
  for (int64_t layer = 1; layer < 4; layer += 2) {
    wm_gate_layer_t l = {.layer = layer,
                         .positions = 100 + layer,
                         .positions_heldout = 50,
                         .dropped = 2,
                         .dropped_heldout = 1,
                         .label_threshold = 0.01,
                         .label_share = 0.5,
                         .better_share = 0.25,
                         .label_quartile = layer == 3,
                         .selected = -1,
                         .selected_threshold = NAN};
    if (layer == 1) {
      l.mean = l.scale = l.components = l.variance = numbers;
      l.selected = 2;
      l.selected_threshold = 0.75;
    }
    CHECK_OK(wm_gates_add_layer(s, &l, &err));
    for (int k = 0; k < WM_GATE_KINDS; k++) {
      wm_gate_t g = {.layer = layer,
                     .kind = (wm_gate_kind_t)k,
                     .bias = -1.5,
                     .scale = 2,
                     .fraction = 0.375,
                     .seed = UINT64_MAX - 3,
                     .threshold = 0.5};
      g.weight = wm_gate_has_weight(g.kind) ? numbers + k : NULL;
      g.components = g.kind == WM_GATE_PCA ? K : g.kind == WM_GATE_COMPONENT ? 2 : 0;
      g.coefficient = g.components > 0 ? numbers : NULL;
      g.report =
          (wm_gate_report_t){.parameters = k, .iterations = 5, .auc = 0.8, .note = "one class"};
      g.report.auc_heldout = NAN;
      CHECK_OK(wm_gates_add(s, &g, &err));
    }
  }
  return s;
}

static bool same(double a, double b) {
  return a == b || (isnan(a) && isnan(b));
}

static bool same_array(const double *a, const double *b, int64_t n) {
  if (a == NULL || b == NULL)
    return a == b;
  return memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static void compare_layers(const wm_gate_layer_t *a, const wm_gate_layer_t *b) {
  CHECK(a->layer == b->layer && a->positions == b->positions &&
        a->positions_heldout == b->positions_heldout && a->dropped == b->dropped &&
        a->dropped_heldout == b->dropped_heldout && a->label_quartile == b->label_quartile);
  CHECK(same(a->label_threshold, b->label_threshold) && same(a->label_share, b->label_share) &&
        same(a->better_share, b->better_share));
  CHECK(a->selected == b->selected && same(a->selected_threshold, b->selected_threshold));
  CHECK(same_array(a->mean, b->mean, D) && same_array(a->scale, b->scale, D) &&
        same_array(a->components, b->components, K * D) && same_array(a->variance, b->variance, K));
}

static void compare_gates(const wm_gate_t *a, const wm_gate_t *b) {
  const wm_gate_report_t *p = &a->report, *q = &b->report;
  CHECK(a->layer == b->layer && a->kind == b->kind && a->components == b->components);
  CHECK(a->bias == b->bias && a->scale == b->scale && a->fraction == b->fraction &&
        a->seed == b->seed && a->threshold == b->threshold);
  CHECK(same_array(a->weight, b->weight, D));
  CHECK(same_array(a->coefficient, b->coefficient, a->kind == WM_GATE_PCA ? K : 1));
  CHECK(p->parameters == q->parameters && p->iterations == q->iterations && p->auc == q->auc &&
        same(p->auc_heldout, q->auc_heldout) && strcmp(p->note, q->note) == 0);
}

static void write_set(const wm_gates_t *s) {
  wm_error_t err = {0};
  wm_h5_t *file;
  CHECK_OK(wm_h5_create(comm->world, file_name("g.h5"), &file, &err));
  CHECK_OK(wm_gates_write(s, comm, file, &err));
  CHECK_OK(wm_h5_publish(file, &err));
}

static void test_round_trip(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_gates_t *s = make_set(), *back;
  write_set(s);
  CHECK_OK(wm_gates_open(comm, file_name("g.h5"), LAYERS, D, &back, &err));
  CHECK(back->n == s->n && back->n_described == s->n_described && back->k == K && back->d == D);
  for (int64_t i = 0; i < s->n_described; i++)
    compare_layers(&s->layers[i], &back->layers[i]);
  for (int64_t g = 0; g < s->n; g++)
    compare_gates(&s->gates[g], &back->gates[g]);
  CHECK(wm_gates_fingerprint(s) == wm_gates_fingerprint(back));
  wm_gates_free(s);
  wm_gates_free(back);
}

/* Without PCA, and without any gate. */
static void test_empty(void **state) {
  (void)state;
  wm_error_t err = {0};
  wm_gates_t *s, *back;
  CHECK_OK(wm_gates_create(LAYERS, D, 0, &s, &err));
  write_set(s);
  CHECK_OK(wm_gates_open(comm, file_name("g.h5"), LAYERS, D, &back, &err));
  CHECK(back->n == 0 && back->n_described == 0 && back->k == 0);
  wm_gates_free(s);
  wm_gates_free(back);
}

static void refuse(const wm_gates_t *s, int64_t n_layers, int64_t d, const char *words) {
  wm_error_t err = {0};
  wm_gates_t *back;
  write_set(s);
  CHECK_FAILS(wm_gates_open(comm, file_name("g.h5"), n_layers, d, &back, &err), WM_INPUT, words);
  CHECK(back == NULL && strstr(err.message, "g.h5") != NULL);
}

/* Sets that could not have been added, by writing over a good one's members. */
static void test_refused(void **state) {
  (void)state;
  wm_gates_t *s = make_set();
  refuse(s, LAYERS, D + 1, "gates of width 6, but the model's is 7");
  refuse(s, 3, D, "layer 3");
  ((double *)s->gates[0].weight)[D - 1] = NAN;
  refuse(s, LAYERS, D, "gate 0 (linear, layer 1): a weight is not finite");
  ((double *)s->gates[0].weight)[D - 1] = 1;
  s->gates[1].layer = 0;
  refuse(s, LAYERS, D, "gate 1 (pca, layer 0): its layer was not described");
  s->gates[1].layer = 1;
  s->gates[3].threshold = -0.5;
  refuse(s, LAYERS, D, "gate 3 (norm, layer 1): its threshold");
  s->gates[3].threshold = 0.5;
  s->layers[0].selected = 2 * WM_GATE_KINDS - 1;
  refuse(s, LAYERS, D, "/selected/gate[0]");
  s->layers[0].selected = s->n;
  refuse(s, LAYERS, D, "/selected/gate[0]");
  wm_gates_free(s);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_round_trip),
                                     cmocka_unit_test(test_empty), cmocka_unit_test(test_refused)};
  return run_mpi_tests(tests, 3);
}
