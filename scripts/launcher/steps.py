"""The steps: their names as users type them, and what they say about themselves in their
CMakeLists.txt."""

import re
from pathlib import Path
from typing import NamedTuple

from launcher.checkout import ROOT
from launcher.console import nearest, usage_error

STEP_NAME = re.compile(r"step\d+_\w+")


class Step(NamedTuple):
    """A step, or a chapter of one with a training loop of its own. Both are named for their folder."""

    folder: Path  # from the root
    builds_on: str | None


def read_steps(root: Path = ROOT) -> dict[str, Step]:
    """The steps, from ladder_add_step(NAME IDEA … BUILDS_ON STEP …), in the order of the course,
    each step followed by its chapters."""
    steps, root = {}, Path(root)
    folders = [folder for folder in root.iterdir() if STEP_NAME.fullmatch(folder.name)]
    for step in sorted(folders, key=lambda folder: int(re.search(r"\d+", folder.name)[0])):
        for cmake in [step / "CMakeLists.txt", *sorted(step.glob("*/CMakeLists.txt"))]:
            text = re.sub(r"#.*", "", cmake.read_text()) if cmake.exists() else ""
            call = re.search(r"ladder_add_step\(\s*(\w+)([^)]*)\)", text)
            if call and call[1] == cmake.parent.name:
                builds_on = re.search(r"\bBUILDS_ON\s+(\w+)", call[2])
                steps[call[1]] = Step(
                    cmake.parent.relative_to(root), builds_on[1] if builds_on else None
                )
    return steps


def trainer_in(build: Path, step: str) -> Path:
    """The program in this build folder, built or not."""
    return build / read_steps()[step].folder / step


def step_names() -> list[str]:
    """The steps, and the chapters that train."""
    return list(read_steps())


def resolve_step(word: str, *others: str) -> str:
    """The step with this name, first part of a name, or number; or one of the other names."""
    steps = step_names()
    others = [name for name in others if name not in steps]
    known = [*steps, *others]
    for step in known:
        if step == word or step.startswith((f"{word}_", f"step{word}_")):
            return step
    also = f", and {', '.join(others)}" if others else ""
    usage_error(
        f"there is no step '{word}'{nearest(word, known)} The steps: {' '.join(steps)}{also}"
    )


def take_step(command: str, words: list[str]) -> tuple[str, list[str]]:
    """The step of such a command, and the other words. It is the first of them, or stands behind
    options as the only word that can be a step's name; a number there may be an option's value."""
    at = 0
    if not words or words[0].startswith("-"):
        names = [name for step in step_names() for name in (step, step.split("_")[0])]
        places = [place for place, word in enumerate(words) if word in names]
        if len(places) != 1:
            usage_error(
                f"usage: ./ladder {command} STEP [--ranks N] [options]. The steps: {' '.join(step_names())}"
            )
        at = places[0]
    return resolve_step(words[at]), [*words[:at], *words[at + 1 :]]


def earlier_steps(step: str, steps: dict[str, Step]) -> list[str]:
    """The steps that this one builds on, near and far."""
    earlier = []
    while step in steps and (step := steps[step].builds_on) is not None and step not in earlier:
        earlier.append(step)
    return earlier
