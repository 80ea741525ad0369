"""./ladder docs: the course as a site, from the same Markdown: site/ has its parts."""

import os
import shutil
import sys
from pathlib import Path

from launcher.build import need_release, setup_lock
from launcher.checkout import ROOT, chosen_kind
from launcher.console import Parser, say, usage_error
from launcher.libtorch import need_environment
from launcher.logs import Log
from launcher.steps import step_names

ABOUT = """\
Builds the course as a static site: lessons in their order, reference pages, search, the source files that lessons link, and
Doxygen's reference. Nothing is loaded from elsewhere, so that it can be opened as a file or copied to any web server."""
TRACES = ROOT / "build/site-traces"
MADE_HERE = ".buildinfo"  # Sphinx's, in every folder that it has written
REFERENCE = """\
# C++ reference

All classes and functions, from the comments in their headers. Doxygen makes it, so it looks different and has a search
of its own.

<p><a href="reference/html/index.html">Open the reference</a></p>
"""


def parse(words: list[str]):
    parser = Parser("docs", ABOUT)
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        default=ROOT / "build/site",
        help="default: build/site",
    )
    parser.add_argument(
        "--measure",
        action="store_true",
        help="first make the results that it shows, where there are none: ./ladder run, and a trace for each measured time line",
    )
    parser.add_argument(
        "--no-reference",
        action="store_true",
        help="without Doxygen's reference, which takes longest",
    )
    arguments = parser.parse_args(words)
    out = arguments.out.absolute()
    if out.exists() and not (
        out.is_dir() and (not any(out.iterdir()) or (out / MADE_HERE).exists())
    ):
        usage_error(f"--out {arguments.out}: it is there, and no site of ours: name a new folder")
    return arguments, out


def run(words: list[str]) -> int:
    arguments, out = parse(words)
    with setup_lock():
        python = need_environment("docs") / "bin/python"
    work = ROOT / "build/site-work"
    shutil.rmtree(work, ignore_errors=True)
    pages, static, new = work / "pages", work / "static", work / "new"
    for folder in (pages, static):
        folder.mkdir(parents=True)
    if arguments.measure:
        measure()
    sys.path.append(str(ROOT / "site"))
    from figures import compile as figures
    from pages import stage
    from results import pages as results

    figures.compile_all(static / "figures")
    if has_reference := not arguments.no_reference and can_make_reference():
        (pages / "reference.md").write_text(REFERENCE)
    shown = results.write(pages, static / "results", ROOT / "runs", TRACES)
    stage(pages, shown, ["reference"] if has_reference else [])
    say("building the pages (log: .ladder/logs/site.log)")
    options = [
        "--builder",
        "html",
        "--conf-dir",
        ROOT / "site",
        "--quiet",
        "--fail-on-warning",
        "--keep-going",
    ]
    sphinx = [python, "-m", "sphinx", *options, "--doctree-dir", work / "trees", pages, new]
    Log("site").run(sphinx, env={**os.environ, "LADDER_SITE_WORK": str(work)})
    if has_reference:
        make_reference(new / "reference")
    (new / ".nojekyll").touch()  # or a host may leave out folders whose names begin with _
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    shutil.move(new, out)
    shutil.rmtree(work)
    say(f"ready: open {os.path.relpath(out)}/index.html in a browser")
    return 0


def measure() -> None:
    """What is there is not made again."""
    if not any((ROOT / "runs").glob("ladder-*/table.md")):
        say("results: ./ladder run (log: .ladder/logs/site-run.log)")
        Log("site-run").run([ROOT / "ladder", "run"])
    need_release(chosen_kind(), *step_names())
    say(
        "results: a run with a trace for each measured time line (log: .ladder/logs/site-traces.log)"
    )
    Log("site-traces").run([ROOT / "scripts/draw_time_lines", "--keep", TRACES])


def can_make_reference() -> bool:
    if shutil.which("doxygen"):
        return True
    say(
        "without the C++ reference: doxygen is not installed (./ladder setup --packages installs it)"
    )
    return False


def make_reference(folder: Path) -> None:
    say("building the C++ reference (log: .ladder/logs/doxygen.log)")
    folder.mkdir()
    settings = folder / "Doxyfile"
    settings.write_text(f'@INCLUDE = docs/Doxyfile\nOUTPUT_DIRECTORY = "{folder}"\n')
    Log("doxygen").run(["doxygen", settings], cwd=ROOT)
    settings.unlink()
