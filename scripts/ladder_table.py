#!/usr/bin/env python3
"""The ladder's table: compares the stages of one ./ladder run, and fails when one leaves its bounds.

    scripts/ladder_table.py runs/ladder-… [--short] [--stages FILE]

Reads RUN/STAGE/report.json of each stage in ladder_stages.tsv, prints the table and writes it to RUN/table.md and
RUN/table.json. The bounds: a stage equals the one it must equal; memory and traffic are what theory says, to the
byte; nothing but model state is alive between steps; the loss is finite and below BIGRAM_LOSS (with --short, for
runs of a few steps: lower than it began). Exit code 1 if one does not hold. Standard library only.
"""

import argparse
import json
import math
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from compare_runs import differences  # noqa: E402

# What a model reaches on the built-in corpus that sees only the byte before, in nats; that knows nothing but the
# bytes' frequencies: 3.53. Below it, attention must have learnt something.
BIGRAM_LOSS = 2.04
# Relative change of the parameters' norm that rounding may cause where bits are not equal.
NORM_TOLERANCE = 1e-6
STATE = ("parameters", "gradients", "optimizer")
MINUS = "–"


def read_stages(path):
    """One dict per stage: name, step, ranks (a number, or N for those of the run), equals and within, '-' for none."""
    lines = [line.split("\t") for line in path.read_text().splitlines() if line and not line.startswith("#")]
    return [dict(zip(("name", "step", "ranks", "equals", "within"), fields)) for fields in lines]


def largest_difference(a, b):
    """The largest |a - b| of two series; infinite where one holds what is not finite, or more entries."""
    if len(a) != len(b) or None in a or None in b:
        return math.inf
    return max((abs(x - y) for x, y in zip(a, b)), default=0.0)


def compare(report, reference):
    """How far a run is from the one that it must equal."""
    norms = report["param_norms"], reference["param_norms"]
    norm_difference = largest_difference(norms[0][-1:], norms[1][-1:])
    same = all(report[key] == reference[key] for key in ("losses", "grad_norms", "param_norms", "param_hash"))
    return {
        "max_loss_difference": largest_difference(report["losses"], reference["losses"]),
        "param_norm_difference": norm_difference / norms[1][-1] if norms[1] and norms[1][-1] else norm_difference,
        "bits_equal": same,
    }


def comparison_faults(row, within, reference, folders):
    if within == "bits":
        if row["bits_equal"]:
            return []
        return [f"its bits are not equal to those of {row['equals']}: {line}" for line in differences(*folders)]
    faults = []
    tolerance = float(within) * max((abs(loss) for loss in reference["losses"] if loss is not None), default=0.0)
    if not row["max_loss_difference"] <= tolerance:
        faults.append(f"losses differ from {row['equals']} by {row['max_loss_difference']:.2g}, allowed {tolerance:.2g}")
    if not row["param_norm_difference"] <= NORM_TOLERANCE:
        faults.append(f"the parameters' norm differs by {row['param_norm_difference']:.2g}, allowed {NORM_TOLERANCE}")
    return faults


def memory_faults(report):
    faults = []
    for rank, (held, theory) in enumerate(zip(report["memory"], report["memory_theory"])):
        if held is None:  # ranks that are threads of one process have no account of their own
            continue
        for kind in (*STATE, "communication"):
            if held[kind] != theory[kind]:
                faults.append(f"rank {rank} holds {held[kind]} bytes of {kind}, theory says {theory[kind]}")
        # The oracle's sum over the ranks that it plays is no state of theirs.
        others = {name: size for name, size in held["other_by_name"].items() if name != "simulated ranks"}
        if others:
            faults.append(f"rank {rank} holds bytes that are no model state: {others}")
    return faults


def bytes_sent(rank_traffic):
    return sum(operation["bytes_sent"] for operation in rank_traffic.values())


def traffic_faults(report):
    return [
        f"rank {rank} sent {bytes_sent(sent)} bytes, theory says {theory['bytes_sent']}"
        for rank, (sent, theory) in enumerate(zip(report["traffic"], report["traffic_theory"]))
        if bytes_sent(sent) != theory["bytes_sent"]
    ]


def loss_faults(losses, is_short):
    if not losses or None in losses:
        return ["its loss is not finite"]
    if is_short:
        has_fallen = len(losses) < 10 or losses[-1] < losses[0]
        return [] if has_fallen else [f"its loss {losses[-1]:.4f} is not below the first one, {losses[0]:.4f}"]
    return [] if losses[-1] < BIGRAM_LOSS else [f"its loss {losses[-1]:.4f} is not below {BIGRAM_LOSS}"]


def make_row(stage, report, reference, is_short, num_ranks, run):
    """One stage's numbers, and its faults in words."""
    steps = max(1, len(report["losses"]))
    memory = [held for held in report["memory"] if held is not None]
    row = {
        "name": stage["name"],
        "ranks": report["world_size"],
        "data_per_step": max(report["data_bytes_read"]) / steps,
        "equals": stage["equals"],
        "final_loss": report["losses"][-1] if report["losses"] else None,
        "sent_per_step": max(map(bytes_sent, report["traffic"])) / steps,
        "sent_per_step_theory": max(theory["bytes_sent"] for theory in report["traffic_theory"]) / steps,
        "tokens_per_second": report["tokens_per_second"],
        "faults": loss_faults(report["losses"], is_short) + memory_faults(report) + traffic_faults(report),
    }
    for kind in (*STATE, "communication"):
        held = max((rank[kind] for rank in memory), default=None)
        row[kind] = None if held is None else held / report["num_parameters"]
        row[kind + "_theory"] = max(rank[kind] for rank in report["memory_theory"]) / report["num_parameters"]
    if stage["step"] != report["step"] or int(stage["ranks"].replace("N", str(num_ranks))) != report["world_size"]:
        row["faults"].append(f"its report is of {report['step']} on {report['world_size']} ranks")
    if reference is not None:
        row.update(compare(report, reference))
        folders = run / stage["name"], run / stage["equals"]
        row["faults"] += comparison_faults(row, stage["within"], reference, folders)
    return row


def cells(row):
    def number(key, form):
        return MINUS if row.get(key) is None else format(row[key], form)

    def beside(key, form):
        return f"{number(key, form)} ({number(key + '_theory', form)})"

    equal = {True: "yes", False: "no", None: MINUS}[row.get("bits_equal")]
    return [
        row["name"], str(row["ranks"]), MINUS if row["equals"] == "-" else row["equals"], number("final_loss", ".4f"),
        number("max_loss_difference", ".1e"), number("param_norm_difference", ".1e"), equal,
        *(beside(kind, ".3f") for kind in (*STATE, "communication")), number("data_per_step", ",.0f"), beside("sent_per_step", ",.0f"), number("tokens_per_second", ",.0f"),
        "no" if row["faults"] else "yes",
    ]  # fmt: skip


HEADINGS = ["stage", "ranks", "must equal", "final loss", "max Δloss", "Δ‖p‖", "bits equal",
            "params B/p", "grads B/p", "optimizer B/p", "buffers B/p", "bytes read/step", "bytes sent/step", "tokens/s", "in bounds"]  # fmt: skip


def markdown(rows):
    lines = [HEADINGS] + [cells(row) for row in rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEADINGS))]
    texts = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in lines]
    texts.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(texts) + "\n"


def main():
    parser = argparse.ArgumentParser(description="Prints the ladder's table of a run.")
    parser.add_argument("run", type=Path)
    parser.add_argument("--ranks", type=int, default=2, help="what N stands for in the stages (default 2)")
    parser.add_argument("--short", action="store_true", help="a run of few steps: the loss need only fall")
    parser.add_argument("--stages", type=Path, default=Path(__file__).with_name("ladder_stages.tsv"))
    arguments = parser.parse_args()

    reports, rows = {}, []
    for stage in read_stages(arguments.stages):
        path = arguments.run / stage["name"] / "report.json"
        try:
            report = reports[stage["name"]] = json.loads(path.read_text())
        except (OSError, ValueError) as error:
            sys.exit(f"ladder_table: no report of stage {stage['name']}: {error}")
        reference = None if stage["equals"] == "-" else reports[stage["equals"]]
        rows.append(make_row(stage, report, reference, arguments.short, arguments.ranks, arguments.run))

    note = "B/p: bytes held per parameter on the fullest rank. In brackets: what theory says.\n"
    (arguments.run / "table.md").write_text(markdown(rows) + "\n" + note)
    (arguments.run / "table.json").write_text(json.dumps(rows, indent=1) + "\n")
    print("\n" + markdown(rows) + "\n" + note, end="")
    for row in rows:
        for fault in row["faults"]:
            print(f"OUT OF BOUNDS: {row['name']}: {fault}")
    return 1 if any(row["faults"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
