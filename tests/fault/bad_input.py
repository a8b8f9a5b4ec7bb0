#!/usr/bin/env python3
"""Bad input to the program: each case must end within its time, on every rank, with the exit code of its kind and a
message that names the file, the place and what was expected.

    bad_input.py WANAMAKER MPIEXEC RANKS DATA

DATA is tests/data. Only the standard library is used.
"""

import concurrent.futures
import ctypes
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

PROGRAM, MPIEXEC, RANKS, DATA = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4]
TIMEOUT = 60
USAGE, INPUT, ENVIRONMENT, NUMERICAL = 2, 3, 4, 5
MODEL = os.path.join(DATA, "demo_gpt2")


def read_model(directory):
    """Header and data of model.safetensors."""
    with open(os.path.join(directory, "model.safetensors"), "rb") as f:
        size = struct.unpack("<Q", f.read(8))[0]
        return json.loads(f.read(size)), f.read()


def write_model(directory, header, data):
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(directory, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def write_npy(path, ids):
    header = f"{{'descr': '<i4', 'fortran_order': False, 'shape': ({len(ids)},), }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as f:
        f.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        f.write(struct.pack(f"<{len(ids)}i", *ids))


def set_text_attribute(path, name, text):
    """Overwrites a text attribute of a file's root by the program's own HDF5 library; their checksum goes."""
    library = re.search(r"libhdf5\S*\.so\S* => (\S+)", subprocess.run(["ldd", PROGRAM], capture_output=True, text=True).stdout)
    h5 = ctypes.CDLL(library.group(1))
    for function in (h5.H5Fopen, h5.H5Aopen, h5.H5Aget_type):
        function.restype = ctypes.c_int64
    h5.H5Tget_size.restype = ctypes.c_size_t
    file = ctypes.c_int64(h5.H5Fopen(path.encode(), 1, ctypes.c_int64(0)))  # for reading and writing
    assert h5.H5Adelete(file, b"attributes_checksum") >= 0
    attribute = ctypes.c_int64(h5.H5Aopen(file, name.encode(), ctypes.c_int64(0)))
    kind = ctypes.c_int64(h5.H5Aget_type(attribute))
    buffer = ctypes.create_string_buffer(text.encode(), h5.H5Tget_size(kind))
    assert h5.H5Awrite(attribute, kind, buffer) >= 0 and h5.H5Aclose(attribute) >= 0 and h5.H5Fclose(file) >= 0


def flip_a_bit(path):
    """In the middle of a result file, where its largest dataset lies."""
    with open(path, "r+b") as f:
        middle = os.path.getsize(path) // 2
        f.seek(middle)
        byte = f.read(1)[0]
        f.seek(middle)
        f.write(bytes([byte ^ 1]))


class Bench:
    """A scratch directory with a small corpus, and runs of the program in it."""

    def __init__(self, top):
        self.top = top
        self.failures = 0
        self.count = 0
        with open(self.path("text.txt"), "w") as f:
            for i in range(400):
                f.write(f"The {i} quick brown foxes jump over lazy dog number {i * 7}, and then they rest.\n")
        with open(self.path("ok.cfg"), "w") as f:
            f.write(self.config())

    def path(self, name):
        return os.path.join(self.top, name)

    def config(self, **changes):
        values = dict(model=MODEL, text=self.path("text.txt"), out=self.path("out"), extra="")
        values.update(changes)
        return """model: { path = "%(model)s"; };
corpora: { main: { path = "%(text)s"; }; };
protocol: { kind = "stream"; window = 64; };
ranges: {
  fit: { tokens = [0, 600]; };
  validation: { tokens = [600, 900]; };
  evaluation: { tokens = [1000, 1400]; };
};
bootstrap: { resamples = 200; };
output: { dir = "%(out)s"; };
%(extra)s
""" % values

    def model_copy(self, name):
        directory = self.path(name)
        shutil.copytree(MODEL, directory)
        return directory

    def run(self, *args, stdout=subprocess.PIPE):
        command = [MPIEXEC, "-n", RANKS, PROGRAM, *args]
        # The launcher stands between a rank and its standard output, and takes two seconds over a
        # single rank that fails.
        if stdout != subprocess.PIPE or RANKS == "1":
            command = [PROGRAM, *args]
        return subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                              timeout=TIMEOUT, text=True, errors="replace")

    def expect(self, name, code, pattern, *args, stdout=subprocess.PIPE):
        """The program ends with `code` and says something that matches `pattern`."""
        self.count += 1
        try:
            result = self.run(*args, stdout=stdout)
        except subprocess.TimeoutExpired:
            self.failures += 1
            print(f"FAILED {name}: still running after {TIMEOUT} s")
            return
        text = result.stderr + (result.stdout or "")
        if result.returncode != code or not re.search(pattern, text):
            self.failures += 1
            print(f"FAILED {name}: exit {result.returncode}, expected {code} and /{pattern}/ in:\n{text}")


def usage_cases(b):
    ok = b.path("ok.cfg")
    b.expect("no job", USAGE, "a job is missing")
    b.expect("unknown job", USAGE, 'unknown job "swep"', "swep", ok)
    b.expect("unknown option", USAGE, "unknown option --fast", "run", ok, "--fast")
    b.expect("two configurations", USAGE, "two configuration files", "run", ok, b.path("text.txt"))
    b.expect("no configuration", USAGE, r"nowhere\.cfg: cannot open", "run", b.path("nowhere.cfg"))
    b.expect("directory as configuration", USAGE, "not a regular file", "run", b.top)
    b.expect("unknown key", USAGE, r"fit\.lamda is not a setting; the nearest is fit\.lambda", "run", ok,
             "fit.lamda=1")
    with open(b.path("typo.cfg"), "w") as f:
        f.write(b.config(extra="fit: {\n  lamda = 1.0;\n};"))
    b.expect("unknown key in the file", USAGE, r"typo\.cfg:\d+: fit\.lamda .*fit\.lambda", "run", b.path("typo.cfg"))
    with open(b.path("syntax.cfg"), "w") as f:
        f.write("model: { path = ; };")
    b.expect("syntax error", USAGE, r"syntax\.cfg:1: syntax error", "run", b.path("syntax.cfg"))
    b.expect("wrong type", USAGE, r"fit\.lambda must be a number", "run", ok, 'fit.lambda="much"')
    b.expect("out of range", USAGE, r"fit\.lambda = -1 must be at least 0", "run", ok, "fit.lambda=-1")
    b.expect("wrapping integer", USAGE, r"protocol\.window", "run", ok, "protocol.window=4294967808")
    b.expect("not a choice", USAGE, "one of: documents stream sliding", "run", ok, "protocol.kind=lines")
    b.expect("no model", USAGE, r"model\.path must be given", "run", "corpora.a.path=x")
    b.expect("no corpus", USAGE, "no corpus is given", "run", f"model.path={MODEL}", f"output.dir={b.path('o')}")
    b.expect("corpus without path", USAGE, r"corpora\.b\.path must be given", "run", ok, "corpora.b.field=x")
    b.expect("layer that is not there", USAGE, r"fit\.layers: layer 99 does not exist", "run", ok, "fit.layers=[0,99]")
    b.expect("layer named twice", USAGE, "layer 3 is named twice", "run", ok, "fit.layers=[3,3]")
    b.expect("joint layer that is not there", USAGE, r"sweep\.joint: layer 42", "run", ok, "sweep.joint=([1,42])")
    b.expect("layer without surrogate", USAGE, r"sweep\.layers: layer 2 has no surrogate", "run", ok,
             "fit.layers=[0,1]", "sweep.layers=[2]")
    b.expect("layers that would be ignored", USAGE, r"sweep\.single is false", "run", ok, "sweep.single=false",
             "sweep.layers=[2]")
    b.expect("grid too large", USAGE, r"fit\.grid = \[64, 64\] does not fit", "run", ok, "fit.grid=[64,64]")
    b.expect("no room for a layer", USAGE, r"fit\.memory_gib .* needs", "run", ok, "fit.memory_gib=0.00001")


def range_cases(b):
    ok = b.path("ok.cfg")
    b.expect("overlapping ranges", USAGE, "overlap", "run", ok, "ranges.evaluation.tokens=[500,1400]")
    b.expect("corpus too short", INPUT, "tokens", "run", ok, "ranges.evaluation.tokens=[1000,99000000]")
    b.expect("range backwards", USAGE, "a < b", "run", ok, "ranges.fit.tokens=[600,0]")
    b.expect("two kinds of range", USAGE, "two ranges", "run", ok, "ranges.fit.rows=[0,10]")
    b.expect("unknown range", USAGE, r"ranges\.train: no such range", "run", ok, "ranges.train.tokens=[0,10]")
    b.expect("unknown corpus of a range", USAGE, "no such corpus", "run", ok, "ranges.fit.corpus=other")
    b.expect("window beyond the model", USAGE, "takes at most", "run", ok, "protocol.window=100000")
    b.expect("stride beyond the window", USAGE, "stride", "run", ok, "protocol.kind=sliding", "protocol.stride=100")


def corpus_cases(b):
    ok = b.path("ok.cfg")
    for name, content, protocol in (("empty.txt", b"", "stream"), ("blank.txt", b"\n\n  \n", "documents")):
        with open(b.path(name), "wb") as f:
            f.write(content)
        b.expect(name, INPUT, re.escape(name), "run", ok, f"corpora.main.path={b.path(name)}",
                 f"protocol.kind={protocol}")
    b.expect("no such corpus", INPUT, r"missing\.txt", "run", ok, f"corpora.main.path={b.path('missing.txt')}")
    b.expect("directory as corpus", INPUT, "regular file", "run", ok, f"corpora.main.path={b.top}")
    with open(b.path("bad.jsonl"), "w") as f:
        f.write('{"text": "fine"}\n' * 50 + '{"text": "broken\n' + '{"text": "fine"}\n' * 50)
    b.expect("malformed JSON line", INPUT, r"bad\.jsonl", "run", ok, f"corpora.main.path={b.path('bad.jsonl')}")
    with open(b.path("field.jsonl"), "w") as f:
        f.write('{"texts": "fine"}\n' * 50)
    b.expect("missing field", INPUT, '"text"', "run", ok, f"corpora.main.path={b.path('field.jsonl')}")
    write_npy(b.path("large.npy"), list(range(1500)) + [10_000_000] + list(range(500)))
    b.expect("id beyond the embedding", INPUT, "id 10000000.*rows", "run", ok,
             f"corpora.main.path={b.path('large.npy')}", f"output.dir={b.path('npy')}")
    with open(b.path("short.npy"), "wb") as f:
        f.write(open(b.path("large.npy"), "rb").read()[:1000])
    b.expect("truncated npy", INPUT, r"short\.npy", "run", ok, f"corpora.main.path={b.path('short.npy')}")


def model_cases(b):
    ok = b.path("ok.cfg")

    def case(name, code, pattern, change):
        directory = b.model_copy("model_" + re.sub(r"\W", "_", name))
        change(directory)
        b.expect(name, code, pattern, "run", ok, f"model.path={directory}", f"tokenizer.path={MODEL}")

    def config(directory, **changes):
        path = os.path.join(directory, "config.json")
        with open(path) as f:
            values = json.load(f)
        values.update(changes)
        with open(path, "w") as f:
            json.dump(values, f)

    def tensor(directory, edit):
        header, data = read_model(directory)
        data = edit(header, bytearray(data)) or data
        write_model(directory, header, data)

    def first_matrix(header):
        return next(k for k in sorted(header) if k.endswith("mlp.c_fc.weight"))

    def rename(header, data):
        header["surplus.weight"] = header.pop(first_matrix(header))

    def transpose(header, data):
        header[first_matrix(header)]["shape"].reverse()

    def poison(header, data):
        at = header[first_matrix(header)]["data_offsets"][0]
        data[at:at + 2] = b"\x00\x7e"  # a float16 NaN
        return data

    b.expect("no model directory", INPUT, "nothing_here", "run", ok, f"model.path={b.path('nothing_here')}",
             f"tokenizer.path={MODEL}")
    case("no config", INPUT, r"config\.json", lambda d: os.remove(os.path.join(d, "config.json")))
    case("config is not JSON", INPUT, r"config\.json:1", lambda d: open(os.path.join(d, "config.json"), "w").write("{"))
    case("unknown family", INPUT, "llama", lambda d: config(d, model_type="llama"))
    case("unknown activation", INPUT, "gelu_9", lambda d: config(d, activation_function="gelu_9"))
    case("heads do not divide", INPUT, "head", lambda d: config(d, n_head=7))
    case("config names too many layers", INPUT, r"h\.", lambda d: config(d, n_layer=50))
    case("config has another width", INPUT, "expected|shape", lambda d: config(d, n_inner=20))
    case("missing tensor", INPUT, r"c_fc\.weight|surplus", lambda d: tensor(d, rename))
    case("transposed tensor", INPUT, r"c_fc\.weight", lambda d: tensor(d, transpose))
    case("NaN weight", INPUT, r"c_fc\.weight", lambda d: tensor(d, poison))
    case("truncated weights", INPUT, r"model\.safetensors",
         lambda d: os.truncate(os.path.join(d, "model.safetensors"), 100_000))
    case("no weights", INPUT, r"model\.safetensors", lambda d: os.remove(os.path.join(d, "model.safetensors")))
    b.expect("no tokenizer", INPUT, r"tokenizer\.json", "run", ok, f"tokenizer.path={b.top}")
    directory = b.model_copy("tokenizer")
    with open(os.path.join(directory, "tokenizer.json"), "w") as f:
        f.write('{"model": {"type": "WordPiece"}}')
    b.expect("other tokenizer", INPUT, r"tokenizer\.json", "run", ok, f"tokenizer.path={directory}",
             f"output.dir={b.path('other')}")


def output_cases(b):
    ok = b.path("ok.cfg")
    b.expect("output below a file", ENVIRONMENT, "text.txt", "run", ok, f"output.dir={b.path('text.txt')}/x")
    b.expect("output in a read-only place", ENVIRONMENT, "/proc", "run", ok, "output.dir=/proc/wanamaker")
    b.expect("fit without tokens", INPUT, "run the job tokenize", "fit", ok, f"output.dir={b.path('fresh')}")
    out = b.path("out")
    b.expect("a good run", 0, "", "run", ok)
    other = b.model_copy("other_model")
    header, data = read_model(other)
    data = bytearray(data)
    data[-2] ^= 1  # the last bit of one weight
    write_model(other, header, data)
    b.expect("sweep of another model", INPUT, "made from another model", "sweep", ok, f"model.path={other}")
    with open("/dev/full", "w") as full:
        b.expect("full standard output", ENVIRONMENT, "standard output|No space|write", "run", ok, stdout=full)
    for name, job in (("surrogates.h5", "sweep"), ("tokens.main.stream.h5", "fit")):
        path = os.path.join(out, name)
        with open(path, "rb") as f:
            whole = f.read()
        with open(path, "wb") as f:
            f.write(whole[:len(whole) // 2])
        b.expect("truncated " + name, INPUT, re.escape(name), job, ok)
        with open(path, "wb") as f:
            f.write(whole)
    b.expect("still a good run", 0, "complete for these inputs", "run", ok)


def early_cases(b):
    """A dry run, and a run before its first stage, find what only a later stage would stumble over."""
    ok = b.path("ok.cfg")
    for code, pattern, setting in (
            (USAGE, "a < b", "ranges.fit.tokens=[600,0]"), (USAGE, "no such corpus", "ranges.evaluation.corpus=other"),
            (USAGE, "takes at most", "protocol.window=100000"), (USAGE, r"sweep\.joint: .*twice", "sweep.joint=([1],[1])"),
            (USAGE, r"sweep\.joint: layer 42", "sweep.joint=([1,42])"), (USAGE, r"fit\.layers: layer 99", "fit.layers=[99]"),
            (INPUT, r"config\.json", f"model.path={b.top}")):
        b.expect("early: " + setting, code, r"(?s)\A(?!.*tokenize:).*" + pattern, "run", ok, "-n",
                 f"output.dir={b.path('early')}", f"tokenizer.path={MODEL}", setting)
    b.expect("early: no weights", INPUT, r"model\.safetensors", "run", ok, "-n", f"output.dir={b.path('early')}",
             f"tokenizer.path={MODEL}", f"model.path={b.path('model_no_weights')}")
    b.expect("early: nothing was written", USAGE, "twice", "run", ok, f"output.dir={b.path('early')}",
             "sweep.joint=([1],[1])")
    b.count += 1
    if os.path.exists(b.path("early")):
        b.failures += 1
        print("FAILED early: the output directory was made")


def stale_cases(b):
    """Nothing is computed from results of earlier runs that were made from something else."""
    ok = b.path("ok.cfg")
    text = b.path("changing.txt")
    mine = (f"corpora.main.path={text}", f"output.dir={b.path('stale')}")

    def write(word):
        with open(text, "w") as f:
            f.writelines(f"The {i} {word} brown foxes jump over {i * 7} dogs.\n" for i in range(400))

    write("quick")
    b.expect("first run", 0, "", "run", ok, *mine)
    b.expect("sweep again", 0, "complete for these inputs", "sweep", ok, *mine)
    for setting, pattern in (("ranges.fit.tokens=[0,500]", "another range_fit"), ("fit.lambda=2.0", "another lambda"),
                             ("ranges.validation.tokens=[600,800]", "another range_validation"),
                             ("protocol.window=32", "another range_fit")):
        b.expect("sweep with another " + setting, INPUT, r"surrogates\.h5 was made from " + pattern, "sweep", ok, *mine,
                 setting)
    b.expect("the same windows by other words", 0, "complete for these inputs", "sweep", ok, *mine,
             "protocol.kind=sliding", "protocol.stride=64", "ranges.fit.max_tokens=600")
    write("slow")
    for job in ("fit", "sweep"):
        b.expect(f"{job} from tokens of another text", INPUT, r"tokens\.main\.stream\.h5 was made from another text", job,
                 ok, *mine)
    b.expect("dry run after a change", 0, r"(?s)tokenize: \S*changing\.txt.*can be planned when the corpora", "run", ok,
             *mine, "-n")
    b.expect("tokens anew", 0, "wrote", "tokenize", ok, *mine)
    b.expect("dry run after a change and new tokens", 0, "sweep: can be planned when the surrogates", "run", ok, *mine,
             "-n")
    b.expect("run after a change", 0, r"(?s)fit: wrote.*sweep: wrote", "run", ok, *mine)
    surrogates = b.path("stale/surrogates.h5")
    set_text_attribute(surrogates, "version", "0.0.9")
    b.expect("surrogates of another version", INPUT,
             r'surrogates\.h5 was made from another version \("0\.0\.9", here "[^"]+"\); run the job fit again', "sweep",
             ok, *mine)
    flip_a_bit(surrogates)
    b.expect("one bit of the surrogates", INPUT, r"surrogates\.h5: \w+: checksum \w+ expected", "sweep", ok, *mine)
    b.expect("run after one bit", 0, r"(?s)damaged and not used: \S*surrogates\.h5: \w+: checksum.*fit: wrote", "run", ok, *mine)
    for name in ("sweep.h5", "tokens.main.stream.h5"):
        flip_a_bit(b.path("stale/" + name))
        b.expect("run after one bit of " + name, 0, r"damaged and not used: \S*" + re.escape(name) + ": .*checksum", "run", ok, *mine)
    b.expect("run with all files whole again", 0, r"(?s)complete.*complete.*complete", "run", ok, *mine)
    os.remove(text)
    b.expect("a text that is gone is left to its tokens", 0, "complete for these inputs", "sweep", ok, *mine)
    for job in ("fit", "sweep"):
        b.expect(f"{job} from tokens of another tokenizer", INPUT,
                 r"tokens\.main\.stream\.h5 was made by another tokenizer \(fingerprint \w+\) than the one in "
                 r"\S*demo_gpt_neox \(\w+\)", job, ok, *mine, f"tokenizer.path={os.path.join(DATA, 'demo_gpt_neox')}")
    b.expect("no tokenizer to compare with", 0, "complete for these inputs", "sweep", ok, *mine,
             f"tokenizer.path={b.path('nowhere')}")
    b.expect("one text under two names", USAGE, "overlap", "run", ok, f"corpora.other.path={b.path('text.txt')}",
             "ranges.evaluation.corpus=other", "ranges.evaluation.tokens=[300,900]")
    b.expect("fewer rows than the width, no penalty", NUMERICAL, "layer 0: ridge of width .* lambda 0", "run", ok,
             "ranges.fit.tokens=[0,90]", "fit.lambda=0")


# Groups that follow one another in one directory; these sequences run side by side.
SEQUENCES = ((usage_cases, range_cases), (corpus_cases, output_cases), (model_cases, early_cases), (stale_cases,))


def run_groups(top, groups):
    directory = tempfile.mkdtemp(dir=top)
    bench = Bench(directory)
    for group in groups:
        group(bench)
    return bench


def main():
    shared = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # a file system that syncs at once
    # A case waits for its launcher more than it computes.
    with tempfile.TemporaryDirectory(prefix="wm_bad_input_", dir=shared) as top, \
            concurrent.futures.ThreadPoolExecutor(len(SEQUENCES)) as pool:
        benches = list(pool.map(lambda groups: run_groups(top, groups), SEQUENCES))
    failures = sum(b.failures for b in benches)
    print(f"{sum(b.count for b in benches)} cases on {RANKS} rank(s), {failures} failed")
    return failures != 0


sys.exit(main())
