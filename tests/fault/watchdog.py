#!/usr/bin/env python3
"""The watchdog: a stopped rank ends the run in time with exit code 74; slow, announced and suspended work does not.

    watchdog.py WATCHDOG_TOOL MPIEXEC
"""

import os
import signal
import subprocess
import sys
import time

from shared import alive, codes_of_abort, rank_of

TOOL, MPIEXEC = sys.argv[1], sys.argv[2]
LIMIT = 2.0  # seconds without progress
GRACE = 10.0
STALLED = 74
failures = 0


def start(ranks, *args):
    """The run, and the process ids of its ranks, which come in any order."""
    run = subprocess.Popen([MPIEXEC, "-n", str(ranks), TOOL, str(LIMIT), *args], stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    pids = [int(run.stdout.readline()) for _ in range(ranks)]
    return run, sorted(pids, key=rank_of)


def end(name, run, pids, code, words, longest):
    """Waits for the end; it must come within `longest` seconds, with `code` and `words`, on every rank."""
    global failures
    codes = codes_of_abort(MPIEXEC, code) if code == STALLED and len(pids) > 1 else {code}
    begin = time.monotonic()
    try:
        errors = run.communicate(timeout=longest + 30)[1]
    except subprocess.TimeoutExpired:
        run.kill()
        errors = run.communicate()[1] + "\n(had to be killed)"
    seconds = time.monotonic() - begin
    left = [pid for pid in pids if alive(pid)]
    while left and time.monotonic() - begin < longest:  # the launcher may have left before its ranks
        time.sleep(0.1)
        left = [pid for pid in left if alive(pid)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    good = run.returncode in codes and seconds <= longest and all(w in errors for w in words) and not left
    failures += not good
    print(f"{'ok    ' if good else 'FAILED'} {name}: exit {run.returncode} after {seconds:.1f} s")
    if not good:
        print(f"expected {sorted(codes)} within {longest:.0f} s and {words}; ranks left: {left}; said:\n{errors}")
    else:
        print("".join(f"       {line}\n" for line in errors.splitlines() if "no progress" in line), end="")


def stopped_rank(case, ranks, victim, words, *args):
    run, pids = start(ranks, case, *args)
    time.sleep(0.5)
    os.kill(pids[victim], signal.SIGSTOP)
    end(f"{case} on {ranks} ranks, rank {victim} stopped", run, pids, STALLED, words, LIMIT + GRACE)


def undisturbed(case, ranks, *args):
    run, pids = start(ranks, case, *args)
    end(f"{case} on {ranks} ranks", run, pids, 0, [], 3 * LIMIT + GRACE)


def suspended(ranks):
    """All ranks stop for twice the limit, as under a suspended job, and go on."""
    run, pids = start(ranks, "slow")
    time.sleep(0.5)
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(2 * LIMIT)
    for pid in pids:
        os.kill(pid, signal.SIGCONT)
    end(f"suspended on {ranks} ranks", run, pids, 0, [], 3 * LIMIT + GRACE)


def nobody_reads():
    """Standard error is a pipe that is full: there is no telling, but the run ends. Without a launcher, which reads."""
    global failures
    read, write = os.pipe()
    os.set_blocking(write, False)
    try:
        while True:
            os.write(write, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(write, True)
    run = subprocess.Popen([TOOL, str(LIMIT), "quiet"], stdout=subprocess.DEVNULL, stderr=write)
    try:
        code = run.wait(LIMIT + GRACE)
    except subprocess.TimeoutExpired:
        run.kill()
        code = run.wait()
    os.close(read)
    os.close(write)
    failures += code != STALLED
    print(f"{'ok    ' if code == STALLED else 'FAILED'} nobody reads what is said: exit {code}")


nobody_reads()
stopped_rank("steps", 2, 0, ["no progress", "rank 0 has not answered"])
stopped_rank("steps", 3, 0, ["no progress", "rank 0 has not answered"])
stopped_rank("steps", 2, 1, ["no progress", "rank 1 ", 'in "steps"', "has not been heard of"])
stopped_rank("queue", 3, 0, ["no progress", "rank 0 has not answered"])
stopped_rank("queue", 3, 1, ["no progress", "rank 1 ", "has not been heard of"])
for number in (1, 2, 3):
    quiet, ids = start(number, "quiet")
    end(f"quiet on {number} ranks", quiet, ids, STALLED, ["no progress", "moved"], LIMIT + GRACE)
    undisturbed("slow", number)
    undisturbed("allow", number)
suspended(3)
# One thread only: the limit is tenfold, and a stopped rank's peers have no pulse.
LIMIT = 0.3
stopped_rank("steps", 2, 0, ["no progress", "has not moved for 3 s"], "single")
stopped_rank("steps", 2, 1, ["no progress", "has not moved for 3 s"], "single")
undisturbed("slow", 2, "single")
sys.exit(1 if failures else 0)
