#!/usr/bin/env python3
"""Judges what pip would download for libtorch, before it does: a CPU build needs no CUDA libraries.

    python -m pip install --dry-run --report PLAN.json … && scripts/torch_plan.py PLAN.json [--cuda]
    scripts/torch_plan.py --self-test       judges plans that it makes

Prints one line with the size of the download. If the plan holds a CUDA build of torch and --cuda is missing, or the
other way round, it says what to do instead and exits with 1. There is no way to take only the CPU half of a CUDA
build: its libtorch_cpu.so itself needs libcudart.so and libcupti.so. Standard library only.
"""

import argparse
import json
import os
import re
import ssl
import sys
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CUDA_PACKAGE = re.compile(r"(nvidia|cuda|triton)([-_]|$)")
CUDA_BUILD = re.compile(r"\+(cu|rocm|xpu)")  # the local part of a version: 2.13.0+cu130


def is_cuda(package):
    """A CUDA library, a package that only a CUDA build needs, or such a build of torch itself."""
    return bool(CUDA_PACKAGE.match(package["name"].lower()) or CUDA_BUILD.search(package["version"]))


def size_text(packages):
    """'212 MB': the known sizes of these packages added up, and how many are unknown."""
    megabytes = sum(package["num_bytes"] or 0 for package in packages) / 1e6
    text = f"{megabytes / 1000:.1f} GB" if megabytes >= 1000 else f"{megabytes:.0f} MB"
    num_unknown = sum(package["num_bytes"] is None for package in packages)
    return text + (f" and {num_unknown} file(s) of unknown size" if num_unknown else "")


def judge(packages, wants_cuda):
    """(whether it may be downloaded, the line or lines that say why)."""
    torch = next((package for package in packages if package["name"].lower() == "torch"), None)
    if torch is None:
        return False, "pip's plan does not contain torch"
    cuda = [package for package in packages if is_cuda(package)]
    local = [package for package in packages if package["is_local"]]
    where = f", {size_text(local)} of it from this machine" if local else ""
    total = f"torch {torch['version']}, {len(packages)} package(s) in all: {size_text(packages)}{where}"
    if bool(cuda) == wants_cuda:
        return True, "fetching " + total
    if wants_cuda:
        return False, (
            f"pip would fetch a CPU build: {total}.\n"
            "Nothing was downloaded. With LADDER_CUDA=ON Ladder needs a CUDA build; choose one of:\n"
            "  - take the index of CPU builds out of pip's configuration: pip prefers torch X.Y.Z+cpu to X.Y.Z\n"
            "  - LADDER_TORCH=FOLDER uses a CUDA build of libtorch that is already on this machine"
        )
    return False, (
        f"pip would fetch a CUDA build: {total}; {len(cuda)} of them, {size_text(cuda)}, only for CUDA.\n"
        "Nothing was downloaded. This set-up needs a CPU build; choose one of:\n"
        "  - give pip an index that has CPU builds (PIP_EXTRA_INDEX_URL, or extra-index-url in pip's configuration);\n"
        "    pip prefers torch X.Y.Z+cpu to X.Y.Z\n"
        "  - LADDER_TORCH=FOLDER uses a libtorch that is already on this machine\n"
        "  - ./ladder setup --cuda fetches a CUDA build on purpose, and builds what runs on NVIDIA GPUs"
    )


# ---- pip's report -----------------------------------------------------------------------------------------------------


def num_bytes_at(url):
    """Size of the file, or None if the server does not say."""
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(urllib.request.url2pathname(parts.path)).stat().st_size
        context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=20, context=context) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def read_packages(report, size_of=num_bytes_at):
    """A dict for each package that pip would install."""
    urls = [item["download_info"]["url"] for item in report["install"]]
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(size_of, urls))
    return [
        {**{key: item["metadata"][key] for key in ("name", "version")}, "num_bytes": size, "is_local": url.startswith("file:")}
        for item, url, size in zip(report["install"], urls, sizes)
    ]  # fmt: skip


# ---- self-test --------------------------------------------------------------------------------------------------------


def planned(*packages):
    """pip's report of packages written 'NAME VERSION URL', the parts of it that are read."""
    install = []
    for name, version, url in map(str.split, packages):
        install.append({"metadata": {"name": name, "version": version}, "download_info": {"url": url}})
    return {"install": install}


# A plan, whether CUDA is wanted, whether it must be accepted, and what must be said. A file's size is in its name.
CASES = [
    (planned("torch 2.13.0+cpu file:///w/192000000", "sympy 1.14.0 https://h/6000000"), False, True,
     "fetching torch 2.13.0+cpu, 2 package(s) in all: 198 MB, 192 MB of it from this machine"),
    (planned("torch 2.13.0 https://h/100000000", "numpy 2.2.6 https://h/unknown"), False, True,
     "100 MB and 1 file(s) of unknown size"),
    (planned("torch 2.13.0 https://h/500000000", "nvidia-cublas 13.1 https://h/1500000000"), False, False,
     "2.0 GB; 1 of them, 1.5 GB, only for CUDA"),
    (planned("torch 2.13.0 https://h/500000000", "nvidia-cublas 13.1 https://h/1500000000"), True, True,
     "fetching torch 2.13.0, 2 package(s) in all: 2.0 GB"),
    (planned("torch 2.13.0 https://h/5", "cuda-toolkit 13.0 https://h/5"), False, False, "1 of them"),
    (planned("torch 2.13.0 https://h/5", "triton 3.6 https://h/5"), False, False, "LADDER_TORCH=FOLDER"),
    (planned("torch 2.13.0+cu130 https://h/5"), False, False, "PIP_EXTRA_INDEX_URL"),
    (planned("torch 2.13.0+rocm7 https://h/5"), False, False, "Nothing was downloaded"),
    (planned("Torch 2.13.0 https://h/5", "cudatuple 1 https://h/5"), False, True, "2 package(s)"),
    (planned("torch 2.11.0+cu130 https://h/5"), True, True, "fetching torch 2.11.0+cu130"),
    (planned("torch 2.11.0+cpu https://h/5", "sympy 1.14.0 https://h/5"), True, False, "take the index of CPU builds out"),
    (planned("numpy 2.2.6 https://h/5"), False, False, "does not contain torch"),
]  # fmt: skip


def self_test():
    def size_of(url):
        name = url.rsplit("/", 1)[-1]
        return int(name) if name.isdigit() else None

    mistakes = 0
    for report, wants_cuda, is_accepted, wanted in CASES:
        accepts, text = judge(read_packages(report, size_of), wants_cuda)
        if accepts != is_accepted or wanted not in text:
            print(f"self-test: {report}: wanted {is_accepted} and {wanted!r}, found {accepts} and {text!r}")
            mistakes += 1
    print(f"self-test: {len(CASES)} plans, {mistakes} judged wrongly")
    return mistakes


def main():
    parser = argparse.ArgumentParser(description="Judges what pip would download for libtorch.")
    parser.add_argument("plan", type=Path, nargs="?", help="what pip install --dry-run --report has written")
    parser.add_argument("--cuda", action="store_true", help="a CUDA build is wanted")
    parser.add_argument("--self-test", action="store_true", help="judge plans of known outcome")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 1 if self_test() else 0
    if arguments.plan is None:
        parser.error("a plan is needed: pip install --dry-run --report PLAN.json writes it")
    is_accepted, text = judge(read_packages(json.loads(arguments.plan.read_text())), arguments.cuda)
    print("\n".join("ladder: " + line for line in text.splitlines()), file=sys.stderr)
    return 0 if is_accepted else 1


if __name__ == "__main__":
    sys.exit(main())
