/* Folders of numbered files, 0000.h5, 0001.h5, ..., that are gone when the work is done. */
#ifndef WANAMAKER_SRC_MEASURE_PARTS_FOLDER_H
#define WANAMAKER_SRC_MEASURE_PARTS_FOLDER_H

#include "wanamaker/base/status.h"
#include "wanamaker/par/comm.h"

#include <stdint.h>

enum { WM_PART_PATH_SIZE = 4096 + 32 };

/* "folder/0012.h5" */
void wm_part_path(const char *folder, int64_t number, char path[WM_PART_PATH_SIZE]);

/* Collective. Numbers of the files in `folder`, ascending; none if there is no such folder. Removes
 * unfinished files. *numbers is on the heap. */
wm_status_t wm_part_list(const wm_comm_t *comm, const char *folder, int64_t **numbers, int64_t *n,
                         wm_error_t *err);

/* Collective. Makes the folder. */
wm_status_t wm_part_folder(const wm_comm_t *comm, const char *folder, wm_error_t *err);

/* Collective. Removes the files and, if nothing else is in it, the folder. */
void wm_part_remove(const wm_comm_t *comm, const char *folder);

#endif
