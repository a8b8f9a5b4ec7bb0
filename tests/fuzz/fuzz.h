/* What the fuzz targets share: a directory in memory for the files that the readers take, inputs
 * that hold several files, and what every failure must look like.
 *
 * A target is one LLVMFuzzerTestOneInput (libFuzzer). It asserts what must hold for any input, so
 * that the fuzzer finds wrong results too and not crashes alone. */
#ifndef WANAMAKER_TESTS_FUZZ_H
#define WANAMAKER_TESTS_FUZZ_H

#include "wanamaker/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { FUZZ_SEPARATOR = 0x1e }; /* between the files of an input; no reader accepts it in a file */

typedef struct {
  const char *data;
  size_t bytes;
} fuzz_bytes_t;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Directory that exists until the process ends: below $WM_FUZZ_DIR, else below /dev/shm. */
const char *fuzz_directory(void);
/* Path of `name` in it; borrowed until the next call. */
const char *fuzz_path(const char *name);
/* Makes the file `name` hold `bytes`. */
void fuzz_write(const char *name, fuzz_bytes_t bytes);

/* Takes what comes before the next separator, or all. */
fuzz_bytes_t fuzz_part(fuzz_bytes_t *rest);
/* The same as a terminated string on the heap. */
char *fuzz_text(fuzz_bytes_t bytes);

/* Asserts that a failed status is `expected` and that the message names `place`. */
void fuzz_check_failure(wm_status_t status, const wm_error_t *err, wm_status_t expected,
                        const char *place);

#endif
