#!/usr/bin/env python3
"""Builds the golden models of tests/data/model with transformers.

    python3 model_golden.py OUTPUT_DIRECTORY

Each subdirectory is a tiny random model (config.json, model.safetensors) and, in expected/, a
safetensors file with what transformers computes from it in float64:
    ids     [N] int32, sequences one after another      starts [S + 1] int64
    logits  [N, V] float32      nll [N] float64 (0 at the last position of a sequence)
    x, y    [L, N, D] float32: inputs and outputs of the MLPs (some models only)
Variants that differ in config.json alone link to the weights of their base model.
"""
import json
import os
import shutil
import sys

import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

torch.set_num_threads(1)
LENGTHS = (1, 2, 5, 9)  # the longest is the largest position of every model

GPT2 = dict(n_embd=12, n_head=3, n_layer=1, n_inner=20, vocab_size=23, n_positions=9)
NEOX = dict(hidden_size=24, num_attention_heads=3, num_hidden_layers=1, intermediate_size=20,
            vocab_size=23, max_position_embeddings=9, rotary_pct=0.5)
ACTIVATIONS = ("gelu", "gelu_10", "gelu_accurate", "gelu_fast", "gelu_new", "gelu_python",
               "gelu_pytorch_tanh", "laplace", "leaky_relu", "linear", "mish", "quick_gelu", "relu",
               "relu2", "relu6", "sigmoid", "silu", "swish", "tanh")


def randomise(model, seed):
    """Weights large enough that every part of the network matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=generator)
            is_norm = "ln_" in name or "norm" in name
            p.copy_(1 + 0.3 * noise if is_norm and name.endswith("weight") else 0.4 * noise)


def record(model):
    """Hooks that keep the MLPs' inputs and outputs."""
    taken = {"x": [], "y": []}

    def hook(_, inputs, output):
        taken["x"].append(inputs[0][0])
        taken["y"].append(output[0])

    for name, module in model.named_modules():
        if name.endswith(".mlp"):
            module.register_forward_hook(hook)
    return taken


def expect(model, with_mlp, seed):
    generator = torch.Generator().manual_seed(1000 + seed)
    model = model.double().eval()
    taken = record(model)
    ids, logits, nll, x, y = [], [], [], [], []
    for length in LENGTHS:
        sequence = torch.randint(0, model.config.vocab_size, (length,), generator=generator)
        taken["x"].clear(), taken["y"].clear()
        with torch.no_grad():
            torch.set_default_dtype(torch.float64)  # for GPT-NeoX's causal mask
            out = model(sequence[None]).logits[0]
            torch.set_default_dtype(torch.float32)
        logp = torch.log_softmax(out, -1)
        loss = torch.zeros(length, dtype=torch.float64)
        loss[:-1] = -logp[torch.arange(length - 1), sequence[1:]]
        ids.append(sequence), logits.append(out), nll.append(loss)
        x.append(torch.stack(taken["x"])), y.append(torch.stack(taken["y"]))
    starts = torch.tensor([0] + list(LENGTHS)).cumsum(0)
    expected = {"ids": torch.cat(ids).int(), "starts": starts, "logits": torch.cat(logits),
                "nll": torch.cat(nll)}
    if with_mlp:
        expected["x"], expected["y"] = torch.cat(x, 1), torch.cat(y, 1)
    for k in expected.keys() - {"nll"}:
        if expected[k].is_floating_point():
            expected[k] = expected[k].float()
    return {k: v.contiguous() for k, v in expected.items()}


class Builder:
    def __init__(self, out):
        self.out, self.count = out, 0

    def model(self, name, config, edit=None, tensors=None, with_mlp=True, dtype=None, shards=1,
              weights_of=None, seed=None):
        """`edit` changes config.json afterwards, `tensors` the tensors; both get a dict."""
        self.count += 1
        seed = seed if seed is not None else self.count
        kind = GPT2LMHeadModel if isinstance(config, GPT2Config) else GPTNeoXForCausalLM
        model = kind._from_config(config, attn_implementation="eager")
        randomise(model, seed)
        if config.tie_word_embeddings:
            model.tie_weights()
        if dtype is not None:  # rounded weights, computed with in full precision
            for p in model.parameters():
                p.data = p.data.to(dtype).float()
        path = os.path.join(self.out, name)
        os.makedirs(os.path.join(path, "expected"))
        settings = json.loads(config.to_json_string(use_diff=True))
        settings["architectures"] = [kind.__name__]
        (edit or (lambda _: None))(settings)
        with open(os.path.join(path, "config.json"), "w") as f:
            json.dump(settings, f, indent=1, sort_keys=True)
            f.write("\n")
        if weights_of is not None:
            os.symlink(f"../{weights_of}/model.safetensors", os.path.join(path, "model.safetensors"))
        else:
            self.save(path, model, tensors, dtype, shards)
        save_file(expect(model, with_mlp, seed), os.path.join(path, "expected", "model.safetensors"))

    @staticmethod
    def save(path, model, tensors, dtype, shards):
        state = {k: v.detach().clone() for k, v in model.state_dict().items()}
        if model.config.tie_word_embeddings:
            state.pop("lm_head.weight", None), state.pop("embed_out.weight", None)
        if dtype is not None:
            state = {k: v.to(dtype) for k, v in state.items()}
        state = (tensors or (lambda s: s))(state)
        if shards == 1:
            save_file(state, os.path.join(path, "model.safetensors"))
            return
        names, weight_map = sorted(state), {}
        for i in range(shards):
            file = f"model-{i + 1:05d}-of-{shards:05d}.safetensors"
            save_file({k: state[k] for k in names[i::shards]}, os.path.join(path, file))
            weight_map.update({k: file for k in names[i::shards]})
        with open(os.path.join(path, "model.safetensors.index.json"), "w") as f:
            json.dump({"metadata": {}, "weight_map": weight_map}, f, indent=1)


def without_prefix(state):
    return {k.split(".", 1)[1] if k.startswith(("transformer.", "gpt_neox.")) else k: v
            for k, v in state.items()}


def gpt2_buffers(state):
    state["transformer.h.0.attn.bias"] = torch.ones(1, 1, 9, 9, dtype=torch.uint8)
    state["transformer.h.0.attn.masked_bias"] = torch.tensor(-1e4)
    return state


def neox_buffers(state):
    state["gpt_neox.layers.0.attention.bias"] = torch.ones(1, 1, 9, 9, dtype=torch.bool)
    state["gpt_neox.layers.0.attention.masked_bias"] = torch.tensor(-1e9)
    state["gpt_neox.layers.0.attention.rotary_emb.inv_freq"] = torch.ones(2)
    return state


def stored_head(state):
    state["lm_head.weight"] = state["transformer.wte.weight"].clone()
    return state


def drop(*keys):
    return lambda settings: [settings.pop(k, None) for k in keys]


def rename(**names):
    def edit(settings):
        for old, new in names.items():
            settings[new] = settings.pop(old)
    return edit


def gpt2_models(b):
    def config(**changes):
        return GPT2Config(**{**GPT2, **changes})

    b.model("gpt2_deep", config(n_embd=36, n_layer=2, n_inner=30, vocab_size=61), dtype=torch.bfloat16)
    b.model("gpt2_base", config(), seed=1)
    b.model("gpt2_tiny", config(n_embd=5, n_head=1, n_inner=7))
    b.model("gpt2_square", config(n_inner=12))
    b.model("gpt2_four", config(n_inner=None))
    b.model("gpt2_untied", config(tie_word_embeddings=False))
    b.model("gpt2_no_scale", config(scale_attn_weights=False))
    b.model("gpt2_inverse_layer", config(scale_attn_by_inverse_layer_idx=True, n_layer=2))
    b.model("gpt2_epsilon", config(layer_norm_epsilon=0.1), seed=1, weights_of="gpt2_base")
    b.model("gpt2_upcast", config(reorder_and_upcast_attn=True), seed=1, weights_of="gpt2_base")
    b.model("gpt2_names", config(), seed=1, weights_of="gpt2_base",
            edit=rename(n_embd="hidden_size", n_head="num_attention_heads",
                        n_layer="num_hidden_layers", n_positions="max_position_embeddings"))
    b.model("gpt2_f16", config(), dtype=torch.float16)
    b.model("gpt2_bare", config(), tensors=without_prefix)
    b.model("gpt2_buffers", config(), tensors=gpt2_buffers)
    b.model("gpt2_stored_head", config(), tensors=stored_head)
    b.model("gpt2_sharded", config(), shards=3)
    for name in ACTIVATIONS:
        b.model(f"gpt2_act_{name}", config(activation_function=name), seed=1, with_mlp=False,
                weights_of="gpt2_base")


def neox_models(b):
    def config(**changes):
        return GPTNeoXConfig(**{**NEOX, **changes})

    def new_rotary(settings):
        base, part = settings.pop("rotary_emb_base"), settings.pop("rotary_pct")
        settings["rope_parameters"] = {"partial_rotary_factor": part, "rope_theta": float(base),
                                       "rope_type": "default"}

    def quarter(**changes):  # the defaults of rotary_pct and rotary_emb_base
        return config(hidden_size=24, rotary_pct=0.25, **changes)

    b.model("neox_deep", config(hidden_size=36, num_hidden_layers=2, intermediate_size=30,
                                vocab_size=61), dtype=torch.float16)
    b.model("neox_base", config(), seed=2)
    b.model("neox_sequential", config(use_parallel_residual=False), seed=2, weights_of="neox_base")
    b.model("neox_absent", config(), seed=2, weights_of="neox_base",
            edit=drop("use_parallel_residual", "attention_bias", "layer_norm_eps", "hidden_act"))
    b.model("neox_no_bias", config(attention_bias=False))
    b.model("neox_tied", config(tie_word_embeddings=True))
    b.model("neox_full_rotary", config(rotary_pct=1.0), seed=2, weights_of="neox_base")
    b.model("neox_no_rotary", config(rotary_pct=0.0), seed=2, weights_of="neox_base")
    b.model("neox_quarter", quarter(), seed=2, weights_of="neox_base")
    b.model("neox_quarter_absent", quarter(), seed=2, weights_of="neox_base",
            edit=drop("rotary_pct", "rotary_emb_base"))
    b.model("neox_rotary_base", config(rotary_emb_base=100), seed=2, weights_of="neox_base")
    b.model("neox_rope_parameters", config(rotary_emb_base=100), seed=2, weights_of="neox_base",
            edit=new_rotary)
    b.model("neox_rope_beside", config(rotary_emb_base=100), seed=2, weights_of="neox_base",
            edit=rename(rotary_emb_base="rope_theta", rotary_pct="partial_rotary_factor"))
    b.model("neox_epsilon", config(layer_norm_eps=0.1), seed=2, weights_of="neox_base")
    b.model("neox_f16", config(), dtype=torch.float16)
    b.model("neox_bf16", config(), dtype=torch.bfloat16)
    b.model("neox_bare", config(), tensors=without_prefix)
    b.model("neox_buffers", config(), tensors=neox_buffers)
    b.model("neox_sharded", config(), shards=2)
    for name in ("gelu_new", "relu", "silu"):
        b.model(f"neox_act_{name}", config(hidden_act=name), seed=2, with_mlp=False,
                weights_of="neox_base")


def main():
    out = sys.argv[1]
    for entry in os.listdir(out):
        if entry.startswith(("gpt2_", "neox_")):
            shutil.rmtree(os.path.join(out, entry))
    builder = Builder(out)
    gpt2_models(builder)
    neox_models(builder)


if __name__ == "__main__":
    main()
