/* The checksum of datasets, defined in wanamaker/io/hdf5.h. */
#ifndef WANAMAKER_SRC_IO_CHECKSUM_H
#define WANAMAKER_SRC_IO_CHECKSUM_H

#include <stdint.h>

/* Sum of the terms of elements [first, first + count), `size` bytes each, packed in `data`. */
uint64_t wm_checksum_run(const void *data, int64_t size, int64_t first, int64_t count);

/* Sum of the terms of the hyperslab [offset, offset + count) of an array of extents dims[n_dims];
 * `data` holds it row-major and packed. */
uint64_t wm_checksum_slab(const void *data, int64_t size, int n_dims, const int64_t *dims,
                          const int64_t *offset, const int64_t *count);

#endif
