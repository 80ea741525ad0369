"""Configures and builds: each function does only what is still missing."""

import contextlib
import fcntl
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from launcher.checkout import CPU, LOGS, ROOT, Kind, not_ours, shown, why_not_built
from launcher.console import fail, say
from launcher.libtorch import find_nvcc, need_nvcc, need_torch, own_torch
from launcher.logs import Log, Progress, explain_failure, log_path
from launcher.packages import BUILD_PACKAGES, need_packages
from launcher.processes import HEEDED, end_session, finish, next_signal, output_of, start

WERROR = "-DLADDER_WERROR=ON"


def available_gb() -> float:
    return int(re.search(r"MemAvailable: *(\d+)", Path("/proc/meminfo").read_text())[1]) / 1e6


def num_cores() -> int:
    return len(os.sched_getaffinity(0))


def num_jobs() -> int:
    """As many compilers at once as fit: one per core, 1.5 GB each."""
    return int(os.environ.get("LADDER_JOBS") or max(1, min(num_cores(), int(available_gb() / 1.5))))


@contextlib.contextmanager
def setup_lock() -> Iterator[None]:
    """One set-up at a time per checkout. A process that is started meanwhile holds the lock as
    well, until it ends."""
    if theirs := not_ours(CPU):
        fail(f"this command builds: {why_not_built(theirs)}")
    LOGS.mkdir(parents=True, exist_ok=True)
    with (ROOT / ".ladder/lock").open(
        "a+"
    ) as file:  # a reader would see it empty, were it opened with "w"
        if not (is_ours := locks(file)):
            file.seek(0)
            say(
                f"waiting for another ./ladder that is setting up this checkout: {file.read().strip() or 'it does not say which'}"
            )
        while not is_ours and not locks(file):
            if (number := next_signal(0.2)) in HEEDED:
                raise SystemExit(128 + number)
        file.truncate(0)
        file.write(f"process {os.getpid()}, {shlex.join(['./ladder', *sys.argv[1:]])}")
        file.flush()
        os.set_inheritable(file.fileno(), True)
        yield


def locks(file) -> bool:
    with contextlib.suppress(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def cmake_options(kind: Kind) -> list[str]:
    """The -D options of every build folder. ccache's paths are relative, so that build folders
    share its objects."""
    options = [f"-DLADDER_TORCH={own_torch()}", f"-DLADDER_CUDA={'ON' if kind.is_cuda else 'OFF'}"]
    if kind.is_cuda:
        options.append(f"-DCMAKE_CUDA_COMPILER={find_nvcc()}")
    if shutil.which("ccache"):
        ccache = f"cmake;-E;env;CCACHE_SLOPPINESS=pch_defines,time_macros;CCACHE_BASEDIR={ROOT};CCACHE_NOHASHDIR=1;CCACHE_PCH_EXTSUM=1;ccache"
        languages = ["CXX", "CUDA"] if kind.is_cuda else ["CXX"]
        options += [f"-DCMAKE_{language}_COMPILER_LAUNCHER={ccache}" for language in languages]
    return options


def need_configured(kind: Kind, name: str, *options: str) -> None:
    """Runs CMake for build/NAME once per set of options; Ninja repeats it when files change.

    In CI warnings are errors. A folder configured that way is also used outside CI, to avoid
    building it twice.
    """
    folder = ROOT / "build" / name
    stamp = folder / ".ladder_configured"
    wanted = [*cmake_options(kind), *options]
    have = stamp.read_text().splitlines() if stamp.is_file() else []
    if os.environ.get("CI") or have == [*wanted, WERROR]:
        wanted.append(WERROR)
    if home := home_elsewhere(folder):
        say(f"build/{name} belongs to {home}: recreating it")
        shutil.rmtree(folder)
    elif (
        have == wanted
        and (folder / "build.ninja").is_file()
        and not is_newer(ROOT / "CMakePresets.json", stamp)
    ):
        return
    say(f"configuring build/{name}")
    stamp.unlink(missing_ok=True)
    Log(f"configure-{name}").run(["cmake", "-B", folder, *wanted], cwd=ROOT)
    stamp.write_text("".join(f"{option}\n" for option in wanted))


def is_newer(file: Path, stamp: Path) -> bool:
    return file.exists() and file.stat().st_mtime > stamp.stat().st_mtime


def home_elsewhere(folder: Path) -> str:
    """The checkout that a build folder was configured for, if it is not this one: it was moved or
    copied."""
    cache = folder / "CMakeCache.txt"
    text = cache.read_text(errors="replace") if cache.is_file() else ""
    found = re.search(r"^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)", text, re.MULTILINE)
    home = Path(found[1]) if found else ROOT
    is_ours = home.exists() and home.resolve().is_relative_to(
        ROOT
    )  # the folder of a step or chapter is a project, too
    return "" if is_ours else str(home)


class Build:
    """A build of targets in build/NAME, while the launcher does something else; ends with it."""

    def __init__(self, name: str, targets: tuple[str, ...], log: str, what: str, niceness: int = 0):
        command = [
            "nice",
            f"-n{niceness}",
            "cmake",
            "--build",
            ROOT / "build" / name,
            "-j",
            num_jobs(),
            "--target",
            *targets,
        ]
        with log_path(log).open("w") as file:
            self.child = start(command, stdout=file, stderr=subprocess.STDOUT)
        self.log, self.progress = log, Progress(log, f"{what}, {num_jobs()} at a time")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            end_session(self.child, signal.SIGTERM)
            self.child.wait()

    def finish(self) -> None:
        code = finish(self.child, self.progress.show)
        self.progress.end()
        if code:
            explain_failure(self.log)


def need_built(name: str, *targets: str) -> None:
    Build(name, targets, f"build-{name}", f"{' '.join(targets)} in build/{name}").finish()


def build_behind(name: str, *targets: str) -> Build:
    say("building the other steps in the background (log: .ladder/logs/build-behind.log)")
    return Build(name, targets, "build-behind", "the other steps", niceness=10)


def is_built(name: str, *targets: str) -> bool:
    command = [
        "cmake",
        "--build",
        ROOT / "build" / name,
        *(("--target", *targets) if targets else ()),
        "--",
        "-n",
    ]
    return "no work to do" in output_of(command)


# ---- all that a command needs -----------------------------------------------------------------------------------------


def prepare(kind: Kind, name: str, *options: str) -> None:
    """What comes before a build in build/NAME; under the lock."""
    if kind.is_cuda:
        need_nvcc()  # before anything is fetched
    need_packages(BUILD_PACKAGES)
    need_torch(kind)
    need_configured(kind, name, *options)


def prepare_release(kind: Kind) -> None:
    own = [
        f"-DLADDER_EXERCISE={';'.join(kind.own)}",
        f"-DLADDER_EXERCISES={kind.answers}",
        "-DLADDER_TESTS=OFF",
        "-DLADDER_BENCHMARKS=OFF",
    ]
    prepare(kind, kind.folder, "--preset", kind.preset, *(own if kind.own else []))


def need_release(kind: Kind, *targets: str) -> None:
    """In a checkout that somebody else builds, what is built will do."""
    if theirs := not_ours(kind):
        if missing := [name for name in targets if not any(kind.build.rglob(name))]:
            fail(
                f"{' '.join(missing)} must be built in {shown(kind.build)}, and {why_not_built(theirs)}"
            )
        return
    with setup_lock():
        prepare_release(kind)
        need_built(kind.folder, *targets)
