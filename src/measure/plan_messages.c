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

void wm_plan_fit_messages(const wm_work_t *w, wm_layout_t l, double passes, double steps,
                          double rounds, double grams, wm_cost_t *out) {
  enum { FIXED = 425, OF_A_ROUND = 49, OF_A_PART = 80, SEQUENTIAL = 60 };
  const double d = (double)w->arch->d_model, layers = (double)w->fit_layers;
  const double columns = 5 + 3 * (double)w->lambdas;
  /* A node's ranks wait for each other before and after they read each other's rows. */
  const double waits = l.ranks > 1 ? layers * (1 + 2 * steps) : 0;
  double sums = layers * (2 * (3 * d + 1) + columns + (w->spectrum ? d : 0)) * 8;
  /* Of several passes, each but the last one keeps what it has solved. */
  out->meetings = FIXED + OF_A_ROUND * rounds + OF_A_PART * (passes - 1) +
                  (w->sequential ? SEQUENTIAL : 0) + waits;
  sums += AGREEMENT * (out->meetings - waits);
  out->message_bytes =
      summed(l, sums) + (w->sequential ? broadcast(l, layers * (d * d + d) * 4) : 0);
  if (l.nodes > 1)
    out->message_bytes += 2 * (double)(l.nodes - 1) * grams;
}

void wm_plan_sweep_messages(const wm_work_t *w, wm_layout_t l, double phases, double units,
                            double losses, wm_cost_t *out) {
  enum { FIXED = 267, OF_A_PHASE = 100, REQUEST = 24, REPLY = 8 };
  const double ranks = (double)(l.nodes * l.ranks), others = ranks - 1;
  /* Rank 0 takes its own from its memory; each of the others is told in every phase that there are
   * no more. */
  const double fetches = units * others / ranks + phases * others;
  const double variants = (double)w->variants->n, cells = variants * (double)w->evaluation->n;
  out->meetings = FIXED + OF_A_PHASE * (phases - 1);
  out->messages = 2 * fetches;
  out->message_bytes =
      fetches * (REQUEST + REPLY) +
      summed(l, AGREEMENT * out->meetings + cells / 8 + 8 * (variants - 1) * (double)w->resamples);
  if (l.nodes > 1)
    out->message_bytes += 2 * (double)(l.nodes - 1) * losses;
}

void wm_plan_gates_messages(const wm_plan_gates_t *w, wm_layout_t l, wm_cost_t *out) {
  enum { FIXED = 993, OF_A_LAYER = 20, OF_A_GATE = 56 };
  const double d = (double)w->arch->d_model, layers = (double)w->n_layers;
  const double positions =
      (double)(w->fit->windows->n_predicted + w->heldout->windows->n_predicted);
  double judged = 0, components = 0, linear = 0;
  for (int64_t i = 0; i < w->n_specs; i++) {
    const double k = (double)w->specs[i].components;
    judged += wm_gate_has_score(w->specs[i].kind);
    linear += w->specs[i].kind == WM_GATE_LINEAR;
    components = k > components ? k : components;
  }
  out->meetings = FIXED + layers * (OF_A_LAYER + OF_A_GATE * judged);
  /* Gradients and Hessians of the linear gate, the others' are small; the Gram matrix of the
   * components; every gate's scores; its AUC's resamples. */
  const double newton = linear * (WM_PLAN_HESSIANS * (d + 1) * (d + 1) + WM_PLAN_NEWTON * (d + 1));
  const double gram = components > 0 ? d * d : 0;
  out->message_bytes =
      summed(l, 8 * layers * (newton + gram + judged * (positions + (double)w->resamples)) +
                    AGREEMENT * out->meetings) +
      broadcast(l, 8 * layers * (WM_PLAN_NEWTON * (2 * d + 2) + (components + 4) * d));
}

void wm_plan_open_messages(wm_layout_t l, wm_cost_t *out) {
  enum { FIXED = 110 };
  out->meetings = FIXED;
  out->message_bytes = broadcast(l, SMALL_THINGS) + summed(l, AGREEMENT * FIXED);
}

void wm_plan_add_file(const wm_arch_t *arch, wm_layout_t l, wm_plan_file_t file, double times,
                      wm_cost_t *total) {
  static const double meetings[] = {[WM_PLAN_SURROGATES] = 385,
                                    [WM_PLAN_ONE_SURROGATE] = 100,
                                    [WM_PLAN_GATES_READ] = 452,
                                    [WM_PLAN_GATES_WITH_COMPONENTS] = 552,
                                    [WM_PLAN_GATES_WRITTEN] = 733};
  /* Broadcast: attributes, and sizes of what follows. */
  static const double bytes[] = {[WM_PLAN_GATES_READ] = 5120,
                                 [WM_PLAN_GATES_WITH_COMPONENTS] = 8192,
                                 [WM_PLAN_GATES_WRITTEN] = 0};
  const double d = (double)arch->d_model;
  wm_cost_t c = {.meetings = times * meetings[file]};
  c.message_bytes = summed(l, AGREEMENT * c.meetings) + broadcast(l, times * bytes[file]);
  if (file == WM_PLAN_ONE_SURROGATE)
    c.message_bytes += broadcast(l, times * 4 * (d * d + d));
  wm_plan_add(total, &c);
}
