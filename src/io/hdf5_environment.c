/* The MPI-IO parameters of operations.md, rule 1, and a check that they took effect. */
#include "hdf5_private.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wm_h5_environment(void) {
  setenv("OMPI_MCA_fcoll", "individual", 0);
  setenv("OMPI_MCA_fbtl_posix_read_datasieving", "0", 0);
  /* Nobody uses shared file pointers here, and the component that Open MPI takes for them overruns
   * its buffer when a path has more than some 250 bytes. */
  setenv("OMPI_MCA_sharedfp", "individual", 0);
  setenv("HDF5_USE_FILE_LOCKING", "BEST_EFFORT", 0);
}

void wm_h5_align(int64_t bytes) {
  char text[32];
  snprintf(text, sizeof text, "%lld", (long long)bytes);
  if (bytes > 1)
    setenv(WM_H5_ALIGNMENT, text, 1);
  else
    unsetenv(WM_H5_ALIGNMENT);
}

#ifdef OPEN_MPI

enum { VALUE = 4096 };

/* Reads an MCA parameter through MPI's tool interface: text, or "0" and "1" for booleans. False if
 * this Open MPI has no such parameter. */
static bool read_parameter(const char *name, char value[VALUE]) {
  int index;
  if (MPI_T_cvar_get_index(name, &index) != MPI_SUCCESS)
    return false;
  int name_length = 0, verbosity, binding, scope, count;
  MPI_Datatype type;
  MPI_T_enum names;
  MPI_T_cvar_handle handle;
  if (MPI_T_cvar_get_info(index, NULL, &name_length, &verbosity, &type, &names, NULL, NULL,
                          &binding, &scope) != MPI_SUCCESS ||
      MPI_T_cvar_handle_alloc(index, NULL, &handle, &count) != MPI_SUCCESS)
    return false;
  union {
    char text[VALUE];
    bool flag;
  } buffer;
  memset(&buffer, 0, sizeof buffer);
  bool text = type == MPI_CHAR;
  bool read = count < VALUE && MPI_T_cvar_read(handle, &buffer) == MPI_SUCCESS;
  MPI_T_cvar_handle_free(&handle);
  if (read)
    snprintf(value, VALUE, "%s", text ? buffer.text : buffer.flag ? "1" : "0");
  return read;
}

static wm_status_t check_parameter(const char *name, const char *wanted, wm_error_t *err) {
  char value[VALUE];
  if (!read_parameter(name, value) || strcmp(value, wanted) == 0)
    return WM_OK;
  return wm_fail(
      err, WM_ENVIRONMENT,
      "Open MPI's parameter %s is \"%s\", but must be \"%s\": other values silently lose "
      "or corrupt data; set OMPI_MCA_%s=%s",
      name, value, wanted, name, wanted);
}

wm_status_t wm_h5_check_environment(wm_error_t *err) {
  /* Open MPI takes the level given here for MPI's own from then on: ask for what it is. */
  int level, provided;
  MPI_Query_thread(&level);
  if (MPI_T_init_thread(level, &provided) != MPI_SUCCESS)
    return wm_fail(err, WM_ENVIRONMENT,
                   "MPI's tool interface is not available: cannot check the "
                   "parameters of MPI-IO");
  wm_status_t status = check_parameter("fcoll", "individual", err);
  if (status == WM_OK)
    status = check_parameter("fbtl_posix_read_datasieving", "0", err);
  MPI_T_finalize();
  return status;
}

#else

wm_status_t wm_h5_check_environment(wm_error_t *err) {
  (void)err; /* the faults are Open MPI's */
  return WM_OK;
}

#endif
