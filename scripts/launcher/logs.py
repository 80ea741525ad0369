"""The logs of the set-up and of the tests, .ladder/logs/NAME.log."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

from launcher.checkout import LOGS
from launcher.console import fail, say
from launcher.processes import call

COUNT = re.compile(r"\[\d+/\d+\]")  # how a line of Ninja begins


def log_path(name: str) -> Path:
    LOGS.mkdir(parents=True, exist_ok=True)
    return LOGS / f"{name}.log"


class Log:
    """What the commands of a part of the set-up print. If one fails, so does the launcher, and
    shows the end of it."""

    def __init__(self, name: str):
        self.name, self.path = name, log_path(name)
        self.path.write_text("")

    def run(self, command: list, may_fail: bool = False, **options) -> None:
        with self.path.open("a") as file:
            code = call(command, stdout=file, stderr=subprocess.STDOUT, **options)
        if code and not may_fail:
            explain_failure(self.name)


def explain_failure(name: str) -> NoReturn:
    """Shows the end of the log of what has failed, or the first error of a build."""
    lines = log_path(name).read_text(errors="replace").splitlines()
    first = next(
        (
            i
            for i, line in enumerate(lines)
            if line.startswith("FAILED: ") and "build.ninja" not in line
        ),
        None,
    )
    excerpt = lines[-20:] if first is None else [line[:400] for line in lines[first : first + 20]]
    fail("\n".join([f"the part '{name}' failed (log: .ladder/logs/{name}.log):", *excerpt]))


class Reader:
    """Reads a log while it is written."""

    def __init__(self, name: str):
        self.file = log_path(name).open(errors="replace")

    def echo(self) -> None:
        sys.stdout.write(self.file.read())
        sys.stdout.flush()


class Progress(Reader):
    """The progress of a build that writes this log: one line on a terminal, elsewhere a line a
    minute; none if there is nothing to do."""

    def __init__(self, name: str, what: str):
        super().__init__(name)
        self.announcement = f"building {what} (log: .ladder/logs/{name}.log)"
        self.next_s = None  # nothing has been said yet

    def show(self) -> None:
        lines = [line for line in self.file.read().splitlines() if COUNT.match(line)]
        if not lines:
            return
        if self.next_s is None:
            say(self.announcement)
            self.next_s = time.monotonic() + 60
        if sys.stderr.isatty():
            columns = shutil.get_terminal_size().columns
            print(f"\r\033[K{lines[-1][: columns - 1]}", end="", file=sys.stderr, flush=True)
        elif time.monotonic() >= self.next_s:
            say(f"  {lines[-1][:100]}")
            self.next_s = time.monotonic() + 60

    def end(self) -> None:
        self.show()
        if self.next_s is not None and sys.stderr.isatty():
            print("\r\033[K", end="", file=sys.stderr, flush=True)
