#!/usr/bin/env python3
"""How long step 9's workers wait for an average: as one simulated worker does, and by the formula.

    ./ladder bench rounds [--link 100:0.1] [--workers 4] [--timeline FILE.svg] [options of a trainer]
    benchmarks/rounds_vs_formula.py --self-test      made-up runs

An average that starts some inner steps before its round ends is waited for as long as its transfer
takes beyond them: max(0, transfer - delay · step) a round. The worker trains by itself: the link is
theory's, its time to compute is that of the thread (common/comm/simulated/simulated_communicator.hpp).
The formula takes from it only how long its steps compute, and from --dry-run what an average sends.
Hidden is the share of the transfers' time for which the worker did not wait. Exit code 1 if it
waited longer or shorter than by the formula, by more than a twentieth of that time. FILE shows the
runs on one axis.
"""

import json
import sys
from html import escape
from typing import NamedTuple

from results import Progress, results_parser
from draw_trace import LEFT, RIGHT, STYLE, WIDTH, Drawing
from launcher.checkout import write_or_fail
from launcher.console import count_from, new_file, read_link
from launcher.figures import page, swatches
from launcher.launch import run_all, train
from launcher.steps import resolve_step, trainer_in
from launcher.tables import table_of

PROGRAMS = "step9_diloco"
RUNS = {
    "one fragment": "",
    "four fragments": "--fragments 4",
    "four fragments, delay 1": "--fragments 4 --sync-delay 1",
    "four fragments, delay 3": "--fragments 4 --sync-delay 3",
}
SHARE = 0.05  # of the transfers' time, by which a run may differ from the formula
COLUMNS = {
    "": "{name}",
    "seconds": "{seconds:.3f}",
    "by the formula": "{by_formula:.3f}",
    "waited, s": "{waited:.3f}",
    "hidden": "{hidden:.0%}",
}


class Range(NamedTuple):
    """Of time, in seconds since the run's begin."""

    begin: float
    end: float


class Flight(NamedTuple):
    """Of an average."""

    fragment: int
    start: float
    awaited: float  # training stops
    end: float


class Worker(NamedTuple):
    """What it did: its inner steps without the waits after them, and its averages."""

    steps: list
    flights: list
    seconds: float

    def waited(self):
        return sum(flight.end - flight.awaited for flight in self.flights)

    def delayed(self):
        """How long it computes while an average travels: the mean over the averages."""
        seconds = [
            step.end - step.begin
            for flight in self.flights
            for step in self.steps
            if flight.start <= step.begin < flight.end
        ]
        return sum(seconds) / len(self.flights)


def worker_of(report):
    config, steps, ends = report["config"], [], [0.0]
    for seconds, waiting in zip(report["step_seconds"], report["simulation"]["waiting_seconds"]):
        steps.append(Range(ends[-1], ends[-1] + seconds - waiting))
        ends.append(ends[-1] + seconds)
    num_fragments, delay = config["fragments"], config["sync-delay"]
    length, flights = config["sync-every"] // num_fragments, []
    for last in range(length, len(steps) + 1, length):
        awaited = steps[last - 1].end
        start = ends[last - delay] if delay else awaited
        flights.append(Flight(len(flights) % num_fragments, start, awaited, ends[last]))
    return Worker(steps, flights, ends[-1])


def link_seconds(link, use):
    """As --link paces it: each round of messages takes its microseconds."""
    latency_us, gbit_per_s = link
    return use["rounds"] * latency_us * 1e-6 + use["bytes"] * 8e-9 / gbit_per_s


def transfers_of(facts, link):
    """[(seconds, how often)] of the averages, by what the worker says that it sends."""
    return [
        (link_seconds(link, send["inside"]), send["times"])
        for send in facts["ranks"][0]["plan"]
        if send["wait"] == "for_steps"
    ]


def row_of(name, worker, transfers):
    by_formula = sum(times * max(0, seconds - worker.delayed()) for seconds, times in transfers)
    travelled, waited = sum(times * seconds for seconds, times in transfers), worker.waited()
    return {
        "name": name,
        "seconds": worker.seconds,
        "by_formula": worker.seconds - waited + by_formula,
        "waited": waited,
        "hidden": 1 - waited / travelled,
        "is_right": abs(waited - by_formula) <= SHARE * travelled,
    }


def simulate(arguments, name):
    """A row of the table, and what the worker did."""
    program = trainer_in(arguments.build, resolve_step("step9"))
    words = ["--steps", arguments.steps, *RUNS[name].split(), *arguments.options]
    facts = json.loads(run_all([[program, *words, "--dry-run", arguments.workers, "--json"]])[0])
    world = ["--transport", "simulated", "--ranks", arguments.workers, "--rank", 0]
    worker = worker_of(train(program, 1, [*words, *world, "--link", arguments.link]))
    return row_of(name, worker, transfers_of(facts, read_link(arguments.link))), worker


# ---- the figure ---------------------------------------------------------------------------------------


STRIP = 112  # of a run, from one to the next
DARK = "\n    .waiting { fill: #b4690e; }"
LEGEND = {
    "forward": "inner step",
    "wire": "average in flight, with its fragment's number",
    "waiting": "the worker waits for it",
}
ABOUT = "Drawn by ./ladder bench rounds --timeline: a worker's inner steps, and below them its averages."


def draw(workers, title):
    """{name: worker}, on one axis."""
    longest = max(worker.seconds for worker in workers.values())
    drawing, y = Drawing(0, longest, longest), 74
    for name, worker in workers.items():
        waits = f"{worker.seconds:.2f} s, of it {worker.waited():.2f} s of waiting"
        drawing.text(28, y, f"{name}: {waits}", "strong")
        drawing.text(28, y + 30, "steps")
        drawing.text(28, y + 59, "averages")
        for step in worker.steps:
            drawing.box(step, y + 12, 26, "forward")
        for flight in worker.flights:
            drawing.box(Range(flight.start, flight.awaited), y + 44, 20, "wire")
            drawing.box(Range(flight.awaited, flight.end), y + 44, 20, "waiting")
            middle = (drawing.x(flight.start) + drawing.x(flight.end)) / 2
            drawing.text(f"{middle:.1f}", y + 82, str(flight.fragment), "small middle")
        y += STRIP
    rows = [[(f'class="{kind}"', name, False) for kind, name in LEGEND.items()]]
    shapes, height = swatches(rows, LEFT, RIGHT, y - 14, 9.6)
    drawing.text(28, 34, title, "strong")
    return page(WIDTH, y + height, escape(title), [*drawing.shapes, *shapes], STYLE + DARK, ABOUT)


# ---- made-up runs -------------------------------------------------------------------------------------


def self_test():
    """Rounds of two steps of 3 s, after which an average of 4 s is waited for; and with a delay of
    one step, the rest."""
    link, sends = (1e6, 8), {"inside": {"rounds": 2, "bytes": 2 * 10**9}, "times": 2}
    plan = [{**sends, "wait": "for_steps"}, {**sends, "wait": "at_once"}]
    transfers = transfers_of({"ranks": [{"plan": plan}]}, link)
    assert transfers == [(4, 2)], transfers

    def made(delay, wait):
        waits = [0, wait, 0, wait]
        return worker_of(
            {
                "config": {"sync-every": 4, "fragments": 2, "sync-delay": delay},
                "step_seconds": [3 + waiting for waiting in waits],
                "simulation": {"waiting_seconds": waits},
            }
        )

    late, early = made(0, 4), made(1, 1)
    assert late.flights == [Flight(0, 6, 6, 10), Flight(1, 16, 16, 20)], late.flights
    assert early.flights == [Flight(0, 3, 6, 7), Flight(1, 10, 13, 14)], early.flights
    rows = [row_of("", worker, transfers) for worker in (late, early, made(1, 4), made(1, 0))]
    found = [(row["seconds"], row["by_formula"], row["hidden"], row["is_right"]) for row in rows]
    wanted = [(20, 20, 0, True), (14, 14, 0.75, True), (20, 14, 0, False), (12, 14, 1, False)]
    assert found == wanted, found
    drawing = draw({"late": late, "early": early}, "made up")
    for text in ("late: 20.00 s, of it 8.00 s of waiting", "early: 14.00 s, of it 2.00 s"):
        assert text in drawing, text
    counts = [drawing.count(f'class="{kind}"') for kind in LEGEND]
    assert counts == [8 + 1, 2 + 1, 4 + 1], counts  # each once more in the legend
    print("the waits of made-up runs are right")


def main():
    parser = results_parser("rounds", __doc__, self_test, has_folder=False)
    parser.add_argument(
        "--link",
        type=lambda text: read_link(text) and text,
        default="100:0.1",
        help="LATENCY_US:GBPS; by default 100 Mbit/s",
    )
    parser.add_argument("--workers", type=count_from(2, 1024), default=4)
    parser.add_argument("--steps", type=count_from(20, 10**6), default=40, help="inner steps")
    parser.add_argument("--timeline", type=new_file, metavar="FILE", help="draw the runs, as SVG")
    arguments, arguments.options = parser.parse_known_args()
    rows, workers = [], {}
    with Progress(len(RUNS)) as progress:
        for name in RUNS:
            row, workers[name] = simulate(arguments, name)
            rows.append(row)
            progress.add(f"{name}: {row['seconds']:.3f} s, by the formula {row['by_formula']:.3f}")
    title = f"One of {arguments.workers} workers, simulated, on a link of {arguments.link} (µs : Gbit/s)"
    print(
        f"{title}, {arguments.steps} inner steps\n\n{table_of(rows, COLUMNS, numbers_right=True)}"
    )
    progress.finish()
    if arguments.timeline:
        write_or_fail(arguments.timeline, draw(workers, title))
        print(f"\nwrote {arguments.timeline}")
    wrong = [row["name"] for row in rows if not row["is_right"]]
    if wrong:
        print(f"not as long as by the formula: {'; '.join(wrong)}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
