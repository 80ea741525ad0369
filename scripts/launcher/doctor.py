"""./ladder doctor: shows what is installed and what is missing, a line each, and how to get it. Changes nothing."""

import contextlib
import os
import re
import shutil
from pathlib import Path

from launcher.build import available_gb, is_built, num_cores, num_jobs
from launcher.checkout import CUDA, ROOT, Kind, chosen_kind, shown
from launcher.console import Parser
from launcher.libtorch import (
    CPU_BUILD_ADVICE, CUDA_MAJOR, NVCC_ADVICE, find_nvcc, fits, has_venv, is_cpu_half, nvcc_version, own_torch, torch_in, wanted_torch,
)  # fmt: skip
from launcher.packages import BUILD_PACKAGES, TEST_PACKAGES, missing_packages
from launcher.processes import output_of

# Name, command, least version, and the package that has it.
PROGRAMS = [
    ("compiler", os.environ.get("CXX", "g++"), "11.0", "g++"),
    ("cmake", "cmake", "3.25", "cmake"),
    ("ninja", "ninja", "1.10", "ninja-build"),
    ("python", "python3", "3.10", "python3 and python3-venv"),
    ("mpirun", "mpirun", "4.0", "openmpi-bin and libopenmpi-dev"),
]
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


class Report:
    """What was found, line by line."""

    def __init__(self):
        self.num_missing = 0

    def here(self, name: str, text: str) -> None:
        print(f"  ok       {name:14} {text}")

    def note(self, name: str, text: str) -> None:
        print(f"  note     {name:14} {text}")

    def missing(self, name: str, text: str) -> None:
        print(f"  MISSING  {name:14} {text}")
        self.num_missing += 1


def run(words: list[str]) -> int:
    Parser("doctor", "Shows what is installed, what is missing, and how to get it. Changes nothing.").parse_args(words)
    kind, report = chosen_kind(), Report()
    print(f"Ladder in {ROOT}:")
    for program in PROGRAMS:
        check_program(report, *program)
    check_packages(report)
    check_torch(report, kind)
    check_build(report, kind)
    check_debugger(report)
    check_instructions(report)
    check_products(report, kind)
    check_machine(report, kind)
    check_cuda(report, kind)
    check_gpu(report)
    if report.num_missing:
        print(f"{report.num_missing} missing. ./ladder setup installs what it can.")
        return 1
    print("Nothing is missing.")
    return 0


def version_of(command: str) -> str:
    found = re.search(r"\d+\.\d+(\.\d+)?", output_of([command, "--version"]))
    return found[0] if found else "0"


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def check_program(report: Report, name: str, command: str, least: str, package: str) -> None:
    path = shutil.which(command)
    if not path:
        report.missing(name, f"not found; install {package}")
    elif numbers(version := version_of(command)) >= numbers(least):
        report.here(name, f"{version} ({path})")
    else:
        report.missing(name, f"{version} is too old, {least} is needed; install a newer {package}")


def check_packages(report: Report) -> None:
    if not shutil.which("dpkg-query"):
        report.note("packages", f"no dpkg here: CMake will report what is missing. Debian's names: {' '.join(BUILD_PACKAGES)}")
        return
    for name, packages, what, only in (
        ("packages", BUILD_PACKAGES, "everything that the build needs", ""),
        ("test packages", TEST_PACKAGES, "everything else that ./ladder test needs", "only for ./ladder test: "),
    ):
        if missing := missing_packages(packages):
            report.missing(name, f"{only}apt-get install {' '.join(missing)}")
        else:
            report.here(name, what)


def check_torch(report: Report, kind: Kind) -> None:
    torch, ours = own_torch(), f"{wanted_torch(kind)} in {shown(kind.venv)}"
    if torch and Path(torch, "lib/libtorch_cpu.so").exists():
        report.here("libtorch", f"yours: {torch}")
    elif torch:
        report.missing("libtorch", f"'{torch}' has no lib/libtorch_cpu.so; correct LADDER_TORCH or Torch_DIR, or unset them")
    elif not has_venv(kind):
        size = "5 GB" if kind.is_cuda else "1 to 1.3 GB"
        report.missing("libtorch", f"none in {shown(kind.venv)}; ./ladder setup installs it ({size} on disk), LADDER_TORCH=FOLDER "
                       "uses another")  # fmt: skip
    elif is_cpu_half(kind):
        report.here("libtorch", f"{ours}, the CPU half of a CUDA build: all that the trainers need")
        report.note("Python's torch", f"cannot be imported, so there are no benchmarks against Python, and no torchrun; {CPU_BUILD_ADVICE}")
    else:
        report.here("libtorch", ours)


def check_build(report: Report, kind: Kind) -> None:
    build = shown(kind.build)
    if not (kind.build / "build.ninja").is_file():
        report.missing("build", f"{build} is not configured; ./ladder setup configures it")
    elif not is_built(kind.preset):
        report.missing("build", f"{build} is not up to date; ./ladder setup builds it")
    else:
        report.here("build", f"{build} is up to date")


def check_debugger(report: Report) -> None:
    if debugger := shutil.which("gdb") or shutil.which("lldb"):
        report.here("debugger", f"{version_of(debugger)} ({debugger}), for ./ladder debug")
    else:
        report.note("debugger", "none; only ./ladder debug needs one: install gdb or lldb")


def check_instructions(report: Report) -> None:
    """What multiplies 16-bit numbers."""
    flags = re.search(r"^(?:flags|Features)\s*:(.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    found = [name for name in INSTRUCTIONS if flags and name in flags[1].split()]
    if {"avx512_bf16", "amx_bf16"} & set(found):
        report.here("instructions", f"{', '.join(found)}: --precision bf16 is faster than fp32")
    else:
        known = ", ".join(found) or "none that we know"
        report.note("instructions", f"{known}; none for bf16: --precision bf16 saves memory, but not time")


def check_products(report: Report, kind: Kind) -> None:
    python = kind.venv / "bin/python"
    if not python.exists():
        return
    if is_cpu_half(kind):
        report.note("products", "not checked: Python cannot import this libtorch")
        return
    sums = output_of([python, "-c", CHECK_PRODUCTS])
    if sums == "right":
        report.here("products", "sums of 512 ones are 512 in fp32, bf16 and fp16")
    else:
        report.missing("products", f"sums of 512 ones are not 512: {sums or 'torch cannot be imported'}; this libtorch cannot train "
                       "in that format here")  # fmt: skip


def check_machine(report: Report, kind: Kind) -> None:
    needed_gb, free_gb = 12 if kind.is_cuda else 6, int(shutil.disk_usage(ROOT).free / 1e9)
    report.note("machine", f"{num_cores()} cores, {int(available_gb())} GB of memory available: {num_jobs()} compiler(s) at a time "
                "(LADDER_JOBS=N changes it)")  # fmt: skip
    if free_gb >= needed_gb or kind.build.is_dir():
        report.here("disk", f"{free_gb} GB free")
    else:
        report.missing("disk", f"{free_gb} GB free, about {needed_gb} are needed for libtorch and all builds")


# ---- CUDA -------------------------------------------------------------------------------------------------------------


def check_cuda(report: Report, kind: Kind) -> None:
    """What a CUDA build needs. It is missing only where there is such a build, or LADDER_CUDA=ON asks for one."""
    lacks = report.missing if kind.is_cuda or CUDA.venv.exists() else report.note
    version = nvcc_version()
    if fits(version):
        report.here("nvcc", f"{version} ({find_nvcc()})")
    elif version:
        lacks("nvcc", f"{version} ({find_nvcc()}), {CUDA_MAJOR} is needed; {NVCC_ADVICE}")
    else:
        lacks("nvcc", f"none; only ./ladder setup --cuda needs it: {NVCC_ADVICE}")
    torch = Path(own_torch()) if own_torch() else torch_in(CUDA.venv)
    if torch and (torch / "lib/libtorch_cuda.so").exists():
        report.here("CUDA libtorch", shown(torch))
        check_nvrtc(report, lacks, torch)
    else:
        lacks("CUDA libtorch", f"none in {torch or shown(CUDA.venv)}; ./ladder setup --cuda installs one (5 GB on disk)")
    check_nccl(report, lacks, torch)


def check_nvrtc(report: Report, lacks, torch: Path) -> None:
    """cuDNN opens it in the folder of libcudart."""
    library = re.search(r"=> (/.*)/libcudart\.so", output_of(["ldd", torch / "lib/libtorch_cuda.so"]))
    folder = Path(library[1]) if library else None
    if folder and any(folder.glob("libnvrtc.so.*")) and any(folder.glob("libnvrtc-builtins.so.*")):
        report.here("NVRTC", shown(folder.resolve()))
    else:
        lacks("NVRTC", f"no libnvrtc, or no libnvrtc-builtins, in {folder or 'the folder of libcudart'}: cuDNN needs them with "
              f"--deterministic false; remove {shown(CUDA.venv)} and run ./ladder setup --cuda, or install nvidia-cuda-nvrtc")  # fmt: skip


def check_nccl(report: Report, lacks, torch: Path | None) -> None:
    folders = [os.environ.get("NCCL_ROOT") or (torch and torch.parent / "nvidia/nccl"), "/usr"]
    for header in [Path(folder, "include/nccl.h") for folder in folders if folder]:
        with contextlib.suppress(OSError):
            version = re.findall(r"^#define NCCL_(?:MAJOR|MINOR|PATCH) +(\d+)", header.read_text(), re.MULTILINE)
            report.here("NCCL", f"{'.'.join(version)} ({shown(header)})")
            return
    lacks("NCCL", "none; it comes with the libtorch of ./ladder setup --cuda, NCCL_ROOT=FOLDER names another")


def check_gpu(report: Report) -> None:
    """The driver belongs to the machine. Without it CUDA programs are built all the same, and say so when they start."""
    gpus = output_of(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]).splitlines()
    if gpus:
        name, _, driver = gpus[0].rpartition(", ")
        report.note("GPU", f"{len(gpus)} x {name}, driver {driver}")
    else:
        report.note("GPU", "none, or no driver (nvidia-smi shows none); the steps train on the CPU")
