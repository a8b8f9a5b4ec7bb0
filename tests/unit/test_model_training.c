/* Promises of the training pass other than that its gradients are right. */
#include "training_fixture.h"

#include "row_order.h"

#include <omp.h>

static const training_spec_t specs[] = {
    {WM_FAMILY_GPT2, "fgsf", 3, 39, 41, 97, 70, true, false, "gelu_new"},
    {WM_FAMILY_GPT_NEOX, "fsgf", 3, 36, 41, 97, 70, false, true, "gelu"},
    {WM_FAMILY_GPT_NEOX, "gf", 2, 24, 33, 50, 70, false, false, "silu"},
};
enum { N_SPECS = sizeof specs / sizeof *specs, N_SEQUENCES = 4 };
static const int64_t lengths[N_SEQUENCES] = {65, 1, 70, 33};

static const wm_training_options_t with_dropout = {.trainable = EVERYTHING,
                                                   .gate_hidden = 7,
                                                   .seed = 5,
                                                   .drop_embedding = 0.1,
                                                   .drop_attention = 0.1,
                                                   .drop_residual = 0.1,
                                                   .max_rows = 169,
                                                   .max_length = 70};

static trainee_t make(const wm_comm_t *comm, const training_spec_t *spec,
                      wm_training_options_t options) {
  return make_trainee(comm, spec, options, 48, 32);
}

/* Sums of losses and gates of the batch's sequences, added to what nll and gate hold. */
static void accumulate(wm_training_t *training, const test_batch_t *b, double *nll, double *gate) {
  wm_error_t err = {0};
  wm_training_result_t result = {nll, gate};
  check(wm_training_accumulate(training, &b->batch, NULL, &result, &err), &err);
}

static float *copy_gradients(wm_training_t *training, int64_t *count) {
  const float *g = wm_training_gradients(training, count);
  float *copy = array(*count, sizeof *copy);
  memcpy(copy, g, (size_t)*count * sizeof *copy);
  return copy;
}

static void same_gradients(wm_training_t *training, const float *expected, int64_t count) {
  int64_t n;
  const float *g = wm_training_gradients(training, &n);
  assert_int_equal(n, count);
  assert_memory_equal(g, expected, (size_t)n * sizeof *g);
}

static void targets_of_next_tokens(test_batch_t *b) {
  for (int64_t s = 0; s < b->batch.rows.n_sequences; s++)
    for (int64_t i = b->starts[s]; i < b->starts[s + 1]; i++)
      b->targets[i] = i + 1 < b->starts[s + 1] ? b->ids[i + 1] : -1;
}

/* Without dropout, losses are those of model.h, bit for bit. */
static void losses_are_the_models(void **state) {
  skip_if_blas_tells_rows_apart();
  for (int i = 0; i < N_SPECS; i++) {
    training_spec_t spec = specs[i];
    spec.paths = "fff";
    wm_training_options_t options = with_dropout;
    options.drop_embedding = options.drop_attention = options.drop_residual = 0;
    trainee_t t = make(*state, &spec, options);
    test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, spec.v);
    targets_of_next_tokens(&b);
    pass_t pass = run_model(t.model, &b.batch.rows, b.ids);
    double sums[N_SEQUENCES], *nll = array(pass.n, sizeof *nll);
    wm_error_t err = {0};
    check(wm_training_evaluate(t.training, &b.batch, false, nll, NULL, &err), &err);
    assert_memory_equal(nll, pass.nll, (size_t)pass.n * sizeof *nll);
    accumulate(t.training, &b, sums, NULL);
    for (int s = 0; s < N_SEQUENCES; s++) {
      double sum = 0;
      for (int64_t j = b.starts[s]; j < b.starts[s + 1]; j++)
        sum += pass.nll[j];
      assert_true(sum == sums[s]);
    }
    free(nll);
    pass_free(&pass);
    free_batch(&b);
    free_trainee(&t);
  }
}

static void checkpointing_changes_no_bit(void **state) {
  for (int i = 0; i < N_SPECS; i++) {
    wm_training_options_t options = with_dropout;
    double nll[2][N_SEQUENCES], gate[2][N_SEQUENCES];
    int64_t count, saved[2];
    float *kept = NULL;
    test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, specs[i].v);
    for (int k = 0; k < 2; k++) {
      options.checkpointing = k == 1;
      trainee_t t = make(*state, &specs[i], options);
      wm_training_options_t asked = options;
      asked.paths = t.paths;
      saved[k] = wm_training_saved_bytes(t.model, &asked);
      accumulate(t.training, &b, nll[k], gate[k]);
      if (k == 0)
        kept = copy_gradients(t.training, &count);
      else
        same_gradients(t.training, kept, count);
      free_trainee(&t);
    }
    assert_memory_equal(nll[0], nll[1], sizeof nll[0]);
    assert_memory_equal(gate[0], gate[1], sizeof gate[0]);
    /* A layer's input: whole tiles of rows, and nothing else. */
    assert_int_equal(saved[1], (int64_t)strlen(specs[i].paths) * 192 * specs[i].d * 4);
    assert_true(saved[0] > 5 * saved[1]);
    free(kept);
    free_batch(&b);
  }
}

/* Logits that are computed twice are those that are kept. */
static void keeping_logits_changes_no_bit(void **state) {
  for (int i = 0; i < N_SPECS; i++) {
    wm_training_options_t options = with_dropout;
    double nll[2][N_SEQUENCES];
    int64_t count, scratch[2];
    float *kept = NULL;
    test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, specs[i].v);
    for (int k = 0; k < 2; k++) {
      options.logits_bytes = k; /* 0: the default, which is enough */
      trainee_t t = make(*state, &specs[i], options);
      scratch[k] = wm_training_scratch_bytes(t.model, &options);
      accumulate(t.training, &b, nll[k], NULL);
      if (k == 0)
        kept = copy_gradients(t.training, &count);
      else
        same_gradients(t.training, kept, count);
      free_trainee(&t);
    }
    assert_memory_equal(nll[0], nll[1], sizeof nll[0]);
    assert_true(scratch[0] > scratch[1]);
    free(kept);
    free_batch(&b);
  }
}

static void equal_threads_give_equal_bits(void **state) {
  for (int threads = 1; threads <= 3; threads++) {
    omp_set_num_threads(threads);
    trainee_t t = make(*state, &specs[2], with_dropout);
    test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, specs[2].v);
    double nll[N_SEQUENCES];
    int64_t count;
    accumulate(t.training, &b, nll, NULL);
    float *first = copy_gradients(t.training, &count);
    wm_training_zero(t.training);
    accumulate(t.training, &b, nll, NULL);
    same_gradients(t.training, first, count);
    free(first);
    free_batch(&b);
    free_trainee(&t);
  }
  omp_set_num_threads(1);
}

/* One batch of four sequences, or two of two: the same bits, but for a tied embedding. */
static void batches_do_not_matter(void **state) {
  skip_if_blas_tells_rows_apart();
  for (int i = 0; i < N_SPECS; i++) {
    trainee_t t = make(*state, &specs[i], with_dropout);
    test_batch_t all = make_batch(4, lengths, 0, specs[i].v);
    test_batch_t parts[] = {make_batch(2, lengths, 0, specs[i].v),
                            make_batch(2, lengths + 2, 2, specs[i].v)};
    double nll[N_SEQUENCES], split[N_SEQUENCES], gate[N_SEQUENCES], gates[N_SEQUENCES];
    int64_t count, n;
    accumulate(t.training, &all, nll, gate);
    float *whole = copy_gradients(t.training, &count);
    wm_training_zero(t.training);
    accumulate(t.training, &parts[0], split, gates);
    accumulate(t.training, &parts[1], split + 2, gates + 2);
    assert_memory_equal(nll, split, sizeof nll);
    assert_memory_equal(gate, gates, sizeof gate);
    const wm_parameter_t *p = wm_training_parameters(t.training, &n);
    const float *g = wm_training_gradients(t.training, &count);
    for (int64_t k = 0; k < n; k++)
      if (p[k].gradient != NULL && !(specs[i].tied && p[k].group == WM_GROUP_TOKENS))
        assert_memory_equal(p[k].gradient, whole + (p[k].gradient - g),
                            (size_t)p[k].elements * sizeof *g);
    free(whole);
    free_batch(&all), free_batch(&parts[0]), free_batch(&parts[1]);
    free_trainee(&t);
  }
}

/* What the hook saw. */
typedef struct {
  wm_training_t *training;
  int64_t next, floats, pauses;
  float *seen;
} hook_t;

static wm_status_t see(void *context, int64_t segment, float *gradients, int64_t count,
                       wm_error_t *err) {
  hook_t *h = context;
  int64_t first, n, total;
  (void)err;
  assert_int_equal(segment, h->next++);
  wm_training_segment(h->training, segment, &first, &n);
  assert_int_equal(n, count);
  assert_int_equal(first, h->floats);
  assert_ptr_equal(gradients, wm_training_gradients(h->training, &total) + first);
  memcpy(h->seen + first, gradients, (size_t)count * sizeof *gradients);
  h->floats += count;
  return WM_OK;
}

static void pause_between(void *context) {
  hook_t *h = context;
  h->pauses++;
}

static wm_status_t refuse(void *context, int64_t segment, float *gradients, int64_t count,
                          wm_error_t *err) {
  (void)context, (void)gradients, (void)count;
  return segment == 1 ? wm_fail(err, WM_NUMERICAL, "no further") : WM_OK;
}

static void hook_sees_final_gradients(void **state) {
  for (int i = 0; i < N_SPECS; i++) {
    trainee_t t = make(*state, &specs[i], with_dropout);
    test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, specs[i].v);
    double nll[N_SEQUENCES];
    wm_training_result_t result = {nll, NULL};
    int64_t count;
    wm_error_t err = {0};
    wm_training_gradients(t.training, &count);
    hook_t h = {.training = t.training, .seen = array(count, sizeof(float))};
    const wm_training_hook_t hook = {see, pause_between, &h}, stop = {refuse, NULL, NULL};
    check(wm_training_accumulate(t.training, &b.batch, &hook, &result, &err), &err);
    assert_int_equal(h.next, wm_training_segments(t.training));
    assert_int_equal(h.floats, count);
    assert_true(h.pauses >= wm_model_arch(t.model)->n_layers);
    same_gradients(t.training, h.seen, count);
    assert_int_equal(wm_training_accumulate(t.training, &b.batch, &stop, &result, &err),
                     WM_NUMERICAL);
    assert_string_equal(err.message, "no further");
    free(h.seen);
    free_batch(&b);
    free_trainee(&t);
  }
}

/* Every tensor of the model is in the table once, and what is written there is what is computed
 * with. */
static void parameters_are_the_models(void **state) {
  for (int i = 0; i < N_SPECS; i++) {
    trainee_t t = make(*state, &specs[i], with_dropout);
    test_batch_t b = make_batch(1, lengths, 0, specs[i].v);
    targets_of_next_tokens(&b);
    pass_t before = run_model(t.model, &b.batch.rows, b.ids);
    int64_t count, elements = 0, last = 0;
    const wm_parameter_t *p = wm_training_parameters(t.training, &count);
    for (int64_t k = 0; k < count; k++) {
      assert_true(p[k].segment >= last);
      last = p[k].segment;
      if (p[k].group == WM_GROUP_GATES)
        continue;
      elements += p[k].elements;
      float old = p[k].value[p[k].elements / 2];
      memset(p[k].value, 0, (size_t)p[k].elements * sizeof old);
      pass_t after = run_model(t.model, &b.batch.rows, b.ids);
      assert_true(memcmp(before.nll, after.nll, (size_t)before.n * sizeof *before.nll) != 0);
      pass_free(&after);
      free_trainee(&t);
      t = make(*state, &specs[i], with_dropout);
      p = wm_training_parameters(t.training, &count);
    }
    assert_int_equal(elements, wm_model_parameters(t.model));
    pass_free(&before);
    free_batch(&b);
    free_trainee(&t);
  }
}

static void set_gate(wm_training_t *training, float bias) {
  int64_t count;
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++)
    if (p[i].group == WM_GROUP_GATES) {
      memset(p[i].value, 0, (size_t)p[i].elements * sizeof bias);
      if (strstr(p[i].name, ".b2") != NULL)
        p[i].value[0] = bias;
    }
}

/* Hard gates that are open everywhere give the model, closed ones that with surrogates. */
static void hard_gates_decide(void **state) {
  training_spec_t spec = specs[0];
  double *nll[4];
  test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, spec.v);
  int64_t n = b.starts[N_SEQUENCES];
  static const char *const paths[] = {"fff", "fsf", "fgf", "fgf"};
  for (int k = 0; k < 4; k++) {
    spec.paths = paths[k];
    trainee_t t = make(*state, &spec, with_dropout);
    wm_error_t err = {0};
    float *g = array(n, sizeof *g);
    nll[k] = array(n, sizeof **nll);
    set_gate(t.training, k == 2 ? 0.1f : -0.1f);
    check(wm_training_evaluate(t.training, &b.batch, true, nll[k], g, &err), &err);
    for (int64_t i = 0; i < n && k >= 2; i++)
      assert_true(fabs((double)g[i] - 1 / (1 + exp(k == 2 ? -0.1 : 0.1))) < 1e-7);
    free(g);
    free_trainee(&t);
  }
  assert_memory_equal(nll[2], nll[0], (size_t)n * sizeof **nll);
  assert_memory_equal(nll[3], nll[1], (size_t)n * sizeof **nll);
  assert_true(memcmp(nll[0], nll[1], (size_t)n * sizeof **nll) != 0);
  for (int k = 0; k < 4; k++)
    free(nll[k]);
  free_batch(&b);
}

/* As the study's: closed but for sigmoid(-3), whatever the input. */
static void gates_start_nearly_closed(void **state) {
  char *dir = model_directory();
  write_training_model(dir, &specs[0]);
  const wm_model_options_t kind = {.tile_rows = 48, .tile_vocab = 32, .writable = true};
  wm_training_options_t options = with_dropout;
  wm_model_t *model;
  wm_training_t *training;
  wm_error_t err = {0};
  float *memory;
  wm_layer_path_t *paths = make_paths(&specs[0], &memory);
  options.paths = paths;
  check(wm_model_open(*state, dir, &kind, NULL, &model, &err), &err);
  check(wm_training_create(model, &options, &training, &err), &err);
  test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, specs[0].v);
  int64_t n = b.starts[N_SEQUENCES], count;
  float *g = array(n, sizeof *g);
  double *nll = array(n, sizeof *nll), sum = 0;
  check(wm_training_evaluate(training, &b.batch, false, nll, g, &err), &err);
  for (int64_t i = 0; i < n; i++)
    assert_true(fabs((double)g[i] - 1 / (1 + exp(3))) < 1e-8);
  const wm_parameter_t *p = wm_training_parameters(training, &count);
  for (int64_t i = 0; i < count; i++)
    for (int64_t j = 0; strcmp(p[i].name, "gate.1.w1") == 0 && j < p[i].elements; j++) {
      assert_true(fabs((double)p[i].value[j]) <= 1 / sqrt(39));
      sum += pow((double)p[i].value[j], 2) / (double)p[i].elements;
    }
  assert_true(fabs(sum * 39 * 3 - 1) < 0.2); /* the variance of a uniform number */
  free(g), free(nll), free(paths), free(memory);
  free_batch(&b);
  wm_training_free(training);
  wm_model_close(model);
  remove_model_directory(dir);
}

/* Multipliers are 0 or 1 / (1 - rate), the latter with probability 1 - rate, and another draw for
 * anything that they are keyed by. */
static void masks_are_keyed(void **state) {
  (void)state;
  enum { UNITS = 40000 };
  const double rate = 0.3;
  float *base = array(UNITS, sizeof *base), *other = array(UNITS, sizeof *other);
  const wm_dropout_t d = wm_dropout_make(rate, 1, 2, 3, WM_DROP_MLP);
  int64_t kept = 0;
  wm_dropout_draw(&d, 4, 5, 0, UNITS, base);
  for (int i = 0; i < UNITS; i++) {
    assert_true(base[i] == 0 || base[i] == (float)(1 / 0.7));
    kept += base[i] != 0;
  }
  /* five standard deviations */
  assert_true(fabs((double)kept - 0.7 * UNITS) < 5 * sqrt(0.21 * UNITS));
  const wm_dropout_t keys[] = {d,
                               d,
                               wm_dropout_make(rate, 2, 2, 3, WM_DROP_MLP),
                               wm_dropout_make(rate, 1, 3, 3, WM_DROP_MLP),
                               wm_dropout_make(rate, 1, 2, 4, WM_DROP_MLP),
                               wm_dropout_make(rate, 1, 2, 3, WM_DROP_PROJECTED)};
  for (int k = 0; k < 6; k++) {
    int64_t same = 0;
    wm_dropout_draw(&keys[k], k == 0 ? 5 : 4, k == 1 ? 6 : 5, 0, UNITS, other);
    for (int i = 0; i < UNITS; i++)
      same += base[i] == other[i];
    assert_true(fabs((double)same - 0.58 * UNITS) < 5 * sqrt(0.2436 * UNITS));
  }
  wm_dropout_draw(&d, 4, 5, 1004, UNITS - 1004, other);
  assert_memory_equal(other, base + 1004, (UNITS - 1004) * sizeof *base);
  free(base), free(other);
}

static void bad_batches_are_refused(void **state) {
  trainee_t t = make(*state, &specs[0], with_dropout);
  const int64_t long_one[] = {71}, many[] = {70, 70, 30};
  double nll[N_SEQUENCES];
  wm_training_result_t result = {nll, NULL};
  static const char *const messages[] = {"71 tokens exceeds", "170 positions exceeds",
                                         "has 97 tokens", "token id 97"};
  for (int k = 0; k < 4; k++) {
    wm_error_t err = {0};
    test_batch_t b = make_batch(k == 0   ? 1
                                : k == 1 ? 3
                                         : 4,
                                k == 0   ? long_one
                                : k == 1 ? many
                                         : lengths,
                                0, 97);
    if (k == 2)
      b.targets[100] = 97;
    if (k == 3)
      b.ids[100] = 97;
    assert_int_equal(wm_training_accumulate(t.training, &b.batch, NULL, &result, &err), WM_INPUT);
    if (strstr(err.message, messages[k]) == NULL)
      fail_msg("%s", err.message);
    free_batch(&b);
  }
  free_trainee(&t);
}

/* From config.json (golden models are written by transformers), or as transformers assumes. */
static void rates_are_those_of_the_config(void **state) {
  (void)state;
  char *gpt2 = golden_path("gpt2_base"), *neox = golden_path("neox_base");
  char *dir = model_directory();
  wm_arch_t a;
  wm_error_t err = {0};
  check(wm_arch_read(gpt2, &a, &err), &err);
  assert_true(a.drop_embedding == 0.1 && a.drop_attention == 0.1 && a.drop_residual == 0.1);
  check(wm_arch_read(neox, &a, &err), &err);
  assert_true(a.drop_embedding == 0 && a.drop_attention == 0 && a.drop_residual == 0);
  write_config(dir, "{\"model_type\": \"gpt_neox\", \"hidden_dropout\": 0.2, "
                    "\"attention_dropout\": 0.3}");
  check(wm_arch_read(dir, &a, &err), &err);
  assert_true(a.drop_embedding == 0.2 && a.drop_attention == 0.3 && a.drop_residual == 0.2);
  write_config(dir, "{\"model_type\": \"gpt2\", \"embd_pdrop\": 0, \"attn_pdrop\": 0.3, "
                    "\"resid_pdrop\": 0.4}");
  check(wm_arch_read(dir, &a, &err), &err);
  assert_true(a.drop_embedding == 0 && a.drop_attention == 0.3 && a.drop_residual == 0.4);
  remove_model_directory(dir);
  free(gpt2), free(neox);
}

static void bad_rates_are_refused(void **state) {
  char *dir = model_directory();
  write_training_model(dir, &specs[2]);
  wm_error_t err = {0};
  wm_training_options_t options = with_dropout;
  wm_training_t *training;
  wm_model_t *model;
  const wm_model_options_t kind = {.tile_rows = 48, .tile_vocab = 32, .writable = true};
  options.drop_attention = 1;
  check(wm_model_open(*state, dir, &kind, NULL, &model, &err), &err);
  assert_int_equal(wm_training_create(model, &options, &training, &err), WM_INPUT);
  assert_non_null(strstr(err.message, "must be in [0, 1), but is 1"));
  wm_model_close(model);
  remove_model_directory(dir);
}

/* Operations of both passes by kernel, whatever the tiles: of a product whose weights and input
 * have gradients two more such products, of attention twice its own. */
static void kernels_are_counted(void **state) {
  static const wm_kernel_t products[][3] = {
      {WM_KERNEL_QKV, WM_KERNEL_QKV_INPUT, WM_KERNEL_QKV_WEIGHT},
      {WM_KERNEL_PROJECT, WM_KERNEL_PROJECT_INPUT, WM_KERNEL_PROJECT_WEIGHT},
      {WM_KERNEL_UP, WM_KERNEL_UP_INPUT, WM_KERNEL_UP_WEIGHT},
      {WM_KERNEL_DOWN, WM_KERNEL_DOWN_INPUT, WM_KERNEL_DOWN_WEIGHT},
      {WM_KERNEL_HEAD, WM_KERNEL_HEAD_INPUT, WM_KERNEL_HEAD_WEIGHT}};
  for (int i = 0; i < N_SPECS; i++) {
    training_spec_t spec = specs[i];
    spec.paths = "fff";
    trainee_t t = make(*state, &spec, with_dropout);
    test_batch_t b = make_batch(N_SEQUENCES, lengths, 0, spec.v);
    const wm_arch_t *a = wm_model_arch(t.model);
    const double layers = 3, rows = 169;
    double nll[N_SEQUENCES], targets = 0, attention = 0;
    wm_profile_t p = {0};
    const wm_counter_t *k = p.kernels;
    for (int64_t j = 0; j < 169; j++)
      targets += b.targets[j] >= 0;
    for (int s = 0; s < N_SEQUENCES; s++)
      for (int64_t j = 1; j <= lengths[s]; j++)
        attention += layers * wm_arch_flops_attention(a, (double)j);
    assert_ptr_equal(wm_training_profile(t.training), NULL);
    accumulate(t.training, &b, nll, NULL);
    wm_model_set_profile(t.model, &p);
    accumulate(t.training, &b, nll, NULL);
    wm_model_set_profile(t.model, NULL);
    for (int j = 0; j < 5; j++)
      for (int l = 1; l < 3; l++)
        assert_true(k[products[j][l]].flops == k[products[j][0]].flops);
    assert_true(k[WM_KERNEL_UP].flops + k[WM_KERNEL_DOWN].flops ==
                layers * rows * wm_arch_flops_mlp(a));
    assert_true(k[WM_KERNEL_QKV].flops + k[WM_KERNEL_PROJECT].flops ==
                layers * rows * (wm_arch_flops_layer(a) - wm_arch_flops_mlp(a)));
    assert_true(k[WM_KERNEL_HEAD].flops == targets * wm_arch_flops_head(a));
    assert_true(fabs(k[WM_KERNEL_ATTENTION].flops - attention) <= 1e-12 * attention);
    assert_true(k[WM_KERNEL_ATTENTION_BACKWARD].flops == 2 * k[WM_KERNEL_ATTENTION].flops);
    assert_int_equal(k[WM_KERNEL_DROPOUT].calls, 2 * (2 * 3 + 1));
    assert_int_equal(k[WM_KERNEL_ROTARY_BACKWARD].calls, spec.family == WM_FAMILY_GPT2 ? 0 : 3);
    free_batch(&b);
    free_trainee(&t);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(losses_are_the_models),
      cmocka_unit_test(kernels_are_counted),
      cmocka_unit_test(checkpointing_changes_no_bit),
      cmocka_unit_test(keeping_logits_changes_no_bit),
      cmocka_unit_test(equal_threads_give_equal_bits),
      cmocka_unit_test(batches_do_not_matter),
      cmocka_unit_test(hook_sees_final_gradients),
      cmocka_unit_test(parameters_are_the_models),
      cmocka_unit_test(hard_gates_decide),
      cmocka_unit_test(gates_start_nearly_closed),
      cmocka_unit_test(masks_are_keyed),
      cmocka_unit_test(bad_batches_are_refused),
      cmocka_unit_test(rates_are_those_of_the_config),
      cmocka_unit_test(bad_rates_are_refused),
  };
  return cmocka_run_group_tests(tests, fixture_start, fixture_stop);
}
