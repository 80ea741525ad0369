"""What the benchmarks share: their options, how far they have come, their results, and the name of
the machine."""

import argparse
import contextlib
import json
import os
import signal
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))  # where benchmarks find the launcher's modules
from launcher.checkout import BUILD, write  # noqa: E402
from launcher.console import SelfTest  # noqa: E402
from launcher.plan_speed import cpu_name, quiet  # noqa: E402, F401
from launcher.processes import HEEDED, hold_signals, is_asked_to_stop  # noqa: E402

STOPPED = {128 + number for number in HEEDED}  # exit codes


def results_parser(name, about, self_test, has_folder=True):
    parser = argparse.ArgumentParser(
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog=f"./ladder bench {name}",
    )
    parser.add_argument("--build", type=Path, default=BUILD, help="where the programs are")
    if has_folder:
        parser.add_argument(
            "--out", type=Path, help="folder of the results; default: a new one under runs/"
        )
    parser.add_argument("--self-test", action=SelfTest, const=self_test, help=argparse.SUPPRESS)
    return parser


def result_folder(name, out):
    """The one that was asked for, or a new one under runs/."""
    folder = out or ROOT / "runs" / time.strftime(f"{name}-%Y%m%d-%H%M%S")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def time_text(seconds):
    return (
        f"{seconds:.0f} s"
        if seconds < 100
        else f"{seconds / 60:.0f} min"
        if seconds < 6000
        else f"{seconds / 3600:.1f} h"
    )


class Progress(contextlib.AbstractContextManager):
    """The runs of a benchmark: what each has shown, as soon as it has ended, and how long the rest
    will take.

        with Progress(3) as progress:
            for kind in kinds:
                found[kind] = run_all(…)
                progress.add(f"{kind}: 2,345 tokens/s")
        print_table(found)
        progress.finish()

    A signal ends the block and, once a run has ended, no more: what follows prints what there is.
    Then finish() exits, before anything is written.
    """

    def __init__(self, work):
        self.work, self.done, self.code, self.start_s = work, 0, 0, time.monotonic()

    def __enter__(self):
        hold_signals()
        return self

    def add(self, text, work=1):
        """One more run has ended, which was so much of the work."""
        self.done += work
        left_s = (time.monotonic() - self.start_s) * max(0, self.work / self.done - 1)
        print(
            f"{text} · {100 * self.done / self.work:.0f}%, about {time_text(left_s)} left",
            file=sys.stderr,
            flush=True,
        )
        self.check()

    def check(self):
        if is_asked_to_stop():
            sys.exit(128 + signal.sigwait(HEEDED))

    def __exit__(self, kind, error, trace):
        if isinstance(error, SystemExit) and error.code in STOPPED:
            self.code = error.code
            print(
                "stopped: this is what it has, and it writes no file", file=sys.stderr, flush=True
            )
        return self.code != 0 and self.done > 0

    def finish(self):
        if self.code:
            sys.exit(self.code)


def write_results(stem, content, drawing, faults):
    """STEM.json and STEM.svg. Returns the exit code: 1 if there are faults, which it prints."""
    write(stem.with_suffix(".json"), json.dumps(content, indent=1) + "\n")
    write(stem.with_suffix(".svg"), drawing)
    print(f"\nwrote {stem}.json and {stem.name}.svg")
    print("".join(f"{line}\n" for line in faults), end="", file=sys.stderr)
    return 1 if faults else 0


def measured_s(report, round_length):
    """The time of a step: other programs can only make one slower, so the lower quartile counts; if
    steps differ, of the means of whole rounds. The first of several warms up."""
    seconds = report["step_seconds"]
    rounds = [
        statistics.mean(seconds[i : i + round_length]) for i in range(0, len(seconds), round_length)
    ]
    return quiet(rounds[1:] or rounds)
