"""The steps: their names as users type them, and what they say about themselves in their CMakeLists.txt."""

import re
from pathlib import Path

from launcher.checkout import ROOT
from launcher.console import nearest, usage_error

STEP_NAME = re.compile(r"step\d+_\w+")


def step_names(root: Path = ROOT) -> list[str]:
    """In the order of the course."""
    folders = [folder.parent.name for folder in Path(root).glob("step*_*/CMakeLists.txt")]
    return sorted(filter(STEP_NAME.fullmatch, folders), key=lambda name: int(re.search(r"\d+", name)[0]))


def resolve_step(word: str, *others: str) -> str:
    """The step with this name, first part of a name, or number; or one of the other names."""
    known = [*step_names(), *others]
    for step in known:
        if step == word or step.startswith((f"{word}_", f"step{word}_")):
            return step
    also = f", and {', '.join(others)}" if others else ""
    usage_error(f"there is no step '{word}'{nearest(word, known)} The steps: {' '.join(step_names())}{also}")


def take_step(command: str, words: list[str]) -> str:
    """The first word of such a command."""
    if not words:
        usage_error(f"usage: ./ladder {command} STEP [--ranks N] [options]. The steps: {' '.join(step_names())}")
    return resolve_step(words[0])


def read_steps(root: Path = ROOT) -> dict[str, str | None]:
    """{name: the step that it builds on}, from ladder_add_step(NAME IDEA … BUILDS_ON STEP …), in the order of the course."""
    steps = {}
    for name in step_names(root):
        text = re.sub(r"#.*", "", (Path(root) / name / "CMakeLists.txt").read_text())
        call = re.search(r"ladder_add_step\(\s*(\w+)([^)]*)\)", text)
        if call and call[1] == name:
            builds_on = re.search(r"\bBUILDS_ON\s+(\w+)", call[2])
            steps[name] = builds_on[1] if builds_on else None
    return steps


def earlier_steps(step: str, steps: dict[str, str | None]) -> list[str]:
    """The steps that this one builds on, near and far."""
    earlier = []
    while (step := steps.get(step)) is not None and step not in earlier:
        earlier.append(step)
    return earlier
