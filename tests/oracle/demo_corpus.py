"""Text of the demo models: public-domain English from Debian packages, cleaned to one paragraph a line.

Training text: novels of Jane Austen (r-cran-janeaustenr), the King James Bible (bible-kjv-text), The Devil's Dictionary
(dict-devil) and the part of the Jargon File (jargon-text) that jobs/demo_text.sh leaves out of the demo's text. Paragraphs
that share a run of 13 words with the demo's text are dropped, so that the two are disjoint in that sense.

Packages are downloaded with apt-get and unpacked under a cache directory; nothing is installed.

    demo_corpus.py OUT [--megabytes 20] [--cache DIR]

writes training text for the jobs that train: pieces of the sources in the proportions of MIXTURE, the same text every time.
"""

import argparse
import glob
import gzip
import hashlib
import os
import random
import re
import struct
import subprocess
import zlib

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PACKAGES = ("jargon-text", "r-cran-janeaustenr", "bible-kjv-text", "bible-kjv", "dict-devil")
SHARED_WORDS = 13
SKETCH_MODULUS = 128
MIXTURE = {"jargon": 0.7, "austen": 0.12, "bible": 0.1, "devil": 0.08}  # of the training text's bytes
PIECE = 2000  # bytes of consecutive paragraphs of one source


def unpack(package, cache):
    """Directory with the files of a Debian package, downloaded on first use."""
    target = os.path.join(cache, package)
    if not os.path.isdir(target):
        os.makedirs(cache, exist_ok=True)
        for stale in glob.glob(os.path.join(glob.escape(cache), package + "_*.deb")):
            os.remove(stale)
        subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=", "download", package], cwd=cache, check=True,
                       stdout=subprocess.DEVNULL)
        deb = glob.glob(os.path.join(glob.escape(cache), package + "_*.deb"))[0]
        subprocess.run(["dpkg-deb", "-x", deb, target + ".tmp"], check=True)
        os.rename(target + ".tmp", target)
    return target


def versions(cache):
    """{package: version} of what unpack() downloaded."""
    found = {}
    for package in PACKAGES:
        deb = glob.glob(os.path.join(glob.escape(cache), package + "_*.deb"))[0]
        found[package] = subprocess.run(["dpkg-deb", "-f", deb, "Version"], check=True, capture_output=True,
                                        text=True).stdout.strip()
    return found


def paragraphs(lines):
    """Joins the lines of each blank-line separated paragraph."""
    out, held = [], []
    for line in list(lines) + [""]:
        line = " ".join(line.split())
        if line:
            held.append(line)
        elif held:
            out.append(" ".join(held))
            held = []
    return out


def jargon(cache, rest):
    """Lines that jobs/demo_text.sh extracts: the demo's text, or the rest of the Jargon File."""
    source = os.path.join(unpack("jargon-text", cache), "usr/share/doc/jargon-text/jargon.txt.gz")
    out = os.path.join(cache, "jargon_rest.txt" if rest else "demo.txt")
    subprocess.run(["bash", os.path.join(ROOT, "jobs", "demo_text.sh")] + ["--rest"] * rest + [out], check=True,
                   env=dict(os.environ, WANAMAKER_JARGON=source))
    with open(out, encoding="utf-8", newline="\n") as file:
        return file.read().split("\n")[:-1]


def r_strings(data):
    """The strings of a serialised R character vector (XDR format, version 2 or 3)."""
    version, = struct.unpack_from(">i", data, 2)
    at = 14
    if version == 3:
        at += 4 + struct.unpack_from(">i", data, at)[0]
    flags, count = struct.unpack_from(">ii", data, at)
    if data[:2] != b"X\n" or flags & 255 != 16:
        raise ValueError("not a serialised R character vector")
    at += 8
    out = []
    for _ in range(count):
        _, size = struct.unpack_from(">ii", data, at)
        out.append(data[at + 8:at + 8 + max(size, 0)].decode("utf-8"))
        at += 8 + max(size, 0)
    return out


def austen(cache):
    """Six novels, from an R database of zlib-compressed vectors of lines."""
    path = os.path.join(unpack("r-cran-janeaustenr", cache), "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
    with open(path, "rb") as file:
        rest = file.read()
    out = []
    while rest:
        stream = zlib.decompressobj()
        out += paragraphs(r_strings(stream.decompress(rest[4:])))  # each vector is preceded by its size
        rest = stream.unused_data
    return out


def bible(cache):
    """Verses without their numbers, up to four to a paragraph."""
    program = os.path.join(unpack("bible-kjv", cache), "usr/bin/bible")
    library = os.path.join(unpack("bible-kjv-text", cache), "usr/lib")
    text = subprocess.run([program, "-p", library, "-l100000", "gen1:1-rev22:21"], check=True, capture_output=True,
                          text=True, stdin=subprocess.DEVNULL).stdout
    out, verses = [], []
    for line in text.split("\n") + [""]:
        verse = re.match(r" *\d+ (.*)", line)
        if verse and len(verses) < 4:
            verses.append(" ".join(verse[1].split()))
        elif verses:
            out.append(" ".join(verses))
            verses = [" ".join(verse[1].split())] if verse else []
    return out


def devil(cache):
    """The Devil's Dictionary, without the database's header."""
    path = os.path.join(unpack("dict-devil", cache), "usr/share/dictd/devil.dict.dz")
    with gzip.open(path, "rt", encoding="utf-8", errors="replace") as file:
        text = file.read()
    return paragraphs(text[text.index("ABASEMENT, n."):].split("\n"))


def word_runs(lines):
    """Every run of SHARED_WORDS words (lower case, across lines) as (64-bit hash, index of the line it starts in)."""
    words = [(word, index) for index, line in enumerate(lines) for word in re.findall(r"\w+", line.lower())]
    for i in range(len(words) - SHARED_WORDS + 1):
        run = " ".join(word for word, _ in words[i:i + SHARED_WORDS])
        yield int.from_bytes(hashlib.blake2b(run.encode(), digest_size=8).digest(), "big"), words[i][1]


def load(cache):
    """(demo, {source: training paragraphs}): disjoint by runs of 13 words."""
    demo = jargon(cache, rest=False)
    seen = {run for run, _ in word_runs(demo)}
    training = {"jargon": jargon(cache, rest=True), "austen": austen(cache), "bible": bible(cache),
                "devil": devil(cache)}
    for source, lines in training.items():
        while True:
            shared = {index for run, index in word_runs(lines) if run in seen}
            if not shared:
                break
            lines = [line for index, line in enumerate(lines) if index not in shared]
        training[source] = lines
    return demo, training


def size(lines):
    return sum(len(line.encode()) + 1 for line in lines)


def pieces(source, lines):
    """Runs of paragraphs of some PIECE bytes, without an end: each pass through the source in another order."""
    runs = [[]]
    for line in lines:
        if size(runs[-1]) >= PIECE:
            runs.append([])
        runs[-1].append(line)
    passes = 0
    while True:
        generator = random.Random(f"{source} {passes}")
        yield from generator.sample(runs, len(runs))
        passes += 1


def mixture(training, megabytes):
    """Lines of the sources' pieces; the source that lags furthest behind its share comes next."""
    streams = {source: pieces(source, lines) for source, lines in training.items()}
    written = dict.fromkeys(streams, 0)
    while sum(written.values()) < megabytes * 1e6:
        source = min(streams, key=lambda name: written[name] / MIXTURE[name])
        piece = next(streams[source])
        written[source] += size(piece)
        yield from piece


def sketch(training):
    """The upper 32 bits, sorted, little-endian, of the hashes divisible by SKETCH_MODULUS: see demo_overlap.py."""
    kept = {run >> 32 for lines in training.values() for run, _ in word_runs(lines) if run % SKETCH_MODULUS == 0}
    return b"".join(value.to_bytes(4, "little") for value in sorted(kept))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--megabytes", type=float, default=20)
    p.add_argument("--cache")
    o = p.parse_args()
    if not 0 < o.megabytes < 1e6:
        p.error(f"--megabytes {o.megabytes}: must be above 0 and below a million")
    os.makedirs(os.path.dirname(os.path.abspath(o.out)), exist_ok=True)
    cache = o.cache or os.path.join(os.path.dirname(os.path.abspath(o.out)), "packages")
    _, training = load(cache)
    with open(o.out + ".partial", "w", encoding="utf-8", newline="\n") as file:
        for line in mixture(training, o.megabytes):
            file.write(line + "\n")
    os.replace(o.out + ".partial", o.out)


if __name__ == "__main__":
    main()
