"""The study's claims, with what result files say of them, recomputed."""

import numpy as np

from report_expected import NAN, first, published, study_model, text, trained


MIN_UNITS = 10


def judge(lacks, agrees, differs):
    """(verdict, reason): nothing is judged where something is lacking."""
    reason = next((x for x in lacks if x), "")
    return ("not tested" if reason else "reproduced" if agrees else "contradicted" if differs else "not reproduced",
            reason)


def model_layers(r):
    return int(r.attribute("model_layers", "0"))


def lacking(wanted, there, defined, what):
    """Words for layers of `wanted` that are not `there`, or not `defined`."""
    wanted = list(wanted)
    ranged = " (%d to %d)" % (wanted[0], wanted[-1]) if wanted[0] > 0 else ""
    if not set(wanted) <= set(there):
        return "%s %d of %d layers%s" % (what, len(set(wanted) & set(there)), len(wanted), ranged)
    none = set(wanted) - set(defined)
    return "%d of %d layers%s have no interval" % (len(none), len(wanted), ranged) if none else ""


def known(*numbers):
    return not any(np.isnan(x) for x in numbers)


def lacking_rows(r, which, wanted, what):
    """Of the sweep: costs of layers or of their gates, with intervals from enough units."""
    there = [l for l in r.layers if which in r.layers[l]]
    defined = [l for l in there if known(*(r.of(l, which, k) for k in ("delta", "low", "high")))]
    return [lacking(wanted, there, defined, what), few_units(r)]


def few_units_of_training(f):
    n = len(np.unique(f["evaluation/unit"][:]))
    return "fewer than ten units to resample: %d" % n if n < MIN_UNITS else ""


def few_units(r):
    return "fewer than ten units to resample: %d" % r.n_units if r.n_units < MIN_UNITS else ""


def every(r, first_is_there=True):
    return range(0 if first_is_there else 1, model_layers(r))


def lacking_gates(r, leaves_out_first):
    first = not leaves_out_first or "gated" in r.layers.get(0, {})
    return lacking_rows(r, "gated", every(r, first), "a gate is measured on")


def lacking_aucs(r, gates, what):
    """gates: rows of each layer; the study leaves out the first layer of some models."""
    defined = [l for l, rows in gates.items() if known(*(r.gate(i, k) for i in rows
                                                         for k in ("auc_heldout", "auc_low", "auc_high")))]
    return lacking(every(r, 0 in gates), gates, defined, what)


def dearest(r, layers, bound, lacks):
    layers = [l for l in layers if known(r.of(l, "linear", "delta"))]
    if not layers:
        return None
    top = max(layers, key=lambda l: r.of(l, "linear", "delta"))
    high, low = [r.of(l, "linear", "high") for l in layers], [r.of(l, "linear", "low") for l in layers]
    return (*(r.of(top, "linear", k) for k in ("delta", "low", "high")), NAN,
            *judge(lacks, all(h <= bound for h in high), any(x > bound for x in low)))


def shares(flags, total):
    return [100 * sum(f) / total for f in flags]


def probed(rows, named):
    """Rows of the layers that the study probes, or all and what lacks."""
    there = {int(x["layer"]) for x in rows} & set(named)
    if there == set(named):
        return [x for x in rows if x["layer"] in named], ""
    return rows, "probed on %d of the layers 1, 12 and 23, which the claim is about" % len(there)


def size(r):
    """Parameters of a Pythia whose layers all have costs; None: it is none."""
    if not (study_model(r) or "").startswith("pythia") or any(lacking_rows(r, "linear", every(r), "")):
        return None
    return float(r.attribute("model_parameters", "0")) or None


def claim(name, r, everything):
    """(value, low, high, beside, verdict on the claim's own model, reason if it is not tested), or None."""
    m, gated = r.measured(), [l for l in r.layers if "gated" in r.layers[l]]
    if name == "C01" and m:
        value, low, high = shares(([r.of(l, "linear", k) < 3 for l in m] for k in ("delta", "high", "low")), len(m))
        return value, low, high, NAN, *judge(lacking_rows(r, "linear", every(r), "measured on"), low >= 70, high < 70)
    if name in ("C02", "C03") and gated:
        need = 4 if name == "C02" else 11
        beats = sum(r.of(l, "gated", "beats") for l in gated)
        possible = sum(r.of(l, "gated", "low") < 0 for l in gated)
        return (beats, beats, possible, len(gated),
                *judge(lacking_gates(r, name == "C02"), beats >= need, possible < need))
    if name == "C04" and m:
        return dearest(r, m, 3.7, lacking_rows(r, "linear", every(r), "measured on"))
    if name == "C05" and 0 in m and known(r.of(0, "linear", "delta")):
        value, low, high = (r.of(0, "linear", k) for k in ("delta", "low", "high"))
        lacks = [few_units(r), "" if known(low, high) else "the interval is undefined"]
        return value, low, high, NAN, *judge(lacks, low <= 513 <= high, high < 256.5 or low > 1026)
    if name == "C06" and m:
        return dearest(r, [l for l in m if 7 <= l <= 15], 4, lacking_rows(r, "linear", range(7, 16), "measured on"))
    if name == "C07" and 3 in gated and known(r.of(3, "gated", "delta")):
        value, low, high = (r.of(3, "gated", k) for k in ("delta", "low", "high"))
        lacks = [few_units(r), "" if known(low, high) else "the interval is undefined"]
        return value, low, high, NAN, *judge(lacks, r.of(3, "gated", "beats") > 0, low > 0)
    if name == "C08" and gated:
        wide = [l for l in gated if r.of(l, "gated", "routed", 100) >= 25]
        value, low, high = shares(([r.of(l, "gated", k) < 1 for l in wide] for k in ("delta", "high", "low")), len(gated))
        most = max([r.of(l, "gated", "routed", 100) for l in wide if r.of(l, "gated", "delta") < 1], default=NAN)
        return value, low, high, most, *judge(lacking_gates(r, True), low > 50, high < 50)
    if name == "C09" and r.gates:
        g = [i for i in range(len(r.gates["gate/layer"])) if text(r.gates["gate/kind"][i]) == "linear"]
        auc = [r.gate(i, "auc_heldout") for i in g if known(r.gate(i, "auc_heldout"))]
        if g:
            outside = any(r.gate(i, "auc_low") > 0.61 or r.gate(i, "auc_high") < 0.54 for i in g)
            lacks = lacking_aucs(r, {int(r.gates["gate/layer"][i]): [i] for i in g}, "a linear gate is fitted on")
            return (float(np.median(auc)) if auc else NAN, min(auc, default=NAN), max(auc, default=NAN), NAN,
                    *judge([lacks], all(0.54 <= a <= 0.61 for a in auc), outside))
    if name == "C13":
        joint = [x for x in r.rows if x["path"] == "gate" and len(x["changes"]) > 1]
        if joint:
            best = max(joint, key=lambda x: len(x["changes"]))
            routed = len({c[1] for c in best["changes"]})
            lacks = ["" if routed >= model_layers(r) - 1 else
                     "gates route %d of %d layers together" % (routed, model_layers(r)),
                     "" if known(best["saved"]) else "the operations saved are not known"]
            return (best["saved"], NAN, NAN, best["delta"],
                    *judge(lacks, 19 <= best["saved"] <= 23, best["saved"] < 10.5))
    probes = r.files.get("probes.h5", {})
    if name == "C10" and "context" in probes:
        t = [x for x in first(probes["context"][:]) if text(x["label"]) == "median"]
        whole = {int(x["layer"]): x for x in t if text(x["gate"]) == "x"}
        part = {int(x["layer"]): x for x in t if text(x["gate"]) == "c" and text(x["view"]) == "normalised"}
        both = [(whole[l], part[l]) for l in sorted(set(whole) & set(part))]
        gaps = [abs(a["auc"] - b["auc"]) for a, b in both if known(a["auc"], b["auc"])]
        if gaps:
            defined = [a["layer"] for a, b in both if known(*(x[k] for x in (a, b) for k in ("auc", "low", "high")))]
            return (max(gaps), NAN, NAN, NAN,
                    *judge([lacking(every(r), [a["layer"] for a, _ in both], defined, "probed on")],
                           max(gaps) <= 0.004,
                           any(b["high"] < a["low"] or b["low"] > a["high"] for a, b in both)))
    if name == "C11" and "correlations" in probes:
        t = [x for x in probes["correlations"][:] if text(x["key"]) == "target" and not np.isnan(x["r"])]
        t = [x for x in t if x["layer"] == 12][:1] or t[:1]
        if t:
            value, low, high = (t[0][k] for k in ("r", "low", "high"))
            lacks = ["" if t[0]["layer"] == 12 else "of layer %d, the claim is about layer 12" % t[0]["layer"],
                     "" if known(low, high) else "the interval is undefined"]
            return (value, low, high, t[0]["corrected"],
                    *judge(lacks, low > -0.1 and high < 0.1, low > 0.1 or high < -0.1))
    if name == "C12" and "regression" in probes:
        t, lacks = probed([x for x in first(probes["regression"][:]) if known(x["r2_heldout"])], (1, 12, 23))
        if t:
            top = max(t, key=lambda x: x["r2_heldout"])
            wide = ["layer %d has no interval" % x["layer"] for x in t if not known(x["low"], x["high"])]
            return (*(top[k] for k in ("r2_heldout", "low", "high")), NAN,
                    *judge([lacks, *wide], all(x["high"] <= 0.02 for x in t), any(x["low"] > 0.02 for x in t)))
    if name == "C19" and "clusterings" in probes:
        t, lacks = probed([x for x in first(probes["clusterings"][:]) if known(x["linear"] + x["nonlinear"])], (1, 12, 23))
        if t:
            top = max(t, key=lambda x: x["linear"] + x["nonlinear"])
            value = top["linear"] + top["nonlinear"]
            return value, NAN, NAN, top["k"], *judge([lacks], value == 0, value > 0)
    if name == "C14" and "finetune.h5" in r.files and text(r.files["finetune.h5"].attrs["plan"]) == "progressive":
        f = r.files["finetune.h5"]
        table, ppl = f["evaluation/table"][:], np.exp(f["evaluation/nll"][:].astype(np.float64).mean(axis=1))
        row = {text(x["name"]): i for i, x in enumerate(table) if i > 0}
        ends = [(p["linear"], row[text(p["name"]) + ", end"]) for p in f["phases"][:] if text(p["name"]) + ", end" in row]
        if ends:
            value = max([k for k, i in ends if ppl[i] <= ppl[0]], default=0)
            low = max([k for k, i in ends if table[i]["high"] <= 0], default=0)
            high = max([k for k, i in ends if table[i]["low"] <= 0], default=0)
            tokens = {s * f.attrs["length"] * f.attrs["sequences"] for s in f["phases"]["steps"][:-1]}
            tried, wide = max(k for k, _ in ends), sum(not known(table[i]["low"], table[i]["high"]) for _, i in ends)
            lacks = ["no more than %d layers are made linear, the claim is of 5" % tried if tried < 5 else "",
                     "layers train on different numbers of tokens" if len(tokens) > 1 else "",
                     "a layer trains on %d tokens, in the study on 6400" % min(tokens) if tokens != {6400} else "",
                     few_units_of_training(f), "%d phases end without an interval" % wide if wide else ""]
            control = trained(r.files["control.h5"]) if "control.h5" in r.files else None
            return value, low, high, control[0] if control else NAN, *judge(lacks, low >= 5, high < 5)
    plans = {"C15": ("linearize", 2000 * 256, -10.2), "C16": ("two_phase", (2000 + 3000) * 256, -17.3)}
    if name in plans:
        plan, tokens, change = plans[name]
        f = r.files.get("finetune.h5")
        end = trained(f) if f is not None and text(f.attrs["plan"]) == plan else None
        if end:
            control = trained(r.files["control.h5"]) if "control.h5" in r.files else None
            seen, linear = int(f.attrs["tokens_seen"]), f["phases"]["linear"][-1]
            lacks = ["" if linear == 4 else "trained with %d layers linear, in the study with 4" % linear,
                     "" if seen == tokens else "trained on %d tokens, in the study on %d" % (seen, tokens),
                     few_units_of_training(f), "" if known(*end) else "the interval is undefined"]
            return *end, control[0] if control else NAN, *judge(lacks, end[1] <= change, end[1] > 0)
    if name == "C17" and "control.h5" in r.files:
        end, seen = trained(r.files["control.h5"]), int(r.files["control.h5"].attrs["tokens_seen"])
        if end:
            change = {400 * 256: -14.8, 2000 * 256: -20.6}.get(seen, NAN)
            lacks = ["" if known(change) else "trained on %d tokens, in the study on 102400 or 512000" % seen,
                     few_units_of_training(r.files["control.h5"]), "" if known(*end) else "the interval is undefined"]
            return *end, change, *judge(lacks, end[1] <= change, end[1] > 0)
    if name == "C18" and r.gates:
        layer, kinds = {}, {}
        for i, (l, kind, k) in enumerate(zip(*(r.gates["gate/" + x][:] for x in ("layer", "kind", "components")))):
            if text(kind) == "linear":
                layer[int(l)] = i
            elif text(kind) == "pca":
                kinds.setdefault(int(k), {})[int(l)] = i
        most, sure, lacks, count = [], [], [], NAN
        for larger in kinds.values():
            pairs = {l: (i, layer[l]) for l, i in larger.items() if l in layer}
            lacks.append(lacking_aucs(r, pairs, "both kinds of gates are fitted on"))
            aucs = [(a, b) for a, b in pairs.values() if known(r.gate(a, "auc_heldout"), r.gate(b, "auc_heldout"))]
            if aucs:
                count = len(aucs)
                most.append(100 * sum(r.gate(a, "auc_heldout") > r.gate(b, "auc_heldout") for a, b in aucs) / count)
                sure.append(100 * sum(r.gate(a, "auc_low") > r.gate(b, "auc_high") for a, b in aucs) / count)
        if kinds:
            most, sure = max(most, default=NAN), max(sure, default=NAN)
            return most, sure, most, count, *judge(lacks, most < 75, sure > 50)
    if name == "C20" and m and known(r.median("delta")):
        sized = [(size(x), x) for x in everything if size(x)]
        pairs = [(a, b) for s, a in sized for t, b in sized if t > s]
        sizes = len({s for s, _ in sized})
        lacks = lacking_rows(r, "linear", every(r), "measured on")
        lacks.append("" if pairs else "%d size of Pythia with all its layers is here, and two are compared" % sizes)
        return (r.median("delta"), r.median("low"), r.median("high"), sizes,
                *judge(lacks, all(b.median("high") < a.median("low") for a, b in pairs),
                       any(b.median("low") > a.median("high") for a, b in pairs)))
    if name == "C21" and "bench.h5" in r.files and "routing" in r.files["bench.h5"]:
        table = r.files["bench.h5"]["routing"]
        rows = table["losses"][:] if "losses" in table and len(table["losses"]) else table["layers"][:]
        rows = [x for x in rows if "gate" in text(x["name"])]
        if rows:
            best = max(rows, key=lambda x: x["speedup"])
            return best["speedup"], NAN, NAN, best["flops_saved"], "not tested", ""
    return None


def about(model, r):
    own = study_model(r) or ""
    return model == "all" or own == model or (model == "pythia" and own.startswith("pythia"))


def claims(reference, everything, labels):
    """Rows of the ledger: claim, verdict, value, low, high, label, beside, reason that "why" states."""
    out = []
    for row in published(reference, "claims"):
        found, rank = None, 0 # 1: of another model, 2: of its own, 3: and tested
        for r, label in zip(everything, labels):
            c = claim(row["claim"], r, everything)
            if c is None:
                continue
            now = 1 if not about(row["model"], r) else 2 if c[4] == "not tested" else 3
            if now > rank:
                found, rank = (*c[:4], c[4] if now == 3 else "not tested", c[5] if now > 1 else "", label), now
        value, low, high, beside, verdict, reason, label = found or (NAN, NAN, NAN, NAN, "not tested", "", "")
        out.append((row, verdict, value, low, high, label, beside, reason))
    return out
