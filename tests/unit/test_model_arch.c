/* config.json of both families: values, defaults and keys nobody knows. Refusals are in
 * tests/mpi/test_model_input.c. */
#include "model_writer.h"

static wm_arch_t read_text(const char *text) {
  char *dir = model_directory();
  wm_arch_t arch;
  wm_error_t err = {0};
  write_config(dir, text);
  check(wm_arch_read(dir, &arch, &err), &err);
  remove_model_directory(dir);
  return arch;
}

static void gpt2_defaults(void **state) {
  (void)state;
  wm_arch_t a = read_text("{\"model_type\": \"gpt2\"}");
  assert_int_equal(a.family, WM_FAMILY_GPT2);
  assert_int_equal(a.n_layers, 12);
  assert_int_equal(a.n_heads, 12);
  assert_int_equal(a.d_model, 768);
  assert_int_equal(a.d_head, 64);
  assert_int_equal(a.d_mlp, 3072);
  assert_int_equal(a.vocab_size, 50257);
  assert_int_equal(a.max_positions, 1024);
  assert_true(a.layer_norm_eps == 1e-5);
  assert_int_equal(a.activation, WM_ACT_GELU_TANH);
  assert_true(a.tied_head && a.scale_attn_weights && !a.scale_attn_by_inverse_layer_idx);
  assert_string_equal(wm_family_name(a.family), "GPT-2");
}

static void neox_defaults(void **state) {
  (void)state;
  wm_arch_t a = read_text("{\"model_type\": \"gpt_neox\"}");
  assert_int_equal(a.family, WM_FAMILY_GPT_NEOX);
  assert_int_equal(a.n_layers, 44);
  assert_int_equal(a.d_model, 6144);
  assert_int_equal(a.d_head, 96);
  assert_int_equal(a.d_mlp, 24576);
  assert_int_equal(a.vocab_size, 50432);
  assert_int_equal(a.max_positions, 2048);
  assert_int_equal(a.activation, WM_ACT_GELU);
  assert_true(!a.tied_head && a.parallel_residual && a.attention_bias);
  assert_int_equal(a.rotary_dims, 24);
  assert_true(a.rotary_base == 10000);
  assert_string_equal(wm_family_name(a.family), "GPT-NeoX");
}

/* null means the default, as in transformers. */
static void values_are_read(void **state) {
  (void)state;
  wm_arch_t a = read_text(
      "{\"model_type\": \"gpt2\", \"n_embd\": 12, \"n_head\": 3, \"n_layer\": 5, \"n_inner\": null,"
      " \"vocab_size\": 99, \"n_positions\": 7, \"layer_norm_epsilon\": 1e-3,"
      " \"activation_function\": \"swish\", \"tie_word_embeddings\": false,"
      " \"scale_attn_weights\": false, \"scale_attn_by_inverse_layer_idx\": true}");
  assert_int_equal(a.d_mlp, 48);
  assert_int_equal(a.d_head, 4);
  assert_int_equal(a.n_layers, 5);
  assert_int_equal(a.vocab_size, 99);
  assert_int_equal(a.max_positions, 7);
  assert_true(a.layer_norm_eps == 1e-3);
  assert_int_equal(a.activation, WM_ACT_SILU);
  assert_true(!a.tied_head && !a.scale_attn_weights && a.scale_attn_by_inverse_layer_idx);
  a = read_text("{\"model_type\": \"gpt_neox\", \"hidden_size\": 40, \"num_attention_heads\": 4,"
                " \"use_parallel_residual\": false, \"attention_bias\": false,"
                " \"rope_parameters\": {\"rope_theta\": 77, \"partial_rotary_factor\": 0.47}}");
  assert_true(!a.parallel_residual && !a.attention_bias && a.rotary_base == 77);
  assert_int_equal(a.rotary_dims, 4); /* 4.7 rounded down */
}

static void unknown_keys_are_listed(void **state) {
  (void)state;
  char *dir = model_directory(), *names;
  wm_error_t err = {0};
  write_config(dir, "{\"model_type\": \"gpt2\", \"sliding_window\": 5, \"n_ctx\": 9,"
                    " \"rotary_pct\": 1, \"torch_dtype\": \"float32\", \"n_embd\": 768}");
  check(wm_arch_unknown_keys(dir, &names, &err), &err);
  assert_true(strcmp(names, "sliding_window, rotary_pct") == 0 ||
              strcmp(names, "rotary_pct, sliding_window") == 0);
  free(names);
  write_config(dir, "{\"model_type\": \"gpt_neox\", \"rotary_pct\": 1}");
  check(wm_arch_unknown_keys(dir, &names, &err), &err);
  assert_string_equal(names, "");
  free(names);
  remove_model_directory(dir);
}

/* GPT-2 small: 84 934 656 parameters in the matrices of 12 layers, two operations each. */
static void operations_are_counted(void **state) {
  (void)state;
  wm_arch_t a = read_text("{\"model_type\": \"gpt2\"}");
  assert_true(wm_arch_flops_layer(&a) * 12 == 2 * 84934656.0);
  assert_true(wm_arch_flops_mlp(&a) == 2 * 2 * 768 * 3072.0);
  assert_true(wm_arch_flops_surrogate(&a) == 2 * 768 * 768.0);
  assert_true(wm_arch_flops_head(&a) == 2 * 768 * 50257.0);
  assert_true(wm_arch_flops_attention(&a, 10) == 2 * 2 * 10 * 768.0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(gpt2_defaults),          cmocka_unit_test(neox_defaults),
      cmocka_unit_test(values_are_read),        cmocka_unit_test(unknown_keys_are_listed),
      cmocka_unit_test(operations_are_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
