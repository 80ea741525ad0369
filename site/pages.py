"""The pages of the site: the repository's own Markdown, in the order of the course.

README.md becomes index.md, so that a folder's address opens its lesson. Nothing else is changed: the
list of pages in the margin is added to the first page, and all other files are only read.
"""

import re
import shutil
import subprocess
from pathlib import Path

from launcher.course import read_course

ROOT = Path(__file__).resolve().parent.parent
# Beside the lessons. A page that is in no list ends the last one.
BEGIN = ["docs/install.md", "docs/route.md"]
REFERENCE = [
    "docs/commands.md",
    "docs/plan.md",
    "docs/results.md",
    "docs/proof.md",
    "docs/glossary.md",
    "docs/hugging_face.md",
    "docs/encoded_files.md",
    "docs/tokenizers.md",
    "docs/gpu.md",
    "docs/cluster.md",
    "docs/checkpoint.md",
    "docs/report.md",
    "docs/provenance.md",
]


def tracked(*patterns):
    command = ["git", "-C", ROOT, "ls-files", "--", *patterns]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def docname_of(page):
    """step3_naive_dp/README.md is step3_naive_dp/index."""
    return re.sub(r"(^|/)README$", r"\1index", page.removesuffix(".md"))


def page_of(docname):
    return re.sub(r"(^|/)index$", r"\1README", docname) + ".md"


def toctree(caption, pages):
    lines = map(docname_of, pages)
    return "\n".join(
        ["", "```{toctree}", ":hidden:", f":caption: {caption}", "", *lines, "```", ""]
    )


def contents(results, reference):
    course = read_course()
    path, beside = ([one.page for one in course if one.is_on_path is on] for on in (True, False))
    listed = {*BEGIN, *path, *beside, *REFERENCE, "README.md"}
    rest = [page for page in tracked("*.md") if page not in listed]
    return "".join(
        [
            toctree("Begin", BEGIN),
            toctree("The course", path),
            toctree("Beside the path", beside),
            toctree("Results", results),
            toctree("Reference", [*REFERENCE, *rest, *reference]),
        ]
    )


def stage(folder, results=(), reference=()):
    """Copies pages and pictures into a folder, which has other pages besides: these."""
    for name in tracked("*.md", "*.svg"):
        to = folder / re.sub(r"(^|/)README\.md$", r"\1index.md", name)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, to)
    with (folder / "index.md").open("a") as index:
        index.write(contents(results, reference))
