#!/usr/bin/env python3
"""Compares the forward pass with transformers in float32.

    python3 model_compare.py FORWARD_TOOL [MODEL_DIRECTORY ...]

Without directories: random models of odd sizes of both families, with sequences of 1, 2, 63 to 65
and 1023 tokens and the maximum. With directories: those models, on random sequences (or the ids in
a text file, one sequence a line, given as --ids FILE).

Bars: max |logit difference| <= 1e-4 max |logit|, mean NLL to 1e-6, and the MLPs' inputs and outputs
to 1e-4 of their largest value.
"""
import argparse
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from transformers import (AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, GPTNeoXConfig,
                          GPTNeoXForCausalLM)

torch.set_num_threads(1)
BAR, NLL_BAR = 1e-4, 1e-6


def run_reference(model, sequences):
    taken = {"x": [], "y": []}

    def hook(_, inputs, output):
        taken["x"].append(inputs[0][0].numpy().copy())
        taken["y"].append(output[0].numpy().copy())

    handles = [m.register_forward_hook(hook) for n, m in model.named_modules() if n.endswith(".mlp")]
    logits, nll, x, y = [], [], [], []
    for ids in sequences:
        taken["x"].clear(), taken["y"].clear()
        with torch.no_grad():
            out = model(torch.tensor(ids)[None].long()).logits[0]
            logp = torch.log_softmax(out.double(), -1)
        loss = np.zeros(len(ids))
        loss[:-1] = -logp[torch.arange(len(ids) - 1), torch.tensor(ids[1:]).long()].numpy()
        logits.append(out.numpy()), nll.append(loss)
        x.append(np.stack(taken["x"])), y.append(np.stack(taken["y"]))
    for handle in handles:
        handle.remove()
    return (np.concatenate(logits), np.concatenate(nll), np.concatenate(x, 1), np.concatenate(y, 1))


def run_ours(tool, directory, sequences, scratch, tile_rows, tile_vocab):
    ids, starts = os.path.join(scratch, "ids.i32"), os.path.join(scratch, "starts.i64")
    np.concatenate(sequences).astype("<i4").tofile(ids)
    np.cumsum([0] + [len(s) for s in sequences]).astype("<i8").tofile(starts)
    subprocess.run([tool, directory, ids, starts, scratch, str(tile_rows), str(tile_vocab), "0"],
                   check=True)
    read = lambda name, dtype: np.fromfile(os.path.join(scratch, name), dtype)
    return read("logits.f32", "<f4"), read("nll.f64", "<f8"), read("x.f32", "<f4"), read("y.f32", "<f4")


def relative(ours, reference):
    return float(np.abs(ours.reshape(reference.shape) - reference).max() / np.abs(reference).max())


def compare(name, tool, directory, model, sequences, tile_rows=512, tile_vocab=4096):
    with tempfile.TemporaryDirectory() as scratch:
        reference = run_reference(model, sequences)
        ours = run_ours(tool, directory, sequences, scratch, tile_rows, tile_vocab)
    targets = max(1, sum(len(s) - 1 for s in sequences))
    logits, x, y = (relative(ours[i], reference[i]) for i in (0, 2, 3))
    nll = abs(ours[1].sum() - reference[1].sum()) / targets
    worst = np.abs(ours[1] - reference[1]).max()
    fine = logits <= BAR and x <= BAR and y <= BAR and nll <= NLL_BAR
    print(f"{name:34s} {sum(map(len, sequences)):6d} tokens  logits {logits:.1e}  x {x:.1e}  y {y:.1e}"
          f"  mean NLL {nll:.1e}  any NLL {worst:.1e}  {'ok' if fine else 'FAILED'}", flush=True)
    return fine


def random_model(config, seed):
    """Weights of the size that training leaves, with biases and norms that matter."""
    kind = GPT2LMHeadModel if isinstance(config, GPT2Config) else GPTNeoXForCausalLM
    torch.manual_seed(seed)
    model = kind._from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if p.dim() == 1:
                p.add_(0.1 * torch.randn(p.shape))
            elif "embed" in name or "wte" in name or "wpe" in name:
                p.copy_(0.2 * torch.randn(p.shape))
            else:
                p.copy_(torch.randn(p.shape) / config.hidden_size ** 0.5)
    return model


def random_cases():
    gpt2 = lambda **k: GPT2Config(**{**dict(n_layer=2, vocab_size=1009, n_positions=1024), **k})
    neox = lambda **k: GPTNeoXConfig(**{**dict(num_hidden_layers=2, vocab_size=1009,
                                               max_position_embeddings=2048), **k})
    yield "gpt2 d=36 h=3 L=1", gpt2(n_embd=36, n_head=3, n_layer=1)
    yield "gpt2 d=60 h=5", gpt2(n_embd=60, n_head=5, n_inner=77)
    yield "gpt2 d=132 h=3 inverse layer", gpt2(n_embd=132, n_head=3, n_layer=4,
                                               scale_attn_by_inverse_layer_idx=True)
    yield "gpt2 d=49 h=1 gelu untied", gpt2(n_embd=49, n_head=1, activation_function="gelu",
                                            tie_word_embeddings=False)
    yield "gpt2 d=768 L=3", gpt2(n_embd=768, n_head=12, n_layer=3, vocab_size=5003)
    yield "neox d=36 h=3 L=1", neox(hidden_size=36, num_attention_heads=3, num_hidden_layers=1,
                                    intermediate_size=144, rotary_pct=0.5)
    yield "neox d=120 h=3", neox(hidden_size=120, num_attention_heads=3, intermediate_size=301)
    yield "neox d=60 h=5 sequential", neox(hidden_size=60, num_attention_heads=5, rotary_pct=1.0,
                                           intermediate_size=240, use_parallel_residual=False)
    yield "neox d=512 h=8 L=3", neox(hidden_size=512, num_attention_heads=8, num_hidden_layers=3,
                                     intermediate_size=2048, vocab_size=5003)


def compare_random(tool):
    fine = True
    for seed, (name, config) in enumerate(random_cases()):
        model = random_model(config, seed)
        longest = config.max_position_embeddings
        rng = np.random.default_rng(seed)
        sequences = [rng.integers(0, config.vocab_size, n) for n in (1, 2, 63, 64, 65, 1023, longest)]
        with tempfile.TemporaryDirectory() as directory:
            model.save_pretrained(directory, safe_serialization=True)
            fine &= compare(name, tool, directory, model, sequences)
            fine &= compare(name + ", tiles", tool, directory, model, sequences[:5], 24, 100)
    return fine


def compare_directory(tool, directory, ids_file):
    # Loaded in float32 before the rotary tables are made, whatever the file's type.
    model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.float32,
                                                 attn_implementation="eager").eval()
    if ids_file:
        with open(ids_file) as f:
            sequences = [np.array(line.split(), dtype=np.int64) for line in f if line.split()]
    else:
        rng = np.random.default_rng(0)
        longest = model.config.max_position_embeddings
        sequences = [rng.integers(0, model.config.vocab_size, n) for n in (1, 2, 65, longest)]
    return compare(os.path.basename(directory.rstrip("/")), tool, directory, model, sequences)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--ids")
    args = parser.parse_args()
    fine = all([compare_directory(args.tool, m, args.ids) for m in args.models]) if args.models \
        else compare_random(args.tool)
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()
