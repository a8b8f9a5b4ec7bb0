/* What a program sends: loaded before the MPI library (LD_PRELOAD), it counts the calls that move
 * data or wait for others, through MPI's profiling interface, and writes at MPI_Finalize to
 * WM_MESSAGES, for every library that called and every kind of call, the calls of all ranks and
 * the bytes:
 *
 *   caller <tab> kind <tab> calls <tab> bytes
 *
 * Bytes of a collective call are the least that it must move, whatever the algorithm: a sum of n
 * bytes over P ranks 2 (P - 1) n, a broadcast (P - 1) n, and so on; a rank adds its share of them.
 */
#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLERS = 3 };
static const char *const callers[CALLERS] = {"program", "HDF5", "ScaLAPACK"};

typedef enum { SEND, SUM, BROADCAST, GATHER, PREFIX, BARRIER, KINDS } kind_t;
static const char *const kinds[KINDS] = {"send", "sum", "broadcast", "gather", "prefix", "barrier"};

/* Several threads of a rank send. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static double counts[CALLERS][KINDS][2]; /* calls, bytes */

static int caller_of(void *address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == NULL)
    return 0;
  const char *slash = strrchr(info.dli_fname, '/'), *name = slash != NULL ? slash : info.dli_fname;
  return strstr(name, "hdf5") != NULL ? 1 : strstr(name, "scalapack") != NULL ? 2 : 0;
}

static void count(void *address, kind_t kind, double bytes) {
  const int caller = caller_of(address);
  pthread_mutex_lock(&lock);
  counts[caller][kind][0]++;
  counts[caller][kind][1] += bytes;
  pthread_mutex_unlock(&lock);
}

static double bytes_of(int n, MPI_Datatype type) {
  int size;
  PMPI_Type_size(type, &size);
  return (double)n * size;
}

static int size_of(MPI_Comm comm) {
  int size;
  PMPI_Comm_size(comm, &size);
  return size;
}

static bool is_rank(MPI_Comm comm, int rank) {
  int own;
  PMPI_Comm_rank(comm, &own);
  return own == rank;
}

#define HERE __builtin_return_address(0)

/* --- between two --------------------------------------------------------------------------------
 */

int MPI_Send(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  count(HERE, SEND, bytes_of(n, type));
  return PMPI_Send(data, n, type, to, tag, comm);
}

int MPI_Ssend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  count(HERE, SEND, bytes_of(n, type));
  return PMPI_Ssend(data, n, type, to, tag, comm);
}

int MPI_Rsend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
  count(HERE, SEND, bytes_of(n, type));
  return PMPI_Rsend(data, n, type, to, tag, comm);
}

int MPI_Isend(const void *data, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request) {
  count(HERE, SEND, bytes_of(n, type));
  return PMPI_Isend(data, n, type, to, tag, comm, request);
}

int MPI_Sendrecv(const void *data, int n, MPI_Datatype type, int to, int tag, void *other,
                 int n_other, MPI_Datatype type_other, int from, int tag_other, MPI_Comm comm,
                 MPI_Status *status) {
  count(HERE, SEND, bytes_of(n, type));
  return PMPI_Sendrecv(data, n, type, to, tag, other, n_other, type_other, from, tag_other, comm,
                       status);
}

/* --- collective ---------------------------------------------------------------------------------
 */

static double share_of_sum(int n, MPI_Datatype type, MPI_Comm comm) {
  const double size = size_of(comm);
  return 2 * (size - 1) / size * bytes_of(n, type);
}

int MPI_Allreduce(const void *own, void *all, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  count(HERE, SUM, share_of_sum(n, type, comm));
  return PMPI_Allreduce(own, all, n, type, op, comm);
}

int MPI_Iallreduce(const void *own, void *all, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                   MPI_Request *request) {
  count(HERE, SUM, share_of_sum(n, type, comm));
  return PMPI_Iallreduce(own, all, n, type, op, comm, request);
}

int MPI_Reduce(const void *own, void *all, int n, MPI_Datatype type, MPI_Op op, int root,
               MPI_Comm comm) {
  count(HERE, SUM, is_rank(comm, root) ? 0 : bytes_of(n, type));
  return PMPI_Reduce(own, all, n, type, op, root, comm);
}

int MPI_Bcast(void *data, int n, MPI_Datatype type, int root, MPI_Comm comm) {
  count(HERE, BROADCAST, is_rank(comm, root) ? (size_of(comm) - 1) * bytes_of(n, type) : 0);
  return PMPI_Bcast(data, n, type, root, comm);
}

int MPI_Gather(const void *own, int n, MPI_Datatype type, void *all, int n_all,
               MPI_Datatype type_all, int root, MPI_Comm comm) {
  count(HERE, GATHER, is_rank(comm, root) ? 0 : bytes_of(n, type));
  return PMPI_Gather(own, n, type, all, n_all, type_all, root, comm);
}

int MPI_Gatherv(const void *own, int n, MPI_Datatype type, void *all, const int *n_all,
                const int *offsets, MPI_Datatype type_all, int root, MPI_Comm comm) {
  count(HERE, GATHER, is_rank(comm, root) ? 0 : bytes_of(n, type));
  return PMPI_Gatherv(own, n, type, all, n_all, offsets, type_all, root, comm);
}

int MPI_Allgather(const void *own, int n, MPI_Datatype type, void *all, int n_all,
                  MPI_Datatype type_all, MPI_Comm comm) {
  count(HERE, GATHER, (size_of(comm) - 1) * bytes_of(n_all, type_all));
  return PMPI_Allgather(own, n, type, all, n_all, type_all, comm);
}

int MPI_Exscan(const void *own, void *all, int n, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
  count(HERE, PREFIX, is_rank(comm, size_of(comm) - 1) ? 0 : bytes_of(n, type));
  return PMPI_Exscan(own, all, n, type, op, comm);
}

int MPI_Barrier(MPI_Comm comm) {
  count(HERE, BARRIER, 0);
  return PMPI_Barrier(comm);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) {
  count(HERE, BARRIER, 0);
  return PMPI_Ibarrier(comm, request);
}

/* --- the end ------------------------------------------------------------------------------------
 */

static void write_table(const char *path, double all[CALLERS][KINDS][2]) {
  FILE *f = fopen(path, "w");
  bool written = f != NULL;
  for (int c = 0; c < CALLERS && written; c++)
    for (int k = 0; k < KINDS; k++)
      written &=
          fprintf(f, "%s\t%s\t%.0f\t%.0f\n", callers[c], kinds[k], all[c][k][0], all[c][k][1]) > 0;
  if (f == NULL || fclose(f) != 0 || !written) {
    perror(path);
    PMPI_Abort(MPI_COMM_WORLD, 4);
  }
}

int MPI_Finalize(void) {
  const char *path = getenv("WM_MESSAGES");
  double all[CALLERS][KINDS][2];
  int rank;
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
  PMPI_Reduce(counts, all, CALLERS * KINDS * 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
  if (rank == 0 && path != NULL)
    write_table(path, all);
  return PMPI_Finalize();
}
