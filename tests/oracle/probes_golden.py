#!/usr/bin/env python3
"""Writes the golden file of test_measure_probe_golden.c: a small planted layer on two corpora, and every table of its
probes as numpy, scipy and scikit-learn have it.

    probes_golden.py tests/data/probes/golden.txt

What is drawn (held-out units, the random gate, k-means' seeds, halves, resamples) is stated anew from Philox, so that all of
it is compared, not only what has no chance in it. Inputs are multiples of powers of two: text holds them exactly. The
scores of every gate are apart by far more than a fit's rounding (asserted), so that no AUC hangs on it. The file holds
named arrays, each as "name count" and then its values. Needs tests/oracle/requirements.txt.
"""
import sys

import numpy as np
from scipy.stats import kurtosis, norm, skew
from scipy.stats import t as student
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, f1_score, log_loss, roc_auc_score
from sklearn.preprocessing import StandardScaler

from statistics_golden import philox

D, UNIT, UNITS, OTHER_UNITS, TRAIN, SEED = 16, 16, 30, 26, 0.7, 3
RESAMPLES, CONFIDENCE, BOOTSTRAP_SEED = 60, 0.9, 5
COMPONENTS, K, RESTARTS, HALVINGS = 6, 5, 3, 10
LEAST, FOUND, NO_FLY_DELTA, NO_FLY_SHARE, CONSISTENT, ALPHA, EPS = 10, 3, 0.05, 0.6, 0.6, 1.0, 1e-5
RANDOM_STREAM, HALVES_STREAM, KMEANS_STREAM = 1, 1 << 10, 1 << 20
HIDDEN, PENALTY = 4, 2.0

WORDS = "[function]\nthe of # comment\n\n  it's \n[colour]\nred the grün\n"
SPELLINGS = [" the", "The", " of", " it's", " red", "red", " Grün", "ing", " walked", "é", " 12", "7", ".", " --", "\n",
             "  ", " 3rd", " x1", "a-b", " word", "Ünd", "…", " of ", "'s", " never", " seen"]
CATEGORIES = ["function", "colour", "number", "punctuation", "space", "part of a word", "other word"]
FUNCTION = {" the", "The", " of", " it's"}  # " of " ends in white space, which is left out of the word: listed, too
LISTED = {" the": 0, "The": 0, " of": 0, " of ": 0, " it's": 0, " red": 1, "red": 1, " Grün": 1}


def uniform(stream, index, seed=SEED):
    return (philox(seed, stream, index) >> 11) * 2.0 ** -53


def interval(values, n):
    """Expanded percentile interval (Hesterberg 2015) of resamples of n units."""
    if not np.all(np.isfinite(values)):
        return [np.nan, np.nan]
    level = norm.cdf(np.sqrt(n / (n - 1)) * student.ppf((1 - CONFIDENCE) / 2, n - 1))
    rank = max(1, int(level * (RESAMPLES + 1)))
    ordered = np.sort(values)
    return [ordered[rank - 1], ordered[RESAMPLES - rank]]


def draws(resample, units):
    """Units that a resample draws, as often as it does: number of each among `units`."""
    return [units[philox(BOOTSTRAP_SEED, resample, j) * len(units) >> 64] for j in range(len(units))]


def resampled(statistic, unit, used):
    """statistic(positions) for every resample of the units that hold a used position."""
    units = np.unique(unit[used])
    members = {u: np.flatnonzero(used & (unit == u)) for u in units}
    if len(units) < 2:
        return [np.nan, np.nan]
    with np.errstate(all="ignore"):
        values = [statistic(np.concatenate([members[u] for u in draws(r, units)])) for r in range(RESAMPLES)]
    return interval(values, len(units))


# --- the planted layer -------------------------------------------------------------------------------------------------


class Corpus:
    def __init__(self, rng, n_units, types, effect, table):
        n = n_units * UNIT
        share = 1 / np.arange(1, types + 1)
        share[-1] = 0  # never occurs
        draw = lambda: rng.choice(types, n, p=share / share.sum())
        self.n, self.input, self.target = n, draw(), draw()
        self.position, self.unit = np.tile(np.arange(UNIT), n_units), np.repeat(np.arange(n_units), UNIT)
        self.e = table[0][self.input] + table[1][self.position]
        self.factor = rng.integers(600, 1000, n) / 1024
        context = rng.integers(-96, 97, (n, D)) / 64
        self.x = np.round((0.7 * self.e + context) * 64) / 64
        cost = 0.1 + effect[0][self.input] + effect[1][self.target] + 0.15 * context[:, 0] - 0.1 * context[:, 1]
        self.delta = np.round((cost + 0.12 * rng.standard_t(4, n)) * 1024) / 1024
        self.entropy = rng.integers(0, 6 * 1024, n) / 1024
        self.divergence = rng.integers(0, 1024, n) / 4096
        self.agreed = (rng.random(n) < 0.7).astype(int)
        self.classes = np.where(self.position == 0, 1, np.where(self.position < 4, 2, 0)) | \
            np.where(self.input == 5, 4, 0) | np.where(self.factor < 620 / 1024, 8, 0)
        self.delta[37] = np.inf  # a surrogate may overflow
        self.used = np.isfinite(self.delta) & (self.classes & 1 == 0)
        order = sorted(range(n_units), key=lambda u: (uniform(0, u), u))
        held = {u for i, u in enumerate(order) if i * UNIT >= TRAIN * n}
        self.test = np.array([u in held for u in self.unit])
        self.keys = (self.input, self.target)


def make():
    rng = np.random.default_rng(12)
    types = len(SPELLINGS)
    table = rng.integers(-64, 65, (types, D)) / 64, rng.integers(-8, 9, (UNIT, D)) / 64
    effect = 0.15 * rng.normal(size=types), 0.08 * rng.normal(size=types)
    a = Corpus(rng, UNITS, types, effect, table)
    b = Corpus(rng, OTHER_UNITS, types, effect, table)
    gamma, beta = rng.integers(32, 97, D) / 64, rng.integers(-16, 17, D) / 64
    return a, b, gamma, beta


# --- token against context ---------------------------------------------------------------------------------------------


def views(t, gamma, beta):
    centred = t.e - t.e.mean(1, keepdims=True)
    token = gamma * centred * t.factor[:, None]
    normed = gamma * centred / np.sqrt((centred ** 2).mean(1, keepdims=True) + EPS) + beta
    pairs = [(token, t.x - beta - token), (t.e, t.x - t.e), (normed, t.x - normed)]
    return [(e.astype(np.float32).astype(float), c.astype(np.float32).astype(float)) for e, c in pairs]


def type_means(t, values, key):
    out = np.zeros_like(values)
    for k in np.unique(key[t.used]):
        out[key == k] = values[t.used & (key == k)].mean(0)
    return out.astype(np.float32).astype(float)


def far_apart(score, label):
    """Scores that differ do so by more than rounding, and none is all but 0."""
    gaps = np.diff(np.sort(score))
    assert not np.any((gaps > 1e-12) & (gaps < 5e-8)), gaps[(gaps > 1e-12) & (gaps < 5e-8)]
    assert np.abs(score).min() > 5e-8
    return score


def logistic(t, features, label):
    train = t.used & ~t.test
    z = StandardScaler().fit(features[train]).transform(features)
    fit = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-12, max_iter=500).fit(z[train], label[train])
    score = fit.intercept_[0] + (z * fit.coef_[0]).sum(1)
    return far_apart(score, label), fit, z


def auc_of(label, score):
    return roc_auc_score(label, score) if 0 < label.sum() < len(label) else np.nan


def judge(t, score, label):
    test = t.used & t.test
    low, high = resampled(lambda i: auc_of(label[i], score[i]), t.unit, test)
    return [auc_of(label[test], score[test]), low, high, accuracy_score(label[test], score[test] > 0)]


def labels(t):
    train = t.delta[t.used & ~t.test]
    assert np.mean(train < 0) >= 0.05
    return [t.delta <= np.quantile(train, q) for q in (0.5, 0.25)]


def context(t, gamma, beta):
    """Rows: label, view (-1: none), gate, key (-1: none), AUC, low, high, accuracy."""
    out = []
    train = t.used & ~t.test
    for which, label in enumerate(labels(t)):
        add = lambda view, gate, key, score: out.append([which, view, gate, key, *judge(t, score, label)])
        add(-1, 0, -1, logistic(t, t.x, label)[0])
        for view, (e, c) in enumerate(views(t, gamma, beta)):
            product = (e.astype(np.float32) * c.astype(np.float32)).astype(float)
            norm = np.linalg.norm(c, axis=1).astype(np.float32).astype(float)[:, None]
            for gate, features in enumerate((e, c, product, norm)):
                add(view, 1 + gate, -1, logistic(t, features, label)[0])
            for key in range(2):
                add(view, 5, key, logistic(t, type_means(t, e, t.keys[key]), label)[0])
        for key in range(2):
            ids = t.keys[key]
            own = [train & (ids == k) for k in range(len(SPELLINGS))]
            means = np.array([(t.delta[m].sum() + t.delta[train].mean()) / (m.sum() + 1) for m in own])
            add(-1, 6, key, -means[ids])
            out[-1][-1] = np.nan
        add(-1, 7, -1, np.array([uniform(RANDOM_STREAM, i) for i in range(t.n)]))
        out[-1][-1] = np.nan
    return out


def pearson(x, y):
    return np.corrcoef(x, y)[0, 1]


def geometry(t, gamma, beta):
    out = []
    for e, c in views(t, gamma, beta):
        length = [np.linalg.norm(v, axis=1) for v in (t.x, e, c)]
        for q in (*length, length[2] / length[0], (e * c).sum(1) / length[1] / length[2]):
            u = q[t.used]
            out.append([t.used.sum(), u.mean(), u.std(), pearson(u, t.delta[t.used]),
                        *resampled(lambda i: pearson(q[i], t.delta[i]), t.unit, t.used)])
    return out


# --- features of the token ---------------------------------------------------------------------------------------------


def traits(count):
    order = np.lexsort((np.arange(len(count)), -count))
    rank = np.empty(len(count))
    rank[order] = np.arange(1, len(count) + 1)
    rows, category = [], []
    for i, s in enumerate(SPELLINGS):
        word = s.lstrip()
        letters, digits = any(c.isalpha() for c in word), any(c.isdigit() for c in word)
        log_frequency = np.log(count[i] / count.sum()) if count[i] else np.nan
        rows.append([log_frequency, np.log(rank[i]) if count[i] else np.nan, letters and s == word, len(word),
                     LISTED.get(s) == 0, -log_frequency, letters and all(c.isalpha() for c in word), s != word,
                     word != "" and not letters and not digits])
        told = 4 if word == "" else (2 if digits else 3) if not letters else 5 if s == word else 6
        category.append(LISTED.get(s, told))
    return np.array(rows, dtype=float), np.array(category)


def feature_columns(t, key, trait):
    own = trait[t.keys[key]]
    return np.column_stack([own[:, 0], own[:, 1], own[:, 2], own[:, 3], own[:, 4], t.position, own[:, 5], t.entropy,
                            own[:, 6], own[:, 7], t.divergence, t.agreed, own[:, 8]])


def forensics(t, trait, category):
    features, regression, categories = [], [], []
    train, test = t.used & ~t.test, t.used & t.test
    for key in range(2):
        v = feature_columns(t, key, trait)
        z = StandardScaler().fit(v[train]).transform(v)
        fit = Ridge(alpha=ALPHA, solver="cholesky").fit(z[train], t.delta[train])
        predicted = fit.intercept_ + z @ fit.coef_
        r2 = lambda i: 1 - ((t.delta[i] - predicted[i]) ** 2).sum() / ((t.delta[i] - t.delta[i].mean()) ** 2).sum()
        regression.append([train.sum(), test.sum(), fit.score(z[train], t.delta[train]), fit.score(z[test], t.delta[test]),
                           *resampled(r2, t.unit, test)])
        for k in range(v.shape[1]):
            u, r = v[t.used, k], pearson(v[t.used, k], t.delta[t.used])
            features.append([u.mean(), u.std(), fit.coef_[k], r * r, r,
                             *resampled(lambda i: pearson(v[i, k], t.delta[i]), t.unit, t.used)])
        for c in range(len(CATEGORIES)):
            own = t.used & (category[t.keys[key]] == c)
            d = t.delta[own]
            categories.append([len(d), len(d) / t.used.sum(), d.mean(),
                               *resampled(lambda i: t.delta[i].mean(), t.unit, own), d.std(), np.median(d), np.mean(d > 0)])
    return features, regression, categories


# --- types across corpora ----------------------------------------------------------------------------------------------


def groups(t, key, keep=None):
    keep = t.used if keep is None else t.used & keep
    return {k: t.delta[keep & (t.keys[key] == k)] for k in np.unique(t.keys[key][keep])}


def is_no_fly(d):
    return len(d) > 0 and d.mean() > NO_FLY_DELTA and np.mean(d > 0) > NO_FLY_SHARE


def fate(a, b, key):
    one, other = groups(a, key), groups(b, key)
    enough = [k for k in one if len(one[k]) >= LEAST]
    listed = [k for k in enough if is_no_fly(one[k])]
    found = [k for k in listed if len(other.get(k, [])) >= FOUND]
    r = pearson([one[k].mean() for k in found], [other[k].mean() for k in found])
    return [len(enough), len(listed), len(found), len(listed) - len(found), sum(is_no_fly(other[k]) for k in found),
            sum(other[k].mean() < 0 for k in found), r]


def means_r(one, other, common):
    pairs = [(one[k].mean(), other[k].mean()) for k in common if k in one and k in other]
    return pearson(*np.array(pairs).T)


def drawn_groups(t, key, stream):
    units = np.arange(t.unit.max() + 1)
    times = np.bincount(draws(stream, units), minlength=len(units))[t.unit] * t.used
    return {k: np.repeat(t.delta[own], times[own]) for k in np.unique(t.keys[key])
            if times[own := (t.keys[key] == k)].sum() > 0}


def agreement(a, b, key):
    one, other = groups(a, key), groups(b, key)
    common = [k for k in one if k in other and min(len(one[k]), len(other[k])) >= LEAST]
    r, reliability = means_r(one, other, common), []
    for t in (a, b):
        halves = []
        for h in range(HALVINGS):
            half = np.array([philox(SEED, HALVES_STREAM + h, i) & 1 for i in range(t.n)]) == 1
            halves.append(means_r(groups(t, key, ~half), groups(t, key, half), common))
        reliability.append(2 * np.mean(halves) / (1 + np.mean(halves)))
    z = np.arctanh([means_r(drawn_groups(a, key, 2 * i), drawn_groups(b, key, 2 * i + 1), common)
                    for i in range(RESAMPLES)])
    low, high = interval(np.tanh(z - z.mean() + np.arctanh(r)), min(UNITS, OTHER_UNITS))
    attenuation = np.sqrt(reliability[0] * reliability[1])
    return [len(common), r, low, high, *reliability, r / attenuation, low / attenuation, high / attenuation]


# --- clusters, separability, distribution ------------------------------------------------------------------------------


def plant(points, number, k, stream):
    """k-means++ by exponential races: -log(u) / (squared distance to the nearest seed)."""
    nearest, centres = np.ones(len(points)), []
    for c in range(k):
        with np.errstate(divide="ignore"):
            time = np.array([-np.log(1 - uniform(stream + c, int(i))) for i in number]) / nearest
        centres.append(points[time.argmin()])
        to = ((points - centres[-1]) ** 2).sum(1)
        nearest = to if c == 0 else np.minimum(nearest, to)
    return np.array(centres)


def lloyd(points, centres):
    return KMeans(len(centres), init=centres, n_init=1, max_iter=300, tol=0, algorithm="lloyd").fit(points)


def clusters(t):
    z = StandardScaler().fit_transform(t.x[t.used])
    pca = PCA(n_components=COMPONENTS, svd_solver="full").fit(z)
    points, number = pca.transform(z), np.flatnonzero(t.used)
    fits = [lloyd(points, plant(points, number, K, KMEANS_STREAM + r * K)) for r in range(RESTARTS)]
    best = min(fits, key=lambda f: f.inertia_)
    size = np.bincount(best.labels_, minlength=K)
    assert len(set(size)) == K and len({round(f.inertia_, 6) for f in fits}) > 1
    place = np.empty(K, int)
    place[np.argsort(-size, kind="stable")] = np.arange(K)
    own = np.full(t.n, -1)
    own[t.used] = place[best.labels_]
    label, train, test = labels(t)[0], t.used & ~t.test, t.used & t.test
    rows, linear, nonlinear = [], 0, 0
    for c in range(K):
        d, (low, high) = t.delta[own == c], resampled(lambda i: t.delta[i].mean(), t.unit, own == c)
        nonlinear += (n := low > 0 and np.mean(d > 0) >= CONSISTENT)
        linear += (l := high < 0 and np.mean(d > 0) <= 1 - CONSISTENT)
        rows.append([len(d), len(d) / t.used.sum(), d.mean(), low, high, d.std(), np.mean(d > 0), 1 if n else -1 if l else 0])
    means = np.array([t.delta[own == c].mean() for c in range(K)])
    d = t.delta[t.used]
    between = 1 - ((d - means[own[t.used]]) ** 2).sum() / ((d - d.mean()) ** 2).sum()
    score = -np.array([t.delta[train & (own == c)].mean() for c in range(K)])[own]
    auc, low, high, _ = judge(t, score, label)
    whole = [COMPONENTS, pca.explained_variance_ratio_.sum(), K, best.inertia_, best.n_iter_, between, auc, low, high, linear,
             nonlinear]
    return whole, rows, own, points, lloyd(points, points[:K])


def separability(t):
    label, train, test = labels(t)[0], t.used & ~t.test, t.used & t.test
    score, fit, z = logistic(t, t.x, label)
    auc, low, high, accuracy = judge(t, score, label)
    return [train.sum(), test.sum(), accuracy, f1_score(label[test], score[test] > 0), auc, low, high,
            roc_auc_score(label[train], score[train]), log_loss(label[train], fit.predict_proba(z[train])[:, 1])]


def hidden(t):
    """Objective and gradient of the one-hidden-layer probe at parameters that are given, by hand."""
    label, train = labels(t)[0], t.used & ~t.test
    z = StandardScaler().fit(t.x[train]).transform(t.x)[train]
    p = np.random.default_rng(5).integers(-64, 65, HIDDEN * (D + 2) + 1) / 128
    w, b, v, c = p[:HIDDEN * D].reshape(HIDDEN, D), p[HIDDEN * D:HIDDEN * (D + 1)], p[HIDDEN * (D + 1):-1], p[-1]
    h, y = np.tanh(z @ w.T + b), label[train].astype(float)
    s, n = h @ v + c, len(z)
    q = 1 / (1 + np.exp(-s)) - y
    back = q[:, None] * v * (1 - h ** 2)
    gradient = np.concatenate([(back.T @ z + PENALTY * w).ravel(), back.sum(0), h.T @ q + PENALTY * v, [q.sum()]]) / n
    objective = (np.logaddexp(0, s) - y * s).sum() / n + PENALTY * ((w ** 2).sum() + (v ** 2).sum()) / 2 / n
    return p, gradient, objective


def distribution(t):
    d = t.delta[t.used]
    ordered, costs = np.sort(d)[::-1], np.maximum(d, 0).sum()
    top = lambda s: np.maximum(ordered[:int(np.ceil(s * len(d)))], 0).sum() / costs
    return [len(d), d.mean(), d.std(), skew(d), kurtosis(d), np.mean(d > 0),
            *np.quantile(d, [0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99]), top(0.01), top(0.05), top(0.10),
            ordered[:int(np.ceil(0.10 * len(d)))].sum() / d.sum()]


def positions(t):
    out, finite = [], np.isfinite(t.delta)
    for bits in (None, 1, 2, 4, 8, 0):
        own = finite if bits is None else finite & (t.classes == 0 if bits == 0 else (t.classes & bits) != 0)
        d = t.delta[own]
        out.append([len(d), d.mean(), d.std(), np.mean(d > 0), d.sum() / t.delta[finite].sum()])
    return out


def types(t):
    out = []
    half = np.array([philox(SEED, HALVES_STREAM, i) & 1 for i in range(t.n)]) == 1
    for key in range(2):
        sides = groups(t, key, ~half), groups(t, key, half)
        for k, d in groups(t, key).items():
            if len(d) >= LEAST:
                out.append([key, k, len(d), d.mean(), np.mean(d > 0), sides[0][k].mean(), sides[1][k].mean(), is_no_fly(d)])
    return out


def main(path):
    a, b, gamma, beta = make()
    count = np.bincount(np.concatenate([a.input, a.target]), minlength=len(SPELLINGS))
    trait, category = traits(count)
    whole, cluster_rows, own, points, planted = clusters(a)
    parameters, gradient, objective = hidden(a)
    features, regression, categories = forensics(a, trait, category)
    spelled = [s.encode() for s in SPELLINGS]
    arrays = {"gamma": gamma, "beta": beta, "count": count, "words": list(WORDS.encode()),
              "spelling": list(b"".join(spelled)), "spelling_length": [len(s) for s in spelled],
              "x": a.x, "e": a.e, "factor": a.factor, "entropy": a.entropy, "divergence": a.divergence, "agreed": a.agreed,
              "classes": a.classes}
    for name, t in (("", a), ("other_", b)):
        arrays.update({name + "input": t.input, name + "target": t.target, name + "position": t.position,
                       name + "unit": t.unit, name + "delta": t.delta, name + "used": t.used, name + "test": t.test})
    arrays.update({"context": context(a, gamma, beta), "geometry": geometry(a, gamma, beta), "forensics": features,
                   "regression": regression, "categories": categories, "types": types(a),
                   "fates": [fate(*pair, key) for key in range(2) for pair in ((a, b), (b, a))],
                   "correlations": [agreement(a, b, key) for key in range(2)],
                   "clustering": whole, "clusters": cluster_rows, "cluster": own,
                   "points": points, "lloyd_cluster": planted.labels_, "lloyd_centre": planted.cluster_centers_,
                   "lloyd": [planted.inertia_, planted.n_iter_],
                   "separability": separability(a), "hidden_parameters": parameters, "hidden_gradient": gradient,
                   "hidden_objective": [objective], "distribution": distribution(a), "positions": positions(a)})
    with open(path, "w", encoding="ascii") as out:
        for name, values in arrays.items():
            values = np.asarray(values, dtype=float).ravel()
            print(name, values.size, file=out)
            for i in range(0, values.size, 8):
                print(*(format(v, ".17g") for v in values[i:i + 8]), file=out)


if __name__ == "__main__":
    main(sys.argv[1])
