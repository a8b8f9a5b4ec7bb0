"""Compares the program's surrogates.h5 and sweep.h5 with the independent statement of the method.

    pipeline_compare.py WANAMAKER MODEL_DIR TEXT WORK_DIR [--protocol documents] [--fit A B] [--eval A B]
                        [--keep-newline] [--jsonl] [--ranks P]

Runs `wanamaker run` and tests/oracle/pipeline_reference.py on the same model, text and ranges, and exits 1 unless
  - the evaluated tokens are the same, in the same order,
  - mean NLL of the full model agrees to 1e-6, and each token's to 1e-4,
  - each layer's mean NLL with the surrogate agrees to 1e-6, and its delta to 1e-3 percentage points,
  - surrogates predict the same on the fit tokens' scale: R^2 to 1e-6.
"""

import argparse
import json
import os
import subprocess
import sys

import h5py
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))


def run_program(o):
    name = "jsonl" if o.jsonl else "text"
    command = []
    if o.ranks > 1:
        command = ["mpirun", "--oversubscribe", "-n", str(o.ranks)]
    command += [
        o.program, "run", f"model.path={o.model}", f"corpora.main.path={o.text}", f"corpora.main.format={name}",
        f"corpora.main.keep_newline={'true' if o.keep_newline else 'false'}", f"protocol.kind={o.protocol}",
        f"ranges.fit.tokens=[{o.fit[0]},{o.fit[1]}]", f"ranges.evaluation.tokens=[{o.eval[0]},{o.eval[1]}]",
        f"ranges.validation.tokens=[{o.fit[1]},{o.fit[1] + 2000}]", "bootstrap.resamples=1000",
        f"output.dir={o.work}/program"]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    subprocess.run(command, check=True, env=environment)


def run_reference(o):
    command = [sys.executable, os.path.join(HERE, "pipeline_reference.py"), o.model, o.text, "--protocol", o.protocol,
               "--fit", *map(str, o.fit), "--eval", *map(str, o.eval), "--out", f"{o.work}/reference.json",
               "--npz", f"{o.work}/reference.npz", "--threads", "2"]
    command += ["--keep-newline"] * o.keep_newline + ["--jsonl"] * o.jsonl
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("work")
    parser.add_argument("--protocol", choices=("documents", "stream"), default="documents")
    parser.add_argument("--fit", nargs=2, type=int, default=[0, 5000])
    parser.add_argument("--eval", nargs=2, type=int, default=[8000, 12000])
    parser.add_argument("--keep-newline", action="store_true")
    parser.add_argument("--jsonl", action="store_true")
    parser.add_argument("--ranks", type=int, default=1)
    o = parser.parse_args()
    os.makedirs(o.work, exist_ok=True)
    run_program(o)
    run_reference(o)

    with open(f"{o.work}/reference.json", encoding="utf-8") as file:
        reference = json.load(file)
    arrays = np.load(f"{o.work}/reference.npz")
    sweep = h5py.File(f"{o.work}/program/sweep.h5", "r")
    fit = h5py.File(f"{o.work}/program/surrogates.h5", "r")
    nll = sweep["nll"][:].astype(np.float64)
    checks = []

    def check(name, value, bound):
        checks.append(value <= bound)
        print(f"{'ok  ' if checks[-1] else 'FAIL'} {name}: {value:.3e} (bound {bound:.0e})")

    ends = np.cumsum(arrays["eval_lengths"])
    predicted = np.ones(ends[-1], dtype=bool)
    predicted[ends - 1] = False
    tokens = arrays["eval_tokens"]
    same = np.array_equal(sweep["tokens/id"][:], tokens[predicted]) and np.array_equal(
        sweep["tokens/target"][:], tokens[1:][predicted[:-1]])
    check("tokens that differ", 0.0 if same else 1.0, 0)
    check("full model, mean NLL", abs(nll[0].mean() - arrays["nll_full"].mean()), 1e-6)
    check("full model, largest NLL difference", np.abs(nll[0] - arrays["nll_full"]).max(), 1e-4)
    layers = len(reference["layers"])
    means = nll[1:1 + layers].mean(axis=1)
    check("surrogates, mean NLL", np.abs(means - [l["nll"] for l in reference["layers"]]).max(), 1e-6)
    deltas = sweep["variants"]["delta_pct"][1:1 + layers]
    check("delta, percentage points", np.abs(deltas - [l["delta_pct"] for l in reference["layers"]]).max(), 1e-3)
    check("R^2", np.abs(fit["fit/r2"][:] - [l["r2_fit"] for l in reference["layers"]]).max(), 1e-6)
    check("largest NLL difference of any variant", np.abs(nll[1:1 + layers] - arrays["nll_linear"]).max(), 1e-3)
    sys.exit(0 if all(checks) else 1)


if __name__ == "__main__":
    main()
