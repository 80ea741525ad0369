#!/usr/bin/env python3
"""How much of its communication each step hides behind computing, over one simulated link.

    ./ladder bench overlap [--link 50:1 | --link off] [--ranks 2] [--rounds 4] [options of a trainer]
    benchmarks/overlap_vs_waiting.py --check         trains step 4, which must hide half of what it
                                                     can, and what must hide nothing; a test runs it
    benchmarks/overlap_vs_waiting.py --self-test     reads made-up traces

Trains with each program once a round, with --trace. Each optimizer step after the first is
accounted as ./ladder trace does, on each rank; a figure is the median of all.

    computing   the rank was not blocked in a wait()
    in flight   something that it sends or receives has begun, and is not known to be done
    hidden      the share of the time in flight in which the rank did not wait

The last column compares the time of a step with the first row's, round by round. The link sends
while the processors compute, as a network card does (common/comm/paced_communicator.hpp). Without
one the processors copy the messages, and a rank that copies does not wait: only the time of a step
says what was gained. On GPUs (--device cuda, without a link) neither does the host wait for what it
has queued.
"""

import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from results import Progress, cpu_name, results_parser
from launcher.console import count_from, option_of
from launcher.launch import train
from launcher.steps import resolve_step, trainer_in
from launcher.tables import table_of
from read_trace import account, length, measured_steps, read_trace

PROGRAMS = "rungs"
MODEL = "--layers 6 --heads 6 --channels 384 --context 256 --micro-batch-size 2".split()
ROUND = 2  # inner steps of step 9: its average leaves after one, and travels during the next
RUNS = [
    "step1",
    "step3",
    *(f"step4 --bucket-mb {capacity}" for capacity in ("0.0625", "0.25", "1", "4", "25")),
    "step5",
    "step6",
    *(f"step7 --prefetch {units}" for units in (0, 1, 2)),
    f"step9 --sync-every {ROUND} --sync-delay 1",
]
COLUMNS = {
    "": "`{run}`",
    "operations a step": "{operations:g}",
    "computing, ms": "{computing_ms:.1f}",
    "in flight, ms": "{in_flight_ms:.1f}",
    "ms a step": "{step_ms:.1f}",
    "hidden": "{hidden:.0%}",
    "times as fast as the first": "{times:.2f}",
}


class Figures(NamedTuple):
    """Of an optimizer step."""

    operations: float
    computing_ms: float
    in_flight_ms: float
    step_ms: float
    hidden: float
    backward_ms: float

    def hidden_of_possible(self):
        """What the rank hid, of what it could: no longer than the shorter of backward and
        communication."""
        return self.hidden * self.in_flight_ms / min(self.in_flight_ms, self.backward_ms)


def figures_of(trace, run):
    """One for each rank and step; of step 9, which does not send in each step, for each round."""
    size, steps = ROUND if run.startswith("step9") else 1, measured_steps(trace)
    groups = [range(n, n + size) for n in steps if n % size == 1 % size and n + size - 1 in steps]
    return [figures_of_group(rank, group) for rank in trace.ranks for group in groups]


def figures_of_group(rank, steps):
    own = account(rank, steps)
    begin, end = rank.step(steps[0]).begin, rank.step(steps[-1]).end
    backward = [span for span in rank.named("backward") if begin <= span.begin < end]
    return Figures(
        operations=sum(begin <= one.begin < end for one in rank.operations) / len(steps),
        computing_ms=(1 - own.waiting) * own.step_us / 1e3,
        in_flight_ms=own.in_flight * own.step_us / 1e3,
        step_ms=own.step_us / 1e3,
        hidden=own.hidden or 0.0,
        backward_ms=sum(span.end - span.begin for span in backward) / len(steps) / 1e3,
    )


def median_of(figures):
    """Of each figure."""
    return Figures(*map(statistics.median, zip(*figures)))


def traced(arguments, run, options):
    """The trace of a run."""
    name, *own = run.split()
    with tempfile.TemporaryDirectory(prefix="ladder-overlap-") as folder:
        file = Path(folder, "trace.json")
        words = ["--steps", arguments.steps, *own, *options, "--trace", file]
        train(trainer_in(arguments.build, resolve_step(name)), arguments.ranks, words)
        return read_trace(file)


def markdown(found):
    """{run: [the figures of each round]}; the first one is what the others are compared with."""
    first = [median_of(of_round).step_ms for of_round in next(iter(found.values()))]
    rows = []
    for run, rounds in found.items():
        times = [ms / median_of(of_round).step_ms for ms, of_round in zip(first, rounds)]
        every = median_of([one for of_round in rounds for one in of_round])
        rows.append({"run": run, "times": statistics.median(times), **every._asdict()})
    return table_of(rows, COLUMNS, numbers_right=True)


# ---- what must be hidden, and what must not --------------------------------------------------------


CHECK_MODEL = ["--micro-batch-size", "8"]
ATTEMPTS = 3  # other programs may disturb one
# A run, and the least and the most that it may hide, of what is possible.
PROMISES = [
    ("step4 --bucket-mb 0.0625", 0.5, 1.1),
    ("step3", 0, 0.1),
    ("step4 --bucket-mb 1000", 0, 0.1),  # one bucket, which is ready when backward ends
]


def link_like_backward(trace):
    """It needs as long for what this run sends as the run for a backward."""
    step = median_of(figures_of(trace, "step3"))
    sent = statistics.median(
        account(rank, measured_steps(trace)).sent_bytes for rank in trace.ranks
    )
    return f"0:{8e-6 * sent / step.backward_ms:.6f}"


def faults_of(found):
    """Lines on the promises that {run: figures} breaks."""
    return [
        f"{run} hides {found[run].hidden_of_possible():.0%} of what is possible, wanted: {least:.0%} to {most:.0%}"
        for run, least, most in PROMISES
        if not least <= found[run].hidden_of_possible() <= most
    ]


def check(arguments):
    """The exit code. An attempt counts if it keeps all promises."""
    for attempt in range(ATTEMPTS):
        link = link_like_backward(traced(arguments, "step3", CHECK_MODEL))
        options = [*CHECK_MODEL, "--link", link]
        found = {
            run: median_of(figures_of(traced(arguments, run, options), run)) for run, *_ in PROMISES
        }
        print(f"attempt {attempt + 1}, link {link}:\n")
        print(markdown({run: [[figures]] for run, figures in found.items()}), flush=True)
        if not (faults := faults_of(found)):
            return 0
        print("\n".join(faults), file=sys.stderr)
    return 1


# ---- made-up traces -----------------------------------------------------------------------------------


def self_test():
    """Steps of 100 ms, whose backward is from 20 to 60; something is in flight from 50 to 90, and
    the rank waits from 60 on."""
    import json

    from show_trace import made_trace

    bucket = {"kind": "all_reduce", "label": "bucket 0", "sent_bytes": 5000}
    spans, waits, operations = [], [], []
    for number in (1, 2, 3, 4):
        at = number * 1e5
        spans.append((at, at + 1e5, "step", {"step": number}))
        spans.append((at + 2e4, at + 6e4, "backward", {}))
        if number % 2 == 0:
            operations.append((at + 5e4, at + 9e4, "all_reduce", bucket))
            waits.append((at + 6e4, at + 9e4, "wait", bucket))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        content = made_trace({"span": spans, "wait": waits, "operation": operations})
        file.write_text(json.dumps(content))
        trace = read_trace(file)
    each, of_rounds = figures_of(trace, "step4"), figures_of(trace, "step9")
    sending = Figures(1, 70, 40, 100, 0.25, 40)
    assert [*map(rounded, each)] == 2 * [sending, Figures(0, 100, 0, 100, 0, 40), sending], each
    assert [*map(rounded, of_rounds)] == 2 * [Figures(0.5, 85, 20, 100, 0.25, 40)], of_rounds
    link = link_like_backward(trace)  # 5 kB in two of three steps, a backward of 40 ms
    assert link == f"0:{8 * 5000 * 2 / 3 / 40e-3 / 1e9:.6f}", link
    slow, fast = sending._replace(step_ms=150), sending._replace(hidden=0.5)
    lines = markdown({"step1": [[slow], [slow]], "step3": [[sending], [fast]]}).splitlines()
    cells = [cell.strip() for cell in lines[3].split("|")[1:-1]]
    assert cells == ["`step3`", "1", "70.0", "40.0", "100.0", "38%", "1.50"], cells
    runs = [run for run, *_ in PROMISES]
    hides, waits = sending._replace(hidden=0.5), sending._replace(hidden=0.05)
    assert not faults_of(dict(zip(runs, [hides, waits, waits])))
    assert len(faults_of(dict(zip(runs, [sending, sending, waits])))) == 2
    assert sending._replace(in_flight_ms=80).hidden_of_possible() == 0.5
    print("the figures of made-up traces are right")


def rounded(figures):
    return Figures(*(round(value, 9) for value in figures))


def main():
    parser = results_parser("overlap", __doc__, self_test, has_folder=False)
    parser.add_argument("--link", help="LATENCY_US:GBPS, or off; on the CPU 50:1 if not given")
    parser.add_argument("--ranks", type=count_from(2, 9999), default=2)
    parser.add_argument(
        "--steps", type=count_from(2 * ROUND, 10**6), default=10, help=f"of a run, {ROUND} warm up"
    )
    parser.add_argument("--rounds", type=count_from(1, 10**6), default=4)
    parser.add_argument("--check", action="store_true", help="see above")
    arguments, options = parser.parse_known_args()
    if arguments.steps % ROUND:
        parser.error(f"--steps {arguments.steps} must be a multiple of {ROUND}")
    if arguments.check:
        return check(arguments)
    is_on_gpu = option_of(options, "device") == "cuda"
    if is_on_gpu and arguments.link not in (None, "off"):
        parser.error(f"--link {arguments.link} slows messages of the CPU down: leave it out")
    link = arguments.link or ("off" if is_on_gpu else "50:1")
    options = [*MODEL, *([] if link == "off" else ["--link", link]), *options]
    found = defaultdict(list)
    with Progress(arguments.rounds * len(RUNS)) as progress:
        for run in arguments.rounds * RUNS:
            found[run].append(figures_of(traced(arguments, run, options), run))
            progress.add(f"{run}: {median_of(found[run][-1]).step_ms:.1f} ms a step")
    print(markdown(found))
    print(
        f"\n--link {link}, {arguments.ranks} ranks, {cpu_name()}; medians of {arguments.rounds} rounds."
    )
    progress.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
