"""Ridge regression by SVD of the centred data: the golden file of tests/mpi/test_linalg_ridge.c.

    python3 tests/oracle/ridge_svd.py tests/data/linalg/ridge_svd.f64

The file holds little-endian float64 numbers: N, dx, dy, lambda, then X [N, dx], Y [N, dy],
W [dx, dy], b [dy], predictions X W + b [N, dy], all row-major. Columns of X have means up to 1000
standard deviations, and the centred X has condition number 1e7. Means and the final products are
formed in extended precision, so that the file's own error is that of the SVD.
"""
import sys

import numpy as np

N, DX, DY, LAMBDA = 200, 24, 5, 0.01


def make_data(rng):
    rotation, _ = np.linalg.qr(rng.standard_normal((DX, DX)))
    basis, _ = np.linalg.qr(rng.standard_normal((N, DX)))
    basis -= basis.mean(axis=0)
    basis, _ = np.linalg.qr(basis)  # orthonormal and centred: the spectrum below is exact
    x = basis * (np.sqrt(N) * np.logspace(0, -7, DX)) @ rotation.T
    x += 1000 * x.std(axis=0) * rng.uniform(-1, 1, DX)
    y = np.tanh(x @ rng.standard_normal((DX, DY)) / 100) + 0.1 * rng.standard_normal((N, DY)) + 3
    return x, y


def ridge_svd(x, y, lam):
    mean_x = x.astype(np.longdouble).mean(axis=0)
    mean_y = y.astype(np.longdouble).mean(axis=0)
    xc = x.astype(np.longdouble) - mean_x
    yc = y.astype(np.longdouble) - mean_y
    u, s, vt = np.linalg.svd(xc.astype(np.float64), full_matrices=False)
    w = vt.T @ ((s / (s * s + lam))[:, None] * (u.T @ yc.astype(np.float64)))
    wide = w.astype(np.longdouble)
    return w, mean_y - mean_x @ wide, xc @ wide + mean_y, s


def main(path):
    x, y = make_data(np.random.default_rng(7))
    w, b, predictions, s = ridge_svd(x, y, LAMBDA)
    print(f"condition number of the centred X: {s[0] / s[-1]:.3g}")
    parts = [np.array([N, DX, DY, LAMBDA]), x, y, w, b, predictions]
    np.concatenate([np.asarray(p, dtype="<f8").ravel() for p in parts]).tofile(path)


if __name__ == "__main__":
    main(sys.argv[1])
