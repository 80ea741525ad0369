"""What the steps say about themselves: read from ladder_add_step(NAME IDEA … BUILDS_ON STEP …) in their CMakeLists.txt."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEP_NAME = re.compile(r"step\d+_\w+")


def read_steps(root=ROOT):
    """{name: the step that it builds on, or None}, in the order of the course."""
    steps = {}
    folders = [folder for folder in Path(root).iterdir() if STEP_NAME.fullmatch(folder.name)]
    for folder in sorted(folders, key=lambda folder: int(re.search(r"\d+", folder.name)[0])):
        cmake = folder / "CMakeLists.txt"
        text = re.sub(r"#.*", "", cmake.read_text()) if cmake.exists() else ""
        call = re.search(r"ladder_add_step\(\s*(\w+)([^)]*)\)", text)
        if call is None or call[1] != folder.name:
            continue
        builds_on = re.search(r"\bBUILDS_ON\s+(\w+)", call[2])
        steps[folder.name] = builds_on[1] if builds_on else None
    return steps


def earlier_steps(step, steps):
    """The steps that this one builds on, near and far."""
    earlier = []
    while (step := steps.get(step)) is not None and step not in earlier:
        earlier.append(step)
    return earlier
