/* Measurements (measure/records.h) as a printed table. */
#include "stages.h"
#include "wanamaker/report/table.h"

#include <stdio.h>

wm_status_t wm_print_records(const wm_run_t *run, const wm_records_t *r, wm_error_t *err) {
  const wm_record_layout_t *l = r->layout;
  wm_column_t columns[1 + WM_RECORD_COLUMNS] = {{l->label, NULL, WM_ALIGN_LEFT, 0}};
  for (int c = 0; c < l->n_columns; c++)
    columns[1 + c] = (wm_column_t){l->columns[c].title, l->columns[c].unit, WM_ALIGN_RIGHT,
                                   l->columns[c].decimals};
  wm_table_t *table;
  wm_status_t status = wm_table_create(columns, 1 + l->n_columns, &table, err);
  if (status != WM_OK)
    return status;
  for (int64_t i = 0; i < r->n; i++) {
    wm_table_text(table, r->labels + i * WM_RECORD_LABEL);
    for (int c = 0; c < l->n_columns; c++)
      wm_table_float(table, r->values[i * l->n_columns + c]);
  }
  fprintf(run->out, "%s\n\n", l->description);
  status = wm_table_print(table, WM_TABLE_TEXT, run->out, err);
  fprintf(run->out, "%s%s\n", r->note, r->note[0] != '\0' ? "\n" : "");
  wm_table_free(table);
  return status;
}

wm_status_t wm_show_and_write(const wm_run_t *run, const wm_records_t *r, wm_h5_t *file,
                              wm_error_t *err) {
  wm_status_t status = WM_OK;
  if (run->comm->rank == 0)
    status = wm_output_shown(run, wm_print_records(run, r, err));
  status = wm_agree(run->comm->world, status, err);
  return status == WM_OK ? wm_records_write(r, file, run->comm->rank == 0, err) : status;
}
