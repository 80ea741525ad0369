"""What tests of our scripts share: cases, each of which has a folder of its own; the scripts of
this checkout in such a folder, where programs that are slow, or not here, are stand-ins; and
reports of runs that are right, until a fault is planted."""

import contextlib
import functools
import inspect
import json
import operator
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
from launcher.trainer_options import sources

ROOT = Path(__file__).resolve().parent.parent
OURS = re.compile(
    "LADDER_|Torch_|CMAKE_|CUDA|CI$|NCCL_|OMP_|OMPI_|SLURM_|SBATCH_|PYTHONUNBUFFERED"
)  # variables that a test sets itself
PRINTS_ITS_WORDS = 'printf "<%s>" "${0##*/}" "$@"; echo\n'


def expect(condition, *what):
    if not condition:
        raise AssertionError(" ".join(map(str, what)))


def refusal(error, call, *arguments):
    """What the error says with which a call refuses these; nothing if it takes them."""
    try:
        call(*arguments)
    except error as refused:
        return str(refused)
    return ""


class Checkout:
    def __init__(self, folder):
        self.root = Path(folder).resolve() / "a checkout"  # with a space
        shutil.copytree(ROOT / "scripts", self.root / "scripts")
        shutil.copy(ROOT / "ladder", self.root)
        for source in sources():
            (self.root / source).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / source, self.root / source)
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
        """Starts a program in a session of its own; it heeds all signals but those ignored,
        whatever we were started to ignore."""
        kept = {name: value for name, value in os.environ.items() if not OURS.match(name)}
        environment = {**kept, "PATH": f"{self.root}/bin:{os.environ['PATH']}", **variables}
        heed = [f"--ignore-signal={ignored}"] if ignored else ["--default-signal=INT,HUP"]
        return subprocess.Popen(
            ["env", *heed, *words],
            cwd=self.root,
            env=environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

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
        expect(
            found == code and all(text in output for text in texts),
            words,
            variables,
            texts,
            found,
            output,
        )

    def wait_for(self, condition):
        deadline = time.monotonic() + 30
        while not condition():
            expect(
                time.monotonic() < deadline,
                "waited in vain:",
                *sorted(os.listdir(self.root)),
                self.processes(),
            )
            time.sleep(0.02)

    def processes(self):
        """The processes that were started in this folder and are still there: process id and
        command line."""
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
        """Kills them until none is left: one that has not died yet may start another, or write to
        the folder."""
        while running := self.processes():
            for pid in running:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


OPERATIONS = ("all_reduce", "reduce_scatter", "all_gather", "broadcast", "send", "recv", "barrier")


def made_report(num_ranks=2):
    """Ten steps on these ranks, which read their share. Losses are exact in fp32, norms are not."""
    state = {"parameters": 400, "gradients": 200, "optimizer": 800, "communication": 40}
    peaks = {"parameters_peak": 500, "gradients_peak": 300, "optimizer_peak": 800}
    memory = {
        **state,
        **peaks,
        "communication_peak": 90,
        "activations_peak": 70,
        "other": 0,
        "other_by_name": {},
        "live_at_step_end": 1440,
        "peak": 1700,
        "save_peak": 1800,
        "resident": 2000,
        "resident_peak": 2100,
    }
    traffic = {
        name: {"calls": 10, "bytes_sent": 4000 if name == "all_reduce" else 0, "messages": 20}
        for name in OPERATIONS
    }
    config = {
        "steps": 10,
        "layers": 2,
        "heads": 2,
        "channels": 32,
        "context": 8,
        "micro-batch-size": 4,
        "num-microbatches": 1,
        "rows": "windows",
        "data": "corpus",
        "lr": 0.001,
        "precision": "fp32",
        "grad-dtype": "fp32",
        "masters": "fp32",
    }
    series = {
        "losses": [4 - step / 4 for step in range(10)],
        "grad_norms": [1 + step / 10 for step in range(10)],
        "param_norms": [5 + step / 10 for step in range(10)],
        "learning_rates": [0.001] * 10,
        "units": [64] * 10,
        "target_tokens": [64] * 10,
        "step_seconds": [0.01 + step / 1000 for step in range(10)],
    }
    made = {
        "step": "step4_bucketed_ddp",
        "world_size": num_ranks,
        "data_parallel_size": num_ranks,
        "transport": "mpi",
        "num_parameters": 100,
        "unit": "target tokens",
        "config": config,
        "first_step": 0,
        "was_stopped": False,
        "units_per_second": 6400.0,
        "param_hash": "f" * 32,
        "val_losses": [{"step": 5, "loss": 3.5}, {"step": 10, "loss": 3.0}],
        "memory": [memory] * num_ranks,
        "memory_theory": [state | peaks] * num_ranks,
        "traffic": [traffic] * num_ranks,
        "traffic_theory": [traffic | {"bytes_sent": 4000}] * num_ranks,
        "data_bytes_read": [720] * num_ranks,
        "data_bytes_theory": [720] * num_ranks,
        "differences": [[]] * num_ranks,
        **series,
    }
    return json.loads(json.dumps(made))  # no part is shared by two ranks


def spoil(report, place, value):
    """Plants a value there, keys and indices from outside; with no place, several, also some of an
    entry's."""
    if place:
        functools.reduce(operator.getitem, place[:-1], report)[place[-1]] = value
    else:
        report |= {
            key: report[key] | of if isinstance(of, dict) and key in report else of
            for key, of in (value or {}).items()
        }


def write_run(folder, place=(), value=None, lines=(), report=None):
    """Writes this report or a right one, or what is spoilt in it, and these lines of
    metrics.jsonl."""
    spoil(report := report or made_report(), place, value)
    folder.mkdir(parents=True)
    (folder / "report.json").write_text(json.dumps(report))
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def failure(case, kind):
    """Why a case failed, or nothing."""
    with (
        tempfile.TemporaryDirectory(prefix="ladder-check-") as folder,
        kind(Path(folder, case.__name__)) as own,
    ):
        try:
            case(own)
        except (
            AssertionError,
            LookupError,
            OSError,
            ValueError,
            subprocess.SubprocessError,
        ) as error:
            return f"FAILED: {case.__name__}: {error!r}"
    return ""


def run_cases(what, module, kind, takes="checkout"):
    """Calls every function of a module that takes this and nothing else, each with one of its own,
    which kind(folder) opens. Exits with 1 if one fails."""
    own = [
        f for f in module.values() if inspect.isfunction(f) and f.__module__ == module["__name__"]
    ]
    cases = [f for f in own if [*inspect.signature(f).parameters] == [takes]]
    with ThreadPoolExecutor(4) as pool:  # they mostly wait
        failed = list(filter(None, pool.map(lambda case: failure(case, kind), cases)))
    print(*failed, f"{what}: {len(cases)} cases, {len(failed)} failed", sep="\n")
    sys.exit(1 if failed else 0)
