"""libtorch: the user's own, or the package torch in a virtual environment of ours. And nvcc, which a CUDA build needs."""

import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from launcher.checkout import Kind
from launcher.console import fail, say
from launcher.logs import Log
from launcher.processes import output_of
from launcher.torch_plan import judge, read_packages, requirements

CUDA_MAJOR = 13  # of the libtorch in requirements-cuda.txt
NVCC_ADVICE = (
    f"install NVIDIA's CUDA toolkit {CUDA_MAJOR}.0 (cuda-toolkit-{CUDA_MAJOR}-0 in NVIDIA's packages for Debian and "
    "Ubuntu), or name an installed nvcc with CUDACXX=FILE"
)
CPU_BUILD_ADVICE = (
    "for a CPU build, give pip an index that has one (PIP_EXTRA_INDEX_URL, or extra-index-url in pip's configuration), "
    "remove .ladder/venv and run ./ladder setup"
)
PIP_OPTIONS = ["--disable-pip-version-check", "--progress-bar", "off"]
LOADS = "import ctypes, sys; ctypes.CDLL(sys.argv[1])"


# ---- what is there ----------------------------------------------------------------------------------------------------


def own_torch() -> str:
    """The user's: LADDER_TORCH, Torch_DIR, or one inside CMAKE_PREFIX_PATH. Empty if there is none."""
    if torch := os.environ.get("LADDER_TORCH"):
        return os.path.realpath(torch)
    if config := os.environ.get("Torch_DIR"):
        return f"{config}/../../.."
    prefixes = filter(None, re.split("[:;]", os.environ.get("CMAKE_PREFIX_PATH", "")))
    folders = [folder for prefix in prefixes for folder in (prefix, f"{prefix}/../..")]
    return next((folder for folder in folders if Path(folder, "lib/libtorch_cpu.so").exists()), "")


def torch_in(venv: Path) -> Path | None:
    return next(venv.glob("lib/python3*/site-packages/torch"), None)


def has_venv(kind: Kind) -> bool:
    """Whether it is complete and as the requirements are now."""
    stamp = kind.venv / "requirements.txt"
    return stamp.is_file() and stamp.read_bytes() == kind.requirements.read_bytes()


def wanted_torch(kind: Kind) -> str:
    return re.search(r"^torch==.*", kind.requirements.read_text(), re.MULTILINE)[0]


def is_cpu_half(kind: Kind, venv: Path | None = None) -> bool:
    """Whether the environment holds the CPU half of a CUDA build (torch_plan.py), which Python cannot import."""
    torch = torch_in(venv or kind.venv)
    return not kind.is_cuda and torch is not None and (torch / "lib/libtorch_cuda.so").exists()


def python(kind: Kind) -> str:
    """With torch, if that is set up."""
    return str(kind.venv / "bin/python") if has_venv(kind) else "python3"


def find_nvcc() -> str:
    """The path of CUDA's compiler; empty if there is none."""
    if named := os.environ.get("CUDACXX"):
        return shutil.which(named) or ""
    return shutil.which("nvcc") or shutil.which(os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/nvcc") or ""


def nvcc_version() -> str:
    """Such as 13.0.88; empty if it does not run."""
    said = output_of([find_nvcc(), "--version"]) if find_nvcc() else ""
    found = re.search(r" V([0-9.]+)$", said, re.MULTILINE)
    return found[1] if found else ""


def fits(version: str) -> bool:
    """Whether nvcc of this version builds with the libtorch in use. CMake compares it with one's own libtorch."""
    return bool(version) and (bool(own_torch()) or version.split(".")[0] == str(CUDA_MAJOR))


def need_nvcc() -> None:
    """It comes with the toolkit, which we do not install: it belongs to the system, as the driver does."""
    if not find_nvcc():
        fail(f"found no nvcc, CUDA's compiler (CUDACXX is '{os.environ.get('CUDACXX', '')}'): {NVCC_ADVICE}")
    version = nvcc_version()
    if not own_torch() and not fits(version):
        fail(f"nvcc is {version or 'of unknown version'} ({find_nvcc()}), and setup installs libtorch for CUDA {CUDA_MAJOR}: "
             f"{NVCC_ADVICE}, or a libtorch for your CUDA with LADDER_TORCH=FOLDER")  # fmt: skip


# ---- setting it up ----------------------------------------------------------------------------------------------------


def need_torch(kind: Kind) -> None:
    """The environment is made under another name and renamed once it is complete, so the remains of an interrupted set-up
    are never mistaken for it. No other environment is touched."""
    if own_torch() or has_venv(kind):
        return
    say(f"asking pip what {wanted_torch(kind)} needs")
    new = kind.venv.with_name(kind.venv.name + ".partial")
    shutil.rmtree(new, ignore_errors=True)
    log = Log("venv")
    make_plan(log, kind, new)
    choose_packages(kind, new)
    log.run([new / "bin/python", "-m", "pip", "install", *PIP_OPTIONS, "--no-deps", "-r", new / "packages.txt"])
    check_torch_loads(log, kind, new)
    for file in texts_that_name(new):
        file.write_text(file.read_text().replace(new.name, kind.venv.name))
    shutil.copy(kind.requirements, new / "requirements.txt")
    shutil.rmtree(kind.venv, ignore_errors=True)
    new.rename(kind.venv)


def make_plan(log: Log, kind: Kind, new: Path) -> None:
    """Only pip 25.3 and later can plan without downloading; without a network, the installed one can still install files."""
    log.run(["python3", "-m", "venv", new])
    install = [new / "bin/python", "-m", "pip", "install", *PIP_OPTIONS]
    log.run([*install, "--upgrade", "pip>=25.3"], may_fail=True)
    log.run([*install, "--dry-run", "--ignore-installed", "--use-feature=fast-deps", "--report", new / "plan.json", "-r",
             kind.requirements])  # fmt: skip


def choose_packages(kind: Kind, new: Path) -> None:
    packages, text = judge(read_packages(json.loads((new / "plan.json").read_text())), kind.is_cuda)
    if not packages:
        fail(text)
    say(text)
    (new / "packages.txt").write_text("".join(f"{line}\n" for line in requirements(packages)))


def check_torch_loads(log: Log, kind: Kind, venv: Path) -> None:
    if is_cpu_half(kind, venv):
        (venv / "bin/torchrun").unlink(missing_ok=True)  # it could only say that it cannot import torch
        log.run([venv / "bin/python", "-c", LOADS, torch_in(venv) / "lib/libtorch_cpu.so"])
    else:
        log.run([venv / "bin/python", "-c", "import torch"])


def texts_that_name(venv: Path) -> Iterator[Path]:
    """The environment's scripts name its folder."""
    for file in [*(venv / "bin").iterdir(), venv / "pyvenv.cfg"]:
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            if venv.name.encode() in content and b"\0" not in content:
                yield file


