/* What a fit and a sweep take on a machine that is described by a few rates: operations, messages,
 * memory, time; by the same formulas as the dry run's estimates and the same cut of the sweep into
 * units, whose queue is simulated.
 *
 * What is assumed (and left out):
 *   - all cores compute at the given rates, whatever else runs; of t threads, one rank has the
 * speed of t / (1 + loss (t - 1)) cores;
 *   - an all-reduce of n bytes over N nodes takes 2 (N - 1) / N n / network, a fetch from the queue
 * two latencies;
 *   - the file system's rate is shared by all nodes; every node reads the whole model;
 *   - layers of a fit are solved at the given rates of one core for every rank of a team;
 *   - Newton's method takes WM_PLAN_NEWTON steps with WM_PLAN_HESSIANS of them: the text decides,
 * but it varies little.
 *
 * A job is opened once (wm_plan_open) and consists of pieces: files of surrogates, evaluations of
 * variants, fits of gates. Their costs are summed up by wm_plan_add.
 *
 * Bytes between ranks are the least that a call must move, whatever the algorithm: a sum of n bytes
 * over P ranks 2 (P - 1) n, a broadcast (P - 1) n. The number of meetings is a count of what the
 * stages do (tests/mpi/messages.sh counts again). Left out: what the ranks of a team that solves a
 * layer tell each other (ScaLAPACK; widths of 1024 and more), and MPI-IO.
 *
 * Not collective: plain arithmetic.
 */
#ifndef WANAMAKER_MEASURE_PLAN_H
#define WANAMAKER_MEASURE_PLAN_H

#include "wanamaker/base/status.h"
#include "wanamaker/measure/blocks.h"
#include "wanamaker/measure/gate_fit.h"
#include "wanamaker/measure/probe.h"
#include "wanamaker/measure/variants.h"
#include "wanamaker/model/arch.h"

#include <stdbool.h>
#include <stdint.h>

/* Rates per second of one core where it says so. */
typedef struct {
  int64_t cores;          /* of a node */
  double memory;          /* bytes of a node */
  double sweep;           /* operations of a stacked pass, one core */
  double trunk;           /* operations of a pass of the model alone, one core */
  double gram;            /* float64 operations of Gram matrices, one core */
  double solve, spectrum; /* d^3 of a layer's solution, of its spectrum and path, one core */
  double steps; /* simple steps of scalar code, one core: a number read, looked up and added */
  double thread_loss; /* see above */
  double start;       /* seconds in which a job's ranks are started and its files opened */
  double network, latency,
      files; /* bytes of a node's link; seconds of a message; bytes of the file system */
} wm_machine_t;

typedef struct {
  int64_t nodes, ranks, threads; /* ranks of a node, threads of a rank */
} wm_layout_t;

/* What is done. All borrowed. */
typedef struct {
  const wm_arch_t *arch;
  const wm_blocks_t *fit, *heldout, *evaluation; /* heldout: NULL if there is none */
  const wm_variants_t *variants; /* that are evaluated; what their gates say is not read */
  const int64_t *layers;         /* [fit_layers] ascending: those of a file of surrogates */
  int64_t fit_layers;
  bool sequential;    /* one after another, each in a pass of its own */
  int64_t gram_bytes; /* of a node, at most */
  bool spectrum;
  int64_t stack_rows, tile_rows, tile_vocab, max_group; /* max_group 0: chosen */
  double rank_bytes;                                    /* workspace of a rank, at most; 0: any */
  double checkpoint_seconds;
  int64_t lambdas;   /* of the path that is reported */
  int64_t resamples; /* of the bootstrap, twice as many with unpaired intervals */
  int64_t units;     /* that it draws from, of the evaluation */
} wm_work_t;

typedef struct {
  double seconds;        /* of it all */
  double flops, flops64; /* of all ranks */
  double memory;         /* bytes of a node, weights among them */
  double messages;       /* from rank to rank, of all ranks: the queue's */
  double meetings;       /* collective calls that a rank takes part in, mean */
  double message_bytes;  /* of all these, between ranks: see below */
  double file_bytes;     /* read and written, by all nodes */
  double busy;           /* part of the ranks' time in which they compute */
  int64_t units, group;
} wm_cost_t;

/* float32 bytes of the parameters. */
double wm_plan_weights(const wm_arch_t *arch);
/* Speed of a rank of t threads, in cores. */
double wm_plan_speed(const wm_machine_t *machine, int64_t threads);

/* Seconds of a sum of so many bytes over the nodes. */
double wm_plan_reduce_seconds(const wm_machine_t *machine, wm_layout_t layout, double bytes);
/* Sums up; of memory the most. busy and group are left alone. */
void wm_plan_add(wm_cost_t *total, const wm_cost_t *piece);

/* What a job takes beside its pieces: the start, the model's weights. */
void wm_plan_open(const wm_work_t *work, const wm_machine_t *machine, wm_layout_t layout,
                  wm_cost_t *out);
/* One file of surrogates. WM_USAGE: fit.memory_gib holds no layer. */
wm_status_t wm_plan_fit(const wm_work_t *work, const wm_machine_t *machine, wm_layout_t layout,
                        wm_cost_t *out, wm_error_t *err);
/* Seconds of the statistics of so many variants on `losses` predictions each, whose `units` are
 * resampled. */
double wm_plan_statistics(const wm_machine_t *machine, wm_layout_t layout, double variants,
                          double losses, double resamples, double units);
/* One evaluation of variants, with its statistics. WM_USAGE: one variant does not fit rank_bytes.
 */
wm_status_t wm_plan_sweep(const wm_work_t *work, const wm_machine_t *machine, wm_layout_t layout,
                          wm_cost_t *out, wm_error_t *err);

/* A fit of gates, without their file. All borrowed. */
typedef struct {
  const wm_arch_t *arch;
  const wm_blocks_t *fit, *heldout; /* the gates' range and the one on which they are chosen */
  const int64_t *layers;            /* [n_layers] ascending */
  int64_t n_layers;
  const wm_gate_spec_t *specs; /* [n_specs] of every layer */
  int64_t n_specs;
  int64_t feature_bytes;    /* of a rank, at most; 0: any */
  int64_t resamples, units; /* of the AUC's interval */
} wm_plan_gates_t;

enum { WM_PLAN_NEWTON = 5, WM_PLAN_HESSIANS = 4 };

void wm_plan_gates(const wm_plan_gates_t *gates, const wm_machine_t *machine, wm_layout_t layout,
                   wm_cost_t *out);

/* Probes of the layers of one corpus with one file of surrogates. All borrowed. */
typedef struct {
  const wm_arch_t *arch;
  const wm_work_t *work;     /* of a sweep: memory, groups, tiles */
  const wm_blocks_t *blocks; /* of what is probed */
  const int64_t *layers;     /* [n_layers] ascending */
  int64_t n_layers;
  int64_t views;                     /* of token and context, how many */
  int64_t resamples, units;          /* of all intervals */
  int64_t components;                /* that clusters are looked for in */
  int64_t clusters, restarts;        /* k of k-means */
  int64_t iterations;                /* of it, counted to the last one */
  int64_t hidden, hidden_iterations; /* units of the hidden layer; counted to the last one */
  double train_share;
  bool brief;                        /* losses and types alone */
  int64_t memory_bytes;              /* of a rank's rows, at most; 0: any */
  const wm_probe_options_t *options; /* what the above is of */
} wm_plan_probe_t;

/* WM_USAGE: as of wm_plan_sweep. */
wm_status_t wm_plan_probe(const wm_plan_probe_t *probe, const wm_machine_t *machine,
                          wm_layout_t layout, wm_cost_t *out, wm_error_t *err);

/* Files that a job reads or writes beside its pieces: collective calls alone, their bytes are few.
 */
typedef enum {
  WM_PLAN_SURROGATES,    /* all of a file */
  WM_PLAN_ONE_SURROGATE, /* one layer of a file */
  WM_PLAN_GATES_READ,
  WM_PLAN_GATES_WITH_COMPONENTS, /* read as well */
  WM_PLAN_GATES_WRITTEN
} wm_plan_file_t;

void wm_plan_add_file(const wm_arch_t *arch, wm_layout_t layout, wm_plan_file_t file, double times,
                      wm_cost_t *total);

/* Time until `workers` of equal speed are done with jobs of these durations, which they take in
 * order, as each gets free; every `interval` seconds (0: never) all wait for each other and write
 * for `pause` seconds. durations: [n]. memory: on the heap, [workers]. */
wm_status_t wm_plan_queue(const double *durations, int64_t n, int64_t workers, double interval,
                          double pause, double *seconds, wm_error_t *err);

#endif
