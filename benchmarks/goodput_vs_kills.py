#!/usr/bin/env python3
"""What workers that die cost the others: the goodput of step 9's elastic workers over the rate of
kills.

    ./ladder bench goodput [--workers 4] [--kills 0,5,10,20,30] [--seconds 60] [--out FOLDER]
    benchmarks/goodput_vs_kills.py --self-test       checks the arithmetic on logs that it makes

Starts a lighthouse and workers, whose inner steps only sleep: so the time of a dead worker is not
given to the others. Kills them (SIGKILL) at seeded random moments, so many per minute among all;
starts each again, with nothing, after --restart seconds. One that knows the newest state is always
spared, for nobody heals from the dead.

An inner step is useful if the average of its round was committed. Goodput is the number of useful
inner steps divided by that of the first run, in which nobody dies. The table says how many inner
steps a kill costs, and how many of them the dead worker could not have taken anyway. Writes
FOLDER/goodput.json and goodput.svg. Exit code 1 if workers disagree on a state.
"""

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from results import Progress, result_folder, results_parser, write_results
from demo_failures import start_lighthouse
from launcher.console import count_from
from launcher.figures import Curve, Plot, chart, numbers
from launcher.processes import end, start
from launcher.tables import table_of
from stand_ins import refusal

PROGRAMS = "elastic_lighthouse elastic_testing_toy_worker"
STEP_MS = 20
SYNC_EVERY = 20
TIME_OUT_S = 1
START_S = 60  # that the first round may take
SETTINGS = [
    f"step_ms={STEP_MS}",
    f"sync_every={SYNC_EVERY}",
    "fragments=1",
    f"round_timeout={TIME_OUT_S}",
]


def commits_of(log):
    """(time, outer steps, hash, inner steps that the average contains) of each committed round in a
    log."""
    commits = []
    for line in log.splitlines():
        words = line.split()
        if len(words) == 6 and words[1] == "commit":
            commits.append((float(words[0]), int(words[2]), words[3], int(words[5])))
    return commits


def useful_steps(logs, begin, finish):
    """Inner steps of all workers in averages that were committed in this time."""
    return sum(steps for log in logs for at, _, _, steps in commits_of(log) if begin <= at < finish)


def disagreements(logs):
    """Outer steps at which two workers, or one at two times, had different states."""
    states, wrong = {}, set()
    for log in logs:
        for _, outer_step, state, _ in commits_of(log):
            if states.setdefault(outer_step, state) != state:
                wrong.add(outer_step)
    return sorted(wrong)


def row_of(rate, kills, absent, useful, wanted):
    """A run's figures; `absent`: the workers that were not there, on average over the run, as a
    share of all."""
    return {
        "kills_per_minute": rate,
        "kills": kills,
        "useful_steps": useful,
        "goodput": useful / wanted,
        "present": 1 - absent,
        "lost_per_kill": (wanted - useful) / kills if kills else 0.0,
        "absent_per_kill": absent * wanted / kills if kills else 0.0,
    }


class Group:
    """A lighthouse and workers in a folder."""

    def __init__(self, arguments, folder):
        self.arguments, self.folder, self.children, self.workers, self.starts = (
            arguments,
            folder,
            [],
            {},
            {},
        )
        self.binaries = arguments.build / "step9_diloco/elastic"
        self.port = start_lighthouse(
            self.binaries, folder / "lighthouse", self.children, TIME_OUT_S
        )

    def start(self, worker):
        folder = self.folder / str(worker)
        folder.mkdir(exist_ok=True)
        self.starts[worker] = time.monotonic()
        with (folder / "output").open("a") as output:
            program = self.binaries / "elastic_testing_toy_worker"
            command = [
                program,
                f"127.0.0.1:{self.port}",
                str(worker),
                str(self.arguments.workers),
                folder,
                *SETTINGS,
            ]
            self.workers[worker] = start(command, ends_with_us=True, stdout=output, stderr=output)
        self.children.append(self.workers[worker])

    def kill(self, worker):
        child = self.workers.pop(worker)
        child.kill()
        child.wait()

    def log(self, worker):
        path = self.folder / str(worker) / "log"
        return path.read_text() if path.exists() else ""

    def is_current(self, worker):
        """Whether it has taken part in a round as the process that it is now."""
        commits = commits_of(self.log(worker))
        return worker in self.workers and bool(commits) and commits[-1][0] > self.starts[worker]

    def check_alive(self):
        for worker, child in self.workers.items():
            if child.poll() is not None:
                sys.exit(
                    f"worker {worker} has ended with {child.returncode}:\n{(self.folder / str(worker) / 'output').read_text()}"
                )


def absence_s(log, kills, finish):
    """Seconds in which a worker was not there: from each kill to the first step that an average
    knows of again."""
    absent = 0.0
    for killed, end_of_life in zip(kills, [*kills[1:], finish]):
        firsts = [
            at - steps * STEP_MS / 1000
            for at, _, _, steps in commits_of(log)
            if killed < at < end_of_life and steps > 0
        ]
        absent += max(0.0, min([*firsts, end_of_life]) - killed)
    return absent


def measure(arguments, rate, check_signals, folder):
    """One run; returns kills, the share of workers that were absent, useful inner steps, and outer
    steps with two states."""
    group, moments = Group(arguments, folder), random.Random(f"kills {rate} {arguments.seed}")
    kills = {worker: [] for worker in range(arguments.workers)}  # the moments of each
    try:
        for worker in kills:
            group.start(worker)
        deadline = time.monotonic() + START_S
        while not all(map(group.is_current, kills)):
            check_signals()
            group.check_alive()
            if time.monotonic() > deadline:
                sys.exit(
                    f"the workers have not taken a round within {START_S} s:\n{(folder / 'lighthouse').read_text()}"
                )
            time.sleep(0.01)
        begin = time.monotonic()
        finish = begin + arguments.seconds
        num_kills = round(rate * arguments.seconds / 60)
        plan = sorted(
            (begin + arguments.seconds * moments.random() for _ in range(num_kills)), reverse=True
        )
        while (now := time.monotonic()) < finish:
            check_signals()
            group.check_alive()
            for worker in kills.keys() - group.workers.keys():
                if kills[worker][-1] + arguments.restart <= now:
                    group.start(worker)
            if plan and now >= plan[-1]:
                current = set(filter(group.is_current, group.workers))
                if can_die := [
                    worker for worker in group.workers if current - {worker}
                ]:  # else a moment later
                    plan.pop()
                    victim = moments.choice(can_die)
                    group.kill(victim)
                    kills[victim].append(time.monotonic())
            time.sleep(0.005)
        logs = [group.log(worker) for worker in kills]
    finally:
        end(group.children)
    absent_s = sum(absence_s(logs[worker], moments, finish) for worker, moments in kills.items())
    absent = absent_s / (arguments.workers * arguments.seconds)
    return (
        sum(map(len, kills.values())),
        absent,
        useful_steps(logs, begin, finish),
        disagreements(logs),
    )


COLUMNS = {
    "kills per minute": "{kills_per_minute:g}",
    "kills": "{kills}",
    "goodput": "{goodput:.3f}",
    "workers there": "{present:.3f}",
    "inner steps lost per kill": "{lost_per_kill:.0f}",
    "of these, absent": "{absent_per_kill:.0f}",
}


def svg(rows, workers):
    """Goodput over the rate of kills, and the share of the time that workers are there."""
    rates = numbers(row["kills_per_minute"] for row in rows)
    curves = [
        Curve(text, colour, [(row["kills_per_minute"], max(0, row[name])) for row in rows])
        for name, text, colour in [
            ("present", "workers that are there", "#999999"),
            ("goodput", "goodput", "#4477aa"),
        ]
    ]
    plot = Plot(
        "",
        curves,
        f"kills per minute, among {workers} workers",
        [tick / 5 for tick in range(6)],
        rates,
    )
    return chart(
        f"Goodput of {workers} workers over the rate at which they are killed",
        [plot],
        legend_columns=2,
    )


def rates_of(text):
    rates = [float(word) for word in text.split(",")]
    if not rates or rates[0] != 0 or any(not 0 < rate < float("inf") for rate in rates[1:]):
        raise argparse.ArgumentTypeError(
            f"'{text}': must begin with 0, the run that all others are compared with"
        )
    return rates


def main():
    parser = results_parser("goodput", __doc__, self_test)
    parser.add_argument(
        "--workers",
        type=count_from(2, 999),
        default=4,
        help="at least 2: one of them must stay alive",
    )
    parser.add_argument(
        "--kills",
        type=rates_of,
        default=[0, 5, 10, 20, 30],
        help="per minute, among all workers: 0, and others",
    )
    parser.add_argument("--seconds", type=float, default=60, help="of each run")
    parser.add_argument(
        "--restart", type=float, default=2, help="seconds from a kill to the start of a new process"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the moments and the victims")
    arguments = parser.parse_args()
    out = result_folder("goodput", arguments.out)
    rows, faults = [], []
    print(f"{len(arguments.kills)} runs of {arguments.seconds:g} s", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory() as folder, Progress(len(arguments.kills)) as progress:
        for number, rate in enumerate(arguments.kills):
            run = Path(folder) / str(number)
            run.mkdir()
            kills, absent, useful, wrong = measure(arguments, rate, progress.check, run)
            rows.append(
                row_of(rate, kills, absent, useful, rows[0]["useful_steps"] if rows else useful)
            )
            faults += [
                f"{rate:g} kills per minute: workers disagree on outer step {step}"
                for step in wrong
            ]
            progress.add(f"{rate:g} kills per minute: goodput {rows[-1]['goodput']:.3f}")
    print(
        f"{arguments.workers} workers, inner steps of {STEP_MS} ms, {SYNC_EVERY} per round; time-outs of {TIME_OUT_S} s; "
        f"back after {arguments.restart:g} s\n"
    )
    print(table_of(rows, COLUMNS, numbers_right=True))
    progress.finish()
    return write_results(
        out / "goodput",
        {"workers": arguments.workers, "runs": rows},
        svg(rows, arguments.workers),
        faults,
    )


def self_test():
    logs = [
        "1.0 commit 1 aa 2 20\n2.0 says: commit 9 zz 2 20\n2.0 failed 1 aa 2 40\n3.0 commit 2 bb 2 40\n4.0 commit 3 cc 1 20\n",
        "1.0 commit 1 aa 2 20\n3.0 commit 2 bb 2 0\n3.5 commit 3 cc 1 20\n9.0 commit 4 dd",
    ]
    assert [commit[1] for commit in commits_of(logs[1])] == [1, 2, 3], commits_of(logs[1])
    assert useful_steps(logs, 1.5, 4.0) == 60 and useful_steps(logs, 0, 9) == 120
    assert disagreements(logs) == [] and disagreements([*logs, "5 commit 2 bc 2 20\n"]) == [2]
    # Killed at 1.2, it hears a round at 3.0, and the one at 3.5 has 20 steps of its own.
    there_s = 3.5 - 20 * STEP_MS / 1000
    assert abs(absence_s(logs[1], [1.2], 9) - (there_s - 1.2)) < 1e-9
    assert abs(absence_s(logs[1], [1.2, 2.0, 3.6], 9) - (0.8 + there_s - 2.0 + 9 - 3.6)) < 1e-9
    row = row_of(6, 2, 0.25, 800, 1200)
    assert (round(row["goodput"], 3), row["lost_per_kill"]) == (0.667, 200), row
    assert (row["present"], row["absent_per_kill"]) == (0.75, 150), row
    assert row_of(0, 0, 0.0, 5, 5)["goodput"] == 1
    assert svg([row, row], 4).count("<circle") == 4
    for text in ("5", "0,-1", "0,nan"):
        assert refusal(argparse.ArgumentTypeError, rates_of, text), text
    print("12 checks passed")


if __name__ == "__main__":
    sys.exit(main())
