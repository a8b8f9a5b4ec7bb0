#!/usr/bin/env python3
"""Gradients of the golden models of tests/data/model (model_golden.py) by transformers' autograd.

    python3 gradient_golden.py tests/data/model

Writes gradients/CASE/model.safetensors. CASE is MODEL, or MODEL.PATHS with a letter for every layer:
f its MLP, s a surrogate, g a gate between the two; and .study where the MLP of gated layers runs
without gradients. The objective is the mean negative log-likelihood of every next token within the
model's sequences plus, with gates, PENALTY times the mean of g over positions and gated layers; all
in float64. Tensors:
    loss             [1] float64, the objective
    gradient.NAME    float32, NAME without the family's prefix; gate.LAYER.{w1,b1,w2,b2} of gates
    value.NAME       float32 parameters of gates
    surrogate.LAYER.{weight,bias}  float32, weight as [in, out]
"""
import os
import shutil
import sys

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

torch.set_num_threads(1)
torch.set_default_dtype(torch.float64)
PENALTY, HIDDEN = 0.3, 5
CASES = (
    "gpt2_base", "gpt2_untied", "gpt2_no_scale", "gpt2_tiny", "neox_sequential", "neox_tied",
    "neox_no_bias", "neox_quarter", "gpt2_inverse_layer.sf", "gpt2_inverse_layer.gs",
    "gpt2_inverse_layer.gg", "gpt2_inverse_layer.gg.study", "neox_base.g", "neox_sequential.s",
)
# Of these the MLP's first matrix alone, which stands for the derivative of the activation.
ACTIVATIONS = tuple(f"gpt2_act_{a}" for a in (
    "gelu", "gelu_10", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu", "relu2",
    "relu6", "sigmoid", "silu", "tanh"))


class Surrogate(torch.nn.Module):
    def __init__(self, d, generator):
        super().__init__()
        self.weight = (torch.randn(d, d, generator=generator) / d ** 0.5).float().double()
        self.bias = (0.3 * torch.randn(d, generator=generator)).float().double()

    def forward(self, x):
        return x @ self.weight + self.bias


class Gate(torch.nn.Module):
    def __init__(self, mlp, surrogate, study, generator):
        super().__init__()
        self.mlp, self.surrogate, self.study, self.seen = mlp, surrogate, study, []
        d = surrogate.bias.shape[0]

        def parameter(*shape):
            return torch.nn.Parameter(
                (torch.randn(*shape, generator=generator) / shape[-1] ** 0.5).float().double())

        self.w1, self.b1 = parameter(HIDDEN, d), parameter(HIDDEN)
        self.w2, self.b2 = parameter(1, HIDDEN), parameter(1)

    def forward(self, x):
        hidden = torch.relu(x @ self.w1.T + self.b1)
        g = torch.sigmoid(hidden @ self.w2.T + self.b2)
        self.seen.append(g)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.study):
            y = self.mlp(x)
        return g * y + (1 - g) * self.surrogate(x)


def blocks(model):
    return model.transformer.h if hasattr(model, "transformer") else model.gpt_neox.layers


def change_paths(model, paths, study, out):
    """Replaces MLPs; returns the gates by layer."""
    generator, gates = torch.Generator().manual_seed(5), {}
    d = model.config.hidden_size
    for i, path in enumerate(paths):
        if path == "f":
            continue
        block, surrogate = blocks(model)[i], Surrogate(d, generator)
        out[f"surrogate.{i}.weight"] = surrogate.weight.float()
        out[f"surrogate.{i}.bias"] = surrogate.bias.float()
        if path == "g":
            gates[i] = Gate(block.mlp, surrogate, study, generator)
            surrogate = gates[i]
        block.mlp = surrogate
    return gates


def objective(model, gates, expected):
    ids, starts = expected["ids"].long(), expected["starts"].tolist()
    losses = []
    for first, end in zip(starts, starts[1:]):
        logits = model(ids[None, first:end]).logits[0]
        losses.append(torch.nn.functional.cross_entropy(
            logits[:-1], ids[first + 1:end], reduction="none"))
    loss = torch.cat(losses).mean()
    if gates:
        means = [torch.cat(g.seen, 1).mean() for g in gates.values()]
        loss = loss + PENALTY * torch.stack(means).mean()
    return loss


def name_of(name, gates):
    """Our name of a parameter of the changed model."""
    name = name.split(".", 1)[1] if name.startswith(("transformer.", "gpt_neox.")) else name
    parts = name.split(".")
    if len(parts) == 4 and parts[2] == "mlp" and parts[3] in ("w1", "b1", "w2", "b2"):
        return f"gate.{parts[1]}.{parts[3]}"
    return name.replace("mlp.mlp.", "mlp.")


def open_model(path):
    config = AutoConfig.from_pretrained(path)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").double().eval()
    state = load_file(os.path.join(path, "model.safetensors"))
    missing, surplus = model.load_state_dict(state, strict=False)
    assert not surplus and all(config.tie_word_embeddings and "embed_out" in m or m == "lm_head.weight"
                               for m in missing), (missing, surplus)
    model.tie_weights()
    return model


def run(root, case):
    model_name, *rest = case.split(".")
    path = os.path.join(root, model_name)
    model = open_model(path)
    out = {}
    gates = change_paths(model, rest[0] if rest else "", "study" in rest, out)
    expected = load_file(os.path.join(path, "expected", "model.safetensors"))
    loss = objective(model, gates, expected)
    loss.backward()
    out["loss"] = loss.detach()[None]
    for name, p in model.named_parameters():
        name = name_of(name, gates)
        if p.grad is not None and (case not in ACTIVATIONS or ".c_fc.weight" in name):
            out[f"gradient.{name}"] = p.grad.float()
        if name.startswith("gate."):
            out[f"value.{name}"] = p.detach().float()
    target = os.path.join(root, "gradients", case)
    os.makedirs(target)
    save_file({k: v.contiguous().clone() for k, v in out.items()},
              os.path.join(target, "model.safetensors"))
    print(f"{case}: {loss.item():.6f}")


def main():
    root = sys.argv[1]
    shutil.rmtree(os.path.join(root, "gradients"), ignore_errors=True)
    for case in CASES + ACTIVATIONS:
        run(root, case)


if __name__ == "__main__":
    main()
