/* What the sections and the claims about probes have in common. */
#ifndef WANAMAKER_SRC_REPORT_PROBES_INTERNAL_H
#define WANAMAKER_SRC_REPORT_PROBES_INTERNAL_H

#include "page.h"

bool wm_probe_is(const wm_frame_t *f, int64_t row, const char *member, const char *value);
/* Rows of the first corpus with the surrogates of the first row. */
bool wm_probe_is_first(const wm_frame_t *f, int64_t row);
/* A folded table that has the members of a frame as its columns: texts where they are aligned left,
 * else numbers. */
void wm_probe_table(wm_page_t *page, int64_t model, const char *name, const char *caption,
                    const wm_frame_t *f, int n, const wm_column_t *columns,
                    const char *const *members, int heads);
/* Token category by depth (section_categories.c). */
void wm_probe_categories(wm_page_t *page, int64_t model);

#endif
