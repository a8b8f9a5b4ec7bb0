#!/usr/bin/env python3
"""Writes the golden file of test_measure_statistics.c: an independent statement of the paired
bootstrap with expanded percentile intervals (Hesterberg 2015), of the unpaired one with plain ones, of Holm's and Benjamini and Hochberg's procedures, of quantiles and of Pearson's r.

    python3 tests/oracle/statistics_golden.py tests/data/statistics/golden.txt

Needs numpy and scipy. The file holds named arrays, each as "name count" and then its values."""
import sys
from math import exp, fsum, sqrt

import numpy as np
from scipy import stats

TOKENS, UNITS, VARIANTS, RESAMPLES, SEED, CONFIDENCE = 700, 41, 4, 300, 20260, 0.9
MASK = 0xFFFFFFFF


def philox(seed, stream, index):
    """64 bits of Philox4x32-10 (Salmon et al. 2011): key = seed, counter = (index, stream)."""
    c = [index & MASK, index >> 32, stream & MASK, stream >> 32]
    k = [seed & MASK, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k[0], b & MASK, (a >> 32) ^ c[3] ^ k[1], a & MASK]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c[1] << 32 | c[0]


def perplexity(nll):
    return exp(fsum(map(float, nll)) / len(nll))


def resampled(full, variants, units):
    """delta[v][r]: whole tokens of the drawn units, both perplexities on the same ones."""
    members = [np.flatnonzero(units == u) for u in range(UNITS)]
    members = [m for m in members if len(m)]
    delta = np.empty((VARIANTS, RESAMPLES))
    for r in range(RESAMPLES):
        drawn = [philox(SEED, r, j) * len(members) >> 64 for j in range(len(members))]
        tokens = np.concatenate([members[u] for u in drawn])
        base = perplexity(full[tokens])
        for v in range(VARIANTS):
            delta[v, r] = 100 * (perplexity(variants[v][tokens]) / base - 1)
    return delta


def resampled_alone(full, variants, units):
    """The same as the study has it: each side on draws of its own."""
    members = [np.flatnonzero(units == u) for u in range(UNITS)]
    members = [m for m in members if len(m)]

    def draws(stream):
        return np.concatenate([members[philox(SEED, stream, j) * len(members) >> 64]
                               for j in range(len(members))])

    delta = np.empty((VARIANTS, RESAMPLES))
    for r in range(RESAMPLES):
        base = perplexity(full[draws(r)])
        own = draws(1 << 63 | r)
        for v in range(VARIANTS):
            delta[v, r] = 100 * (perplexity(variants[v][own]) / base - 1)
    return delta


def expanded(delta, n):
    """Bounds of the resamples of n units, and both one-sided p-values: against delta >= 0 and <= 0."""
    level = stats.norm.cdf(sqrt(n / (n - 1)) * stats.t.ppf((1 - CONFIDENCE) / 2, n - 1))
    rank = int(level * (RESAMPLES + 1))  # order statistics, counted from 1; not near an integer here
    ordered = np.sort(delta, axis=1)

    def p(beyond):
        return stats.t.cdf(sqrt((n - 1) / n) * stats.norm.ppf((beyond + 1) / (RESAMPLES + 1)), n - 1)

    return (ordered[:, rank - 1], ordered[:, RESAMPLES - rank],
            p((delta >= 0).sum(axis=1)), p((delta <= 0).sum(axis=1)))


def stars(p):
    return sum(p < level for level in (0.05, 0.01, 0.001))


def holm(p):
    """Holm (1979): the smallest level at which stepping down still reaches p[i]."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    out = [0.0] * len(p)
    for k, i in enumerate(order):
        out[i] = min(1.0, max((len(p) - j) * p[order[j]] for j in range(k + 1)))
    return out


def benjamini_hochberg(p):
    """Benjamini and Hochberg (1995): the smallest level at which stepping up reaches p[i]."""
    order = sorted(range(len(p)), key=lambda i: p[i])
    out = [0.0] * len(p)
    for k, i in enumerate(order):
        out[i] = min(1.0, min(len(p) / (j + 1) * p[order[j]] for j in range(k, len(p))))
    return out


def main(path):
    rng = np.random.default_rng(7)
    # Units of unequal size; two without tokens; tokens of a unit not all together.
    units = np.sort(rng.choice(np.delete(np.arange(UNITS), [5, 33]), TOKENS))
    units[[3, 500]] = units[[500, 3]]
    level = rng.normal(3, 0.8, UNITS)[units]
    full = np.abs(level + rng.normal(0, 1, TOKENS)).astype(np.float32)
    shifts = [0.05, -0.02, 0.0005, -0.004]
    spreads = [0.1, 0.02, 0.05, 0.02]
    variants = [(full + rng.normal(m, s, TOKENS)).astype(np.float32)
                for m, s in zip(shifts, spreads)]

    delta = resampled(full, variants, units)
    alone = resampled_alone(full, variants, units)
    low, high, better, worse = expanded(delta, len(np.unique(units)))
    tail = (1 - CONFIDENCE) / 2
    alone_low, alone_high = np.quantile(alone, [tail, 1 - tail], axis=1)
    two_sided = [min(1.0, 2 * min(b, w)) for b, w in zip(better, worse)]
    x, y = full.astype(float), variants[0].astype(float) ** 2

    arrays = {
        "units": units, "full": full, "variants": np.concatenate(variants), "delta": delta.ravel(),
        "ppl": [perplexity(v) for v in variants], "ppl_full": [perplexity(full)],
        "point": [100 * (perplexity(v) / perplexity(full) - 1) for v in variants],
        "low": low, "high": high, "p_better": better, "p_worse": worse, "p_two_sided": two_sided,
        "unpaired": alone.ravel(), "unpaired_low": alone_low, "unpaired_high": alone_high,
        "ratio": (alone_high - alone_low) / (high - low),
        "median_ratio": [np.median((alone_high - alone_low) / (high - low))],
        "mean_nll": [fsum(map(float, v)) / TOKENS for v in variants],
        "stars": [stars(p) for p in holm(two_sided)],
        "p_holm": holm(two_sided), "p_bh": benjamini_hochberg(two_sided),
        "pearson": [np.corrcoef(x, y)[0, 1]],
        "raw_p": (p := [0.04, 0.001, 0.03, 0.001, 0.2, 0.013, 0.9, 0.05]),
        "raw_holm": holm(p), "raw_bh": benjamini_hochberg(p),
        "plain": np.quantile(delta[0], [tail, 1 - tail]),
        "q": (q := [0, 0.025, 0.1, 1 / 3, 0.5, 0.975, 1]),
        "quantiles": np.quantile(delta[0], q),
    }
    with open(path, "w") as out:
        for name, values in arrays.items():
            values = np.asarray(values)
            digits = ".9g" if values.dtype == np.float32 else ".17g"
            print(name, values.size, file=out)
            for i in range(0, values.size, 8):
                print(*(format(v, digits) for v in values[i:i + 8].tolist()), file=out)


if __name__ == "__main__":
    main(sys.argv[1])
