"""Checks that the demo's text shares no run of 13 words with the demo models' training text: every run, no sampling.

    python3 tests/oracle/overlap_check.py WORK

Extracts both texts from their packages again (downloaded with apt-get into WORK/packages unless they are there), and
checks that tests/data/demo_train_13grams.bin is the sample of that training text and that demo_overlap.py finds what was
trained on. Needs Python 3 alone. Exit status 0: disjoint.
"""

import os
import subprocess
import sys
import tempfile

import demo_corpus

DATA = os.path.join(demo_corpus.ROOT, "tests", "data")


def sampled_check(lines):
    """Exit status of demo_overlap.py on the lines."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".txt") as file:
        file.write("\n".join(lines))
        file.flush()
        return subprocess.run([sys.executable, os.path.join(DATA, "demo_overlap.py"), file.name],
                              stdout=subprocess.DEVNULL, check=False).returncode


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    demo, training = demo_corpus.load(os.path.join(sys.argv[1], "packages"))
    demo_runs = {run for run, _ in demo_corpus.word_runs(demo)}
    trained = {run for lines in training.values() for run, _ in demo_corpus.word_runs(lines)}
    with open(os.path.join(DATA, "demo_train_13grams.bin"), "rb") as file:
        sketch = file.read()
    failures = [what for what, good in (
        ("the texts share runs of words", not demo_runs & trained),
        ("demo_train_13grams.bin is not the sample of the training text", sketch == demo_corpus.sketch(training)),
        ("demo_overlap.py finds an overlap in the demo's text", sampled_check(demo) == 0),
        ("demo_overlap.py does not find the Jargon File's training part", sampled_check(training["jargon"]) == 1),
        ("demo_overlap.py does not find a tenth of it", sampled_check(demo + training["jargon"][::10]) == 1),
    ) if not good]
    print(f"demo: {len(demo_runs)} runs of {demo_corpus.SHARED_WORDS} words; training text: {len(trained)}; "
          f"shared: {len(demo_runs & trained)}")
    for failure in failures:
        print(f"FAILED: {failure}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
