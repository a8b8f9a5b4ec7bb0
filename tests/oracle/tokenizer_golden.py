#!/usr/bin/env python3
"""Writes tests/data/tokenizer: small byte-level BPE tokenizers and the reference's ids.

    gpt2/        tokenizer.json, merges as strings, one special token that is "normalized"
    gpt2_files/  the same as vocab.json and merges.txt
    neox/        NFC, merges as pairs, added tokens of 2 to 24 spaces
    prefix/      NFC, add_prefix_space, added tokens of both kinds, some not in normal form
    whole/       use_regex = false

    cases.json   texts, in hexadecimal, as some are not UTF-8
    NAME.json    for each case: ids; for ASCII cases the starts of tokens too

Run with the version of tokenizers that tests/oracle/tokenizer_ranges.py was run with:
    python tests/oracle/tokenizer_golden.py
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from tokenizer_compare import BAD_BYTES, TRAPS, bytes_case, unicode_case

OUT = pathlib.Path(__file__).parent / "../data/tokenizer"

TEXT = """The harbour master counted the boats, as he did every evening, and wrote the number down: 17.
He didn't trust the new ledger; it wasn't his. "You'll see," he'd say, "we're counting what we've counted."
    def count(boats):
        return sum(1 for boat in boats if boat.moored)
In 1893, 1904 and 2021 the quay flooded -- the water rose 42 cm in an hour. Café, naïve, Zürich, Ångström;
вечер, море, лодка; 港の船は十七。 The boats' names: "Marie", "Élan", "Nordwind"... They're there; I'm here.
""" * 4


def train(vocab_size, normalizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, show_progress=False, initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=[],
    )
    tokenizer.train_from_iterator(TEXT.splitlines(keepends=True), trainer)
    return tokenizer


def save(tokenizer, name, string_merges):
    document = json.loads(tokenizer.to_str())
    if string_merges:
        document["model"]["merges"] = [m if isinstance(m, str) else " ".join(m) for m in document["model"]["merges"]]
    directory = OUT / name
    directory.mkdir(parents=True, exist_ok=True)
    text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
    (directory / "tokenizer.json").write_text(text, encoding="utf-8")
    return document


def gpt2():
    tokenizer = train(400, None)
    # As in GPT-2, the special token is in the model's vocabulary and "normalized".
    document = json.loads(tokenizer.to_str())
    document["model"]["vocab"]["<|endoftext|>"] = len(document["model"]["vocab"])
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.add_special_tokens([AddedToken("<|endoftext|>", special=True, normalized=True)])
    document = save(tokenizer, "gpt2", True)
    files = OUT / "gpt2_files"
    files.mkdir(exist_ok=True)
    vocab = json.dumps(document["model"]["vocab"], ensure_ascii=False, separators=(",", ":"))
    (files / "vocab.json").write_text(vocab, encoding="utf-8")
    merges = "#version: 0.2\n" + "\n".join(document["model"]["merges"]) + "\n"
    (files / "merges.txt").write_text(merges, encoding="utf-8")


def neox():
    tokenizer = train(420, normalizers.NFC())
    tokenizer.add_special_tokens(["<|endoftext|>", "<|padding|>"])
    tokenizer.add_tokens([AddedToken(" " * n, normalized=True) for n in range(24, 1, -1)])
    save(tokenizer, "neox", False)


def prefix():
    tokenizer = train(330, normalizers.NFC())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<|endoftext|>"])
    tokenizer.add_tokens(
        [
            AddedToken("e\u0301", normalized=False),
            AddedToken("a\u030aa", normalized=True),
            AddedToken("### End", normalized=True),
            AddedToken("###", normalized=True),
            AddedToken("\u212bx", normalized=True),
        ]
    )
    save(tokenizer, "prefix", True)


def whole():
    tokenizer = train(330, None)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    save(tokenizer, "whole", False)


def cases():
    rng = random.Random(20)
    texts = [t.encode() for t in TRAPS] + BAD_BYTES
    texts += [unicode_case(rng) for _ in range(80)] + [bytes_case(rng) for _ in range(60)]
    texts += [
        TEXT[:300].encode(), b"### End of ###\n### End", "\u212bx a\u030aa \u00e5a e\u0301 \u00e9".encode(), b"x" * 100,
        b" " * 50 + b"y", b"ab\r\ncd\r\n\r\n", "\ufeffThe boats".encode(), b"the  <|endoftext|>  boats",
        b"counted" * 40, "".join(c for c in TEXT if c.isalpha())[:400].encode(),
    ]
    return texts


def main():
    gpt2(), neox(), prefix(), whole()
    texts = cases()
    (OUT / "cases.json").write_text(json.dumps([t.hex() for t in texts], indent=0) + "\n")
    for name in ("gpt2", "neox", "prefix", "whole"):
        tokenizer = Tokenizer.from_file(str(OUT / name / "tokenizer.json"))
        tokenizer.post_processor = None
        rows = []
        for text in texts:
            decoded = text.decode("utf-8", errors="replace")
            encoding = tokenizer.encode(decoded, add_special_tokens=False)
            row = {"ids": encoding.ids, "replaced": decoded.count("\ufffd") - text.count(b"\xef\xbf\xbd")}
            if decoded.isascii():
                row["starts"] = [a for a, _ in encoding.offsets]
            rows.append(json.dumps(row, separators=(",", ":")))
        (OUT / f"{name}.json").write_text("[\n" + ",\n".join(rows) + "\n]\n")


if __name__ == "__main__":
    main()
