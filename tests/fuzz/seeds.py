#!/usr/bin/env python3
"""Writes the first inputs of the fuzz targets: seeds.py OUT makes OUT/TARGET/*, from tests/data and
from small hand-made files. The layout of each target's input is in the head of its source."""
import json
import pathlib
import struct
import sys

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
SEPARATOR, BYTE_TOKENS = b"\x1e", b"\x1d"


class Seeds:
    def __init__(self, out):
        self.out, self.count = pathlib.Path(out), 0

    def add(self, target, *files):
        directory = self.out / target
        directory.mkdir(parents=True, exist_ok=True)
        self.count += 1
        (directory / f"seed{self.count:03d}").write_bytes(
            SEPARATOR.join(f if isinstance(f, bytes) else f.encode() for f in files))


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def safetensors(seeds):
    for name in ("gpt2_tiny", "gpt2_f16", "gpt2_buffers"):
        seeds.add("safetensors", (DATA / "model" / name / "model.safetensors").read_bytes())
    headers = [
        {"a": tensor("F32", [4], 0, 16)},
        {"__metadata__": {"format": "pt"}, "a": tensor("F16", [2, 2], 0, 8), "b": tensor("BF16", [4], 8, 16)},
        {"__metadata__": {}, "a": tensor("F64", [1, 1, 2], 0, 16), "e": tensor("I8", [0, 3], 16, 16)},
        {"a": tensor("I64", [], 0, 8), "b": tensor("U8", [4], 8, 12), "c": tensor("BOOL", [4], 12, 16)},
    ]
    for header in headers:
        text = json.dumps(header).encode()
        seeds.add("safetensors", b"H\x04" + text)
        seeds.add("safetensors", b"H\x04" + text + b"   ")
        seeds.add("safetensors", struct.pack("<Q", len(text)) + text + bytes(16))


def index(seeds):
    a, b = {"x": tensor("F32", [4], 0, 16)}, {"y": tensor("F16", [8], 0, 16)}
    for weight_map in ({"x": "a", "y": "b"}, {"x": "a"}, {"x": "b", "y": "b"}, {"x": "../a"}, {"x": "c"}):
        seeds.add("index", json.dumps({"metadata": {"total_size": 32}, "weight_map": weight_map}),
                  json.dumps(a), json.dumps(b))
    seeds.add("index", json.dumps({"weight_map": {"x": "a", "y": "b"}}), json.dumps(a), json.dumps({**a, **b}))


def arch(seeds):
    for path in sorted((DATA / "model").glob("*/config.json")):
        if path.parent.name in ("gpt2_base", "gpt2_names", "neox_base", "neox_rope_parameters",
                                "neox_rope_beside", "neox_absent", "neox_quarter_absent"):
            seeds.add("arch", path.read_bytes())
    seeds.add("arch", '{"model_type": "gpt2"}')
    seeds.add("arch", '{"model_type": "gpt_neox", "rotary_pct": 0.5, "rope_scaling": null}')


def tokenizers(seeds):
    text = "ab abc\n<|x|> caf\u00e9 e\u0301"
    for name in ("gpt2", "neox", "prefix", "whole"):
        seeds.add("tokenizer_json", (DATA / "tokenizer" / name / "tokenizer.json").read_bytes(), text)
    pair = DATA / "tokenizer" / "gpt2_files"
    seeds.add("merges", (pair / "vocab.json").read_bytes(), (pair / "merges.txt").read_bytes(), text)
    seeds.add("merges", b'{' + BYTE_TOKENS + b',"ab":256,"abc":257,"<|endoftext|>":258}',
              "#version: 0.2\na b\r\nab c\n", text)
    vocab = b'{' + BYTE_TOKENS + b',"ab":256,"abc":257,"\xc4\xa0a":258}'
    for merges in (b'["a b","ab c","\xc4\xa0 a"]', b'[["a","b"],["ab","c"]]'):
        for pre in (b'{"type":"ByteLevel","add_prefix_space":false,"use_regex":true}',
                    b'{"type":"ByteLevel","add_prefix_space":true,"use_regex":false}',
                    b'{"type":"Sequence","pretokenizers":[{"type":"ByteLevel","add_prefix_space":false}]}'):
            for added in (b'{"id":259,"content":"<|x|>","special":true}',
                          b'{"id":258,"content":"\xc4\xa0a","normalized":true}',
                          b'{"id":259,"content":"e\xcc\x81","normalized":true},{"id":260,"content":"\xc3\xa9","normalized":false}'):
                seeds.add("tokenizer_json",
                          b'{"version":"1.0","normalizer":{"type":"NFC"},"pre_tokenizer":' + pre +
                          b',"added_tokens":[' + added + b'],"model":{"type":"BPE","dropout":null,"vocab":' +
                          vocab + b',"merges":' + merges + b'}}', text)


def encode(seeds):
    cases = json.loads((DATA / "tokenizer" / "cases.json").read_text())
    for i, case in enumerate(cases):
        seeds.add("encode", bytes([i % 7, i % 4]) + bytes.fromhex(case)[:2000])
    for which in range(7):
        seeds.add("encode", bytes([which, 0]) + b"a \xff\xe2\x82 b<|end\n\r\n oftext|>\xf0\x9f\x98\x80 \xcc\x81")


def rows(seeds):
    lines = [b'{"text": "one"}\n{"text": "two\\n", "n": 1e3}\r\n\n{"text":"\\ud83d\\ude00 \\ud800 \xff"}',
             b'\xef\xbb\xbf{"text":"= T ="}\n {"a":[1,{"b":null}],"text":"\xc3\xa9"}  \n',
             b' = Title = \n\n text\r\n = = deeper = = \nlast', b'\n\n \xc2\xa0\n', b'{"text": 1}', b'[1]', b'x']
    for i, text in enumerate(lines):
        for options in (0, 1, 2, 3, 0x80, 0x83):
            seeds.add("rows", bytes([options | i << 3 & 0x7c]) + text)


def npy(seeds):
    for descr, code in (("<u2", "H"), ("<i4", "i"), ("<u4", "I"), ("<i8", "q"), (">i4", "i")):
        for major, length in ((1, "<H"), (2, "<I"), (3, "<I")):
            header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': (3,), }}"
            header = header.encode().ljust(61) + b"\n"
            seeds.add("npy", b"\x93NUMPY" + bytes([major, 0]) + struct.pack(length, len(header)) + header +
                      struct.pack("<3" + code, 1, 2, 300))


def config(seeds):
    text = b"""# comment
model: { path = "m"; };
corpora: { wiki: { path = "a.txt"; format = "text"; keep = true; }; b: { path = "b\\n\\x41"; }; };
ranges: { overlap = true; fit: { tokens = [0, 10000000000L]; }; };
fit: { lambda = 1e-2; lambdas = [0.5, 1.0]; block = 64; }; /* block
*/ sweep: { groups = ([1, 2], [3]); }; // end
seed = -7;
"""
    seeds.add("config", text)
    seeds.add("config", text, "fit.lambda=3", "seed=12L", "sweep.groups=([1],[2,3])", "corpora.c.path=x=y")
    seeds.add("config", "", "fit.lambdas=[1.0, 2.5]", "model.path=\"q\\\"\"", "corpora.wiki.format=jsonl")
    seeds.add("config", "fit.lambda = 1;", "fit.lambda", "=", "corpora.*.path=a")
    for path in sorted((DATA.parent.parent / "configs").glob("demo*.cfg")):
        seeds.add("config", path.read_bytes())


def main():
    seeds = Seeds(sys.argv[1])
    for make in (safetensors, index, arch, tokenizers, encode, rows, npy, config):
        make(seeds)


main()
