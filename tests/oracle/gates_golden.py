#!/usr/bin/env python3
"""Writes the golden files of test_measure_gate_fit.c: gates of method.md, section 4, by scikit-learn
(StandardScaler, PCA(svd_solver="full"), LogisticRegression(solver="newton-cholesky", tol=1e-10)).

    python3 tests/oracle/gates_golden.py tests/data/gates

Needs the versions of requirements.txt; the files are equal, byte for byte, from run to run. For each
case NAME.f32 holds x [fit + heldout, D], then the losses of the full model and those of the
surrogate, all float32, and NAME.txt named arrays, each as "name count" and then its values."""
import sys
import warnings

import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

warnings.simplefilter("error")

# name: fit rows, held-out rows, width, part of the positions that are better, sizes of PCA
CASES = {
    "plain": (420, 180, 24, 0.45, (2, 6, 12)),
    "quartile": (300, 90, 16, 0.02, (2, 6)),
    "wide": (24, 40, 36, 0.5, (2, 6, 12)),
}


def draw(name, n, d, better):
    """x with common factors, features of very different sizes and a constant one; losses whose
    difference leans on two directions of x, on its size, and on noise with heavy tails."""
    rng = np.random.default_rng(sum(map(ord, name)))
    x = rng.normal(size=(n, 5)) @ rng.normal(size=(5, d)) + 0.7 * rng.normal(size=(n, d))
    x *= np.exp(rng.normal(size=d))
    if name == "plain":
        x[:, 1] += 1e4  # of which float32 keeps three decimals
    x[:, 2] = 0.25
    x[:, 3] *= 1e-5
    x = x.astype(np.float32)
    z = np.delete(x.astype(np.float64), 2, axis=1)
    z = (z - z.mean(0)) / z.std(0)
    lean = z @ rng.normal(size=d - 1) / d**0.5 + 0.3 * (np.abs(z).max(1) - 2)
    delta = 0.2 * lean + 0.2 * rng.standard_t(3, size=n)
    delta -= np.quantile(delta, better)
    full = rng.uniform(0.5, 6, size=n).astype(np.float32)
    linear = (full + delta).astype(np.float32)
    if name == "plain":
        linear[[7, 50, n - 3]] = np.inf, np.nan, np.inf
        full[60] = np.inf
    return x, full, linear


def labels(delta, finite):
    """Threshold and labels of the fit's positions."""
    d = delta[finite]
    threshold = np.quantile(d, 0.5 if np.mean(d < 0) >= 0.05 else 0.25)
    return threshold, delta <= threshold


def regression(z, y):
    model = LogisticRegression(C=1, solver="newton-cholesky", tol=1e-10, max_iter=100).fit(z, y)
    return model.coef_[0], model.intercept_[0]


def fixed_sign(components):
    """The largest element of each is positive."""
    largest = np.argmax(np.abs(components), axis=1)
    return components * np.sign(components[np.arange(len(components)), largest])[:, None]


def kurtosis(x):
    t = x - x.mean(1, keepdims=True)
    return (t**4).mean(1) / (t**2).mean(1) ** 2 - 3


class File:
    def __init__(self, path):
        self.path, self.lines = path, []

    def put(self, name, values):
        values = np.atleast_1d(values).astype(float).ravel()
        self.lines += [f"{name} {len(values)}"] + [f"{v:.13g}" for v in values]

    def close(self):
        with open(self.path, "w") as f:
            f.write("\n".join(self.lines) + "\n")


def gate(out, name, score, delta, y, fit, held):
    """What is said of a gate with these scores; fit and held: positions with a finite delta."""
    for where, rows in (("", fit), ("_heldout", held)):
        out.put(f"{name}.auc{where}", roc_auc_score(y[rows], score[rows]))
        out.put(f"{name}.accuracy{where}", np.mean((score[rows] > 0) == y[rows]))
        out.put(f"{name}.r{where}", np.corrcoef(score[rows], delta[rows])[0, 1])
    out.put(f"{name}.score", score)


def main():
    folder = sys.argv[1]
    for name, (n_fit, n_held, d, better, sizes) in CASES.items():
        x, full, linear = draw(name, n_fit + n_held, d, better)
        with open(f"{folder}/{name}.f32", "wb") as f:
            f.write(x.tobytes() + full.tobytes() + linear.tobytes())
        out = File(f"{folder}/{name}.txt")
        out.put("sizes", [n_fit, n_held, d])
        with np.errstate(invalid="ignore"):
            delta = linear.astype(np.float64) - full.astype(np.float64)
        finite = np.isfinite(delta)
        fit = np.flatnonzero(finite & (np.arange(len(x)) < n_fit))
        held = np.flatnonzero(finite & (np.arange(len(x)) >= n_fit))
        threshold, y = labels(delta[:n_fit], finite[:n_fit])
        y = delta <= threshold
        out.put("threshold", threshold)
        out.put("ones", y[fit].sum())

        wide = x.astype(np.float64)
        scaler = StandardScaler().fit(wide[fit])
        out.put("mean", scaler.mean_)
        out.put("scale", scaler.scale_)
        z = scaler.transform(wide)

        w, b = regression(z[fit], y[fit])
        out.put("linear.weight", w / scaler.scale_)
        out.put("linear.bias", b - w / scaler.scale_ @ scaler.mean_)
        gate(out, "linear", z @ w + b, delta, y, fit, held)

        pca = PCA(n_components=max(sizes), svd_solver="full").fit(z[fit])
        components = fixed_sign(pca.components_)
        out.put("components", components)
        out.put("variance", pca.singular_values_**2 / len(fit))
        projected = (z - pca.mean_) @ components.T
        for k in sizes:
            c, b = regression(projected[fit, :k], y[fit])
            w = c @ components[:k] / scaler.scale_
            out.put(f"pca{k}.coefficient", c)
            out.put(f"pca{k}.weight", w)
            out.put(f"pca{k}.bias", b - w @ scaler.mean_)
            gate(out, f"pca{k}", projected[:, :k] @ c + b, delta, y, fit, held)
        c, b = regression(projected[fit, 1:2], y[fit])
        out.put("pc2.weight", c[0] * components[1] / scaler.scale_)
        gate(out, "pc2", projected[:, 1] * c[0] + b, delta, y, fit, held)

        features = {
            "norm": np.linalg.norm(wide, axis=1),
            "max_abs": np.abs(wide).max(1),
            "kurtosis": kurtosis(wide),
        }
        for kind, f in features.items():
            one = StandardScaler().fit(f[fit, None])
            c, b = regression(one.transform(f[fit, None]), y[fit])
            a = c[0] / one.scale_[0]
            out.put(f"{kind}.scale", a)
            out.put(f"{kind}.bias", b - a * one.mean_[0])
            gate(out, kind, a * f + b - a * one.mean_[0], delta, y, fit, held)
        out.close()


main()
