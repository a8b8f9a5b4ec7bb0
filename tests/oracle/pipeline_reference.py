"""An independent statement of the pipeline (method.md, sections 1 to 3) in numpy and transformers.

    VENV/bin/python tests/oracle/pipeline_reference.py MODEL_DIR TEXT --protocol documents --fit 0 10000 \
        --eval 50000 60000 --out out.json [--npz out.npz] [--lambda 0.01] [--window 512] [--keep-newline] [--jsonl]

For every layer: the ridge surrogate W, b of the MLP (SVD, float64; y ~ x W + b, W is [in, out]) fitted on every position
of the range --fit; R^2 there; and over the predicted positions of the range --eval the negative log-likelihood of each
token with the full model and with that layer's MLP replaced. The model runs in float32, log-sum-exp in float64.

out.json: settings, counts, full and per-layer mean NLL, perplexity, delta_pct, R^2.
out.npz:  W [L, D, D], b [L, D], eval_tokens, eval_lengths, nll_full [N], nll_linear [L, N].
"""

import argparse
import json
import math
import os

import numpy as np
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM


def read_rows(path, jsonl, keep_newline):
    with open(path, "rb") as file:
        lines = file.read().decode("utf-8", "replace").split("\n")
    if lines[-1] == "":
        lines.pop()
    if jsonl:
        rows = [json.loads(line)["text"] for line in lines if line.strip()]
    else:
        rows = [line[:-1] if line.endswith("\r") else line for line in lines]
    if keep_newline:
        rows = [(row if row.endswith("\n") else row + "\n") if row.strip() else "" for row in rows]
    return rows


def document_windows(tokenizer, rows, begin, end, window):
    """Non-blank rows, each encoded alone and cut at `window`; those whose first token is in [begin, end)."""
    windows, number = [], 0
    for row in rows:
        if not row.strip():
            continue
        ids = tokenizer.encode(row, add_special_tokens=False).ids[:window]
        if len(ids) < 2:
            continue
        if begin <= number < end:
            kept = ids[:end - number]
            if len(kept) >= 2:
                windows.append(kept)
        number += len(ids)
    return windows, number


def stream_windows(tokenizer, rows, begin, end, window):
    ids = tokenizer.encode("\n".join(rows), add_special_tokens=False).ids
    return [ids[i:min(i + window, end)] for i in range(begin, end, window)], len(ids)


def mlps(model):
    """The MLP modules, first layer first."""
    if model.config.model_type == "gpt2":
        return [block.mlp for block in model.transformer.h]
    if model.config.model_type == "gpt_neox":
        return [block.mlp for block in model.gpt_neox.layers]
    raise ValueError(f"unknown family {model.config.model_type}")


def run(model, ids):
    """Negative log-likelihood of ids[1:], float64."""
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="none").numpy()


def collect(model, windows):
    """MLP inputs and outputs at every position of the windows, float64: [L][N, D] each."""
    blocks = mlps(model)
    inputs, outputs = [[] for _ in blocks], [[] for _ in blocks]

    def hook(layer):
        def keep(_, args, result):
            inputs[layer].append(args[0][0].double().numpy())
            outputs[layer].append(result[0].double().numpy())
        return keep

    handles = [block.register_forward_hook(hook(layer)) for layer, block in enumerate(blocks)]
    for ids in windows:
        with torch.no_grad():
            model(torch.tensor([ids]))
    for handle in handles:
        handle.remove()
    return [np.concatenate(x) for x in inputs], [np.concatenate(y) for y in outputs]


def ridge(x, y, penalty):
    """W [Dx, Dy], b [Dy] of least |yc - xc W|^2 + penalty |W|^2 with an unpenalised intercept, by SVD of xc."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    u, s, vt = np.linalg.svd(x - x_mean, full_matrices=False)
    weight = vt.T @ ((s / (s * s + penalty))[:, None] * (u.T @ (y - y_mean)))
    return weight, y_mean - x_mean @ weight, s


def r_squared(x, y, weight, bias):
    """1 - residual over total sum of squares, over all outputs together."""
    residual = ((y - x @ weight - bias) ** 2).sum()
    return 1.0 - residual / ((y - y.mean(axis=0)) ** 2).sum()


def linear_losses(model, layer, weight, bias, windows):
    weight, bias = torch.tensor(weight, dtype=torch.float32), torch.tensor(bias, dtype=torch.float32)
    handle = mlps(model)[layer].register_forward_hook(lambda _, args, __: args[0] @ weight + bias)
    losses = np.concatenate([run(model, ids) for ids in windows if len(ids) > 1])
    handle.remove()
    return losses


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--protocol", choices=("documents", "stream"), default="documents")
    parser.add_argument("--fit", nargs=2, type=int, required=True, metavar=("A", "B"))
    parser.add_argument("--eval", nargs=2, type=int, required=True, metavar=("A", "B"))
    parser.add_argument("--lambda", dest="penalty", type=float, default=0.01)
    parser.add_argument("--window", type=int, default=512)
    parser.add_argument("--keep-newline", action="store_true")
    parser.add_argument("--jsonl", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", required=True)
    parser.add_argument("--npz")
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    model = AutoModelForCausalLM.from_pretrained(options.model, torch_dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(os.path.join(options.model, "tokenizer.json"))
    tokenizer.no_truncation()
    rows = read_rows(options.text, options.jsonl, options.keep_newline)
    cut = document_windows if options.protocol == "documents" else stream_windows
    fit_windows, available = cut(tokenizer, rows, *options.fit, options.window)
    eval_windows, _ = cut(tokenizer, rows, *options.eval, options.window)
    for name, (begin, end) in (("fit", options.fit), ("eval", options.eval)):
        if not 0 <= begin < end <= available:
            raise SystemExit(f"--{name} {begin} {end}: the text has {available} tokens")

    inputs, outputs = collect(model, fit_windows)
    full = np.concatenate([run(model, ids) for ids in eval_windows if len(ids) > 1])
    perplexity = math.exp(full.mean())
    layers, weights, biases, losses = [], [], [], []
    for layer, (x, y) in enumerate(zip(inputs, outputs)):
        weight, bias, singular = ridge(x, y, options.penalty)
        linear = linear_losses(model, layer, weight, bias, eval_windows)
        layers.append({
            "layer": layer, "nll": linear.mean(), "ppl": math.exp(linear.mean()),
            "delta_pct": 100.0 * (math.exp(linear.mean()) / perplexity - 1.0),
            "r2_fit": r_squared(x, y, weight, bias), "weight_norm": float(np.linalg.norm(weight)),
            "condition": float((singular[0] / singular[-1]) ** 2)})
        weights.append(weight)
        biases.append(bias)
        losses.append(linear)
        print("layer {layer:2d}  ppl {ppl:9.4f}  delta {delta_pct:+8.3f} %  R2 {r2_fit:.4f}".format(**layers[-1]))
    print(f"full      ppl {perplexity:9.4f}  ({len(full)} predictions, {available} tokens in the text)")

    result = {
        "protocol": options.protocol, "window": options.window, "keep_newline": options.keep_newline,
        "lambda": options.penalty, "fit": options.fit, "eval": options.eval, "tokens_in_text": available,
        "fit_positions": len(inputs[0]), "eval_windows": len(eval_windows), "eval_predictions": len(full),
        "nll_full": full.mean(), "ppl_full": perplexity, "layers": layers}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(result, file, indent=1)
        file.write("\n")
    if options.npz:
        np.savez(options.npz, W=np.array(weights), b=np.array(biases), nll_full=full, nll_linear=np.array(losses),
                 eval_tokens=np.concatenate(eval_windows), eval_lengths=[len(ids) for ids in eval_windows])


if __name__ == "__main__":
    main()
