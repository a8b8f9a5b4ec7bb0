#!/usr/bin/env python3
"""Compares ids with the reference (tokenizers) on real text and on generated cases.

    tokenizer_compare.py TOOL [DATA] [--cases N] [--seed S]

TOOL is the program tokenize_tool of the build; DATA (or WM_SHARED_DATA) holds tokenizer_gpt2/, tokenizer_gpt_neox/,
wikitext_test.txt and lambada_test.jsonl. The small tokenizers of tests/data/tokenizer are always
compared. Exits with 1 if anything differs. Every case is also encoded in the parts between the cuts
that wm_tokenizer_can_cut allows, and the starts of tokens are checked against the reference's
offsets where no character was changed.
"""

import argparse
import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import time

from tokenizers import Tokenizer

HERE = pathlib.Path(__file__).parent

TRAPS = [
    "", " ", "  ", "\n", "\r\n", "\u0085", "\u00a0", "\u180e", "\u200b", "\ufeff", "\u00ad", "\u2003", "\u3000",
    "\0", "a\0b", "'s", "'S", " 's", "'re", "'r", "'ll", "'l", "''ve", "don't", "I'd've", "'", "’s", "<|endoftext|>",
    "<|endoftext|", "<|endoftext|><|endoftext|>", "a<|endoftext|>b", "<|padding|>", "e\u0301", "\u00e9", "e\u0323\u0301",
    "e\u0301\u0323", "q\u0315\u0300", "\u212b", "\u1100\u1161\u11a8", "\uac00\u11a8", "\u0344", "\u0958", "\u2126",
    "\U0001d15e", "\u0041\u030a", "\ufb01", "\u01c4", "\u0f73", "\u0301", "\u0301\u0301", "\u1e9b\u0323",
    "\U0001f600", "\U0001f468\u200d\U0001f469", "\U000105d2\u0307", "\U00011382\U000113c9", "\u0915\u093c", "\u09c7\u09be",
    "①", "½", "Ⅷ", "٣", "一二三", "ไทย", "\u20ac", "\U0010ffff", "\ud7ff", "\ue000", "\ufffd", "\t", "\x0b\x0c", "\x1c\x1f",
    "### End", "###", " ### End\n", "a\u030aa", "\u212bx",
    "word", " word", "The", " quick", "1234", " 99", "!!!", " ...", "-", "_", "\u0378", "\u1c89", "\ua7cb", "\u0897",
]
BAD_BYTES = [
    b"\xff", b"\xc0\x80", b"\xc1", b"\xe0\x80\x80", b"\xe0\xa0", b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xf0\x80\x80\x80",
    b"\xf0\x9f\x98", b"\xf4\x90\x80\x80", b"\xf5\x80", b"\x80", b"\xbf\xbf", b"\xc3", b"\xe2\x82", b"\xc3\x28", b"\xf0\x9f\x41",
]


def random_character(rng):
    kind = rng.random()
    if kind < 0.3:
        return chr(rng.randrange(0x20, 0x7F))
    if kind < 0.4:
        return rng.choice(" \n\t\r\u00a0\u2003'")
    if kind < 0.55:
        return chr(rng.randrange(0x300, 0x370))
    if kind < 0.65:
        return chr(rng.randrange(0xA0, 0x250))
    if kind < 0.7:
        return chr(rng.randrange(0x1100, 0x1200))
    while True:
        c = rng.randrange(0x110000) if kind > 0.93 else rng.randrange(0x3400)
        if not 0xD800 <= c < 0xE000:
            return chr(c)


def unicode_case(rng):
    parts = []
    for _ in range(rng.randrange(1, 12)):
        kind = rng.random()
        if kind < 0.3:
            parts.append(rng.choice(TRAPS))
        elif kind < 0.45:
            parts.append(" " * rng.randrange(1, 60))
        elif kind < 0.5:
            parts.append(rng.choice("\n\r\t \u00a0") * rng.randrange(1, 20))
        else:
            parts.extend(random_character(rng) for _ in range(rng.randrange(1, 10)))
    return "".join(parts).encode("utf-8")


def bytes_case(rng):
    if rng.random() < 0.3:
        return rng.randbytes(rng.randrange(1, 40))
    parts = [rng.choice((unicode_case(rng)[:8], rng.choice(BAD_BYTES), b"a", b" ")) for _ in range(rng.randrange(1, 8))]
    return b"".join(parts)


def extreme_cases():
    yield b"a" * 1_000_000
    yield b" " * 1_000_000
    yield b" " * 999_999 + b"x"
    yield b"ab" * 500_000
    yield "\u0301".encode() * 20_000
    yield ("e" + "\u0301\u0323" * 5_000).encode()
    yield b"\n" * 300_001
    yield b"'s" * 100_000
    yield b"<|endoftext|>" * 10_000
    yield b"\xff" * 50_000
    yield "漢字".encode() * 100_000
    yield bytes(200_000)
    yield random.Random(1).randbytes(300_000)
    yield "".join(chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000).encode()


def every_code_point():
    """Each code point between letters, digits, spaces and marks, 64 to a case."""
    points = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    for i in range(0, len(points), 64):
        yield "\n\n".join(f"a{chr(c)}a1{chr(c)}1 {chr(c)} \u0315{chr(c)}\u0327" for c in points[i : i + 64]).encode()


def run_tool(tool, directory, cases, cut):
    blob = b"".join(struct.pack("=I", len(c)) + c for c in cases)
    out = subprocess.run([tool, directory] + ["cut"] * cut, input=blob, stdout=subprocess.PIPE, check=True).stdout
    at = 0
    for _ in cases:
        (n,) = struct.unpack_from("=q", out, at)
        ids = list(struct.unpack_from(f"={n}i", out, at + 8))
        starts = list(struct.unpack_from(f"={n}q", out, at + 8 + 4 * n))
        (replaced,) = struct.unpack_from("=q", out, at + 8 + 12 * n)
        at += 16 + 12 * n
        yield ids, starts, replaced
    assert at == len(out)


def check_starts(text, encoding, starts):
    """The reference's offsets count characters; exact for tokens of plain ASCII text."""
    if not text.isascii():
        return starts == sorted(starts)
    return starts == [a for a, _ in encoding.offsets]


def compare(tool, directory, name, cases):
    """Number of cases that differ."""
    reference = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    reference.no_truncation()
    reference.no_padding()
    reference.post_processor = None  # it would trim offsets
    wrong = 0
    results = zip(run_tool(tool, directory, cases, False), run_tool(tool, directory, cases, True))
    for case, ((ids, starts, replaced), (cut_ids, cut_starts, _)) in zip(cases, results):
        text = case.decode("utf-8", errors="replace")
        encoding = reference.encode(text, add_special_tokens=False)
        added = text.count("\ufffd") - case.count(b"\xef\xbf\xbd")
        good = ids == encoding.ids and cut_ids == ids and cut_starts == starts
        if not good or replaced != added or not check_starts(text, encoding, starts):
            wrong += 1
            if wrong <= 3:
                print("  differs:", ascii(case[:200]), ids[:20], encoding.ids[:20], starts[:20], replaced, added)
    print(f"{os.path.basename(directory)}: {name}: {len(cases)} cases, {wrong} mismatches", flush=True)
    return wrong


def corpora(data):
    wikitext = (data / "wikitext_test.txt").read_bytes()
    lambada = [json.loads(line)["text"].encode() for line in open(data / "lambada_test.jsonl", encoding="utf-8")]
    yield "wikitext at once", [wikitext]
    yield "wikitext by lines", wikitext.splitlines(keepends=True)
    yield "lambada by rows", lambada
    yield "lambada at once", [b"\n".join(lambada)]


def speed(tool, directory, data):
    path = data / "wikitext_test.txt"
    ours = subprocess.run([tool, directory, path], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()
    reference = Tokenizer.from_file(os.path.join(directory, "tokenizer.json"))
    reference.no_truncation()
    text = path.read_text(encoding="utf-8")
    begin = time.perf_counter()
    reference.encode(text)
    seconds = time.perf_counter() - begin
    print(f"{os.path.basename(directory)}: {ours}; reference {len(text.encode()) / seconds / 1e6:.1f} MB/s (first pass)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tool")
    parser.add_argument("data", nargs="?", default=os.environ.get("WM_SHARED_DATA"))
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    directories = sorted(str(p.parent) for p in (HERE / "../data/tokenizer").resolve().glob("*/tokenizer.json"))
    wrong = 0
    data = pathlib.Path(args.data) if args.data else None
    if data:
        directories += [str(data / "tokenizer_gpt2"), str(data / "tokenizer_gpt_neox")]
    for directory in directories:
        rng = random.Random(args.seed)
        wrong += compare(args.tool, directory, "traps", [t.encode() for t in TRAPS] + BAD_BYTES)
        wrong += compare(args.tool, directory, "Unicode", [unicode_case(rng) for _ in range(args.cases)])
        wrong += compare(args.tool, directory, "bytes", [bytes_case(rng) for _ in range(args.cases)])
        wrong += compare(args.tool, directory, "every code point", list(every_code_point()))
        wrong += compare(args.tool, directory, "extremes", list(extreme_cases()))
        if data:
            for name, cases in corpora(data):
                wrong += compare(args.tool, directory, name, cases)
    if data:
        for directory in directories[-2:]:
            speed(args.tool, directory, data)
    print(f"{wrong} mismatches")
    return wrong > 0


if __name__ == "__main__":
    sys.exit(main())
