#include "wanamaker/io/provenance.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

enum { TEXT = 256 };

/* What only rank 0 knows, and what must not differ between the ranks. */
typedef struct {
  char host[TEXT], cpu[TEXT], start[TEXT], end[TEXT], mpi[TEXT], hdf5[TEXT], blas[TEXT];
} facts_t;

static void format_time(char out[TEXT], double seconds) {
  time_t whole = (time_t)seconds;
  struct tm utc;
  if (gmtime_r(&whole, &utc) == NULL || strftime(out, TEXT, "%Y-%m-%dT%H:%M:%SZ", &utc) == 0)
    snprintf(out, TEXT, "unknown");
}

/* OpenBLAS says what it is; of another library, the name of the file that holds dgemm. It is asked
 * for at run time, because it is chosen then (update-alternatives, modules). */
static void describe_blas(char out[TEXT]) {
  typedef char *config_t(void);
  config_t *config;
  void *symbol = dlsym(RTLD_DEFAULT, "openblas_get_config");
  Dl_info info;
  snprintf(out, TEXT, "unknown");
  if (symbol != NULL) {
    memcpy(&config, &symbol, sizeof config); /* a cast would be undefined in C */
    snprintf(out, TEXT, "%s", config());
  } else if ((symbol = dlsym(RTLD_DEFAULT, "dgemm_")) != NULL && dladdr(symbol, &info) != 0) {
    const char *slash = strrchr(info.dli_fname, '/');
    snprintf(out, TEXT, "%s", slash != NULL ? slash + 1 : info.dli_fname);
  }
}

/* "MODEL, N processors" of the first rank's node. */
static void describe_cpu(char out[TEXT]) {
  static const char key[] = "model name";
  char line[TEXT];
  struct utsname machine;
  const char *model = uname(&machine) == 0 ? machine.machine : "unknown";
  FILE *f = fopen("/proc/cpuinfo", "r");
  while (f != NULL && fgets(line, sizeof line, f) != NULL)
    if (strncmp(line, key, sizeof key - 1) == 0 && strchr(line, ':') != NULL) {
      line[strcspn(line, "\n")] = '\0';
      model = strchr(line, ':') + 1;
      model += strspn(model, " ");
      break;
    }
  snprintf(out, TEXT, "%.200s, %ld processors", model, sysconf(_SC_NPROCESSORS_ONLN));
  if (f != NULL)
    fclose(f);
}

static void describe_mpi(char out[TEXT]) {
  char text[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(text, &length);
  text[strcspn(text, "\n")] = '\0';
  snprintf(out, TEXT, "%.*s", TEXT - 1, text);
}

static void gather(facts_t *facts, double start) {
  unsigned major = 0, minor = 0, release = 0;
  memset(facts, 0, sizeof *facts);
  if (gethostname(facts->host, TEXT - 1) != 0)
    snprintf(facts->host, TEXT, "unknown");
  describe_cpu(facts->cpu);
  format_time(facts->start, start);
  format_time(facts->end, (double)time(NULL));
  describe_mpi(facts->mpi);
  H5get_libversion(&major, &minor, &release);
  snprintf(facts->hdf5, TEXT, "%u.%u.%u", major, minor, release);
  describe_blas(facts->blas);
}

wm_status_t wm_provenance_write(wm_h5_t *file, const wm_comm_t *comm, const wm_provenance_t *p,
                                wm_error_t *err) {
  facts_t facts;
  gather(&facts, p->start);
  wm_broadcast(comm->world, 0, &facts, sizeof facts);
  const struct {
    const char *name, *value;
  } texts[] = {
      {"program", "wanamaker"},
      {"version", p->version},
      {"commit", p->commit},
      {"configuration", p->configuration},
      {"compute", p->compute != NULL ? p->compute : "float32"},
      {"mpi", facts.mpi},
      {"hdf5", facts.hdf5},
      {"blas", facts.blas},
      {"gemm", p->backend},
      {"host", facts.host},
      {"cpu", facts.cpu},
      {"start", facts.start},
      {"end", facts.end},
  };
  const struct {
    const char *name;
    int64_t value;
  } numbers[] = {{"ranks", p->ranks}, {"threads", p->threads}, {"nodes", comm->node_count}};
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
    WM_TRY(wm_h5_set_string(file, "/", texts[i].name, texts[i].value, err));
  for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
    WM_TRY(wm_h5_set_int(file, "/", numbers[i].name, numbers[i].value, err));
cleanup:
  return status;
}
