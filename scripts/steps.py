"""What the steps say about themselves: read from ladder_add_step(NAME IDEA … BUILDS_ON STEP …) in their CMakeLists.txt."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
STEP_NAME = re.compile(r"step\d+_\w+")


class Step(NamedTuple):
    """A step, or a chapter of one with a training loop of its own. Both are named for their folder."""

    folder: Path  # from the root
    builds_on: str | None


def read_steps(root=ROOT):
    """{name: Step}, in the order of the course, each step followed by its chapters."""
    steps = {}
    folders = [folder for folder in Path(root).iterdir() if STEP_NAME.fullmatch(folder.name)]
    for step in sorted(folders, key=lambda folder: int(re.search(r"\d+", folder.name)[0])):
        for cmake in [step / "CMakeLists.txt", *sorted(step.glob("*/CMakeLists.txt"))]:
            text = re.sub(r"#.*", "", cmake.read_text()) if cmake.exists() else ""
            call = re.search(r"ladder_add_step\(\s*(\w+)([^)]*)\)", text)
            if call is None or call[1] != cmake.parent.name:
                continue
            builds_on = re.search(r"\bBUILDS_ON\s+(\w+)", call[2])
            steps[call[1]] = Step(cmake.parent.relative_to(root), builds_on[1] if builds_on else None)
    return steps


def earlier_steps(step, steps):
    """The steps that this one builds on, near and far."""
    earlier = []
    while step in steps and (step := steps[step].builds_on) is not None and step not in earlier:
        earlier.append(step)
    return earlier
