#!/usr/bin/env python3
"""AdamW, clipping and the cosine schedule by torch, for tests/unit/test_train_*.c.

    python3 optimiser_golden.py tests/data

Writes train/trajectory/model.safetensors, fifty steps of two golden models (model_golden.py) in
float64, each step on all of the model's sequences:
    MODEL.loss, MODEL.norm  [50] float64 mean NLL before each step, and gradient norms
and train/adamw/model.safetensors: 50 steps of two tensors in float32 with CosineAnnealingLR and
clip_grad_norm_, gradients made of noise and of what the parameters are.
    start.{a,b}, end.{a,b}  float32 parameters before and after
    gradient.{a,b}          [50, n] float32, before clipping
    norm, rate              [50] float64 gradient norms and learning rates
Settings: rate 3e-2, eta_min 3e-3, T_max 50, weight decay 0.01, clip 1.
"""
import os
import sys

import torch
from gradient_golden import objective, open_model
from safetensors.torch import load_file, save_file

torch.set_num_threads(1)
STEPS = 50


def trajectory(root, name, out):
    model = open_model(os.path.join(root, "model", name))
    expected = load_file(os.path.join(root, "model", name, "expected", "model.safetensors"))
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, foreach=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS, eta_min=1e-3)
    losses, norms = [], []
    for _ in range(STEPS):
        optimiser.zero_grad()
        loss = objective(model, {}, expected)
        loss.backward()
        losses.append(loss.detach())
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0))
        optimiser.step()
        schedule.step()
    out[f"{name}.loss"], out[f"{name}.norm"] = torch.stack(losses), torch.stack(norms)
    print(name, losses[0].item(), losses[-1].item())


def write(root, name, tensors):
    target = os.path.join(root, "train", name)
    os.makedirs(target, exist_ok=True)
    save_file({k: v.contiguous() for k, v in tensors.items()},
              os.path.join(target, "model.safetensors"))


def main():
    torch.set_default_dtype(torch.float64)
    out = {}
    for name in ("gpt2_inverse_layer", "neox_sequential"):
        trajectory(sys.argv[1], name, out)
    write(sys.argv[1], "trajectory", out)
    torch.set_default_dtype(torch.float32)
    generator = torch.Generator().manual_seed(4)
    a = torch.nn.Parameter(torch.randn(5, 7, generator=generator))
    b = torch.nn.Parameter(torch.randn(11, generator=generator))
    out = {"start.a": a.detach().clone(), "start.b": b.detach().clone()}
    optimiser = torch.optim.AdamW([a, b], lr=3e-2, weight_decay=0.01, foreach=False)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS, eta_min=3e-3)
    gradients, norms, rates = {"a": [], "b": []}, [], []
    for step in range(STEPS):
        for name, p in (("a", a), ("b", b)):
            # About half of the steps are clipped.
            noise = torch.randn(p.shape, generator=generator) * (0.02 if step % 2 else 0.5)
            p.grad = 0.1 * p.detach() + noise
            gradients[name].append(p.grad.flatten().clone())
        norms.append(torch.nn.utils.clip_grad_norm_([a, b], 1.0).double())
        rates.append(optimiser.param_groups[0]["lr"])
        optimiser.step()
        schedule.step()
    out.update({f"gradient.{k}": torch.stack(v) for k, v in gradients.items()})
    out.update({"end.a": a.detach().clone(), "end.b": b.detach().clone(),
                "norm": torch.stack(norms), "rate": torch.tensor(rates, dtype=torch.float64)})
    write(sys.argv[1], "adamw", out)


if __name__ == "__main__":
    main()
