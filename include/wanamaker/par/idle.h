/* Waiting without using the processor, so that others can be measured meanwhile. */
#ifndef WANAMAKER_PAR_IDLE_H
#define WANAMAKER_PAR_IDLE_H

#include <mpi.h>

/* Collective over `comm`. A barrier in which ranks that wait sleep, looking up every half
 * millisecond. */
void wm_idle_barrier(MPI_Comm comm);

#endif
