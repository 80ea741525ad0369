#!/usr/bin/env python3
"""DiLoCo beside data parallelism: what it learns from the same tokens, and how long both take on a
slow link.

    ./ladder bench diloco [--workers 4] [--steps 2000] [--link 100:0.1] [--out FOLDER] [options of a trainer]

Trains step 4, in buckets small enough to overlap, and variants of step 9 on the same rows of the
built-in corpus, over a simulated link (LATENCY_US:GBPS). Prints for each the validation loss, the
bytes that a worker sends per inner step, the time of all steps, and how many times as long step 4
takes: for as many steps, and to the same validation loss. Other programs can only make a step
slower, so the time of a step is the lower quartile of the rounds'. Writes these and every
validation loss to FOLDER/diloco.json and draws FOLDER/diloco.svg. Exit code 1 if a variant's final
validation loss is further above step 4's than --within allows.

    benchmarks/diloco_vs_ddp.py --self-test       checks the arithmetic and the bound on reports that it makes
Standard library only.
"""

import itertools
import math
import sys

from results import Progress, measured_s, result_folder, results_parser, write_results
from launcher.accounts import bytes_sent
from launcher.figures import Curve, Plot, chart, halves
from launcher.launch import train
from launcher.steps import trainer_in
from launcher.tables import table_of

PROGRAMS = "step4_bucketed_ddp step9_diloco"
# Name, what the figure calls it, its colour, its program, and its own options.
OUTER = ["--outer-lr", "0.7", "--outer-momentum", "0.5"]
RUNS = [
    ("step 4", "every step, in buckets", "#222222", "step4_bucketed_ddp", ["--bucket-mb", "0.1"]),
    ("step 9", "every 20 steps", "#4477aa", "step9_diloco", ["--sync-every", "20", *OUTER]),
    ("step 9, streaming", "four fragments in turn, one step of delay", "#ee6677", "step9_diloco",
     ["--sync-every", "20", "--fragments", "4", "--sync-delay", "1", "--alpha", "0.5", *OUTER]),
    ("step 9, int8", "every 20 steps, in a quarter of the bytes", "#228833", "step9_diloco",
     ["--sync-every", "20", "--wire", "int8", *OUTER]),
]  # fmt: skip
MODEL = [
    "--layers",
    "2",
    "--heads",
    "4",
    "--channels",
    "64",
    "--context",
    "64",
    "--lr",
    "6e-3",
    "--warmup-steps",
    "50",
]
ROUND = 20  # steps
ROWS = 16  # per step, of all workers


def row_of(name, report):
    """A run's figures."""
    step_s, sent = measured_s(report, ROUND), max(map(bytes_sent, report["traffic"]))
    return {
        "name": name,
        "steps": len(report["losses"]),
        "val_loss": report["val_losses"][-1]["loss"],
        "bytes_per_step": sent / len(report["losses"]),
        "seconds": step_s * len(report["losses"]),
        "curve": [
            [point["step"], step_s * point["step"], point["loss"]] for point in report["val_losses"]
        ],
    }


def seconds_until(loss, curve):
    """When a run reaches this validation loss, between two evaluations; NaN if it never does."""
    for (_, before_s, before), (_, after_s, after) in itertools.pairwise(
        [[0, 0, float("inf")], *curve]
    ):
        if after <= loss:
            return (
                after_s
                if before == float("inf")
                else before_s + (after_s - before_s) * (before - loss) / (before - after)
            )
    return float("nan")


def faults_of(rows, within):
    """One line for each run that has learned too little."""
    wanted = rows[0]["val_loss"] + within
    return [
        f"{row['name']}: validation loss {row['val_loss']:.4f}, more than {within} above {rows[0]['name']}'s"
        for row in rows[1:]
        if not row["val_loss"] <= wanted
    ]


COLUMNS = {
    "": "{name}",
    "validation loss": "{val_loss:.3f}",
    "above step 4": "{above:+.3f}",
    "bytes sent per step": "{bytes_per_step:,.0f}",
    "seconds": "{seconds:.1f}",
    "times as fast: equal steps": "{times:.2f}",
    "to the same loss": "{times_to_loss:.2f}",
}


def markdown(rows):
    first, cells = rows[0], []
    for row in rows:
        until_s = seconds_until(row["val_loss"], first["curve"])
        cells.append(
            {
                "above": row["val_loss"] - first["val_loss"],
                "times": first["seconds"] / row["seconds"],
                "times_to_loss": until_s / row["seconds"],
            }
            | row
        )
    return table_of(cells, COLUMNS)


def svg(rows, link):
    """Validation loss over steps, and over seconds on the link."""
    plots = []
    for index, below in enumerate(["inner steps", f"seconds on a link of {link}"]):
        curves = [
            Curve(
                f"{row['name']}: {what}",
                colour,
                [(point[index], point[2]) for point in row["curve"]],
            )
            for row, (_, what, colour, *_) in zip(rows, RUNS)
        ]
        plots.append(Plot("validation loss, nats per token", curves, below, halves(curves)))
    return chart("Validation loss of step 4 and step 9, over steps and over time", plots)


def train_on_all(arguments, program, options):
    """Runs one trainer on all workers; returns its report."""
    words = [
        *MODEL,
        "--micro-batch-size",
        ROWS // arguments.workers,
        "--steps",
        arguments.steps,
        "--eval-every",
        arguments.eval_every,
        "--eval-samples",
        64,
        "--link",
        arguments.link,
        *options,
        *arguments.options,
    ]
    return train(trainer_in(arguments.build, program), arguments.workers, words)


def parse_arguments():
    parser = results_parser("diloco", __doc__, self_test)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=2000, help="inner steps; a multiple of 20")
    parser.add_argument("--eval-every", type=int, default=100)
    parser.add_argument("--link", default="100:0.1", help="LATENCY_US:GBPS; by default 100 Mbit/s")
    parser.add_argument(
        "--within", type=float, default=0.15, help="nats that a variant may end above step 4"
    )
    arguments, arguments.options = parser.parse_known_args()
    if arguments.workers < 1 or ROWS % arguments.workers != 0:
        parser.error(
            f"--workers is {arguments.workers}, which does not divide the {ROWS} rows of a step: choose 1, 2, 4, 8 or 16"
        )
    return arguments


def main():
    arguments = parse_arguments()
    out = result_folder("diloco", arguments.out)
    rows = []
    with Progress(len(RUNS)) as progress:
        for name, what, _, program, options in RUNS:
            rows.append(row_of(name, train_on_all(arguments, program, options)))
            progress.add(
                f"{name}: {what}: validation loss {rows[-1]['val_loss']:.3f} after {rows[-1]['seconds']:.1f} s"
            )
    print(
        f"{arguments.workers} workers, {arguments.steps} inner steps, link {arguments.link} (us : Gbit/s)\n"
    )
    print(markdown(rows))
    progress.finish()
    drawing = svg(rows, f"{float(arguments.link.split(':')[1]) * 1000:g} Mbit/s")
    content = {"link": arguments.link, "workers": arguments.workers, "runs": rows}
    return write_results(out / "diloco", content, drawing, faults_of(rows, arguments.within))


def self_test():
    report = {
        "losses": [3.0, 2.0, 1.0, 1.0],
        "step_seconds": [1.0, 0.5, 0.5, 2.0],
        "val_losses": [{"step": 2, "loss": 2.5}, {"step": 4, "loss": 1.5}],
        "traffic": [
            {"all_reduce": {"bytes_sent": 40}, "send": {"bytes_sent": 4}},
            {"all_reduce": {"bytes_sent": 80}},
        ],
    }
    row = row_of("step 4", report)
    assert row["curve"] == [[2, 2.0, 2.5], [4, 4.0, 1.5]], row
    assert (row["bytes_per_step"], row["seconds"], row["val_loss"]) == (20.0, 4.0, 1.5), row
    assert seconds_until(2.5, row["curve"]) == 2 and seconds_until(2, row["curve"]) == 3, row
    assert math.isnan(seconds_until(1, row["curve"]))
    near, far, lost = (
        row | {"val_loss": 1.6},
        row | {"val_loss": 1.7},
        row | {"val_loss": float("nan")},
    )
    assert not faults_of([row, near], 0.15)
    assert len(faults_of([row, near, far, lost], 0.15)) == 2
    assert svg([row, near, far], "1").count("<polyline") == 6
    print("10 checks passed")


if __name__ == "__main__":
    sys.exit(main())
