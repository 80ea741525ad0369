"""libtorch: the user's own, or the package torch in a virtual environment of ours. And nvcc, which
a CUDA build needs."""

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from launcher.checkout import CPU, ROOT, Kind
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
    """Whether the environment holds the CPU half of a CUDA build (torch_plan.py), which Python
    cannot import."""
    torch = torch_in(venv or kind.venv)
    return not kind.is_cuda and torch is not None and (torch / "lib/libtorch_cuda.so").exists()


def python(kind: Kind) -> str:
    """A Python with torch, if that is set up."""
    return str(kind.venv / "bin/python") if has_venv(kind) else "python3"


def find_nvcc() -> str:
    """The path of CUDA's compiler; empty if there is none."""
    if named := os.environ.get("CUDACXX"):
        return shutil.which(named) or ""
    return (
        shutil.which("nvcc")
        or shutil.which(os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/nvcc")
        or ""
    )


def nvcc_version() -> str:
    """Such as 13.0.88; empty if it does not run."""
    said = output_of([find_nvcc(), "--version"]) if find_nvcc() else ""
    found = re.search(r" V([0-9.]+)$", said, re.MULTILINE)
    return found[1] if found else ""


def fits(version: str) -> bool:
    """Whether nvcc of this version builds with the libtorch in use. CMake compares it with one's
    own libtorch."""
    return bool(version) and (bool(own_torch()) or version.split(".")[0] == str(CUDA_MAJOR))


def need_nvcc() -> None:
    """It comes with the toolkit, which we do not install: it belongs to the system, as the driver
    does."""
    if not find_nvcc():
        fail(
            f"found no nvcc, CUDA's compiler (CUDACXX is '{os.environ.get('CUDACXX', '')}'): {NVCC_ADVICE}"
        )
    version = nvcc_version()
    if not own_torch() and not fits(version):
        fail(
            f"nvcc is {version or 'of unknown version'} ({find_nvcc()}), and setup installs libtorch for CUDA {CUDA_MAJOR}: "
            f"{NVCC_ADVICE}, or a libtorch for your CUDA with LADDER_TORCH=FOLDER"
        )


# ---- setting it up ----------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def new_venv(venv: Path, requirements: Path, log: Log) -> Iterator[tuple[Path, list]]:
    """The folder of an environment that the block completes, and the command of its pip. It takes
    its name, which is in its scripts, and the place of an older one at the end of the block, so the
    remains of an interrupted set-up are never mistaken for it. No other environment is touched."""
    new = venv.with_name(venv.name + ".partial")
    shutil.rmtree(new, ignore_errors=True)
    log.run(["python3", "-m", "venv", new])
    yield (
        new,
        [
            new / "bin/python",
            "-m",
            "pip",
            "install",
            "--disable-pip-version-check",
            "--progress-bar",
            "off",
        ],
    )
    for file in [*(new / "bin").iterdir(), new / "pyvenv.cfg"]:
        content = b"" if file.is_symlink() or not file.is_file() else file.read_bytes()
        if new.name.encode() in content and b"\0" not in content:
            file.write_bytes(content.replace(new.name.encode(), venv.name.encode()))
    shutil.copy(requirements, new / "requirements.txt")
    shutil.rmtree(venv, ignore_errors=True)
    new.rename(venv)


def need_torch(kind: Kind) -> None:
    if own_torch() or has_venv(kind):
        return
    say(f"asking pip what {wanted_torch(kind)} needs")
    log = Log("venv")
    with new_venv(kind.venv, kind.requirements, log) as (new, pip_install):
        # Only pip 25.3 and later can plan without downloading; without a network, the installed one
        # can still install files.
        log.run([*pip_install, "--upgrade", "pip>=25.3"], may_fail=True)
        fast, plan = (
            ["--dry-run", "--ignore-installed", "--use-feature=fast-deps", "--report"],
            new / "plan.json",
        )
        log.run([*pip_install, *fast, plan, "-r", kind.requirements])
        packages, text = judge(read_packages(json.loads(plan.read_text())), kind.is_cuda)
        if not packages:
            fail(text)
        say(text)
        (new / "packages.txt").write_text("\n".join(requirements(packages)) + "\n")
        log.run([*pip_install, "--no-deps", "-r", new / "packages.txt"])
        log.run([new / "bin/python", "-c", *loads_torch(kind, new)])


def loads_torch(kind, venv):
    if not is_cpu_half(kind, venv):
        return ["import torch"]
    (venv / "bin/torchrun").unlink(missing_ok=True)  # it could only say that it cannot import torch
    return ["import ctypes, sys; ctypes.CDLL(sys.argv[1])", torch_in(venv) / "lib/libtorch_cpu.so"]


# ---- Python packages that only tests need, in environments of their own: .ladder/venv-NAME -----------------------------


def why_no_torch() -> str:
    """Why Python has no torch that transformers could use; nothing if it has."""
    if own_torch() and not has_venv(CPU):
        return "it needs the torch of .ladder/venv, and LADDER_TORCH names another libtorch"
    return "Python cannot import the CPU half of a CUDA build of torch" if is_cpu_half(CPU) else ""


def need_environment(name: str, sees_torch: bool = False) -> Path:
    """Makes the environment of scripts/requirements-NAME.txt."""
    venv, wanted = ROOT / f".ladder/venv-{name}", ROOT / f"scripts/requirements-{name}.txt"
    stamp = venv / "requirements.txt"
    if stamp.is_file() and stamp.read_bytes() == wanted.read_bytes():
        return venv
    say(f"installing {wanted.name} into .ladder/{venv.name}")
    log = Log(venv.name)
    with new_venv(venv, wanted, log) as (new, pip_install):
        if sees_torch:
            packages, packages_of_torch = (
                next(new.glob("lib/python3*/site-packages")),
                torch_in(CPU.venv).parent,
            )
            (packages / "torch.pth").write_text(f"{os.path.relpath(packages_of_torch, packages)}\n")
        log.run([*pip_install, "-r", wanted])
    return venv
