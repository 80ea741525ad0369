"""./ladder exercise: a learner's own version of a step's core. The stub is copied once, then built and graded."""

import os
import re
import subprocess
from pathlib import Path

from launcher.build import need_built, prepare, setup_lock
from launcher.checkout import ROOT, chosen_kind, shown
from launcher.console import Parser, fail, say, usage_error
from launcher.launch import launch
from launcher.steps import resolve_step, step_names

ALONE = "loss_scaler"  # the exercise that belongs to no step


class Exercise:
    """Paths are from the root; that of the grader is from the build folder."""

    def __init__(self, name):
        self.name, home = name, "step0_single_gpu/precision" if name == ALONE else name
        self.folder, self.lesson = f"{home}/exercise", f"{home}/README.md"
        self.grader = f"{home}/{name}_grade"
        self.cmake = ROOT / home / "CMakeLists.txt"

    def stubs(self):
        return sorted((ROOT / self.folder).glob("*.stub"))

    def ranks(self):
        """The numbers of ranks on which CMake runs the grader."""
        found = re.search(r"^ *RANKS ([0-9 ]+)", self.cmake.read_text(), re.MULTILINE)
        return [int(word) for word in found[1].split()] if found else [1]


def solution_of(stub: Path) -> Path:
    """The file that the stub is made from, and that a learner's file replaces: it has the same name."""
    folder, name = stub.parent.parent, f"{stub.stem}.cpp"
    places = [folder, folder / "schedule", folder / "runner", stub.parent / "solution", ROOT / "common/optim"]
    return next(place / name for place in places if (place / name).exists())


def copy_stub(stub: Path, mine: Path):
    """Where a learner's file comes from."""
    if subprocess.run([ROOT / "scripts/make_stub", solution_of(stub), stub, mine]).returncode:
        fail(f"no stub was made of {shown(stub)}")


def run(words):
    parser = Parser("exercise", "Write the core of a step yourself: copies the stub, builds and grades your code.")
    parser.add_argument("step", metavar="STEP", help=f"{' '.join(step_names())}; or {ALONE}: a loss scale that adapts, and an "
                        "optimizer step that uses it")  # fmt: skip
    exercise, kind = Exercise(resolve_step(parser.parse_args(words).step, ALONE)), chosen_kind()
    folder, build = Path(os.environ.get("LADDER_EXERCISES") or ROOT / "exercises"), f"exercise{kind.suffix}"
    mine = folder / exercise.name
    hand_out(exercise, mine)
    with setup_lock():
        prepare(kind, build, "--preset", kind.preset, f"-DLADDER_EXERCISE={exercise.name}", f"-DLADDER_EXERCISES={folder}")
        need_built(build, f"{exercise.name}_grade")
    for ranks in exercise.ranks():
        end = launch(ranks, [ROOT / "build" / build / exercise.grader])
        if end.was_stopped:
            return 130
        if end.code:
            say(f"not yet: edit {shown(mine)}/ and run ./ladder exercise {exercise.name} again")
            return 1
    say(f"passed: your {exercise.name} passes all checks. Next: compare it with the solution ('Read' in {exercise.lesson}), then "
        "'Go further' there")  # fmt: skip
    return 0


def hand_out(exercise, folder):
    """A learner's file that is there stays as it is."""
    if not exercise.stubs():
        usage_error(f"{exercise.name} has no exercise")
    folder.mkdir(parents=True, exist_ok=True)
    for stub in exercise.stubs():
        if not (mine := folder / f"{stub.stem}.cpp").exists():
            copy_stub(stub, mine)
            say(f"your file: {shown(mine)} (the lesson: {exercise.lesson})")
