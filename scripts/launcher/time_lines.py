"""The lessons' measured time lines: how each run is started, and its trace."""

import re
import tempfile
from pathlib import Path
from typing import NamedTuple

from launcher.checkout import ROOT, keep, read_kept
from launcher.machine import made_with
from launcher.processes import call

RANKS, STEPS = 2, 6
COMMENT = re.compile(r"<!-- time line: (?P<options>.*?)(?: beside (?P<beside>\S+))? -->")


class TimeLine(NamedTuple):
    folder: str  # of the lesson, which draws it
    options: list[str]
    beside: str | None  # the folder of a lesson that it is compared with: one axis for both

    @property
    def name(self) -> str:
        return Path(self.folder).name

    def command(self) -> list[str]:
        run = f"./ladder train {self.name} --ranks {RANKS} --steps {STEPS}".split()
        return [*run, *self.options]

    def file(self, folder: Path) -> Path:
        """Its trace, among those that are kept in a folder."""
        return folder / f"{self.name}.json"

    def about(self, folder: Path) -> dict[str, str]:
        """What its trace was made with; empty if that is not known."""
        return read_kept(self.file(folder).with_suffix(".run.json"), {})

    def trace(self, folder: Path) -> int:
        """Runs unless the trace of this command is there already. Returns the exit code."""
        file, about = self.file(folder), made_with(self.command())
        if file.exists() and self.about(folder).get("command") == about["command"]:
            return 0
        file.unlink(missing_ok=True)
        keep(file.with_suffix(".run.json"), about)
        with tempfile.TemporaryDirectory() as run:
            out = ["--quiet", "--out", f"{run}/run", "--trace", file]
            return call([*self.command(), *out], cwd=ROOT)


def read_time_lines() -> dict[str, TimeLine]:
    """By the folder of the lesson, whose page says in a comment how its run is started."""
    found = {}
    for page in sorted([*ROOT.glob("step*/README.md"), *ROOT.glob("step*/*/README.md")]):
        for comment in COMMENT.finditer(page.read_text()):
            folder = str(page.parent.relative_to(ROOT))
            found[folder] = TimeLine(folder, comment["options"].split(), comment["beside"])
    return found
