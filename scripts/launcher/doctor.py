"""./ladder doctor: shows what is installed and what is missing, a line each, and how to get it.
Changes nothing.

Each check yields lines: whether it is there, its name, and what there is to say.
"""

import os
import re
import shutil
from pathlib import Path

from launcher import libtorch
from launcher.build import available_gb, is_built, num_cores, num_jobs
from launcher.checkout import CUDA, ROOT, chosen_kind, not_ours, owner_of, shown, why_not_built
from launcher.console import Parser, fail
from launcher.libtorch import CPU_BUILD_ADVICE, CUDA_MAJOR, NVCC_ADVICE, own_torch
from launcher.packages import BUILD_PACKAGES, TEST_PACKAGES, missing_packages
from launcher.processes import output_of

OK, NOTE, MISSING = "ok", "note", "MISSING"
INSTRUCTIONS = "avx2 avx512f avx512_bf16 avx512_fp16 amx_bf16 amx_fp16 bf16 asimd".split()
# Added up in bf16, sums of 512 ones would end at 256.
CHECK_PRODUCTS = """
import torch
wrong = []
for dtype in (torch.float32, torch.bfloat16, torch.float16):
    for rows, columns in ((1, 1), (3, 33), (64, 64)):
        product = torch.ones(rows, 512, dtype=dtype) @ torch.ones(512, columns, dtype=dtype)
        if not bool((product == 512).all()):
            wrong.append(f"{rows}x512 times 512x{columns} in {dtype} is {product.min().item()} to {product.max().item()}")
print("; ".join(wrong) or "right")
"""


def run(words):
    Parser(
        "doctor", "Shows what is installed, what is missing, and how to get it. Changes nothing."
    ).parse_args(words)
    print(f"Ladder in {ROOT}:")
    num_missing = 0
    try:
        for word, name, text in checks(chosen_kind()):
            print(f"  {word:8} {name:14} {text}", flush=True)
            num_missing += word == MISSING
    except PermissionError as error:
        fail(
            f"{error.filename} may not be read by you: ask {owner_of(ROOT)}, who owns this checkout, for chmod -R a+rX"
        )
    print(
        f"{num_missing} missing. ./ladder setup installs what it can."
        if num_missing
        else "Nothing is missing."
    )
    return 1 if num_missing else 0


def checks(kind):
    if theirs := not_ours(kind):
        yield (
            NOTE,
            "checkout",
            f"train, plan, compare and report use what is built; {why_not_built(theirs)}",
        )
    yield from programs()
    yield from torch(kind)
    yield from machine(kind)
    yield from cuda(MISSING if kind.is_cuda or CUDA.venv.exists() else NOTE)


def version_of(command):
    found = re.search(r"\d+\.\d+(\.\d+)?", output_of([command, "--version"]))
    return found[0] if found else "0"


def programs():
    for name, command, least, package in (
        ("compiler", os.environ.get("CXX", "g++"), "11.0", "g++"),
        ("cmake", "cmake", "3.25", "cmake"),
        ("ninja", "ninja", "1.10", "ninja-build"),
        ("python", "python3", "3.10", "python3 and python3-venv"),
        ("mpirun", "mpirun", "4.0", "openmpi-bin and libopenmpi-dev"),
    ):
        path, version = shutil.which(command), version_of(command)
        if not path:
            yield MISSING, name, f"not found; install {package}"
        elif [int(part) for part in version.split(".")] < [int(part) for part in least.split(".")]:
            yield (
                MISSING,
                name,
                f"{version} is too old, {least} is needed; install a newer {package}",
            )
        else:
            yield OK, name, f"{version} ({path})"
    for name, wanted, what, only in (
        ("packages", BUILD_PACKAGES, "everything that the build needs", ""),
        (
            "test packages",
            TEST_PACKAGES,
            "everything else that ./ladder test needs",
            "only for ./ladder test: ",
        ),
    ):
        if not shutil.which("dpkg-query"):
            yield (
                NOTE,
                name,
                f"no dpkg here: CMake will report what is missing. Debian's names: {' '.join(wanted)}",
            )
        elif missing := missing_packages(wanted):
            yield MISSING, name, f"{only}apt-get install {' '.join(missing)}"
        else:
            yield OK, name, what


def torch(kind):
    """What is known of torch, of the build, which needs it, and of what it computes."""
    own, where = own_torch(), shown(kind.venv)
    ours = f"{libtorch.wanted_torch(kind)} in {where}"
    if own and Path(own, "lib/libtorch_cpu.so").exists():
        yield OK, "libtorch", f"yours: {own}"
    elif own:
        yield (
            MISSING,
            "libtorch",
            f"'{own}' has no lib/libtorch_cpu.so; correct LADDER_TORCH or Torch_DIR, or unset them",
        )
    elif not libtorch.has_venv(kind):
        size = "5 GB" if kind.is_cuda else "1 to 1.3 GB"
        yield (
            MISSING,
            "libtorch",
            f"none in {where}; ./ladder setup installs it ({size} on disk), LADDER_TORCH=FOLDER uses another",
        )
    elif libtorch.is_cpu_half(kind):
        yield OK, "libtorch", f"{ours}, the CPU half of a CUDA build: all that the trainers need"
        yield (
            NOTE,
            "Python's torch",
            f"cannot be imported, so there are no benchmarks against Python, and no torchrun; {CPU_BUILD_ADVICE}",
        )
    else:
        yield OK, "libtorch", ours
    if not (kind.build / "build.ninja").is_file():
        yield (
            MISSING,
            "build",
            f"{shown(kind.build)} is not configured; ./ladder setup configures it",
        )
    elif not is_built(kind.preset):
        yield (
            NOTE if not_ours(kind) else MISSING,
            "build",
            f"{shown(kind.build)} is not up to date; ./ladder setup builds it",
        )
    else:
        yield OK, "build", f"{shown(kind.build)} is up to date"


def machine(kind):
    if path := shutil.which("gdb") or shutil.which("lldb"):
        yield OK, "debugger", f"{version_of(path)} ({path}), for ./ladder debug"
    else:
        yield NOTE, "debugger", "none; only ./ladder debug needs one: install gdb or lldb"
    flags = re.search(
        r"^(?:flags|Features)\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE
    )
    found = [
        name for name in INSTRUCTIONS if flags and name in flags[1].split()
    ]  # what multiplies 16-bit numbers
    if {"avx512_bf16", "amx_bf16"} & set(found):
        yield OK, "instructions", f"{', '.join(found)}: --precision bf16 is faster than fp32"
    else:
        known = ", ".join(found) or "none that we know"
        yield (
            NOTE,
            "instructions",
            f"{known}; none for bf16: --precision bf16 saves memory, but not time",
        )
    if libtorch.is_cpu_half(kind):
        yield NOTE, "products", "not checked: Python cannot import this libtorch"
    elif os.access(python := kind.venv / "bin/python", os.X_OK):
        sums = output_of([python, "-c", CHECK_PRODUCTS]) or "torch cannot be imported"
        if sums == "right":
            yield OK, "products", "sums of 512 ones are 512 in fp32, bf16 and fp16"
        else:
            yield (
                MISSING,
                "products",
                f"sums of 512 ones are not 512: {sums}; this libtorch cannot train in that format here",
            )
    yield (
        NOTE,
        "machine",
        (
            f"{num_cores()} cores, {int(available_gb())} GB of memory available: {num_jobs()} compiler(s) at a "
            "time (LADDER_JOBS=N changes it)"
        ),
    )
    needed_gb, free_gb = 12 if kind.is_cuda else 6, int(shutil.disk_usage(ROOT).free / 1e9)
    if free_gb >= needed_gb or kind.build.is_dir():
        yield OK, "disk", f"{free_gb} GB free"
    else:
        yield (
            MISSING,
            "disk",
            f"{free_gb} GB free, about {needed_gb} are needed for libtorch and all builds",
        )


def cuda(lacks):
    """What a CUDA build needs. It is missing only where there is such a build, or LADDER_CUDA=ON
    asks for one."""
    nvcc = f"{libtorch.nvcc_version()} ({libtorch.find_nvcc()})"
    if libtorch.fits(libtorch.nvcc_version()):
        yield OK, "nvcc", nvcc
    elif libtorch.nvcc_version():
        yield lacks, "nvcc", f"{nvcc}, {CUDA_MAJOR} is needed; {NVCC_ADVICE}"
    else:
        yield lacks, "nvcc", f"none; only ./ladder setup --cuda needs it: {NVCC_ADVICE}"
    folder = Path(own_torch()) if own_torch() else libtorch.torch_in(CUDA.venv) or CUDA.venv
    if (library := folder / "lib/libtorch_cuda.so").exists():
        yield OK, "CUDA libtorch", shown(folder)
        yield nvrtc(lacks, library)
    else:
        yield (
            lacks,
            "CUDA libtorch",
            f"none in {shown(folder)}; ./ladder setup --cuda installs one (5 GB on disk)",
        )
    yield nccl(lacks, folder.parent)
    # The driver belongs to the machine. Without it CUDA programs are built all the same, and say so
    # when they start.
    if gpus := output_of(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    ).splitlines():
        name, _, driver = gpus[0].rpartition(", ")
        yield NOTE, "GPU", f"{len(gpus)} x {name}, driver {driver}"
    else:
        yield NOTE, "GPU", "none, or no driver (nvidia-smi shows none); the steps train on the CPU"


def nvrtc(lacks, library):
    """cuDNN opens it in the folder of libcudart."""
    found = re.search(r"=> (/.*)/libcudart\.so", output_of(["ldd", library]))
    folder = Path(found[1]).resolve() if found else None
    if folder and any(folder.glob("libnvrtc.so.*")) and any(folder.glob("libnvrtc-builtins.so.*")):
        return OK, "NVRTC", shown(folder)
    return (
        lacks,
        "NVRTC",
        (
            f"no libnvrtc, or no libnvrtc-builtins, in {folder or 'the folder of libcudart'}: cuDNN needs them with "
            f"--deterministic false; remove {shown(CUDA.venv)} and run ./ladder setup --cuda, or install "
            "nvidia-cuda-nvrtc"
        ),
    )


def nccl(lacks, site_packages):
    folders = [Path(os.environ.get("NCCL_ROOT") or site_packages / "nvidia/nccl"), Path("/usr")]
    for header in [folder / "include/nccl.h" for folder in folders]:
        if header.is_file():
            version = re.findall(
                r"^#define NCCL_(?:MAJOR|MINOR|PATCH) +(\d+)", header.read_text(), re.MULTILINE
            )
            return OK, "NCCL", f"{'.'.join(version)} ({shown(header)})"
    return (
        lacks,
        "NCCL",
        "none; it comes with the libtorch of ./ladder setup --cuda, NCCL_ROOT=FOLDER names another",
    )
