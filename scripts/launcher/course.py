"""The course: reads scripts/course.tsv, the chapters, which says what its columns mean."""

from typing import NamedTuple

from launcher.checkout import ROOT
from launcher.steps import read_steps

FILE = ROOT / "scripts/course.tsv"


class Lesson(NamedTuple):
    """A field for each column of the file."""

    folder: str
    place: str
    exercise: str
    train: str

    @property
    def page(self) -> str:
        return f"{self.folder}/README.md"

    @property
    def step(self) -> str:
        return self.folder.split("/")[0]

    @property
    def is_on_path(self) -> bool:
        return self.place == "path"


def read_course() -> list[Lesson]:
    """The lessons, in the order of the course: each step, then its chapters."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    chapters = [Lesson(*line.split("\t")) for line in lines]
    steps = [name for name, step in read_steps().items() if str(step.folder) == name]
    return [
        lesson
        for step in steps
        for lesson in [
            Lesson(step, "path", step, step),
            *(chapter for chapter in chapters if chapter.step == step),
        ]
    ]


def exercise_names() -> list[str]:
    """In the order of the course."""
    return list(dict.fromkeys(one.exercise for one in read_course() if one.exercise != "-"))
