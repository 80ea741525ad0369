"""Starts trainers and benchmarks: one process, or several under mpirun. They save and stop when a
signal asks them to."""

import contextlib
import json
import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from launcher.console import Failure, Parser, count_from, say, speak
from launcher.processes import (
    HEEDED,
    TICK_S,
    end,
    is_asked_to_stop,
    next_signal,
    signals_held,
    start,
    wait,
)

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
    """What signals do to a command: the first one becomes SIGUSR1 (save and stop, exit code 75), a
    second Ctrl-C kills. If the launcher itself is killed, the command gets SIGTERM: a trainer saves
    and stops, mpirun ends its ranks."""

    def __init__(
        self,
        kills_with: int,
        stopped: str,
        stopping: str = "saving and stopping",
        unsaved: str = "it had not begun to train: nothing was saved",
    ):
        self.kills_with, self.stopped, self.stopping, self.unsaved = (
            kills_with,
            stopped,
            stopping,
            unsaved,
        )
        self.stopped_by: list[int] = []
        self.is_early = False  # the first came before there was anything to save

    def run(self, command: list) -> End:
        code = self.wait_for(command)
        if self.is_to_be_killed():
            code = 128 + self.stopped_by[0]
        elif self.is_early or (
            self.stopped_by and code == 128 + signal.SIGUSR1
        ):  # not yet ready to save
            say(self.unsaved)
            code = 128 + self.stopped_by[0]
        elif code == 75:
            say(self.stopped)
        elif code > 128:
            self.explain(code - 128)
        return End(code, bool(self.stopped_by) or is_asked_to_stop())

    def wait_for(self, command: list) -> int:
        self.start(command)
        return wait(self.child, self.stop)

    def start(self, command: list, **options) -> None:
        self.child = start(command, ends_with_us=True, **options)

    def explain(self, number: int) -> None:
        say(f"a process was killed by {describe_signal(number)}")

    def is_to_be_killed(self) -> bool:
        return self.stopped_by.count(signal.SIGINT) > 1

    def has_begun(self) -> bool:
        return True

    def stop(self, number: int) -> None:
        self.stopped_by.append(number)
        self.is_early = self.is_early or not self.has_begun()
        is_final = self.is_to_be_killed() or self.is_early
        self.child.send_signal(self.kills_with if is_final else signal.SIGUSR1)
        if number == signal.SIGINT and not is_final:
            say(f"{self.stopping}; Ctrl-C again kills")


class MpirunSupervisor(Supervisor):
    """mpirun ends its ranks if nobody reads what it writes. So this launcher reads it, and passes
    it on while somebody does."""

    def __init__(self, stopped: str):
        super().__init__(signal.SIGTERM, stopped)
        self.remarks, self.had_children = Remarks(), False

    def wait_for(self, command: list) -> int:
        self.start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        ends = [(self.child.stdout, 1, bytes), (self.child.stderr, 2, self.remarks.take_out)]
        relays = [threading.Thread(target=self.relay, args=end, daemon=True) for end in ends]
        for relay in relays:
            relay.start()
        code = wait(self.child, self.stop)
        for relay in relays:
            relay.join()
        return code

    def has_begun(self) -> bool:
        """Whether mpirun has started a rank, which may have ended. Before that it loses the signals
        that it would pass on."""
        try:
            children = Path(f"/proc/{self.child.pid}/task/{self.child.pid}/children").read_text()
        except OSError:
            children = "unknown"
        self.had_children = self.had_children or children != ""
        return self.had_children

    def relay(self, pipe, to: int, edit: Callable[[bytes], bytes]) -> None:
        text = b" "
        while text:
            self.has_begun()
            if select.select([pipe], [], [], TICK_S)[0]:
                text = os.read(pipe.fileno(), 1 << 16)
                speak(edit(text), to, lambda: not self.stopped_by and not is_asked_to_stop())
            elif (
                self.child.returncode is not None
            ):  # it has ended, but somebody else holds the pipe
                text = b""

    def explain(self, number: int) -> None:
        if self.remarks.killed:
            rank, host, number = self.remarks.killed
            say(f"rank {rank} on {host} was killed by {describe_signal(number)}")
        elif self.child.returncode < 0:  # otherwise the code is mpirun's own, and it has said why
            say(f"mpirun was killed by {describe_signal(number)}")


class Remarks:
    """What mpirun says, in boxes, of ranks that end with another code than 0: the launcher says it
    itself, and shorter."""

    RULE, ENDS = (
        re.compile(rb"-{74}\r?\n"),
        re.compile(rb"Primary job |MPI_ABORT was|mpirun (?:detected|noticed) that "),
    )
    KILLED = re.compile(rb"process rank (\d+) with PID \d+ on node (\S+) exited on signal (\d+)")
    NOISE = re.compile(
        rb"mpirun: Forwarding signal |\[.*(ORTE_ERROR_LOG: (Data unpack |.*show_help)|\] Read -1, expected )"
    )

    def __init__(self):
        self.killed: tuple[int, str, int] | None = None  # rank, machine, signal
        self.line = self.box = b""  # not whole yet

    def take_out(self, text: bytes) -> bytes:
        """What is left of it, as far as its lines and boxes are whole; at the end, for b"", of all."""
        *lines, self.line = (self.line + text).split(b"\n")
        left = b"".join(self.judge(line + b"\n") for line in lines)
        return left if text else left + self.box + self.line

    def judge(self, line: bytes) -> bytes:
        is_rule, is_inside = self.RULE.fullmatch(line), bool(self.box)
        if not is_rule and not is_inside:
            return b"" if self.NOISE.match(line) else line
        box, self.box = self.box + line, b""
        if not (is_rule and is_inside):  # it goes on
            self.box = box
            return b""
        if found := self.KILLED.search(box):
            self.killed = int(found[1]), found[2].decode(errors="replace"), int(found[3])
        return b"" if self.ENDS.search(box) else box


def describe_signal(number: int) -> str:
    name = (
        signal.Signals(number).name.removeprefix("SIG")
        if number in signal.valid_signals()
        else "unknown"
    )
    why = (
        ": by somebody, or by the system because memory ran out (sudo dmesg | tail tells)"
        if number == signal.SIGKILL
        else ""
    )
    return f"signal {number} ({name}){why}"


def launch(num_ranks: int, command: list, stopped: str = AGAIN) -> End:
    """A trainer or another program of ours."""
    if num_ranks == 1:
        return Supervisor(signal.SIGKILL, stopped).run(command)
    return launch_mpirun([*mpirun(num_ranks), *command], stopped)


def mpirun(num_ranks: int, *options: str) -> list:
    """What starts so many ranks on this machine, in front of their command; also as root. Nothing
    for one rank."""
    os.environ.update(ROOT_MAY_START)
    return (
        ["mpirun", *options, "-n", num_ranks, "--oversubscribe", "--bind-to", "none"]
        if num_ranks > 1
        else []
    )


def command(program: Path, **options) -> list[str]:
    """The command line of a trainer: micro_batch_size=2 is --micro-batch-size 2."""
    words = [
        word
        for name, value in options.items()
        for word in (f"--{name.replace('_', '-')}", str(value))
    ]
    return [str(program), "--quiet", *words]


def run_all(commands: list[list]) -> list[str]:
    """Runs all at once; returns what each printed. If one fails, or a signal comes, it ends the
    others, and then this program."""
    with contextlib.ExitStack() as stack:
        outputs = [
            [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2)] for _ in commands
        ]
        children: list[subprocess.Popen] = []
        stack.enter_context(signals_held())
        stack.callback(end, children)
        for command, (out, err) in zip(commands, outputs):
            children.append(start(command, ends_with_us=True, stdout=out, stderr=err))
        while None in (codes := [child.poll() for child in children]) and not any(codes):
            if (number := next_signal(TICK_S)) in HEEDED:
                raise SystemExit(128 + number)
        texts = [[file.seek(0) or file.read() for file in pair] for pair in outputs]
        for command, code, (out, err) in zip(commands, codes, texts):
            if code:
                raise Failure(
                    f"{shlex.join(map(str, command))}\nended with {code}:\n{(err or out).strip()}",
                    2 if code == 2 else 1,
                )
        return [out for out, _ in texts]


def train(program: Path, num_ranks: int, words: list) -> dict:
    """The report of a run that is only measured."""
    with tempfile.TemporaryDirectory(prefix="ladder-train-") as folder:
        run_all(
            [[*mpirun(num_ranks, "-q"), program, *words, "--quiet", "--out", Path(folder, "run")]]
        )
        return json.loads(Path(folder, "run/report.json").read_text())


def launch_mpirun(command: list, stopped: str) -> End:
    """A command line of mpirun, which ends its ranks with itself."""
    if os.isatty(1):  # ranks cannot see where mpirun sends their output
        os.environ["COLUMNS"] = str(shutil.get_terminal_size().columns)
    else:
        os.environ["TERM"] = "dumb"  # no progress line
    os.environ.update(ROOT_MAY_START)
    return MpirunSupervisor(stopped).run(command)


def launch_script(command: list) -> End:
    """A benchmark that starts processes itself and ends them with itself (run_all)."""
    return Supervisor(signal.SIGTERM, AGAIN, "stopping", "the benchmark was stopped").run(command)
