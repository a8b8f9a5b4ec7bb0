"""A copy of a results directory in which names and notes are hostile; checksums fit.

    report_hostile.py FROM TO
"""

import pathlib
import shutil
import sys

import h5py
import numpy as np
from h5_checksum import checksum, seal, set_text

RANGE = "evaluation_<i a='\"&\x01>" # in the place of evaluation_more
BAD = b"<img src=x onerror=alert(1)>'\"&`date`$(date)\x01\x1b[31m\xff\xe2\x82,;\n]]>"


def rewrite(dataset, change):
    data = dataset[()]
    change(data)
    dataset[...] = data
    set_text(dataset, "checksum", checksum(data))


def spoil_variants(rows):
    rows["layers"][-1] = b"</td><script>alert(2)</script>"
    several = [i for i, layers in enumerate(rows["layers"]) if b"," in layers or b"-" in layers]
    rows["gate"][several[0] if several else 0] = b"\"'&<\x07\xff" # of one layer's, gates.h5 knows better


def spoil_categories(rows):
    for i in np.unique(rows["category"], return_index=True)[1][:3]: # of whatever layers and keys
        rows["category"][rows["category"] == rows["category"][i]] = BAD[i % 3:][:rows["category"].dtype.itemsize - 1]


def spoil_ranges(rows):
    rows["name"] = [name.replace(b"evaluation_more", RANGE.encode()) for name in rows["name"]]


def spoil_notes(notes):
    notes[:] = BAD


to = pathlib.Path(sys.argv[2])
shutil.copytree(sys.argv[1], to)
for path in to.glob("*.h5"):
    if path.name.startswith("tokens") or ".model." in path.name:
        continue
    with h5py.File(path, "r+") as f:
        if "model" in f.attrs:
            set_text(f, "model", b"models/" + BAD.replace(b"/", b""))
        if "host" in f.attrs:
            set_text(f, "host", BAD)
        if path.name == "sweep.h5":
            rewrite(f["variants"], spoil_variants)
        if path.name == "gates.h5":
            rewrite(f["gate/note"], spoil_notes)
        if path.name in ("finetune.h5", "control.h5") and "evaluation_more" in f:
            f.move("evaluation_more", RANGE)
        if path.name == "finetune.h5":
            set_text(f, "plan", BAD)
        if path.name == "finetune.compare.h5":
            rewrite(f["comparison"], spoil_ranges)
        if path.name == "probes.h5":
            rewrite(f["categories"], spoil_categories)
        seal(f)
