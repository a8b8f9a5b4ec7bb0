"""Compares `wanamaker probe` with an independent statement of method.md, section 7, in numpy, scikit-learn, scipy and
transformers.

    probes_compare.py WANAMAKER MODEL_DIR TEXT OTHER_TEXT WORK_DIR [--ranks P] [--layers 1,4]

What the network yields is stated anew by transformers, from the program's surrogates: MLP inputs x and embeddings e (to 1e-4
of their spread), losses (1e-3 nats everywhere, 1e-5 in the mean), entropy and Kullback-Leibler divergence of every position
(1e-4), agreement (99.9 %), the layer norm's factor (1e-5). What is derived is compared on the program's own x, e and
deltas, so that rounding moves nothing across a threshold: AUC of all gates of all views (5e-6: some pairs that all but tie),
norms, cosines and correlations (1e-6: parts are float32), the ridge regression's coefficients (1e-8) and R^2, categories and No-Fly lists (exactly),
correlations of types (1e-10) and reliabilities (0.05: the halves are others), PCA's held variance (1e-8), k-means: its
assignments are a fixed point of Lloyd's iteration and scikit-learn's best start, whose seeds are chosen greedily among
several candidates, is not 5 % better, cluster AUC (1e-9), linear probe (5e-6), the hidden probe's AUC against scikit-learn's (not 0.03 worse), quantiles, skew and shares
(1e-9). Exits 1 unless all agree.
"""

import argparse
import os
import subprocess

import h5py
import numpy as np
import torch
from scipy.stats import kurtosis, skew
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, roc_auc_score
from sklearn.neural_network import MLPClassifier
from sklearn.preprocessing import StandardScaler
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from gates_compare import Checks
from pipeline_reference import mlps

RANGE = (6000, 11000)
WINDOW = 256


def program(o):
    command = ["mpirun", "--oversubscribe", "-n", str(o.ranks)] if o.ranks > 1 else []
    command += [o.program, "probe", f"model.path={o.model}", f"corpora.prose.path={o.text}", f"corpora.code.path={o.other}",
                "protocol.kind=stream", f"protocol.window={WINDOW}", "bootstrap.unit=window", "probe.resamples=200",
                f"output.dir={o.work}", f"probe.layers=[{o.layers}]", "ranges.fit.tokens=[0,5000]",
                f"ranges.evaluation.tokens=[{RANGE[0]},{RANGE[1]}]", "probe.keep_features=true"]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


class Text:
    """What the program says of the positions of a corpus."""

    def __init__(self, o, f, corpus):
        self.name = corpus
        group = f[f"tokens/{corpus}"]
        for name in ("id", "target", "position", "unit"):
            setattr(self, name, group[name][:])
        self.test = group["test"][:].astype(bool)
        with h5py.File(f"{o.work}/tokens.{corpus}.stream.h5") as tokens:
            self.ids = tokens["tokens"][:]
        with h5py.File(f"{o.work}/probe_features.{corpus}.h5") as features:
            self.x, self.e = features["x"][:], features["e"][:]
        with h5py.File(f"{o.work}/surrogates.probe-{corpus}.h5") as s:
            self.weight, self.bias = s["weight"][:], s["bias"][:]


def rows(f, table, text, layer, kind="own"):
    t = f[table][:]
    keep = (t["corpus"] == text.name.encode()) & (t["layer"] == layer) & (t["surrogates"] == kind.encode())
    return t[keep]


# --- the network -------------------------------------------------------------------------------------------------------


def check_network(o, f, text, layers, check):
    model = AutoModelForCausalLM.from_pretrained(o.model, torch_dtype=torch.float32).eval()
    gpt2 = model.config.model_type == "gpt2"
    windows = [text.ids[i:min(i + WINDOW, RANGE[1])].tolist() for i in range(*RANGE, WINDOW)]
    windows = [w for w in windows if len(w) > 1]

    def logits(ids):
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([ids])).logits[0, :-1].double(), -1)

    embedded = []
    for ids in windows:
        t = torch.tensor(ids)
        if gpt2:
            e = model.transformer.wte(t) + model.transformer.wpe(torch.arange(len(ids)))
        else:
            e = model.gpt_neox.embed_in(t)
        embedded.append(e[:-1].detach().numpy())
    check("embeddings", np.abs(np.concatenate(embedded) - text.e).max() / text.e.std(), 1e-6, text.name)
    for index, layer in enumerate(layers):
        where = f"{text.name}, layer {layer}"
        inputs, factors = [], []
        norm = model.transformer.h[layer].ln_2 if gpt2 else model.gpt_neox.layers[layer].post_attention_layernorm

        def keep(_, args, __):
            h = args[0][0, :-1].double()
            factors.append((1 / torch.sqrt(h.var(-1, unbiased=False) + norm.eps)).numpy())

        handles = [mlps(model)[layer].register_forward_hook(
            lambda _, args, __: inputs.append(args[0][0, :-1].numpy().copy())), norm.register_forward_hook(keep)]
        full = [logits(ids) for ids in windows]
        for handle in handles:
            handle.remove()
        w = torch.tensor(text.weight[index], dtype=torch.float32)
        b = torch.tensor(text.bias[index], dtype=torch.float32)
        handle = mlps(model)[layer].register_forward_hook(lambda _, args, __: args[0] @ w + b)
        linear = [logits(ids) for ids in windows]
        handle.remove()
        full, linear, x = torch.cat(full), torch.cat(linear), np.concatenate(inputs)
        g = f[f"layers/{text.name}.own"]
        target = torch.tensor(text.target.astype(np.int64))[:, None]
        delta = (full.gather(1, target) - linear.gather(1, target))[:, 0].numpy()
        check("x", (np.abs(x - text.x[index]) / text.x[index].std(0)).max(), 1e-4, where)
        check("factor", np.abs(np.concatenate(factors) / g["factor"][index] - 1).max(), 1e-5, where)
        check("delta", np.abs(delta - g["delta"][index]).max(), 1e-3, where)
        check("mean delta", abs(delta.mean() - g["delta"][index].mean()), 1e-5, where)
        check("entropy", np.abs(-(full.exp() * full).sum(1).numpy() - g["entropy"][:]).max(), 1e-4, where)
        kl = (full.exp() * (full - linear)).sum(1).numpy()
        check("divergence", np.abs(kl - g["divergence"][index]).max(), 1e-4, where)
        same = (full.argmax(1) == linear.argmax(1)).numpy()
        check("agreement", np.mean(same != g["agreed"][index].astype(bool)), 1e-3, where)
    return [(n.weight.detach().numpy().astype(np.float64), n.bias.detach().numpy().astype(np.float64), n.eps)
            for n in ([model.transformer.h[l].ln_2 for l in layers] if gpt2 else
                      [model.gpt_neox.layers[l].post_attention_layernorm for l in layers])]


# --- token against context ---------------------------------------------------------------------------------------------


def views(x, e, factor, gamma, beta, eps):
    x, e = x.astype(np.float64), e.astype(np.float64)
    centred = e - e.mean(1, keepdims=True)
    token = gamma * centred * factor[:, None]
    normed = gamma * centred / np.sqrt((centred ** 2).mean(1, keepdims=True) + eps) + beta
    return {"normalised": (token, x - beta - token), "study": (e, x - e), "normed": (normed, x - normed)}


def gate_auc(features, label, test):
    z = np.asarray(features, np.float32).astype(np.float64)
    z = StandardScaler().fit(z[~test]).transform(z)
    fit = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10, max_iter=200).fit(z[~test], label[~test])
    score = fit.decision_function(z)
    return roc_auc_score(label[test], score[test]), score


def type_means(values, key):
    _, number = np.unique(key, return_inverse=True)
    count = np.bincount(number)
    if values.ndim == 1:
        return (np.bincount(number, values) / count)[number]
    sums = np.zeros((len(count), values.shape[1]))
    np.add.at(sums, number, values)
    return (sums / count[:, None])[number]


def check_context(f, text, index, layer, delta, norm, check):
    table, where, test = rows(f, "context", text, layer), f"{text.name}, layer {layer}", text.test
    factor = f[f"layers/{text.name}.own/factor"][index]
    parts = views(text.x[index], text.e, factor, *norm)
    train = delta[~test]
    thresholds = {"median": np.quantile(train, 0.5 if np.mean(train < 0) >= 0.05 else 0.25),
                  "quartile": np.quantile(train, 0.25)}
    for label_name, threshold in thresholds.items():
        label = delta <= threshold
        wanted = {("", "x", ""): text.x[index]}
        for view, (e, c) in parts.items():
            e32, c32 = e.astype(np.float32), c.astype(np.float32)
            wanted[view, "e", ""], wanted[view, "c", ""], wanted[view, "e * c", ""] = e32, c32, e32 * c32
            wanted[view, "|c|", ""] = np.linalg.norm(c32.astype(np.float64), axis=1)[:, None]
            for key, ids in (("input", text.id), ("target", text.target)):
                wanted[view, "type's mean e", key] = type_means(e32.astype(np.float64), ids)
        for (view, gate, key), features in wanted.items():
            row = table[(table["label"] == label_name.encode()) & (table["view"] == view.encode()) &
                        (table["gate"] == gate.encode()) & (table["key"] == key.encode())]
            auc, _ = gate_auc(features, label, test)
            check("AUC of gates", abs(auc - row["auc"][0]), 5e-6, f"{where}: {label_name} {view} {gate} {key}")
        for key, ids in (("input", text.id), ("target", text.target)):
            score = np.array([-(train[ids[~test] == t].sum() + train.mean()) / ((ids[~test] == t).sum() + 1)
                              for t in np.unique(ids)])[np.unique(ids, return_inverse=True)[1]]
            row = table[(table["label"] == label_name.encode()) & (table["gate"] == b"type's mean delta") &
                        (table["key"] == key.encode())]
            check("AUC of types", abs(roc_auc_score(label[test], score[test]) - row["auc"][0]), 1e-9, where)
    for view, (e, c) in parts.items():
        x = text.x[index].astype(np.float64)
        lengths = [np.linalg.norm(v, axis=1) for v in (x, e, c)]
        quantities = {"|x|": lengths[0], "|e|": lengths[1], "|c|": lengths[2], "|c| / |x|": lengths[2] / lengths[0],
                      "cos(e, c)": (e * c).sum(1) / lengths[1] / lengths[2]}
        for row in rows(f, "geometry", text, layer):
            if row["view"] == view.encode():
                q = quantities[row["quantity"].decode()]
                error = [abs(row["mean"] - q.mean()), abs(row["sd"] - q.std()), abs(row["r"] - np.corrcoef(q, delta)[0, 1])]
                check("geometry", max(error), 1e-6, f"{where}: {view} {row['quantity'].decode()}")
                check("intervals hold their estimate", not row["low"] <= row["r"] <= row["high"], 0.5, where)


# --- features of the token ---------------------------------------------------------------------------------------------


def traits(o, text, words):
    """Columns that spelling and frequency give, by token id."""
    tokenizer = Tokenizer.from_file(os.path.join(o.model, "tokenizer.json"))
    count = np.bincount(text.ids)
    order = np.lexsort((np.arange(len(count)), -count))
    rank = np.empty(len(count))
    rank[order] = np.arange(1, len(count) + 1)
    with np.errstate(divide="ignore"):
        log_frequency = np.log(count / count.sum())
    function, category = set(), None
    for line in open(words, encoding="utf-8"):
        line = line.split("#")[0].strip()
        if line.startswith("["):
            category = line
        elif category == "[function]":
            function.update(line.split())
    found = {}
    for t in np.unique(np.concatenate([text.id, text.target])):
        s = tokenizer.decode([int(t)], skip_special_tokens=False)
        word = s.lstrip()
        letters, other = any(c.isalpha() for c in word), [c for c in word if not c.isalpha()]
        punctuation = word != "" and not any(c.isalpha() or c.isdigit() for c in word)
        found[t] = (log_frequency[t], np.log(rank[t]), letters and s == word, len(word), word.lower() in function,
                    -log_frequency[t], letters and not other, s != word, punctuation)
    return found


def check_forensics(o, f, text, index, layer, delta, words, check):
    where, test = f"{text.name}, layer {layer}", text.test
    g, known = f[f"layers/{text.name}.own"], traits(o, text, words)
    for key, ids in (("input", text.id), ("target", text.target)):
        t = np.array([known[i] for i in ids], dtype=float)
        columns = {"log frequency": t[:, 0], "log rank": t[:, 1], "subword": t[:, 2], "length": t[:, 3],
                   "function word": t[:, 4], "position": text.position, "surprise": t[:, 5], "entropy": g["entropy"][:],
                   "alphabetic": t[:, 6], "starts a word": t[:, 7], "KL(full, linear)": g["divergence"][index],
                   "agreement": g["agreed"][index], "punctuation": t[:, 8]}
        z = np.array(list(columns.values()), dtype=float).T
        z = (z - z[~test].mean(0)) / z[~test].std(0)
        fit = Ridge(alpha=1.0).fit(z[~test], delta[~test])
        table = rows(f, "forensics", text, layer)
        table = table[table["key"] == key.encode()]
        assert [r.decode() for r in table["feature"]] == list(columns)
        for i, (name, v) in enumerate(columns.items()):
            check("features", abs(table["mean"][i] - np.mean(v)), 1e-8, f"{where}: {key} {name}")
            check("feature's r", abs(table["r"][i] - np.corrcoef(v, delta)[0, 1]), 1e-8, f"{where}: {key} {name}")
            check("univariate R^2", abs(table["r2"][i] - np.corrcoef(v, delta)[0, 1] ** 2), 1e-8, where)
        check("ridge", np.abs(table["coefficient"] - fit.coef_).max(), 1e-8, f"{where}: {key}")
        r = rows(f, "regression", text, layer)
        r = r[r["key"] == key.encode()][0]
        check("R^2 in", abs(r["r2"] - fit.score(z[~test], delta[~test])), 1e-8, where)
        check("R^2 out", abs(r["r2_heldout"] - fit.score(z[test], delta[test])), 1e-8, where)
        c = rows(f, "categories", text, layer)
        c = c[c["key"] == key.encode()]
        check("categories share out the positions", abs(c["n"].sum() - len(delta)), 0, where)
        row = c[c["category"] == b"function"][0]
        own = delta[columns["function word"] > 0]
        check("function words", max(abs(row["n"] - len(own)), abs(row["mean"] - own.mean()), abs(row["sd"] - own.std()),
                                    abs(row["median"] - np.median(own)), abs(row["positive"] - np.mean(own > 0))), 1e-9, where)


# --- types across corpora ----------------------------------------------------------------------------------------------


def sums(ids, delta):
    return {t: delta[ids == t] for t in np.unique(ids)}


def check_types(f, texts, deltas, layer, kind, check):
    for key in ("input", "target"):
        where = f"{kind}, layer {layer}, {key}"
        a, b = [sums(t.id if key == "input" else t.target, d) for t, d in zip(texts, deltas)]
        no_fly = [{t: len(d) >= 1 and d.mean() > 0.05 and np.mean(d > 0) > 0.6 for t, d in s.items()} for s in (a, b)]
        listed = [t for t in a if len(a[t]) >= 10 and no_fly[0][t]]
        found = [t for t in listed if t in b and len(b[t]) >= 3]
        pick = lambda name, first: next(
            r for r in f[name][:] if r["corpus"].decode() == first and r["surrogates"].decode() == kind and
            r["layer"] == layer and r["key"].decode() == key)
        row = pick("fates", texts[0].name)
        counts = [len(listed), len(found), sum(no_fly[1][t] for t in found), sum(b[t].mean() < 0 for t in found)]
        check("No-Fly counts", np.abs(np.array(counts) - [row["listed"], row["found"], row["still"], row["flipped"]]).max(),
              0, where)
        if len(found) > 2:
            r = np.corrcoef([a[t].mean() for t in found], [b[t].mean() for t in found])[0, 1]
            check("study's r", abs(r - row["r"]), 1e-10, where)
        row = pick("correlations", texts[0].name)
        common = [t for t in a if t in b and min(len(a[t]), len(b[t])) >= 10]
        check("common types", abs(len(common) - row["types"]), 0, where)
        r = np.corrcoef([a[t].mean() for t in common], [b[t].mean() for t in common])[0, 1]
        check("r without selection", abs(r - row["r"]), 1e-10, where)
        rng = np.random.default_rng(1)
        for s, name in ((a, "reliability"), (b, "reliability_other")):
            halves = []
            for _ in range(400):
                sides = [rng.random(len(s[t])) < 0.5 for t in common]
                pairs = [(s[t][h].mean(), s[t][~h].mean()) for t, h in zip(common, sides) if h.any() and not h.all()]
                halves.append(np.corrcoef(np.array(pairs).T)[0, 1])
            m = np.mean(halves)
            # the mean of 20 halvings against that of 400, stepped up with slope 2 / (1 + m)^2
            bound = 5 * np.std(halves) * np.sqrt(1 / 20 + 1 / 400) * 2 / (1 + m) ** 2
            check("reliability, of its bound", abs(2 * m / (1 + m) - row[name]) / bound, 1, where)
        product = row["reliability"] * row["reliability_other"]
        if row["reliability"] > 0 and row["reliability_other"] > 0:
            check("corrected r", abs(row["corrected"] - r / np.sqrt(product)), 1e-9, where)


# --- clusters, separability, distribution ------------------------------------------------------------------------------


def check_clusters(f, text, index, layer, delta, check):
    where, test = f"{text.name}, layer {layer}", text.test
    row = rows(f, "clusterings", text, layer)[0]
    z = StandardScaler().fit_transform(text.x[index].astype(np.float64))
    pca = PCA(n_components=50, svd_solver="full").fit(z)
    points, own = pca.transform(z), f[f"layers/{text.name}.own/cluster"][index]
    check("variance held", abs(pca.explained_variance_ratio_.sum() - row["variance"]), 1e-8, where)
    centres = np.array([points[own == c].mean(0) for c in range(int(row["k"]))])
    inertia = ((points - centres[own]) ** 2).sum()
    check("inertia", abs(inertia / row["inertia"] - 1), 1e-8, where)
    distance = ((points ** 2).sum(1)[:, None] - 2 * points @ centres.T + (centres ** 2).sum(1))
    check("a fixed point of Lloyd's", np.mean(distance.argmin(1) != own), 1e-3, where)
    best = KMeans(20, n_init=5, random_state=1).fit(points).inertia_
    check("worse than scikit-learn's k-means", inertia / best - 1, 0.05, where)
    label = delta <= np.quantile(delta[~test], 0.5 if np.mean(delta[~test] < 0) >= 0.05 else 0.25)
    means = np.array([delta[(own == c) & ~test].mean() if ((own == c) & ~test).any() else delta[~test].mean()
                      for c in range(int(row["k"]))])
    check("AUC of clusters", abs(roc_auc_score(label[test], -means[own[test]]) - row["auc"]), 1e-9, where)
    table = rows(f, "clusters", text, layer)
    for c in range(int(row["k"])):
        d = delta[own == c]
        check("cluster's statistics", max(abs(table["n"][c] - len(d)), abs(table["mean"][c] - d.mean()),
                                          abs(table["positive"][c] - np.mean(d > 0))), 1e-9, where)


def check_separability(f, text, index, layer, delta, check):
    where, test = f"{text.name}, layer {layer}", text.test
    table = rows(f, "separability", text, layer)
    label = delta <= np.quantile(delta[~test], 0.5 if np.mean(delta[~test] < 0) >= 0.05 else 0.25)
    auc, score = gate_auc(text.x[index], label, test)
    row = table[table["probe"] == b"linear"][0]
    check("linear probe", max(abs(auc - row["auc"]), abs(accuracy_score(label[test], score[test] > 0) - row["accuracy"]),
                              abs(f1_score(label[test], score[test] > 0) - row["f1"])), 5e-6, where)
    row = table[table["probe"] == b"hidden 32"][0]
    z = text.x[index].astype(np.float64)
    z = StandardScaler().fit(z[~test]).transform(z)
    peer = MLPClassifier((32,), "tanh", solver="lbfgs", alpha=100.0, max_iter=200, random_state=1).fit(z[~test], label[~test])
    auc = roc_auc_score(label[test], peer.predict_proba(z[test])[:, 1])
    check("hidden probe worse than scikit-learn's", auc - row["auc"], 0.03, f"{where}: {auc:.4f} and {row['auc']:.4f}")
    check("hidden probe's objective above scikit-learn's", row["loss"] / peer.loss_ - 1, 0.005, where)


def check_distribution(f, text, layer, delta, check):
    row, where = rows(f, "distribution", text, layer)[0], f"{text.name}, layer {layer}"
    ordered, positive = np.sort(delta)[::-1], np.maximum(delta, 0).sum()
    top = lambda share: np.maximum(ordered[:int(np.ceil(share * len(delta)))], 0).sum() / positive
    wanted = {"mean": delta.mean(), "sd": delta.std(), "skew": skew(delta), "kurtosis": kurtosis(delta),
              "positive": np.mean(delta > 0), "top_1": top(0.01), "top_5": top(0.05), "top_10": top(0.10)}
    wanted.update({f"q{q:02d}": np.quantile(delta, q / 100) for q in (1, 5, 25, 50, 75, 95, 99)})
    for name, value in wanted.items():
        check("distribution", abs(row[name] - value) / (1 + abs(value)), 1e-9, f"{where}: {name}")
    table = rows(f, "positions", text, layer)
    first = delta[text.position == 0]
    row = table[table["class"] == b"position 0"][0]
    check("position 0", max(abs(row["n"] - len(first)), abs(row["mean"] - first.mean()),
                            abs(row["share"] - first.sum() / delta.sum())), 1e-8, where)


def main():
    parser = argparse.ArgumentParser()
    for name in ("program", "model", "text", "other", "work"):
        parser.add_argument(name)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--layers", default="1,4")
    o = parser.parse_args()
    torch.set_num_threads(1)
    layers = [int(i) for i in o.layers.split(",")]
    words = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs", "words.txt")
    check = Checks()
    program(o)
    with h5py.File(f"{o.work}/probes.h5") as f:
        texts = [Text(o, f, corpus) for corpus in ("prose", "code")]
        for text in texts:
            norms = check_network(o, f, text, layers, check)
            for index, layer in enumerate(layers):
                delta = f[f"layers/{text.name}.own/delta"][index]
                check_context(f, text, index, layer, delta, norms[index], check)
                check_forensics(o, f, text, index, layer, delta, words, check)
                check_clusters(f, text, index, layer, delta, check)
                check_separability(f, text, index, layer, delta, check)
                check_distribution(f, text, layer, delta, check)
        for index, layer in enumerate(layers):
            for kind in ("own", "shared"):
                deltas = [f["layers/prose.own/delta"][index], f[f"layers/code.{kind}/delta"][index]]
                check_types(f, texts, deltas, layer, kind, check)
    check.finish()


if __name__ == "__main__":
    main()
