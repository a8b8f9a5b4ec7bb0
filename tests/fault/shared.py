"""Processes of a run, as /proc shows them, and their launchers: what the fault tests share."""

import os
import signal
import subprocess


def environment(pid):
    """The variables a process was started with; none if it is gone or another user's."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as f:
            return dict(e.split(b"=", 1) for e in f.read().split(b"\0") if b"=" in e)
    except OSError:
        return {}


def rank_of(pid):
    names = environment(pid)
    return int(names.get(b"OMPI_COMM_WORLD_RANK", names.get(b"PMI_RANK", b"-1")))


def state(pid):
    """(name, state letter, parent), None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            name, rest = f.read().rsplit(")", 1)
    except OSError:
        return None
    rest = rest.split()
    return name.split("(", 1)[1], rest[0], int(rest[1])


def alive(pid):
    found = state(pid)
    return found is not None and found[1] not in "ZX"


def everybody():
    return [int(entry) for entry in os.listdir("/proc") if entry.isdigit()]


def ranks_of(launcher, program):
    """Process ids of `program` under the launcher, whatever stands between."""
    seen = {pid: state(pid) for pid in everybody()}
    seen = {pid: s for pid, s in seen.items() if s is not None}

    def below(pid):
        while pid in seen and pid != launcher:
            pid = seen[pid][2]
        return pid == launcher

    return [pid for pid, (name, letter, _) in seen.items()
            if name == os.path.basename(program)[:15] and letter != "Z" and below(pid)]


def marked(name, value):
    """Living processes that were started with the variable `name` = `value`, wherever they hang."""
    want = value.encode()
    return [pid for pid in everybody() if environment(pid).get(name.encode()) == want and alive(pid)]


def codes_of_abort(mpiexec, code):
    """Exit codes that the launcher may give when a rank of several aborts with `code`: MPICH's kills the others and
    gives the code of one of them."""
    said = subprocess.run([mpiexec, "--version"], capture_output=True, text=True, check=False).stdout
    return {code, int(signal.SIGKILL)} if "HYDRA" in said else {code}
