"""Compares `wanamaker gate` with the independent statement of method.md, section 4 (gates_reference.py).

    gates_compare.py WANAMAKER MODEL_DIR TEXT WORK_DIR [--protocol stream] [--ranks P] [--threads T]

Both read the same model, text, ranges and surrogates (those of surrogates.h5, which pipeline_compare.py checks). Losses,
features, labels, fits, scores and routed perplexities are stated anew. Fits are compared on the program's own features
(features.h5) and labels: features differ from the reference's in their last float32 digits, so that neighbours in a
ranking may change places, and where a delta lies within rounding of the median, either label is right. Exits 1 unless
  - features agree to 1e-4 of their spread, deltas to 1e-3 nats everywhere and to 1e-6 in the mean, labels on 99.9 % of the
    positions,
  - coefficients agree to 1e-4 (relative, by norm), AUC to 1e-6, accuracy and routed part to 1e-4,
  - routing decisions are the same on 99.99 % of the held-out positions, also on the reference's features (there but one),
  - perplexities of the model with a layer routed by its linear or norm gate agree to 1e-5, on the validation range (every
    threshold of routed.validation.h5) and on the evaluation range (sweep.h5), and routed parts to 1e-4 plus one position.
"""

import argparse
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

import gates_reference as reference
from pipeline_reference import document_windows, read_rows, stream_windows

RANGES = {"fit": (0, 4000), "gates": (4000, 9000), "validation": (9000, 11000), "evaluation": (11000, 13000)}


def program(o, job, *settings):
    command = ["mpirun", "--oversubscribe", "-n", str(o.ranks)] if o.ranks > 1 else []
    command += [o.program, job, f"model.path={o.model}", f"corpora.main.path={o.text}", "corpora.main.format=text",
                f"protocol.kind={o.protocol}", "bootstrap.resamples=1000", f"output.dir={o.work}/program", *settings]
    command += [f"ranges.{name}.tokens=[{a},{b}]" for name, (a, b) in RANGES.items()]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


class Checks:
    """The largest value of each check, printed in the end."""

    def __init__(self):
        self.worst = {}

    def __call__(self, name, value, bound, where=""):
        if name not in self.worst or not value <= self.worst[name][0]:
            self.worst[name] = (float(value), bound, where)

    def finish(self):
        failed = 0
        for name, (value, bound, where) in self.worst.items():
            failed += not value <= bound
            print(f"{'ok  ' if value <= bound else 'FAIL'} {name}: {value:.3e} (bound {bound:.1e}) {where}")
        sys.exit(1 if failed else 0)


def windows_of(o, name):
    tokenizer = Tokenizer.from_file(os.path.join(o.model, "tokenizer.json"))
    tokenizer.no_truncation()
    cut = document_windows if o.protocol == "documents" else stream_windows
    found, _ = cut(tokenizer, read_rows(o.text, False, False), *RANGES[name], 512)
    return [ids for ids in found if len(ids) > 1]


def losses(o, name):
    """The program's (full [N], linear [L, N]) on a range."""
    with h5py.File(f"{o.work}/program/losses.{name}.h5") as file:
        nll = file["nll"][:].astype(np.float64)
    return nll[0], nll[1:]


def compare_deltas(check, what, full, linear, own_full, own_linear):
    check(f"{what}: full model, largest loss difference", np.abs(full - own_full).max(), 1e-3)
    for layer in range(len(linear)):
        difference = (linear[layer] - full) - (own_linear[layer] - own_full)
        check(f"{what}: largest delta difference", np.abs(difference).max(), 1e-3, f"layer {layer}")
        check(f"{what}: mean delta difference", abs(difference.mean()), 1e-6, f"layer {layer}")


def compare_labels(check, file, index, delta, own_delta):
    y, threshold, quartile = reference.labels(delta)
    own, _, _ = reference.labels(own_delta)
    where = f"layer {index}"
    check("labels that differ, part", (y != own).mean(), 1e-3, where)
    check("label threshold", abs(file["labels/threshold"][index] - threshold), 1e-7, where)
    check("kind of threshold", abs(int(file["labels/quartile"][index]) - int(quartile)), 0, where)
    check("share of label 1", abs(file["labels/share"][index] - y.mean()), 1e-12, where)
    return y


def stored_gate(file, g, kind):
    slope = file["gate/scale"][g] if kind in reference.FEATURES else file["weight"][g]
    return slope, file["gate/bias"][g]


def compare_gate(check, file, g, fit, held, own_x):
    """fit, held: (x, labels, delta) of the gate's layer; own_x: the reference's held-out features."""
    kind = file["gate/kind"][g].decode()
    components = int(file["gate/components"][g])
    where = f"layer {file['gate/layer'][g]}, {kind} {components or ''}"
    if kind == "oracle" or kind == "random":
        return
    own, stored = reference.fit_gate(kind, components, fit[0], fit[1]), stored_gate(file, g, kind)
    slope = np.linalg.norm(np.atleast_1d(own[0]))
    check("coefficients, relative", np.linalg.norm(np.atleast_1d(stored[0] - own[0])) / slope, 1e-4, where)
    check("bias, relative", abs(stored[1] - own[1]) / (abs(own[1]) + slope), 1e-4, where)
    own_scores, scores = reference.score(kind, own, held[0]), reference.score(kind, stored, held[0])
    check("held-out decisions that differ, part", ((own_scores > 0) != (scores > 0)).mean(), 1e-4, where)
    on_own = ((reference.score(kind, stored, own_x) > 0) != (scores > 0)).mean()
    check("and on the reference's features", on_own, 1e-4 + 1 / len(scores), where)
    own_fit = reference.score(kind, own, fit[0])
    for suffix, s, y, delta in (("", own_fit, fit[1], fit[2]), ("_heldout", own_scores, held[1], held[2])):
        auc, accuracy, routed = reference.quality(s, y)
        check("AUC" + suffix, abs(file["gate/auc" + suffix][g] - auc), 1e-6, where)
        check("accuracy" + suffix, abs(file["gate/accuracy" + suffix][g] - accuracy), 1e-4, where)
        check("routed part" + suffix, abs(file["gate/routed" + suffix][g] - routed), 1e-4, where)
        r = np.corrcoef(s, delta)[0, 1]
        check("r with delta" + suffix, abs(file["gate/r_delta" + suffix][g] - r), 1e-5, where)


def compare_routed(check, o, model, surrogates, gates, name, text):
    """Variants of a result that route one layer by its linear or norm gate."""
    windows, layers = windows_of(o, text), set()
    with h5py.File(f"{o.work}/program/{name}") as sweep:
        changes = {name: sweep[f"changes/{name}"][:] for name in ("variant", "layer", "gate", "threshold")}
        for variant, layer, g, threshold in zip(*changes.values()):
            if g < 0 or (changes["variant"] == variant).sum() > 1:
                continue
            kind, taken = gates["gate/kind"][g].decode(), []
            if kind not in ("linear", "norm"):
                continue
            stored = stored_gate(gates, g, kind)

            def route(x):
                chosen = reference.score(kind, stored, x) > reference.logit(threshold)
                taken.append(chosen[:-1])  # a window's last position predicts nothing
                return chosen

            own = reference.routed_losses(model, layer, *surrogates[layer], route, windows)
            where, routed = f"{text}, layer {layer}, {kind} at {threshold:.3g}", np.concatenate(taken)
            nll = sweep["nll"][variant].astype(np.float64)
            check("routed, mean loss", abs(nll.mean() - own.mean()), 1e-5, where)
            check("routed, perplexity, relative", abs(sweep["variants"]["ppl"][variant] / np.exp(own.mean()) - 1), 1e-5,
                  where)
            check("routed, part", abs(sweep["variants"]["routed_fraction"][variant] - routed.mean()),
                  1e-4 + 1 / len(routed), where)
            layers.add(layer)
    check("layers without a routed variant", len(surrogates) - len(layers), 0, text)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("work")
    parser.add_argument("--protocol", choices=("documents", "stream"), default="stream")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    o = parser.parse_args()
    os.makedirs(o.work, exist_ok=True)
    torch.set_num_threads(o.threads)
    for job in ("tokenize", "fit"):
        program(o, job)
    program(o, "gate", "gate.keep_features=true")
    program(o, "sweep", "sweep.gate_kinds=\"linear norm\"")

    check = Checks()
    model = AutoModelForCausalLM.from_pretrained(o.model, torch_dtype=torch.float32).eval()
    with h5py.File(f"{o.work}/program/surrogates.h5") as file:
        surrogates = list(zip(file["weight"][:], file["bias"][:]))
    text = {}
    for name in ("gates", "validation"):
        text[name] = reference.measure(model, windows_of(o, name), surrogates)
        compare_deltas(check, name, *losses(o, name), *text[name][1:])
    full, linear = losses(o, "gates")
    full_held, linear_held = losses(o, "validation")
    with h5py.File(f"{o.work}/program/gates.h5") as file, h5py.File(f"{o.work}/program/features.h5") as features:
        for layer in range(len(surrogates)):
            delta, held_delta = linear[layer] - full, linear_held[layer] - full_held
            y = compare_labels(check, file, layer, delta, text["gates"][2][layer] - text["gates"][1])
            held_y = held_delta <= file["labels/threshold"][layer]
            fit = (features["features/x"][layer], y, delta)
            held = (features["features/x_heldout"][layer], held_y, held_delta)
            for name, (x, _, _) in (("gates", fit), ("validation", held)):
                own_x = text[name][0][layer]
                check(f"{name}: features, of their spread", np.abs(x - own_x).max() / own_x.std(), 1e-4, f"layer {layer}")
            check("mean of x, relative", np.abs(file["scaler/mean"][layer] - fit[0].astype(float).mean(axis=0)).max() /
                  fit[0].std(), 1e-5, f"layer {layer}")
            for g in np.flatnonzero(file["gate/layer"][:] == layer):
                compare_gate(check, file, g, fit, held, text["validation"][0][layer])
        compare_routed(check, o, model, surrogates, file, "routed.validation.h5", "validation")
        compare_routed(check, o, model, surrogates, file, "sweep.h5", "evaluation")
    check.finish()


if __name__ == "__main__":
    main()
