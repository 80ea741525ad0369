"""What check_launcher, check_cluster_scripts and check_report share: cases, each of which has a folder of its own; and the
scripts of this checkout in such a folder, where programs that are slow, or not here, are stand-ins."""

import contextlib
import inspect
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from launcher.steps import read_steps

ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile("LADDER_|Torch_|CMAKE_|CUDA|CI$|NCCL_|OMP_|OMPI_|SLURM_|SBATCH_|PYTHONUNBUFFERED")  # variables that a test sets itself
PRINTS_ITS_WORDS = 'printf "<%s>" "${0##*/}" "$@"; echo\n'


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


class Checkout:
    def __init__(self, folder):
        self.root = Path(folder).resolve() / "a checkout"  # with a space
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "ladder", self.root)
        self.programs = {name: step.folder for name, step in read_steps().items()}
        for name, folder in self.programs.items():
            self.write(f"{folder}/CMakeLists.txt", f"ladder_add_step({name})\n")
            self.write(f"build/release/{folder}/{name}", PRINTS_ITS_WORDS)

    def write(self, path, text):
        """A program. It finds its checkout in $HERE."""
        path = self.root / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\nHERE='{self.root}'\n{text}")
        path.chmod(0o755)

    def set(self, name, text=""):
        (self.root / name).write_text(text)

    def lines(self, name):
        path = self.root / name
        return path.read_text().splitlines() if path.exists() else []

    def start(self, *words, ignored="", **variables):
        """In a session of its own; it heeds all signals but those ignored, whatever we were started to ignore."""
        kept = {name: value for name, value in os.environ.items() if not OURS.match(name)}
        environment = {**kept, "PATH": f"{self.root}/bin:{os.environ['PATH']}", **variables}
        heed = [f"--ignore-signal={ignored}"] if ignored else ["--default-signal=INT,HUP"]
        return subprocess.Popen(
            ["env", *heed, *words], cwd=self.root, env=environment, text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip

    def run(self, *words, **variables):
        """Exit code and output."""
        return self.end_of(self.start(*words, **variables))

    def end_of(self, process):
        output, _ = process.communicate(timeout=120)
        return process.returncode, output

    def stop(self, process, is_time, number=signal.SIGINT):
        """Sends it a signal as soon as it is time. Exit code and output."""
        self.wait_for(is_time)
        process.send_signal(number)
        return self.end_of(process)

    def expect_run(self, code, texts, *words, **variables):
        """It must end with this exit code and say all of this."""
        found, output = self.run(*words, **variables)
        expect(found == code and all(text in output for text in texts), words, variables, texts, found, output)

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            expect(time.monotonic() < deadline, "waited in vain:", *sorted(os.listdir(self.root)), self.processes())
            time.sleep(0.02)

    def processes(self):
        """Of all processes that were started in this folder and are still there: process id and command line."""
        found = {}
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                command = (folder / "cmdline").read_text().replace("\0", " ")
                if command and f"PATH={self.root}/".encode() in (folder / "environ").read_bytes():
                    found[int(folder.name)] = command
            except OSError:
                pass
        return found

    def __enter__(self):
        return self

    def __exit__(self, *_):
        """Kills them until none is left: one that has not died yet may start another, or write to the folder."""
        while running := self.processes():
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def failure(case, kind):
    """Why a case failed, or nothing."""
    with tempfile.TemporaryDirectory(prefix="ladder-check-") as folder, kind(Path(folder, case.__name__)) as own:
        try:
            case(own)
        except (AssertionError, LookupError, OSError, ValueError, subprocess.SubprocessError) as error:
            return f"FAILED: {case.__name__}: {error!r}"
    return ""


def run_cases(what, module, kind, takes="checkout"):
    """Calls every function of a module that takes this and nothing else, each with one of its own, which kind(folder) opens.
    Exits with 1 if one fails."""
    own = [f for f in module.values() if inspect.isfunction(f) and f.__module__ == module["__name__"]]
    cases = [f for f in own if [*inspect.signature(f).parameters] == [takes]]
    with ThreadPoolExecutor(4) as pool:  # they mostly wait
        failed = list(filter(None, pool.map(lambda case: failure(case, kind), cases)))
    print(*failed, f"{what}: {len(cases)} cases, {len(failed)} failed", sep="\n")
    sys.exit(1 if failed else 0)
