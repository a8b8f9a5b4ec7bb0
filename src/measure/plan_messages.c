/* What the ranks of a fit, a sweep and of gates tell each other. The constants count the calls that
 * opening, checking and writing a stage's files takes, most of them agreements on a status;
 * tests/mpi/messages.sh counts them on a running program. */
#include "plan_internal.h"

enum {
  AGREEMENT = 4,      /* bytes */
  SMALL_THINGS = 9728 /* bytes of broadcasts: configurations, facts about the run */
};

/* Bytes of sums of `bytes` over all ranks. */
static double summed(wm_layout_t l, double bytes) {
  return 2 * (double)(l.nodes * l.ranks - 1) * bytes;
}

static double broadcast(wm_layout_t l, double bytes) {
  return (double)(l.nodes * l.ranks - 1) * bytes;
}

void wm_plan_fit_messages(const wm_work_t *w, wm_layout_t l, double steps, double rounds,
                          double grams, wm_cost_t *out) {
  enum { FIXED = 525, OF_A_ROUND = 49 };
  const double d = (double)w->arch->d_model, layers = (double)w->fit_layers;
  const double columns = 5 + 3 * (double)w->lambdas;
  /* A node's ranks wait for each other before and after they read each other's rows. */
  const double waits = l.ranks > 1 ? layers * (1 + 2 * steps) : 0;
  double sums = layers * (2 * (3 * d + 1) + columns + (w->spectrum ? d : 0)) * 8;
  out->meetings = FIXED + OF_A_ROUND * rounds + waits;
  sums += AGREEMENT * (out->meetings - waits);
  out->message_bytes = summed(l, sums) + broadcast(l, SMALL_THINGS);
  if (l.nodes > 1)
    out->message_bytes += 2 * (double)(l.nodes - 1) * grams;
}

void wm_plan_sweep_messages(const wm_work_t *w, wm_layout_t l, double variants, double units,
                            double losses, wm_cost_t *out) {
  enum { FIXED = 1345, OF_A_LAYER = 4, REQUEST = 24, REPLY = 8 };
  const double ranks = (double)(l.nodes * l.ranks), others = ranks - 1;
  /* Rank 0 takes its own from its memory; each of the others is told in every phase that there are
   * no more. Oracles are a phase of their own. */
  const double phases = w->repeats > 0 ? 2 : 1;
  const double fetches = units * others / ranks + phases * others;
  const double cells = variants * (double)w->evaluation->n;
  out->meetings = FIXED + OF_A_LAYER * (double)w->fit_layers;
  out->messages = 2 * fetches;
  out->message_bytes =
      fetches * (REQUEST + REPLY) + broadcast(l, SMALL_THINGS) +
      summed(l, AGREEMENT * out->meetings + cells / 8 + 8 * (variants - 1) * (double)w->resamples);
  if (l.nodes > 1)
    out->message_bytes += 2 * (double)(l.nodes - 1) * losses;
}

void wm_plan_gates(const wm_plan_gates_t *w, wm_layout_t l, wm_cost_t *out) {
  enum { FIXED = 1190, OF_A_GATE = 56, NEWTON_EVALUATIONS = 7 };
  const double d = (double)w->width, layers = (double)w->layers, kinds = (double)w->kinds;
  const double meetings = FIXED + OF_A_GATE * layers * kinds;
  /* Gradient, loss and Hessian of the linear gate, the others' are small; the Gram matrix of the
   * components; every gate's scores; its AUC's resamples. */
  const double newton = NEWTON_EVALUATIONS * ((d + 1) * (d + 1) + d + 2) * 8;
  const double judged = kinds * (double)(w->positions + w->resamples) * 8;
  out->meetings += meetings;
  out->message_bytes +=
      summed(l, layers * (newton + 8 * d * d + judged) + AGREEMENT * meetings) +
      broadcast(l,
                layers * (NEWTON_EVALUATIONS * (2 * d + 3) + ((double)w->components + 4) * d) * 8);
}
