#!/usr/bin/env python3
"""Decides which packages of pip's plan for libtorch to fetch, and prints the sizes before anything is downloaded.

    python -m pip install --dry-run --report PLAN.json … && scripts/torch_plan.py PLAN.json [--cuda] >PACKAGES
    scripts/torch_plan.py --self-test       judges plans that it makes

Prints the packages for pip install --no-deps -r PACKAGES. That is the whole plan, if it is for the build of torch that
was asked for. Without --cuda, a CUDA build will do as well: three packages of it are enough for programs that link
libtorch_cpu.so, which itself needs libcudart.so and libcupti.so. Python cannot import this CPU half, because its module
links libtorch_cuda.so and so all other libraries. If neither is possible, it says what to do and exits with 1. Standard
library only.
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
CPU_HALF = re.compile(r"torch$|nvidia[-_]cuda[-_](runtime|cupti)([-_]cu\d+)?$")
ON_DISK = {"CPU build": "1 GB", "CPU half": "1.3 GB", "CUDA build": "5 GB"}  # the virtual environment


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
    """(the packages to fetch, or none; the line or lines that say why)."""
    torch = next((package for package in packages if package["name"].lower() == "torch"), None)
    if torch is None:
        return [], "pip's plan does not contain torch"
    half = [package for package in packages if CPU_HALF.match(package["name"].lower())]
    is_cuda_build = any(map(is_cuda, packages))

    def fetching(wanted, what, kind):
        local = [package for package in wanted if package["is_local"]]
        where = f", {size_text(local)} of it from this machine" if local else ""
        return wanted, (
            f"fetching torch {torch['version']}{what}: {len(wanted)} package(s), {size_text(wanted)}{where}; "
            f"{ON_DISK[kind]} on disk"
        )

    if is_cuda_build == wants_cuda:
        return fetching(packages, "", "CUDA build" if wants_cuda else "CPU build")
    if is_cuda_build and len(half) == 3:
        return fetching(half, ", the CPU half of a CUDA build (pip found no CPU build)", "CPU half")
    found = f"torch {torch['version']}, {len(packages)} package(s) in all: {size_text(packages)}"
    if wants_cuda:
        return [], (
            f"pip would fetch a CPU build: {found}.\n"
            "Nothing was downloaded. With LADDER_CUDA=ON Ladder needs a CUDA build; choose one of:\n"
            "  - take the index of CPU builds out of pip's configuration: pip prefers torch X.Y.Z+cpu to X.Y.Z\n"
            "  - LADDER_TORCH=FOLDER uses a CUDA build of libtorch that is already on this machine"
        )
    return [], (
        f"pip would fetch a build for GPUs: {found}, but not the two CUDA libraries that its CPU half would need.\n"
        "Nothing was downloaded. This set-up needs a CPU build; choose one of:\n"
        "  - give pip an index that has CPU builds (PIP_EXTRA_INDEX_URL, or extra-index-url in pip's configuration);\n"
        "    pip prefers torch X.Y.Z+cpu to X.Y.Z\n"
        "  - LADDER_TORCH=FOLDER uses a libtorch that is already on this machine"
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


CUDA_LIBRARIES = ("nvidia-cuda-runtime 13.0.96 https://h/2000000", "nvidia-cuda-cupti 13.0.85 https://h/11000000")

# A plan, whether CUDA is wanted, the packages that must be fetched, and what must be said. A file's size is in its name.
CASES = [
    (planned("torch 2.13.0+cpu file:///w/192000000", "sympy 1.14.0 https://h/6000000"), False,
     ["torch==2.13.0+cpu", "sympy==1.14.0"],
     "fetching torch 2.13.0+cpu: 2 package(s), 198 MB, 192 MB of it from this machine; 1 GB on disk"),
    (planned("torch 2.13.0 https://h/100000000", "numpy 2.2.6 https://h/unknown"), False,
     ["torch==2.13.0", "numpy==2.2.6"], "100 MB and 1 file(s) of unknown size"),
    (planned("torch 2.13.0 https://h/527000000", "nvidia-cublas 13.1 https://h/1500000000", *CUDA_LIBRARIES), False,
     ["torch==2.13.0", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"],
     "fetching torch 2.13.0, the CPU half of a CUDA build (pip found no CPU build): 3 package(s), 540 MB; 1.3 GB on disk"),
    (planned("torch 2.9.0+cu128 https://h/5", "sympy 1.14.0 https://h/5", "nvidia_cuda_runtime_cu12 12.8.90 https://h/5",
             "nvidia-cuda-cupti-cu12 12.8.90 https://h/5", "nvidia-cuda-nvrtc-cu12 12.8.93 https://h/5"), False,
     ["torch==2.9.0+cu128", "nvidia_cuda_runtime_cu12==12.8.90", "nvidia-cuda-cupti-cu12==12.8.90"], "the CPU half"),
    (planned("torch 2.13.0 https://h/500000000", "nvidia-cublas 13.1 https://h/1500000000", *CUDA_LIBRARIES), True,
     ["torch==2.13.0", "nvidia-cublas==13.1", "nvidia-cuda-runtime==13.0.96", "nvidia-cuda-cupti==13.0.85"],
     "fetching torch 2.13.0: 4 package(s), 2.0 GB; 5 GB on disk"),
    (planned("torch 2.13.0 https://h/5", "cuda-toolkit 13.0 https://h/5"), False, [], "LADDER_TORCH=FOLDER"),
    (planned("torch 2.13.0 https://h/5", "triton 3.6 https://h/5", CUDA_LIBRARIES[0]), False, [], "3 package(s) in all"),
    (planned("torch 2.13.0+cu130 https://h/5"), False, [], "PIP_EXTRA_INDEX_URL"),
    (planned("torch 2.13.0+rocm7 https://h/5"), False, [], "Nothing was downloaded"),
    (planned("Torch 2.13.0 https://h/5", "cudatuple 1 https://h/5"), False, ["Torch==2.13.0", "cudatuple==1"], "2 package(s)"),
    (planned("torch 2.11.0+cu130 https://h/5"), True, ["torch==2.11.0+cu130"], "fetching torch 2.11.0+cu130"),
    (planned("torch 2.11.0+cpu https://h/5", "sympy 1.14.0 https://h/5"), True, [], "take the index of CPU builds out"),
    (planned("numpy 2.2.6 https://h/5"), False, [], "does not contain torch"),
]  # fmt: skip


def requirements(packages):
    return [f"{package['name']}=={package['version']}" for package in packages]


def self_test():
    def size_of(url):
        name = url.rsplit("/", 1)[-1]
        return int(name) if name.isdigit() else None

    mistakes = 0
    for report, wants_cuda, fetched, wanted in CASES:
        packages, text = judge(read_packages(report, size_of), wants_cuda)
        if requirements(packages) != fetched or wanted not in text:
            print(f"self-test: {report}: wanted {fetched} and {wanted!r}, found {requirements(packages)} and {text!r}")
            mistakes += 1
    print(f"self-test: {len(CASES)} plans, {mistakes} judged wrongly")
    return mistakes


def main():
    parser = argparse.ArgumentParser(description="Decides which packages of pip's plan for libtorch to fetch.")
    parser.add_argument("plan", type=Path, nargs="?", help="what pip install --dry-run --report has written")
    parser.add_argument("--cuda", action="store_true", help="a CUDA build is wanted")
    parser.add_argument("--self-test", action="store_true", help="judge plans of known outcome")
    arguments = parser.parse_args()
    if arguments.self_test:
        return 1 if self_test() else 0
    if arguments.plan is None:
        parser.error("a plan is needed: pip install --dry-run --report PLAN.json writes it")
    packages, text = judge(read_packages(json.loads(arguments.plan.read_text())), arguments.cuda)
    print("\n".join("ladder: " + line for line in text.splitlines()), file=sys.stderr)
    print("\n".join(requirements(packages)))
    return 0 if packages else 1


if __name__ == "__main__":
    sys.exit(main())
