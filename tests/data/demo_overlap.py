"""Checks that a text is disjoint from the demo models' training text, by a sample of the latter's runs of 13 words.

    python3 tests/data/demo_overlap.py TEXT [SKETCH]

SKETCH (default: demo_train_13grams.bin beside this file) holds the upper halves of those 64-bit hashes of the training
text's runs of 13 words (lower case, across lines) that are divisible by 128, sorted, as little-endian 32-bit integers. Of
TEXT's runs as many are looked at; a text that was trained on would be found by all of them. Exit status: 0 disjoint,
1 not, 3 TEXT too short to tell. tests/oracle/overlap_check.py does the same without sampling. Needs Python 3 alone.
"""

import array
import hashlib
import os
import re
import sys

SHARED_WORDS = 13
MODULUS = 128
FEWEST = 100  # sampled runs, below which nothing is said


def sampled_runs(text):
    """(hash, words) of the runs of SHARED_WORDS words whose hash is divisible by MODULUS."""
    words = re.findall(r"\w+", text.lower())
    for i in range(len(words) - SHARED_WORDS + 1):
        run = " ".join(words[i:i + SHARED_WORDS])
        value = int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "big")
        if value % MODULUS == 0:
            yield value, run


def read_sketch(path):
    values = array.array("I")
    with open(path, "rb") as file:
        values.frombytes(file.read())
    if sys.byteorder == "big":
        values.byteswap()
    return set(values)


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    sketch = sys.argv[2] if len(sys.argv) == 3 else os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                                                 "demo_train_13grams.bin")
    trained = read_sketch(sketch)
    with open(sys.argv[1], encoding="utf-8") as file:
        runs = list(sampled_runs(file.read()))
    shared = [run for value, run in runs if value >> 32 in trained]
    for run in shared[:5]:
        print(f"in the training text too: {run}")
    print(f"{sys.argv[1]}: {len(shared)} of {len(runs)} sampled runs of {SHARED_WORDS} words are in the training text "
          f"({len(trained)} sampled)")
    sys.exit(3 if len(runs) < FEWEST else 1 if shared else 0)


if __name__ == "__main__":
    main()
