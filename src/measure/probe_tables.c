#include "wanamaker/measure/probe_tables.h"

#include "wanamaker/base/mem.h"
#include "wanamaker/par/comm.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* --- layouts ------------------------------------------------------------------------------------
 */

enum { NAME = 64, WORD = 24, SHORT = 12, NOTE = 64 };

#define CASE                                                                                       \
  {"corpus", NAME, 0, "corpus"}, {"surrogates", SHORT, 0, "surrogates"}, {                         \
    "layer", 0, 0, "layer"                                                                         \
  }

static const wm_probe_layout_t layouts[WM_PROBE_TABLES] = {
    [WM_PROBE_CONTEXT] = {"/context",
                          "gates on parts of the MLP's input: area under the ROC curve on held-out "
                          "positions, with its interval",
                          "Token against context: AUC of gates on held-out positions",
                          {CASE,
                           {"label", SHORT, 0, "label"},
                           {"view", SHORT, 0, "view"},
                           {"gate", WORD, 0, "gate on"},
                           {"key", SHORT, 0, "key"},
                           {"train", 0, 0, NULL},
                           {"test", 0, 0, NULL},
                           {"auc", 0, 4, "AUC"},
                           {"low", 0, 4, "low"},
                           {"high", 0, 4, "high"},
                           {"accuracy", 0, 4, "accuracy"},
                           {"note", NOTE, 0, "note"}}},
    [WM_PROBE_GEOMETRY] = {"/geometry",
                           "norms, ratios and angles of token part e, context part c and input x: "
                           "mean, standard deviation, correlation with delta and its interval",
                           "Token against context: norms, angles, correlations with delta",
                           {CASE,
                            {"view", SHORT, 0, "view"},
                            {"quantity", WORD, 0, "quantity"},
                            {"n", 0, 0, NULL},
                            {"mean", 0, 4, "mean"},
                            {"sd", 0, 4, "sd"},
                            {"r", 0, 4, "r with delta"},
                            {"low", 0, 4, "low"},
                            {"high", 0, 4, "high"},
                            {"note", NOTE, 0, "note"}}},
    [WM_PROBE_FORENSICS] = {"/forensics",
                            "features of the token: mean, standard deviation, coefficient of the "
                            "standardised feature in the ridge regression of delta (nats), R^2 "
                            "alone, correlation with its interval",
                            "Forensics: features of the token",
                            {CASE,
                             {"key", SHORT, 0, "key"},
                             {"feature", WORD, 0, "feature"},
                             {"mean", 0, 4, "mean"},
                             {"sd", 0, 4, "sd"},
                             {"coefficient", 0, 5, "coefficient"},
                             {"r2", 0, 5, "R^2 alone"},
                             {"r", 0, 4, "r"},
                             {"low", 0, 4, "low"},
                             {"high", 0, 4, "high"},
                             {"note", NOTE, 0, "note"}}},
    [WM_PROBE_REGRESSION] = {"/regression",
                             "ridge regression of delta on all features: R^2 on the positions it "
                             "was fitted to and on held-out ones, with the latter's interval",
                             "Forensics: all features together",
                             {CASE,
                              {"key", SHORT, 0, "key"},
                              {"features", WORD, 0, "features"},
                              {"train", 0, 0, "train"},
                              {"test", 0, 0, "test"},
                              {"r2", 0, 5, "R^2 in"},
                              {"r2_heldout", 0, 5, "R^2 out"},
                              {"low", 0, 5, "low"},
                              {"high", 0, 5, "high"},
                              {"note", NOTE, 0, "note"}}},
    [WM_PROBE_CATEGORIES] = {"/categories",
                             "delta by category of the token: positions, share, mean with its "
                             "interval, standard deviation within, median, share above zero",
                             "Categories of words",
                             {CASE,
                              {"key", SHORT, 0, "key"},
                              {"category", WORD, 0, "category"},
                              {"n", 0, 0, "n"},
                              {"share", 0, 4, "share"},
                              {"mean", 0, 5, "mean delta"},
                              {"low", 0, 5, "low"},
                              {"high", 0, 5, "high"},
                              {"sd", 0, 4, "sd within"},
                              {"median", 0, 5, "median"},
                              {"positive", 0, 4, "> 0"},
                              {"note", NOTE, 0, "note"}}},
    [WM_PROBE_TYPES] = {"/types",
                        "token types with enough observations: mean delta, part above zero, means "
                        "of the two halves of the first split, whether they are No-Fly",
                        NULL,
                        {CASE,
                         {"key", SHORT, 0, "key"},
                         {"id", 0, 0, "id"},
                         {"token", WORD, 0, "token"},
                         {"n", 0, 0, "n"},
                         {"mean", 0, 5, "mean delta"},
                         {"positive", 0, 4, "> 0"},
                         {"first_half", 0, 5, NULL},
                         {"second_half", 0, 5, NULL},
                         {"no_fly", 0, 0, "No-Fly"}}},
    [WM_PROBE_FATES] = {"/fates",
                        "No-Fly token types of one corpus on another (the study's construction): "
                        "found often enough there, still No-Fly, flipped in sign, correlation of "
                        "mean deltas over those found",
                        "No-Fly lists across corpora: the study's construction",
                        {{"corpus", NAME, 0, "listed on"},
                         {"other", NAME, 0, "looked up on"},
                         {"surrogates", SHORT, 0, "surrogates"},
                         {"layer", 0, 0, "layer"},
                         {"key", SHORT, 0, "key"},
                         {"types", 0, 0, "types"},
                         {"listed", 0, 0, "No-Fly"},
                         {"found", 0, 0, "found"},
                         {"insufficient", 0, 0, "too few"},
                         {"still", 0, 0, "still"},
                         {"flipped", 0, 0, "flipped"},
                         {"retention", 0, 4, "retention"},
                         {"r", 0, 4, "r"},
                         {"note", NOTE, 0, "note"}}},
    [WM_PROBE_CORRELATIONS] = {"/correlations",
                               "correlation between corpora of the mean deltas of all token types "
                               "with enough observations in both; split-half reliability of each "
                               "side (Spearman-Brown), and the correlation corrected for it",
                               "Types across corpora: all types with enough observations",
                               {{"corpus", NAME, 0, "corpus"},
                                {"other", NAME, 0, "other"},
                                {"surrogates", SHORT, 0, "surrogates"},
                                {"layer", 0, 0, "layer"},
                                {"key", SHORT, 0, "key"},
                                {"types", 0, 0, "types"},
                                {"r", 0, 4, "r"},
                                {"low", 0, 4, "low"},
                                {"high", 0, 4, "high"},
                                {"reliability", 0, 4, "reliability"},
                                {"reliability_other", 0, 4, "other's"},
                                {"corrected", 0, 4, "corrected r"},
                                {"corrected_low", 0, 4, "low"},
                                {"corrected_high", 0, 4, "high"},
                                {"r_study", 0, 4, "study's r"},
                                {"note", NOTE, 0, "note"}}},
    [WM_PROBE_CLUSTERINGS] = {"/clusterings",
                              "k-means on principal components of the standardised MLP input: "
                              "variance they hold, clusters, sum of squared distances, AUC of the "
                              "clusters' mean delta (from training positions) on held-out ones",
                              "Clusters: all together",
                              {CASE,
                               {"components", 0, 0, "components"},
                               {"variance", 0, 4, "variance held"},
                               {"k", 0, 0, "k"},
                               {"inertia", 0, 1, "inertia"},
                               {"iterations", 0, 0, "iterations"},
                               {"between", 0, 5, "R^2 of delta"},
                               {"auc", 0, 4, "AUC"},
                               {"low", 0, 4, "low"},
                               {"high", 0, 4, "high"},
                               {"linear", 0, 0, "linear"},
                               {"nonlinear", 0, 0, "nonlinear"},
                               {"note", NOTE, 0, "note"}}},
    [WM_PROBE_CLUSTERS] = {"/clusters",
                           "clusters, by descending size: positions, mean delta with its interval, "
                           "standard deviation, part above zero, verdict",
                           NULL,
                           {CASE,
                            {"cluster", 0, 0, "cluster"},
                            {"n", 0, 0, "n"},
                            {"share", 0, 4, "share"},
                            {"mean", 0, 5, "mean delta"},
                            {"low", 0, 5, "low"},
                            {"high", 0, 5, "high"},
                            {"sd", 0, 4, "sd"},
                            {"positive", 0, 4, "> 0"},
                            {"verdict", SHORT, 0, "verdict"}}},
    [WM_PROBE_SEPARABILITY] = {"/separability",
                               "probes of the routing decision (label: delta at most the median) "
                               "on the standardised MLP input, on held-out positions",
                               "Separability of the routing decision",
                               {CASE,
                                {"probe", WORD, 0, "probe"},
                                {"train", 0, 0, "train"},
                                {"test", 0, 0, "test"},
                                {"accuracy", 0, 4, "accuracy"},
                                {"f1", 0, 4, "F1"},
                                {"auc", 0, 4, "AUC"},
                                {"low", 0, 4, "low"},
                                {"high", 0, 4, "high"},
                                {"auc_train", 0, 4, "AUC in"},
                                {"loss", 0, 5, "objective"},
                                {"iterations", 0, 0, "iterations"},
                                {"note", NOTE, 0, "note"}}},
    [WM_PROBE_DISTRIBUTION] = {"/distribution",
                               "distribution of delta in nats: moments, quantiles, and the shares "
                               "of its positive part that the costliest 1, 5, 10 % of the "
                               "positions carry; net_10: of its sum",
                               "Distribution of delta",
                               {CASE,
                                {"n", 0, 0, "n"},
                                {"mean", 0, 5, "mean"},
                                {"sd", 0, 4, "sd"},
                                {"skew", 0, 3, "skew"},
                                {"kurtosis", 0, 2, NULL},
                                {"positive", 0, 4, "> 0"},
                                {"q01", 0, 4, "1 %"},
                                {"q05", 0, 4, NULL},
                                {"q25", 0, 4, "25 %"},
                                {"q50", 0, 5, "median"},
                                {"q75", 0, 4, "75 %"},
                                {"q95", 0, 4, NULL},
                                {"q99", 0, 4, "99 %"},
                                {"top_1", 0, 4, "top 1 %"},
                                {"top_5", 0, 4, "5 %"},
                                {"top_10", 0, 4, "10 %"},
                                {"net_10", 0, 4, NULL},
                                {"dropped", 0, 0, "not finite"},
                                {"note", NOTE, 0, "note"}}},
    [WM_PROBE_POSITIONS] = {"/positions",
                            "classes of positions apart (one may be of several): positions, mean "
                            "delta, standard deviation, part above zero, share of the sum of all "
                            "deltas; excluded: 1 if the other probes leave them out",
                            "Positions apart",
                            {CASE,
                             {"class", WORD, 0, "positions"},
                             {"n", 0, 0, "n"},
                             {"mean", 0, 5, "mean delta"},
                             {"sd", 0, 4, "sd"},
                             {"positive", 0, 4, "> 0"},
                             {"share", 0, 4, "of the cost"},
                             {"excluded", 0, 0, "excluded"}}},
};

/* --- cells --------------------------------------------------------------------------------------
 */

static int64_t cell_size(const wm_probe_column_t *c) {
  return c->size > 0 ? c->size : (int64_t)sizeof(double);
}

static int64_t offset_of(const wm_probe_table_t *t, int64_t column) {
  int64_t offset = 0;
  for (int64_t i = 0; i < column; i++)
    offset += cell_size(&t->layout->columns[i]);
  return offset;
}

void wm_probe_tables_init(wm_probe_tables_t *tables) {
  memset(tables, 0, sizeof *tables);
  for (int i = 0; i < WM_PROBE_TABLES; i++) {
    wm_probe_table_t *t = &tables->table[i];
    t->layout = &layouts[i];
    while (t->n_columns < WM_PROBE_COLUMNS && t->layout->columns[t->n_columns].name != NULL)
      t->n_columns++;
    t->row_size = offset_of(t, t->n_columns);
  }
}

void wm_probe_tables_destroy(wm_probe_tables_t *tables) {
  for (int i = 0; i < WM_PROBE_TABLES; i++)
    free(tables->table[i].rows);
  memset(tables, 0, sizeof *tables);
}

wm_status_t wm_probe_tables_status(const wm_probe_tables_t *tables, wm_error_t *err) {
  if (tables->error.status != WM_OK)
    *err = tables->error;
  return tables->error.status;
}

static wm_status_t grow(wm_probe_table_t *t, int64_t rows, wm_error_t *err) {
  void *memory = t->rows;
  wm_status_t status =
      wm_grow(&memory, &t->capacity, t->n, t->n + rows, (size_t)t->row_size, "tables", err);
  t->rows = memory;
  return status;
}

/* Place of the next cell, which must be a text or not; NULL after trouble. */
static char *next_cell(wm_probe_tables_t *tables, wm_probe_table_id_t id, bool text) {
  wm_probe_table_t *t = &tables->table[id];
  if (tables->error.status != WM_OK)
    return NULL;
  if (t->column == 0) {
    if (grow(t, 1, &tables->error) != WM_OK)
      return NULL;
    memset(t->rows + t->n * t->row_size, 0, (size_t)t->row_size);
    t->n++;
  }
  assert(text == (t->layout->columns[t->column].size > 0));
  char *cell = t->rows + (t->n - 1) * t->row_size + offset_of(t, t->column);
  t->column = (t->column + 1) % t->n_columns;
  return cell;
}

/* Length of `text` cut to `size` bytes, at a character's beginning. */
static size_t cut(const char *text, size_t size) {
  size_t length = strnlen(text, size);
  if (length == size)
    while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
      length--;
  return length;
}

void wm_probe_text(wm_probe_tables_t *tables, wm_probe_table_id_t id, const char *text) {
  const wm_probe_table_t *t = &tables->table[id];
  const size_t size = (size_t)t->layout->columns[t->column].size;
  char *cell = next_cell(tables, id, true);
  if (cell != NULL)
    memcpy(cell, text, cut(text, size - 1));
}

void wm_probe_number(wm_probe_tables_t *tables, wm_probe_table_id_t id, double value) {
  char *cell = next_cell(tables, id, false);
  if (cell != NULL)
    memcpy(cell, &value, sizeof value);
}

static const char *cell_at(const wm_probe_table_t *t, int64_t row, const char *column, bool text) {
  int64_t c = 0;
  while (c < t->n_columns && strcmp(t->layout->columns[c].name, column) != 0)
    c++;
  assert(row < t->n && c < t->n_columns && text == (t->layout->columns[c].size > 0));
  return t->rows + row * t->row_size + offset_of(t, c);
}

double wm_probe_number_at(const wm_probe_table_t *table, int64_t row, const char *column) {
  double value;
  memcpy(&value, cell_at(table, row, column, false), sizeof value);
  return value;
}

const char *wm_probe_text_at(const wm_probe_table_t *table, int64_t row, const char *column) {
  return cell_at(table, row, column, true);
}

/* --- file ---------------------------------------------------------------------------------------
 */

static bool insert(hid_t type, const wm_probe_column_t *c, size_t offset, hid_t number) {
  if (c->size == 0)
    return H5Tinsert(type, c->name, offset, number) >= 0;
  hid_t text = H5Tcopy(H5T_C_S1);
  bool fine = text >= 0 && H5Tset_size(text, (size_t)c->size) >= 0 &&
              H5Tset_cset(text, H5T_CSET_UTF8) >= 0 && H5Tinsert(type, c->name, offset, text) >= 0;
  if (text >= 0)
    H5Tclose(text);
  return fine;
}

/* Compound type of a row; negative on failure. */
static hid_t row_type(const wm_probe_table_t *t, hid_t number) {
  hid_t type = H5Tcreate(H5T_COMPOUND, (size_t)t->row_size);
  bool fine = type >= 0;
  for (int64_t c = 0; c < t->n_columns && fine; c++)
    fine = insert(type, &t->layout->columns[c], (size_t)offset_of(t, c), number);
  if (fine || type < 0)
    return type;
  H5Tclose(type);
  return -1;
}

static wm_status_t write_table(const wm_probe_table_t *t, bool writer, wm_h5_t *file,
                               wm_error_t *err) {
  hid_t stored = row_type(t, H5T_IEEE_F64LE), type = row_type(t, H5T_NATIVE_DOUBLE);
  const int64_t zero = 0, count = writer ? t->n : 0;
  wm_status_t status = WM_OK;
  if (stored < 0 || type < 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: HDF5 can't make its type", t->layout->path);
  if (status == WM_OK)
    status = wm_h5_dataset(file, t->layout->path, stored, 1, &t->n, t->layout->description, err);
  if (status == WM_OK)
    status = wm_h5_write(file, t->layout->path, type, &zero, &count, t->rows, err);
  if (stored >= 0)
    H5Tclose(stored);
  if (type >= 0)
    H5Tclose(type);
  return status;
}

wm_status_t wm_probe_tables_write(const wm_probe_tables_t *tables, bool writer, wm_h5_t *file,
                                  wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int i = 0; i < WM_PROBE_TABLES && status == WM_OK; i++)
    status = write_table(&tables->table[i], writer, file, err);
  return status;
}

/* Collective. Appends the rows of the file's table. */
static wm_status_t restore_table(wm_probe_table_t *t, MPI_Comm comm, wm_h5_t *file,
                                 wm_error_t *err) {
  const int64_t zero = 0;
  int64_t n;
  hid_t type = row_type(t, H5T_NATIVE_DOUBLE);
  wm_status_t status = WM_OK;
  if (type < 0)
    status = wm_fail(err, WM_ENVIRONMENT, "%s: HDF5 can't make its type", t->layout->path);
  WM_TRY(wm_agree(comm, status, err));
  WM_TRY(wm_h5_dims(file, t->layout->path, 1, &n, err));
  WM_TRY(wm_agree(comm, grow(t, n, err), err));
  WM_TRY(wm_h5_read(file, t->layout->path, type, &zero, &n, t->rows + t->n * t->row_size, err));
  t->n += n;
cleanup:
  if (type >= 0)
    H5Tclose(type);
  return status;
}

wm_status_t wm_probe_tables_read(wm_probe_tables_t *tables, MPI_Comm comm, wm_h5_t *file,
                                 wm_error_t *err) {
  wm_status_t status = WM_OK;
  for (int i = 0; i < WM_PROBE_TABLES && status == WM_OK; i++)
    status = restore_table(&tables->table[i], comm, file, err);
  return status;
}
