"""Every number of a report against the result files.

    report_check.py REPORT_DIR REFERENCE_DIR TOLERANCE RESULTS_DIR...

Fails on a table or a named number that it can't recompute, on a digit that stands outside of them, on a
page that is not self-contained, on a figure without text, and on a difference between page, CSV and JSON.
"""

import csv
import json
import math
import pathlib
import re
import sys

import report_claims
import report_expected
import report_page

FAILED = []


def check(ok, message):
    if not ok:
        FAILED.append(message)


def close(a, b):
    a, b = float(a) if a != "" else math.nan, float(b)
    if math.isnan(a) or math.isnan(b):
        return math.isnan(a) and math.isnan(b)
    return a == b or abs(a - b) <= 1e-9 + 1e-9 * abs(b)


def clean(text):
    """As tables show text: well-formed, control characters replaced."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", "\ufffd", text)


def compare_rows(name, page, expected):
    check(len(page) == len(expected), "%s: %d rows instead of %d" % (name, len(page), len(expected)))
    for r, (row, want) in enumerate(zip(page, expected)):
        check(len(row) == len(want), "%s, row %d: %d cells instead of %d" % (name, r, len(row), len(want)))
        for c, (cell, value) in enumerate(zip(row, want)):
            where = "%s, row %d, column %d" % (name, r, c)
            if value is None:
                continue
            if isinstance(value, str):
                check(cell[0] == "text" and cell[1] == clean(value), "%s: %r instead of %r" % (where, cell[1], value))
            else:
                check(cell[0] == "number" and close(cell[1], value), "%s: %s instead of %r" % (where, cell[1], value))


def check_csv(report, page):
    for name, rows in page.tables.items():
        path = report / "tables" / (name + ".csv")
        with open(path, encoding="utf-8", newline="") as f:
            table = list(csv.reader(f))
        check(len(table) == 1 + len(rows), "%s: %d rows" % (path, len(table)))
        for r, (row, cells) in enumerate(zip(table[1:], rows)):
            for c, (field, cell) in enumerate(zip(row, cells)):
                same = field == cell[1] if cell[0] == "number" else clean(field) == cell[1]
                check(same, "%s, row %d, column %d: %r, the page has %r" % (path, r, c, field, cell[1]))
                if cell[0] == "number":
                    check(report_page.shown_agrees(cell[1], cell[2]), "%s: %s is shown as %s" % (name, cell[1], cell[2]))
    on_disk = {p.stem for p in (report / "tables").glob("*")}
    check(on_disk == set(page.tables), "tables: %s" % (on_disk ^ set(page.tables)))


def check_page(text, page):
    check(not page.tags & {"script", "iframe", "object", "embed", "link", "base", "form"}, "tags: %s" % page.tags)
    check(not page.handlers, "handlers: %s" % page.handlers)
    for url in page.urls:
        ok = url.startswith("#") and url[1:] in page.ids or re.fullmatch(r"tables/[a-z0-9-]+\.csv", url)
        check(ok, "a link to %r" % url)
    check("@import" not in text and "url(http" not in text, "the style sheet loads something")
    twice = {i for i in page.ids if page.ids.count(i) > 1}
    check(not twice, "ids twice: %s" % twice)
    check(not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f]", text), "control characters in the page")
    for s in page.stray:
        check(False, "a number outside of tables and data: %r" % s)
    for name, f in page.figures.items():
        check(f["svg"], "%s has no figure" % name)
        check(f.get("role") == "img" and f.get("labelled") in page.ids, "%s has no alternative text" % name)
        check(len(f["caption"].strip()) > 20, "%s: its text is %r" % (name, f["caption"]))


def check_marks(page, model, r):
    """The points of the cost figure lie where the costs are: the same affine map for all."""
    f = page.figures.get("fig-m%d-cost" % model)
    cost = {l: r.of(l, "linear", "delta") for l in r.measured()}
    if f is None or not f["svg"] or report_expected.study_model(r) or \
            max(map(abs, cost.values())) > 12 * max(1, abs(r.median("delta"))):
        return # another axis, or the study's marks between
    key = 3 # a mark of each kind in the key
    marks = sorted(m for m in f["marks"] if m[2] in ("var(--s1)", "var(--s2)", "var(--s3)"))
    check(len(marks) == len(cost) + key, "cost figure: %d marks for %d layers" % (len(marks) - key, len(cost)))
    low, high = min(cost, key=cost.get), max(cost, key=cost.get)
    plotted = [m for m in marks if m[1] > 60] # the key lies above
    if len(plotted) != len(cost):
        return
    at = dict(zip(sorted(cost), plotted))
    scale = (at[high][1] - at[low][1]) / (cost[high] - cost[low])
    for layer, mark in at.items():
        y = at[low][1] + scale * (cost[layer] - cost[low])
        check(abs(y - mark[1]) < 0.1, "cost figure: layer %d is drawn at %g instead of %g" % (layer, mark[1], y))


def same(given, wanted):
    """A value of summary.json and the one that it must be."""
    if isinstance(wanted, str) or wanted is None or given is None:
        return given is None and (wanted is None or wanted != wanted) or given == wanted
    return close(given, wanted)


def check_training(r, m):
    """What summary.json says of a training, and of the plan against its control."""
    against = r.against_evaluation()
    wanted = {"control_comparison": r.against_state(), "control_verdict": against["verdict"] if against else None,
              "against_control": r.against(), "training_speed": r.speeds()} if r.trains() else {}
    keys = ("control_comparison", "control_verdict", "against_control", "training_speed")
    check({k for k in keys if k in m} == set(wanted), "summary.json: %s of a training" % (set(m) & set(keys)))
    for key, value in wanted.items():
        rows = list(zip(m[key], value)) if isinstance(value, list) else []
        check(rows or value == [] or same(m[key], value), "summary.json: %s is %r instead of %r" % (key, m[key], value))
        check(not isinstance(value, list) or len(m[key]) == len(value), "summary.json: %d %s" % (len(m[key] or ""), key))
        for given, want in rows:
            check(list(given) == list(want) and all(same(given[k], want[k]) for k in want),
                  "summary.json: %s has %r instead of %r" % (key, given, want))


def main():
    report, reference, tolerance = pathlib.Path(sys.argv[1]), sys.argv[2], float(sys.argv[3])
    text = (report / "report.html").read_bytes().decode("utf-8") # strict
    page = report_page.Page(text)
    summary = json.loads((report / "summary.json").read_text(encoding="utf-8"))
    results = [report_expected.Results(d, tolerance) for d in sys.argv[4:]]
    labels = [r.label() for r in results]
    labels = ["%s (%s)" % (l, r.dir) if labels.count(l) > 1 else l for l, r in zip(labels, results)]

    expected, numbers = {}, {}
    for i, r in enumerate(results):
        expected.update({"m%d-%s" % (i, k): v for k, v in r.tables().items()})
        numbers.update({(i, k): v for k, v in r.numbers().items()})
        check_marks(page, i, r)
    ledger = report_claims.claims(reference, results, labels)
    expected["claims"] = [[row["claim"], row["model"], row["statement"],
                           "%s (%s)" % (row["published_value"], row["unit"]), verdict, value, low, high, label, None]
                          for row, verdict, value, low, high, label, *_ in ledger]
    expected["claims-notes"] = [[row["claim"], None, None, beside, None, None, row["where"], row["caveat"]]
                                for row, *_, beside, _ in ledger]
    for word in ("reproduced", "not reproduced", "contradicted", "not tested"):
        numbers["page", "claims_" + word.replace(" ", "_")] = sum(v[1] == word for v in ledger)
    missing = [(l, n) for r, l in zip(results, labels) for n in report_expected.NAMES if n not in r.files]
    numbers["page", "files_missing"] = len(missing)
    expected["missing-files"] = [[l, n, "not there", None, None] for l, n in missing] or None
    expected["provenance-attributes"] = [
        [l, n, name, report_expected.text(value) if not hasattr(value, "dtype") or value.dtype.kind in "SO"
         else "%d" % value if value.dtype.kind in "iu" else "%.17g" % value]
        for r, l in zip(results, labels) for n in report_expected.NAMES if n in r.files
        for name, value in sorted(r.files[n].attrs.items(), key=lambda x: x[0].encode()) if name != "configuration"]
    expected.update(report_expected.provenance(results, labels))
    expected["published-layers"] = report_expected.published_layers(reference, results, labels)
    measured = [(r, l) for r, l in zip(results, labels) if r.measured()]
    if len(measured) > 1:
        expected["models"] = [
            [l, r.attribute("model_family"), float(r.attribute("model_parameters", "nan")), len(r.measured()),
             *([r.verdict(x) for x in r.measured()].count(w) for w in ("wasted", "needed", "undecided")),
             r.median("delta"), r.median("low"), r.median("high"), r.rows[0]["ppl"] if r.rows else math.nan,
             r.n_tokens if r.rows else 0, r.n_units if r.rows else 0] for r, l in measured]
        for name, family in (("sized_gpt2", "GPT-2"), ("sized_gpt_neox", "GPT-NeoX")):
            numbers["page", name] = sum(r.attribute("model_family") == family and bool(r.measured()) for r in results)

    compared, about = report_expected.trainings(results, labels)
    expected.update(compared)
    numbers.update({("page", k): v for k, v in about.items()})

    for name in expected:
        check(expected[name] is None or name in page.tables, "there is no table %s" % name)
    for name, rows in page.tables.items():
        if expected.get(name) is None:
            check(False, "table %s: nothing here recomputes it" % name)
        else:
            compare_rows(name, rows, expected[name])
    for (row, *_, reason), cells in zip(ledger, page.tables.get("claims-notes", [])):
        why = cells[1][1]
        check(why.startswith("not tested: %s. " % reason) if reason else "not tested: " not in why,
              "claim %s: why is %r instead of %r" % (row["claim"], why, reason))
    seen = set()
    for scope, name, value, shown in page.numbers:
        key = (int(scope[1:]), name) if re.fullmatch(r"m\d+", scope) else ("page", name)
        seen.add(key)
        check(key in numbers, "number %s of %s: nothing here recomputes it" % (name, scope))
        if key in numbers:
            check(close(value, numbers[key]), "%s: %s instead of %r" % (key, value, numbers[key]))
            check(report_page.shown_agrees(value, shown), "%s: %s is shown as %s" % (key, value, shown))
            at = summary if key[0] == "page" else summary["models"][key[0]]
            given = at.get(name, "absent")
            check(given is None and math.isnan(numbers[key]) or close(given, numbers[key]), "summary.json: %s" % name)
    for r, m, label in zip(results, summary["models"], labels):
        check(m["label"] == label or "?" in m["label"], "summary.json: label %r" % m["label"])
        check_training(r, m)
        for layer in m["layers"]:
            l = layer["layer"]
            check(layer["verdict"] == r.verdict(l), "summary.json: verdict of layer %d" % l)
            for k, member in (("cost_pct", "delta"), ("low_pct", "low"), ("high_pct", "high")):
                value = r.of(l, "linear", member)
                check(layer[k] is None and not math.isfinite(value) or close(layer[k], value), "summary.json: %s" % k)
    wasted = [str(l) for r in results for w in ("wasted", "needed") for l in r.measured() if r.verdict(l) == w]
    check([v for v, _ in page.layers] == wasted and all(v == s for v, s in page.layers), "layers named in the answer")
    check_csv(report, page)
    check_page(text, page)
    for message in FAILED[:40]:
        print("FAILED:", message)
    count = sum(c[0] == "number" for t in page.tables.values() for r in t for c in r)
    print("%d numbers in %d tables, %d in the text, %d figures: %s"
          % (count, len(page.tables), len(page.numbers), len(page.figures), "wrong" if FAILED else "as recomputed"))
    sys.exit(1 if FAILED else 0)


main()
