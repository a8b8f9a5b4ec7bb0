#include "wanamaker/report/report.h"

#include "page.h"
#include "wanamaker/base/control.h"
#include "wanamaker/base/mem.h"
#include "wanamaker/base/timer.h"
#include "wanamaker/io/files.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the page -------------------------------------------------------------------------------- */

static void put_head(wm_page_t *page) {
  const wm_report_t *r = page->report;
  wm_page_raw(page,
              "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
              "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
              "<meta name=\"generator\" content=\"wanamaker %s\">\n<title>Which layers are "
              "wasted: ",
              r->version);
  for (int64_t i = 0; i < r->n; i++) {
    wm_page_text(page, i > 0 ? ", " : "");
    wm_page_text(page, r->results[i].label);
  }
  wm_page_raw(page, "</title>\n<style>\n%s</style></head>\n<body>\n", wm_style_sheet);
}

static void put_header(wm_page_t *page) {
  char made[40] = "";
  time_t now = time(NULL);
  struct tm utc;
  if (gmtime_r(&now, &utc) != NULL)
    strftime(made, sizeof made, "%Y-%m-%d %H:%M UTC", &utc);
  wm_page_raw(page,
              "<header><p class=\"kicker\">wanamaker %s, report of <time>%s</time></p>\n"
              "<h1>Which layers are wasted, at what cost, how sure</h1>\n",
              page->report->version, made);
  wm_section_answer(page);
  wm_page_raw(page, "</header>\n<nav aria-label=\"Sections\">");
  for (int64_t i = 0; i < page->report->n; i++) {
    wm_page_raw(page, "<a href=\"#m%lld\">", (long long)i);
    wm_page_text(page, page->report->results[i].label);
    wm_page_raw(page, "</a>");
  }
  wm_page_raw(page,
              "%s%s<a href=\"#ledger\">The study's claims</a><a href=\"#missing\">What is "
              "missing</a><a href=\"#provenance\">Provenance</a></nav>\n<main>\n",
              wm_compares_models(page->report) ? "<a href=\"#compared\">Models compared</a>" : "",
              wm_compares_trainings(page->report)
                  ? "<a href=\"#trainings-compared\">Trainings compared</a>"
                  : "");
}

static void put_model(wm_page_t *page, int64_t i) {
  const wm_results_t *r = &page->report->results[i];
  char id[32];
  snprintf(id, sizeof id, "m%lld", (long long)i);
  page->scope = json_array_get(json_object_get(page->summary, "models"), (size_t)i);
  wm_page_section(page, id, r->label);
  wm_section_layers(page, i);
  wm_section_joint(page, i);
  wm_section_gates(page, i);
  wm_section_allocation(page, i);
  wm_section_fit(page, i);
  wm_section_probes(page, i);
  wm_section_training(page, i);
  wm_section_bench(page, i);
  wm_page_end_section(page);
  page->scope = page->summary;
  wm_pulse();
}

static void put_page(wm_page_t *page) {
  put_head(page);
  put_header(page);
  for (int64_t i = 0; i < page->report->n && wm_page_ok(page); i++)
    put_model(page, i);
  wm_section_models(page);
  wm_section_trainings(page);
  wm_section_ledger(page);
  wm_section_published(page);
  wm_section_missing(page);
  wm_section_provenance(page);
  wm_page_raw(page, "</main>\n<footer><p>Numbers in full precision: the files in "
                    "<code>tables/</code> and <code>summary.json</code> beside this page.</p>"
                    "</footer>\n</body></html>\n");
}

/* ---- the summary ----------------------------------------------------------------------------- */

/* JSON has no ill-formed UTF-8: what the page shows as U+FFFD is that here, too. */
json_t *wm_json_text(const char *text) {
  json_t *plain = json_string(text);
  if (plain != NULL)
    return plain;
  size_t n = strlen(text);
  char *clean = strdup(text);
  for (size_t i = 0; clean != NULL && i < n; i++)
    if ((unsigned char)clean[i] >= 0x80)
      clean[i] = '?';
  plain = clean != NULL ? json_string(clean) : NULL;
  free(clean);
  return plain;
}

static json_t *json_speeds(const wm_results_t *r) {
  static const struct {
    const char *run;
    wm_file_kind_t kind;
  } runs[] = {{"plan", WM_FILE_FINETUNE}, {"control", WM_FILE_CONTROL}};
  json_t *speeds = json_array();
  for (int k = 0; k < 2; k++) {
    const wm_training_speed_t s = wm_training_speed(r, runs[k].kind);
    if (r->files[runs[k].kind].state != WM_FILE_READ)
      continue;
    json_t *speed = json_object();
    json_object_set_new(speed, "run", json_string(runs[k].run));
    json_object_set_new(speed, "ranks", wm_json_number(s.ranks));
    json_object_set_new(speed, "threads", wm_json_number(s.threads));
    json_object_set_new(speed, "steps", wm_json_number(s.steps));
    json_object_set_new(speed, "step_seconds", wm_json_number(s.median));
    json_object_set_new(speed, "longest_step_seconds", wm_json_number(s.longest));
    json_object_set_new(speed, "tokens_per_second", wm_json_number(s.tokens_per_second));
    json_object_set_new(speed, "exposed_pct", wm_json_number(s.exposed));
    json_object_set_new(speed, "read_tokens_per_second", wm_json_number(s.read_tokens_per_second));
    json_array_append_new(speeds, speed);
  }
  return speeds;
}

static json_t *summary_of(const wm_results_t *r) {
  json_t *model = json_object(), *layers = json_array(), *missing = json_array();
  json_t *unreadable = json_object();
  json_object_set_new(model, "label", wm_json_text(r->label));
  json_object_set_new(model, "directory", wm_json_text(r->dir));
  for (int64_t i = 0; i < r->n_layers; i++) {
    const wm_layer_result_t *l = &r->layer_results[i];
    json_t *layer = json_object();
    double cost = wm_frame_number(&r->variants, l->linear, "delta_pct");
    double low = wm_frame_number(&r->variants, l->linear, "low");
    double high = wm_frame_number(&r->variants, l->linear, "high");
    json_object_set_new(layer, "layer", json_integer(l->layer));
    json_object_set_new(layer, "verdict", json_string(wm_verdict_name(l->verdict)));
    json_object_set_new(layer, "cost_pct", isfinite(cost) ? json_real(cost) : json_null());
    json_object_set_new(layer, "low_pct", isfinite(low) ? json_real(low) : json_null());
    json_object_set_new(layer, "high_pct", isfinite(high) ? json_real(high) : json_null());
    json_array_append_new(layers, layer);
  }
  for (int k = 0; k < WM_FILE_KINDS; k++)
    if (r->files[k].state == WM_FILE_MISSING)
      json_array_append_new(missing, json_string(r->files[k].name));
    else if (r->files[k].state == WM_FILE_BAD)
      json_object_set_new(unreadable, r->files[k].name, wm_json_text(r->files[k].why));
  json_object_set_new(model, "layers", layers);
  json_object_set_new(model, "missing", missing);
  json_object_set_new(model, "unreadable", unreadable);
  if (r->training.n + r->control.n + r->comparison.n > 0) {
    wm_against_t a;
    json_object_set_new(model, "control_comparison", json_string(wm_against_state(r)));
    json_object_set_new(model, "control_verdict",
                        wm_against_evaluation(r, &a) ? json_string(wm_standing_name(a.standing))
                                                     : json_null());
    json_object_set_new(model, "against_control", wm_json_against(r));
    json_object_set_new(model, "training_speed", json_speeds(r));
  }
  return model;
}

static wm_status_t start_summary(wm_page_t *page, wm_error_t *err) {
  const wm_report_t *r = page->report;
  json_t *models = json_array();
  page->summary = json_object();
  page->scope = page->summary;
  json_object_set_new(page->summary, "program", json_string("wanamaker"));
  json_object_set_new(page->summary, "version", wm_json_text(r->version));
  json_object_set_new(page->summary, "commit", wm_json_text(r->commit));
  json_object_set_new(page->summary, "tolerance_pct", json_real(r->tolerance));
  for (int64_t i = 0; i < r->n; i++)
    json_array_append_new(models, summary_of(&r->results[i]));
  json_object_set_new(page->summary, "models", models);
  json_object_set_new(page->summary, "tables", json_array());
  json_object_set_new(page->summary, "figures", json_array());
  return json_array_size(models) == (size_t)r->n
             ? WM_OK
             : wm_fail(err, WM_ENVIRONMENT, "cannot allocate the summary");
}

/* ---- files ----------------------------------------------------------------------------------- */

/* A name below the report's directory; free(). */
static wm_status_t path_in(const wm_report_t *r, const char *name, char **out, wm_error_t *err) {
  *out = wm_format("%s/%s", r->dir, name);
  return *out != NULL ? WM_OK : wm_fail(err, WM_ENVIRONMENT, "cannot allocate a path");
}

static wm_status_t write_summary(const wm_page_t *page, wm_error_t *err) {
  char *temporary = NULL;
  wm_status_t status;
  WM_TRY(path_in(page->report, "summary.json.tmp", &temporary, err));
  if (json_dump_file(page->summary, temporary, JSON_INDENT(2)) != 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", temporary, strerror(errno));
cleanup:
  free(temporary);
  return status;
}

static wm_status_t close_page(wm_page_t *page, wm_error_t *err) {
  bool failed = ferror(page->html) != 0;
  int reason = errno;
  if (fclose(page->html) != 0 || failed)
    return wm_fail(err, WM_ENVIRONMENT, "%s/report.html.tmp: cannot write: %s", page->report->dir,
                   strerror(failed ? reason : errno));
  if (!wm_page_ok(page)) {
    *err = page->error;
    return err->status;
  }
  return WM_OK;
}

/* ---- all of them or none -----------------------------------------------------------------------
 */

/* What is done with "DIR/NAME" and "DIR/NAME.tmp". */
typedef wm_status_t file_step_t(const char *path, const char *temporary, wm_error_t *err);

/* What stands in the way of a rename is better known before the first one. */
static wm_status_t check_target(const char *path, const char *temporary, wm_error_t *err) {
  struct stat info;
  (void)temporary;
  if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
    return wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: a directory has that name", path);
  return WM_OK;
}

static wm_status_t publish(const char *path, const char *temporary, wm_error_t *err) {
  return wm_publish(temporary, path, err);
}

static wm_status_t discard(const char *path, const char *temporary, wm_error_t *err) {
  (void)path;
  (void)err;
  unlink(temporary);
  return WM_OK;
}

static wm_status_t for_file(const wm_report_t *r, const char *name, const char *ending,
                            file_step_t *step, wm_error_t *err) {
  char *path = wm_format("%s/%s%s", r->dir, name, ending);
  char *temporary = wm_format("%s/%s%s.tmp", r->dir, name, ending);
  wm_status_t status = path != NULL && temporary != NULL
                           ? step(path, temporary, err)
                           : wm_fail(err, WM_ENVIRONMENT, "cannot allocate a path");
  free(path);
  free(temporary);
  return status;
}

/* Tables first: the page that shows them is the sign that all is there. */
static wm_status_t for_all(const wm_page_t *page, file_step_t *step, wm_error_t *err) {
  const json_t *tables = json_object_get(page->summary, "tables");
  wm_status_t status = WM_OK;
  for (size_t i = 0; i < json_array_size(tables) && status == WM_OK; i++) {
    char *name = wm_format("tables/%s", json_string_value(json_array_get(tables, i)));
    status = name != NULL ? for_file(page->report, name, ".csv", step, err)
                          : wm_fail(err, WM_ENVIRONMENT, "cannot allocate a path");
    free(name);
  }
  if (status == WM_OK)
    status = for_file(page->report, "summary", ".json", step, err);
  return status == WM_OK ? for_file(page->report, "report", ".html", step, err) : status;
}

static bool has_table(const wm_page_t *page, const char *name) {
  const json_t *tables = json_object_get(page->summary, "tables");
  for (size_t i = 0; i < json_array_size(tables); i++)
    if (strcmp(json_string_value(json_array_get(tables, i)), name) == 0)
      return true;
  return false;
}

/* Tables of the report before, by its summary, that this one does not have. */
static void remove_old_tables(const wm_page_t *page, const json_t *before) {
  const json_t *tables = json_object_get(before, "tables");
  for (size_t i = 0; i < json_array_size(tables); i++) {
    const char *name = json_string_value(json_array_get(tables, i));
    if (name == NULL || has_table(page, name) ||
        name[strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789-")] != '\0')
      continue;
    char *table = wm_format("%s/tables/%s.csv", page->report->dir, name);
    if (table != NULL)
      unlink(table);
    free(table);
  }
}

static wm_status_t publish_all(const wm_page_t *page, wm_error_t *err) {
  char *path = NULL;
  json_t *before = NULL;
  wm_status_t status;
  WM_TRY(write_summary(page, err));
  WM_TRY(for_all(page, check_target, err));
  WM_TRY(path_in(page->report, "summary.json", &path, err));
  before = json_load_file(path, 0, NULL);
  WM_TRY(for_all(page, publish, err));
  remove_old_tables(page, before);
cleanup:
  json_decref(before);
  free(path);
  return status;
}

wm_status_t wm_report_write(const wm_report_t *report, wm_report_outcome_t *out, wm_error_t *err) {
  wm_page_t page = {.report = report};
  char *temporary = NULL, *tables = NULL;
  wm_error_t ignored = {0};
  const double start = wm_seconds();
  struct stat info;
  wm_status_t status;
  *out = (wm_report_outcome_t){0};
  WM_TRY(path_in(report, "tables", &tables, err));
  WM_TRY(wm_directory_ready(tables, err));
  WM_TRY(start_summary(&page, err));
  WM_TRY(path_in(report, "report.html", &out->page, err));
  WM_TRY(path_in(report, "report.html.tmp", &temporary, err));
  page.html = fopen(temporary, "w");
  if (page.html == NULL) {
    status = wm_fail(err, WM_ENVIRONMENT, "%s: cannot write: %s", temporary, strerror(errno));
    goto cleanup;
  }
  put_page(&page);
  status = close_page(&page, err);
  if (status == WM_OK)
    status = publish_all(&page, err);
  if (status != WM_OK)
    for_all(&page, discard, &ignored);
  else if (stat(out->page, &info) == 0)
    out->bytes = info.st_size;
  out->figures = page.figures;
  out->figures_missing = page.figures_missing;
  out->figures_why = page.figures_why;
  out->tables = page.tables;
  out->seconds = wm_seconds() - start;
cleanup:
  json_decref(page.summary);
  free(temporary);
  free(tables);
  return status;
}

void wm_report_outcome_destroy(wm_report_outcome_t *o) {
  free(o->page);
  free(o->figures_why);
  *o = (wm_report_outcome_t){0};
}
