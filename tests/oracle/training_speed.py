"""Speed of a training step: `wanamaker bench` (part training) against transformers, on the same cores.

    training_speed.py WANAMAKER [--config configs/models/gpt2-medium.json] [--ranks 2] [--threads 2] [--sequences 8]
                      [--length 512] [--pass 4] [--rounds 2] [--bar 1.2] [--work DIR] [--compute f32] [--clock wall]
                      [--json out.json]

Both train all parameters of a model with random weights: forward and backward pass of `sequences` x `length` random tokens
with the dropout of config.json, `pass` sequences at a time with accumulated gradients, clipping at 1, AdamW. Theirs is
eager PyTorch with `threads` threads: scaled_dot_product_attention, and torch.optim.AdamW(fused=True), the fastest that
there is for a CPU; with --compute bf16 under torch.autocast. Ours is `ranks` processes of one thread. They take turns
--rounds times; one step goes before each of theirs, and the bench has its own; the best step of each counts, because
whatever else runs can only make it longer; with --clock processor a step's time is the processor's, of all threads by
their number, for a machine on which others work too. Exits 1 if ours has less than `bar` times the tokens/s.
"""

import argparse
import contextlib
import json
import os
import re
import subprocess
import sys
import time

import torch
from transformers import AutoConfig, AutoModelForCausalLM


def arguments():
    p = argparse.ArgumentParser()
    p.add_argument("program")
    p.add_argument("--config", default="configs/models/gpt2-medium.json")
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--sequences", type=int, default=8)
    p.add_argument("--length", type=int, default=512)
    p.add_argument("--pass", dest="each", type=int, default=4)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--bar", type=float, default=1.2)
    p.add_argument("--work", default="build/training_speed")
    p.add_argument("--compute", default="f32", choices=["f32", "bf16", "bf16_emulated"])
    p.add_argument("--clock", default="wall", choices=["wall", "processor"])
    p.add_argument("--json")
    return p.parse_args()


def ours(o):
    """Seconds of the best step, from the bench's table."""
    environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMP_NUM_THREADS="1")
    os.makedirs(o.work, exist_ok=True)
    run = subprocess.run(["mpirun", "--bind-to", "none", "-n", str(o.ranks), o.program, "bench", f"bench.config={o.config}",
                          f"output.dir={o.work}", "bench.parts=training", f"bench.window={o.length}",
                          f"bench.sequences={o.sequences}", f"finetune.pass_tokens={o.each * o.length}",
                          f"compute.type={o.compute}", f"bench.clock={o.clock}", "bench.repeat=2", "bench.seconds=0"],
                         check=True, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    row = re.search(rf"^{o.ranks} +{o.sequences * o.length} +([0-9.]+) ", run.stdout, re.M)
    return float(row.group(1))


def theirs(o):
    torch.manual_seed(1)
    torch.set_num_threads(o.threads)
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(o.config), attn_implementation="sdpa")
    model.float().train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.01, fused=True)
    ids = torch.randint(model.config.vocab_size, (o.sequences, o.length))
    best = float("inf")

    def clock():
        return time.perf_counter() if o.clock == "wall" else time.process_time() / o.threads

    context = contextlib.nullcontext
    if o.compute == "bf16":
        def context():
            return torch.autocast("cpu", dtype=torch.bfloat16)
    for k in range(2):  # the first one warms up
        begin = clock()
        optimiser.zero_grad()
        for first in range(0, o.sequences, o.each):
            part = ids[first:first + o.each]
            with context():
                loss = model(part, labels=part).loss
            (loss * (len(part) / o.sequences)).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        if k > 0:
            best = min(best, clock() - begin)
    return best


def main():
    o = arguments()
    tokens = o.sequences * o.length
    mine, other = [], []
    for k in range(o.rounds):
        mine.append(ours(o))
        other.append(theirs(o))
        print(f"round {k + 1}: ours {mine[-1]:.2f} s, theirs {other[-1]:.2f} s a step", flush=True)
    ratio = min(other) / min(mine)
    print(f"{o.config}, {o.sequences} x {o.length} tokens a step, {o.compute}, {o.clock} clock: ours {tokens / min(mine):.1f} tokens/s on {o.ranks} "
          f"ranks, transformers (torch {torch.__version__}, {o.threads} threads) {tokens / min(other):.1f}: "
          f"{ratio:.3f} times (bar {o.bar})")
    if o.json:
        with open(o.json, "w") as f:
            json.dump({"ours": mine, "theirs": other, "tokens": tokens, "ratio": ratio}, f)
    sys.exit(ratio < o.bar)


if __name__ == "__main__":
    main()
