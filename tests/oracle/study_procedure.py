"""The study's procedure in Python and PyTorch, timed: what the program's speed is compared with.

    study_procedure.py --config configs/models/gpt2-medium.json [--layers 2 12 21] [--tokens tokens.main.stream.h5]
                       [--fraction 0.1] [--threads 2] [--head all|softmax] [--json out.json]
    study_procedure.py --model MODEL_DIR ...

For each chosen layer it does what the study does, one sequence at a time, each pass through the whole model:
  fit       10 000 tokens, MLP inputs and outputs by a hook; ridge by SVD
  linear    12 000 tokens with the surrogate (perplexity)
  delta     25 000 tokens, three passes: MLP inputs, losses of the full model, losses with the surrogate (256 a sequence)
  gates     four gates (linear; PCA to 2b components, b = 1, 3, 6), each fitted by scikit-learn's L-BFGS; each evaluated in
            three passes of 12 000 tokens: full model, surrogate, routed
that is, 10 + 12 + 25 x 3 + 12 x 12 = 241 thousand tokens a layer. Losses take the whole head, its product with the
vocabulary and the log-softmax, in float64; with --head softmax the product is float32. Nothing is shared between
layers, or between the passes of a layer.

Extrapolation: all layers = number of layers x mean over the chosen ones (every pass runs all layers, so layers differ in
the solvers' time only: the spread is printed). With --fraction f every pass has f times the tokens and its time, the
SVD's and the gates' fits are multiplied by 1 / f; what the solvers' fixed costs add by that is at most their share, which
is printed too. A fraction of 1 extrapolates over layers alone. One pass of --warmup tokens goes before.
"""

import argparse
import json
import math
import os
import time

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from transformers import AutoConfig, AutoModelForCausalLM

from pipeline_reference import mlps, r_squared, ridge

FIT, EVALUATION, GATES, GATE_WINDOW = 10_000, 12_000, 25_000, 256
GATE_KINDS = (0, 1, 3, 6)  # b of the bottleneck; 0: linear


class Clock:
    """Seconds and tokens of each phase."""

    def __init__(self):
        self.seconds, self.tokens = {}, {}

    def add(self, phase, begin, tokens=0):
        self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - begin
        self.tokens[phase] = self.tokens.get(phase, 0) + tokens


def cut(ids, window):
    return [ids[i:i + window] for i in range(0, len(ids), window) if len(ids[i:i + window]) > 1]


class Head:
    """weight: the head's in float64; None: its product is the model's own, in float32."""

    weight = None


@torch.no_grad()
def losses(model, windows):
    out = []
    for ids in windows:
        inputs = torch.from_numpy(ids)[None]
        if Head.weight is None:
            logits = model(inputs).logits[0, :-1]
        else:
            logits = model.base_model(inputs).last_hidden_state[0, :-1].double() @ Head.weight.T
        logp = torch.log_softmax(logits.double(), dim=-1)
        out.append(-logp.gather(1, torch.from_numpy(ids[1:])[:, None])[:, 0].numpy())
    return np.concatenate(out)


@torch.no_grad()
def collect(model, layer, windows, predicted_only):
    x, y = [], []

    def keep(_, args, result):
        end = args[0].shape[1] - predicted_only
        x.append(args[0][0, :end].numpy().copy())
        y.append(result[0, :end].numpy().copy())

    handle = mlps(model)[layer].register_forward_hook(keep)
    for ids in windows:
        model(torch.from_numpy(ids)[None])
    handle.remove()
    return np.concatenate(x), np.concatenate(y)


def with_surrogate(model, layer, surrogate, gate=None):
    """Handle of a hook that replaces the layer's MLP, everywhere or where the gate's score is positive. As the study's,
    the MLP runs at every position all the same."""
    weight, bias = (torch.tensor(a, dtype=torch.float32) for a in surrogate)

    def replace(_, args, result):
        linear = args[0] @ weight + bias
        if gate is None:
            return linear
        chosen = args[0] @ gate[0] + gate[1] > 0
        return torch.where(chosen[..., None], linear, result)

    return mlps(model)[layer].register_forward_hook(replace)


def replaced_losses(model, layer, surrogate, windows, gate=None):
    handle = with_surrogate(model, layer, surrogate, gate)
    out = losses(model, windows)
    handle.remove()
    return out


def fit_gate(x, y, b):
    scaler = StandardScaler().fit(x)
    z = scaler.transform(x)
    basis, centre = np.eye(x.shape[1]), np.zeros(x.shape[1])
    if b > 0:
        pca = PCA(n_components=2 * b, svd_solver="full").fit(z)
        basis, centre = pca.components_, pca.mean_
    regression = LogisticRegression(C=1.0, max_iter=1000).fit((z - centre) @ basis.T, y)
    direction = regression.coef_[0] @ basis
    offset = regression.intercept_[0] - direction @ (scaler.mean_ / scaler.scale_ + centre)
    return torch.tensor(direction / scaler.scale_, dtype=torch.float32), float(offset)


def do_layer(model, layer, ids, fraction, window):
    """The procedure for one layer: (clock, what it found)."""
    clock = Clock()
    part = {name: ids[begin:begin + int(n * fraction)] for name, begin, n in
            (("fit", 0, FIT), ("gates", FIT, GATES), ("evaluation", FIT + GATES, EVALUATION))}
    fit, evaluation, gates = cut(part["fit"], window), cut(part["evaluation"], window), cut(part["gates"], GATE_WINDOW)
    n_fit, n_evaluation, n_gates = (len(part[name]) for name in ("fit", "evaluation", "gates"))

    begin = time.perf_counter()
    x, y = collect(model, layer, fit, 0)
    clock.add("fit, pass", begin, n_fit)
    begin = time.perf_counter()
    weight, bias, _ = ridge(x.astype(np.float64), y.astype(np.float64), 0.01)
    clock.add("fit, SVD", begin)
    surrogate = (weight, bias)

    begin = time.perf_counter()
    linear = replaced_losses(model, layer, surrogate, evaluation)
    clock.add("linear", begin, n_evaluation)

    begin = time.perf_counter()
    features, _ = collect(model, layer, gates, 1)
    delta = replaced_losses(model, layer, surrogate, gates) - losses(model, gates)
    clock.add("delta", begin, 3 * n_gates)
    label = delta <= (np.median(delta) if (delta < 0).mean() >= 0.05 else np.percentile(delta, 25))

    found = {"layer": layer, "r2": r_squared(x.astype(np.float64), y.astype(np.float64), weight, bias), "gates": []}
    for b in GATE_KINDS:
        begin = time.perf_counter()
        gate = fit_gate(features.astype(np.float64), label, b)
        clock.add("gates, fit", begin)
        begin = time.perf_counter()
        full = losses(model, evaluation)
        everywhere = replaced_losses(model, layer, surrogate, evaluation)
        routed = replaced_losses(model, layer, surrogate, evaluation, gate)
        clock.add("gates, passes", begin, 3 * n_evaluation)
        found["gates"].append({"b": b, "delta_pct": 100 * math.expm1(routed.mean() - full.mean()),
                               "all_linear_pct": 100 * math.expm1(everywhere.mean() - full.mean())})
    found["all_linear_pct"] = 100 * math.expm1(linear.mean() - full.mean())
    return clock, found


def load(o):
    if o.model:
        return AutoModelForCausalLM.from_pretrained(o.model, torch_dtype=torch.float32).eval()
    torch.manual_seed(o.seed)
    if os.path.isfile(o.config):
        with open(o.config, encoding="utf-8") as file:
            settings = json.load(file)
        config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    else:
        config = AutoConfig.from_pretrained(o.config)
    return AutoModelForCausalLM.from_config(config).float().eval()


def read_ids(o, vocabulary):
    need = FIT + GATES + EVALUATION
    if not o.tokens:
        return np.random.default_rng(o.seed).integers(0, vocabulary, need)
    import h5py
    with h5py.File(o.tokens) as file:
        ids = file["tokens"][:need].astype(np.int64)
    if len(ids) < need:
        raise SystemExit(f"{o.tokens}: {len(ids)} tokens, {need} are needed")
    return ids


def report(o, model, clocks, found):
    n_layers = len(mlps(model))
    totals, out = [sum(c.seconds.values()) / o.fraction for c in clocks], {}
    solvers = [(c.seconds["fit, SVD"] + c.seconds["gates, fit"]) / o.fraction for c in clocks]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {o.fraction:g} of the study's tokens, "
          f"{'head' if o.head == 'all' else 'log-softmax'} in float64, "
          f"layers {', '.join(str(f['layer']) for f in found)} of {n_layers}")
    print(f"{'phase':<14} {'s a layer':>10} {'tokens/s':>9}   (scaled to all of the study's tokens)")
    for phase in clocks[0].seconds:
        seconds = sum(c.seconds[phase] for c in clocks) / len(clocks)
        tokens = clocks[0].tokens[phase]
        rate = f"{tokens / seconds:9.1f}" if tokens else f"{'-':>9}"
        print(f"{phase:<14} {seconds / o.fraction:>10.2f} {rate}")
        out[phase] = seconds / o.fraction
    mean = sum(totals) / len(totals)
    print(f"a layer: {mean:.1f} s (from {min(totals):.1f} to {max(totals):.1f}), solvers {100 * sum(solvers) / sum(totals):.1f} %")
    print(f"all {n_layers} layers, extrapolated: {n_layers * mean:.0f} s")
    out.update({"torch": torch.__version__, "threads": torch.get_num_threads(), "fraction": o.fraction, "head": o.head,
                "layers": found, "seconds_per_layer": mean, "seconds_all_layers": n_layers * mean,
                "tokens_per_layer": FIT + EVALUATION + 3 * GATES + 3 * len(GATE_KINDS) * EVALUATION})
    if o.json:
        with open(o.json, "w", encoding="utf-8") as file:
            json.dump(out, file, indent=1)
            file.write("\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", help="directory of a model in the hub's form")
    parser.add_argument("--config", help="config.json of a model whose weights are drawn")
    parser.add_argument("--layers", type=int, nargs="+", help="default: one in the middle")
    parser.add_argument("--tokens", help="tokens.CORPUS.stream.h5; default: random ids")
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--head", choices=["all", "softmax"], default="all", help="what of the head is in float64")
    parser.add_argument("--warmup", type=int, default=512)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json")
    o = parser.parse_args()
    if bool(o.model) == bool(o.config):
        parser.error("one of --model and --config is needed")
    if not 0 < o.fraction <= 1:
        parser.error("--fraction lies in (0, 1]")
    torch.set_num_threads(o.threads)
    model = load(o)
    if o.head == "all":
        Head.weight = model.get_output_embeddings().weight.detach().double()
    o.window = min(o.window, model.config.max_position_embeddings)
    ids = read_ids(o, model.config.vocab_size)
    layers = o.layers or [len(mlps(model)) // 2]
    losses(model, cut(ids[:o.warmup], o.window))
    clocks, found = zip(*(do_layer(model, layer, ids, o.fraction, o.window) for layer in layers))
    report(o, model, clocks, found)


if __name__ == "__main__":
    main()
