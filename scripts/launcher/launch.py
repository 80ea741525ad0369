"""Starts trainers and benchmarks: one process, or several under mpirun. They save and stop when a signal asks them to."""

import os
import signal
import sys
from typing import NamedTuple

from launcher.console import Parser, count_from, say
from launcher.processes import is_asked_to_stop, start, wait

AGAIN = "saved and stopped (exit code 75); ./ladder train with --resume auto and the same --out continues"
ROOT_MAY_START = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def split_ranks(command: str, words: list[str], default: int = 1) -> tuple[int, list[str]]:
    """The value of --ranks, and the other words."""
    parser = Parser(command, "", add_help=False)
    parser.add_argument("--ranks", metavar="N", type=count_from(1, 9999), default=default)
    known, others = parser.parse_known_args(words)
    return known.ranks, others


class End(NamedTuple):
    code: int
    was_stopped: bool  # a signal has come, though the command may have ended well in spite of it

    def exit_unless_well(self) -> None:
        """For whoever would go on."""
        if self.code or self.was_stopped:
            raise SystemExit(self.code or 130)


class Supervisor:
    """What signals do to a command: the first one becomes SIGUSR1 (save and stop, exit code 75), a second Ctrl-C kills."""

    def __init__(self, kills_with: int, stopped: str, stopping: str = "saving and stopping"):
        self.kills_with, self.stopped, self.stopping = kills_with, stopped, stopping
        self.stopped_by: list[int] = []

    def run(self, command: list, explains_itself: bool = False) -> End:
        self.child = start(command)
        code = wait(self.child, self.stop)
        if self.is_to_be_killed() or (self.stopped_by and code > 128):  # not yet ready to save
            code = 128 + self.stopped_by[0]
        elif code == 75:
            say(self.stopped)
        elif code > 128 and not explains_itself:
            say(f"a process was killed by signal {code - 128} ({signal_name(code - 128)})")
        return End(code, bool(self.stopped_by) or is_asked_to_stop())

    def is_to_be_killed(self) -> bool:
        return self.stopped_by.count(signal.SIGINT) > 1

    def stop(self, number: int) -> None:
        self.stopped_by.append(number)
        if number == signal.SIGINT and not self.is_to_be_killed():
            say(f"{self.stopping}; Ctrl-C again kills")
        self.child.send_signal(self.kills_with if self.is_to_be_killed() else signal.SIGUSR1)


def signal_name(number: int) -> str:
    return signal.Signals(number).name.removeprefix("SIG") if number in signal.valid_signals() else "unknown"


def launch(num_ranks: int, command: list, stopped: str = AGAIN) -> End:
    """A trainer or another program of ours."""
    if num_ranks == 1:
        return Supervisor(signal.SIGKILL, stopped).run(command)
    return launch_mpirun([*mpirun(num_ranks), *command], stopped)


def mpirun(num_ranks: int) -> list:
    """What starts so many ranks on this machine, in front of their command; also as root. Nothing for one rank."""
    os.environ.update(ROOT_MAY_START)
    return ["mpirun", "-q", "-n", num_ranks, "--oversubscribe", "--bind-to", "none"] if num_ranks > 1 else []


def launch_mpirun(command: list, stopped: str, explains_itself: bool = False) -> End:
    """A command line of mpirun, which ends its ranks with itself."""
    if not sys.stdout.isatty():
        os.environ["TERM"] = "dumb"  # no progress line: ranks cannot see where mpirun sends their output
    os.environ.update(ROOT_MAY_START)
    return Supervisor(signal.SIGTERM, stopped).run(command, explains_itself)


def launch_script(command: list) -> End:
    """A benchmark that starts processes itself and ends them with itself (benchmarks/processes.py)."""
    return Supervisor(signal.SIGTERM, AGAIN, "stopping").run(command)
