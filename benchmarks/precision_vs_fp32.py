#!/usr/bin/env python3
"""16 bits beside fp32: what a small model learns in each format, what it holds, and what a sum in
16 bits costs.

    ./ladder bench precision [--steps 1000] [--out FOLDER] [--write] [options of a trainer]
    benchmarks/precision_vs_fp32.py --self-test       the arithmetic and the bound on made-up reports; the chapter against its tables

Trains step 0 from one seed on the same rows of the built-in corpus in nine variants, and prints for
each the bytes it holds per parameter, the validation loss and its distance from fp32's. Then it takes one gradient of the same 64 rows on
several numbers of ranks, and one in fp16 with and without a loss scale, and prints how far 16-bit
gradients are from fp32 ones. Writes FOLDER/precision.json and precision.svg; with --write, also the
figure and the tables of step 0's chapter on precision. Exit code 1 if a variant with masters and
fp32 gradients ends further from fp32 than --within allows, or if a sentence of that chapter has
another figure than its table. Standard library only.
"""

import array
import json
import math
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from results import ROOT, Progress, cpu_name, result_folder, results_parser, write, write_results
import tensor_files
from compare_runs import relative_distance
from launcher.accounts import HELD
from launcher.console import count_from
from launcher.figures import Curve, Plot, chart, halves
from launcher.launch import run_all
from launcher.tables import cells_of, replaced, table_of

CHAPTER = ROOT / "step0_single_gpu/precision"
MODEL = ["--layers", "2", "--heads", "4", "--channels", "64", "--context", "64"]
SCHEDULE = ["--lr", "1e-3", "--warmup-steps", "50"]
ON_ONE = ["--micro-batch-size", "16"]
ON_16 = ["--micro-batch-size", "1", "--simulate-ranks", "16"]
LAST_STEPS = 50  # whose mean is the training loss
# How far two final validation losses may be apart, in nats. Over four seeds on one rank, and one on
# 16 ranks, bf16 ended at most 0.0051 from fp32, and fp16 0.0016; this is four times as much.
# Another seed ends 0.04 or more away, so a smaller bound would mean little.
WITHIN = 0.02


class Variant(NamedTuple):
    name: str
    options: list
    colour: str = ""  # in the figure; not drawn without
    is_bounded: bool = False  # must end near fp32


VARIANTS = [
    Variant("fp32", ON_ONE, "#222222"),
    Variant("bf16", ["--precision", "bf16", *ON_ONE], "#4477aa", True),
    Variant("fp16", ["--precision", "fp16", *ON_ONE], "#228833", True),
    Variant(
        "bf16, 16-bit gradients",
        ["--precision", "bf16", "--grad-dtype", "bf16", *ON_ONE],
        "#66ccee",
    ),
    Variant("bf16 on 16 ranks", ["--precision", "bf16", *ON_16], "", True),
    Variant(
        "bf16 on 16 ranks, 16-bit gradients",
        ["--precision", "bf16", "--grad-dtype", "bf16", *ON_16],
        "#aa3377",
    ),
    Variant(
        "bf16, stochastic rounding",
        ["--precision", "bf16", "--masters", "stochastic", *ON_ONE],
        "#ccbb44",
    ),
    Variant("bf16, no masters", ["--precision", "bf16", "--masters", "none", *ON_ONE], "#ee6677"),
    Variant("fp32, another seed", ["--seed", "2", *ON_ONE]),
]

ROWS = 64  # of the gradient that is compared
RANKS = (1, 4, 16, 64)
SCALES = (1, 65536)
STEPS_OF_GRADIENTS = 30  # that take about as long as the gradients of a row
# One step of SGD moves a parameter by the learning rate times its gradient. This rate is a power of
# two, so that it scales exactly, and large, so that rounding the sum of parameter and step does not
# hide the step's last digits; but the sum must not overflow fp16.
GRADIENT = [
    "--optimizer",
    "sgd",
    "--lr",
    "1024",
    "--lr-schedule",
    "constant",
    "--weight-decay",
    "0",
    "--clip-norm",
    "0",
]


# ---- what learning costs ----------------------------------------------------------------------------------------------


def row_of(variant, report, tensors):
    losses, memory = report["losses"], report["memory"][0]
    gains = [
        gain
        for name, numbers in tensors.items()
        if re.search(r"ln_\w+\.weight$", name)
        for gain in numbers
    ]
    return {
        "name": variant.name,
        "is_bounded": variant.is_bounded,
        "bytes_per_parameter": sum(memory[kind] for kind in HELD) / report["num_parameters"],
        "train_loss": sum(losses[-LAST_STEPS:]) / len(losses[-LAST_STEPS:]),
        "skipped_steps": report["skipped_steps"],
        "gains": len(gains),
        "gains_at_start": gains.count(1.0),  # what all of them are before the first step
        "curve": [[point["step"], point["loss"]] for point in report["val_losses"]],
    }


def distances(row, reference):
    """[step, validation loss above the reference's], at every evaluation."""
    return [
        [step, loss - wanted]
        for (step, loss), (_, wanted) in zip(row["curve"], reference["curve"], strict=True)
    ]


def faults_of(rows, within):
    """One line for each bounded variant that ends too far from fp32, on either side."""
    ends = [(row, distances(row, rows[0])[-1][1]) for row in rows[1:] if row["is_bounded"]]
    return [
        f"{row['name']}: its validation loss ends {end:+.4f} from {rows[0]['name']}'s, more than {within} away"
        for row, end in ends
        if not abs(end) <= within
    ]


PRICES = {
    "": "{name}",
    "bytes per parameter": lambda row: f"{row['bytes_per_parameter']:.2f}".removesuffix(".00"),
    "validation loss": "{end:.4f}",
    "above fp32": "{above}",
    "LayerNorm weights still 1": "{gains_at_start} of {gains}",
}


def price_list(rows):
    priced = []
    for row in rows:
        above = f"{distances(row, rows[0])[-1][1]:+.4f}".replace("-", "−")
        above = "–" if row is rows[0] else above
        priced.append(row | {"end": row["curve"][-1][1], "above": above})
    return table_of(priced, PRICES, numbers_right=True)


# ---- what a sum costs -------------------------------------------------------------------------------------------------


def read_tensors(path):
    """{name: its numbers} of a model.safetensors (docs/checkpoint.md)."""
    return {
        name: array.array("f", data) for name, (_, data) in tensor_files.read_tensors(path).items()
    }


def pairs_of(gradient, reference):
    """Each element of a gradient, and what it should be."""
    return [
        pair for name in reference for pair in zip(gradient[name], reference[name], strict=True)
    ]


def errors_of(gradient, reference):
    """The error of the whole gradient; of its worst tensor, with the name; and the share of
    elements that differ by over 1e-5."""
    pairs = pairs_of(gradient, reference)
    worst = max((relative_distance(gradient[name], reference[name]), name) for name in reference)
    changed = sum(abs(a - b) > 1e-5 * abs(b) for a, b in pairs) / len(pairs)
    return {
        "error": relative_distance(*zip(*pairs)),
        "worst": worst[0],
        "worst_tensor": worst[1],
        "changed": changed,
    }


def lost(gradient, reference):
    """The share of the reference's elements that are not zero, but are in this gradient."""
    pairs = pairs_of(gradient, reference)
    return sum(a == 0 != b for a, b in pairs) / len(pairs)


def run_step0(arguments, folder, num_steps, *runs):
    """Trains with the options of each run, at the same time; returns for each its folder, report,
    and parameters."""
    program, outs = (
        arguments.build / "step0_single_gpu/step0_single_gpu",
        [Path(tempfile.mkdtemp(dir=folder)) for _ in runs],
    )
    run_all(
        [
            [program, "--quiet", *MODEL, "--steps", num_steps, *options, "--out", out]
            for options, out in zip(runs, outs)
        ]
    )
    reports = [json.loads((out / "report.json").read_text()) for out in outs]
    return [
        (out, report, read_tensors(out / f"checkpoints/step_{num_steps:06}/model.safetensors"))
        for out, report in zip(outs, reports)
    ]


def make_gradient_of(arguments, folder):
    """A function that returns the gradient of the first rows, from parameters that every format can
    hold."""
    ((start, _, before),) = run_step0(
        arguments, folder, 0, [*arguments.options, "--precision", "bf16"]
    )

    def gradient_of(rows, *options):
        own = [
            *arguments.options,
            "--micro-batch-size",
            rows,
            *GRADIENT,
            *options,
            "--init-from",
            start,
        ]
        ((_, _, after),) = run_step0(arguments, folder, 1, own)
        return {
            key: [a - b for a, b in zip(after[key], before[key], strict=True)] for key in before
        }

    return gradient_of


def measure_sums(gradient_of):
    """Errors of the gradient of the same rows, by format and number of ranks."""
    for ranks in RANKS:
        play = (ROWS // ranks, "--simulate-ranks", ranks)
        in_fp32 = gradient_of(*play)
        wide = gradient_of(*play, "--precision", "bf16")
        narrow = gradient_of(*play, "--precision", "bf16", "--grad-dtype", "bf16")
        yield {
            "ranks": ranks,
            "computing": errors_of(wide, in_fp32),
            "adding": errors_of(narrow, wide),
        }


def measure_scales(gradient_of):
    """Errors of fp16's gradient with these loss scales, and the share of its elements that have
    become zero."""
    in_fp32 = gradient_of(16)
    for scale in SCALES:
        in_fp16 = gradient_of(16, "--precision", "fp16", "--loss-scale", scale)
        yield {"scale": scale, "zeros": lost(in_fp16, in_fp32), **errors_of(in_fp16, in_fp32)}


def percent(share):
    return f"{100 * share:.2f}%" if share < 0.1 else f"{100 * share:.0f}%"


SUMS = {
    "ranks": "{ranks}",
    "rows of each": lambda row: str(ROWS // row["ranks"]),
    "bf16, fp32 gradients": lambda row: percent(row["computing"]["error"]),
    "its worst tensor": lambda row: (
        f"{percent(row['computing']['worst'])}, `{row['computing']['worst_tensor']}`"
    ),
    "16-bit gradients instead": lambda row: percent(row["adding"]["error"]),
    "elements they change": "{adding[changed]:.0%}",
}
LOSS_SCALES = {
    "loss scale": "{scale:,}",
    "error of the gradient": "{error:.3%}",
    "elements that have become zero": "{zeros:.3%}",
}


def svg(rows, within):
    """Validation loss over steps, and its distance from fp32's, as far as it may go."""
    drawn = [(row, variant.colour) for row, variant in zip(rows, VARIANTS) if variant.colour]
    losses = [Curve(row["name"], colour, row["curve"]) for row, colour in drawn]
    apart = [
        curve._replace(points=distances(row, rows[0])) for curve, (row, _) in zip(losses, drawn)
    ]
    near = [tick * within / 2 for tick in range(-2, 3)]
    plots = [
        Plot("validation loss, nats per token", losses, "steps", halves(losses)),
        Plot("above fp32's, magnified", apart, "steps", near),
    ]
    return chart("Validation loss in 16 bits and in fp32, over steps", plots, legend_columns=2)


def measure_learning(arguments, folder):
    evaluation = ["--eval-every", max(1, arguments.steps // 20), "--eval-samples", 128]
    for first in range(0, len(VARIANTS), arguments.at_once):
        batch = VARIANTS[first : first + arguments.at_once]
        each = [[*SCHEDULE, *evaluation, *variant.options, *arguments.options] for variant in batch]
        for variant, (_, report, tensors) in zip(
            batch, run_step0(arguments, folder, arguments.steps, *each)
        ):
            yield row_of(variant, report, tensors)


def tables_of(rows, sums, scales):
    """Tables by their names; the chapter has all but the sums."""
    return {
        "price list": price_list(rows),
        "sums": table_of(sums, SUMS, numbers_right=True),
        "scales": table_of(scales, LOSS_SCALES, numbers_right=True),
    }


def write_chapter(text, tables, steps, cpu):
    about = f"\n\n(`./ladder bench precision`: {steps} steps, {cpu})"
    text = replaced(text, "price list", tables["price list"] + about)
    return replaced(text, "scales", tables["scales"])


# ---- what the chapter says of its tables --------------------------------------------------------------------------------


def claims_of(text):
    """[pattern of a sentence with its figures as groups, what the tables make of them]."""
    prices = cells_of(text, "price list")
    above = {
        name: float(row["above fp32"].replace("−", "-"))
        for name, row in prices.items()
        if name != "fp32"
    }
    at_random, rounded, seed = "bf16, stochastic rounding", "bf16, no masters", "fp32, another seed"
    largest = max(abs(end) for name, end in above.items() if name not in (at_random, rounded, seed))
    numerals = dict(
        enumerate("two three four five six seven eight nine ten eleven twelve".split(), start=2)
    )
    seed_ratio, bound_ratio = (
        numerals.get(round(number / largest), "many") for number in (above[seed], WITHIN)
    )
    side = "above" if above[at_random] > 0 else "below"
    still, gains = prices[at_random]["LayerNorm weights still 1"].split(" of ")
    return [
        (
            r"it ends ([\d.]+) (\w+) fp32\. Of (\d+) LayerNorm weights, (\d+) end at 1",
            (f"{abs(above[at_random]):.4f}", side, gains, still),
        ),
        (r"Another seed ends about (\w+) times as far from fp32", (seed_ratio,)),
        (
            r"ends more than ([\d.]+) from fp32, about (\w+) times their largest distance",
            (str(WITHIN), bound_ratio),
        ),
        (
            r"without masters, which falls more slowly and ends ([\d.]+) higher",
            (f"{above[rounded]:.2f}",),
        ),
    ]


def contradictions(text):
    """One line for each sentence that says something else than the table."""
    prose, faults = " ".join(text.split()), []
    for pattern, wanted in claims_of(text):
        found = re.search(pattern, prose)
        if found is None:
            faults.append(f"the chapter has no sentence like '{pattern}'")
        elif found.groups() != wanted:
            faults.append(f"the chapter says '{found[0]}', its table {', '.join(wanted)}")
    return faults


def parse_arguments():
    parser = results_parser("precision", __doc__, self_test)
    parser.add_argument("--steps", type=count_from(1, 10**6), default=1000)
    parser.add_argument(
        "--within",
        type=float,
        default=WITHIN,
        help="nats that a bounded variant may end away from fp32",
    )
    parser.add_argument(
        "--at-once",
        type=count_from(1, 999),
        default=min(2, os.cpu_count() or 1),
        help="runs at the same time, of one thread each",
    )
    parser.add_argument(
        "--write",
        action="store_true",
        help="update the figure and the tables of step 0's chapter on precision",
    )
    arguments, arguments.options = parser.parse_known_args()
    return arguments


def main():
    arguments = parse_arguments()
    out = result_folder("precision", arguments.out)
    rows, sums, scales = [], [], []
    work = len(VARIANTS) * arguments.steps + (len(RANKS) + len(SCALES)) * STEPS_OF_GRADIENTS
    with tempfile.TemporaryDirectory() as folder, Progress(work) as progress:
        for row in measure_learning(arguments, Path(folder)):
            rows.append(row)
            progress.add(
                f"{row['name']}: validation loss {row['curve'][-1][1]:.4f}", arguments.steps
            )
        gradient_of = make_gradient_of(arguments, Path(folder))
        for row in measure_sums(gradient_of):
            sums.append(row)
            progress.add(
                f"{row['ranks']} ranks: 16-bit gradients are off by {percent(row['adding']['error'])}",
                STEPS_OF_GRADIENTS,
            )
        for row in measure_scales(gradient_of):
            scales.append(row)
            progress.add(
                f"loss scale {row['scale']}: the gradient is off by {percent(row['error'])}",
                STEPS_OF_GRADIENTS,
            )
    tables = tables_of(rows, sums, scales)
    print(f"{arguments.steps} steps; {cpu_name()}\n\n{tables['price list']}")
    print(f"\nOne gradient of {ROWS} rows, on several numbers of ranks:\n\n{tables['sums']}")
    print(f"\nOne gradient of 16 rows in fp16, against fp32:\n\n{tables['scales']}")
    progress.finish()
    content = {
        "steps": arguments.steps,
        "cpu": cpu_name(),
        "within": arguments.within,
        "runs": rows,
        "sums": sums,
        "scales": scales,
    }
    figure, faults = svg(rows, arguments.within), faults_of(rows, arguments.within)
    if arguments.write:
        write(CHAPTER / "precision.svg", figure)
        chapter = CHAPTER / "README.md"
        write(chapter, write_chapter(chapter.read_text(), tables, arguments.steps, cpu_name()))
        print(f"written: the figure and the tables of {chapter}")
        faults += contradictions(chapter.read_text())
    return write_results(out / "precision", content, figure, faults)


def self_test():
    def report(*val_losses):
        memory = {
            "parameters": 200,
            "gradients": 400,
            "optimizer": 1200,
            "communication": 0,
            "other": 99,
        }
        return {
            "num_parameters": 100,
            "memory": [memory],
            "losses": [9.0] * 10 + [2.0] * 25 + [1.0] * 25,
            "skipped_steps": 0,
            "val_losses": [
                {"step": 500 * (i + 1), "loss": loss} for i, loss in enumerate(val_losses)
            ],
        }

    fp32, bf16, fp16 = VARIANTS[0], VARIANTS[1], VARIANTS[2]
    tensors = {
        "h.0.ln_1.weight": [1.0, 1.5],
        "h.0.ln_1.bias": [1.0],
        "ln_f.weight": [1.0],
        "wte.weight": [1.0],
    }
    first = row_of(fp32, report(2.0, 1.0), tensors)
    assert (
        first["bytes_per_parameter"],
        first["train_loss"],
        first["gains"],
        first["gains_at_start"],
    ) == (18.0, 1.5, 3, 2), first
    near, below = (
        row_of(bf16, report(2.5, 1.0 + 0.9 * WITHIN), tensors),
        row_of(fp16, report(1.9, 1.0 - 0.9 * WITHIN), tensors),
    )
    free = row_of(VARIANTS[-2], report(9.0, 9.0), tensors)
    assert faults_of([first, near, below, free], WITHIN) == [], (
        "good variants are refused, or one without a bound is bounded"
    )
    for planted in (1.0 + 1.1 * WITHIN, 1.0 - 1.1 * WITHIN, float("nan"), float("inf")):
        faults = faults_of([first, near, row_of(fp16, report(2.0, planted), tensors)], WITHIN)
        assert len(faults) == 1 and faults[0].startswith("fp16:"), (
            f"a final loss of {planted} is not found: {faults}"
        )
    bounded = [variant.name for variant in VARIANTS if variant.is_bounded]
    assert bounded == ["bf16", "fp16", "bf16 on 16 ranks"], bounded

    lines = price_list([first, near, below]).splitlines()
    assert re.search(r"\+0\.0\d+ \| +2 of 3 \|$", lines[3]), lines[3]
    assert re.search(r"−0\.0\d+ \| +2 of 3 \|$", lines[4]), lines[4]
    assert svg([first, near, below], WITHIN).count("<polyline") == 6, "a curve is missing"

    errors = errors_of({"w": [3.0, 4.0], "b": [0.0, 2.0]}, {"w": [3.0, 4.5], "b": [0.0, 1.0]})
    assert math.isclose(errors["error"], math.hypot(0.5, 1) / math.hypot(3, 4.5, 1)), errors
    assert (errors["worst"], errors["worst_tensor"], errors["changed"]) == (1.0, "b", 0.5), errors
    share = lost({"w": [0.0, 0.0], "b": [0.0, 1.0]}, {"w": [3.0, 0.0], "b": [0.5, 0.0]})
    assert share == 0.5, share
    marks = ["price list", "scales"]
    text = (
        "a\n"
        + "".join(f"<!-- {name}:begin -->\nold\n<!-- {name}:end -->\n" for name in marks)
        + "z\n"
    )
    sums = [{"ranks": 4, "computing": errors, "adding": {**errors, "error": 0.002, "changed": 0.9}}]
    tables = tables_of([first, near], sums, [{"scale": 65536, "zeros": share, **errors}])
    assert "0.20%" in tables["sums"], tables["sums"]
    written = write_chapter(text, tables, 1000, "a CPU")
    assert (
        "old" not in written
        and "| bf16" in written
        and "| 65,536 " in written
        and written.endswith("-->\nz\n")
    ), written
    assert write_chapter(written, tables, 1000, "a CPU") == written, (
        "writing twice changes the chapter"
    )

    chapter = (CHAPTER / "README.md").read_text()
    faults = contradictions(chapter)
    assert faults == [], "; ".join(faults)
    for name, head in (
        ("bf16, stochastic rounding", "above fp32"),
        ("fp32, another seed", "above fp32"),
        ("bf16, stochastic rounding", "LayerNorm weights still 1"),
    ):
        cell = cells_of(chapter, "price list")[name][head]
        planted = chapter.replace(
            cell, cell.replace(cell[-1], "7") if head == "above fp32" else "7 of 320"
        )
        assert contradictions(planted) != [], (
            f"another figure than {cell} in the table contradicts no sentence"
        )
    print("self-test: arithmetic, bound and chapter are right")


if __name__ == "__main__":
    sys.exit(main())
