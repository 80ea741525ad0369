"""Python packages that only tests need, in environments of their own: .ladder/venv-NAME."""

import os
import shutil
from pathlib import Path

from launcher.checkout import CPU, ROOT
from launcher.console import say
from launcher.libtorch import has_venv, is_cpu_half, own_torch, put_in_place, torch_in
from launcher.logs import Log


def why_no_torch() -> str:
    """Why Python has no torch that transformers could use; nothing if it has."""
    if own_torch() and not has_venv(CPU):
        return "it needs the torch of .ladder/venv, and LADDER_TORCH names another libtorch"
    return "Python cannot import the CPU half of a CUDA build of torch" if is_cpu_half(CPU) else ""


def need_environment(name: str, sees_torch: bool = False) -> Path:
    """That of scripts/requirements-NAME.txt. Made under another name and renamed once it is complete, as .ladder/venv is."""
    venv, requirements = ROOT / f".ladder/venv-{name}", ROOT / f"scripts/requirements-{name}.txt"
    stamp = venv / "requirements.txt"
    if stamp.is_file() and stamp.read_bytes() == requirements.read_bytes():
        return venv
    say(f"installing {requirements.name} into .ladder/{venv.name}")
    new, log = venv.with_name(venv.name + ".partial"), Log(venv.name)
    shutil.rmtree(new, ignore_errors=True)
    log.run(["python3", "-m", "venv", new])
    if sees_torch:
        packages, packages_of_torch = next(new.glob("lib/python3*/site-packages")), torch_in(CPU.venv).parent
        (packages / "torch.pth").write_text(f"{os.path.relpath(packages_of_torch, packages)}\n")
    log.run([new / "bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-r", requirements])
    put_in_place(new, venv, requirements)
    return venv
