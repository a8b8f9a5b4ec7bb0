#!/usr/bin/env python3
"""Stops and kills the jobs gate and allocate in their own work, and lets other numbers of ranks go on.

    stop.py WANAMAKER MPIEXEC MODEL_DIR

gate is hit when gates of some layers are kept (gates.fit.parts), allocate when measured plans are (allocation.plans.h5):
by SIGTERM to one rank, which must end the job with code 75, and by SIGKILL to all. The next run, on as many ranks, must
say what it goes on from and give the gates, bit for bit, of an undisturbed run; on another number of ranks, sums being
taken in another order, to rounding. Plans and their costs are equal bit for bit on any number. Nothing is left behind."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from shared import ranks_of

PROGRAM, MPIEXEC, MODEL = sys.argv[1:4]
STOPPED, PATIENCE = 75, 240  # seconds for any wait, on a machine that is busy with other things
SETTINGS = [
    "protocol.window=64", "protocol.kind=stream", "ranges.fit.tokens=[0,3000]", "ranges.gates.tokens=[3000,6000]",
    "ranges.validation.tokens=[6000,7000]", "ranges.evaluation.tokens=[7000,8000]", "compute.block_tokens=256",
    "compute.tile_rows=128", "bootstrap.resamples=200", "checkpoint.minutes=0.0005", "gate.kinds=\"linear pca norm random\"",
    "gate.bottlenecks=[3]", "gate.thresholds=[0.5]", "allocate.budgets=[1,4]", "allocate.thresholds=[0.5]",
    "allocate.shortlist=2", "allocate.layers=[1,4,6]", "sweep.divergence=false"]
WORK = tempfile.mkdtemp(prefix="wm_stop_", dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None)


def fail(message):
    sys.exit("FAILED: " + message)


def start(ranks, job, out, log):
    command = [MPIEXEC, "-n", str(ranks), PROGRAM, job, "model.path=" + MODEL,
               "corpora.main.path=" + os.path.join(WORK, "text.txt"), "output.dir=" + out] + SETTINGS
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def text_of(log):
    with open(log, encoding="utf-8", errors="replace") as f:
        return f.read()


def end(process, what, log):
    try:
        return process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return fail(f"{what}: not gone after {PATIENCE} s\n{text_of(log)}")


def run(ranks, job, out):
    """An undisturbed run; what it said."""
    log = out + ".log"
    with open(log, "wb") as f:
        process = start(ranks, job, out, f)
    if end(process, job, log) != 0:
        fail(f"{job} on {ranks} ranks\n{text_of(log)}")
    return text_of(log)


def hit(ranks, job, out, moment, how):
    """A run that is struck as soon as the file `moment` is there."""
    log, path = out + ".log", os.path.join(out, moment)
    with open(log, "wb") as f:
        process = start(ranks, job, out, f)
    begun = time.monotonic()
    while not os.path.exists(path):
        if process.poll() is not None or time.monotonic() - begun > PATIENCE:
            fail(f"{job}: {moment} never came\n{text_of(log)}")
        time.sleep(0.002)
    pids = ranks_of(process.pid, PROGRAM)
    for pid in pids[:1] if how == signal.SIGTERM else pids:
        os.kill(pid, how)
    code = end(process, f"{job}, {how.name}", log)
    if how == signal.SIGTERM and code != STOPPED or code == 0:
        fail(f"{job}, {how.name}: exit code {code}\n{text_of(log)}")


def numbers(path, data):
    dump = subprocess.run(["h5dump", "-y", "-w", "1", "-m", "%.17g", "-d", data, path], check=True, capture_output=True,
                          text=True).stdout
    return [float(x) for x in re.findall(r"^\s*([-+0-9.einfa]+),?$", dump.split("DATA {")[1], re.M)]


def same(a, b, name, data, exact):
    x, y = numbers(os.path.join(a, name), data), numbers(os.path.join(b, name), data)
    near = len(x) == len(y) > 0 and all(p == q or (p != p and q != q) or (not exact and abs(p - q) < 1e-8)
                                        for p, q in zip(x, y))
    if not near:
        fail(f"{name}: {data} is not that of an undisturbed run")


def resume(ranks, job, out, said, left):
    text = run(ranks, job, out)
    found = re.search(said, text)
    if not found or int(found.group(1)) < 1:
        fail(f"{job}: it began anew\n{text}")
    for name in left:
        if os.path.exists(os.path.join(out, name)):
            fail(f"{job}: {name} was left behind")
    return found.group(1)


def copy(source, name, *without):
    out = os.path.join(WORK, name)
    shutil.copytree(source, out)
    for file in without:
        os.unlink(os.path.join(out, file))
    return out


def main():
    with open(os.path.join(WORK, "text.txt"), "w", encoding="utf-8") as f:
        for i in range(1, 600):
            f.write(f"Line {i} of a text in which the {i * 7919 % 101} wise men of number {i * 31 % 17} walked.\n")
    start_dir = os.path.join(WORK, "start")
    for job in ("tokenize", "fit"):
        run(2, job, start_dir)
    whole = copy(start_dir, "whole")
    run(2, "gate", whole)
    told = []
    for name, ranks, how in (("term", 2, signal.SIGTERM), ("kill", 3, signal.SIGKILL)):
        out = copy(start_dir, name)
        hit(2, "gate", out, "gates.fit.parts/0001.h5", how)
        told.append(resume(ranks, "gate", out, r"resuming: (\d+) of 8 layers are fitted",
                           ("gates.fit.parts", "losses.gates.parts", "routed.validation.parts")) + " layers")
        for data in ("/weight", "/gate/bias", "/gate/fraction", "/gate/auc_heldout", "/scaler/mean", "/ends/score"):
            same(whole, out, "gates.h5", data, ranks == 2)
    run(1, "allocate", whole)
    for name, ranks, how in (("term.plans", 2, signal.SIGTERM), ("kill.plans", 1, signal.SIGKILL)):
        out = copy(whole, name, "allocation.h5", "losses.allocation.h5")
        hit(1, "allocate", out, "allocation.plans.h5", how)
        told.append(resume(ranks, "allocate", out, r"resuming: (\d+) plans are measured",
                           ("allocation.plans.h5", "allocation.parts")) + " plans")
        for data in ("/plans/option", "/plans/delta_pct", "/plans/saved_pct", "/budgets/plan"):
            same(whole, out, "allocation.h5", data, True)
    print("gate and allocate went on from " + ", ".join(told))


try:
    main()
finally:
    shutil.rmtree(WORK, ignore_errors=True)
