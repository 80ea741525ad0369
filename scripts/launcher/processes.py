"""Child processes, and the signals that end them.

From the start of the launcher signals are blocked: they wait in the kernel until somebody who waits
for a child asks for the next one. So none can be lost or come at a wrong moment, such as between
the start of a child and its first use. Each child has a session of its own, which Ctrl-C at the
terminal does not reach; the launcher decides what it gets.
"""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

# What asks to stop. A launcher that was started to ignore one of them, as after a "&" or nohup,
# goes on ignoring it.
STOPPING = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1}
HEEDED = {number for number in STOPPING if signal.getsignal(number) is not signal.SIG_IGN}
TICK_S = 0.2
GRACE_S = 10  # mpirun needs a second or two to take its ranks down
LIBC, PR_SET_PDEATHSIG = ctypes.CDLL(None), 1
LAUNCHER = os.getpid()


def hold_signals() -> None:
    """From now on signals wait. That of a child's end among them: it wakes up whoever waits for
    one."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED | {signal.SIGCHLD})


def release_signals() -> None:
    """For a program that follows in this process. Its signals are its own again, also one that
    already waits."""
    for number in HEEDED:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED | {signal.SIGCHLD})


def begin_child() -> None:
    """Runs in the child, before its program: a signal that waits here was meant for the launcher,
    which has it as well."""
    for number in HEEDED:
        signal.signal(number, signal.SIG_IGN)  # forgets it
    release_signals()


def begin_child_that_ends_with_us() -> None:
    """Begins a child that would go on for hours if the launcher were killed: it then gets
    SIGTERM."""
    begin_child()
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != LAUNCHER:  # it has been killed meanwhile
        os._exit(1)


@contextlib.contextmanager
def signals_held():
    """Meanwhile signals wait, in a program that heeds them itself at other times."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, HEEDED | {signal.SIGCHLD})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def signals_end_us():
    """Meanwhile a signal ends the program at once: it computes for long, and has nothing to lose."""
    before = signal.pthread_sigmask(signal.SIG_UNBLOCK, HEEDED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def next_signal(seconds: float | None = None) -> int | None:
    """The next signal, also one that has come before; nothing if none comes in time."""
    if seconds is None:
        return signal.sigwait(HEEDED | {signal.SIGCHLD})
    info = signal.sigtimedwait(HEEDED | {signal.SIGCHLD}, seconds)
    return info.si_signo if info else None


def is_asked_to_stop() -> bool:
    return bool(signal.sigpending() & HEEDED)


def start(command: list, ends_with_us: bool = False, **options) -> subprocess.Popen:
    """Once it returns, the child runs its program. It holds the lock of a set-up that is held."""
    begin = begin_child_that_ends_with_us if ends_with_us else begin_child
    options = {
        "stdin": subprocess.DEVNULL,
        "start_new_session": True,
        "close_fds": False,
        "preexec_fn": begin,
        **options,
    }
    return subprocess.Popen([str(word) for word in command], **options)


def wait(
    child: subprocess.Popen,
    on_signal: Callable[[int], None],
    on_tick: Callable[[], None] | None = None,
) -> int:
    """The child's exit code; 128 and more if a signal has killed it."""
    with signals_held():  # also in a script that does not hold them: else its end would be missed, and waited for without end
        while child.poll() is None:
            number = next_signal(TICK_S if on_tick else None)
            if number in HEEDED:
                on_signal(number)
            elif on_tick:
                on_tick()
    return child.returncode if child.returncode >= 0 else 128 - child.returncode


def end_session(child: subprocess.Popen, number: int) -> None:
    """The child and all that it has started; just the child if it shares our session."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # it has ended, or is root's
        if os.getsid(child.pid) == child.pid:
            os.killpg(child.pid, number)
        else:
            child.send_signal(number)


def finish(child: subprocess.Popen, on_tick: Callable[[], None] | None = None) -> int:
    """Waits for a child that need not save anything: a signal ends it, and then the launcher."""
    stopped_by: list[int] = []

    def stop(number: int) -> None:
        stopped_by.append(number)
        end_session(child, signal.SIGTERM if len(stopped_by) == 1 else signal.SIGKILL)

    code = wait(child, stop, on_tick)
    if stopped_by:
        raise SystemExit(128 + stopped_by[0])
    return code


def end(children: list[subprocess.Popen]) -> None:
    """Tells them to end, mpirun with its ranks, and kills what has not ended after a while."""
    for child in children:
        if child.poll() is None:
            child.terminate()
    deadline = time.monotonic() + GRACE_S
    while any(child.poll() is None for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    for child in children:
        child.kill()  # nothing to a child that has ended
        child.wait()


def call(command: list, on_tick: Callable[[], None] | None = None, **options) -> int:
    return finish(start(command, **options), on_tick)


def output_of(command: list, **options) -> str:
    """What a program prints; nothing if it fails or is not there."""
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        try:
            code = call(command, stdout=file, stderr=subprocess.DEVNULL, **options)
        except OSError:
            return ""
        file.seek(0)
        return file.read().strip() if code == 0 else ""


def become(command: list) -> NoReturn:
    """The program takes the launcher's place."""
    words = [str(word) for word in command]
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it
    release_signals()
    try:
        os.execvp(words[0], words)
    except OSError as error:
        raise OSError(error.errno, error.strerror, words[0]) from None


def script(path: Path | str, *words, python: str = sys.executable) -> list:
    """The command that runs a script of ours."""
    return [python, Path(__file__).with_name("script.py"), path, *words]
