/* Which memory is a mapped file, for the handler of SIGBUS (see files.h, wm_map_guard). */
#ifndef WANAMAKER_IO_MAP_GUARD_H
#define WANAMAKER_IO_MAP_GUARD_H

#include <stdint.h>

/* `path` is borrowed until the removal. Beyond some hundreds of maps, further ones go unnamed. Any
 * thread may call. */
void wm_map_guard_add(const void *data, int64_t bytes, const char *path);
void wm_map_guard_remove(const void *data);

#endif
