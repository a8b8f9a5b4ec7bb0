"""Runs of the whole program that something is done to, timed from the fault to the last process's end."""

import os
import re
import shutil
import subprocess
import tempfile
import threading
import time

from shared import marked

MARK = "WM_FAULT_RUN"
GONE_WITHIN = 10.0  # seconds after the fault
LONGEST = 240.0  # of a run that nothing ends; a busy machine may take long over it


class Run:
    """A started run. Its errors are read as they come, each line with its time."""

    count = 0

    def __init__(self, command, stdout=None, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, cwd=None):
        Run.count += 1
        self.mark = f"{os.getpid()}.{Run.count}"
        self.lines, self.changed = [], threading.Condition()
        self.output = tempfile.TemporaryFile("w+", errors="replace")
        self.since, self.marked = time.monotonic(), False
        self.process = subprocess.Popen(command, stdout=stdout or self.output, stderr=stderr, stdin=stdin, cwd=cwd,
                                        env={**os.environ, MARK: self.mark}, start_new_session=True, text=True,
                                        errors="replace")
        self.reader = threading.Thread(target=self.read, daemon=True)
        if self.process.stderr is not None:
            self.reader.start()

    def read(self):
        for line in self.process.stderr:
            with self.changed:
                self.lines.append((time.monotonic(), line.rstrip("\n")))
                self.changed.notify_all()

    def said(self):
        with self.changed:
            return "\n".join(line for _, line in self.lines)

    def launcher_said(self):
        """MPICH's launcher tells of a killed rank on standard output."""
        self.output.seek(0)
        return "\n".join(re.findall(r"^(?:=  .*|YOUR APPLICATION .*)$", self.output.read(), re.MULTILINE))

    def reached(self, pattern, seconds=LONGEST):
        """Waits for a line; False if the run ended without it."""
        limit = time.monotonic() + seconds
        while not re.search(pattern, self.said()):
            if self.process.poll() is not None or time.monotonic() > limit:
                return False
            with self.changed:
                self.changed.wait(0.02)
        return True

    def mapped(self, path):
        """Waits until a process of the run has the file mapped."""
        while self.process.poll() is None:
            for pid in self.living():
                try:
                    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as f:
                        if path in f.read():
                            return
                except OSError:
                    pass

    def fault(self):
        """The fault happens now."""
        self.since, self.marked = time.monotonic(), True

    def told(self):
        """Where nobody marked the fault, the program's own words do: it happened no later than that."""
        for moment, line in self.lines:
            if re.match(r"wanamaker: ", line) and not self.marked:
                self.since = max(self.since, moment)
                return

    def living(self):
        return marked(MARK, self.mark)

    def signal(self, number):
        for pid in self.living():
            os.kill(pid, number)

    def end(self):
        """(exit code, seconds from the fault until nobody was left); what hangs is killed."""
        limit = time.monotonic() + LONGEST
        while (self.process.poll() is None or self.living()) and time.monotonic() < limit:
            time.sleep(0.02)
        gone = time.monotonic()
        self.signal(9)
        self.process.wait()
        if self.process.stderr is not None:
            self.reader.join(5)
        return self.process.returncode, gone


class Bench:
    """A scratch directory with a small corpus, and what an undisturbed run of it gives."""

    def __init__(self, top, program, mpiexec, model):
        self.top, self.program, self.mpiexec, self.model = top, program, mpiexec, model
        self.failures, self.passed, self.left_out = 0, 0, []
        self.reference = {}
        with open(self.path("text.txt"), "w", encoding="utf-8") as f:
            for i in range(1, 400):
                f.write(f"Line {i} of a text in which {i * 7919 % 101} wise men of number {i * 31 % 17} walked.\n")

    def path(self, *names):
        return os.path.join(self.top, *names)

    def fresh(self, name):
        shutil.rmtree(self.path(name), ignore_errors=True)
        return self.path(name)

    def settings(self, out, *more):
        given = [f"model.path={self.model}", f"corpora.main.path={self.path('text.txt')}", f"output.dir={out}",
                 "report.enabled=false", # the report is made of what the other stages leave
                 "protocol.window=64", "protocol.kind=stream", "ranges.fit.tokens=[0,800]",
                 "ranges.validation.tokens=[800,1200]", "ranges.evaluation.tokens=[2000,3500]",
                 "compute.block_tokens=256", "compute.tile_rows=128", "bootstrap.resamples=200"]
        names = {setting.split("=")[0] for setting in more}
        return [s for s in given if s.split("=")[0] not in names] + list(more)

    def start(self, ranks, out, *more, job="run", before=None, launcher_before=None, **keywords):
        """`before`: shell text run by each rank before it becomes the program; `launcher_before`: by the launcher."""
        command = [self.program, job, *self.settings(out, *more), "-v"]
        if before is not None:
            command = ["sh", "-c", before + '; exec "$0" "$@"', *command]
        if ranks > 1:
            command = [self.mpiexec, "-n", str(ranks), *command]
        if launcher_before is not None:
            command = ["sh", "-c", launcher_before + '; exec "$0" "$@"', *command]
        return Run(command, **keywords)

    def report(self, good, name, text):
        self.passed += good
        self.failures += not good
        print(f"{'ok    ' if good else 'FAILED'} {name}: {text}", flush=True)

    def judge(self, name, run, codes, pattern):
        """The run ends with one of `codes` (None: any but 0) and words that match, nobody left within the time."""
        code, gone = run.end()
        run.told()
        seconds, said = gone - run.since, "\n".join(s for s in run.said().split("\n") if " debug: " not in s)
        said = "\n".join(filter(None, (said, run.launcher_said())))
        found = re.search(pattern, said)
        good = (code != 0 if codes is None else code in codes) and found is not None and seconds <= GONE_WITHIN
        line = "" if found is None else said[said.rfind("\n", 0, found.start()) + 1:].split("\n")[0]
        self.report(good, name, f"exit {code}, gone after {seconds:.1f} s; {line[:300]}")
        if not good:
            print(f"       expected {codes} and /{pattern}/ within {GONE_WITHIN:.0f} s; it said:\n{said[-3000:]}", flush=True)
        return good

    def finish(self, name, run, pattern=""):
        """An undisturbed end, whatever it takes."""
        code, _ = run.end()
        good = code == 0 and re.search(pattern, run.said()) is not None
        self.report(good, name, f"exit {code}")
        if not good:
            print(f"       expected 0 and /{pattern}/; it said:\n{run.said()[-3000:]}", flush=True)
        return good

    def losses(self, out):
        """The bytes of the result's losses; None without a result."""
        raw = self.path("nll.raw")
        dump = subprocess.run(["h5dump", "-d", "/nll", "-b", "LE", "-o", raw, os.path.join(out, "sweep.h5")], check=False,
                              capture_output=True)
        if dump.returncode != 0:
            return None
        with open(raw, "rb") as f:
            return f.read()

    def undisturbed(self, ranks):
        """Losses of an undisturbed run; its directory stays as reference.RANKS."""
        if ranks not in self.reference:
            out = self.path(f"reference.{ranks}")
            self.finish(f"undisturbed run on {ranks} rank(s)", self.start(ranks, out))
            self.reference[ranks] = self.losses(out) or "no result"
        return self.reference[ranks]

    def same_numbers(self, name, ranks, out):
        """After a fault: the next run completes, with the numbers of an undisturbed one, and leaves no scraps."""
        want = self.undisturbed(ranks)
        if not self.finish(f"{name}: the next run", self.start(ranks, out)):
            return
        self.report(self.losses(out) == want, f"{name}: numbers", "compared with an undisturbed run's")
        self.report(self.scraps(out) == [] and sorted(os.listdir(out)) == sorted(
            [".lock", "surrogates.h5", "sweep.h5", "tokens.main.stream.h5"]), f"{name}: scraps", str(os.listdir(out)))

    def scraps(self, out):
        return [os.path.join(d, f) for d, _, files in os.walk(out) for f in files
                if f.endswith(".tmp") or f.startswith((".spill", ".writable"))]
