"""Pretraining from random weights: `wanamaker finetune`, plan pretrain, beside the same in PyTorch and transformers.

    pretrain_compare.py WANAMAKER MODEL_DIR WORK_DIR [--ranks 2] [--threads 1] [--steps N] [--until N]
                        [--only ours|theirs]

MODEL_DIR is one of the demo models: both sides take its config.json and tokenizer, not its weights, and train on the text of
demo_corpus.py by configs/pretrain_demo.cfg. They start from the same weights (`bench.save` writes what the program draws)
and see the same tokens in the same order (theirs up to step --until, by default to the end); theirs is torch.optim.AdamW, clip_grad_norm_ and a warm-up with a cosine in
float32. WORK_DIR keeps both results; a side that is done is not done again.

Two trainings that differ in rounding alone drift apart, slowly at first. Compared are therefore losses of the first 20 steps
one by one, the mean loss of every tenth of the training, and perplexities of the demo's text: of its evaluation range in
windows, as the demo has it, where ours must not be behind the shipped weights of MODEL_DIR, and of paragraphs alone. (The
shipped ones were trained on windows half of which begin with a paragraph, ours on consecutive text.) Exits 1 if a bound
is missed.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LENGTH, SEQUENCES, STEPS = 512, 2, 6100
RATE, WARM_UP, BETAS, DECAY, CLIP, SEED = 3e-3, 60, (0.9, 0.95), 0.1, 1.0, 1  # as in configs/pretrain_demo.cfg
FIRST, TENTHS, EVALUATION = 20, 10, (50000, 100000)


def rate(step, steps):
    """The cosine begins where the warm-up ends."""
    if step < WARM_UP:
        return RATE * (step + 1) / WARM_UP
    return RATE * 0.5 * (1 + math.cos(math.pi * (step - WARM_UP) / (steps - WARM_UP)))


class Program:
    def __init__(self, o):
        self.o = o
        self.out = os.path.join(o.work, "ours")
        self.demo, self.train = os.path.join(o.work, "demo.txt"), os.path.join(o.work, "train.txt")
        self.settings = [os.path.join(ROOT, "configs/pretrain_demo.cfg"), f"model.path={o.model}",
                         f"corpora.train.path={self.train}", f"corpora.demo.path={self.demo}", f"output.dir={self.out}",
                         f"finetune.steps={o.steps}", f"finetune.evaluate_every={max(o.steps // 10, 1)}"]

    def run(self, *arguments, ranks=1):
        environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
        parallel = ["mpirun", "--bind-to", "none", "--oversubscribe", "-n", str(ranks)] if ranks > 1 else []
        subprocess.run([*parallel, self.o.program, *arguments], check=True, env=environment, stdout=subprocess.DEVNULL)

    def prepare(self):
        """Texts, tokens and the weights that both start from."""
        os.makedirs(self.out, exist_ok=True)
        if not os.path.exists(self.train):
            subprocess.run([sys.executable, os.path.join(ROOT, "tests/oracle/demo_corpus.py"), self.train], check=True)
        if not os.path.exists(self.demo):
            subprocess.run(["bash", os.path.join(ROOT, "jobs/demo_text.sh"), self.demo], check=True)
        self.run("tokenize", *self.settings)
        self.start = os.path.join(self.o.work, "start")
        if not os.path.exists(self.start):
            self.run("bench", f"bench.config={self.o.model}/config.json", f"bench.save={self.start}", f"bench.seed={SEED}")
        with h5py.File(f"{self.out}/tokens.train.stream.h5") as f:
            self.tokens = f["tokens"][:self.o.steps * SEQUENCES * LENGTH].astype(np.int64)
        with h5py.File(f"{self.out}/tokens.demo.stream.h5") as f:
            ids = f["tokens"][EVALUATION[0]:EVALUATION[1]].tolist()
        self.windows = [ids[i:i + LENGTH] for i in range(0, len(ids), LENGTH)]
        if len(self.tokens) < self.o.steps * SEQUENCES * LENGTH:
            raise SystemExit(f"{self.train}: {len(self.tokens)} tokens are not enough for {self.o.steps} steps")

    def pretrain(self):
        """(losses, seconds, the model in transformers)."""
        exported = os.path.join(self.out, "export")
        self.run("finetune", *self.settings, f"finetune.seed={SEED}", ranks=self.o.ranks)
        if not os.path.exists(exported):
            self.run("export", *self.settings, f"export.state={self.out}/finetune.model.h5")
        with h5py.File(f"{self.out}/finetune.h5") as f:
            losses, seconds = f["steps/loss"][()], float(f["timing/seconds"][()].sum())
        return losses, seconds, AutoModelForCausalLM.from_pretrained(exported).float().eval()


def theirs(o, program):
    """The same training in PyTorch; goes on from its own last state every thousand steps."""
    torch.set_num_threads(o.threads)
    path = os.path.join(o.work, "theirs.pt")
    model = AutoModelForCausalLM.from_pretrained(program.start).float().eval()  # no dropout
    adam = torch.optim.AdamW(model.parameters(), lr=RATE, betas=BETAS, weight_decay=DECAY)
    losses, seconds = [], 0.0
    if os.path.exists(path):
        state = torch.load(path)
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        losses, seconds = state["losses"], state["seconds"]
    begin = time.perf_counter()
    while len(losses) < o.until:
        step = len(losses)
        ids = torch.tensor(program.tokens[step * SEQUENCES * LENGTH:(step + 1) * SEQUENCES * LENGTH]).view(SEQUENCES, LENGTH)
        for group in adam.param_groups:
            group["lr"] = rate(step, o.steps)
        adam.zero_grad(set_to_none=True)
        loss = model(ids, labels=ids).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        adam.step()
        losses.append(loss.item())
        if len(losses) % 1000 == 0 or len(losses) == o.until:
            now = time.perf_counter()
            seconds, begin = seconds + now - begin, now
            torch.save({"model": model.state_dict(), "adam": adam.state_dict(), "losses": losses, "seconds": seconds},
                       path + ".partial")
            os.replace(path + ".partial", path)
            print(f"PyTorch: step {len(losses)} of {o.until}, loss {np.mean(losses[-100:]):.4f}, {seconds:.0f} s", flush=True)
    return np.array(losses[:o.until]), seconds, model


def paragraphs(directory, text):
    """Ids of the text's paragraphs, each alone and cut at the model's positions."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    with open(text, encoding="utf-8", newline="\n") as file:
        return [tokenizer.encode(line).ids[:LENGTH] for line in file.read().split("\n")]


@torch.no_grad()
def perplexity(model, rows):
    total, count = 0.0, 0
    for ids in rows:
        if len(ids) > 1:
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
            count += len(ids) - 1
    return math.exp(total / count)


def compare(ours, other):
    """{what: (figure, bound)}"""
    n = len(ours) // TENTHS * TENTHS
    difference = np.abs(ours[:n].reshape(TENTHS, -1).mean(1) - other[:n].reshape(TENTHS, -1).mean(1))
    for k in range(TENTHS):
        part = slice(k * n // TENTHS, (k + 1) * n // TENTHS)
        print(f"steps {part.start:5d} to {part.stop:5d}: loss {ours[part].mean():.4f}, PyTorch's {other[part].mean():.4f}")
    return {f"losses of the first {FIRST} steps, relative": (np.max(np.abs(ours[:FIRST] / other[:FIRST] - 1)), 1e-4),
            "mean loss of a tenth of the training, nats": (difference.max(), 0.02)}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("work")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--threads", type=int, default=1)
    p.add_argument("--steps", type=int, default=STEPS)
    p.add_argument("--until", type=int)
    p.add_argument("--only", choices=["ours", "theirs"])
    o = p.parse_args()
    o.until = min(o.until or o.steps, o.steps)
    program = Program(o)
    program.prepare()
    if o.only == "ours":
        program.pretrain()
    if o.only == "theirs":
        theirs(o, program)
    if o.only is not None:
        return
    ours, seconds, model = program.pretrain()
    other, their_seconds, their_model = theirs(o, program)
    checks = compare(ours[:o.until], other)
    shipped_model = AutoModelForCausalLM.from_pretrained(o.model).float().eval()
    figures = {}
    for what, rows in {"windows": program.windows, "paragraphs": paragraphs(o.model, program.demo)}.items():
        mine, reference, shipped = (perplexity(m, rows) for m in (model, their_model, shipped_model))
        figures[what] = (mine, reference, shipped)
        print(f"perplexity of the demo's text, {what}: {mine:.3f}, PyTorch's after {o.until} steps {reference:.3f}, "
              f"the shipped weights' {shipped:.3f}")
        if o.until == o.steps:
            checks[f"perplexity of {what} against PyTorch's, relative"] = (abs(mine / reference - 1), 0.03)
    if o.steps >= STEPS:
        checks["perplexity of windows over the shipped weights'"] = (figures["windows"][0] / figures["windows"][2], 1.03)
    print(f"seconds: {seconds:.0f} ({o.ranks} ranks), PyTorch's {their_seconds:.0f} ({o.threads} threads)")
    for what, (figure, bound) in checks.items():
        print(f"{'ok  ' if figure <= bound else 'FAIL'} {what}: {figure:.3e} (bound {bound:.1e})")
    print(json.dumps({"loss": float(ours[-100:].mean()), "until": o.until, "their_loss": float(other[-100:].mean()),
                      "loss_until": float(ours[max(o.until - 100, 0):o.until].mean()), "perplexities": figures}))
    raise SystemExit(any(not figure <= bound for figure, bound in checks.values()))


if __name__ == "__main__":
    main()
