"""The study's claims, with what result files say of them, recomputed."""

import numpy as np

from report_expected import NAN, first, published, study_model, text, trained


def judge(agrees, differs):
    return "reproduced" if agrees else "contradicted" if differs else "not reproduced"


def dearest(r, layers, bound):
    if not layers or any(np.isnan(r.of(l, "linear", "delta")) if l in r.layers else True for l in layers):
        return None
    top = max(layers, key=lambda l: r.of(l, "linear", "delta"))
    high, low = [r.of(l, "linear", "high") for l in layers], [r.of(l, "linear", "low") for l in layers]
    return (*(r.of(top, "linear", k) for k in ("delta", "low", "high")), NAN,
            judge(all(h <= bound for h in high), any(x > bound for x in low)))


def shares(flags, total):
    return [100 * sum(f) / total for f in flags]


def claim(name, r, everything):
    """(value, low, high, beside, verdict on the claim's own model), or None."""
    m, gated = r.measured(), [l for l in r.layers if "gated" in r.layers[l]]
    if name == "C01" and m:
        value, low, high = shares(([r.of(l, "linear", k) < 3 for l in m] for k in ("delta", "high", "low")), len(m))
        return value, low, high, NAN, judge(low >= 70, high < 70)
    if name in ("C02", "C03") and gated:
        need = 4 if name == "C02" else 11
        beats = sum(r.of(l, "gated", "beats") for l in gated)
        possible = sum(r.of(l, "gated", "low") < 0 for l in gated)
        return beats, beats, possible, len(gated), judge(beats >= need, possible < need)
    if name == "C04":
        every = list(range(int(r.attribute("model_layers", "0"))))
        return dearest(r, every if every == m else [], 3.7)
    if name == "C05" and 0 in m:
        value, low, high = (r.of(0, "linear", k) for k in ("delta", "low", "high"))
        return value, low, high, NAN, judge(low <= 513 <= high, high < 256.5 or low > 1026)
    if name == "C06":
        return dearest(r, list(range(7, 16)) if set(range(7, 16)) <= set(m) else [], 4)
    if name == "C07" and 3 in gated:
        value, low, high = (r.of(3, "gated", k) for k in ("delta", "low", "high"))
        return value, low, high, NAN, judge(r.of(3, "gated", "beats") > 0, low > 0)
    if name == "C08" and gated:
        wide = [l for l in gated if r.of(l, "gated", "routed", 100) >= 25]
        value, low, high = shares(([r.of(l, "gated", k) < 1 for l in wide] for k in ("delta", "high", "low")), len(gated))
        most = max([r.of(l, "gated", "routed", 100) for l in wide if r.of(l, "gated", "delta") < 1], default=NAN)
        return value, low, high, most, judge(low > 50, high < 50)
    if name == "C09" and r.gates:
        g = [i for i in range(len(r.gates["gate/layer"])) if text(r.gates["gate/kind"][i]) == "linear"]
        auc = [r.gate(i, "auc_heldout") for i in g if not np.isnan(r.gate(i, "auc_heldout"))]
        if auc:
            outside = any(r.gate(i, "auc_low") > 0.61 or r.gate(i, "auc_high") < 0.54 for i in g)
            return float(np.median(auc)), min(auc), max(auc), NAN, judge(all(0.54 <= a <= 0.61 for a in auc), outside)
    if name == "C13":
        joint = [x for x in r.rows if x["path"] == "gate" and 1 < len(x["changes"]) >= len(m) - 1]
        if joint:
            best = max(joint, key=lambda x: len(x["changes"]))
            return best["saved"], NAN, NAN, best["delta"], judge(19 <= best["saved"] <= 23, best["saved"] < 10.5)
    probes = r.files.get("probes.h5", {})
    if name == "C10" and "context" in probes:
        t = first(probes["context"][:])
        t = [x for x in t if text(x["label"]) == "median"]
        gaps, apart = [], False
        for a in (x for x in t if text(x["gate"]) == "c" and text(x["view"]) == "normalised"):
            for b in (x for x in t if text(x["gate"]) == "x" and x["layer"] == a["layer"]):
                gaps.append(abs(a["auc"] - b["auc"]))
                apart |= bool(a["high"] < b["low"] or a["low"] > b["high"])
        gaps = [g for g in gaps if not np.isnan(g)]
        if gaps:
            return max(gaps), NAN, NAN, NAN, judge(max(gaps) <= 0.004, apart)
    if name == "C11" and "correlations" in probes:
        t = [x for x in probes["correlations"][:] if text(x["key"]) == "target" and not np.isnan(x["r"])]
        t = [x for x in t if x["layer"] == 12][:1] or t[:1]
        if t:
            value, low, high = (t[0][k] for k in ("r", "low", "high"))
            return value, low, high, t[0]["corrected"], judge(low > -0.1 and high < 0.1, low > 0.1 or high < -0.1)
    if name == "C12" and "regression" in probes:
        t = [x for x in first(probes["regression"][:]) if not np.isnan(x["r2_heldout"])]
        if t:
            top = max(t, key=lambda x: x["r2_heldout"])
            return (*(top[k] for k in ("r2_heldout", "low", "high")), NAN,
                    judge(all(x["high"] <= 0.02 for x in t), any(x["low"] > 0.02 for x in t)))
    if name == "C19" and "clusterings" in probes:
        t = [x for x in first(probes["clusterings"][:]) if not np.isnan(x["linear"] + x["nonlinear"])]
        if t:
            top = max(t, key=lambda x: x["linear"] + x["nonlinear"])
            value = top["linear"] + top["nonlinear"]
            return value, NAN, NAN, top["k"], judge(value == 0, value > 0)
    if name == "C14" and "finetune.h5" in r.files and text(r.files["finetune.h5"].attrs["plan"]) == "progressive":
        f = r.files["finetune.h5"]
        table, ppl = f["evaluation/table"][:], np.exp(f["evaluation/nll"][:].astype(np.float64).mean(axis=1))
        row = {text(x["name"]): i for i, x in enumerate(table) if i > 0}
        ends = [(p["linear"], row[text(p["name"]) + ", end"]) for p in f["phases"][:] if text(p["name"]) + ", end" in row]
        if ends:
            value = max([k for k, i in ends if ppl[i] <= ppl[0]], default=0)
            low = max([k for k, i in ends if table[i]["high"] <= 0], default=0)
            high = max([k for k, i in ends if table[i]["low"] <= 0], default=0)
            steps = set(f["phases"]["steps"][:-1])
            same = steps == {6400 / (f.attrs["length"] * f.attrs["sequences"])} and max(k for k, _ in ends) >= 5
            control = trained(r.files["control.h5"]) if "control.h5" in r.files else None
            return (value, low, high, control[0] if control else NAN,
                    judge(low >= 5, high < 5) if same else "not tested")
    plans = {"C15": ("finetune.h5", "linearize", (512000,), -10.2),
             "C16": ("finetune.h5", "two_phase", (1280000,), -17.3),
             "C17": ("control.h5", None, (102400, 512000), -14.8)}
    if name in plans:
        file, plan, tokens, change = plans[name]
        f = r.files.get(file)
        end = trained(f) if f is not None and (plan is None or text(f.attrs["plan"]) == plan) else None
        if end:
            budget = int(f.attrs["tokens_seen"]) in tokens
            control = trained(r.files["control.h5"]) if plan and "control.h5" in r.files else None
            return (*end, control[0] if control else NAN,
                    judge(end[1] <= change, end[1] > 0) if budget else "not tested")
    if name == "C18" and r.gates:
        kinds = {}
        layer = {int(r.gates["gate/layer"][i]): i for i in range(len(r.gates["gate/layer"]))
                 if text(r.gates["gate/kind"][i]) == "linear"}
        for i in range(len(r.gates["gate/layer"])):
            h = layer.get(int(r.gates["gate/layer"][i]))
            if text(r.gates["gate/kind"][i]) == "pca" and h is not None:
                kinds.setdefault(int(r.gates["gate/components"][i]), []).append(
                    (r.gate(i, "auc_heldout") > r.gate(h, "auc_heldout"), r.gate(i, "auc_low") > r.gate(h, "auc_high")))
        if kinds:
            most = max(100 * sum(a for a, _ in k) / len(k) for k in kinds.values())
            sure = max(100 * sum(b for _, b in k) / len(k) for k in kinds.values())
            return most, sure, most, len(list(kinds.values())[-1]), judge(most < 75, sure > 50)
    if name == "C20" and m:
        sized = [x for x in everything if (study_model(x) or "").startswith("pythia") and x.measured()]
        agrees, differs = True, False
        for a in sized:
            for b in sized:
                if float(b.attribute("model_parameters")) > float(a.attribute("model_parameters")):
                    agrees &= b.median("high") < a.median("low")
                    differs |= b.median("low") > a.median("high")
        return (r.median("delta"), r.median("low"), r.median("high"), len(sized),
                judge(agrees, differs) if len(sized) > 1 else "not tested")
    if name == "C21" and "bench.h5" in r.files and "routing" in r.files["bench.h5"]:
        table = r.files["bench.h5"]["routing"]
        rows = table["losses"][:] if "losses" in table and len(table["losses"]) else table["layers"][:]
        rows = [x for x in rows if "gate" in text(x["name"])]
        if rows:
            best = max(rows, key=lambda x: x["speedup"])
            return best["speedup"], NAN, NAN, best["flops_saved"], "not tested"
    return None


def about(model, r):
    own = study_model(r) or ""
    return model == "all" or own == model or (model == "pythia" and own.startswith("pythia"))


def claims(reference, everything, labels):
    """Rows of the ledger: claim, verdict, value, low, high, label, beside."""
    out = []
    for row in published(reference, "claims"):
        found, rank = None, 0 # 1: of another model, 2: of its own, 3: and tested
        for r, label in zip(everything, labels):
            c = claim(row["claim"], r, everything)
            if c is None:
                continue
            now = 1 if not about(row["model"], r) else 2 if c[4] == "not tested" else 3
            if now > rank:
                found, rank = (*c[:4], c[4] if now == 3 else "not tested", label), now
        value, low, high, beside, verdict, label = found or (NAN, NAN, NAN, NAN, "not tested", "")
        out.append((row, verdict, value, low, high, label, beside))
    return out
