/* Command line, MPI start and end, exit code.
 *
 *   wanamaker JOB [CONFIG.cfg] [key=value ...] [-n] [-v]
 *
 * Rank 0 reads the configuration; the others parse the resolved text it broadcasts, so that all
 * ranks work from equal settings even where file systems differ. */
#include "jobs.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/memory_room.h"
#include "wanamaker/base/memory_usage.h"
#include "wanamaker/io/files.h"
#include "wanamaker/io/hdf5.h"
#include "wanamaker/linalg/blas.h"
#include "wanamaker/linalg/cpu.h"
#include "wanamaker/linalg/gemm.h"
#include "wanamaker/par/watchdog.h"
#include "wm_commit.h"

#include <fcntl.h>
#include <hdf5.h>
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#ifndef WM_VERSION
#define WM_VERSION "unknown"
#endif

typedef struct {
  const wm_job_t *job;
  const char *config_path;
  const char **overrides;
  int n_overrides;
  char *compare; /* owned: the override that --compare A B stands for */
  bool dry_run, verbose, help, version;
} command_t;

static const wm_job_t *find_job(const char *name) {
  for (const wm_job_t *j = wm_jobs; j->name != NULL; j++)
    if (strcmp(j->name, name) == 0)
      return j;
  return NULL;
}

static wm_status_t read_option(const char *arg, command_t *c, wm_error_t *err) {
  if (strcmp(arg, "-n") == 0 || strcmp(arg, "--dry-run") == 0)
    c->dry_run = true;
  else if (strcmp(arg, "-v") == 0 || strcmp(arg, "--verbose") == 0)
    c->verbose = true;
  else if (strcmp(arg, "-h") == 0 || strcmp(arg, "--help") == 0)
    c->help = true;
  else if (strcmp(arg, "--version") == 0)
    c->version = true;
  else
    return wm_fail(err, WM_USAGE, "unknown option %s (see wanamaker --help)", arg);
  return WM_OK;
}

/* A path as configurations write strings. */
static void put_quoted(FILE *f, const char *text) {
  fputc('"', f);
  for (; *text != '\0'; text++)
    fprintf(f, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
  fputc('"', f);
}

/* --compare A B is report.compare=["A", "B"]; `n` arguments follow. */
static wm_status_t read_compare(int n, char **arguments, command_t *c, wm_error_t *err) {
  if (c->compare != NULL)
    return wm_fail(err, WM_USAGE, "--compare is there twice");
  for (int i = 0; i < 2; i++)
    if (i >= n || arguments[i][0] == '\0' || arguments[i][0] == '-')
      return wm_fail(err, WM_USAGE, "--compare takes two directories of results; %s is %s",
                     i == 0 ? "the first" : "the second",
                     i >= n                   ? "missing"
                     : arguments[i][0] == '-' ? arguments[i]
                                              : "an empty name");
  size_t bytes;
  FILE *f = open_memstream(&c->compare, &bytes);
  if (f == NULL)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate the arguments");
  fputs("report.compare=[", f);
  put_quoted(f, arguments[0]);
  fputs(", ", f);
  put_quoted(f, arguments[1]);
  fputc(']', f);
  if (fclose(f) != 0)
    return wm_fail(err, WM_ENVIRONMENT, "cannot allocate the arguments");
  c->overrides[c->n_overrides++] = c->compare;
  return WM_OK;
}

static bool is_directory(const char *path) {
  struct stat info;
  return stat(path, &info) == 0 && S_ISDIR(info.st_mode);
}

/* `c->overrides` has room for argc pointers. */
static wm_status_t read_command(int argc, char **argv, command_t *c, wm_error_t *err) {
  for (int i = 1; i < argc; i++) {
    const char *arg = argv[i];
    wm_status_t status = WM_OK;
    if (strcmp(arg, "--compare") == 0) {
      status = read_compare(argc - i - 1, argv + i + 1, c, err);
      i += 2;
    } else if (arg[0] == '-') {
      status = read_option(arg, c, err);
    } else if (c->job == NULL) {
      c->job = find_job(arg);
      if (c->job == NULL)
        status = wm_fail(err, WM_USAGE, "unknown job \"%s\" (see wanamaker --help)", arg);
    } else if (strchr(arg, '=') != NULL) {
      c->overrides[c->n_overrides++] = arg;
    } else if (c->compare != NULL && is_directory(arg)) {
      status =
          wm_fail(err, WM_USAGE, "--compare takes two directories of results; a third is %s", arg);
    } else if (c->config_path == NULL) {
      c->config_path = arg;
    } else {
      status = wm_fail(err, WM_USAGE, "two configuration files: %s and %s", c->config_path, arg);
    }
    if (status != WM_OK)
      return status;
  }
  if (c->job == NULL && !c->help && !c->version)
    return wm_fail(err, WM_USAGE, "a job is missing (see wanamaker --help)");
  return WM_OK;
}

static void print_help(const wm_job_t *job) {
  printf("Usage: wanamaker JOB [CONFIG.cfg] [key=value ...] [-n] [-v]\n"
         "       mpirun -n P wanamaker ...    or    srun wanamaker ...\n\n");
  if (job != NULL) {
    printf("%s: %s\n\nSettings (in the file or as key=value):\n", job->name, job->summary);
    wm_config_print_help(wm_settings, job->bits, stdout);
    return;
  }
  printf("Measures, layer by layer, what replacing a language model's MLPs by linear maps costs.\n"
         "\nJobs:\n");
  for (const wm_job_t *j = wm_jobs; j->name != NULL; j++)
    printf("  %-10s %s\n", j->name, j->summary);
  printf("\nOptions:\n"
         "  -n, --dry-run   check everything and say what would be done\n"
         "  --compare A B   of the job report: what differs between two directories of results\n"
         "  -v, --verbose   log decisions and timings too\n"
         "  -h, --help      this text; after a JOB: its settings\n"
         "  --version       versions of the program, its libraries and the CPU's features\n"
         "\nExit codes: 0 done, 2 usage or configuration, 3 bad input, 4 environment,\n"
         "5 numerical failure, 74 no progress, 75 stopped on request (resubmit to continue)\n");
}

static void print_version(void) {
  char mpi[MPI_MAX_LIBRARY_VERSION_STRING];
  int length;
  MPI_Get_library_version(mpi, &length);
  mpi[strcspn(mpi, "\n,")] = '\0';
  wm_error_t ignored = {0};
  bool bf16 = wm_compute_check(WM_COMPUTE_BF16, &ignored) == WM_OK;
  unsigned major, minor, release;
  H5get_libversion(&major, &minor, &release);
  printf("wanamaker %s (%s)\nMPI        %s\nHDF5       %u.%u.%u\nBLAS       %s\nnetwork    %s\n"
         "CPU        %s\nproducts   f32, %sbf16_emulated\n",
         WM_VERSION, WM_COMMIT, mpi, major, minor, release, wm_blas_name(), wm_gemm_backend(),
         wm_cpu_features(), bf16 ? "bf16, " : "");
}

/* Reads on rank 0, hands the resolved text round, parses it elsewhere. Collective. */
static wm_status_t share_config(const wm_comm_t *comm, const command_t *c, wm_config_t **out,
                                wm_error_t *err) {
  char *text = NULL;
  int64_t bytes = 0;
  wm_status_t status = WM_OK;
  *out = NULL;
  if (comm->rank == 0) {
    status = wm_config_read(wm_settings, c->config_path, c->overrides, c->n_overrides, c->job->bits,
                            out, err);
    if (status == WM_OK)
      bytes = (int64_t)strlen(wm_config_text(*out)) + 1;
  }
  status = wm_agree(comm->world, status, err);
  if (status != WM_OK || comm->size == 1)
    return status;
  wm_broadcast(comm->world, 0, &bytes, sizeof bytes);
  void *memory;
  status = wm_agree(comm->world, wm_alloc(&memory, bytes, 1, "configuration", err), err);
  if (status != WM_OK)
    return status;
  text = memory;
  if (comm->rank == 0)
    memcpy(text, wm_config_text(*out), (size_t)bytes);
  wm_broadcast(comm->world, 0, text, bytes);
  if (comm->rank != 0)
    status = wm_config_parse(wm_settings, text, "configuration of rank 0", NULL, 0, c->job->bits,
                             out, err);
  free(text);
  return wm_agree(comm->world, status, err);
}

/* Without OMP_NUM_THREADS the cores of a node are shared out among its ranks: the OpenMP default
 * would start as many threads as cores in every rank. */
static void choose_threads(const wm_comm_t *comm) {
  if (getenv("OMP_NUM_THREADS") != NULL)
    return;
  int cores = wm_threads(); /* what the process is bound to */
  long all = sysconf(_SC_NPROCESSORS_ONLN);
  int share = (int)(all > 0 ? all : cores) / comm->node_size;
  int threads = share < cores ? share : cores;
  wm_set_threads(threads > 0 ? threads : 1);
}

/* Starts the watchdog, and says what threads MPI offers to it and to the work queue. Collective. */
static wm_status_t start_watchdog(const wm_comm_t *comm, const wm_config_t *config,
                                  const wm_log_t *log, wm_watchdog_t **out, wm_error_t *err) {
  bool served = wm_threads_served(comm);
  wm_log(log, WM_LOG_DEBUG, "MPI_THREAD_MULTIPLE: %s", served ? "provided" : "not provided");
  if (!served && comm->size > 1)
    wm_log(log, WM_LOG_WARN,
           "MPI offers no MPI_THREAD_MULTIPLE: work is dealt out in advance, so that the slowest "
           "rank sets the pace, and the watchdog waits ten times longer");
  return wm_watchdog_start(comm, wm_config_float(config, "watchdog.seconds"), out, err);
}

/* Collective. */
static void report_memory(const wm_run_t *run) {
  char text[32];
  wm_memory_text(wm_node_memory_peak(run->memory), text, sizeof text);
  wm_log(run->log, WM_LOG_INFO, "peak memory %s on the node%s", text,
         run->comm->node_count > 1 ? " that took most" : "");
}

/* What limits memory, for those who ask why a run was refused or killed. */
static void tell_memory_room(const wm_log_t *log) {
  char text[32];
  wm_memory_room_t room = wm_memory_room(NULL);
  wm_memory_text(room.bytes, text, sizeof text);
  wm_log(log, WM_LOG_DEBUG, "memory left on this node: %s, by %s", text, room.source);
}

static wm_status_t run_job(const wm_comm_t *comm, const command_t *c, wm_error_t *err) {
  wm_config_t *config = NULL;
  wm_watchdog_t *watchdog = NULL;
  wm_lock_t lock = {0};
  wm_log_t log = {c->verbose ? WM_LOG_DEBUG : WM_LOG_INFO, comm->rank, false};
  wm_status_t status = wm_agree(comm->world, wm_h5_check_environment(err), err);
  if (status == WM_OK)
    status = share_config(comm, c, &config, err);
  if (status == WM_OK)
    status = start_watchdog(comm, config, &log, &watchdog, err);
  if (status == WM_OK) {
    choose_threads(comm);
    wm_h5_align((int64_t)(wm_config_float(config, "io.alignment_mib") * 0x1p20));
    wm_run_t run = {.comm = comm,
                    .config = config,
                    .log = &log,
                    .lock = &lock,
                    .dry_run = c->dry_run,
                    .out = stdout,
                    .provenance = {.version = WM_VERSION,
                                   .commit = WM_COMMIT,
                                   .configuration = wm_config_text(config),
                                   .ranks = comm->size,
                                   .threads = wm_threads(),
                                   .backend = wm_gemm_backend(),
                                   .start = (double)time(NULL)}};
    wm_log(&log, WM_LOG_DEBUG, "%s: %d ranks on %d nodes, %d threads each", c->job->name,
           comm->size, comm->node_count, run.provenance.threads);
    tell_memory_room(&log);
    wm_watchdog_phase(c->job->name);
    status = wm_node_memory_start(comm, &run.memory, err);
    if (status == WM_OK)
      status = c->job->function(&run, err);
    if (status == WM_OK)
      report_memory(&run);
    wm_node_memory_stop(run.memory);
  }
  wm_lock_release(&lock);
  wm_watchdog_stop(watchdog);
  wm_config_free(config);
  return status;
}

/* Collective. A stop is no failure: only its reason is told, which one rank may have heard alone.
 */
static void tell_end(const wm_comm_t *comm, wm_status_t status, const wm_error_t *err) {
  int code = wm_stop_code();
  MPI_Allreduce(MPI_IN_PLACE, &code, 1, MPI_INT, MPI_MAX, comm->world);
  wm_stop_adopt(code);
  if (comm->rank != 0 || status == WM_OK)
    return;
  if (status == WM_STOPPED)
    fprintf(stderr,
            "wanamaker: stopped on request (%s); submit the same command again to continue (%s)\n",
            code != 0 ? wm_stop_reason() : "limit of time", err->message);
  else
    fprintf(stderr, "wanamaker: %s: %s\n", wm_status_name(status), err->message);
}

/* Everything between MPI_Init and MPI_Finalize. */
static wm_status_t work(int argc, char **argv, wm_error_t *err) {
  wm_comm_t *comm;
  wm_status_t status = wm_comm_create(MPI_COMM_WORLD, &comm, err);
  if (status != WM_OK)
    return status;
  command_t command = {0};
  void *memory = NULL;
  status = wm_alloc(&memory, argc + 1, sizeof(char *), "arguments", err);
  command.overrides = memory;
  if (status == WM_OK)
    status = read_command(argc, argv, &command, err);
  status = wm_agree(comm->world, status, err);
  if (status == WM_OK && (command.help || command.version)) {
    if (comm->rank == 0 && command.version)
      print_version();
    else if (comm->rank == 0)
      print_help(command.job);
  } else if (status == WM_OK) {
    status = run_job(comm, &command, err);
  }
  if (comm->rank == 0 && (fflush(stdout) != 0 || ferror(stdout)) && status == WM_OK)
    status =
        wm_fail(err, WM_ENVIRONMENT,
                "cannot write to standard output: what was printed is lost or cut short; result "
                "files that were announced are whole");
  status = wm_agree(comm->world, status, err);
  tell_end(comm, status, err);
  free(memory);
  free(command.compare);
  wm_comm_free(comm);
  return status;
}

/* A standard stream that was closed would give its number to the next file, and what is printed
 * would go into a result. Reading from standard output's stand-in is all that it allows, so that
 * what is lost there is reported as lost. */
static void occupy_standard_streams(void) {
  static const int modes[] = {O_RDONLY, O_RDONLY, O_WRONLY};
  for (int fd = 0; fd < 3; fd++)
    if (fcntl(fd, F_GETFD) == -1 && open("/dev/null", modes[fd]) != fd)
      _exit(WM_ENVIRONMENT); /* and nowhere to say why */
}

int main(int argc, char **argv) {
  occupy_standard_streams();
  wm_h5_environment();
  signal(SIGPIPE, SIG_IGN); /* a closed pipe is a write error that is reported */
  signal(SIGXFSZ, SIG_IGN); /* so is the file size limit */
  wm_stop_install();
  int provided; /* par/ asks for it where it matters */
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  wm_map_guard();
  wm_error_t err = {0};
  wm_status_t status = work(argc, argv, &err);
  /* The first rank that exits non-zero makes mpirun end the others: all leave together. */
  MPI_Barrier(MPI_COMM_WORLD);
  MPI_Finalize();
  return (int)status;
}
