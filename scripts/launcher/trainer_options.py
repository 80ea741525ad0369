"""The options of each trainer, as the sources declare them: said before one is built."""

import functools
import re
import textwrap
from pathlib import Path
from typing import NamedTuple

from launcher.checkout import ROOT
from launcher.console import usage_error
from launcher.steps import read_steps

COMMON = Path("common/train/options/common_options.cpp")
# What is asked for besides options. A pipeline can also draw its --show-schedule.
REQUESTS = {
    "help": "show this, and exit",
    "config": "read options from this file, with lines like steps = 100",
    "print-config": "show all options with their current values, as a --config file, and exit",
    "dry-run": "show parameters, memory and tokens on so many ranks, and exit",
    "json": "with --dry-run: as JSON, with the step's plans",
}
STRING = r'"(?:[^"\\]|\\.)*"'
ROW = re.compile(r"\b(?:value|number|number_or_alone|flag|choice)\(\s*\"--([\w-]+)\"")
DECLARE = re.compile(r"(?:struct (\w+) \{|void (?:(\w+)::)?declare\w*\(OptionTable& \w+)")


class Option(NamedTuple):
    heading: str
    name: str  # without the dashes
    help: str


def arguments_of(text: str, start: int) -> str:
    """The arguments of the call whose parenthesis opens before `start`."""
    depth, at = 1, start
    for token in re.finditer(rf"{STRING}|[()]", text[start:]):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        at = start + token.start()
        if depth == 0:
            break
    return text[start:at]


def rows_of(text: str) -> list[Option]:
    """The rows in the order in which they are declared."""
    found, heading = [], ""
    for match in re.finditer(rf"\bheading\((kModelHeading|{STRING})\)|{ROW.pattern}", text):
        if match[1]:
            heading = "Model" if match[1] == "kModelHeading" else match[1][1:-1]
            continue
        words = arguments_of(text, text.index("(", match.start()) + 1)
        last = re.search(rf"((?:{STRING}\s*)+)$", words.rstrip())
        help = "".join(each[1:-1] for each in re.findall(STRING, last[1])) if last else ""
        found.append(Option(heading, match[2], help))
    return found


def sources() -> list[Path]:
    """What is read here, from the root."""
    own = (file for file in ROOT.glob("step*/**/*.?pp") if not file.stem.endswith("_test"))
    found = [file for file in own if file.name == "theory.hpp" or "OptionTable" in file.read_text()]
    return [COMMON, *sorted(file.relative_to(ROOT) for file in found)]


@functools.cache
def structs() -> dict[str, str]:
    """The text that declares the options of each struct that steps have, by the struct's name."""
    found = {}
    for file in sources()[1:]:
        text = (ROOT / file).read_text()
        name, marks = "", [*DECLARE.finditer(text), None]
        for mark, following in zip(marks, marks[1:]):
            name = mark[1] or mark[2] or name
            if not mark[1]:
                body = text[mark.end() : following.start() if following else None]
                found[name] = found.get(name, "") + body
    return found


@functools.cache
def options_of(step: str) -> list[Option]:
    """The common ones, and its own."""
    texts = [(ROOT / COMMON).read_text(), *own_texts(step)]
    return [row for text in texts for row in rows_of(text)]


def own_texts(step: str) -> list[str]:
    header = ROOT / read_steps()[step].folder / "theory.hpp"
    found = re.search(r"step_options<([\w,\s]+)>", header.read_text()) if header.exists() else None
    return [structs().get(name, "") for name in re.split(r",\s*", found[1])] if found else []


def check_are_of(step: str, words: list[str]) -> None:
    """Refuses an option that only other steps have, and names them. The trainer itself refuses what
    nobody has."""
    given = [word[2:].partition("=")[0] for word in words if word.startswith("--")]
    own = {row.name for row in options_of(step)}
    for name in (name for name in given if name not in own):
        others = [each for each in read_steps() if name in (row.name for row in options_of(each))]
        if others:
            steps = f"{', '.join(others[:-1])} and {others[-1]}" if others[1:] else others[0]
            usage_error(f"--{name} is an option of {steps}, not of {step}")


def help_of(step: str) -> str:
    """The help without types and defaults, which only the program knows."""
    requests = [Option("Help", name, help) for name, help in REQUESTS.items()]
    lines, heading = [f"{step} [options]"], ""
    for row in [*options_of(step), *requests]:
        if row.heading != heading:
            heading = row.heading
            lines += ["", f"{heading}:"]
        lines += textwrap.wrap(
            f"  --{row.name:<24} {row.help}",
            100,
            subsequent_indent=" " * 29,
            break_on_hyphens=False,
        )
    return "\n".join(lines)
