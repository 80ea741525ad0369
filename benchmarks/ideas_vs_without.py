#!/usr/bin/env python3
"""What the idea of each step buys: the time of an optimizer step with the idea and without it, over
one simulated link.

    ./ladder bench ideas [--link 50:1] [--rounds 4] [--write] [options of a trainer]      --write: docs/results.md
    benchmarks/ideas_vs_without.py --self-test       each lesson quotes the table's figures

Trains the same rows with each program once a round, on two ranks but for step 0. Other programs can
only make a step slower; so the time is the lower quartile of a run's steps, or of step 9's averages
and the steps before them; of several rounds the median. The link sends while the processors
compute, as a network card does (common/comm/paced_communicator.hpp).
"""

import os
import statistics
import sys

from results import ROOT, Progress, cpu_name, measured_s, results_parser, write
from launcher.launch import train
from launcher.steps import resolve_step, trainer_in
from launcher.tables import cells_of, replaced, table

PROGRAMS = "rungs"
PAGE = ROOT / "docs/results.md"
ROUND = 5  # inner steps of step 9
AVERAGES = f"--sync-every {ROUND} --sync-delay"
# The idea; without it, with it: a step and its options.
IDEAS = [
    ("two ranks share the rows", "step0 --num-microbatches 2", "step1"),
    ("an all-reduce for each tensor", "step1", "step3"),
    ("buckets, sent while backward runs", "step3", "step4 --bucket-mb 0.5"),
    ("ZeRO-1: half the optimizer state", "step4 --bucket-mb 0.5", "step5"),
    ("ZeRO-2: half the gradients, too", "step5", "step6"),
    ("ZeRO-3: half the parameters, too", "step6", "step7 --prefetch 0"),
    ("prefetch", "step7 --prefetch 0", "step7 --prefetch 1"),
    (f"averages every {ROUND} steps only", "step4 --bucket-mb 0.5", f"step9 {AVERAGES} 0"),
    ("a delay of one step", f"step9 {AVERAGES} 0", f"step9 {AVERAGES} 1"),
]


def measure(arguments, run):
    """Seconds of an optimizer step."""
    name, *options = run.split()
    ranks, length = 1 if name == "step0" else 2, ROUND if name == "step9" else 1
    words = [
        "--steps",
        arguments.steps,
        *(["--link", arguments.link] if ranks > 1 else []),
        *options,
        *arguments.options,
    ]
    return measured_s(train(trainer_in(arguments.build, resolve_step(name)), ranks, words), length)


def markdown(ms):
    """A table of the milliseconds of these runs, round by round; of ideas of which both were
    measured."""
    lines = [
        ["the idea", "without it", "ms a step", "with it", "ms a step, with it", "it buys, ms"]
    ]
    for idea, *pair in [idea for idea in IDEAS if ms.keys() >= set(idea[1:])]:
        without, having = (round(statistics.median(ms[run])) for run in pair)
        lines.append(
            [
                idea,
                f"`{pair[0]}`",
                str(without),
                f"`{pair[1]}`",
                str(having),
                str(without - having).replace("-", "−"),
            ]
        )
    return table(lines, numbers_right=True)


def self_test():
    """A table of made-up times; and the lessons beside the table of the page."""
    runs = list(dict.fromkeys(run for _, *pair in IDEAS for run in pair))
    made = markdown({run: [9 + i, 10.4 + i, 50] for i, run in enumerate(runs)}).splitlines()
    assert made[2].split("|")[2:-1] != made[3].split("|")[2:-1] and made[2].rstrip(" |").endswith(
        "−1"
    ), made[2]
    table_of_page = cells_of(PAGE.read_text(), "ideas")
    assert list(table_of_page) == [idea for idea, *_ in IDEAS], list(table_of_page)
    for _, _, without_ms, having, having_ms, _ in map(dict.values, table_of_page.values()):
        step = having.strip("`").split()[0]
        lesson = " ".join(next(ROOT.glob(f"{step}_*/README.md")).read_text().split())
        assert f"{without_ms} ms" in lesson and f"{having_ms} ms" in lesson, (
            f"{step}'s lesson lacks {without_ms} ms or {having_ms} ms"
        )
    print(f"{len(table_of_page)} ideas, as in their lessons")


def main():
    parser = results_parser("ideas", __doc__, self_test, has_folder=False)
    parser.add_argument("--link", default="50:1", help="LATENCY_US:GBPS")
    parser.add_argument("--steps", type=int, default=20, help=f"of a run; a multiple of {ROUND}")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--write", action="store_true", help="docs/results.md")
    arguments, arguments.options = parser.parse_known_args()
    if arguments.steps < 2 * ROUND or arguments.steps % ROUND or arguments.rounds < 1:
        parser.error(
            f"--steps must be a multiple of {ROUND}, at least {2 * ROUND}; --rounds at least 1"
        )
    runs, ms = list(dict.fromkeys(run for _, *pair in IDEAS for run in pair)), {}
    load = os.getloadavg()[0]
    with Progress(arguments.rounds * len(runs)) as progress:
        for run in arguments.rounds * runs:
            taken = 1e3 * measure(arguments, run)
            ms.setdefault(run, []).append(taken)
            progress.add(f"{run}: {taken:.1f} ms a step")
    about = f"Link {arguments.link} (µs : Gbit/s), {cpu_name()}; medians of {arguments.rounds} rounds. Load before: {load:.1f}."
    text = f"{markdown(ms)}\n\n{about}"
    print(text)
    progress.finish()
    if arguments.write:
        write(PAGE, replaced(PAGE.read_text(), "ideas", text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
