#!/usr/bin/env python3
"""What has been downloaded for the configurations, whether it is whole, and the commands for what is missing.

    python3 configs/staging.py [--sha256] [--write] [CONFIG.cfg ...]      (default: the six models')

Run it where the study will run: paths in the configurations are relative to there. It needs Python 3.6 and nothing else.
For each model: config.json, its sizes against configs/models/NAME.json where the model is a published one; weights as
safetensors, every tensor by name and shape, and that no file is shorter than its header says; tokenizer; corpora.
--sha256 compares with DIR/SHA256SUMS, which --write makes: so that a copy can be told from what was checked on the login
node. Exit code: 0 all there, 1 something is missing or damaged."""

import hashlib
import json
import os
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
SIX = ["gpt2-medium", "gpt2-large", "pythia-160m", "pythia-410m", "pythia-1b", "pythia-2.8b"]
SIZES = ["model_type", "n_layer", "n_embd", "n_head", "num_hidden_layers", "hidden_size", "num_attention_heads",
         "vocab_size"]


def repository(name):
    if name.startswith("gpt2"):
        return "openai-community/" + name
    return "EleutherAI/" + name if name.startswith("pythia") else None


def paths(config):
    """model.path and the corpora's paths, as the configurations here are written."""
    with open(config, encoding="utf-8") as f:
        text = re.sub(r"(#|//).*", "", f.read())
    model = re.search(r'\bmodel\s*[:=]\s*\{[^}]*?\bpath\s*=\s*"([^"]*)"', text)
    corpora = re.search(r"\bcorpora\s*[:=]\s*\{(.*?)\n\};?", text, re.S)
    found = re.findall(r'\bpath\s*=\s*"([^"]*)"', corpora.group(1)) if corpora else []
    return model.group(1) if model else None, found


def expected(c):
    """Names and shapes of the tensors that the program reads, without prefix."""
    if c["model_type"] == "gpt2":
        d, v, layers = c["n_embd"], c["vocab_size"], c["n_layer"]
        f = c.get("n_inner") or 4 * d
        out = {"wte.weight": [v, d], "wpe.weight": [c.get("n_positions", 1024), d]}
        shapes = {"ln_1": [d], "ln_2": [d], "attn.c_attn": [d, 3 * d], "attn.c_proj": [d, d], "mlp.c_fc": [d, f],
                  "mlp.c_proj": [f, d]}
        where, last = "h.%d.%s", "ln_f"
    else:
        d, v, layers, f = c["hidden_size"], c["vocab_size"], c["num_hidden_layers"], c["intermediate_size"]
        out = {"embed_in.weight": [v, d], "embed_out.weight": [v, d]}
        shapes = {"input_layernorm": [d], "post_attention_layernorm": [d], "attention.query_key_value": [3 * d, d],
                  "attention.dense": [d, d], "mlp.dense_h_to_4h": [f, d], "mlp.dense_4h_to_h": [d, f]}
        where, last = "layers.%d.%s", "final_layer_norm"
    for layer in range(layers):
        for name, shape in shapes.items():
            wide = shape[-1] if c["model_type"] == "gpt2" else shape[0]
            out[where % (layer, name) + ".weight"] = shape
            out[where % (layer, name) + ".bias"] = [wide]
    out[last + ".weight"] = out[last + ".bias"] = [d]
    return out


def is_pointer(path):
    with open(path, "rb") as f:
        return f.read(40).startswith(b"version https://git-lfs")


def read_header(path):
    """Tensors of a safetensors file: name -> shape. ValueError says what is wrong."""
    size = os.path.getsize(path)
    if is_pointer(path):
        raise ValueError("is a Git LFS pointer, not the file (git lfs pull, or download it alone)")
    with open(path, "rb") as f:
        start = f.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else 0
        if not 2 <= length <= min(size - 8, 100 << 20):
            raise ValueError("is no safetensors file, or its begin is damaged")
        try:
            header = json.loads(f.read(length).decode("utf-8"))
        except ValueError:
            raise ValueError("its header is no JSON")
    header.pop("__metadata__", None)
    whole = 8 + length + max([t["data_offsets"][1] for t in header.values()] or [0])
    if whole != size:
        raise ValueError("has %d bytes, its header says %d: the download was cut short" % (size, whole))
    return {name: t["shape"] for name, t in header.items()}


class Model:
    def __init__(self, path):
        self.path, self.name = path, os.path.basename(path.rstrip("/"))
        self.faults, self.files, self.missing, self.tensors = [], [], [], {}

    def has(self, name):
        there = os.path.exists(os.path.join(self.path, name))
        if there:
            self.files.append(name)
        return there

    def fault(self, text, *files):
        self.faults.append(text)
        self.missing += files

    def check_config(self):
        if not self.has("config.json"):
            self.fault("config.json is missing", "config.json")
            return None
        try:
            with open(os.path.join(self.path, "config.json"), encoding="utf-8") as f:
                config = json.load(f)
        except ValueError as e:
            self.fault("config.json is no JSON: %s" % e, "config.json")
            return None
        if config.get("model_type") not in ("gpt2", "gpt_neox"):
            self.fault("config.json: model_type is %r, gpt2 and gpt_neox are read" % config.get("model_type"))
            return None
        known = os.path.join(HERE, "models", self.name + ".json")
        if os.path.exists(known):
            with open(known, encoding="utf-8") as f:
                published = json.load(f)
            for key in SIZES:
                if key in published and config.get(key) != published[key]:
                    self.fault("config.json: %s is %r, that of the published %s is %r"
                               % (key, config.get(key), self.name, published[key]), "config.json")
        return config

    def weight_files(self):
        if self.has("model.safetensors"):
            return ["model.safetensors"]
        if not self.has("model.safetensors.index.json"):
            self.fault("neither model.safetensors nor model.safetensors.index.json is there", "model.safetensors")
            return []
        try:
            with open(os.path.join(self.path, "model.safetensors.index.json"), encoding="utf-8") as f:
                return sorted(set(json.load(f)["weight_map"].values()))
        except (ValueError, KeyError, AttributeError) as e:
            self.fault("model.safetensors.index.json: %s" % e, "model.safetensors.index.json")
            return []

    def check_weights(self, config):
        names = self.weight_files()
        sound = bool(names)
        for name in names:
            if name != "model.safetensors" and not self.has(name):
                self.fault("%s, which the index names, is missing" % name, name)
                sound = False
                continue
            try:
                self.tensors.update(read_header(os.path.join(self.path, name)))
            except (OSError, ValueError, KeyError, TypeError) as e:
                self.fault("%s: %s" % (name, e), name)
                sound = False
        if not sound or config is None:
            return
        prefix = "transformer." if config["model_type"] == "gpt2" else "gpt_neox."
        found = {n[len(prefix):] if n.startswith(prefix) else n: s for n, s in self.tensors.items()}
        wanted = expected(config)
        absent = sorted(n for n in wanted if n not in found)
        other = sorted(n for n in wanted if n in found and list(found[n]) != wanted[n])
        if absent:
            self.fault("%d tensors are missing, %s the first" % (len(absent), absent[0]))
        for name in other[:3]:
            self.fault("%s has the shape %s, config.json says %s" % (name, found[name], wanted[name]))

    def check_tokenizer(self):
        if not self.has("tokenizer.json") and not (self.has("vocab.json") and self.has("merges.txt")):
            self.fault("no tokenizer.json, nor vocab.json and merges.txt", "tokenizer.json")

    def check_sums(self, write):
        place = os.path.join(self.path, "SHA256SUMS")
        sums = {}
        for name in self.files:
            digest = hashlib.sha256()
            with open(os.path.join(self.path, name), "rb") as f:
                for piece in iter(lambda: f.read(1 << 22), b""):
                    digest.update(piece)
            sums[name] = digest.hexdigest()
        if write:
            with open(place, "w", encoding="utf-8") as f:
                f.writelines("%s  %s\n" % (v, k) for k, v in sorted(sums.items()))
            return
        if not os.path.exists(place):
            self.fault("there is no SHA256SUMS to compare with (--write makes it)")
            return
        with open(place, encoding="utf-8") as f:
            for line in f:
                digest, name = line.split(None, 1)
                if sums.get(name.strip()) != digest:
                    self.fault("%s: its SHA-256 is not that of SHA256SUMS" % name.strip(), name.strip())

    def commands(self):
        if not self.missing:
            return []
        source = repository(self.name)
        if source is None:
            return ["# %s is not one of the published models here: copy %s from where it comes from"
                    % (self.path, " ".join(self.missing))]
        out = ["mkdir -p %s" % self.path]
        for name in self.missing:
            out.append("curl -fL --retry 5 -C - -o %s/%s https://huggingface.co/%s/resolve/main/%s"
                       % (self.path, name, source, name))
        return out


def check_model(path, sums, write):
    model = Model(path)
    if not os.path.isdir(path):
        model.fault("the directory is missing", "config.json", "model.safetensors", "tokenizer.json")
    else:
        model.check_weights(model.check_config())
        model.check_tokenizer()
        if (sums or write) and not model.faults:
            model.check_sums(write)
    total = sum(os.path.getsize(os.path.join(path, f)) for f in model.files)
    print("%-28s %s" % (path, "; ".join(model.faults) if model.faults else
                        "whole: %d files, %.2f GB, %d tensors" % (len(model.files), total / 1e9, len(model.tensors))))
    return model


def check_corpus(path):
    fault = None
    if not os.path.exists(path):
        fault = "missing"
    elif os.path.getsize(path) == 0:
        fault = "empty"
    elif is_pointer(path):
        fault = "a Git LFS pointer, not the file"
    print("%-28s %s" % (path, fault or "there: %.2f MB" % (os.path.getsize(path) / 1e6)))
    return fault is None


def main():
    options = [a for a in sys.argv[1:] if a.startswith("-")]
    unknown = [o for o in options if o not in ("--sha256", "--write")]
    if unknown or "-h" in sys.argv or "--help" in sys.argv:
        print(__doc__)
        sys.exit(0 if not unknown or unknown[0] in ("-h", "--help") else 2)
    configs = [a for a in sys.argv[1:] if not a.startswith("-")]
    configs = configs or [os.path.join(HERE, name + ".cfg") for name in SIX]
    models, corpora = [], []
    for config in configs:
        try:
            model, texts = paths(config)
        except OSError as e:
            sys.exit("staging.py: %s" % e)
        models += [model] if model and model not in models else []
        corpora += [t for t in texts if t not in corpora]
    commands, sound = [], True
    for path in models:
        model = check_model(path, "--sha256" in options, "--write" in options)
        sound &= not model.faults
        commands += model.commands()
    for path in corpora:
        if not check_corpus(path):
            sound = False
            commands.append("# %s: see configs/README.md, \"What to download\"" % path)
    if commands:
        print("\non a login node (compute nodes have no way out as a rule), in this directory:\n")
        print("\n".join(commands))
    sys.exit(0 if sound else 1)


main()
