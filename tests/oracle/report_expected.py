"""What a report must say of result files, recomputed from them: every table and every named number.

Costs, perplexities, divergences, agreement and routed fractions come from /nll and /cells, medians
and verdicts from those, a plan's change against its control from the losses of both trainings, their
speed from the times of steps; what a file alone knows (intervals and p-values of its bootstrap, AUCs,
times) is read from it.
"""

import csv
import datetime
import pathlib
import re

import h5py
import numpy as np

NAN = float("nan")
NAMES = ["surrogates.h5", "sweep.h5", "gates.h5", "allocation.h5", "bench.h5", "finetune.h5", "control.h5",
         "finetune.compare.h5", "probes.h5"]


def text(x):
    return x.decode("utf-8", "replace") if isinstance(x, bytes) else str(x)


def confidence(configuration):
    group = configuration.partition("bootstrap: {")[2].partition("\n}")[0]
    return float(group.partition("confidence = ")[2].partition(";")[0])


def last_perplexity(losses, row):
    with np.errstate(over="ignore", invalid="ignore"):
        return np.exp(losses[row].astype(np.float64).mean())


def holm(p):
    """Adjusted p-values, in the order of p; NaN is no member of the family."""
    order = [i for i in np.argsort(p) if not np.isnan(p[i])]
    out, most = [NAN] * len(p), 0.0
    for k, i in enumerate(order):
        most = max(most, min(1.0, (len(order) - k) * p[i]))
        out[i] = most
    return out


def gate_name(kind, components):
    if components > 0:
        return ("pc" if kind == "component" else kind) + "%g" % components
    return kind


class Results:
    def __init__(self, directory, tolerance):
        self.dir = pathlib.Path(directory)
        self.tolerance = tolerance
        self.files = {n: h5py.File(self.dir / n, "r") for n in NAMES if (self.dir / n).exists()}
        self.sweep, self.fit = self.files.get("sweep.h5"), self.files.get("surrogates.h5")
        self.gates = self.files.get("gates.h5")
        self._variants()
        self._layers()

    def attribute(self, name, default=""):
        for n in ["sweep.h5"] + NAMES:
            if n in self.files and name in self.files[n].attrs:
                return text(self.files[n].attrs[name])
        return default

    def confidence(self):
        return confidence(self.attribute("configuration"))

    def label(self):
        return (self.attribute("model") or str(self.dir)).rstrip("/").split("/")[-1]

    # ---- sweep

    def _variants(self):
        self.rows = []
        if self.sweep is None:
            return
        f = self.sweep
        nll = f["nll"][:].astype(np.float64)
        n = nll.shape[1]
        table = f["variants"][:]
        self.changes = [(int(v), int(l), int(g), float(t)) for v, l, g, t in
                        zip(*(f["changes/" + k][:] for k in ("variant", "layer", "gate", "threshold")))]
        with np.errstate(over="ignore", invalid="ignore"):
            ppl = np.exp(nll.mean(axis=1))
            delta = 100 * (ppl / ppl[0] - 1)
        for v, row in enumerate(table):
            of = [c for c in self.changes if c[0] == v]
            cells = {k: f["cells/" + k][v].sum() / n for k in ("routed", "agreed", "divergence")}
            self.rows.append({
                "layers": text(row["layers"]), "path": text(row["path"]), "gate": text(row["gate"]),
                "threshold": row["threshold"], "ppl": ppl[v], "delta": 0.0 if v == 0 else delta[v],
                "low": row["low"], "high": row["high"], "p": row["p_two_sided"], "holm": row["p_holm"],
                "bh": row["p_bh"], "routed": cells["routed"] / len(of) if of else row["routed_fraction"],
                "saved": row["saved_pct"], "saved_body": row["saved_body_pct"],
                "kl": row["kl"] if v == 0 else cells["divergence"],
                "same": row["top1_agreement"] if v == 0 else cells["agreed"],
                "beats": int(row["beats_full"]), "changes": of})
            assert np.isnan(row["low"]) or row["low"] <= row["delta_pct"] <= row["high"]
        self.n_tokens, self.n_units = n, len(np.unique(f["tokens/unit"][:]))

    def _layers(self):
        layers = {}
        for l in (self.fit["layers"][:] if self.fit else []):
            layers[int(l)] = {}
        for v, row in enumerate(self.rows):
            if row["path"] == "surrogate" and len(row["changes"]) == 1:
                layers.setdefault(row["changes"][0][1], {})["linear"] = v
        if self.gates:
            for l, g, t in zip(self.gates["layers"][:], self.gates["selected/gate"][:],
                               self.gates["selected/threshold"][:]):
                at = layers.setdefault(int(l), {})
                if g < 0:
                    continue
                at["gate"], at["threshold"] = int(g), float(t)
                for v, row in enumerate(self.rows):
                    if len(row["changes"]) == 1 and row["changes"][0][1:3] == (int(l), int(g)):
                        other = row["changes"][0][3]
                        if other == t or (np.isnan(other) and np.isnan(t)):
                            at["gated"] = v
        self.layers = dict(sorted(layers.items()))

    def of(self, layer, which, member, factor=1):
        v = self.layers[layer].get(which)
        return factor * self.rows[v][member] if v is not None else NAN

    def verdict(self, layer):
        if "linear" not in self.layers[layer]:
            return "not measured"
        low, high = self.of(layer, "linear", "low"), self.of(layer, "linear", "high")
        if self.n_units < 10 or np.isnan(low) or np.isnan(high):
            return "undecided"
        return "wasted" if high <= self.tolerance else "needed" if low > self.tolerance else "undecided"

    def measured(self):
        return [l for l in self.layers if "linear" in self.layers[l]]

    def median(self, member):
        x = [self.of(l, "linear", member) for l in self.measured()]
        x = [v for v in x if not np.isnan(v)]
        return float(np.median(x)) if x else NAN

    def fitted(self, name, layer):
        if self.fit is None:
            return NAN
        at = list(self.fit["layers"][:]).index(layer) if layer in self.fit["layers"][:] else None
        return float(self.fit["fit/" + name][at]) if at is not None else NAN

    def gate(self, g, member):
        return float(self.gates["gate/" + member][g])

    def gate_label(self, g):
        return gate_name(text(self.gates["gate/kind"][g]), int(self.gates["gate/components"][g]))

    # ---- tables of one model

    def tables(self):
        out = {"surrogates": self._surrogates() if self.fit else None}
        if self.layers:
            out["layers"] = [[l, self.verdict(l), *(self.of(l, "linear", k) for k in ("delta", "low", "high", "holm")),
                              self.fitted("r2_heldout", l)] for l in self.layers]
        if self.rows:
            out["variants"] = [[r["layers"], r["path"], r["gate"], r["threshold"], r["ppl"], r["delta"], r["low"],
                                r["high"], r["p"], r["holm"], r["bh"], 100 * r["routed"], r["saved"], r["kl"],
                                100 * r["same"]] for r in self.rows]
            out["sets"] = [[r["layers"], r["path"], r["gate"], r["delta"], r["low"], r["high"],
                            sum(self.of(c[1], "linear", "delta") for c in r["changes"]), 100 * r["routed"],
                            r["saved"], r["saved_body"]] for r in self.rows if len(r["changes"]) > 1] or None
        if self.gates:
            out.update(self._gate_tables())
        if "allocation.h5" in self.files:
            out["front"] = self._front()
        if "bench.h5" in self.files:
            out["time"] = self._time()
        out.update(self._training())
        out.update(self._probes())
        return {k: v for k, v in out.items() if v is not None}

    def _training(self):
        """Perplexities and deltas from the losses; row 0 is the model at the start."""
        rows, out = [], {}
        for name, who in (("finetune.h5", "plan"), ("control.h5", "control")):
            f = self.files.get(name, {})
            for group in sorted(k for k in f if isinstance(f[k], h5py.Group) and "table" in f[k]):
                ppl = np.exp(f[group]["nll"][:].astype(np.float64).mean(axis=1))
                for i, r in enumerate(f[group]["table"][:]):
                    rows.append([who, group, text(r["name"]), r["step"], "decide" if r["hard"] > 0 else "", ppl[i],
                                 0.0 if i == 0 else 100 * (ppl[i] / ppl[0] - 1), r["low"], r["high"], r["p_holm"]])
        if rows:
            out["training"] = rows
        speeds = self.speeds()
        if speeds:
            out["speed"] = [list(s.values()) for s in speeds]
        against = self.against()
        if against:
            out["against"] = [list(a.values()) for a in against]
        if "gates_used" in self.files.get("finetune.h5", {}):
            out["redistribution"] = [[text(r["name"]), *(r[k] for k in ("mean", "std", "q05", "q25", "median", "q75",
                                                                        "q95", "mlp"))]
                                     for r in self.files["finetune.h5"]["gates_used"][:]]
        return out

    def speeds(self):
        """How fast plan and control trained, from the times of their steps."""
        out = []
        for name, who in (("finetune.h5", "plan"), ("control.h5", "control")):
            if name not in self.files:
                continue
            f = self.files[name]
            seconds, exposed = f["timing/seconds"][:], f["timing/exposed"][:]
            out.append({"run": who, "ranks": float(f.attrs["ranks"]), "threads": float(f.attrs["threads"]),
                        "steps": len(seconds), "step_seconds": np.median(seconds), "longest_step_seconds": max(seconds),
                        "tokens_per_second": len(seconds) * f.attrs["sequences"] * f.attrs["length"] / seconds.sum(),
                        "exposed_pct": 100 * exposed.sum() / seconds.sum(),
                        "read_tokens_per_second": float(f.attrs["read_tokens_per_second"])})
        return out

    def against(self):
        """The plan against its control on every range, from the losses of both where they are here."""
        if "finetune.compare.h5" not in self.files:
            return []
        f = self.files["finetune.compare.h5"]
        table, plan, control = f["comparison"][:], self.files.get("finetune.h5"), self.files.get("control.h5")
        level = 1 - confidence(text(f.attrs["configuration"]))
        out, told = [], {}
        for row in table:
            what, _, name = text(row["name"]).partition(": ")
            if what == "control":
                told[name] = row
                continue
            family = {text(r["name"]).partition(": ")[0]: r["p_two_sided"] for r in table
                      if text(r["name"]).partition(": ")[2] == name and not text(r["name"]).startswith("control: ")}
            ppl, base = row["ppl"], told[name]["ppl"]
            if plan is not None:
                at = np.nonzero((plan[name]["table"]["hard"] > 0) == (what != "plan"))[0][-1]
                ppl = last_perplexity(plan[name]["nll"], at)
                assert row["units"] == len(np.unique(plan[name]["unit"][:]))
            if control is not None:
                base = last_perplexity(control[name]["nll"], -1)
            change, p = 100 * (ppl / base - 1), dict(zip(family, holm(list(family.values()))))[what]
            known = not np.isnan([change, row["low"], row["high"], p]).any()
            sure = known and row["units"] >= 10 and p < level
            out.append({"range": name, "model": what, "control_ppl": base, "ppl": ppl, "change_pct": change,
                        "low_pct": row["low"], "high_pct": row["high"], "p_two_sided": row["p_two_sided"], "p_holm": p,
                        "units": row["units"],
                        "verdict": "not judged" if not known else "cannot be told apart" if not sure else
                                   "better than its control" if change < 0 else "worse than its control"})
        return out

    def against_evaluation(self):
        return next((a for a in self.against() if (a["range"], a["model"]) == ("evaluation", "plan")), None)

    def against_state(self):
        plan, control = self.files.get("finetune.h5"), self.files.get("control.h5")
        if "finetune.compare.h5" in self.files:
            return "compared"
        if control is None or plan is None:
            return "no control here" if control is None else "no plan here"
        same = all(plan.attrs[k] == control.attrs[k] for k in ("tokens_seen", "chain"))
        return "not compared yet" if same else "control saw other tokens"

    def trains(self):
        return any(n in self.files for n in ("finetune.h5", "control.h5", "finetune.compare.h5"))

    def _probes(self):
        """Members as they are: the probes' own oracle recomputes them."""
        tables = {
            "context": ("context", "corpus surrogates layer label view gate auc low high accuracy"),
            "categories": ("categories", "corpus surrogates layer key category n mean low high sd positive"),
            "corpora": ("correlations", "corpus other surrogates layer key types r low high reliability "
                                        "reliability_other corrected r_study"),
            "regression": ("regression", "corpus surrogates layer key features r2 r2_heldout low high"),
            "clusters": ("clusterings", "corpus surrogates layer k linear nonlinear between auc")}
        f, out = self.files.get("probes.h5", {}), {}
        for name, (path, members) in tables.items():
            if path in f and len(f[path]):
                out[name] = [[text(r[m]) if isinstance(r[m], bytes) else float(r[m]) for m in members.split()]
                             for r in f[path][:]]
        return out

    def _probe_numbers(self):
        f, out = self.files.get("probes.h5", {}), {}
        if "categories" in f and len(f["categories"]):
            means = [abs(x["mean"]) for x in first(f["categories"][:]) if text(x["key"]) == "input"]
            if np.nanmax(means) > 0:
                out["largest_category_nats"] = float(np.nanmax(means))
                out["largest_category_sd_nats"] = float(np.nanmax(
                    [x["sd"] for x in first(f["categories"][:]) if text(x["key"]) == "input"]))
        if "types" in f and len(f["types"]):
            t = f["types"][:]
            mine = [x for x in first(t) if text(x["key"]) == "input" and x["layer"] == t[0]["layer"]]
            others = {int(x["id"]) for x in t if text(x["key"]) == "input" and x["layer"] == t[0]["layer"] and
                      x["surrogates"] == t[0]["surrogates"] and x["corpus"] != t[0]["corpus"]}
            both = sum(int(x["id"]) in others for x in mine)
            if both:
                out.update(types_on_both=both, types_layer=float(t[0]["layer"]))
        return out

    def _surrogates(self):
        f, rows = self.fit, []
        held = f["path/r2_heldout"][:] if "path" in f else None
        for i, l in enumerate(f["layers"][:]):
            best = at = NAN
            if held is not None and not np.all(np.isnan(held[i])):
                k = int(np.nanargmax(held[i]))
                best, at = f["path/lambda"][k], held[i, k]
            rows.append([int(l), *(f["fit/" + k][i] for k in ("r2", "r2_heldout", "effective_rank", "condition",
                                                              "weight_norm")), best, at])
        return rows

    def _gate_tables(self):
        f = self.gates
        n = len(f["gate/layer"])
        out = {"gates": [[int(f["gate/layer"][g]), self.gate_label(g), self.gate(g, "parameters"),
                          *(self.gate(g, k) for k in ("auc_heldout", "auc_low", "auc_high", "auc", "accuracy_heldout")),
                          100 * (1 - self.gate(g, "routed_heldout")), text(f["gate/note"][g])] for g in range(n)]}
        out["routed"] = [[l, self.of(l, "linear", "delta"),
                          self.gate_label(at["gate"]) if "gate" in at else "none", at.get("threshold", NAN),
                          *(self.of(l, "gated", k) for k in ("delta", "low", "high")),
                          self.of(l, "gated", "routed", 100),
                          self.gate(at["gate"], "auc_heldout") if "gate" in at else NAN,
                          "beats full" if self.of(l, "gated", "beats") > 0 else ""]
                         for l, at in self.layers.items()]
        if "curve" in f:
            out["curve"] = [[int(r["layer"]), text(r["name"]), r["threshold"], 100 * r["routed"], r["delta_pct"],
                             r["low"], r["high"]] for r in f["curve"][:]] or None
        if "ends" in f:
            out["ends"] = [[int(f["layers"][i]), "surrogate" if e == 0 else "mlp", None,
                            *(f["ends/" + k][i, e, j] for k in ("count", "score", "delta"))]
                           for i in range(len(f["layers"])) for e in (0, 1) for j in range(4)
                           if f["ends/token"][i, e, j] >= 0] or None
        return out

    def _front(self):
        f, rows = self.files["allocation.h5"], []
        option, delta, saved = f["plans/option"][:], f["plans/delta_pct"][:], f["plans/saved_pct"][:]
        budget = {int(p): float(b) for b, p in zip(f["budgets/delta_pct"][:], f["budgets/plan"][:])}
        layer, gate = f["options/layer"][:], f["options/gate"][:]
        for p in range(len(delta)):
            dominated = any((delta[q] <= delta[p] and saved[q] > saved[p]) or (delta[q] < delta[p] and saved[q] >= saved[p])
                            for q in range(len(delta)))
            front = bool(f["plans/front"][p])
            assert front != dominated, "plan %d: /plans/front disagrees with its numbers" % p
            if not front and p not in budget:
                continue
            words = []
            for l in np.nonzero(option[p])[0]:
                row = np.nonzero(layer == l)[0][option[p, l] - 1]
                words.append("%d%s" % (l, "g" if gate[row] >= 0 else ""))
            rows.append([p, " ".join(words) or "none", int((option[p] > 0).sum()), delta[p],
                         f["plans/sum_of_singles_pct"][p], saved[p], budget.get(p, NAN)])
        return rows

    def _time(self):
        f, rows = self.files["bench.h5"], []
        for path, what in (("layers", "layers"), ("last", "last logits"), ("losses", "all losses")):
            if "routing/" + path in f:
                rows += [[what, text(r["name"]), *(r[k] for k in ("routed", "full", "best", "speedup", "flops_saved",
                                                                  "time_saved", "appears"))]
                         for r in f["routing/" + path][:]]
        return rows or None

    # ---- named numbers of one model

    def numbers(self):
        m = self.measured()
        verdicts = [self.verdict(l) for l in m]
        cost = {l: self.of(l, "linear", "delta") for l in m if not np.isnan(self.of(l, "linear", "delta"))}
        out = {"layers_measured": len(m), "tolerance_pct": self.tolerance,
               "confidence_pct": 100 * self.confidence(), "median_cost_pct": self.median("delta")}
        for word in ("wasted", "needed", "undecided"):
            out["layers_" + word] = verdicts.count(word)
        if cost:
            cheap, dear = min(cost, key=cost.get), max(cost, key=cost.get)
            out.update(cheapest_layer=cheap, cheapest_cost_pct=cost[cheap], dearest_layer=dear,
                       dearest_cost_pct=cost[dear])
        pairs = [(self.of(l, "linear", "delta"), self.of(l, "gated", "delta")) for l in self.layers]
        pairs = [p for p in pairs if not np.isnan(p[0]) and not np.isnan(p[1])]
        if pairs:
            out.update(gate_compared_layers=len(pairs), gate_cheaper_layers=sum(g < a for a, g in pairs))
        if "allocation.h5" in self.files:
            f = self.files["allocation.h5"]
            out.update(plans_measured=len(f["plans/delta_pct"]), plans_on_front=int((f["plans/front"][:] > 0).sum()))
        out.update(self._probe_numbers())
        if "gates_used" in self.files.get("finetune.h5", {}):
            out["mean_gate"] = float(np.mean(self.files["finetune.h5"]["gates_used"]["mean"]))
        end = trained(self.files.get("finetune.h5", {}))
        if end:
            out.update(training_change_pct=end[0], training_low_pct=end[1], training_high_pct=end[2],
                       trained_layers=self.trained_layers())
            control = trained(self.files.get("control.h5", {}))
            if control:
                out["control_change_pct"] = control[0]
        against = self.against_evaluation()
        if against:
            f = self.files["finetune.compare.h5"]
            out.update({"against_" + k: against[k] for k in ("control_ppl", "ppl", "change_pct", "low_pct", "high_pct",
                                                             "p_holm", "units")})
            out.update(against_tokens=float(f.attrs["tokens_seen"]),
                       against_confidence_pct=100 * confidence(text(f.attrs["configuration"])))
        return out

    def trained_layers(self):
        return float(self.files["finetune.h5"]["phases"]["linear"][-1])

    def mean_gates(self):
        """Mean of g by layer."""
        f = self.files.get("finetune.h5", {})
        return {int(re.search(r"\d+", text(r["name"]))[0]): r for r in f["gates_used"][:]} if "gates_used" in f else {}


# ---- provenance

def attribute_text(value):
    if hasattr(value, "dtype") and value.dtype.kind in "iu":
        return "%d" % value
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        return "%.17g" % value
    return text(value)


def provenance(results, labels):
    """Where each file was made, and from what."""
    runs, inputs = [], []
    for r, label in zip(results, labels):
        told = set()
        for n in (n for n in NAMES if n in r.files):
            a = {k: attribute_text(v) for k, v in r.files[n].attrs.items()}
            begin, end = (datetime.datetime.strptime(a[k], "%Y-%m-%dT%H:%M:%SZ") for k in ("start", "end"))
            runs.append([label, n, *(a.get(k, "") for k in ("version", "commit", "host", "cpu", "compute")),
                         *(float(a[k]) for k in ("ranks", "threads", "nodes")), a["start"], (end - begin).total_seconds()])
            for k in sorted(a, key=str.encode):
                if re.match("protocol|bootstrap_|(model|tokenizer|corpus|text)_fingerprint|range_|train_", k) and \
                        (k, a[k]) not in told:
                    told.add((k, a[k]))
                    inputs.append([label, k, a[k], n])
    return {"provenance-runs": runs, "provenance-inputs": inputs}


# ---- the study

STUDY = {("GPT-2", 12, 768): "gpt2", ("GPT-2", 24, 1024): "gpt2-medium", ("GPT-2", 36, 1280): "gpt2-large",
         ("GPT-NeoX", 12, 768): "pythia-160m", ("GPT-NeoX", 24, 1024): "pythia-410m",
         ("GPT-NeoX", 16, 2048): "pythia-1b", ("GPT-NeoX", 32, 2560): "pythia-2.8b"}


def study_model(r):
    shape = (r.attribute("model_family"), int(r.attribute("model_layers", "0")), int(r.attribute("model_width", "0")))
    ppl = [r.rows[0]["ppl"]] if r.rows else [np.exp(r.files[n]["evaluation/nll"][0].astype(np.float64).mean())
                                             for n in ("finetune.h5", "control.h5") if n in r.files]
    return STUDY.get(shape) if ppl and ppl[0] < 200 else None


def published(reference, name):
    with open(pathlib.Path(reference) / ("published_%s.csv" % name), encoding="utf-8", newline="") as f:
        return list(csv.DictReader(f))


def published_layers(reference, results, labels):
    """The study's costs beside those of runs of its models; None: there are none."""
    table, rows = published(reference, "layers"), []

    def theirs(model, layer, variant, *columns):
        t = [x for x in table if (x["model"], x["layer"], x["variant"]) == (model, str(layer), variant)]
        t = [x for x in t if x["delta_ci_lo_pct"]] or t # one with an interval where there is one
        return [float(t[0][c]) if t and t[0][c] else NAN for c in columns]

    for r, label in zip(results, labels):
        model = study_model(r)
        for l in sorted(r.layers) if model else ():
            rows.append([label, l, *(r.of(l, "linear", k) for k in ("delta", "low", "high")),
                         *theirs(model, l, "all-linear", "delta_pct", "delta_ci_lo_pct", "delta_ci_hi_pct"),
                         r.of(l, "gated", "delta"), *theirs(model, l, "gate:best", "delta_pct")])
    return rows or None


def first(rows):
    """Those of the first row's corpus and surrogates."""
    return [x for x in rows if x["corpus"] == rows[0]["corpus"] and x["surrogates"] == rows[0]["surrogates"]]


def trained(f):
    """Change of perplexity from the start to the last evaluation with blending gates, and its interval."""
    if "evaluation" not in f:
        return None
    ppl = np.exp(f["evaluation/nll"][:].astype(np.float64).mean(axis=1))
    rows = [i for i, row in enumerate(f["evaluation/table"][:]) if i > 0 and row["hard"] == 0]
    if not rows:
        return None
    last = f["evaluation/table"][rows[-1]]
    return 100 * (ppl[rows[-1]] / ppl[0] - 1), last["low"], last["high"]


def trainings(results, labels):
    """Tables and numbers that compare trainings; none unless there are two."""
    runs = [(r, l, trained(r.files.get("finetune.h5", {}))) for r, l in zip(results, labels)]
    runs = [x for x in runs if x[2]]
    if len(runs) < 2:
        return {}, {}
    rows = []
    for r, label, end in runs:
        f, c = r.files["finetune.h5"], r.files.get("control.h5")
        ppl = np.exp(f["evaluation/nll"][:].astype(np.float64).mean(axis=1))
        last = [i for i, row in enumerate(f["evaluation/table"][:]) if i > 0 and row["hard"] == 0][-1]
        against = r.against_evaluation()
        rows.append([label, *([against[k] for k in ("verdict", "change_pct", "low_pct", "high_pct")] if against else
                              [r.against_state(), NAN, NAN, NAN]), text(f.attrs["plan"]), r.trained_layers(),
                     float(f.attrs["tokens_seen"]), text(f.attrs["chain"]), ppl[0], ppl[last], *end, trained(c)[0] if c is not None else NAN])
    gated = [(l, r.mean_gates(), r) for r, l in zip(results, labels) if r.mean_gates()]
    if len(gated) < 2:
        return {"trainings": rows}, {}
    sets, layers, shifts = [], [], []
    for label, gates, _ in gated:
        g = [x["mean"] for x in gates.values()]
        sets.append([label, len(g), np.mean(g), np.sum(g), min(g), max(g), np.mean([x["mlp"] for x in gates.values()])])
    for layer in range(max(int(r.attribute("model_layers")) for *_, r in gated)):
        g = [gates[layer]["mean"] if layer in gates else NAN for _, gates, _ in gated]
        known = [x for x in g if not np.isnan(x)]
        shifts.append(max(known) - min(known) if len(known) > 1 else NAN)
        layers.append([layer, *g, shifts[-1]])
    several = [x for x in shifts if not np.isnan(x)]
    return ({"trainings": rows, "sets": sets, "sets-layers": layers},
            {"gated_sets": len(gated), "shared_gated_layers": len(several),
             "largest_gate_shift": max(several, default=NAN)})
