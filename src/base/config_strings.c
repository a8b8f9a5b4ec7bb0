/* Settings that are lists of texts. */
#include "config_internal.h"
#include "wanamaker/base/mem.h"

#include <stdlib.h>
#include <string.h>

wm_status_t wm_config_set_strings(wm_setting_t *s, int64_t n, const char *const *texts,
                                  wm_error_t *err) {
  void *offsets = NULL, *all = NULL;
  int64_t bytes = 0;
  wm_status_t status;
  WM_TRY(wm_alloc(&offsets, n + 1, sizeof(int64_t), s->key, err));
  for (int64_t i = 0; i < n; i++) {
    ((int64_t *)offsets)[i] = bytes;
    bytes += (int64_t)strlen(texts[i]) + 1;
  }
  ((int64_t *)offsets)[n] = bytes;
  WM_TRY(wm_alloc(&all, bytes, 1, s->key, err));
  for (int64_t i = 0; i < n; i++)
    strcpy((char *)all + ((int64_t *)offsets)[i], texts[i]);
  free(s->offsets);
  free(s->string);
  s->offsets = offsets;
  s->string = all;
  s->count = n;
  offsets = all = NULL;
cleanup:
  free(offsets);
  free(all);
  return status;
}

wm_status_t wm_config_split_strings(wm_setting_t *s, const char *text, wm_error_t *err) {
  static const char blank[] = " \t\n";
  char *copy = NULL;
  void *texts = NULL;
  int64_t n = 0;
  wm_status_t status;
  WM_TRY(wm_strdup(&copy, text, err));
  WM_TRY(wm_alloc(&texts, (int64_t)strlen(text) + 1, sizeof(char *), s->key, err));
  char *at = copy;
  size_t length = strlen(copy);
  if (length >= 2 && at[0] == '[' && at[length - 1] == ']') {
    at[length - 1] = '\0';
    at++;
  }
  while (at != NULL) {
    char *word = strsep(&at, ",");
    word += strspn(word, blank);
    size_t end = strlen(word);
    while (end > 0 && strchr(blank, word[end - 1]) != NULL)
      end--;
    word[end] = '\0';
    if (end > 0)
      ((const char **)texts)[n++] = word;
  }
  status = wm_config_set_strings(s, n, texts, err);
cleanup:
  free(copy);
  free(texts);
  return status;
}
