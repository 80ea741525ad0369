"""./ladder report: charts of runs, in one page."""

import json
import os
from itertools import groupby
from pathlib import Path

from launcher.checkout import shown
from launcher.console import Parser, fail, say, usage_error
from launcher.event_files import write_events
from launcher.report_page import MARK, page
from launcher.report_runs import Run, read_run

ABOUT = """\
Shows runs in one page of HTML that needs no network: losses, differences in ULPs, norms, memory and traffic beside
theory, speed, step 9's rounds, and what differs between their options. The first RUN is the reference of the others.

RUN is a folder that a trainer wrote (--out), or that of a whole ./ladder run, where each rung is compared with the one
that it must equal."""


def run(words: list[str]) -> int:
    parser = Parser("report", ABOUT)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+")
    parser.add_argument("--reference", metavar="RUN", type=Path, help="compare with this run instead of the first")
    parser.add_argument("--out", metavar="FILE", type=Path, help="default: report.html in the folder of the first RUN")
    parser.add_argument("--tensorboard", metavar="DIR", type=Path, help="also write the curves as TensorBoard's event files, a folder for each run")
    arguments = parser.parse_args(words)
    try:
        groups = read_groups(arguments.runs, arguments.reference)
    except ValueError as error:
        fail(str(error))
    runs = [each for group in groups for each in group]
    out = arguments.out or arguments.runs[0] / "report.html"
    title = "Report of " + (runs[0].name if len(runs) == 1 else f"{len(runs)} runs in {common_folder(runs).name}")
    write(out, page(title, groups))
    say(f"report: {shown(out.resolve())}")
    if arguments.tensorboard:
        for each in runs:
            write_events(arguments.tensorboard / each.name, each)
        say(f"event files: tensorboard --logdir {shown(arguments.tensorboard.resolve())}")
    return 0


def read_groups(folders: list[Path], reference: Path | None) -> list[list[Run]]:
    """Runs of the same model each. Only a whole ladder has several."""
    if any((folder / "table.json").exists() for folder in folders):
        if len(folders) > 1 or reference:
            usage_error("the folder of a whole ./ladder run is shown alone; its rungs are runs as well: RUN/step4_bucketed_ddp")
        return read_ladder(folders[0])
    folders = list(dict.fromkeys(map(Path.resolve, [*([reference] if reference else []), *folders])))
    runs = [read_run(folder) for folder in folders]
    parent = common_folder(runs)
    reported = [each for each in runs if each.report]
    for each in runs:
        each.name = str(each.folder.relative_to(parent)) if len(runs) > 1 else each.folder.name
        each.reference = None if each is runs[0] else runs[0]
        for (what, found), (_, wanted) in zip(each.model() if each.report else (), reported[0].model() if reported else ()):
            if found != wanted:
                fail(f"{each.folder / 'report.json'}: {what} {found}, and {wanted} in {reported[0].folder}. A report is about runs of one model")
    return [runs]


def read_ladder(folder: Path) -> list[list[Run]]:
    """table.json names its rungs, and what each must equal."""
    path = folder / "table.json"
    try:
        rungs = {row["name"]: row["equals"] for row in json.loads(path.read_text())}
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path}: is damaged: {error}") from None
    runs = {name: read_run(folder / name) for name in rungs}
    for name, each in runs.items():
        each.name, each.reference = name, runs.get(rungs[name])
    ordered = sorted(runs.values(), key=lambda each: list(map(Run.model, runs.values())).index(each.model()))
    return [list(group) for _, group in groupby(ordered, Run.model)]


def common_folder(runs: list[Run]) -> Path:
    """That all of them are in."""
    return Path(os.path.commonpath([each.folder.parent for each in runs]))


def write(path: Path, text: str) -> None:
    if path.exists():
        with path.open(errors="replace") as file:
            if file.read(len(MARK)) != MARK:
                fail(f"{path} exists, and ./ladder report has not written it: name another file with --out")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
