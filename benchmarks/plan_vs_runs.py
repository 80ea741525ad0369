#!/usr/bin/env python3
"""What ./ladder plan predicts beside what runs hold, send and take.

    ./ladder bench plan [--rounds 3]

Each configuration is planned, with a measurement of its own, and then trained for a few steps. The
planner measures step 3, with fewer layers and at full speed; so all of this is new to it. State and
bytes sent must agree exactly, on every rank; otherwise the exit code is 1. Other programs can only
make a step slower; so the time is the lower quartile of a run's steps, and of several rounds the
least, both where it ran and where it was planned. All errors are in the table, with the share of
the processors that others took.

    benchmarks/plan_vs_runs.py --self-test           checks the comparison on reports that it makes
"""

import os
import resource
import statistics
import sys
from pathlib import Path

from results import Progress, cpu_name, measured_s, results_parser
from launcher.accounts import bytes_sent
from launcher.plan import Planner, read_pair, size_text, time_text
from launcher.plan_steps import Candidate, Trainers
from launcher.steps import resolve_step
from launcher.tables import table_of

PROGRAMS = "rungs"
SHAPE = "--layers 6 --heads 4 --channels 128 --context 128"
WIDE = "--layers 5 --heads 4 --channels 192 --context 64 --model llama"
# Step, ranks, link ("" is bare MPI), the model, and more options.
CONFIGURATIONS = [
    ("step3", 2, "50:1", SHAPE, ""),
    ("step4", 2, "", SHAPE, ""),
    ("step4", 2, "50:0.5", SHAPE, "--bucket-mb 0.5"),
    ("step4", 4, "20:1", WIDE, "--bucket-mb 1"),
    ("step5", 2, "", WIDE, ""),
    ("step5", 4, "50:0.5", SHAPE, ""),
    ("step6", 2, "50:1", SHAPE, "--num-microbatches 2"),
    ("step6", 4, "", WIDE, ""),
    ("step7", 2, "", SHAPE, ""),
    ("step7", 2, "50:0.5", WIDE, "--prefetch 2"),
    ("step8", 2, "", SHAPE, "--num-microbatches 4"),
    ("step8", 2, "500:0.2", SHAPE, "--num-microbatches 6 --pipeline-schedule gpipe"),
    ("step8", 4, "50:1", WIDE, "--num-microbatches 4 --pipeline-stages 2"),
    ("step9", 2, "50:0.2", SHAPE, "--sync-every 4"),
]
STEPS = 16


def state_of(rank):
    return [rank[f"{name}_peak"] for name in ("parameters", "gradients", "optimizer")]


def is_exact(facts, report):
    """Whether all ranks hold at most what the plans say, and none sends more than the first
    replica's."""
    replicas = report["world_size"] // facts["stages"]  # of a stage, which are neighbors
    for index, memory in enumerate(report["memory"]):
        if state_of(memory) != list(facts["ranks"][index // replicas]["at_most"].values()):
            return False
    steps = len(report["losses"])
    for stage, rank in enumerate(facts["ranks"]):
        if max(map(bytes_sent, report["traffic"][stage * replicas :][:replicas])) * rank[
            "in_steps"
        ] != steps * bytes_sent(rank["sends"]):
            return False
    return True


def processor_seconds():
    """Seconds of all programs since the machine has started: idle, and busy; and of those that this
    one has started."""
    ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n")[0].split()[1:]]
    idle, own = ticks[3] + ticks[4], resource.getrusage(resource.RUSAGE_CHILDREN)
    return (
        idle / os.sysconf("SC_CLK_TCK"),
        (sum(ticks[:8]) - idle) / os.sysconf("SC_CLK_TCK"),
        own.ru_utime + own.ru_stime,
    )


def share_of_others(before, after):
    idle, busy, own = (b - a for a, b in zip(before, after))
    return max(0.0, busy - own) / (idle + busy)


def compare(trainers, configuration):
    """What was planned, what was measured."""
    name, ranks, link, shape, more = configuration
    step, words = resolve_step(name), (*shape.split(), *more.split(), "--steps", str(STEPS))
    before = processor_seconds()
    planner = Planner(trainers, ranks, words, read_pair(link) if link else None, here=ranks)
    planned = planner.plan(Candidate(step, ()))
    if planned.refusal:
        sys.exit(f"{name}: {planned.refusal}")
    report = trainers.train(step, ranks, [*words, *(["--link", link] if link else [])])
    facts = trainers.facts(step, ranks, words)
    return planned, {
        "others": share_of_others(before, processor_seconds()),
        "model": facts["config"]["model"],
        "exact": is_exact(facts, report),
        "activations": max(rank["activations_peak"] for rank in report["memory"]),
        "state": max(sum(state_of(rank)) for rank in report["memory"]),
        "seconds": measured_s(report, facts["config"].get("sync-every", 1)),
    }


def row_of(configuration, pairs):
    name, ranks, link, _, more = configuration
    planned_s, run_s = (
        min(planned.step_s for planned, _ in pairs),
        min(run["seconds"] for _, run in pairs),
    )
    planned, run = pairs[-1]
    return {
        "what": f"{name}, {ranks} ranks",
        "link": link,
        "model": run["model"],
        "options": f"`{more}`" if more else "",
        "state": size_text(planned.state_bytes),
        "exact": "yes" if all(run["exact"] for _, run in pairs) else "NO",
        "activations": f"{size_text(planned.working_bytes)} / {size_text(run['activations'])}",
        "planned": time_text(planned_s),
        "run": time_text(run_s),
        "error": planned_s / run_s - 1,
        "others": min(run["others"] for _, run in pairs),
    }


COLUMNS = {"": "{what}", "link": "{link}", "model": "{model}", "options": "{options}", "state": "{state}", "state and bytes exact": "{exact}",
           "on top, planned at most / activations held": "{activations}", "planned": "{planned}", "taken": "{run}", "error": "{error:+.0%}",
           "others": "{others:.0%}"}  # fmt: skip


def markdown(rows):
    errors = [abs(row["error"]) for row in rows]
    within = sum(error <= 0.1 for error in errors)
    return f"{table_of(rows, COLUMNS)}\n\nMedian error of the time: {statistics.median(errors):.0%}; {within} of {len(errors)} are within 10%.\n"


def self_test():
    sends = {"all_reduce": {"calls": 1, "bytes_sent": 40, "messages": 2}}
    stage = {
        "at_most": {"parameters": 8, "gradients": 8, "optimizer": 16},
        "sends": sends,
        "in_steps": 1,
    }
    facts = {"stages": 1, "ranks": [stage]}

    def report(gradients=8, bytes_sent=80):
        memory = {"parameters_peak": 8, "gradients_peak": gradients, "optimizer_peak": 16}
        return {
            "world_size": 2,
            "memory": [memory, memory],
            "losses": [0, 0],
            "traffic": [{"all_reduce": {"bytes_sent": b}} for b in (bytes_sent, 78)],
        }

    cases = [
        (report(), True),
        (report(gradients=9), False),
        (report(bytes_sent=81), False),
        (report(bytes_sent=79), False),
    ]
    for made, wanted in cases:
        assert is_exact(facts, made) == wanted, made
    assert (
        measured_s({"step_seconds": [0, 1, 3, 2]}, 1) == 1
        and measured_s({"step_seconds": [0, 0, 1, 3]}, 2) == 2
    )
    assert share_of_others((0, 0, 0), (2, 6, 4)) == 0.25
    print(f"self-test: {len(cases) + 3} cases are right")


def main():
    parser = results_parser("plan", __doc__, self_test, has_folder=False)
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="of planning and training, of which the fastest counts",
    )
    parser.add_argument("--only", default="", help="only configurations whose step begins so")
    arguments = parser.parse_args()
    trainers, chosen = (
        Trainers(arguments.build),
        [c for c in CONFIGURATIONS if c[0].startswith(arguments.only)],
    )
    pairs = {configuration: [] for configuration in chosen}
    with Progress(arguments.rounds * len(chosen)) as progress:
        for configuration in arguments.rounds * chosen:
            pairs[configuration].append(compare(trainers, configuration))
            planned, run = pairs[configuration][-1]
            times = f"planned {time_text(planned.step_s)}, taken {time_text(run['seconds'])}"
            progress.add(" ".join(map(str, (*configuration, times))))
    rows = [row_of(configuration, found) for configuration, found in pairs.items() if found]
    print(f"{markdown(rows)}\nMeasured on {cpu_name()}, {arguments.rounds} round(s).\n")
    progress.finish()
    return 0 if all(row["exact"] == "yes" for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
