/* Every setting of the program: the one table behind validation, defaults and --help. */
#include "jobs.h"

#include <stddef.h>

#define ANY_RANGE 1, 0 /* min > max: no limits */

/* Jobs that run the model on texts, and those of them that evaluate variants. */
enum {
  EVALUATING = WM_JOB_SWEEP | WM_JOB_GATE | WM_JOB_ALLOCATE,
  MEASURING = WM_JOB_FIT | EVALUATING
};

const wm_job_t wm_jobs[] = {
    {"tokenize", WM_JOB_TOKENIZE, wm_job_tokenize, "encode the corpora into tokens.h5 files"},
    {"fit", WM_JOB_FIT, wm_job_fit, "fit every layer's linear surrogate (surrogates.h5)"},
    {"sweep", WM_JOB_SWEEP, wm_job_sweep,
     "measure what replacing each layer's MLP costs (sweep.h5)"},
    {"gate", WM_JOB_GATE, wm_job_gate,
     "fit gates that decide per token, measure and select them (gates.h5)"},
    {"run", WM_JOB_RUN, wm_job_run,
     "tokenize, fit, gate (with gate.enabled) and sweep, skipping stages that are complete"},
    {"allocate", WM_JOB_ALLOCATE, wm_job_allocate,
     "choose layers, gates and thresholds that save most for a given cost (allocation.h5)"},
    {"bench", WM_JOB_BENCH, wm_job_bench,
     "measure this machine and the program on it with a random model (bench.h5)"},
    {NULL, 0, NULL, NULL},
};

const wm_schema_t wm_settings[] = {
    /* model and output */
    {"model.path", WM_SETTING_STRING, NULL, ANY_RANGE, NULL, MEASURING,
     "directory with config.json and safetensors weights, as published on model hubs"},
    {"tokenizer.path", WM_SETTING_STRING, "\"\"", ANY_RANGE, NULL, 0,
     "directory with tokenizer.json, or vocab.json and merges.txt; empty: model.path"},
    {"output.dir", WM_SETTING_STRING, "\"results/run\"", ANY_RANGE, NULL, 0,
     "directory of the result files; made if it is missing"},

    /* corpora */
    {"corpora.*.path", WM_SETTING_STRING, NULL, ANY_RANGE, NULL, 0, "text, JSON Lines or .npy"},
    {"corpora.*.format", WM_SETTING_CHOICE, "auto", ANY_RANGE, "auto text jsonl npy", 0,
     "auto goes by the file's ending: .jsonl, .ndjson, .npy, anything else is text"},
    {"corpora.*.field", WM_SETTING_STRING, "\"text\"", ANY_RANGE, NULL, 0,
     "member of a JSON Lines object that holds the text"},
    {"corpora.*.keep_newline", WM_SETTING_BOOL, "false", ANY_RANGE, NULL, 0,
     "encode a row's trailing newline too, as the hub's WikiText rows have it (true for WikiText)"},

    /* protocol and ranges: method.md, section 3 */
    {"protocol.kind", WM_SETTING_CHOICE, "documents", ANY_RANGE, "documents stream sliding", 0,
     "documents: every row alone; stream: rows joined and cut into windows; sliding: overlapping "
     "windows of the stream"},
    {"protocol.window", WM_SETTING_INT, "512", 2, 1 << 20, NULL, MEASURING,
     "longest sequence in tokens"},
    {"protocol.stride", WM_SETTING_INT, "256", 1, 1 << 20, NULL, MEASURING,
     "step of sliding windows in tokens"},
    {"protocol.min_tokens", WM_SETTING_INT, "2", 1, 1 << 20, NULL, MEASURING,
     "documents with fewer tokens are skipped"},
    {"ranges.preset", WM_SETTING_CHOICE, "default", ANY_RANGE, "default study_scale study_paper",
     MEASURING,
     "which tokens serve what; default: fit 0-10K, gates 10K-35K, validation 35K-47K, evaluation "
     "50K-100K; the study's two splits for reproduction"},
    {"ranges.allow_overlap", WM_SETTING_BOOL, "false", ANY_RANGE, NULL, MEASURING,
     "accept ranges that share tokens (study_scale needs it)"},
    {"ranges.*.corpus", WM_SETTING_STRING, "\"\"", ANY_RANGE, NULL, MEASURING,
     "name of the corpus (* is fit, gates, validation or evaluation); empty: the first one"},
    {"ranges.*.tokens", WM_SETTING_INTS, "[]", 0, 1e300, NULL, MEASURING,
     "[a, b): replaces the preset's range"},
    {"ranges.*.documents", WM_SETTING_INTS, "[]", 0, 1e300, NULL, MEASURING,
     "[a, b): the same in documents"},
    {"ranges.*.rows", WM_SETTING_INTS, "[]", 0, 1e300, NULL, MEASURING,
     "[a, b): the same in rows of the corpus, blank ones counted"},
    {"ranges.*.max_tokens", WM_SETTING_INT, "0", 0, 1e300, NULL, MEASURING,
     "stop after that many tokens of the range; 0: no limit"},

    /* surrogates: method.md, section 1 */
    {"fit.lambda", WM_SETTING_FLOAT, "0.01", 0, 1e300, NULL, MEASURING,
     "ridge penalty on the sum of squared errors"},
    {"fit.lambdas", WM_SETTING_FLOATS, "[1e-4, 1e-2, 1.0, 1e2, 1e4, 1e6]", 0, 1e300, NULL,
     MEASURING, "penalties of the lambda path that is reported beside it"},
    {"fit.spectrum", WM_SETTING_BOOL, "true", ANY_RANGE, NULL, MEASURING,
     "eigendecomposition of each layer's Gram matrix: lambda path, condition, effective rank"},
    {"fit.layers", WM_SETTING_INTS, "[]", 0, 100000, NULL, MEASURING,
     "layers to fit; none named: all"},
    {"fit.sequential", WM_SETTING_BOOL, "false", ANY_RANGE, NULL, MEASURING,
     "also fit surrogates for each set of sweep.joint, every layer on the model in which those of "
     "the set before it are replaced, and compare both in the sweep"},
    {"fit.grid", WM_SETTING_INTS, "[0, 0]", 0, 100000, NULL, MEASURING,
     "rows and columns of the process grid that solves one layer; [0, 0]: chosen by width"},
    {"fit.block", WM_SETTING_INT, "64", 1, 4096, NULL, MEASURING | WM_JOB_BENCH,
     "block size of the block-cyclic matrices"},
    {"fit.memory_gib", WM_SETTING_FLOAT, "8.0", 1e-6, 1e6, NULL, MEASURING,
     "Gram matrices held per node; layers that do not fit are done in further passes"},

    /* the sweep: method.md, section 2 */
    {"sweep.layers", WM_SETTING_INTS, "[]", 0, 100000, NULL, WM_JOB_SWEEP,
     "layers that are linearised one at a time; none named: all that have a surrogate"},
    {"sweep.joint", WM_SETTING_INT_LISTS, "()", 0, 100000, NULL, WM_JOB_SWEEP,
     "sets of layers that are linearised together, e.g. ([10, 11, 12, 13], [0, 1])"},
    {"sweep.routed", WM_SETTING_INT_LISTS, "()", 0, 100000, NULL, WM_JOB_SWEEP,
     "sets of layers that are routed together, each by the gate and threshold that gates.h5 has "
     "selected for it, or by its linear gate where none is"},
    {"sweep.single", WM_SETTING_BOOL, "true", ANY_RANGE, NULL, WM_JOB_SWEEP,
     "measure every layer of sweep.layers alone; false: the sets of sweep.joint only"},
    {"sweep.group", WM_SETTING_INT, "0", 0, 4096, NULL, EVALUATING,
     "most variants evaluated on one trunk; 0: chosen, at most 64, fewer where that keeps ranks "
     "busy "
     "or units short"},
    {"sweep.gates", WM_SETTING_BOOL, "true", ANY_RANGE, NULL, WM_JOB_SWEEP,
     "measure the gates of gates.h5, too, if it is there (job gate)"},
    {"sweep.gate_kinds", WM_SETTING_STRING, "\"all\"", ANY_RANGE, NULL, WM_JOB_SWEEP,
     "which of them: kinds separated by blanks (linear pca component norm max_abs kurtosis random "
     "oracle), selected for those that were chosen for their layer, or all"},
    {"sweep.thresholds", WM_SETTING_FLOATS, "[]", 0, 1, NULL, WM_JOB_SWEEP,
     "further thresholds of p_linear at which every gate with a score is measured, beside its own"},
    {"sweep.divergence", WM_SETTING_BOOL, "true", ANY_RANGE, NULL, EVALUATING,
     "measure, beside the losses, the Kullback-Leibler divergence from the full model and how "
     "often "
     "the most likely token is the same"},
    {"sweep.check_tokens", WM_SETTING_INT, "4096", 0, 1e300, NULL, WM_JOB_SWEEP,
     "with compute.type bf16 or bf16_emulated: tokens, spread over the evaluation, that are "
     "evaluated again in f32 for the effect on every delta; 0: none"},

    /* gates: method.md, section 4 */
    {"gate.enabled", WM_SETTING_BOOL, "false", ANY_RANGE, NULL, WM_JOB_GATE,
     "the job run fits gates, too, between fit and sweep"},
    {"gate.layers", WM_SETTING_INTS, "[]", 0, 100000, NULL, WM_JOB_GATE,
     "layers that get gates; none named: all that have a surrogate"},
    {"gate.kinds", WM_SETTING_STRING, "\"all\"", ANY_RANGE, NULL, WM_JOB_GATE,
     "kinds of gates: linear pca component norm max_abs kurtosis random oracle, or all"},
    {"gate.bottlenecks", WM_SETTING_INTS, "[1, 3, 6]", 1, 100000, NULL, WM_JOB_GATE,
     "b of the kind pca: a gate on the first 2 b principal components for each"},
    {"gate.components", WM_SETTING_INTS, "[1, 2]", 1, 100000, NULL, WM_JOB_GATE,
     "of the kind component: a gate on this principal component alone for each"},
    {"gate.seed", WM_SETTING_INT, "1", 0, 1e300, NULL, WM_JOB_GATE, "of the kind random"},
    {"gate.thresholds", WM_SETTING_FLOATS, "[0.3, 0.4, 0.5, 0.6, 0.7]", 0, 1, NULL, WM_JOB_GATE,
     "of p_linear, beside 0.5, at which gates of gate.curve_kinds are measured: each is one more "
     "variant of the model"},
    {"gate.curve_kinds", WM_SETTING_STRING, "\"linear\"", ANY_RANGE, NULL, WM_JOB_GATE,
     "kinds of gates that are measured at all of them; empty: none"},
    {"gate.curve_layers", WM_SETTING_INTS, "[]", 0, 100000, NULL, WM_JOB_GATE,
     "layers whose gates are; none named: all of gate.layers"},
    {"gate.selection", WM_SETTING_CHOICE, "validation", ANY_RANGE, "validation evaluation",
     WM_JOB_GATE,
     "range on which a layer's gate and threshold are chosen; evaluation is the study's: costs "
     "reported there are biased downward"},
    {"gate.least_routed", WM_SETTING_FLOAT, "0.25", 0, 1, NULL, WM_JOB_GATE,
     "part of the positions that a gate must route to be chosen"},
    {"gate.memory_gib", WM_SETTING_FLOAT, "2.0", 0, 1e6, NULL, WM_JOB_GATE,
     "most features that a rank holds; layers that do not fit are done in further passes; 0: no "
     "limit"},
    {"gate.keep_features", WM_SETTING_BOOL, "false", ANY_RANGE, NULL, WM_JOB_GATE,
     "write the gates' inputs, 4 bytes for each position, layer and width, into features.h5"},
    {"gate.least_count", WM_SETTING_INT, "5", 1, 1e300, NULL, WM_JOB_GATE,
     "occurrences of a token type that may be named as an end of a gate's direction"},

    /* the allocator: method.md, section 5 */
    {"allocate.budgets", WM_SETTING_FLOATS, "[1.0, 2.0, 5.0]", 0, 1e300, NULL, WM_JOB_ALLOCATE,
     "most cost in percent of the perplexity on the validation range, ascending"},
    {"allocate.layers", WM_SETTING_INTS, "[]", 0, 100000, NULL, WM_JOB_ALLOCATE,
     "layers that may be changed; none named: all that have a surrogate"},
    {"allocate.gates", WM_SETTING_CHOICE, "selected", ANY_RANGE, "selected linear none",
     WM_JOB_ALLOCATE,
     "gate of gates.h5 by which a layer may be routed, beside its surrogate everywhere; selected: "
     "the linear one where none was selected"},
    {"allocate.thresholds", WM_SETTING_FLOATS, "[0.3, 0.5, 0.7]", 0, 1, NULL, WM_JOB_ALLOCATE,
     "thresholds of p_linear to choose from, beside the one that was selected"},
    {"allocate.shortlist", WM_SETTING_INT, "8", 0, 1e300, NULL, WM_JOB_ALLOCATE,
     "changes measured at each step, those that promise most; 0: all"},
    {"allocate.max_plans", WM_SETTING_INT, "1000", 0, 1e300, NULL, WM_JOB_ALLOCATE,
     "the search ends when so many plans are measured; 0: no limit"},

    {"bootstrap.unit", WM_SETTING_CHOICE, "auto", ANY_RANGE, "auto article line window", EVALUATING,
     "what is resampled; auto: article where there are ten or more, else line or window"},
    {"bootstrap.resamples", WM_SETTING_INT, "10000", 100, 1e7, NULL, EVALUATING,
     "resamples of the paired bootstrap"},
    {"bootstrap.seed", WM_SETTING_INT, "1", 0, 1e300, NULL, EVALUATING, "its seed"},
    {"bootstrap.confidence", WM_SETTING_FLOAT, "0.95", 0.5, 0.9999, NULL, EVALUATING,
     "level of the intervals and of \"beats the full model\""},
    {"bootstrap.unpaired", WM_SETTING_BOOL, "false", ANY_RANGE, NULL, EVALUATING,
     "also the study's interval, full model and variant on draws of their own: what pairing gains"},

    /* how it is computed */
    {"checkpoint.minutes", WM_SETTING_FLOAT, "10.0", 0, 1e6, NULL, MEASURING,
     "what a killed run may lose: finished work is kept that often; 0: only when asked to stop"},
    {"compute.memory_gib", WM_SETTING_FLOAT, "4.0", 0, 1e6, NULL, MEASURING,
     "most workspace of a rank, beside weights, losses and Gram matrices; 0: no limit"},
    {"compute.type", WM_SETTING_CHOICE, "f32", ANY_RANGE, "f32 bf16 bf16_emulated",
     MEASURING | WM_JOB_BENCH,
     "type of the dense layers' products; bf16: operands rounded to it, float32 sums, by the CPU's "
     "own instructions; bf16_emulated: the same rounding on any CPU, half the memory, no speed"},
    {"compute.block_tokens", WM_SETTING_INT, "1024", 16, 1 << 20, NULL, MEASURING | WM_JOB_BENCH,
     "tokens of a block of windows, the unit of work"},
    {"compute.stack_rows", WM_SETTING_INT, "8192", 16, 1 << 24, NULL, EVALUATING | WM_JOB_BENCH,
     "most rows that go through a layer at once when branches are stacked"},
    {"compute.tile_rows", WM_SETTING_INT, "512", 16, 1 << 16, NULL, MEASURING | WM_JOB_BENCH,
     "fixed height of the matrix products' tiles"},
    {"compute.tile_vocab", WM_SETTING_INT, "4096", 16, 1 << 20, NULL, MEASURING | WM_JOB_BENCH,
     "width of the logits' tiles"},
    /* bench */
    {"bench.config", WM_SETTING_STRING, "\"configs/models/gpt2-medium.json\"", ANY_RANGE, NULL,
     WM_JOB_BENCH, "config.json of the model, or a directory that has one; weights are drawn"},
    {"bench.parts", WM_SETTING_STRING, "\"all\"", ANY_RANGE, NULL, WM_JOB_BENCH,
     "what to measure: machine forward documents fit sweep routing scaling, or all; shares of "
     "the peak need machine"},
    {"bench.window", WM_SETTING_INT, "512", 2, 1 << 20, NULL, WM_JOB_BENCH,
     "tokens of a fixed window; documents are cut at it"},
    {"bench.windows", WM_SETTING_INT, "1", 1, 1 << 20, NULL, WM_JOB_BENCH,
     "fixed windows of every rank"},
    {"bench.documents", WM_SETTING_INT, "1536", 2, 1 << 30, NULL, WM_JOB_BENCH,
     "least tokens of every rank's documents, whose lengths are distributed as WikiText's"},
    {"bench.batches", WM_SETTING_INTS, "[1, 4]", 1, 1 << 16, NULL, WM_JOB_BENCH,
     "windows of every rank that linearised and routed models take at once"},
    {"bench.fractions", WM_SETTING_FLOATS, "[0.25, 0.5, 0.75]", 0, 1, NULL, WM_JOB_BENCH,
     "parts of the positions that are routed to surrogates"},
    {"bench.repeat", WM_SETTING_INT, "5", 1, 64, NULL, WM_JOB_BENCH,
     "repetitions of a measurement; the best one counts"},
    {"bench.seconds", WM_SETTING_FLOAT, "20.0", 0, 1e6, NULL, WM_JOB_BENCH,
     "no further repetition of a measurement that has taken that long"},
    {"bench.clock", WM_SETTING_CHOICE, "wall", ANY_RANGE, "wall processor", WM_JOB_BENCH,
     "what times are: of the clock, or of the processor, for a machine on which others work too"},
    {"bench.seed", WM_SETTING_INT, "1", 0, 1e300, NULL, WM_JOB_BENCH, "of weights and text"},
    {"bench.save", WM_SETTING_STRING, "\"\"", ANY_RANGE, NULL, WM_JOB_BENCH,
     "directory to write the random model into, as safetensors; then nothing is measured"},
    {"bench.save_dtype", WM_SETTING_CHOICE, "f32", ANY_RANGE, "f32 f16 bf16", WM_JOB_BENCH,
     "element type of that model"},
    {"bench.save_shards", WM_SETTING_INT, "1", 1, 99999, NULL, WM_JOB_BENCH, "files of that model"},

    {"watchdog.seconds", WM_SETTING_FLOAT, "120.0", 0, 1e6, NULL, 0,
     "a run in which nothing moves for so long is ended with exit code 74; 0: never"},
    {NULL, WM_SETTING_BOOL, NULL, ANY_RANGE, NULL, 0, NULL},
};
