"""transformers, in an environment of its own that sees the torch of .ladder/venv: what our models are compared with."""

import os
import shutil

from launcher.checkout import CPU, ROOT
from launcher.console import say
from launcher.libtorch import has_venv, is_cpu_half, own_torch, rename_in_scripts, torch_in
from launcher.logs import Log

VENV = ROOT / ".ladder/venv-huggingface"
REQUIREMENTS = ROOT / "scripts/requirements-huggingface.txt"


def why_not() -> str:
    """Why Python has no torch that transformers could use; nothing if it has."""
    if own_torch() and not has_venv(CPU):
        return "it needs the torch of .ladder/venv, and LADDER_TORCH names another libtorch"
    return "Python cannot import the CPU half of a CUDA build of torch" if is_cpu_half(CPU) else ""


def need_huggingface() -> None:
    """Made under another name and renamed once it is complete, as .ladder/venv is."""
    stamp = VENV / "requirements.txt"
    if stamp.is_file() and stamp.read_bytes() == REQUIREMENTS.read_bytes():
        return
    say("installing transformers into .ladder/venv-huggingface")
    new, log = VENV.with_name(VENV.name + ".partial"), Log("venv-huggingface")
    shutil.rmtree(new, ignore_errors=True)
    log.run(["python3", "-m", "venv", new])
    packages, packages_of_torch = next(new.glob("lib/python3*/site-packages")), torch_in(CPU.venv).parent
    (packages / "torch.pth").write_text(f"{os.path.relpath(packages_of_torch, packages)}\n")
    log.run([new / "bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off", "-r", REQUIREMENTS])
    log.run([new / "bin/python", "-c", "import torch, transformers"])
    rename_in_scripts(new, VENV.name)
    shutil.copy(REQUIREMENTS, new / "requirements.txt")
    shutil.rmtree(VENV, ignore_errors=True)
    new.rename(VENV)
