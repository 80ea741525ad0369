"""./ladder exercise: a learner's own version of a step's core. The stub is copied once, then built and graded."""

import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from launcher.build import need_built, prepare, setup_lock
from launcher.checkout import ROOT, chosen_kind, shown
from launcher.console import Parser, say, usage_error
from launcher.launch import launch
from launcher.steps import resolve_step, step_names

ALONE = "loss_scaler"  # the exercise that belongs to no step


@dataclass(frozen=True)
class Exercise:
    """Paths are from the root; that of the grader is from the build folder."""

    name: str
    folder: str
    lesson: str
    grader: str
    cmake: str  # says on how many ranks the grader runs

    def stubs(self) -> list[Path]:
        return [file for file in sorted((ROOT / self.folder).glob("*.cpp")) if solution_of(file)]

    def ranks(self) -> list[int]:
        found = re.search(r"^ *RANKS ([0-9 ]+)", (ROOT / self.cmake).read_text(), re.MULTILINE)
        return [int(word) for word in found[1].split()] if found else [1]


def exercise_of(name: str) -> Exercise:
    if name == ALONE:
        folder = "common/optim/exercise"
        return Exercise(name, folder, "docs/precision.md", f"{folder}/loss_scaler_grade", f"{folder}/CMakeLists.txt")
    return Exercise(name, f"{name}/exercise", f"{name}/README.md", f"{name}/{name}_grade", f"{name}/CMakeLists.txt")


def solution_of(stub: Path) -> Path | None:
    """The file that a stub replaces, which has the same name; nothing if the file is not a stub."""
    folder = stub.parent.parent
    places = [folder, folder / "schedule", folder / "runner", stub.parent / "solution"]
    return next((place / stub.name for place in places if (place / stub.name).exists()), None)


def copy_stub(stub: Path, mine: Path) -> None:
    """Where a learner's file comes from."""
    shutil.copyfile(stub, mine)


def run(words: list[str]) -> int:
    parser = Parser("exercise", "Write the core of a step yourself: copies the stub, builds and grades your code.")
    parser.add_argument("step", metavar="STEP", help=f"{' '.join(step_names())}; or {ALONE}: a loss scale that adapts, and an "
                        "optimizer step that uses it")  # fmt: skip
    exercise = exercise_of(resolve_step(parser.parse_args(words).step, ALONE))
    kind, name = chosen_kind(), exercise.name
    folder = Path(os.environ.get("LADDER_EXERCISES") or ROOT / "exercises")
    hand_out(exercise, folder / name)
    build = f"exercise{kind.suffix}"
    with setup_lock():
        prepare(kind, build, "--preset", kind.preset, f"-DLADDER_EXERCISE={name}", f"-DLADDER_EXERCISES={folder}")
        need_built(build, f"{name}_grade")
    for ranks in exercise.ranks():
        end = launch(ranks, [ROOT / "build" / build / exercise.grader])
        if end.was_stopped:
            return 130
        if end.code:
            say(f"not yet: edit {shown(folder / name)}/ and run ./ladder exercise {name} again")
            return 1
    say(f"passed: your {name} passes all checks. Next: compare it with the solution ('Read' in {exercise.lesson}), then 'Go further' there")
    return 0


def hand_out(exercise: Exercise, folder: Path) -> None:
    """A learner's file that is there stays as it is."""
    if not exercise.stubs():
        usage_error(f"{exercise.name} has no exercise")
    folder.mkdir(parents=True, exist_ok=True)
    for stub in exercise.stubs():
        mine = folder / stub.name
        if not mine.exists():
            copy_stub(stub, mine)
            say(f"your file: {shown(mine)} (the lesson: {exercise.lesson})")
