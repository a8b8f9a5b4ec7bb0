/* Reads tokenizer.json. Keys that can't change ids are ignored: truncation and padding (the
 * reference's users reset them), decoder, and post_processor, which only adds tokens around the
 * text, where this program adds none. */
#include "vocabulary.h"

#include "wanamaker/base/json.h"
#include "wanamaker/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A member that must have a JSON type; *out is NULL when it is absent or null. */
static wm_status_t member(const json_t *object, const char *file, const char *key, json_type type,
                          const char *type_name, const json_t **out, wm_error_t *err) {
  *out = json_object_get(object, key);
  if (*out != NULL && json_is_null(*out))
    *out = NULL;
  if (*out != NULL && json_typeof(*out) != type)
    return wm_fail(err, WM_INPUT, "%s: \"%s\" must be %s", file, key, type_name);
  return WM_OK;
}

static wm_status_t required_member(const json_t *object, const char *file, const char *key,
                                   json_type type, const char *type_name, const json_t **out,
                                   wm_error_t *err) {
  wm_status_t status = member(object, file, key, type, type_name, out, err);
  if (status == WM_OK && *out == NULL)
    status = wm_fail(err, WM_INPUT, "%s: \"%s\" is missing", file, key);
  return status;
}

/* The name in "type"; *type is "" when it is absent. */
static wm_status_t type_of(const json_t *object, const char *file, const char **type,
                           wm_error_t *err) {
  *type = "";
  return wm_json_get_string(object, file, "type", false, type, err);
}

static wm_status_t read_normalizer(const json_t *root, const char *file, wm_vocabulary_t *v,
                                   wm_error_t *err) {
  const json_t *normalizer;
  const char *type;
  wm_status_t status = WM_OK;
  v->nfc = false;
  WM_TRY(member(root, file, "normalizer", JSON_OBJECT, "an object", &normalizer, err));
  if (normalizer == NULL)
    return WM_OK;
  WM_TRY(type_of(normalizer, file, &type, err));
  if (strcmp(type, "NFC") != 0)
    return wm_fail(err, WM_INPUT, "%s: normalizer \"%s\" is not supported, expected NFC or none",
                   file, type);
  v->nfc = true;
cleanup:
  return status;
}

/* A Sequence of one pre-tokeniser stands for that one. */
static const json_t *only_of_sequence(const json_t *pre) {
  const json_t *list = json_object_get(pre, "pretokenizers");
  const json_t *type = json_object_get(pre, "type");
  if (json_is_string(type) && strcmp(json_string_value(type), "Sequence") == 0 &&
      json_array_size(list) == 1)
    return json_array_get(list, 0);
  return pre;
}

static wm_status_t read_pre_tokenizer(const json_t *root, const char *file, wm_vocabulary_t *v,
                                      wm_error_t *err) {
  const json_t *pre;
  const char *type;
  wm_status_t status = WM_OK;
  WM_TRY(required_member(root, file, "pre_tokenizer", JSON_OBJECT, "an object", &pre, err));
  pre = only_of_sequence(pre);
  WM_TRY(type_of(pre, file, &type, err));
  if (strcmp(type, "ByteLevel") != 0)
    return wm_fail(err, WM_INPUT, "%s: pre_tokenizer \"%s\" is not supported, expected ByteLevel",
                   file, type);
  v->use_regex = true;
  WM_TRY(wm_json_get_bool(pre, file, "add_prefix_space", true, &v->add_prefix_space, err));
  WM_TRY(wm_json_get_bool(pre, file, "use_regex", false, &v->use_regex, err));
cleanup:
  return status;
}

/* Refuses options of the model that change ids. unk_token, fuse_unk and byte_fallback do not: they
 * serve bytes without a token, and every byte must have one. */
static wm_status_t check_model(const json_t *model, const char *file, wm_error_t *err) {
  static const char *const affixes[] = {"continuing_subword_prefix", "end_of_word_suffix"};
  const char *type;
  double dropout = 0;
  bool ignore_merges = false;
  wm_status_t status = WM_OK;
  WM_TRY(type_of(model, file, &type, err));
  if (*type != '\0' && strcmp(type, "BPE") != 0)
    return wm_fail(err, WM_INPUT, "%s: model \"%s\" is not supported, expected BPE", file, type);
  WM_TRY(wm_json_get_float(model, file, "dropout", false, &dropout, err));
  WM_TRY(wm_json_get_bool(model, file, "ignore_merges", false, &ignore_merges, err));
  if (dropout != 0)
    return wm_fail(err, WM_INPUT, "%s: \"dropout\" = %g is not supported", file, dropout);
  if (ignore_merges)
    return wm_fail(err, WM_INPUT, "%s: \"ignore_merges\" is not supported", file);
  for (int i = 0; i < 2; i++) {
    const char *affix = "";
    WM_TRY(wm_json_get_string(model, file, affixes[i], false, &affix, err));
    if (*affix != '\0')
      return wm_fail(err, WM_INPUT, "%s: \"%s\" = \"%s\" is not supported", file, affixes[i],
                     affix);
  }
cleanup:
  return status;
}

/* The two parts of a merge, in the notation "a b" or ["a", "b"]; `copy` is to be freed. */
static wm_status_t merge_parts(const json_t *merge, const char *where, char **copy,
                               const char **left, const char **right, wm_error_t *err) {
  *copy = NULL;
  *left = *right = NULL;
  if (json_is_array(merge) && json_array_size(merge) == 2) {
    *left = json_string_value(json_array_get(merge, 0));
    *right = json_string_value(json_array_get(merge, 1));
    if (*left != NULL && *right != NULL)
      return WM_OK;
  }
  if (json_is_string(merge)) {
    wm_status_t status = wm_strdup(copy, json_string_value(merge), err);
    if (status != WM_OK)
      return status;
    char *space = strchr(*copy, ' ');
    if (space != NULL && strchr(space + 1, ' ') == NULL) {
      *space = '\0';
      *left = *copy;
      *right = space + 1;
      return WM_OK;
    }
  }
  return wm_fail(err, WM_INPUT, "%s: expected \"a b\" or [\"a\", \"b\"]", where);
}

static wm_status_t read_merges(const json_t *model, const char *file, const json_t *vocab,
                               wm_vocabulary_t *v, wm_error_t *err) {
  const json_t *merges, *merge;
  size_t i;
  wm_status_t status = WM_OK;
  WM_TRY(required_member(model, file, "merges", JSON_ARRAY, "an array", &merges, err));
  json_array_foreach(merges, i, merge) {
    char where[WM_MESSAGE_SIZE], *copy;
    const char *left, *right;
    snprintf(where, sizeof where, "%s: merge %zu", file, i);
    status = merge_parts(merge, where, &copy, &left, &right, err);
    if (status == WM_OK)
      status = wm_vocabulary_add_merge(v, where, vocab, left, right, err);
    free(copy);
    if (status != WM_OK)
      break;
  }
cleanup:
  return status;
}

static wm_status_t read_added_token(const json_t *token, const char *file, const json_t *vocab,
                                    wm_vocabulary_t *v, wm_error_t *err) {
  static const char *const unsupported[] = {"single_word", "lstrip", "rstrip"};
  const char *content;
  int64_t id;
  bool normalized = true, special = false;
  wm_status_t status = WM_OK;
  if (!json_is_object(token))
    return wm_fail(err, WM_INPUT, "%s: \"added_tokens\" must hold objects", file);
  WM_TRY(wm_json_get_string(token, file, "content", true, &content, err));
  WM_TRY(wm_json_get_int(token, file, "id", true, &id, err));
  WM_TRY(wm_json_get_bool(token, file, "special", false, &special, err));
  normalized = !special;
  WM_TRY(wm_json_get_bool(token, file, "normalized", false, &normalized, err));
  for (int i = 0; i < 3; i++) {
    bool set = false;
    WM_TRY(wm_json_get_bool(token, file, unsupported[i], false, &set, err));
    if (set)
      return wm_fail(err, WM_INPUT, "%s: added token \"%s\": \"%s\" is not supported", file,
                     content, unsupported[i]);
  }
  if (*content != '\0') /* the reference ignores empty ones */
    WM_TRY(wm_vocabulary_add_token(v, file, vocab, content, id, normalized, err));
cleanup:
  return status;
}

static wm_status_t read_added_tokens(const json_t *root, const char *file, const json_t *vocab,
                                     wm_vocabulary_t *v, wm_error_t *err) {
  const json_t *list, *token;
  size_t i;
  wm_status_t status = WM_OK;
  WM_TRY(member(root, file, "added_tokens", JSON_ARRAY, "an array", &list, err));
  json_array_foreach(list, i, token) WM_TRY(read_added_token(token, file, vocab, v, err));
cleanup:
  return status;
}

wm_status_t wm_tokenizer_json_read(const char *path, wm_vocabulary_t *v, wm_error_t *err) {
  json_t *root = NULL;
  const json_t *model, *vocab;
  const char *version = "1.0";
  wm_status_t status = WM_OK;
  WM_TRY(wm_json_load(path, &root, err));
  if (!json_is_object(root)) {
    status = wm_fail(err, WM_INPUT, "%s: expected an object", path);
    goto cleanup;
  }
  WM_TRY(wm_json_get_string(root, path, "version", false, &version, err));
  if (strcmp(version, "1.0") != 0) {
    status = wm_fail(err, WM_INPUT, "%s: version \"%s\", expected \"1.0\"", path, version);
    goto cleanup;
  }
  WM_TRY(required_member(root, path, "model", JSON_OBJECT, "an object", &model, err));
  WM_TRY(check_model(model, path, err));
  WM_TRY(read_normalizer(root, path, v, err));
  WM_TRY(read_pre_tokenizer(root, path, v, err));
  WM_TRY(required_member(model, path, "vocab", JSON_OBJECT, "an object", &vocab, err));
  WM_TRY(wm_vocabulary_set_tokens(v, path, vocab, err));
  WM_TRY(read_merges(model, path, vocab, v, err));
  WM_TRY(read_added_tokens(root, path, vocab, v, err));
cleanup:
  json_decref(root);
  return status;
}
