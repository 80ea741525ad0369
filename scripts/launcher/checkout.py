"""Where things are in this checkout, and which of the two set-ups is in use: the CPU's or CUDA's."""

import json
import os
from dataclasses import dataclass
from pathlib import Path

from launcher.console import fail, say, usage_error

ROOT = Path(__file__).resolve().parent.parent.parent
LOGS = ROOT / ".ladder/logs"
EXERCISES = Path(os.environ.get("LADDER_EXERCISES") or ROOT / "exercises")


@dataclass(frozen=True)
class Kind:
    """A kind of set-up. Neither touches the other."""

    is_cuda: bool
    preset: str  # and its folder under build/
    suffix: str  # of the names of other folders under build/
    venv: Path
    requirements: Path
    own: tuple[
        str, ...
    ] = ()  # exercises whose solutions are replaced by other files: the learner's own, or those of a bug
    answers: Path = EXERCISES  # where these are
    variant: str = "mine"  # its folder under build/

    @property
    def folder(self) -> str:
        """Under build/, of the programs that users run."""
        return f"{self.variant}{self.suffix}" if self.own else self.preset

    @property
    def build(self) -> Path:
        return ROOT / "build" / self.folder


CPU = Kind(False, "release", "", ROOT / ".ladder/venv", ROOT / "scripts/requirements.txt")
CUDA = Kind(
    True, "cuda", "-cuda", ROOT / ".ladder/venv-cuda", ROOT / "scripts/requirements-cuda.txt"
)


BUILD = Path(
    os.environ.get("LADDER_BUILD") or CPU.build
)  # of the programs that scripts and benchmarks start


def use_cuda() -> Kind:
    """What we start uses that build, too."""
    os.environ.update(LADDER_CUDA="ON", LADDER_BUILD=str(CUDA.build))
    return CUDA


def chosen_kind() -> Kind:
    """LADDER_CUDA=ON builds what runs on NVIDIA GPUs, too, in folders of its own."""
    value = os.environ.get("LADDER_CUDA", "OFF")
    if value in ("ON", "on", "1"):
        return use_cuda()
    if value not in ("OFF", "off", "0", ""):
        usage_error(f"LADDER_CUDA is '{value}', it must be ON or OFF")
    return CPU


def owner_of(path: Path) -> str:
    try:
        return path.owner()
    except KeyError:
        return f"user {path.stat().st_uid}"


def not_ours(kind: Kind) -> list[Path]:
    """Where this user would have to write to build, and may not."""
    needed = [folder if folder.exists() else ROOT for folder in (ROOT / ".ladder", ROOT / "build")]
    needed += [path for path in (ROOT / ".ladder/lock", kind.build) if path.exists()]
    return [path for path in dict.fromkeys(needed) if not os.access(path, os.W_OK)]


def why_not_built(paths: list[Path]) -> str:
    """Why a checkout that somebody else builds has no build, if these may not be written; and the
    way out."""
    owned = "; ".join(f"{shown(path)} belongs to {owner_of(path)}" for path in paths)
    return f"you may not write there ({owned}): ask {owner_of(paths[0])} to run ./ladder setup, or build a copy of your own, git clone {ROOT}"


def shown(path: Path | str) -> str:
    """The path as users type it: from the root of the checkout, if it is in there."""
    return os.path.relpath(path, ROOT) if Path(path).is_relative_to(ROOT) else str(path)


def read_kept(file: Path, default):
    """What keep() wrote there. A file that somebody has damaged counts as none, and says so."""
    try:
        return json.loads(file.read_text())
    except FileNotFoundError:
        return default
    except ValueError:
        say(f"{shown(file)} is damaged: it is begun anew")
        return default


def keep(file: Path, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    write(file, json.dumps(value) + "\n")


def write(file: Path, content: str | bytes):
    """All of a file or nothing: a failure, a full disk or a kill leaves the old one or the new one.
    A name of bytes that are no UTF-8 loses them in a text."""
    file = file.resolve()  # what a link leads to is written, and the link stays
    new = file.with_name(f".{file.name}.partial")
    try:
        new.write_bytes(content.encode(errors="replace") if isinstance(content, str) else content)
        new.replace(file)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def write_or_fail(file: Path, content: str | bytes):
    """write(), of which an error names the file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write(file, content)
    except OSError as error:
        fail(f"{shown(file)} cannot be written: {error.strerror}")
