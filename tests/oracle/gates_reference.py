"""An independent statement of gates (method.md, section 4) in numpy, scikit-learn and transformers.

Functions only; gates_compare.py runs them beside the program. A gate's score is the log-odds of "the surrogate serves
here": the surrogate is taken where sigmoid(score) > threshold.
"""

import math
import warnings

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score
from sklearn.preprocessing import StandardScaler

from pipeline_reference import mlps, run

FEATURES = ("norm", "max_abs", "kurtosis")


def measure(model, windows, surrogates):
    """x [L][N, D] float32: the MLPs' inputs at predicted positions; full [N] and linear [L, N] losses, float64.
    surrogates: a list of (W [in, out], b), one for each layer."""
    blocks = mlps(model)
    inputs, full = [[] for _ in blocks], []

    def hook(layer):
        def keep(_, args, __):
            inputs[layer].append(args[0][0, :-1].numpy().copy())
        return keep

    handles = [block.register_forward_hook(hook(layer)) for layer, block in enumerate(blocks)]
    for ids in windows:
        full.append(run(model, ids))
    for handle in handles:
        handle.remove()
    linear = [routed_losses(model, layer, w, b, lambda x: np.ones(len(x), bool), windows)
              for layer, (w, b) in enumerate(surrogates)]
    return [np.concatenate(x) for x in inputs], np.concatenate(full), np.array(linear)


def routed_losses(model, layer, weight, bias, route, windows):
    """Losses when `layer` takes its surrogate where route(x [rows, D]) says so and its MLP elsewhere."""
    weight, bias = torch.tensor(weight, dtype=torch.float32), torch.tensor(bias, dtype=torch.float32)

    def blend(_, args, result):
        x = args[0]
        chosen = torch.from_numpy(np.asarray(route(x[0].numpy()), dtype=bool))[None, :, None]
        return torch.where(chosen, x @ weight + bias, result)

    handle = mlps(model)[layer].register_forward_hook(blend)
    losses = np.concatenate([run(model, ids) for ids in windows])
    handle.remove()
    return losses


def labels(delta):
    """Label 1 where the surrogate serves; the threshold; was it the 25th percentile? NaN deltas are dropped before."""
    quartile = (delta < 0).mean() < 0.05
    threshold = np.percentile(delta, 25) if quartile else np.median(delta)
    return delta <= threshold, threshold, quartile


def feature(kind, x):
    x = x.astype(np.float64)
    if kind == "norm":
        return np.sqrt((x * x).sum(axis=1))
    if kind == "max_abs":
        return np.abs(x).max(axis=1)
    centred = x - x.mean(axis=1, keepdims=True)
    second = (centred ** 2).mean(axis=1)
    return (centred ** 4).mean(axis=1) / second ** 2 - 3


def logistic(z, y):
    """Coefficients and intercept of the optimum at C = 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # tol is below what float64 can show
        fit = LogisticRegression(C=1.0, solver="newton-cholesky", tol=1e-10, max_iter=200).fit(z, y)
    return fit.coef_[0], fit.intercept_[0]


def fit_gate(kind, components, x, y):
    """The gate as (vector in raw x or scale of the feature, bias)."""
    if kind in FEATURES:
        f = feature(kind, x)[:, None]
        scaler = StandardScaler().fit(f)
        coefficient, intercept = logistic(scaler.transform(f), y)
        slope = coefficient[0] / scaler.scale_[0]
        return slope, intercept - slope * scaler.mean_[0]
    scaler = StandardScaler().fit(x.astype(np.float64))
    z = scaler.transform(x.astype(np.float64))
    basis = np.eye(x.shape[1])
    centre = np.zeros(x.shape[1])
    if kind in ("pca", "component"):
        pca = PCA(n_components=components, svd_solver="full").fit(z)
        basis, centre = pca.components_, pca.mean_
        if kind == "component":
            basis = basis[components - 1:]
    coefficient, intercept = logistic((z - centre) @ basis.T, y)
    direction = coefficient @ basis
    return direction / scaler.scale_, intercept - direction @ (scaler.mean_ / scaler.scale_ + centre)


def score(kind, gate, x):
    slope, bias = gate
    if kind in FEATURES:
        return slope * feature(kind, x) + bias
    return (x.astype(np.float64) * slope).sum(axis=1) + bias  # equal rows get equal bits, which a BLAS does not promise


def logit(threshold):
    if threshold <= 0:
        return -math.inf
    return math.inf if threshold >= 1 else math.log(threshold / (1 - threshold))


def quality(scores, y):
    """AUC, accuracy and routed part at threshold 1/2."""
    return roc_auc_score(y, scores), accuracy_score(y, scores > 0), float((scores > 0).mean())
