"""Trains the two small models in tests/data and their tokenizers.

    VENV/bin/python tests/oracle/train_demo_models.py --family gpt2 --work WORK --out tests/data/demo_gpt2
    VENV/bin/python tests/oracle/train_demo_models.py --family gpt_neox --work WORK --out tests/data/demo_gpt_neox
    VENV/bin/python tests/oracle/train_demo_models.py --sketch tests/data/demo_train_13grams.bin --work WORK

VENV: see requirements.txt. The text is that of demo_corpus.py. WORK keeps the downloaded packages and, every few minutes,
a checkpoint from which the same command goes on. OUT gets config.json, model.safetensors (float16) and tokenizer.json
at every checkpoint. The last command writes what demo_overlap.py reads.
"""

import argparse
import json
import math
import os
import random
import time

import demo_corpus

WIDTH, LAYERS, HEADS, POSITIONS = 96, 8, 4, 512
INITIAL_SCALE = 0.02 * (768 / WIDTH) ** 0.5  # GPT-2's at its width; MLPs of so small a width begin almost linear at 0.02
TOKENS_PER_STEP = 1024
LENGTHS = ((0.7, 128), (0.85, 256), (1.0, 512))  # (until this part of the run, tokens in a window)
PEAK_RATE, WARMUP, WEIGHT_DECAY = 3e-3, 60, 0.1
DECAYING = 0.3  # the last part of the run, in which the learning rate falls to zero; it is constant before


def train_tokenizer(family, lines):
    """Byte-level BPE in the manner of the family's published tokenizers."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(add_prefix_space=False, trim_offsets=True)
    tokenizer.decoder = decoders.ByteLevel()
    special, size = [], 3071
    if family == "gpt_neox":
        tokenizer.normalizer = normalizers.NFC()
        special, size = ["<|endoftext|>", "<|padding|>"], 2304
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    if family == "gpt_neox":
        tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    else:
        tokenizer.add_special_tokens(["<|endoftext|>"])
    return tokenizer


def create_model(family, tokenizer):
    from transformers import GPT2Config, GPT2LMHeadModel, GPTNeoXConfig, GPTNeoXForCausalLM

    end = tokenizer.token_to_id("<|endoftext|>")
    size = tokenizer.get_vocab_size()
    if family == "gpt2":
        return GPT2LMHeadModel(GPT2Config(
            vocab_size=size, n_positions=POSITIONS, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=end,
            eos_token_id=end, activation_function="gelu_pytorch_tanh",
            initializer_range=INITIAL_SCALE))
    return GPTNeoXForCausalLM(GPTNeoXConfig(
        vocab_size=(size + 127) // 128 * 128, hidden_size=WIDTH, num_hidden_layers=LAYERS, num_attention_heads=HEADS,
        intermediate_size=4 * WIDTH, max_position_embeddings=POSITIONS, rotary_pct=0.25, use_parallel_residual=True,
        hidden_act="gelu", bos_token_id=end, eos_token_id=end,
        initializer_range=INITIAL_SCALE))


class Batches:
    """Windows of the sources' token streams; one window in two starts with a paragraph."""

    def __init__(self, tokenizer, training):
        import torch

        self.streams, self.starts = {}, {}
        for source, lines in training.items():
            ids = tokenizer.encode("\n".join(lines)).ids
            breaks = [i + 1 for i, token in enumerate(ids) if "Ċ" in tokenizer.id_to_token(token)]
            self.streams[source] = torch.tensor(ids)
            self.starts[source] = [i for i in breaks if i + POSITIONS < len(ids)]

    def draw(self, step, length):
        import torch

        generator = random.Random(step)
        rows = []
        for _ in range(TOKENS_PER_STEP // length):
            source = generator.choices(list(demo_corpus.MIXTURE), list(demo_corpus.MIXTURE.values()))[0]
            stream = self.streams[source]
            start = generator.randrange(len(stream) - length)
            if generator.random() < 0.5:
                start = generator.choice(self.starts[source])
            rows.append(stream[start:start + length])
        return torch.stack(rows)


def perplexity(model, tokenizer, lines):
    """Of paragraphs, each alone and cut at POSITIONS tokens."""
    import torch

    total, count = 0.0, 0
    model.eval()
    with torch.no_grad():
        for line in lines:
            ids = tokenizer.encode(line).ids[:POSITIONS]
            if len(ids) < 2:
                continue
            logits = model(torch.tensor([ids])).logits[0, :-1].double()
            total += torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:]), reduction="sum").item()
            count += len(ids) - 1
    return math.exp(total / count)


def publish(model, tokenizer, out):
    """Writes the model's directory as it is shipped."""
    import copy
    import torch

    model = copy.deepcopy(model).half()
    model.config.torch_dtype = torch.float16
    if model.config.model_type == "gpt2":
        model.config.activation_function = "gelu_new"  # the same function; the model trains with the fused one
    model.save_pretrained(out, safe_serialization=True)
    tokenizer.save(os.path.join(out, "tokenizer.json"))
    extra = os.path.join(out, "generation_config.json")
    if os.path.exists(extra):
        os.remove(extra)


def rate(step, steps):
    return PEAK_RATE * min(1.0, (step + 1) / WARMUP, (1 - step / steps) / DECAYING)


def optimiser(model):
    import torch

    matrices = [p for p in model.parameters() if p.dim() > 1]
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": vectors, "weight_decay": 0.0}],
                             lr=PEAK_RATE, betas=(0.9, 0.95))


def train(options):
    import torch

    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    demo, training = demo_corpus.load(os.path.join(options.work, "packages"))
    tokenizer = train_tokenizer(options.family, [line for source, lines in training.items()
                                                 for line in lines * (4 if source == "jargon" else 1)])
    batches = Batches(tokenizer, training)
    print({source: len(stream) for source, stream in batches.streams.items()}, "demo",
          len(tokenizer.encode("\n".join(demo)).ids), flush=True)

    model = create_model(options.family, tokenizer)
    adam = optimiser(model)
    checkpoint, step = os.path.join(options.work, options.family + ".pt"), 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint)
        model.load_state_dict(state["model"])
        adam.load_state_dict(state["adam"])
        step = state["step"]
    begun = saved = time.time()
    mean = None
    model.eval()  # no dropout
    while step < options.steps:
        length = next(length for until, length in LENGTHS if step < until * options.steps)
        for group in adam.param_groups:
            group["lr"] = rate(step, options.steps)
        rows = batches.draw(step, length)
        logits = model(rows).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), rows[:, 1:].reshape(-1))
        adam.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()
        step += 1
        mean = loss.item() if mean is None else 0.95 * mean + 0.05 * loss.item()
        if step % 50 == 0:
            print(f"step {step} of {options.steps}, loss {mean:.4f}, {time.time() - begun:.0f} s", flush=True)
        if step == options.steps or time.time() - saved > 60 * options.minutes:
            torch.save({"model": model.state_dict(), "adam": adam.state_dict(), "step": step}, checkpoint + ".tmp")
            os.replace(checkpoint + ".tmp", checkpoint)
            publish(model, tokenizer, options.out)
            print(f"step {step}: perplexity of the demo's text (every 8th paragraph) "
                  f"{perplexity(model, tokenizer, demo[::8]):.3f}", flush=True)
            saved = time.time()
    print(json.dumps({"family": options.family, "steps": step, "loss": round(mean or math.nan, 4),
                      "demo_perplexity": round(perplexity(model, tokenizer, demo), 3)}), flush=True)


def write_sketch(options):
    _, training = demo_corpus.load(os.path.join(options.work, "packages"))
    sketch = demo_corpus.sketch(training)
    with open(options.sketch, "wb") as file:
        file.write(sketch)
    print(f"{len(sketch) // 4} of the training text's runs")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--family", choices=("gpt2", "gpt_neox"))
    parser.add_argument("--work", required=True)
    parser.add_argument("--out")
    parser.add_argument("--steps", type=int, default=6100)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=5, help="between checkpoints")
    parser.add_argument("--sketch")
    options = parser.parse_args()
    if options.sketch:
        write_sketch(options)
    else:
        train(options)


if __name__ == "__main__":
    main()
