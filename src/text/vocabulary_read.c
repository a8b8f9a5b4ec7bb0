/* Chooses between the two ways to store a tokenizer and reads the older one, GPT-2's vocab.json and
 * merges.txt. That one names no added tokens: "<|endoftext|>" is one if the vocabulary has it, as
 * in GPT-2's own tokenizer. */
#include "vocabulary.h"

#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_MERGES_BYTES = 1 << 30 };
static const char END_OF_TEXT[] = "<|endoftext|>";

/* A line of merges.txt, terminated, without its end. */
static wm_status_t read_merge(char *line, const char *where, const json_t *vocab,
                              wm_vocabulary_t *v, wm_error_t *err) {
  char *space = strchr(line, ' ');
  if (space == NULL || strchr(space + 1, ' ') != NULL)
    return wm_fail(err, WM_INPUT, "%s: expected two tokens and a space between", where);
  *space = '\0';
  return wm_vocabulary_add_merge(v, where, vocab, line, space + 1, err);
}

static wm_status_t read_merges(const char *path, const json_t *vocab, wm_vocabulary_t *v,
                               wm_error_t *err) {
  char *text = NULL, *line, *next;
  wm_status_t status = WM_OK;
  WM_TRY(wm_read_text(path, MAX_MERGES_BYTES, &text, err));
  int64_t number = 0;
  for (line = text; *line != '\0'; line = next) {
    char where[WM_MESSAGE_SIZE];
    size_t length = strcspn(line, "\n");
    next = line + length + (line[length] == '\n');
    if (length > 0 && line[length - 1] == '\r')
      length--;
    line[length] = '\0';
    snprintf(where, sizeof where, "%s:%lld", path, (long long)++number);
    bool comment = strncmp(line, "#version", 8) == 0, blank_end = length == 0 && *next == '\0';
    if (!comment && !blank_end)
      WM_TRY(read_merge(line, where, vocab, v, err));
  }
cleanup:
  free(text);
  return status;
}

static wm_status_t read_pair_of_files(const char *vocab_path, const char *merges_path,
                                      wm_vocabulary_t *v, wm_error_t *err) {
  json_t *vocab = NULL;
  wm_status_t status = WM_OK;
  v->nfc = v->add_prefix_space = false;
  v->use_regex = true;
  WM_TRY(wm_json_load(vocab_path, &vocab, err));
  WM_TRY(wm_vocabulary_set_tokens(v, vocab_path, vocab, err));
  WM_TRY(read_merges(merges_path, vocab, v, err));
  const json_t *end = json_object_get(vocab, END_OF_TEXT);
  if (end != NULL)
    WM_TRY(wm_vocabulary_add_token(v, vocab_path, vocab, END_OF_TEXT,
                                   (int64_t)json_integer_value(end), false, err));
cleanup:
  json_decref(vocab);
  return status;
}

wm_status_t wm_vocabulary_read(const char *dir, wm_vocabulary_t *v, wm_error_t *err) {
  wm_status_t status = WM_OK;
  char *json = wm_format("%s/tokenizer.json", dir), *vocab = wm_format("%s/vocab.json", dir);
  char *merges = wm_format("%s/merges.txt", dir), *added = wm_format("%s/added_tokens.json", dir);
  if (json == NULL || vocab == NULL || merges == NULL || added == NULL)
    status = wm_fail(err, WM_ENVIRONMENT, "cannot allocate memory for file names");
  else if (wm_file_exists(json))
    status = wm_tokenizer_json_read(json, v, err);
  else if (!wm_file_exists(vocab) || !wm_file_exists(merges))
    status =
        wm_fail(err, WM_INPUT,
                "%s: no tokenizer: expected tokenizer.json, or vocab.json and merges.txt", dir);
  else if (wm_file_exists(added))
    status = wm_fail(err, WM_INPUT, "%s: not supported without a tokenizer.json beside it", added);
  else
    status = read_pair_of_files(vocab, merges, v, err);
  free(json);
  free(vocab);
  free(merges);
  free(added);
  if (status != WM_OK)
    wm_vocabulary_destroy(v);
  return status;
}
