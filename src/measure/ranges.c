#include "wanamaker/measure/ranges.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static const char *const protocol_names[] = {"documents", "stream", "sliding"};
static const char *const role_names[WM_ROLES] = {"fit", "gates", "validation", "evaluation"};

#define TOKENS(begin, end) WM_RANGE_TOKENS, (begin), (end), 0
#define ROWS(begin, end, max_tokens) WM_RANGE_ROWS, (begin), (end), (max_tokens)
#define ABSENT WM_RANGE_ABSENT, 0, 0, 0

static const wm_preset_t presets[] = {
    {"default",
     "disjoint: fit 0..10K tokens, gates 10K..35K, validation 35K..47K, evaluation 50K..100K",
     false,
     {{"fit", TOKENS(0, 10000)},
      {"gates", TOKENS(10000, 35000)},
      {"validation", TOKENS(35000, 47000)},
      {"evaluation", TOKENS(50000, 100000)}}},
    {"study_scale",
     "the study's rows of WikiText-103's train split; evaluation rows lie inside those of the "
     "gates",
     true,
     {{"fit", ROWS(0, 500, 10000)},
      {"gates", ROWS(1000, 3000, 25000)},
      {"validation", ABSENT},
      {"evaluation", ROWS(2000, 2500, 12000)}}},
    {"study_paper",
     "the study's tokens of a test split: fit 0..10K, gates 10K..30K, evaluation 30K..80K",
     false,
     {{"fit", TOKENS(0, 10000)},
      {"gates", TOKENS(10000, 30000)},
      {"validation", ABSENT},
      {"evaluation", TOKENS(30000, 80000)}}},
};

enum { N_PRESETS = sizeof presets / sizeof presets[0] };

wm_protocol_t wm_protocol_default(void) {
  return (wm_protocol_t){
      .kind = WM_PROTOCOL_DOCUMENTS, .window = 512, .stride = 256, .min_length = 2};
}

bool wm_protocol_parse(const char *name, wm_protocol_kind_t *out) {
  for (int i = 0; i <= WM_PROTOCOL_SLIDING; i++) {
    if (strcmp(name, protocol_names[i]) == 0) {
      *out = (wm_protocol_kind_t)i;
      return true;
    }
  }
  return false;
}

const char *wm_protocol_name(wm_protocol_kind_t kind) {
  return protocol_names[kind];
}

const wm_preset_t *wm_preset_table(int *count) {
  *count = N_PRESETS;
  return presets;
}

const wm_preset_t *wm_preset_find(const char *name) {
  for (int i = 0; i < N_PRESETS; i++)
    if (strcmp(name, presets[i].name) == 0)
      return &presets[i];
  return NULL;
}

const char *wm_role_name(wm_role_t role) {
  assert(role < WM_ROLES);
  return role_names[role];
}
