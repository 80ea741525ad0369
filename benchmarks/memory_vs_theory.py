#!/usr/bin/env python3
"""Memory per step: every step of the course at several numbers of ranks, measured beside theory.

    ./ladder bench memory [--ranks 1,2,4] [--precision bf16] [--out FOLDER] [options of a trainer, for example --recompute blocks]
    benchmarks/memory_vs_theory.py --self-test       plants mismatches in reports that it makes; each must be found

Trains each stage of scripts/ladder_rungs.tsv for a few steps on one model and reads its
report.json. Prints and writes to FOLDER/memory.{csv,json,svg} what the fullest rank holds per
parameter, by category, and its peaks, beside theory; every rank is held against its own. Exit code
1 if one byte differs. With --precision bf16 or fp16, the figure has two more values for each bar,
from the formulas (--dry-run): what the step holds in fp32, and with 16-bit gradients, as in the
ZeRO paper. Resident memory has no theory to the byte; tests/resident_memory_test.cpp bounds what it
grows by. Standard library only.
"""

import csv
import io
import json
import shutil
import sys

from results import Progress, result_folder, results_parser, write, write_results
from launcher.accounts import HELD, differences_from_theory
from launcher.console import count_from, list_of
from launcher.figures import Panel, numbers, page, swatches, words
from launcher.launch import run_all, train
from launcher.plan_steps import without
from launcher.rungs import read_rungs
from launcher.steps import trainer_in
from launcher.tables import table_of
from stand_ins import made_report

PROGRAMS = "rungs"
PEAKS = ("parameters_peak", "gradients_peak", "optimizer_peak")
PRECISION_OPTIONS = ("precision", "grad-dtype", "masters", "loss-scale", "loss-scale-window")
COLOURS = {
    "parameters": "#4477aa",
    "gradients": "#ee6677",
    "optimizer": "#ccbb44",
    "communication": "#66ccee",
}


def mismatches(name, report):
    """One line for each amount that is not what theory says."""
    return [
        f"{name} on {report['world_size']} rank(s), {line}"
        for line in differences_from_theory(report)
    ]


def most_in_tensors(memory):
    """In bytes, at any moment of the training or of a save."""
    return max(memory["peak"], memory["save_peak"])


def make_row(name, report):
    """The fullest rank's numbers, in bytes and in bytes per parameter."""
    fullest = max(
        range(report["world_size"]), key=lambda rank: report["memory"][rank]["live_at_step_end"]
    )
    memory, theory = report["memory"][fullest], report["memory_theory"][fullest]
    row = {"stage": name, "ranks": report["world_size"], "num_parameters": report["num_parameters"]}
    for kind in (*HELD, *PEAKS):
        row[kind], row[f"{kind}_theory"] = memory[kind], theory[kind]
    row["held"] = (
        memory["live_at_step_end"] - memory["other"]
    )  # scratch, which does not grow with the model
    row["held_theory"] = sum(theory[kind] for kind in HELD)
    row["communication_peak"] = memory["communication_peak"]
    row["activations_peak"], row["peak"] = memory["activations_peak"], memory["peak"]
    row["activations_share"] = memory["activations_peak"] / memory["peak"]
    row["most_in_tensors"] = most_in_tensors(memory)
    row["resident"], row["resident_peak"] = memory["resident"], memory["resident_peak"]
    return row


def per_parameter(kind):
    """A cell: measured, and in brackets theory."""
    return lambda row: "{:.3f} ({:.3f})".format(
        *(row[name] / row["num_parameters"] for name in (kind, f"{kind}_theory"))
    )


COLUMNS = {
    "stage": "{stage}", "ranks": "{ranks}", **{kind: per_parameter(kind) for kind in (*HELD, "held")},
    "params, peak": per_parameter("parameters_peak"), "grads, peak": per_parameter("gradients_peak"),
    "peak": lambda row: f"{row['peak'] / row['num_parameters']:.3f}",
    "activations": lambda row: f"{row['activations_peak'] / 2**20:.1f} MiB ({row['activations_share']:.0%})",
    "MiB of tensors": lambda row: f"{row['most_in_tensors'] / 2**20:.1f}", "resident": lambda row: f"{row['resident_peak'] / 2**20:.1f}",
}  # fmt: skip


TOP, LEFT, HEIGHT = 94, 52, 240  # of the plot, in pixels
BAR, BAR_GAP, GROUP_GAP = 34, 8, 26
FP32_BAR = 14  # beside a bar of 16 bits
LINE = HEIGHT + 78  # from one line of groups to the next
STYLE = ".theory{stroke:#222;stroke-width:2.5}.fp32{fill:#999;fill-opacity:.45}.paper{stroke:#aa3377;stroke-width:2.5;stroke-dasharray:5 2}"


def svg(rows):
    """Bars of bytes per parameter, one group per number of ranks; a line over each bar is theory.
    With 16 bits, each group has a line of its own, so that its text can be read on a phone."""
    has_fp32 = "held_fp32_theory" in rows[0]
    most = max(
        row.get(kind, 0) / row["num_parameters"]
        for row in rows
        for kind in ("held", "held_theory", "held_fp32_theory")
    )
    high, apart = 4 * (int(most / 4) + 1), BAR + BAR_GAP + (FP32_BAR if has_fp32 else 0)
    groups = [
        [row for row in rows if row["ranks"] == ranks]
        for ranks in sorted({row["ranks"] for row in rows})
    ]
    lines = [[group] for group in groups] if has_fp32 else [groups]
    width = max(
        640, *(LEFT + sum(len(group) * apart + GROUP_GAP for group in line) for line in lines)
    )
    names = [
        [*((f'fill="{COLOURS[kind]}"', kind, False) for kind in HELD)],
        [('class="theory"', "theory", True)],
    ]
    if has_fp32:
        names[1] += [
            ('class="fp32"', "the same in fp32", False),
            ('class="paper"', "with 16-bit gradients, as in the ZeRO paper", True),
        ]
    drawn, _ = swatches(names, LEFT, width, 12, 7)
    for number, line in enumerate(lines):
        panel, x = Panel(LEFT, TOP + number * LINE, width - LEFT, HEIGHT, 1, 0, high), LEFT
        drawn += [
            words(LEFT - 44, panel.y - 14, "bytes per parameter"),
            *panel.grid(numbers(range(0, high + 1, 4))),
        ]
        for group in line:
            label, end = (
                "1 rank" if group[0]["ranks"] == 1 else f"{group[0]['ranks']} ranks",
                x + len(group) * apart,
            )
            drawn.append(
                words((x + end - BAR_GAP) / 2, panel.y + HEIGHT + 38, f"step, {label}", "middle")
            )
            for at, row in zip(range(x, end, apart), group):
                drawn += bars(row, at, panel)
            x = end + GROUP_GAP
    title = "Bytes of model state per parameter, held between steps by the fullest rank"
    return page(width, panel.y + HEIGHT + 48, title, drawn, STYLE, "; ".join(map(described, rows)))


def described(row):
    held, plain = (
        row.get(kind, 0) / row["num_parameters"] for kind in ("held", "held_fp32_theory")
    )
    said = f"{row['stage'].split('_')[0]}, ranks: {row['ranks']}, bytes: {held:.1f}"
    return said + (f", {plain:.1f} in fp32" if plain else "")


def bars(row, x, panel):
    """What a step holds, stacked; with 16 bits, next to what it holds in fp32."""
    out, held, has_fp32 = [], 0, "held_fp32_theory" in row

    def place(size):
        return panel.place(0, size / row["num_parameters"])[1]

    def bar(size, base, width, look):
        out.append(
            f'<rect x="{x}" y="{place(base + size):.1f}" width="{width}" height="{place(base) - place(base + size):.1f}" {look}/>'
        )

    def line(size, kind):
        out.append(f'<path d="M{x - 3} {place(size):.1f}h{BAR + 6}" class="{kind}"/>')

    if has_fp32:
        bar(row["held_fp32_theory"], 0, FP32_BAR, 'class="fp32"')
        x += FP32_BAR
    for kind in filter(row.get, HELD):
        bar(row[kind], held, BAR, f'fill="{COLOURS[kind]}"')
        held += row[kind]
    line(row["held_theory"], "theory")
    if has_fp32 and row["held_16_bit_gradients_theory"] < row["held_theory"]:
        line(row["held_16_bit_gradients_theory"], "paper")
    if has_fp32:
        out.append(
            words(
                x + BAR / 2,
                place(held) - 6,
                f"{row['held'] / row['num_parameters']:.1f}".removesuffix(".0"),
                "middle",
            )
        )
    out.append(
        words(
            x + BAR / 2,
            panel.y + panel.height + 16,
            row["stage"].split("_")[0].removeprefix("step"),
            "middle",
        )
    )
    return out


def held_in_theory(build, stage, ranks, options):
    """By the fullest rank, in bytes, as the step's formulas say; nothing is trained."""
    (said,) = run_all(
        [
            [
                trainer_in(build, stage.step),
                *stage.own_options(ranks),
                *options,
                "--dry-run",
                str(ranks),
                "--json",
            ]
        ]
    )
    return max(sum(rank["holds"].values()) for rank in json.loads(said)["ranks"])


def measure(arguments, options):
    rows, faults = [], []
    stages = [stage for stage in read_rungs() if stage.name == stage.step]
    # Step 0 is one process, whatever it plays.
    chosen = [
        (ranks, stage)
        for ranks in sorted({*arguments.ranks})
        for stage in stages
        if stage.ranks == "N" or ranks == 1
    ]
    with Progress(len(chosen)) as progress:
        for ranks, stage in chosen:
            report = train(
                trainer_in(arguments.build, stage.step),
                ranks,
                [*stage.own_options(ranks), *options],
            )
            row = make_row(stage.name, report)
            if arguments.precision != "fp32":
                plain = without(options, PRECISION_OPTIONS)
                narrow = ["--precision", arguments.precision, "--grad-dtype", arguments.precision]
                row["held_fp32_theory"] = held_in_theory(arguments.build, stage, ranks, plain)
                row["held_16_bit_gradients_theory"] = held_in_theory(
                    arguments.build, stage, ranks, plain + narrow
                )
            rows.append(row)
            found = mismatches(stage.name, report)
            faults += found
            held = f"{row['held'] / row['num_parameters']:.3f} bytes per parameter"
            progress.add(
                f"{stage.name}, {ranks} rank(s): {held}, {'NOT ' if found else ''}as in theory"
            )
    return rows, faults, progress


def self_test():
    """A report that is right, and one that differs."""
    good, bad = made_report(), made_report()
    bad["differences"][1] = ["bytes of gradients: 204, not 200"]
    assert mismatches("good", good) == [], mismatches("good", good)
    assert mismatches("bad", bad) == ["bad on 2 rank(s), rank 1: bytes of gradients: 204, not 200"]
    row = make_row("step7_zero3", good)
    assert (row["held"], row["held_theory"], row["activations_share"]) == (1440, 1440, 70 / 1700)
    assert svg([row]).count("<rect") == 9  # four parts of a bar, four of the legend, the background
    self_test_of_16_bits(row)
    print("self-test passed")


def self_test_of_16_bits(row):
    """The two values beside a bar."""
    both = row | {"held_fp32_theory": 1300, "held_16_bit_gradients_theory": 1340}
    drawn, floor = svg([both]), TOP + HEIGHT
    assert drawn.count("<rect") == 11 and drawn.count('class="paper"') == 2, (
        drawn
    )  # one of each is in the legend
    for kind, tag in (
        ("held_fp32_theory", 'y="{:.1f}" width="14"'),
        ("held_16_bit_gradients_theory", ' {:.1f}h40" class="paper"'),
    ):
        assert tag.format(floor - both[kind] / 100 * HEIGHT / 16) in drawn, kind
    assert (
        svg([both | {"held_16_bit_gradients_theory": 1440}]).count('class="paper"') == 1
    )  # gradients are 16 bit already
    assert ">14.4</text>" in drawn and "bytes: 14.4, 13.0 in fp32" in drawn, drawn


def main():
    parser = results_parser("memory", __doc__, self_test)
    parser.add_argument(
        "--ranks",
        type=list_of(count_from(1, 9999)),
        default=[1, 2, 4],
        help="numbers of ranks, such as 1,2,4",
    )
    parser.add_argument(
        "--precision",
        choices=("fp32", "bf16", "fp16"),
        default="fp32",
        help="of parameters and activations",
    )
    parser.add_argument(
        "--grad-dtype", choices=("fp32", "bf16", "fp16"), default="fp32", help="of gradients"
    )
    arguments, options = parser.parse_known_args()
    if shutil.which("mpirun") is None and arguments.ranks != [1]:
        sys.exit("mpirun is not here: --ranks 1 does without, ./ladder doctor says what is missing")
    formats = ["--precision", arguments.precision, "--grad-dtype", arguments.grad_dtype]
    options = [
        "--steps",
        "3",
        "--micro-batch-size",
        "2",
        *(formats if formats[1::2] != ["fp32"] * 2 else []),
        *options,
    ]
    folder = result_folder("memory", arguments.out)
    rows, faults, progress = measure(arguments, options)
    print(
        f"{rows[0]['num_parameters']:,} parameters; bytes per parameter of the fullest rank, in brackets theory; "
        f"{' '.join(options)}\n"
    )
    print(table_of(rows, COLUMNS))
    print(
        "\nheld: between steps. peak: the most at one moment of a step. activations: their own peak, and its share of the peak.\n"
        "MiB of tensors: the most, with the save at the end. resident: what the kernel says the process took at most, in "
        "MiB: libraries, MPI and the heap's own needs come on top of the tensors."
    )
    progress.finish()
    lines = io.StringIO(newline="")
    writer = csv.DictWriter(lines, fieldnames=list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write(folder / "memory.csv", lines.getvalue())
    content = {
        "options": options,
        "unit": "bytes, of the fullest rank",
        "rows": rows,
        "mismatches": faults,
    }
    print(f"\nwrote {folder}/memory.csv", end="")
    sys.exit(
        write_results(
            folder / "memory", content, svg(rows), [f"MISMATCH: {fault}" for fault in faults]
        )
    )


if __name__ == "__main__":
    main()
