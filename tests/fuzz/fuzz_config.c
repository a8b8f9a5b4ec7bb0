/* Input: a configuration file and overrides of the command line, with separators between. What is
 * read must be rendered as a text that reads back as the same configuration. */
#include "fuzz.h"

#include "wanamaker/base/config.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_OVERRIDES = 8 };

/* Every type of setting, with and without limits, plain and below names of the user's choice. */
static const wm_schema_t schema[] = {
    {"model.path", WM_SETTING_STRING, NULL, 1, 0, NULL, 1, "required in job 1"},
    {"corpora.*.path", WM_SETTING_STRING, NULL, 1, 0, NULL, 0, "of a name"},
    {"corpora.*.format", WM_SETTING_CHOICE, "auto", 1, 0, "auto text jsonl", 0, "choice"},
    {"corpora.*.keep", WM_SETTING_BOOL, "false", 1, 0, NULL, 0, "switch"},
    {"ranges.*.tokens", WM_SETTING_INTS, "[]", 0, 1e300, NULL, 0, "integers"},
    {"ranges.overlap", WM_SETTING_BOOL, "false", 1, 0, NULL, 0, "beside names"},
    {"fit.lambda", WM_SETTING_FLOAT, "0.01", 0, 1e300, NULL, 0, "number"},
    {"fit.lambdas", WM_SETTING_FLOATS, "[1e-4, 1.0]", 0, 1e300, NULL, 0, "numbers"},
    {"fit.block", WM_SETTING_INT, "64", 1, 4096, NULL, 0, "integer"},
    {"sweep.groups", WM_SETTING_INT_LISTS, "()", 0, 100, NULL, 0, "lists"},
    {"inputs", WM_SETTING_STRINGS, "[]", 1, 0, NULL, 0, "texts"},
    {"seed", WM_SETTING_INT, "1", 1, 0, NULL, 0, "without a group"},
    {NULL, WM_SETTING_BOOL, NULL, 1, 0, NULL, 0, NULL},
};

/* libconfig 1.5 loses a string or name that a syntax error follows. */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void) {
  return "leak:strbuf_append\nleak:libconfig_yylex\n";
}

static void check_text(const wm_config_t *config) {
  const char *text = wm_config_text(config);
  wm_error_t err = {0};
  wm_config_t *again;
  wm_status_t status = wm_config_parse(schema, text, "again", NULL, 0, 0, &again, &err);
  if (status != WM_OK || strcmp(wm_config_text(again), text) != 0) {
    fprintf(stderr, "%s\n--- is rendered from:\n%s", err.message, text);
    abort();
  }
  wm_config_free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes_t rest = {(const char *)data, size};
  char *overrides[MAX_OVERRIDES];
  int n = 0;
  fuzz_write("job.cfg", fuzz_part(&rest));
  while (rest.bytes > 0 && n < MAX_OVERRIDES)
    overrides[n++] = fuzz_text(fuzz_part(&rest));
  wm_error_t err = {0};
  wm_config_t *config;
  wm_status_t status = wm_config_read(schema, fuzz_path("job.cfg"), (const char *const *)overrides,
                                      n, 0, &config, &err);
  fuzz_check_failure(status, &err, WM_USAGE, "");
  assert((status == WM_OK) == (config != NULL));
  if (status == WM_OK)
    check_text(config);
  wm_config_free(config);
  for (int i = 0; i < n; i++)
    free(overrides[i]);
  return 0;
}
