"""./ladder report: charts of runs, in one page."""

import json
import os
from collections.abc import Iterable
from pathlib import Path

from launcher.checkout import shown, write_or_fail
from launcher.console import Parser, fail, say, usage_error
from launcher.event_files import write_events
from launcher.report_page import MARK, page
from launcher.report_runs import Run, read_run

ABOUT = """\
Shows runs in one page of HTML that needs no network: losses, differences in ULPs, norms, memory and traffic beside
theory, speed, step 9's rounds, and what differs between their options. The first RUN is the reference of the others of its
model. What cannot be read is left out, and named.

RUN is a folder that a trainer wrote (--out), or that of a whole ./ladder run, where each rung is compared with the one
that it must equal."""


def run(words: list[str]) -> int:
    parser = Parser("report", ABOUT)
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+")
    parser.add_argument(
        "--reference", metavar="RUN", type=Path, help="compare with this run instead of the first"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        type=Path,
        help="default: report.html in the folder of the first RUN",
    )
    parser.add_argument(
        "--tensorboard",
        metavar="DIR",
        type=Path,
        help="also write the curves as TensorBoard's event files, a folder for each run",
    )
    arguments = parser.parse_args(words)
    groups, left_out = read_groups(arguments.runs, arguments.reference)
    for reason in left_out:
        say(f"left out {reason}")
    runs = [each for group in groups for each in group]
    out = arguments.out or arguments.runs[0] / "report.html"
    title = "Report of " + (
        runs[0].name if len(runs) == 1 else f"{len(runs)} runs in {common_folder(runs).name}"
    )
    write_page(out, page(title, groups, left_out))
    say(f"report: {shown(out.resolve())}")
    if arguments.tensorboard:
        for each in runs:
            write_events(arguments.tensorboard / each.name, each)
        say(f"event files: tensorboard --logdir {shown(arguments.tensorboard.resolve())}")
    return 0


def read_groups(folders: list[Path], reference: Path | None) -> tuple[list[list[Run]], list[str]]:
    """Runs whose losses are means over the same; of a whole ladder, those of the same model. And
    why others are left out."""
    if any((folder / "table.json").exists() for folder in folders):
        if len(folders) > 1 or reference:
            usage_error(
                "the folder of a whole ./ladder run is shown alone; its rungs are runs as well: RUN/step4_bucketed_ddp"
            )
        return read_ladder(folders[0])
    folders = list(
        dict.fromkeys(map(Path.resolve, [*([reference] if reference else []), *folders]))
    )
    runs, left_out = read_runs(folders)
    if reference and runs[0].folder != folders[0]:
        fail(f"--reference cannot be read: {left_out[0]}")
    parent = common_folder(runs)
    for each in runs:
        each.name = str(each.folder.relative_to(parent)) if len(runs) > 1 else each.folder.name
        each.reference = None if each is runs[0] or each.other_model(runs[0]) else runs[0]
    units = list(dict.fromkeys(filter(None, (each.report.get("unit") for each in runs)))) or [None]
    return [
        [each for each in runs if each.report.get("unit", units[0]) == unit] for unit in units
    ], left_out


def read_runs(folders: Iterable[Path]) -> tuple[list[Run], list[str]]:
    """The runs that can be read, and why the others cannot."""
    runs, left_out = [], []
    for folder in folders:
        try:
            runs.append(read_run(folder))
        except ValueError as error:
            left_out.append(str(error))
        except OSError as error:
            left_out.append(f"{error.filename}: {error.strerror}")
    if not runs:
        fail("\n".join(left_out))
    return runs, left_out


def read_ladder(folder: Path) -> tuple[list[list[Run]], list[str]]:
    """table.json names its rungs, and what each must equal."""
    path = folder / "table.json"
    try:
        rungs = {row["name"]: row["equals"] for row in json.loads(path.read_text())}
    except (ValueError, TypeError, KeyError, OSError) as error:
        fail(f"{path}: is damaged: {error}")
    found, left_out = read_runs(folder / name for name in rungs)
    runs = {each.folder.name: each for each in found}
    for name, each in runs.items():
        each.name, each.reference = name, runs.get(rungs[name])
    models = {name: each.model() if each.report else None for name, each in runs.items()}
    return [
        [runs[name] for name in runs if models[name] == model]
        for model in dict.fromkeys(models.values())
    ], left_out


def common_folder(runs: list[Run]) -> Path:
    """That all of them are in."""
    return Path(os.path.commonpath([each.folder.parent for each in runs]))


def write_page(path: Path, text: str) -> None:
    try:
        with path.open(errors="replace") as file:
            if not MARK.startswith(file.read(len(MARK))):  # an older version may have been killed
                fail(
                    f"{path} exists, and ./ladder report has not written it: name another file with --out"
                )
    except FileNotFoundError:
        pass
    except OSError as error:
        fail(f"{path} cannot be read, to see whether it is a report: {error.strerror}")
    write_or_fail(path, text)
