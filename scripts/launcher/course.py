"""The course: reads scripts/course.tsv, which says what its columns mean."""

from typing import NamedTuple

from launcher.checkout import ROOT

FILE = ROOT / "scripts/course.tsv"


class Lesson(NamedTuple):
    """A line of the file, a field for each column."""

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
    """The lessons, in the order of the course."""
    lines = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
    return [Lesson(*line.split("\t")) for line in lines]


def exercise_names() -> list[str]:
    """In the order of the course."""
    return list(dict.fromkeys(one.exercise for one in read_course() if one.exercise != "-"))
