/* The keys of config.json: which ones are read into wm_arch_t, which must have a certain value, and
 * which change no number. */
#ifndef WANAMAKER_SRC_MODEL_ARCH_KEYS_H
#define WANAMAKER_SRC_MODEL_ARCH_KEYS_H

#include "wanamaker/model/arch.h"

#include <jansson.h>
#include <stddef.h>

enum { WM_FOR_GPT2 = 1, WM_FOR_GPT_NEOX = 2, WM_FOR_ALL = 3 };

typedef enum { WM_KEY_SIZE, WM_KEY_FLOAT, WM_KEY_BOOL, WM_KEY_ACTIVATION } wm_key_type_t;

/* A value of config.json that a field of wm_arch_t takes. */
typedef struct {
  const char *key;
  int families; /* WM_FOR_... */
  wm_key_type_t type;
  size_t field; /* offset in wm_arch_t */
  /* The other family's name for the field: transformers ignores it, so it may not contradict. */
  bool foreign;
} wm_arch_key_t;

/* A value that changes numbers in a way that is not implemented. */
typedef struct {
  const char *key;
  enum { WM_MUST_BE_EMPTY, WM_MUST_BE_FALSE, WM_MUST_BE_TRUE } rule; /* null is always allowed */
} wm_arch_rule_t;

/* All end with a NULL key. Aliases of a field follow its own name. */
extern const wm_arch_key_t wm_arch_keys[];
extern const wm_arch_rule_t wm_arch_rules[];

/* True if `key` is in one of the tables, is one of the rotary keys or changes no number. */
bool wm_arch_key_known(wm_family_t family, const char *key);

int wm_arch_family_mask(wm_family_t family);

/* WM_INPUT, naming what is accepted, for a name that is no activation without parameters. */
wm_status_t wm_arch_activation(const char *file, const char *key, const char *name,
                               wm_activation_t *out, wm_error_t *err);

/* Reads rotary_dims and rotary_base, in the places where transformers 4 and 5 keep them. */
wm_status_t wm_arch_read_rotary(const json_t *config, const char *file, wm_arch_t *arch,
                                wm_error_t *err);

#endif
