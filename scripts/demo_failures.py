#!/usr/bin/env python3
"""Kills a worker that may die, starts it again, and shows what the others notice.

    ./ladder demo failures [--workers 3] [--kill 1] [--steps 3000] [--out FOLDER] [options of elastic]

Starts a lighthouse and workers, each a process of its own. After a quarter of the steps, one is
killed (SIGKILL), after half of them it starts again, from nothing. Shows what each says about the
group, and at the end how long the others waited, and that all have the same global parameters. Exit
code 1 if they do not. Standard library only.
"""

import argparse
import json
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

from launcher.checkout import BUILD, ROOT
from launcher.processes import call, end, hold_signals, is_asked_to_stop, start

MODEL = [
    "--layers",
    "2",
    "--heads",
    "2",
    "--channels",
    "32",
    "--context",
    "32",
    "--micro-batch-size",
    "2",
]
TIME_OUT_S = 3
STEP = re.compile(r"step (\d+)/")


def start_lighthouse(folder, log, children, join_timeout_s):
    """Starts step 9's lighthouse, built in this folder, which writes to the file `log`; returns its
    port.

    Adds the process to `children` at once, for end(). Exits if it ends instead of listening.
    """
    with log.open("w") as file:
        program, rules = folder / "elastic_lighthouse", ["--join-timeout", join_timeout_s]
        command = [program, "--port", 0, *rules]
        child = start(command, ends_with_us=True, stdout=file, stderr=file)
    children.append(child)
    while not (found := re.search(r"port (\d+)\n", log.read_text())):
        if child.poll() is not None:
            sys.exit(f"the lighthouse has ended with {child.returncode}:\n{log.read_text()}")
        time.sleep(0.01)
    return int(found[1])


class Worker:
    """A process, and a thread that reads what it says."""

    def __init__(self, number, command, show):
        self.number, self.step, self.step_times = number, 0, []
        self.process = start(
            command, ends_with_us=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self.reader = threading.Thread(target=self.read, args=(show,), daemon=True)
        self.reader.start()

    def read(self, show):
        for line in self.process.stdout:
            found = STEP.match(line)
            if found:
                self.step = int(found[1])
                self.step_times.append(time.monotonic())
            elif line.startswith((f"worker {self.number} ", "error")):
                show(line.rstrip())

    def wait(self):
        code = self.process.wait()
        self.reader.join()
        return code


class Demo:
    def __init__(self, arguments):
        self.arguments, self.start_s, self.children, self.workers = (
            arguments,
            time.monotonic(),
            [],
            {},
        )
        build = arguments.build / "step9_diloco/elastic"
        self.program, self.port = build / "elastic", 1
        check = [*self.command(0, "0"), "--print-config"]
        if code := call(check, stdout=subprocess.DEVNULL):
            sys.exit(code)  # it has said which option it refuses
        arguments.out.mkdir(parents=True, exist_ok=True)
        self.port = start_lighthouse(
            build, arguments.out / "lighthouse.log", self.children, TIME_OUT_S
        )

    def show(self, text):
        # One write: print() writes the end of a line apart, and each worker has a thread that
        # shows.
        sys.stdout.write(f"{time.monotonic() - self.start_s:6.1f} s   {text}\n")
        sys.stdout.flush()

    def command(self, number, name):
        out = self.arguments.out / name
        return [
            self.program,
            *MODEL,
            "--steps",
            self.arguments.steps,
            "--sync-every",
            20,
            "--log-every",
            20,
            "--elastic",
            f"127.0.0.1:{self.port}",
            "--worker",
            number,
            "--workers",
            self.arguments.workers,
            "--round-timeout",
            TIME_OUT_S,
            "--out",
            out,
            *self.arguments.options,
        ]

    def start(self, number, name):
        worker = Worker(number, self.command(number, name), self.show)
        self.children.append(worker.process)
        self.workers[number] = worker

    def wait_for_step(self, step):
        """Waits for worker 0."""
        while (
            self.workers[0].step < step
            and self.workers[0].process.poll() is None
            and not is_asked_to_stop()
        ):
            time.sleep(0.01)
        if is_asked_to_stop():
            sys.exit(130)

    def longest_pause_s(self, since_s):
        """The longest pause between two rounds of worker 0, around a moment."""
        times = self.workers[0].step_times
        pauses = [
            (b - a, a)
            for a, b in zip(times, times[1:])
            if a <= since_s + TIME_OUT_S and b >= since_s
        ]
        usual = sorted(b - a for a, b in zip(times, times[1:]))[len(times) // 2]
        return max(pauses)[0] if pauses else 0.0, usual

    def run(self):
        arguments, victim = self.arguments, self.arguments.kill
        for number in range(arguments.workers):
            self.start(number, str(number))
        self.show(f"{arguments.workers} workers and a lighthouse are started; a round is 20 steps")
        self.wait_for_step(arguments.steps // 4)
        killed_s = time.monotonic()
        self.workers[victim].process.kill()
        self.show(f"KILLED worker {victim}, at step {self.workers[0].step}")
        self.wait_for_step(arguments.steps // 2)
        self.show(
            f"STARTED worker {victim} again, with an empty folder, at step {self.workers[0].step}"
        )
        again = f"{victim}-again"
        self.start(victim, again)
        codes = [worker.wait() for worker in self.workers.values()]
        if is_asked_to_stop() or any(codes):
            return 130 if is_asked_to_stop() else 1
        pause_s, usual_s = self.longest_pause_s(killed_s)
        self.show(
            f"a round usually takes {usual_s:.2f} s; the one with the kill took {pause_s:.2f} s"
        )
        names = [again if number == victim else str(number) for number in range(arguments.workers)]
        reports = {
            name: json.loads((arguments.out / name / "report.json").read_text()) for name in names
        }
        for name, report in reports.items():
            print(
                f"  worker {name:8} {len(report['losses']):6} steps   loss {report['losses'][-1]:.3f}   "
                f"global parameters {report['param_hash']}"
            )
        is_equal = len({report["param_hash"] for report in reports.values()}) == 1
        print(
            "All have the same global parameters."
            if is_equal
            else "They do NOT have the same global parameters."
        )
        return 0 if is_equal else 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prog="./ladder demo failures",
        allow_abbrev=False,
    )
    parser.add_argument("--build", type=Path, default=BUILD, help="where the trainer is")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument(
        "--kill",
        type=int,
        default=1,
        metavar="WORKER",
        help="which one (default 1); not 0, which is watched",
    )
    parser.add_argument("--steps", type=int, default=3000, help="inner steps; a multiple of 20")
    parser.add_argument("--out", type=Path, help="default: a new folder under runs/")
    arguments, arguments.options = parser.parse_known_args()
    if arguments.workers < 2:
        parser.error(f"--workers is {arguments.workers}: one is killed, so there must be another")
    if not 0 < arguments.kill < arguments.workers:
        parser.error(
            f"--kill is {arguments.kill}: of workers 0 to {arguments.workers - 1}, it can kill those from 1 on"
        )
    arguments.out = arguments.out or ROOT / "runs" / time.strftime("demo-%Y%m%d-%H%M%S")
    hold_signals()
    demo = Demo(arguments)
    try:
        return demo.run()
    finally:
        end(demo.children)


if __name__ == "__main__":
    sys.exit(main())
