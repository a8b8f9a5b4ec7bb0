/* The program's table of settings, and the files of configs/ read with it. */
#include "jobs.h"

#include "wanamaker/base/mem.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static wm_error_t err;

static void test_table(void **state) {
  (void)state;
  for (const wm_schema_t *e = wm_settings; e->key != NULL; e++) {
    assert_true(strlen(e->help) > 4);
    assert_true((e->type == WM_SETTING_CHOICE) == (e->choices != NULL));
    assert_true((e->jobs & ~(unsigned)WM_JOB_ALL) == 0);
    for (const wm_schema_t *other = wm_settings; other < e; other++)
      assert_string_not_equal(e->key, other->key);
  }
}

/* Every default is a valid value, also of the settings below a name. */
static void test_defaults(void **state) {
  (void)state;
  static const char *const overrides[] = {"model.path=m", "corpora.c.path=p",
                                          "ranges.fit.max_tokens=5"};
  wm_config_t *c, *back;
  if (wm_config_read(wm_settings, NULL, overrides, 3, WM_JOB_RUN, &c, &err) != WM_OK)
    fail_msg("%s", err.message);
  const char *text = wm_config_text(c);
  if (wm_config_parse(wm_settings, text, "text", NULL, 0, WM_JOB_RUN, &back, &err) != WM_OK)
    fail_msg("%s", err.message);
  assert_string_equal(wm_config_text(back), text);
  wm_config_free(back);
  wm_config_free(c);
}

static void test_help(void **state) {
  (void)state;
  for (const wm_job_t *j = wm_jobs; j->name != NULL; j++) {
    char *text;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    wm_config_print_help(wm_settings, j->bits, out);
    fclose(out);
    for (const wm_schema_t *e = wm_settings; e->key != NULL; e++) {
      char *line = wm_format("  %s\n", e->key);
      assert_int_equal(strstr(text, line) != NULL, e->jobs == 0 || (e->jobs & j->bits) != 0);
      free(line);
    }
    free(text);
  }
}

/* What the configurations of published models have in common; `name` is the file's. */
static void check_published(const wm_config_t *c, const char *name) {
  char *model = wm_format("models/%s", name), *output = wm_format("results/%s", name);
  assert_string_equal(wm_config_string(c, "model.path"), model);
  assert_string_equal(wm_config_string(c, "output.dir"), output);
  assert_string_equal(wm_config_name(c, "corpora.", 0), "wikitext");
  assert_string_equal(wm_config_string(c, "corpora.wikitext.path"), "data/wikitext-103-test.txt");
  assert_true(wm_config_bool(c, "corpora.wikitext.keep_newline"));
  assert_string_equal(wm_config_string(c, "protocol.kind"), "documents");
  assert_int_equal(wm_config_int(c, "protocol.window"), 512);
  assert_int_equal(wm_config_int(c, "protocol.min_tokens"), 2);
  assert_string_equal(wm_config_string(c, "ranges.preset"), "default");
  assert_true(wm_config_float(c, "fit.lambda") == 0.01);
  free(output);
  free(model);
}

/* Those of fine-tuning experiments. */
static void check_finetune(const wm_config_t *c, const char *name) {
  char *output = wm_format("results/%s", name);
  int64_t count;
  assert_string_equal(wm_config_string(c, "model.path"), "models/gpt2-medium");
  assert_string_equal(wm_config_string(c, "output.dir"), output);
  assert_string_equal(wm_config_string(c, "finetune.corpus"), "train");
  assert_true(wm_config_int(c, "finetune.steps") > 0);
  wm_config_ints(c, "finetune.layers", &count);
  assert_true(count > 0 || wm_config_int(c, "finetune.count") == 12);
  const char *evaluated = wm_config_string(c, "ranges.evaluation.corpus");
  assert_string_equal(evaluated, "test"); /* never what is trained on */
  free(output);
}

/* Trainings of the demo's model, by jobs/finetune_demo.sh and by hand. */
static void check_training_demo(const wm_config_t *c, const char *name) {
  char *output = wm_format("results/%s", name);
  assert_string_equal(wm_config_string(c, "model.path"), "tests/data/demo_gpt2");
  assert_ptr_equal(strstr(wm_config_string(c, "output.dir"), output),
                   wm_config_string(c, "output.dir"));
  assert_string_equal(wm_config_string(c, "finetune.corpus"), "train");
  assert_string_not_equal(wm_config_string(c, "ranges.evaluation.corpus"), "train");
  free(output);
}

/* Reads configs/FILE. The demos' scripts give paths on the command line. */
static void check_file(const char *dir, const char *file) {
  static const char *const demo[] = {"model.path=m", "corpora.demo.path=p"};
  const bool is_probe = strcmp(file, "probe_demo.cfg") == 0;
  const bool is_demo = is_probe || strncmp(file, "demo", 4) == 0;
  const int overrides = is_probe ? 1 : is_demo ? 2 : 0;
  char *path = wm_format("%s/%s", dir, file), *name = strndup(file, strlen(file) - 4);
  wm_config_t *c;
  const unsigned jobs = is_probe ? WM_JOB_PROBE : WM_JOB_RUN | WM_JOB_FINETUNE;
  if (wm_config_read(wm_settings, path, demo, overrides, jobs, &c, &err) != WM_OK)
    fail_msg("%s", err.message);
  if (strcmp(file, "finetune_demo.cfg") == 0 || strcmp(file, "pretrain_demo.cfg") == 0)
    check_training_demo(c, name);
  else if (strncmp(file, "finetune", 8) == 0)
    check_finetune(c, name);
  else if (!is_demo)
    check_published(c, name);
  wm_config_free(c);
  free(name);
  free(path);
}

/* A study's list for slurm/submit.sh: every line names a configuration, from the repository's root.
 */
static void check_list(const char *dir, const char *file) {
  char *path = wm_format("%s/%s", dir, file), line[256];
  FILE *list = fopen(path, "r");
  int count = 0;
  assert_non_null(list);
  while (fgets(line, sizeof line, list) != NULL) {
    char *name = strtok(line, " \t\n");
    if (name == NULL || name[0] == '#')
      continue;
    assert_memory_equal(name, "configs/", 8);
    check_file(dir, name + 8);
    count++;
  }
  assert_int_equal(count, 6);
  fclose(list);
  free(path);
}

static void test_configs(void **state) {
  (void)state;
  const char *data = getenv("WM_TEST_DATA");
  assert_non_null(data);
  char *dir = wm_format("%s/../../configs", data);
  DIR *listing = opendir(dir);
  assert_non_null(listing);
  int found = 0;
  for (struct dirent *entry; (entry = readdir(listing)) != NULL;) {
    size_t length = strlen(entry->d_name);
    if (length < 5 || strcmp(entry->d_name + length - 4, ".cfg") != 0)
      continue;
    if (strcmp(entry->d_name, "six_models.cfg") == 0)
      check_list(dir, entry->d_name);
    else
      check_file(dir, entry->d_name);
    found++;
  }
  closedir(listing);
  free(dir);
  assert_true(found >= 8); /* the demo and seven models */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_defaults),
      cmocka_unit_test(test_help),
      cmocka_unit_test(test_configs),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
