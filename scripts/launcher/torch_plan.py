"""Decides which packages of pip's plan for libtorch to fetch, and says how large they are before
anything is downloaded.

That is the whole plan, if it is for the build of torch that is wanted. Where a CPU build is wanted,
a CUDA build will do as well: three packages of it are enough for programs that link
libtorch_cpu.so, which itself needs libcudart.so and libcupti.so. Python cannot import this CPU
half, because its module links libtorch_cuda.so and so all other libraries.
"""

import os
import re
import ssl
import urllib.parse
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CUDA_PACKAGE = re.compile(r"(nvidia|cuda|triton)([-_]|$)")
CUDA_BUILD = re.compile(r"\+(cu|rocm|xpu)")  # the local part of a version: 2.13.0+cu130
CPU_HALF = re.compile(r"torch$|nvidia[-_]cuda[-_](runtime|cupti)([-_]cu\d+)?$")
TAKES_CPU_BUILD = """\
pip would fetch a CPU build: {}.
Nothing was downloaded. With LADDER_CUDA=ON Ladder needs a CUDA build; choose one of:
  - take the index of CPU builds out of pip's configuration: pip prefers torch X.Y.Z+cpu to X.Y.Z
  - LADDER_TORCH=FOLDER uses a CUDA build of libtorch that is already on this machine"""
TAKES_CUDA_BUILD = """\
pip would fetch a build for GPUs: {}, but not the two CUDA libraries that its CPU half would need.
Nothing was downloaded. This set-up needs a CPU build; choose one of:
  - give pip an index that has CPU builds (PIP_EXTRA_INDEX_URL, or extra-index-url in pip's configuration);
    pip prefers torch X.Y.Z+cpu to X.Y.Z
  - LADDER_TORCH=FOLDER uses a libtorch that is already on this machine"""


def is_cuda(package):
    """A CUDA library, a package that only a CUDA build needs, or such a build of torch itself."""
    return bool(
        CUDA_PACKAGE.match(package["name"].lower()) or CUDA_BUILD.search(package["version"])
    )


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
    if is_cuda_build == wants_cuda:
        return packages, fetching(torch, packages, "", "5 GB" if wants_cuda else "1 GB")
    if is_cuda_build and len(half) == 3:
        return half, fetching(
            torch, half, ", the CPU half of a CUDA build (pip found no CPU build)", "1.3 GB"
        )
    found = f"torch {torch['version']}, {len(packages)} package(s) in all: {size_text(packages)}"
    return [], (TAKES_CPU_BUILD if wants_cuda else TAKES_CUDA_BUILD).format(found)


def fetching(torch, packages, what, on_disk):
    local = [package for package in packages if package["is_local"]]
    where = f", {size_text(local)} of it from this machine" if local else ""
    return f"fetching torch {torch['version']}{what}: {len(packages)} package(s), {size_text(packages)}{where}; {on_disk} on disk"


def num_bytes_at(url):
    """Size of the file, or None if the server does not say."""
    parts = urllib.parse.urlsplit(url)
    try:
        if parts.scheme == "file":
            return Path(urllib.request.url2pathname(parts.path)).stat().st_size
        context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT"))
        with urllib.request.urlopen(
            urllib.request.Request(url, method="HEAD"), timeout=20, context=context
        ) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, ValueError, TypeError):
        return None


def read_packages(report, size_of=num_bytes_at):
    """A dict for each package that pip would install."""
    urls = [item["download_info"]["url"] for item in report["install"]]
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(size_of, urls))
    return [
        {
            **{key: item["metadata"][key] for key in ("name", "version")},
            "num_bytes": size,
            "is_local": url.startswith("file:"),
        }
        for item, url, size in zip(report["install"], urls, sizes)
    ]


def requirements(packages):
    return [f"{package['name']}=={package['version']}" for package in packages]
