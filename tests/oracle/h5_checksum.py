"""The checksums of result files as results/README.md defines them, and changes that keep them right.

    h5_checksum.py FILE...              checks all of them
    h5_checksum.py --set NAME TEXT FILE a text attribute of the root, with its checksum
"""

import sys

import h5py
import numpy as np

SUM = "attributes_checksum"


def checksum(data):
    data = np.ascontiguousarray(data)
    words = -(-data.itemsize // 8)
    padded = np.zeros((data.size, 8 * words), np.uint8)
    padded[:, :data.itemsize] = data.reshape(-1).view(np.uint8).reshape(data.size, data.itemsize)
    w = padded.view("<u8").reshape(-1)
    x = np.arange(1, w.size + 1, dtype=np.uint64) * np.uint64(0x9e3779b97f4a7c15) ^ w
    x = (x ^ x >> np.uint64(30)) * np.uint64(0xbf58476d1ce4e5b9)
    x = (x ^ x >> np.uint64(27)) * np.uint64(0x94d049bb133111eb)
    return b"%016x" % int(np.sum(x ^ x >> np.uint64(31), dtype=np.uint64))


def objects_of(f):
    names = [b"."]
    f.visit(lambda name: names.append(name.encode()))
    return sorted(names)


def attributes_checksum(f):
    stream = b""
    for name in objects_of(f):
        node = f[name]
        for key in sorted(k.encode() for k in node.attrs):
            if (name, key) == (b".", SUM.encode()):
                continue
            attribute = h5py.h5a.open(node.id, key)
            raw = np.empty((), np.dtype((np.void, attribute.get_type().get_size())))
            attribute.read(raw, mtype=attribute.get_type())
            stream += name + b"\0" + key + b"\0" + raw.tobytes()
    return checksum(np.frombuffer(stream, np.uint8))


def set_text(node, name, value):
    if name in node.attrs:
        del node.attrs[name]
    node.attrs.create(name, np.bytes_(value))


def seal(f):
    """To be called after any change of attributes."""
    set_text(f, SUM, attributes_checksum(f))


def problems(f):
    """Names whose checksums are wrong."""
    bad = [name for name in map(bytes.decode, objects_of(f)) if isinstance(f[name], h5py.Dataset)
           and checksum(f[name][()]) != f[name].attrs["checksum"]]
    return bad + ([] if f.attrs[SUM] == attributes_checksum(f) else ["attributes"])


if __name__ == "__main__":
    if sys.argv[1] == "--set":
        with h5py.File(sys.argv[4], "r+") as f:
            set_text(f, sys.argv[2], sys.argv[3].encode())
            seal(f)
    else:
        wrong = [f"{path}: {name}" for path in sys.argv[1:] for name in problems(h5py.File(path, "r"))]
        print(*(wrong or [f"{len(sys.argv) - 1} files: all checksums are right"]), sep="\n")
        sys.exit(bool(wrong))
