#!/usr/bin/env python3
"""The child processes of a benchmark, none of which outlives it, whichever way it ends; and how far it has come.

    benchmarks/processes.py --self-test       stops and fails programs that have children; no child may be left
"""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "scripts"))  # where benchmarks find the launcher's modules
from launcher.launch import mpirun  # noqa: E402

# Where the programs are; ./ladder says so if LADDER_CUDA is ON.
BUILD = Path(os.environ.get("LADDER_BUILD", Path(__file__).resolve().parent.parent / "build/release"))
# Ctrl-C at a terminal; what ./ladder sends for it; what ends a program elsewhere.
SIGNALS = (signal.SIGINT, signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP)
STOPPED = {128 + number for number in SIGNALS}  # exit codes
GRACE_SECONDS = 10  # mpirun needs a second or two to take its ranks down


@contextlib.contextmanager
def noted_signals():
    """A list of the signals that arrive meanwhile. Raised at once, an exception could fall between start and list."""
    noted = []
    handlers = {number: signal.signal(number, lambda number, _: noted.append(number)) for number in SIGNALS}
    try:
        yield noted
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end(children):
    """Tells them to end, mpirun with its ranks, and kills what has not ended after a while."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + GRACE_SECONDS
    while any(child.poll() is None for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in children:
        child.kill()  # nothing to a child that has ended
        child.wait()


def start_lighthouse(folder, log, children):
    """Starts step 9's lighthouse, built in this folder, which writes to the file `log`; returns its port.

    Adds the process to `children` at once, for end(). Exits if it ends instead of listening.
    """
    with log.open("w") as file:
        child = subprocess.Popen([folder / "elastic_lighthouse", "--port", "0"], stdout=file, stderr=file)
    children.append(child)
    while not (found := re.search(r"port (\d+)\n", log.read_text())):
        if child.poll() is not None:
            sys.exit(f"the lighthouse has ended with {child.returncode}:\n{log.read_text()}")
        time.sleep(0.01)
    return int(found[1])


def command(program, **options):
    """Of a trainer: micro_batch_size=2 is --micro-batch-size 2."""
    words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [str(program), "--quiet", *words]


def run_all(commands, environment=None):
    """Runs all at once; returns what each printed. Exits if one fails or a signal asks to, after ending the others."""
    with contextlib.ExitStack() as stack:
        outputs = [[stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in commands]
        children = []
        with noted_signals() as noted:
            try:
                for command, (out, err) in zip(commands, outputs):
                    env = {**os.environ, **(environment or {})}
                    children.append(subprocess.Popen([*map(str, command)], stdout=out, stderr=err, env=env))
                while not noted and not any(child.poll() for child in children):
                    if all(child.poll() is not None for child in children):
                        break
                    time.sleep(0.05)
                failed = next((i for i, child in enumerate(children) if child.poll()), None)
            finally:
                end(children)
        if noted:
            sys.exit(128 + noted[0])
        texts = [[file.seek(0) or file.read() for file in pair] for pair in outputs]
        if failed is not None:
            out, err = texts[failed]
            sys.exit(f"{shlex.join(map(str, commands[failed]))}\nended with {children[failed].returncode}:\n{err or out}")
        return [out for out, _ in texts]


def train(build, step, ranks, *options):
    """The report of a trainer of this build."""
    with tempfile.TemporaryDirectory(prefix="ladder-bench-") as out:
        run_all([[*mpirun(ranks), build / step / step, "--quiet", "--out", out, *options]])
        return json.loads(Path(out, "report.json").read_text())


def time_text(seconds):
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


class Progress(contextlib.AbstractContextManager):
    """The runs of a benchmark: what each has shown, as soon as it has ended, and how long the rest will take.

        with Progress(3) as progress:
            for kind in kinds:
                found[kind] = run_all(…)
                progress.add(f"{kind}: 2,345 tokens/s")
        print_table(found)
        progress.finish()

    A signal ends the block and, once a run has ended, no more: what follows prints what there is. Then finish() exits, before
    anything is written.
    """

    def __init__(self, work):
        self.work, self.done, self.code, self.start_s = work, 0, 0, time.monotonic()

    def __enter__(self):
        self.signals = noted_signals()
        self.noted = self.signals.__enter__()
        return self

    def add(self, text, work=1):
        """One more run has ended, which was so much of the work."""
        self.done += work
        left_s = (time.monotonic() - self.start_s) * max(0, self.work / self.done - 1)
        print(f"{text} · {100 * self.done / self.work:.0f}%, about {time_text(left_s)} left", file=sys.stderr, flush=True)
        self.check()

    def check(self):
        if self.noted:
            sys.exit(128 + self.noted[0])

    def __exit__(self, kind, error, trace):
        self.signals.__exit__(None, None, None)
        if isinstance(error, SystemExit) and error.code in STOPPED:
            self.code = error.code
            print("stopped: this is what it has, and it writes no file", file=sys.stderr, flush=True)
        return self.code != 0 and self.done > 0

    def finish(self):
        if self.code:
            sys.exit(self.code)


# Runs children, each of which notes that it has begun and then does what one of argv[2:] says.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from processes import Progress, run_all
with Progress(2) as progress:
    progress.add("first")
    run_all([["sh", "-c", f"echo begun >>begun; {ending}"] for ending in sys.argv[2:]])
    progress.add("second")
print("table")
progress.finish()
print("written")
"""


def self_test():
    from stand_ins import Checkout, expect

    cases = [((number, "exec sleep 100", "exec sleep 100"), 128 + number, ["table"]) for number in SIGNALS]
    cases.append(((None, "exec sleep 100", "exit 3"), 1, []))
    cases.append(((None, "exit 0", "sleep 0.2"), 0, ["table", "written"]))
    for (number, *endings), code, wanted in cases:
        with tempfile.TemporaryDirectory() as folder:
            checkout = Checkout(folder)
            program = checkout.start(sys.executable, "-c", PROGRAM, str(Path(__file__).resolve().parent), *endings)
            # One that ends at once may end the program before the others have begun.
            checkout.wait_for(lambda: program.poll() is not None or len(checkout.lines("begun")) == len(endings))
            if number is not None:
                program.send_signal(number)
            output, _ = program.communicate(timeout=60)
            printed = [line for line in output.splitlines() if line in ("table", "written")]
            expect((program.returncode, printed) == (code, wanted), number, endings, "ended with", program.returncode, output)
            expect(not checkout.processes(), number, endings, "a child is left:", checkout.processes())
    print(f"self-test: {len(cases)} programs ended as they should")


if __name__ == "__main__" and sys.argv[1:] == ["--self-test"]:
    self_test()
