#include "wanamaker/measure/probe_parts.h"

#include "parts_folder.h"
#include "wanamaker/base/hash.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/io/files.h"

#include <string.h>

/* --- positions ----------------------------------------------------------------------------------
 */

wm_status_t wm_probe_positions_create(int64_t n, wm_probe_positions_t *p, wm_error_t *err) {
  wm_status_t status;
  void *memory;
  *p = (wm_probe_positions_t){.n = n};
  WM_TRY(wm_alloc(&memory, 6 * n, sizeof(double), "positions", err));
  p->full = memory;
  p->entropy = p->full + n;
  p->delta = p->entropy + n;
  p->divergence = p->delta + n;
  p->agreed = p->divergence + n;
  p->factor = p->agreed + n;
  WM_TRY(wm_alloc(&memory, 2 * n, 1, "positions", err));
  p->used = memory;
  p->classes = p->used + n;
  WM_TRY(wm_alloc(&memory, n, sizeof(int32_t), "positions", err));
  p->cluster = memory;
cleanup:
  return status;
}

void wm_probe_positions_destroy(wm_probe_positions_t *p) {
  free(p->full);
  free(p->used);
  free(p->cluster);
  memset(p, 0, sizeof *p);
}

/* --- columns ------------------------------------------------------------------------------------
 */

enum { COLUMNS = 9 };

typedef struct {
  const char *path;
  hid_t stored, type;
  void *data;
} column_t;

static void list_columns(const wm_probe_positions_t *p, column_t c[COLUMNS]) {
  const hid_t f64 = H5T_IEEE_F64LE, f64_here = H5T_NATIVE_DOUBLE;
  const hid_t u8 = H5T_STD_U8LE, u8_here = H5T_NATIVE_UINT8;
  const column_t all[COLUMNS] = {{"/full", f64, f64_here, p->full},
                                 {"/entropy", f64, f64_here, p->entropy},
                                 {"/delta", f64, f64_here, p->delta},
                                 {"/divergence", f64, f64_here, p->divergence},
                                 {"/agreed", f64, f64_here, p->agreed},
                                 {"/factor", f64, f64_here, p->factor},
                                 {"/used", u8, u8_here, p->used},
                                 {"/classes", u8, u8_here, p->classes},
                                 {"/cluster", H5T_STD_I32LE, H5T_NATIVE_INT32, p->cluster}};
  memcpy(c, all, sizeof all);
}

/* --- files --------------------------------------------------------------------------------------
 */

/* Collective. */
static bool has_key(wm_h5_t *file, uint64_t key) {
  char expected[17], *found = NULL;
  wm_error_t ignored = {0};
  wm_hash_text(key, expected);
  const bool same = wm_h5_get_string(file, "/", "part_key", &found, &ignored) == WM_OK &&
                    strcmp(found, expected) == 0;
  free(found);
  return same;
}

bool wm_probe_part_is_there(const wm_comm_t *comm, const char *folder, int64_t layer, uint64_t key,
                            const wm_log_t *log) {
  char path[WM_PART_PATH_SIZE];
  wm_error_t err = {0};
  wm_h5_t *file = NULL;
  wm_part_path(folder, layer, path);
  int there = comm->rank == 0 && wm_file_exists(path);
  MPI_Bcast(&there, 1, MPI_INT, 0, comm->world);
  if (!there)
    return false;
  wm_status_t status = wm_h5_open(comm->world, path, &file, &err);
  if (status == WM_OK)
    status = wm_h5_verify(file, &err);
  const bool same = status == WM_OK && has_key(file, key);
  wm_h5_close(file);
  if (status != WM_OK)
    wm_log(log, WM_LOG_WARN, "damaged and not used: %s", err.message);
  else if (!same)
    wm_log(log, WM_LOG_WARN, "%s: of other inputs, not used", path);
  return same;
}

wm_status_t wm_probe_part_write(const wm_comm_t *comm, const char *folder, int64_t layer,
                                uint64_t key, const wm_probe_positions_t *p,
                                const wm_probe_tables_t *tables, wm_error_t *err) {
  const int64_t zero = 0, count = comm->rank == 0 ? p->n : 0;
  char path[WM_PART_PATH_SIZE], text[17];
  column_t c[COLUMNS];
  wm_h5_t *file = NULL;
  wm_status_t status;
  wm_hash_text(key, text);
  list_columns(p, c);
  WM_TRY(wm_part_folder(comm, folder, err));
  wm_part_path(folder, layer, path);
  WM_TRY(wm_h5_create(comm->world, path, &file, err));
  for (int i = 0; i < COLUMNS; i++) {
    WM_TRY(wm_h5_dataset(file, c[i].path, c[i].stored, 1, &p->n, "[position]", err));
    WM_TRY(wm_h5_write(file, c[i].path, c[i].type, &zero, &count, c[i].data, err));
  }
  WM_TRY(wm_probe_tables_write(tables, comm->rank == 0, file, err));
  WM_TRY(wm_h5_set_string(file, "/", "part_key", text, err));
  wm_h5_t *whole = file;
  file = NULL; /* publishing takes it */
  WM_TRY(wm_h5_publish(whole, err));
cleanup:
  wm_h5_close(file);
  return status;
}

wm_status_t wm_probe_part_read(const wm_comm_t *comm, const char *folder, int64_t layer,
                               const wm_probe_positions_t *p, wm_probe_tables_t *tables,
                               wm_error_t *err) {
  const int64_t zero = 0;
  char path[WM_PART_PATH_SIZE];
  column_t c[COLUMNS];
  wm_h5_t *file = NULL;
  wm_status_t status;
  list_columns(p, c);
  wm_part_path(folder, layer, path);
  WM_TRY(wm_h5_open(comm->world, path, &file, err));
  for (int i = 0; i < COLUMNS; i++)
    WM_TRY(wm_h5_read(file, c[i].path, c[i].type, &zero, &p->n, c[i].data, err));
  WM_TRY(wm_probe_tables_read(tables, comm->world, file, err));
cleanup:
  wm_h5_close(file);
  return status;
}

void wm_probe_parts_remove(const wm_comm_t *comm, const char *folder) {
  wm_part_remove(comm, folder);
}
