#!/usr/bin/env python3
"""Kills and stops a whole run at random moments and lets other numbers of ranks go on.

    kill.py WANAMAKER MPIEXEC MODEL_DIR KILLS [SEED]     (WM_KILLS in the environment overrides KILLS)

Runs of `wanamaker run` on a small text are disturbed until KILLS of them were hit: SIGKILL to one rank
or to all, SIGTERM or SIGUSR1 to one rank. After each: the launcher is gone in time, a stop request ended
with exit code 75 or a finished run, every file under a final name can be read to its end and
calls itself complete. A run that gets through must have the losses, bit for bit, of an undisturbed
sweep with its surrogates, and no parts are left. Then the next run starts anew."""

import glob
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from shared import ranks_of

PROGRAM, MPIEXEC, MODEL = sys.argv[1:4]
KILLS = int(os.environ.get("WM_KILLS", sys.argv[4]))
SEED = int(sys.argv[5]) if len(sys.argv) > 5 else random.randrange(10**6)
GONE_WITHIN = 10  # seconds from SIGKILL to the end of the launcher
STOP_WITHIN = 60  # seconds from a request to the end, on a machine that is busy with other things
STOPPED = 75
SETTINGS = [
    "protocol.window=64", "protocol.kind=stream", "ranges.fit.tokens=[0,3000]",
    "ranges.validation.tokens=[3000,4000]", "ranges.evaluation.tokens=[5000,13000]",
    "compute.block_tokens=256", "compute.tile_rows=128", "bootstrap.resamples=200",
    "fit.memory_gib=0.002", "checkpoint.minutes=0.01"]


def fail(message):
    sys.exit("FAILED (seed %d): %s" % (SEED, message))


def write_text(path):
    with open(path, "w", encoding="utf-8") as f:
        for i in range(1, 1000):
            f.write("Line %d of a text in which the %d wise men of number %d walked; who counts them?\n"
                    % (i, i * 7919 % 101, i * 31 % 17))


def start(ranks, job, text, out, log):
    command = [MPIEXEC, "-n", str(ranks), PROGRAM, job, "model.path=" + MODEL,
               "corpora.main.path=" + text, "output.dir=" + out] + SETTINGS
    return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def strike(launcher, how):
    """Sends the signal; whether anybody was there to get it."""
    pids = ranks_of(launcher, PROGRAM)
    if how != "kill all" and pids:
        pids = [random.choice(pids)]
    number = {"kill one": signal.SIGKILL, "kill all": signal.SIGKILL, "SIGTERM": signal.SIGTERM,
              "SIGUSR1": signal.SIGUSR1}[how]
    hit = False
    for pid in pids:
        try:
            os.kill(pid, number)
            hit = True
        except ProcessLookupError:
            pass
    return hit


def wait(process, seconds, what, log):
    try:
        return process.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        fail("%s: not gone after %g s\n%s" % (what, seconds, tail(log)))


def tail(log):
    with open(log, encoding="utf-8", errors="replace") as f:
        return f.read()[-4000:]


def check_files(out):
    """Every file under a final name is whole."""
    for path in glob.glob(out + "/**/*.h5", recursive=True):
        for options in (["-a", "/complete"], ["-y"]):
            dump = subprocess.run(["h5dump"] + options + [path], capture_output=True, check=False)
            if dump.returncode != 0:
                fail("%s: h5dump %s: %s" % (path, options, dump.stderr.decode()[-400:]))
            if options[0] == "-a" and b"(0): 1" not in dump.stdout:
                fail("%s: not complete" % path)


def losses(directory, work):
    raw = os.path.join(work, "nll.raw")
    subprocess.run(["h5dump", "-d", "/nll", "-b", "LE", "-o", raw, directory + "/sweep.h5"],
                   check=True, stdout=subprocess.DEVNULL)
    with open(raw, "rb") as f:
        return f.read()


def undisturbed(job, ranks, text, out, work):
    log = os.path.join(work, "undisturbed.log")
    with open(log, "wb") as f:
        process = start(ranks, job, text, out, f)
    if wait(process, 600, "undisturbed " + job, log) != 0:
        fail("undisturbed %s\n%s" % (job, tail(log)))


def check_result(out, text, work):
    other = os.path.join(work, "other")
    os.mkdir(other)
    for path in glob.glob(out + "/tokens.*.h5") + [out + "/surrogates.h5"]:
        shutil.copy(path, other)
    undisturbed("sweep", 2, text, other, work)
    if losses(out, work) != losses(other, work):
        fail("losses differ from those of an undisturbed sweep")
    for name in ("sweep.parts", "surrogates.parts"):
        if os.path.exists(os.path.join(out, name)):
            fail(name + " was left behind")
    for path in glob.glob(out + "/**/*.tmp*", recursive=True):
        fail(path + " was left behind")
    shutil.rmtree(other)


def disturb(text, out, how, longest, work):
    """One run with one strike: (exit code, whether the strike hit)."""
    log, ranks = os.path.join(work, "run.log"), random.randint(1, 4)
    with open(log, "wb") as f:
        process = start(ranks, "run", text, out, f)
    try:
        process.wait(random.uniform(0.02, 1) * longest)
    except subprocess.TimeoutExpired:
        pass
    hit = process.poll() is None and strike(process.pid, how)
    what = "%s, %d ranks" % (how, ranks)
    limit = 600 if not hit else STOP_WITHIN if how.startswith("SIG") else GONE_WITHIN
    code = wait(process, limit, what, log)
    if "left out" in tail(log):
        fail("%s: a part could not be read\n%s" % (what, tail(log)))
    expected = (0, STOPPED) if how.startswith("SIG") else None
    if (not hit and code != 0) or (hit and expected and code not in expected):
        # Before the program has installed its handlers a signal kills as usual.
        early = hit and "tokenize" not in tail(log)
        if not early:
            fail("%s: exit code %d\n%s" % (what, code, tail(log)))
    return code, hit


def main():
    random.seed(SEED)
    base = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # memory syncs at once
    work = tempfile.mkdtemp(prefix="wm_kill_", dir=base)
    text, out = os.path.join(work, "text.txt"), os.path.join(work, "out")
    count = {"kill one": 0, "kill all": 0, "SIGTERM": 0, "SIGUSR1": 0}
    finished = stopped = resumed = 0
    try:
        write_text(text)
        begun = time.monotonic()
        undisturbed("run", 2, text, os.path.join(work, "first"), work)
        longest = time.monotonic() - begun
        while sum(count.values()) < KILLS or os.path.exists(out):
            # When all strikes are done the last run may end in peace.
            quiet = sum(count.values()) >= KILLS
            how = list(count)[sum(count.values()) % len(count)]
            code, hit = disturb(text, out, how, 1e3 if quiet else longest, work)
            count[how] += hit
            stopped += code == STOPPED
            resumed += "resuming" in tail(os.path.join(work, "run.log"))
            check_files(out)
            if code == 0:
                check_result(out, text, work)
                shutil.rmtree(out)
                finished += 1
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("seed %d: %s; %d stopped in order, %d went on from parts, %d finished, all with the losses "
          "of an undisturbed sweep; no unreadable file" % (SEED, count, stopped, resumed, finished))


main()
