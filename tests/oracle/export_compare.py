"""Compares what `wanamaker export` writes, as stock transformers loads and evaluates it, with the program's own figures.

    export_compare.py WANAMAKER MODEL_DIR TEXT WORK_DIR [--ranks P]

Three checkpoints: the model with four linear layers (against the sweep's joint variant of the same layers), one fine-tuned
with two linear layers, and one fine-tuned as a whole (against the last evaluation of finetune.h5). transformers must load
each without missing or unexpected tensors, its tokenizer must give the corpus's tokens, and the perplexities must agree to
1e-5 relative. Exits 1 otherwise.
"""

import argparse
import os
import shutil
import subprocess
import sys

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

EVALUATION, WINDOW, LINEAR, TUNED = (12000, 20000), 64, [1, 3, 4, 6], [2, 3]


class Checks:
    def __init__(self):
        self.failed = 0

    def __call__(self, name, value, bound):
        self.failed += not value <= bound
        print(f"{'ok  ' if value <= bound else 'FAIL'} {name}: {value:.3e} (bound {bound:.1e})", flush=True)


def listed(numbers):
    return str(list(numbers)).replace(" ", "")


def program(o, job, out, *settings):
    base = [f"model.path={o.model}", f"corpora.main.path={o.text}", "corpora.main.format=text", "protocol.kind=stream",
            f"protocol.window={WINDOW}", f"output.dir={out}", "ranges.fit.tokens=[0,8000]",
            "ranges.validation.tokens=[8000,10000]", f"ranges.evaluation.tokens={listed(EVALUATION)}",
            "bootstrap.resamples=100"]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    parallel = ["mpirun", "--oversubscribe", "-n", str(o.ranks)] if o.ranks > 1 else []
    subprocess.run([*parallel, o.program, job, *base, *settings], check=True, env=environment, stdout=subprocess.DEVNULL,
                   stderr=subprocess.DEVNULL)


@torch.no_grad()
def evaluate(directory, tokens, check, name):
    """Perplexity of the evaluation range by stock transformers, in float32 with float64 sums of the losses."""
    model, told = AutoModelForCausalLM.from_pretrained(directory, output_loading_info=True)
    model.eval()
    check(f"{name}: tensors missing, unexpected or of another shape",
          sum(len(told[k]) for k in ("missing_keys", "unexpected_keys", "mismatched_keys")), 0)
    total = count = 0
    for first in range(EVALUATION[0], EVALUATION[1], WINDOW):
        ids = tokens[first:min(first + WINDOW, EVALUATION[1])][None]
        logits = model(ids).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, ids[0, 1:], reduction="sum").item()
        count += ids.shape[1] - 1
    return np.exp(total / count)


def compare(check, name, directory, tokens, own):
    ppl = evaluate(directory, tokens, check, name)
    check(f"{name}: perplexity", abs(own / ppl - 1), 1e-5)
    print(f"     {ppl:.6f} by transformers, {own:.6f} by the program")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("work")
    p.add_argument("--ranks", type=int, default=1)
    o = p.parse_args()
    check = Checks()
    shutil.rmtree(o.work, ignore_errors=True)

    out = f"{o.work}/linear"
    program(o, "tokenize", out)
    with h5py.File(f"{out}/tokens.main.stream.h5") as f:
        tokens = torch.tensor(f["tokens"][()].astype(np.int64))
    program(o, "fit", out, "fit.spectrum=false")
    program(o, "sweep", out, "fit.spectrum=false", f"sweep.joint=({listed(LINEAR)})", "sweep.single=false")
    program(o, "export", out, f"export.layers={listed(LINEAR)}")
    with h5py.File(f"{out}/sweep.h5") as f:
        full, joint = np.exp(f["nll"][()].astype(np.float64).mean(axis=1))[[0, 1]]
    compare(check, "four linear layers", f"{out}/export", tokens, joint)
    check("four linear layers: 1 / their effect", 1 / abs(joint / full - 1), 1e3)
    with open(o.text, encoding="utf-8") as f:
        start = f.read(20000)
    ids = AutoTokenizer.from_pretrained(f"{out}/export")(start)["input_ids"][:1000]
    check("tokens that differ from the program's", float(np.sum(np.array(ids) != tokens[:1000].numpy())), 0)

    for plan in ("linearize", "control_study"):
        tuned = f"{o.work}/{plan}"
        os.makedirs(tuned)
        shutil.copy(f"{out}/tokens.main.stream.h5", tuned)
        program(o, "finetune", tuned, f"finetune.plan={plan}", f"finetune.layers={listed(TUNED)}",
                "finetune.tokens=[20000,40000]", "finetune.length=64", "finetune.sequences=4", "finetune.steps=20",
                "finetune.rate=3e-4", "finetune.evaluate_every=0")
        program(o, "export", tuned, f"export.state={tuned}/finetune.model.h5")
        with h5py.File(f"{tuned}/finetune.h5") as f:
            own = np.exp(f["evaluation/nll"][-1].astype(np.float64).mean())
        compare(check, f"fine-tuned ({plan})", f"{tuned}/export", tokens, own)
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()
