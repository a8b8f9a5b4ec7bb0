/* Encodes many texts for tests/oracle/tokenizer_compare.py.
 *
 *   tokenize_tool DIR       standard input: records of a uint32 length and as many bytes
 *                           standard output, for each: int64 count, count int32 ids, count int64
 *                           starts, int64 replaced
 *   tokenize_tool DIR FILE  encodes FILE repeatedly for two seconds and prints MB/s of processor
 * time tokenize_tool DIR cut   as the first, but each record is encoded in the parts between all
 * cuts that wm_tokenizer_can_cut allows
 */
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"
#include "wanamaker/text/tokenizer.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static wm_status_t encode(wm_tokenizer_t *t, const char *text, int64_t bytes, bool cut,
                          wm_token_list_t *list, wm_error_t *err) {
  wm_status_t status = WM_OK;
  int64_t begin = 0;
  list->count = list->replaced = 0;
  for (int64_t at = 1; cut && at < bytes; at++)
    if (wm_tokenizer_can_cut(t, text, bytes, at)) {
      WM_TRY(wm_tokenizer_encode(t, text + begin, at - begin, begin, list, err));
      begin = at;
    }
  WM_TRY(wm_tokenizer_encode(t, text + begin, bytes - begin, begin, list, err));
cleanup:
  return status;
}

static wm_status_t serve(wm_tokenizer_t *t, bool cut, wm_error_t *err) {
  wm_status_t status = WM_OK;
  wm_token_list_t list = {0};
  char *text = NULL;
  int64_t capacity = 0;
  uint32_t bytes;
  while (fread(&bytes, sizeof bytes, 1, stdin) == 1) {
    WM_TRY(wm_grow((void **)&text, &capacity, 0, bytes, 1, "record", err));
    if (fread(text, 1, bytes, stdin) != bytes) {
      status = wm_fail(err, WM_INPUT, "record is cut short");
      goto cleanup;
    }
    WM_TRY(encode(t, text, bytes, cut, &list, err));
    fwrite(&list.count, sizeof list.count, 1, stdout);
    fwrite(list.ids, sizeof *list.ids, (size_t)list.count, stdout);
    fwrite(list.starts, sizeof *list.starts, (size_t)list.count, stdout);
    fwrite(&list.replaced, sizeof list.replaced, 1, stdout);
  }
cleanup:
  wm_token_list_destroy(&list);
  free(text);
  return status;
}

static wm_status_t measure(wm_tokenizer_t *t, const char *path, wm_error_t *err) {
  wm_status_t status = WM_OK;
  wm_token_list_t list = {0};
  wm_map_t map = {0};
  int64_t done = 0;
  WM_TRY(wm_map_open(path, &map, err));
  double seconds; /* of this core: the machine may be shared */
  clock_t begin = clock();
  do {
    list.count = 0;
    WM_TRY(wm_tokenizer_encode(t, map.data, map.bytes, 0, &list, err));
    done += map.bytes;
    seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
  } while (seconds < 2);
  printf("%.1f MB/s, %lld tokens\n", (double)done / seconds / 1e6, (long long)list.count);
cleanup:
  wm_map_close(&map);
  wm_token_list_destroy(&list);
  return status;
}

int main(int argc, char **argv) {
  wm_error_t err = {0};
  wm_tokenizer_t *tokenizer;
  if (argc < 2 || argc > 3) {
    fprintf(stderr, "usage: tokenize_tool DIR [FILE | cut]\n");
    return WM_USAGE;
  }
  bool cut = argc == 3 && strcmp(argv[2], "cut") == 0;
  wm_status_t status = wm_tokenizer_open(argv[1], &tokenizer, &err);
  if (status == WM_OK && argc == 3 && !cut)
    status = measure(tokenizer, argv[2], &err);
  else if (status == WM_OK)
    status = serve(tokenizer, cut, &err);
  if (status != WM_OK)
    fprintf(stderr, "tokenize_tool: %s\n", err.message);
  wm_tokenizer_close(tokenizer);
  return (int)status;
}
