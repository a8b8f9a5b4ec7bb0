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

/* Reproduced where `agrees`, contradicted where `differs`, else not reproduced. */
wm_claim_verdict_t wm_ledger_judge(bool agrees, bool differs);

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
