#!/usr/bin/env python3
"""Memory per stage: every step of the course at several numbers of ranks, measured beside theory.

    ./ladder bench memory [--ranks 1,2,4] [--out FOLDER] [options of a trainer, for example --layers 8]

Trains each stage of scripts/ladder_stages.tsv for a few steps on one model and reads its report.json. Prints bytes per
parameter by category, held between steps, beside theory; the peaks of parameters, gradients and optimizer, likewise;
the largest total with the activations' share of it; the largest total with the last save, beside what the kernel says
the process occupied at most; and writes all of it to FOLDER/memory.{csv,json,svg}. The fullest rank counts; every rank is
held against its own theory. Exit code 1 if one byte differs. Resident memory has no theory to the byte: libraries, MPI and
the heap's own needs are in it. tests/resident_memory_test.cpp bounds what it grows by with the model.

    benchmarks/memory_vs_theory.py --self-test       plants mismatches in reports that it makes; each must be found
Standard library only.
"""

import argparse
import copy
import csv
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True
ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
from ladder_table import own_options, read_stages  # noqa: E402
from processes import run_all  # noqa: E402

HELD = ("parameters", "gradients", "optimizer", "communication")
PEAKS = ("parameters_peak", "gradients_peak", "optimizer_peak")
COLOURS = {"parameters": "#4477aa", "gradients": "#ee6677", "optimizer": "#ccbb44", "communication": "#66ccee"}


def mismatches(name, report):
    """One line for each number of bytes that is not what theory says."""
    lines = []
    for rank, (memory, theory) in enumerate(zip(report["memory"], report["memory_theory"], strict=True)):
        where = f"{name} on {report['world_size']} rank(s), rank {rank}"
        for kind in (*HELD, *PEAKS):
            if memory[kind] != theory[kind]:
                lines.append(f"{where}: {kind} {memory[kind]} bytes, theory says {theory[kind]}")
        others = {key: size for key, size in memory["other_by_name"].items() if key != "simulated ranks"}
        if others:
            lines.append(f"{where}: holds bytes that are no model state: {others}")
        wanted = sum(theory[kind] for kind in HELD) + memory["other"]
        if memory["live_at_step_end"] != wanted:
            lines.append(f"{where}: {memory['live_at_step_end']} bytes are held between steps, theory says {wanted}")
        if memory["resident_peak"] < most_in_tensors(memory):
            lines.append(f"{where}: {memory['resident_peak']} bytes resident, and {most_in_tensors(memory)} in tensors")
    return lines


def most_in_tensors(memory):
    """In bytes, at any moment of the training or of a save."""
    return max(memory["peak"], memory["save_peak"])


def make_row(name, report):
    """The fullest rank's numbers, in bytes and in bytes per parameter."""
    fullest = max(range(report["world_size"]), key=lambda rank: report["memory"][rank]["live_at_step_end"])
    memory, theory = report["memory"][fullest], report["memory_theory"][fullest]
    row = {"stage": name, "ranks": report["world_size"], "num_parameters": report["num_parameters"]}
    for kind in (*HELD, *PEAKS):
        row[kind], row[f"{kind}_theory"] = memory[kind], theory[kind]
    row["held"], row["held_theory"] = memory["live_at_step_end"], sum(theory[kind] for kind in HELD)
    row["communication_peak"] = memory["communication_peak"]
    row["activations_peak"], row["peak"] = memory["activations_peak"], memory["peak"]
    row["activations_share"] = memory["activations_peak"] / memory["peak"]
    row["most_in_tensors"] = most_in_tensors(memory)
    row["resident"], row["resident_peak"] = memory["resident"], memory["resident_peak"]
    return row


def print_table(rows):
    def pair(row, kind):
        scale = row["num_parameters"]
        return f"{row[kind] / scale:.3f} ({row[f'{kind}_theory'] / scale:.3f})"

    head = ["stage", "ranks", *HELD, "held", "params, peak", "grads, peak", "peak", "activations", "MiB of tensors", "resident"]
    cells = [head]
    for row in rows:
        cells.append(
            [row["stage"], str(row["ranks"]), *(pair(row, kind) for kind in HELD), pair(row, "held"),
             pair(row, "parameters_peak"), pair(row, "gradients_peak"), f"{row['peak'] / row['num_parameters']:.3f}",
             f"{100 * row['activations_share']:.0f} %", f"{row['most_in_tensors'] / 2**20:.1f}",
             f"{row['resident_peak'] / 2**20:.1f}"]
        )  # fmt: skip
    widths = [max(len(line[i]) for line in cells) for i in range(len(head))]
    for line in cells:
        print("| " + " | ".join(text.ljust(width) for text, width in zip(line, widths)) + " |")
        if line is head:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")


# ---- figure -----------------------------------------------------------------------------------------------------------


def svg(rows):
    """Bars of bytes per parameter, one group per number of ranks; a line over each bar is theory."""
    groups = sorted({row["ranks"] for row in rows})
    bar, gap, height, top, left = 34, 26, 240, 56, 52
    most = max(max(row["held"], row["held_theory"]) / row["num_parameters"] for row in rows)
    scale = height / (4 * (int(most / 4) + 1))
    out, x = [], left
    for tick in range(0, int(height / scale) + 1, 4):
        y = top + height - tick * scale
        out.append(f'<line x1="{left - 6}" y1="{y:.1f}" x2="WIDTH" y2="{y:.1f}" class="grid"/>')
        out.append(f'<text x="{left - 10}" y="{y + 4:.1f}" text-anchor="end">{tick}</text>')
    for ranks in groups:
        start = x
        for row in (row for row in rows if row["ranks"] == ranks):
            y = float(top + height)
            for kind in HELD:
                size = row[kind] / row["num_parameters"] * scale
                y -= size
                if size > 0:
                    out.append(f'<rect x="{x}" y="{y:.1f}" width="{bar}" height="{size:.1f}" fill="{COLOURS[kind]}"/>')
            theory = top + height - row["held_theory"] / row["num_parameters"] * scale
            out.append(f'<line x1="{x - 3}" y1="{theory:.1f}" x2="{x + bar + 3}" y2="{theory:.1f}" class="theory"/>')
            out.append(f'<text x="{x + bar / 2}" y="{top + height + 16}" text-anchor="middle">{row["stage"].split("_")[0].removeprefix("step")}</text>')
            x += bar + 8
        label = "1 rank" if ranks == 1 else f"{ranks} ranks"
        out.append(f'<text x="{(start + x - 8) / 2:.0f}" y="{top + height + 36}" text-anchor="middle">step, {label}</text>')
        x += gap
    legend = left
    for kind in HELD:
        out.append(f'<rect x="{legend}" y="12" width="12" height="12" fill="{COLOURS[kind]}"/>')
        out.append(f'<text x="{legend + 18}" y="22">{kind}</text>')
        legend += 42 + 7 * len(kind)
    out.append(f'<text x="{left - 44}" y="{top - 14}">bytes per parameter</text>')
    out.append(f'<line x1="{legend}" y1="18" x2="{legend + 18}" y2="18" class="theory"/><text x="{legend + 24}" y="22">theory</text>')
    width = max(x, legend + 90)
    style = (
        "text{font:12px sans-serif;fill:#222}.grid{stroke:#999;stroke-opacity:.35}.theory{stroke:#222;stroke-width:2.5}"
        "@media(prefers-color-scheme:dark){text{fill:#ddd}.theory{stroke:#fff}}"
    )
    title = "Bytes of model state per parameter, held between steps by the fullest rank"
    body = "\n".join(out).replace("WIDTH", str(width))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {top + height + 46}" role="img">'
        f"<title>{title}</title><style>{style}</style>\n{body}\n</svg>\n"
    )


# ---- runs -------------------------------------------------------------------------------------------------------------


def ranks_of(text):
    ranks = sorted({int(part) if part.isdigit() else 0 for part in text.split(",")})
    if ranks[0] < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers from 1, such as 1,2,4")
    return ranks


def train(build, stage, ranks, options, out):
    """Runs one stage; returns its report."""
    program = build / stage["step"] / stage["step"]
    command = [str(program), "--quiet", "--out", str(out), *own_options(stage, ranks), *options]
    if ranks > 1 and stage["ranks"] == "N":
        command = ["mpirun", "-n", str(ranks), "--oversubscribe", "--bind-to", "none", *command]
    run_all([command], {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"})
    return json.loads((out / "report.json").read_text())


def measure(arguments, options):
    rows, faults = [], []
    stages = [stage for stage in read_stages(ROOT / "scripts/ladder_stages.tsv") if stage["name"] == stage["step"]]
    with tempfile.TemporaryDirectory() as folder:
        for ranks in arguments.ranks:
            for stage in stages:
                if stage["ranks"] != "N" and ranks > 1:
                    continue  # step 0 is one process, whatever it plays
                if sys.stderr.isatty():
                    print(f"\r{stage['name']}, {ranks} rank(s)\033[K", end="", file=sys.stderr, flush=True)
                report = train(arguments.build, stage, ranks, options, Path(folder) / f"{stage['name']}-{ranks}")
                rows.append(make_row(stage["name"], report))
                faults += mismatches(stage["name"], report)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return rows, faults


def write(folder, rows, faults, options):
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "memory.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, fieldnames=list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    content = {"options": options, "unit": "bytes, of the fullest rank", "rows": rows, "mismatches": faults}
    (folder / "memory.json").write_text(json.dumps(content, indent=1) + "\n")
    (folder / "memory.svg").write_text(svg(rows))


# ---- self-test --------------------------------------------------------------------------------------------------------


def self_test():
    """A report that is right; and each of its numbers wrong, on either rank."""
    held = {"parameters": 400, "gradients": 200, "optimizer": 800, "communication": 40}
    peaks = {"parameters_peak": 500, "gradients_peak": 300, "optimizer_peak": 800}
    memory = {**held, **peaks, "communication_peak": 90, "other": 0, "other_by_name": {}, "activations_peak": 70,
              "live_at_step_end": 1440, "peak": 1700, "save_peak": 1800, "resident": 2000,
              "resident_peak": 2100}  # fmt: skip
    good = {"world_size": 2, "num_parameters": 100, "memory": [copy.deepcopy(memory) for _ in range(2)],
            "memory_theory": [{**held, **peaks} for _ in range(2)]}  # fmt: skip
    assert mismatches("good", good) == [], mismatches("good", good)
    num_planted = 0
    for rank in range(2):
        for kind in (*held, *peaks, "live_at_step_end"):
            bad = copy.deepcopy(good)
            bad["memory"][rank][kind] += 1
            found = mismatches("bad", bad)
            assert found and f"rank {rank}" in found[0] and str(bad["memory"][rank][kind]) in found[0], (kind, found)
            num_planted += 1
        bad = copy.deepcopy(good)
        bad["memory"][rank].update(other=8, live_at_step_end=1448, other_by_name={"unnamed": 8})
        assert "unnamed" in mismatches("bad", bad)[0]
        bad = copy.deepcopy(good)
        bad["memory"][rank]["resident_peak"] = 1799
        assert "1799 bytes resident, and 1800 in tensors" in mismatches("bad", bad)[0]
        num_planted += 2
    row = make_row("step7_zero3", good)
    assert (row["held"], row["held_theory"], row["activations_share"]) == (1440, 1440, 70 / 1700)
    assert svg([row]).count("<rect") == 8  # four parts of a bar, four of the legend
    print(f"{num_planted} mismatches planted, all found")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="All other options go to the trainers.")
    parser.add_argument("--ranks", type=ranks_of, default=[1, 2, 4], help="numbers of ranks, such as 1,2,4")
    parser.add_argument("--out", type=Path, help="folder for memory.csv, .json and .svg; default: a fresh one under runs/")
    parser.add_argument("--build", type=Path, default=ROOT / "build/release", help="where the trainers were built")
    parser.add_argument("--self-test", action="store_true", help="plant mismatches and find them")
    arguments, options = parser.parse_known_args()
    if arguments.self_test:
        return self_test()
    if shutil.which("mpirun") is None and arguments.ranks != [1]:
        sys.exit("mpirun is not here: --ranks 1 does without, ./ladder doctor says what is missing")
    options = ["--steps", "3", "--micro-batch-size", "2", *options]
    rows, faults = measure(arguments, options)
    print(f"{rows[0]['num_parameters']:,} parameters; bytes per parameter of the fullest rank, in brackets theory; "
          f"{' '.join(options)}\n")  # fmt: skip
    print_table(rows)
    print("\nheld: between steps. peak: the most at one moment of a step. activations: their share of the peak.\n"
          "MiB of tensors: the most, with the save at the end. resident: what the kernel says the process took at most, in "
          "MiB: libraries, MPI and the heap's own needs come on top of the tensors.")  # fmt: skip
    folder = arguments.out or ROOT / "runs" / time.strftime("memory-%Y%m%d-%H%M%S")
    write(folder, rows, faults, options)
    print(f"\nwritten: {os.path.relpath(folder)}/memory.csv, .json, .svg")
    for fault in faults:
        print(f"MISMATCH: {fault}", file=sys.stderr)
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
