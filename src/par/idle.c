#include "wanamaker/par/idle.h"

#include <time.h>

void wm_idle_barrier(MPI_Comm comm) {
  const struct timespec pause = {.tv_nsec = 500000};
  MPI_Request request;
  int done = 0;
  MPI_Ibarrier(comm, &request);
  MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  while (!done) {
    nanosleep(&pause, NULL);
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
  }
}
