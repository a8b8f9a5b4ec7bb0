"""Compares `wanamaker finetune` with the same training in PyTorch and transformers.

    finetune_compare.py WANAMAKER MODEL_DIR TEXT WORK_DIR [--ranks P]

Both start from the same model and see the same tokens: the plan control_study (everything trains), the plan linearize (two
layers are the program's surrogates and frozen, as are positions and an untied token embedding) and the gates' phase of the
plan two_phase, each for 50 steps of 4 x 64 tokens without dropout, with AdamW, clipping at 1 and a cosine. torch's side is
torch.optim.AdamW, CosineAnnealingLR and clip_grad_norm_ in float32. Exits 1 unless losses agree to 1e-4 relative at every
step, gradient norms to 1e-3, and perplexities of the trained model on the evaluation range to 1e-4.
"""

import argparse
import os
import subprocess
import sys

import h5py
import numpy as np
import torch
from transformers import AutoModelForCausalLM

STEPS, SEQUENCES, LENGTH, FIRST, RATE = 50, 4, 64, 20000, 3e-4
EVALUATION, WINDOW, LAYERS = (12000, 14000), 64, (1, 2)


def program(o, out, *settings):
    os.makedirs(out, exist_ok=True)
    base = [f"model.path={o.model}", f"corpora.main.path={o.text}", "corpora.main.format=text", "protocol.kind=stream",
            f"protocol.window={WINDOW}", f"output.dir={out}", "ranges.fit.tokens=[0,8000]",
            "ranges.validation.tokens=[8000,10000]", f"ranges.evaluation.tokens=[{EVALUATION[0]},{EVALUATION[1]}]",
            "bootstrap.resamples=100"]
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    parallel = ["mpirun", "--oversubscribe", "-n", str(o.ranks)] if o.ranks > 1 else []
    subprocess.run([o.program, "tokenize", *base], check=True, env=environment, stderr=subprocess.DEVNULL)
    subprocess.run([*parallel, o.program, "finetune", *base, f"finetune.tokens=[{FIRST},{FIRST + STEPS * SEQUENCES * LENGTH}]",
                    f"finetune.length={LENGTH}", f"finetune.sequences={SEQUENCES}", f"finetune.steps={STEPS}",
                    f"finetune.rate={RATE}", "finetune.dropout=false", "finetune.evaluate_every=0",
                    f"finetune.layers={list(LAYERS)}".replace(" ", ""), *settings],
                   check=True, env=environment, stdout=subprocess.DEVNULL)
    with h5py.File(f"{out}/tokens.main.stream.h5") as f:
        tokens = torch.tensor(f["tokens"][()].astype(np.int64))
    return tokens


class Gated(torch.nn.Module):
    """method.md, section 8: g MLP(x) + (1 - g) (x W + b)."""

    def __init__(self, mlp, line, hidden):
        super().__init__()
        self.mlp, self.line = mlp, line
        d = line.weight.shape[0]
        self.w1, self.w2 = torch.nn.Linear(d, hidden), torch.nn.Linear(hidden, 1)
        self.g = None

    def forward(self, x):
        self.g = torch.sigmoid(self.w2(torch.relu(self.w1(x))))
        return self.g * self.mlp(x) + (1 - self.g) * self.line(x)


def blocks(model):
    return model.transformer.h if hasattr(model, "transformer") else model.gpt_neox.layers


def surrogate(f, layer):
    line = torch.nn.Linear(*f[f"surrogates/{layer}/weight"].shape)
    line.weight.data = torch.tensor(f[f"surrogates/{layer}/weight"][()].T.copy())
    line.bias.data = torch.tensor(f[f"surrogates/{layer}/bias"][()])
    return line.requires_grad_(False)


def frozen(name):
    return "wpe" in name or name == "gpt_neox.embed_in.weight"


def batches(tokens):
    for k in range(STEPS):
        first = FIRST + k * SEQUENCES * LENGTH
        yield tokens[first:first + SEQUENCES * LENGTH].reshape(SEQUENCES, LENGTH)


def train(model, tokens, rate, final, decay, gates=(), penalty=0.0, after=0):
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.AdamW(parameters, lr=rate, weight_decay=decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS, eta_min=final)
    losses, norms = [], []
    for k, ids in enumerate(batches(tokens)):
        optimiser.zero_grad()
        loss = model(ids, labels=ids).loss
        total = loss
        if gates and k >= after:
            total = loss + penalty * torch.stack([g.g.mean() for g in gates]).mean()
        total.backward()
        losses.append(loss.item())
        norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0).item())
        optimiser.step()
        schedule.step()
    return np.array(losses), np.array(norms)


@torch.no_grad()
def perplexity(model, tokens):
    total = count = 0
    for first in range(EVALUATION[0], EVALUATION[1], WINDOW):
        ids = tokens[first:min(first + WINDOW, EVALUATION[1])][None]
        if ids.shape[1] > 1:
            total += model(ids, labels=ids).loss.item() * (ids.shape[1] - 1)
            count += ids.shape[1] - 1
    return np.exp(total / count)


class Checks:
    def __init__(self):
        self.failed = 0

    def __call__(self, name, value, bound):
        self.failed += not value <= bound
        print(f"{'ok  ' if value <= bound else 'FAIL'} {name}: {value:.3e} (bound {bound:.1e})", flush=True)


def compare(check, name, f, first, losses, norms, ppl, row):
    steps = slice(first, first + STEPS)
    check(f"{name}: losses", np.max(np.abs(f["steps/loss"][steps] / losses - 1)), 1e-4)
    check(f"{name}: gradient norms", np.max(np.abs(f["steps/norm"][steps] / norms - 1)), 1e-3)
    check(f"{name}: perplexity", abs(f["evaluation/table"]["ppl"][row] / ppl - 1), 1e-4)
    print(f"     losses {losses[0]:.5f} to {losses[-1]:.5f}, perplexity {ppl:.4f}")


def everything(o, check):
    out = f"{o.work}/control_study"
    tokens = program(o, out, "finetune.plan=control_study")
    model = AutoModelForCausalLM.from_pretrained(o.model).eval()
    losses, norms = train(model, tokens, RATE, RATE / 10, 0.01)
    with h5py.File(f"{out}/finetune.h5") as f:
        compare(check, "control_study", f, 0, losses, norms, perplexity(model, tokens), -1)


def two_phases(o, check):
    out = f"{o.work}/two_phase"
    tokens = program(o, out, "finetune.plan=two_phase", f"finetune.gate_steps={STEPS}", "finetune.gate_rate=3e-3")
    model = AutoModelForCausalLM.from_pretrained(o.model).eval()
    mlps = {}
    with h5py.File(f"{out}/finetune.model.h5") as f:
        for layer in LAYERS:
            mlps[layer] = blocks(model)[layer].mlp.requires_grad_(False)
            blocks(model)[layer].mlp = surrogate(f, layer)
        hidden = f[f"gates/{LAYERS[0]}/b1"].shape[0]
    for name, p in model.named_parameters():
        p.requires_grad_(p.requires_grad and not frozen(name))
    losses, norms = train(model, tokens, RATE, RATE / 10, 0.01)
    with h5py.File(f"{out}/finetune.h5") as f:
        labels = [x.decode() for x in f["evaluation/table"]["name"]]
        compare(check, "linearize", f, 0, losses, norms, perplexity(model, tokens), labels.index("two_phase, end"))
    model.requires_grad_(False)
    gates = []
    with h5py.File(f"{o.work}/start/finetune.model.h5") as f:  # gates as they start
        for layer in LAYERS:
            gate = Gated(mlps[layer], blocks(model)[layer].mlp, hidden)
            gate.w1.weight.data = torch.tensor(f[f"gates/{layer}/w1"][()])
            gate.w1.bias.data = torch.tensor(f[f"gates/{layer}/b1"][()])
            gate.w2.weight.data = torch.tensor(f[f"gates/{layer}/w2"][()])
            gate.w2.bias.data = torch.tensor(f[f"gates/{layer}/b2"][()])
            blocks(model)[layer].mlp = gate
            gates.append(gate)
    losses, norms = train(model, tokens, 3e-3, 0, 0, gates, 0.1, STEPS // 10)
    with h5py.File(f"{out}/finetune.h5") as f:
        compare(check, "gates", f, STEPS, losses, norms, perplexity(model, tokens), labels.index("gates, end"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("model")
    p.add_argument("text")
    p.add_argument("work")
    p.add_argument("--ranks", type=int, default=1)
    o = p.parse_args()
    check = Checks()
    everything(o, check)
    program(o, f"{o.work}/start", "finetune.plan=two_phase", "finetune.gate_steps=0", "finetune.steps=0")
    two_phases(o, check)
    sys.exit(check.failed > 0)


if __name__ == "__main__":
    main()
