/* How each claim is measured. */
#ifndef WANAMAKER_SRC_REPORT_LEDGER_INTERNAL_H
#define WANAMAKER_SRC_REPORT_LEDGER_INTERNAL_H

#include "wanamaker/report/ledger.h"

/* Fills value, low, high, interval, beside and the verdict that they give on the claim's own model,
 * from results[index]; false: they do not have what it takes. */
typedef bool (*wm_ledger_measure_t)(const wm_results_t *results, int64_t n, int64_t index,
                                    wm_claim_t *claim);

typedef struct {
  const char *id;
  wm_ledger_measure_t measure;
  const char *quantity, *needs, *rule, *differences;
} wm_ledger_rule_t;

extern const wm_ledger_rule_t wm_ledger_rules[WM_CLAIMS];

/* Results do not test the claim for this reason; the first one is kept. */
void wm_ledger_lack(wm_claim_t *claim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Lacks an end of claim's interval, or its value. */
void wm_ledger_need_interval(wm_claim_t *claim);
/* Lacks the ten units below which no interval is trusted. */
void wm_ledger_need_units(wm_claim_t *claim, int64_t units);
/* Reproduced where `agrees`, contradicted where `differs`, else not reproduced; not tested where
 * something is lacking. */
void wm_ledger_judge(wm_claim_t *claim, bool agrees, bool differs);

/* What results have of a layer: nothing, a value whose interval (or itself) is undefined, or
 * both. */
typedef enum { WM_LAYER_ABSENT, WM_LAYER_UNDEFINED, WM_LAYER_DEFINED } wm_layer_state_t;
typedef wm_layer_state_t (*wm_layer_state_of_t)(const wm_results_t *r, int64_t layer, double which);
wm_layer_state_t wm_ledger_state(bool there, double value, double low, double high);
/* Lacks layers [first, last] that are not all defined. `what`: "measured on". */
void wm_ledger_need_layers(wm_claim_t *claim, const wm_results_t *r, int64_t first, int64_t last,
                           wm_layer_state_of_t state, double which, const char *what);
/* All of the model's. The first one may be absent where the study leaves it out. */
void wm_ledger_need_all_layers(wm_claim_t *claim, const wm_results_t *r, bool first_may_be_absent,
                               wm_layer_state_of_t state, double which, const char *what);
/* Number of the model's layers; 0: nobody says. */
int64_t wm_ledger_model_layers(const wm_results_t *r);

/* Claims about training (ledger_training.c): C14, C15, C16, C17. */
bool wm_ledger_progressive(const wm_results_t *results, int64_t n, int64_t index,
                           wm_claim_t *claim);
bool wm_ledger_linearized(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);
bool wm_ledger_two_phase(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);
bool wm_ledger_control(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);
/* Claims about probes (ledger_probes.c): C10, C11, C12, C19. */
bool wm_ledger_context(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);
bool wm_ledger_corpora(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);
bool wm_ledger_features(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);
bool wm_ledger_clusters(const wm_results_t *results, int64_t n, int64_t index, wm_claim_t *claim);

#endif
