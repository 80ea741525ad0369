"""What the launcher says, how it refuses, and how it reads options."""

import argparse
import contextlib
import difflib
import os
import select
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NoReturn


class Failure(SystemExit):
    """Ends a command: what to say, and the exit code. Elsewhere Python says it, and ends with 1."""

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


def speak(text: bytes, to: int, is_worth_waiting: Callable[[], bool]) -> None:
    """Writes to a file descriptor. A reader that has gone, or a full disk, costs what is said, and
    nothing else; so does one that does not read, once it is not worth waiting for."""
    with contextlib.suppress(OSError):
        while text:
            if select.select([], [to], [], 0.2)[1]:
                text = text[os.write(to, text[: select.PIPE_BUF]) :]
            elif not is_worth_waiting():
                return


def say(text: str) -> None:
    until_s = time.monotonic() + 1
    speak(f"ladder: {text}\n".encode(errors="replace"), 2, lambda: time.monotonic() < until_s)


def end_console() -> None:
    """What could not be said does not change the exit code."""
    try:
        if sys.stdout:
            sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def fail(text: str) -> NoReturn:
    raise Failure(text, 1)


def usage_error(text: str) -> NoReturn:
    raise Failure(text, 2)


def nearest(word: str, known: Iterable[str]) -> str:
    """ ", did you mean X?" if a known word is similar, otherwise a full stop."""
    near = difflib.get_close_matches(word, list(known), 1, 0.5)
    return f", did you mean {near[0]}?" if near else "."


class Parser(argparse.ArgumentParser):
    """The options of a command. A wrong word names the nearest right one."""

    def __init__(self, command: str, description: str, **more):
        layout = argparse.RawDescriptionHelpFormatter
        super().__init__(
            f"./ladder {command}",
            description=description,
            formatter_class=layout,
            allow_abbrev=False,
            **more,
        )

    def error(self, message: str) -> NoReturn:
        usage_error(f"{message}; {self.format_usage().strip()}")

    def parse_args(self, words):
        arguments, unknown = self.parse_known_args(words)
        if unknown:
            known = [option for action in self._actions for option in action.option_strings]
            self.error(f"there is no option '{unknown[0]}'{nearest(unknown[0], known)[:-1]}")
        return arguments


class SelfTest(argparse.Action):
    """What --self-test does: calls the function that is given as `const`, and ends."""

    def __init__(self, **more):
        super().__init__(nargs=0, **more)

    def __call__(self, parser, *_):
        parser.exit(self.const())


def option_of(words, name: str) -> str | None:
    """The last value of --NAME among words that are otherwise for somebody else."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", dest="value", nargs="?", const="")
    return parser.parse_known_args(words)[0].value


def count_from(least: int, most: int):
    """For add_argument(type=…): a whole number in this range."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"'{text}' is not a number from {least} to {most}")
        return int(text)

    return read


def list_of(read):
    """For add_argument(type=…): such texts, separated by commas."""
    return lambda text: [read(word) for word in text.split(",")]


def new_file(text: str) -> Path:
    """For add_argument(type=…): one that is not there yet, in a folder that is."""
    path = Path(text)
    if path.exists() or path.is_symlink():
        raise argparse.ArgumentTypeError(
            f"{path} already exists: name a new file, or remove this one"
        )
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"{path}: there is no folder {path.parent}")
    return path


def reader(read, what: str):
    """For add_argument(type=…): read(text), of which a ValueError says that the text is not what is
    wanted."""

    def convert(text: str):
        try:
            return read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"'{text}' is not {what}") from None

    return convert


def read_pair(text: str) -> tuple[float, float]:
    """'50:10': a latency, which may be 0, and a rate. Raises ValueError."""
    first, second = map(float, text.split(":"))
    if not (0 <= first <= 1e12 and 1e-12 <= second <= 1e12):
        raise ValueError(text)
    return first, second


read_link = reader(read_pair, "LATENCY_US:GBPS, such as 50:10")
