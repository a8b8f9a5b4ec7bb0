#!/usr/bin/env python3
"""Faults of the whole program: `wanamaker run` on a small model while its surroundings fail.

    faults.py WANAMAKER MPIEXEC DATA quick|all [GROUP...]     (WM_FAULTS in the environment overrides the tier)

DATA is tests/data. Every case, on 1 and on 4 ranks where that makes a difference, must end with the exit code of
its kind and words that name what failed, nobody left 10 s after the fault; what was finished before stays, and the
next run completes with the numbers of an undisturbed one. File systems of a case's own need the right to mount
(root, or user namespaces); without it those groups are left out and named."""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from fault_bench import Bench
from shared import codes_of_abort, rank_of, ranks_of

ENVIRONMENT, INPUT, STALLED = 4, 3, 74
QUICK = os.environ.get("WM_FAULTS", sys.argv[4]) != "all"
RANKS = (1, 4)
DONE = {"tokenize": r"tokenize: main: .*wrote", "fit": r"fit: wrote", "model": r"layers of width"}


def mount(*arguments):
    subprocess.run(["mount", *arguments], check=True)


def unmount(path, *options):
    subprocess.run(["umount", *options, path], check=True)


# --- disks --------------------------------------------------------------------------------------------------------


def published(out):
    """Identity of every finished result."""
    names = [n for n in sorted(os.listdir(out)) if n.endswith(".h5")] if os.path.isdir(out) else []
    return {n: (os.stat(os.path.join(out, n)).st_ino, os.stat(os.path.join(out, n)).st_mtime_ns) for n in names}


def one_full_disk(b, name, ranks, out, *settings):
    """A run that a full disk ends, with what was there before intact: (file that met it, bytes it wanted); None when
    the run is complete."""
    before = published(out)
    run = b.start(ranks, out, *settings)
    if run.end()[0] == 0:
        return None
    b.judge(name, run, [ENVIRONMENT], r"wanamaker: environment error: .*" + re.escape(out) + r".*(cannot reserve|No space)")
    after, said = published(out), run.said()
    kept = {n: after.get(n) for n in before} == before
    skipped = all(re.search(re.escape(n) + " is complete for these inputs; skipped", said) for n in before)
    if not (kept and skipped and b.scraps(out) == []):
        b.report(False, name, f"before {before}, after {after}, scraps {b.scraps(out)}\n{said}")
    wanted = re.search(r"cannot reserve (\d+) bytes", said)
    found = re.search(re.escape(out) + r"/([\w.]+?)(\.h5|/(gram/)?\d+\.h5|: )", said.split("wanamaker: ")[-1])
    return found.group(1) if found else "?", int(wanted.group(1)) if wanted else 0


# At which of its failures a result's parts get their turn, how much more space they find, and what makes them.
EXTRA = {"surrogates": (1, 768 << 10, ("checkpoint.minutes=0.0001", "fit.memory_gib=0.002")),
         "sweep": (2, 0, ("checkpoint.minutes=0.0001",))}


def full_disk(b, ranks):
    """A disk that grows after every failure by no more than was asked for, so that each stage in turn meets its end."""
    name, disk = f"full disk, {ranks} rank(s)", b.path("disk")
    os.makedirs(disk, exist_ok=True)
    size, slack, out, hit = 128 << 10, 16 << 10, os.path.join(disk, "out"), []
    beside = []
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", disk)
    try:
        for _ in range(30):
            met = one_full_disk(b, f"{name}, {size >> 10} KiB", ranks, out, "checkpoint.minutes=0")
            if met is None:
                break
            again = hit[-1:] == [met]
            hit.append(met)
            # Parts are written beside a result's file that has been begun.
            if [file for file, _ in hit].count(met[0]) == EXTRA.get(met[0], (0,))[0] and not again:
                _, more, settings = EXTRA[met[0]]
                mount("-o", f"remount,size={size + more}", disk)
                beside.append(one_full_disk(b, f"{name}, {(size + more) >> 10} KiB, parts", ranks, out, *settings)[0])
                mount("-o", f"remount,size={size}", disk)
            fs = os.statvfs(disk)
            size = max(size, (fs.f_blocks - fs.f_bfree) * fs.f_frsize + met[1]) + slack * (4 if again else 1)
            mount("-o", f"remount,size={size}", disk)
        files = [file for file, _ in hit] + beside
        b.report({"tokens.main.stream", "surrogates", "surrogates.parts", "sweep", "sweep.parts"} <= set(files), f"{name}: files that met it", str(files))
        mount("-o", "remount,size=64m", disk)
        b.same_numbers(name, ranks, out)
    finally:
        unmount(disk)


def spills(b, ranks):
    """A text so large that its tokens do not stay in memory, on a disk that does not hold them."""
    name, disk, large = f"spill file, {ranks} rank(s)", b.path("disk"), b.path("large.txt")
    os.makedirs(disk, exist_ok=True)
    with open(b.path("text.txt"), encoding="utf-8") as f, open(large, "w", encoding="utf-8") as g:
        g.write(f.read() * (350 * ranks))
    mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", disk)
    try:
        out = os.path.join(disk, "out")
        run = b.start(ranks, out, f"corpora.main.path={large}", job="tokenize")
        b.judge(name, run, [ENVIRONMENT], r"h5: cannot write the temporary file of .* in its directory, after \d+ bytes: No space")
        b.report(os.listdir(out) == [".lock"], f"{name}: scraps", str(os.listdir(out)))
        mount("-o", "remount,size=256m", disk)
        b.finish(f"{name}: the next run", b.start(ranks, out, f"corpora.main.path={large}", job="tokenize"), "wrote")
    finally:
        unmount(disk)
        os.remove(large)


def disk_fills(b, ranks):
    """Another program takes the space while a stage is at work."""
    disk = b.path("disk")
    os.makedirs(disk, exist_ok=True)
    for stage in ("tokenize", "fit"):
        mount("-t", "tmpfs", "-o", "size=6m", "tmpfs", disk)
        try:
            out = os.path.join(disk, "out")
            run = b.start(ranks, out)
            run.reached(DONE[stage])
            run.fault()
            with open(os.path.join(disk, "filler"), "wb", buffering=0) as f:
                try:
                    while True:
                        f.write(bytes(1 << 16))
                except OSError:
                    pass
            before = published(out)
            b.judge(f"disk fills after {stage}, {ranks} rank(s)", run, [ENVIRONMENT], r"cannot reserve|No space left")
            b.report({n: published(out).get(n) for n in before} == before and b.scraps(out) == [],
                     f"disk fills after {stage}, {ranks} rank(s): earlier results", str(sorted(before)))
            os.remove(os.path.join(disk, "filler"))
            b.same_numbers(f"disk fills after {stage}, {ranks} rank(s)", ranks, out)
        finally:
            unmount(disk)


def read_only(b, ranks):
    b.undisturbed(ranks)
    place = b.path(f"reference.{ranks}")
    mount("--bind", place, place)
    try:
        mount("-o", "remount,bind,ro", place)
        run = b.start(ranks, place, "bootstrap.seed=2")
        b.judge(f"read-only directory, {ranks} rank(s)", run, [ENVIRONMENT], r"reference\.\d: cannot make .*Read-only")
    finally:
        unmount(place)
    disk, out = b.fresh("gone"), b.path("gone", "out")
    os.makedirs(disk)
    mount("-t", "tmpfs", "tmpfs", disk)
    run = b.start(ranks, out)
    run.reached(DONE["tokenize"])
    unmount(disk, "-l")
    run.fault()
    b.judge(f"file system taken away, {ranks} rank(s)", run, [ENVIRONMENT, INPUT], re.escape(out) + r"\S*: (cannot|not there)")


def parts_there(run, folder):
    """Waits until a checkpoint has been written."""
    while run.process.poll() is None and not (os.path.isdir(folder) and any(f.endswith(".h5") for f in os.listdir(folder))):
        time.sleep(0.005)


def read_only_a_while(b, ranks):
    """A file system that turns read-only under a run and comes back: what the run wrote before is there and goes on."""
    for stage in ("tokenize", "fit", "checkpoint"):
        name, out = f"read-only for a while after {stage}, {ranks} rank(s)", b.fresh("while")
        run = b.start(ranks, out, *(("checkpoint.minutes=0.0001", "sweep.group=1") if stage == "checkpoint" else ()))
        run.reached(DONE["fit" if stage == "checkpoint" else stage])
        if stage == "checkpoint":
            parts_there(run, os.path.join(out, "sweep.parts"))
        # At once, by a mount that is made beside it; files that are open stay writable.
        beside = b.path("beside")
        os.makedirs(beside, exist_ok=True)
        mount("--bind", out, beside)
        mount("-o", "remount,bind,ro", beside)
        mount("--bind", beside, out)
        try:
            run.fault()
            before = published(out)
            b.judge(name, run, [ENVIRONMENT], r"wanamaker: environment error: .*" + re.escape(out) + r".*Read-only file system")
            b.judge(f"{name}: another run meanwhile", b.start(ranks, out), [ENVIRONMENT],
                    re.escape(out) + r"\S*: cannot .*Read-only file system")
            b.report({n: published(out).get(n) for n in before} == before, f"{name}: earlier results", str(sorted(before)))
        finally:
            unmount(out)
            unmount(beside)
        if stage == "checkpoint":
            b.finish(f"{name}: it goes on", b.start(ranks, out), r"sweep: resuming: ")
        b.same_numbers(name, ranks, out)


def places(b, ranks):
    run = b.start(ranks, b.path("text.txt"))
    b.judge(f"output.dir is a file, {ranks} rank(s)", run, [ENVIRONMENT], r"text\.txt: cannot make .*Not a directory")
    for stage in ("tokenize", "fit"):
        out = b.fresh("vanishing")
        run = b.start(ranks, out)
        run.reached(DONE[stage])
        run.fault()
        shutil.rmtree(out, ignore_errors=True)
        b.judge(f"directory vanishes after {stage}, {ranks} rank(s)", run, [ENVIRONMENT, INPUT],
                r"wanamaker: [\w ]+: \S*vanishing\S*: (cannot|not there)")


# --- limits -------------------------------------------------------------------------------------------------------


def limit_later(b, ranks, stage, option):
    """Each rank gets the limit when the stage before is done."""
    out = b.fresh("limits")
    run = b.start(ranks, out)
    run.reached(stage)
    for pid in ranks_of(run.process.pid, b.program) if ranks > 1 else [run.process.pid]:
        subprocess.run(["prlimit", "--pid", str(pid), option], check=False)
    run.fault()
    return run


def limits(b, ranks):
    for name, shell in (("ulimit -f", "ulimit -f 600"), ("ulimit -n", "ulimit -n 8"), ("ulimit -v", "ulimit -v 100000")):
        run = b.start(ranks, b.fresh("limits"), before=shell)
        b.judge(f"{name} from the start, {ranks} rank(s)", run, None,
                r"(?i)open files|descriptor|pipe|limit|memory|resource|map segment|unable")
    run = limit_later(b, ranks, r"memory left", "--fsize=1000000")
    b.judge(f"ulimit -f while it runs, {ranks} rank(s)", run, [ENVIRONMENT],
            r"\.h5\.tmp: needs up to \d+ bytes, but this process may write files of 1000000 bytes only \(ulimit -f\)")
    run = limit_later(b, ranks, DONE["tokenize"], "--as=100000000")
    b.judge(f"ulimit -v while it runs, {ranks} rank(s)", run, None, r"cannot (allocate|map) \d+ bytes|(?i:memory|resource)")
    run = limit_later(b, ranks, DONE["tokenize"], "--nofile=4")
    # Limits that come between the program's look and MPI's use are told by MPI.
    b.judge(f"ulimit -n while it runs, {ranks} rank(s)", run, None, r"(cannot|no file can be) open|Too many open files")
    b.same_numbers(f"limits, {ranks} rank(s)", ranks, b.path("limits"))


def small_shm(b, ranks):
    mount("-t", "tmpfs", "-o", "size=20m", "tmpfs", "/dev/shm")
    try:
        out = b.fresh("shm")
        run = b.start(ranks, out, "fit.memory_gib=8", "compute.block_tokens=16384", "ranges.fit.tokens=[1200,7000]",
                      "ranges.evaluation.tokens=[7000,8000]")
        b.judge(f"small /dev/shm, {ranks} rank(s)", run, [ENVIRONMENT],
                r"needs [\d.]+ GiB of node-shared memory, but /dev/shm has room for [\d.]+ GiB; .*osc_sm_backing_directory")
    finally:
        unmount("/dev/shm")


def memory_limit(b, ranks):
    """What the system says of memory: too little, nothing at all, and a control group's limit."""
    def told(path, text, case, verdict):
        fake = b.path("told")
        with open(fake, "w", encoding="utf-8") as f:
            f.write(text)
        mount("--bind", fake, path)
        try:
            verdict(b.start(ranks, b.fresh("memory")), f"{case}, {ranks} rank(s)")
        finally:
            unmount(path)

    def refused(source):
        return lambda run, name: b.judge(name, run, [ENVIRONMENT],
                                         r"weights: this node has 0\.\d\d MiB of memory left \(.*" + source +
                                         r".*\), [\d.]+ MiB is needed")

    told("/proc/meminfo", "MemTotal: 900 kB\nMemAvailable: 90 kB\n", "little memory left", refused("/proc/meminfo"))
    told("/proc/meminfo", "", "unreadable /proc/meminfo",
         lambda run, name: b.finish(name, run, r"debug: memory left on this node: "))
    for limit in ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory.max"):
        usage = limit.replace("limit_in_bytes", "usage_in_bytes").replace("memory.max", "memory.current")
        if os.path.exists(limit) and os.path.exists(usage):
            told(limit, "4096\n", "control group's limit", refused(re.escape(limit)))


# --- ranks --------------------------------------------------------------------------------------------------------


def strike(b, ranks, stage, victim, number, *settings):
    """Sends a signal to a rank once the stage before `stage` is done."""
    out = b.fresh("struck")
    run = b.start(ranks, out, *settings)
    if stage == "start":
        while ranks > 1 and len(ranks_of(run.process.pid, b.program)) < ranks and run.process.poll() is None:
            time.sleep(0.01)
    else:
        run.reached({"tokenize": r"memory left", "fit": DONE["tokenize"], "sweep": DONE["fit"]}[stage])
    pids = ranks_of(run.process.pid, b.program) if ranks > 1 else [run.process.pid]
    run.fault()
    for pid in pids:
        if ranks == 1 or rank_of(pid) == victim:
            os.kill(pid, number)
    return run, out


def killed(b, ranks):
    victims = (0,) if ranks == 1 else (0, 3)
    words = "" if ranks == 1 else r"(?i)signal|killed"
    for stage in ("fit",) if QUICK else ("start", "tokenize", "fit", "sweep"):
        for victim in victims:
            run, out = strike(b, ranks, stage, victim, signal.SIGKILL)
            b.judge(f"rank {victim} of {ranks} killed, {stage}", run, None, words)
    b.same_numbers(f"killed, {ranks} rank(s)", ranks, out)
    run, _ = strike(b, ranks, "fit", victims[-1], signal.SIGSEGV)
    b.judge(f"rank {victims[-1]} of {ranks} crashed, fit", run, None, words)


def stopped(b, ranks):
    for victim in (0, 3):
        run, _ = strike(b, ranks, "fit", victim, signal.SIGSTOP, "watchdog.seconds=3")
        b.judge(f"rank {victim} of {ranks} stopped, watchdog 3 s", run, sorted(codes_of_abort(b.mpiexec, STALLED)), r"no progress: ")


# --- streams ------------------------------------------------------------------------------------------------------


def streams(b, ranks):
    """Standard streams that are closed, full or broken. Behind a launcher the ranks' own are whole: it is the
    launcher that loses the output, and its exit code that tells or does not."""
    b.undisturbed(ranks)

    def case(name, shell, codes, pattern, **keywords):
        out = b.fresh("streams")
        run = b.start(ranks, out, launcher_before=shell, **keywords)
        b.judge(f"{name}, {ranks} rank(s)", run, codes, pattern)
        if ranks > 1 and run.process.returncode == 1:  # the launcher has ended the run
            b.finish(f"{name}, {ranks} rank(s): the next run", b.start(ranks, out))
        b.report(b.losses(out) == b.reference[ranks], f"{name}, {ranks} rank(s): result", "as undisturbed")

    lost = [ENVIRONMENT] if ranks == 1 else [0, 1, ENVIRONMENT]
    words = r"cannot write|standard output" if ranks == 1 else ""
    case("stdout closed", "exec >&-", lost, words)
    with open("/dev/full", "w", encoding="utf-8") as full:
        case("stdout full", ":", lost, words, stdout=full)
    read, write = os.pipe()
    os.close(read)
    case("stdout a broken pipe", ":", lost, words, stdout=write)
    os.close(write)
    case("stdin closed", "exec <&-", [0], "sweep: wrote")
    case("stderr closed", "exec 2>&-", [0], "")


# --- other runs, inputs and names ---------------------------------------------------------------------------------


def two_runs(b, ranks):
    out = b.fresh("shared")
    first = b.start(ranks, out)
    first.reached(DONE["tokenize"])
    first.signal(signal.SIGSTOP)  # it holds its lock and does not end before the second one has begun
    second = b.start(ranks, out)
    b.judge(f"a second run, {ranks} rank(s)", second, [ENVIRONMENT],
            r"shared/\.lock: another run is writing to this directory \(process \d+ on \S+\)")
    first.signal(signal.SIGCONT)
    b.finish(f"the first of two runs, {ranks} rank(s)", first, r"sweep: wrote")
    b.report(b.losses(out) == b.undisturbed(ranks), f"the first of two runs, {ranks} rank(s): numbers", "as undisturbed")


def dead_jobs(b, ranks):
    """What killed runs leave behind, and worse: temporary files under the names that this run needs, whole, torn and
    write-protected; a lock whose holder is gone; parts that are none."""
    name, out = f"leftovers of dead jobs, {ranks} rank(s)", b.fresh("leftovers")
    b.undisturbed(ranks)
    os.makedirs(os.path.join(out, "sweep.parts"))
    whole = b.path(f"reference.{ranks}", "sweep.h5")
    shutil.copy(whole, os.path.join(out, "sweep.h5.tmp"))
    shutil.copy(whole, os.path.join(out, "sweep.parts", "0001.h5.tmp"))
    with open(whole, "rb") as f, open(os.path.join(out, "surrogates.h5.tmp"), "wb") as g:
        g.write(f.read(1000))
    with open(os.path.join(out, "tokens.main.stream.h5.tmp"), "wb"):
        pass
    for torn in ("sweep.parts/0002.h5", "sweep.parts/0003.h5"):
        with open(os.path.join(out, torn), "wb") as g:
            g.write(b"\x89HDF" if torn.endswith("2.h5") else b"")
    with open(os.path.join(out, ".lock"), "w", encoding="utf-8") as f:
        f.write("process 1 on a node that is gone\n")
    for file in ("surrogates.h5.tmp", "tokens.main.stream.h5.tmp"):
        os.chmod(os.path.join(out, file), 0o444)
    b.same_numbers(name, ranks, out)


def clocks(b, ranks):
    """Clocks a day apart that are set while the run is at work, and inputs and results of tomorrow."""
    skew = os.environ.get("WM_CLOCK_SKEW_LIBRARY", "")
    if not os.path.exists(skew):
        b.left_out.append("clocks (WM_CLOCK_SKEW_LIBRARY names no library)")
        return
    want = b.undisturbed(ranks)
    name, out, model = f"clocks that disagree, {ranks} rank(s)", b.fresh("clocks"), b.fresh("tomorrow")
    set_clocks = f"export WM_CLOCK_SKEW=86400 LD_PRELOAD={skew}"
    shutil.copytree(b.model, model)
    text = shutil.copy(b.path("text.txt"), b.path("tomorrow.txt"))

    def is_of_tomorrow(path, days):
        os.utime(path, (time.time() + days * 86400,) * 2)

    for file in os.listdir(model):
        is_of_tomorrow(os.path.join(model, file), 1)
    is_of_tomorrow(text, 400)
    given = (f"model.path={model}", f"corpora.main.path={text}", "checkpoint.minutes=0.0005", "watchdog.seconds=20")
    run = b.start(ranks, out, *given, before=set_clocks)
    b.finish(name, run, r"sweep: wrote")
    dump = subprocess.run(["h5dump", "-a", "/start", os.path.join(out, "sweep.h5")], check=False, capture_output=True, text=True)
    b.report(time.strftime("%Y-%m-%d", time.gmtime(time.time() + 86400)) in dump.stdout, f"{name}: rank 0 is a day ahead",
             " ".join(re.findall(r"\d{4}-\d\d-\d\d", dump.stdout)) or dump.stderr)
    b.report(b.losses(out) == want, f"{name}: numbers", "as undisturbed")
    for file in os.listdir(out):
        is_of_tomorrow(os.path.join(out, file), -400 if file.startswith("sweep") else 2)
    before = published(out)
    run = b.start(ranks, out, *given)
    b.finish(f"{name}: results older than their inputs", run, r"sweep\.h5 is complete for these inputs; skipped")
    b.report(published(out) == before, f"{name}: results of another day are kept", str(sorted(before)))


def shorten(path):
    os.truncate(path, 4096)


def overwrite(path):
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"\x01")


def changed_input(b, ranks):
    """Files that somebody writes to while they are in use: nothing is published that was computed from them."""
    tokens, fitted = ["tokens.main.stream.h5"], ["surrogates.h5", "tokens.main.stream.h5"]
    for what, change, stage, left in (("model", shorten, "model", tokens), ("model", shorten, "fit", fitted),
                                      ("model", overwrite, "model", tokens), ("model", overwrite, "fit", fitted),
                                      ("corpus", shorten, "start", []), ("corpus", overwrite, "start", [])):
        model, out = b.fresh("model"), b.fresh("changed")
        shutil.copytree(b.model, model)
        text = shutil.copy(b.path("text.txt"), b.path("changing.txt"))
        if what == "corpus":
            with open(text, "a", encoding="utf-8") as f:
                f.writelines(f"And {i} more lines of a text that takes its time, {i * 37 % 1009}.\n" for i in range(200000))
        run = b.start(ranks, out, f"model.path={model}", f"corpora.main.path={text}")
        if what == "corpus":
            run.mapped(text)
        else:
            run.reached(DONE[stage])
        run.fault()
        change(text if what == "corpus" else os.path.join(model, "model.safetensors"))
        name = f"{what} {change.__name__} ({stage}), {ranks} rank(s)"
        file = "changing.txt" if what == "corpus" else "model.safetensors"
        b.judge(name, run, [ENVIRONMENT, INPUT], re.escape(file) + ": changed while it was read")
        b.report(sorted(published(out)) == left, f"{name}: results", str(sorted(published(out))))


def names(b, ranks):
    want = b.undisturbed(ranks)
    for name, out, start in (("spaces and UTF-8", b.path(f"a b {ranks}", "größe ¼ 模型"), b.top),
                             ("relative", f"relative/{ranks}", b.top),
                             ("long", b.path(*["d" * 200] * 8, str(ranks)), b.top)):
        if b.finish(f"output.dir {name}, {ranks} rank(s)", b.start(ranks, out, cwd=start)):
            b.report(b.losses(os.path.join(b.top, out)) == want, f"output.dir {name}, {ranks} rank(s): numbers", "as undisturbed")
    run = b.start(ranks, b.path(*["d" * 200] * 25))
    b.judge(f"output.dir beyond what the system takes, {ranks} rank(s)", run, [2, ENVIRONMENT], r"too long|File name")


GROUPS = {  # name: (function, needs mounts, numbers of ranks, quick tier's numbers of ranks)
    "full_disk": (full_disk, True, RANKS, ()), "spills": (spills, True, RANKS, ()),
    "disk_fills": (disk_fills, True, RANKS, (4,)), "read_only": (read_only, True, RANKS, (4,)),
    "read_only_a_while": (read_only_a_while, True, RANKS, (1,)), "places": (places, False, RANKS, (1,)),
    "limits": (limits, False, RANKS, ()), "small_shm": (small_shm, True, (4,), (4,)),
    "memory_limit": (memory_limit, True, RANKS, (1,)), "killed": (killed, False, RANKS, (4,)),
    "stopped": (stopped, False, (4,), ()), "streams": (streams, False, RANKS, (1,)),
    "two_runs": (two_runs, False, RANKS, (1,)), "changed_input": (changed_input, False, RANKS, (1,)),
    "dead_jobs": (dead_jobs, False, RANKS, (4,)), "clocks": (clocks, False, RANKS, (4,)),
    "names": (names, False, RANKS, ())}


def with_mounts():
    """Goes on in a mount namespace of its own, where there is one to be had."""
    for options in (["-m"], ["-rm"]):
        if subprocess.run(["unshare", *options, "true"], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            os.environ["WM_FAULT_MOUNTS"] = "yes"
            os.execvp("unshare", ["unshare", *options, sys.executable, *sys.argv])
    os.environ["WM_FAULT_MOUNTS"] = "no"


def every_group(b, wanted):
    for name, (function, mounts, ranks, quick) in GROUPS.items():
        if wanted and name not in wanted:
            continue
        if mounts and os.environ["WM_FAULT_MOUNTS"] == "no":
            b.left_out.append(name)
            continue
        begin = time.monotonic()
        for number in quick if QUICK and not wanted else ranks:
            function(b, number)
        print(f"-- {name}: {time.monotonic() - begin:.0f} s", flush=True)
    print(f"{b.passed} checks passed, {b.failures} failed; left out: {', '.join(b.left_out) or 'nothing'}")
    return b.failures != 0


def main():
    if "WM_FAULT_MOUNTS" not in os.environ:
        with_mounts()
    program, mpiexec, data, wanted = os.path.abspath(sys.argv[1]), sys.argv[2], os.path.abspath(sys.argv[3]), sys.argv[5:]
    with tempfile.TemporaryDirectory(prefix="wm_faults_") as top:
        if os.environ["WM_FAULT_MOUNTS"] == "yes":
            mount("-t", "tmpfs", "tmpfs", top)  # syncs at once
        try:
            return every_group(Bench(top, program, mpiexec, os.path.join(data, "demo_gpt2")), wanted)
        finally:
            if os.path.ismount(top):
                unmount(top, "-l")


sys.exit(main())
