#!/usr/bin/env python3
"""The ladder's table: compares the rungs of one ./ladder run, and fails if one is out of bounds.

    scripts/ladder_table.py runs/ladder-… [--ranks N] [--short] [--rungs FILE]
    scripts/ladder_table.py --self-test       plants faults in runs that it makes; each must be found

Reads RUN/RUNG/report.json of each rung in ladder_rungs.tsv, prints the table and writes it to RUN/table.{md,json}. The bounds:
a rung equals the one that it must equal; memory and traffic match the theory to the byte, call and message; each rank reads all
data or its share; only model state is alive between steps; the loss is finite and below BIGRAM_LOSS (with --short, for runs of a
few steps or with other options: lower than at the start), and one that is no mean over tokens falls on the validation data (with
--short: is finite). Exit code 1 if one does not hold. Standard library only.
"""

import argparse
import json
import math
import re
import sys
import tempfile
from pathlib import Path

from compare_runs import differences
from launcher.accounts import HELD, bytes_sent, differences_from_theory
from launcher.checkout import write_or_fail
from launcher.console import SelfTest
from launcher.rungs import FILE, is_corpus, read_rungs
from launcher.tables import table_of
from stand_ins import made_report, spoil, write_run

# In nats: the loss on the built-in corpus of a model that sees only the previous byte. One that
# knows only byte frequencies has 3.53. For a lower loss, attention must have learned something.
BIGRAM_LOSS = 2.04
MINUS = "–"


def equality_faults(rung, run):
    """What compare_runs says about the rung and the one that it must equal."""
    within = None if rung.within == "bits" else float(rung.within)
    lines = differences(run / rung.name, run / rung.equals, within)
    how = "" if within is None else f" within {within:g}"
    return [f"it does not equal {rung.equals}{how}: {line}" for line in lines]


def data_faults(rung, report, of_all):
    """Of what all ranks read together, or each of them: all stages of a pipeline read what their
    replica trains on."""
    if rung.reads == "-":
        return []
    read, stages = report["data_bytes_read"], report["world_size"] // report["data_parallel_size"]
    wholes = [sum(read) / stages] if rung.reads == "share" else read
    return [
        f"its ranks read {whole:.0f} bytes of data, not {of_all}"
        for whole in wholes
        if whole != of_all
    ]


def identity_faults(rung, report, num_ranks):
    ranks, faults = rung.num_ranks(num_ranks), []
    if (rung.step, ranks) != (report["step"], report["world_size"]):
        faults.append(f"its report is from {report['step']} on {report['world_size']} ranks")
    if report["first_step"] != 0:
        faults.append(f"its report begins after step {report['first_step']}")
    for key in (
        "memory",
        "memory_theory",
        "traffic",
        "traffic_theory",
        "data_bytes_read",
        "differences",
    ):
        if len(report[key]) != ranks:
            faults.append(f"its report has {key} of {len(report[key])} ranks, not {ranks}")
    return faults


def loss_faults(report, is_short):
    losses, validation = report["losses"], [entry["loss"] for entry in report["val_losses"]]
    if not losses or None in losses or None in validation:
        return ["its loss is not finite"]
    if report["unit"] != "target tokens":  # few steps: one batch's loss would say little
        has_fallen = is_short or (validation and validation[-1] < losses[0])
        return (
            []
            if has_fallen
            else [f"its validation loss is not below its first loss, {losses[0]:.4f}: {validation}"]
        )
    if is_short:
        has_fallen = len(losses) < 10 or losses[-1] < losses[0]
        return (
            []
            if has_fallen
            else [f"its loss {losses[-1]:.4f} is not below the first one, {losses[0]:.4f}"]
        )
    return (
        []
        if losses[-1] < BIGRAM_LOSS
        else [f"its loss {losses[-1]:.4f} is not below {BIGRAM_LOSS}"]
    )


def largest_difference(a, b):
    """The largest |a - b| of two series; infinite where one holds what is not finite, or more
    entries."""
    if len(a) != len(b) or None in a or None in b:
        return math.inf
    return max((abs(x - y) for x, y in zip(a, b)), default=0.0)


def distances(report, reference):
    """How far a rung is from the one that it must equal: for the table, the bounds are
    compare_runs'."""
    norms = report["param_norms"][-1:], reference["param_norms"][-1:]
    difference = largest_difference(*norms)
    return {
        "max_loss_difference": largest_difference(report["losses"], reference["losses"]),
        "param_norm_difference": difference / norms[1][0]
        if norms[1] and norms[1][0]
        else difference,
    }


def make_row(rung, report):
    """One rung's numbers."""
    steps = max(1, len(report["losses"]))
    memory = [held for held in report["memory"] if held is not None]
    row = {
        "name": rung.name,
        "ranks": report["world_size"],
        "equals": rung.equals,
        "final_loss": report["losses"][-1] if report["losses"] else None,
        "data_per_step": max(report["data_bytes_read"]) / steps,
        "data_per_step_theory": None
        if None in report["data_bytes_theory"]
        else max(report["data_bytes_theory"]) / steps,
        "sent_per_step": max(map(bytes_sent, report["traffic"])) / steps,
        "sent_per_step_theory": max(theory["bytes_sent"] for theory in report["traffic_theory"])
        / steps,
        "tokens_per_second": report.get("tokens_per_second"),
        "product_speed_share": report.get("product_speed_share"),
    }
    for kind in HELD:
        held = max((rank[kind] for rank in memory), default=None)
        row[kind] = None if held is None else held / report["num_parameters"]
        row[kind + "_theory"] = (
            max(rank[kind] for rank in report["memory_theory"]) / report["num_parameters"]
        )
    return row


def judge(run, rungs, num_ranks, is_short, own=()):
    """A row per rung: its numbers, its faults in words, and whether it trained with own answers.
    Raises OSError or ValueError if a report cannot be read."""
    reports, rows = {}, []
    for rung in rungs:
        report = reports[rung.name] = json.loads((run / rung.name / "report.json").read_text())
        of_all = reports[rungs[0].name]["data_bytes_read"][0]
        row = make_row(rung, report) | {"is_own": rung.step in own}
        row["faults"] = identity_faults(rung, report, num_ranks) + loss_faults(report, is_short)
        row["faults"] += differences_from_theory(report) + data_faults(rung, report, of_all)
        if rung.equals != "-":
            row.update(distances(report, reports[rung.equals]))
            row["bits_equal"] = not differences(run / rung.name, run / rung.equals)
            row["faults"] += equality_faults(rung, run)
        rows.append(row)
    return rows


def number(row, key, form):
    return MINUS if row.get(key) is None else format(row[key], form)


def beside(row, key, form):
    return number(row, key, form) + (
        "" if row[key + "_theory"] is None else f" ({number(row, key + '_theory', form)})"
    )


# Two tables, for one would be too wide for a terminal: heading, and the cell of a row.
LEARNING = {
    "rung": lambda row: row["name"] + (" *" if row["is_own"] else ""),
    "ranks": lambda row: str(row["ranks"]),
    "must equal": lambda row: MINUS if row["equals"] == "-" else row["equals"],
    "final loss": lambda row: number(row, "final_loss", ".4f"),
    "max Δloss": lambda row: number(row, "max_loss_difference", ".1e"),
    "Δ‖p‖": lambda row: number(row, "param_norm_difference", ".1e"),
    "bits equal": lambda row: {True: "yes", False: "no", None: MINUS}[row.get("bits_equal")],
    "tokens/s": lambda row: number(row, "tokens_per_second", ",.0f"),
    "of product speed": lambda row: number(row, "product_speed_share", ".0%"),
    "in bounds": lambda row: "no" if row["faults"] else "yes",
}
COST = {
    "rung": lambda row: row["name"],
    "params B/p": lambda row: beside(row, "parameters", ".3f"),
    "grads B/p": lambda row: beside(row, "gradients", ".3f"),
    "optimizer B/p": lambda row: beside(row, "optimizer", ".3f"),
    "communication B/p": lambda row: beside(row, "communication", ".3f"),
    "bytes read/step": lambda row: beside(row, "data_per_step", ",.0f"),
    "bytes sent/step": lambda row: beside(row, "sent_per_step", ",.0f"),
}
NOTE = """\
Of product speed: the model's operations per second, next to those of large matrix products on all ranks at once.
B/p: bytes held per parameter on the fullest rank. In brackets: what theory says.
"""


TEXT_OF_STAGES = """\
# a comment
oracle\tstep0\t1\talways\t-\t-\tall\t-
first\tstep1\tN\talways\toracle\tbits\tall\t-
second\tstep2\tN\talways\tfirst\tbits\tshare\t-
third\tstep3\tN\talways\tsecond\tbits,1e-3\tshare\t-
pairs\tstep3\tN\tcorpus\t-\t-\t-\t-
"""
# Of those five rungs, the names and bounds in a run with so many microbatches on such data.
BOUNDS = {
    (1, "corpus"): {
        "oracle": "-",
        "first": "bits",
        "second": "bits",
        "third": "bits",
        "pairs": "-",
    },
    (2, "own.txt"): {"oracle": "-", "first": "bits", "second": "bits", "third": "1e-3"},
}


def right_report(rung):
    report = made_report(rung.num_ranks(2)) | {"step": rung.step}
    if report["world_size"] == 1:
        spoil(report, (), {"config": {"simulate-ranks": 2}})
        report["memory"][0]["other_by_name"] = {"simulated ranks": 40}
    if rung.reads == "all":
        report["data_bytes_read"] = [1440] * report["world_size"]  # 80 rows of 9 tokens
    if rung.name == "pairs":
        report["unit"] = "pairs"
        del report["target_tokens"]
    return report


# The rung that is spoilt, the place in its report (none: several), the value put there, whether the
# run is a short one, what must be said of the rung (None: nothing), and of how many microbatches,
# if not one. With two, "third" must equal "second" only within 1e-3.
PLANTED = [
    ("second", ("step",), "step2", False, None),
    ("second", ("step",), "step3", False, "its report is from step3"),
    ("second", ("world_size",), 3, False, "on 3 ranks"),
    ("second", ("first_step",), 1, False, "begins after step 1"),
    ("second", ("traffic",), [{}], False, "traffic of 1 ranks"),
    ("second", ("losses", 1), 3.7500001, False, "it does not equal first: step 2: loss"),
    (
        "second",
        ("val_losses",),
        [{"step": 3, "loss": None}],
        False,
        "validation loss is not finite",
    ),
    ("third", ("losses", 1), 3.752, False, None, 2),
    ("third", ("losses", 1), 3.752, False, "it does not equal second: step 2: loss"),
    ("third", ("param_hash",), "another", False, "param_hash 'another'"),
    ("oracle", ("losses", 9), None, False, "not finite"),
    ("oracle", ("losses", 9), 2.5, False, "not below 2.04"),
    ("oracle", ("losses", 9), 2.5, True, None),
    ("oracle", ("losses", 9), 4.1, True, "not below the first one"),
    ("pairs", ("losses", 9), 4.1, False, None),
    (
        "pairs",
        ("val_losses", 1, "loss"),
        4.1,
        False,
        "not below its first loss, 4.0000: [3.5, 4.1]",
    ),
    ("pairs", ("val_losses", 1, "loss"), 4.1, True, None),
    ("pairs", ("val_losses", 0, "loss"), None, True, "not finite"),
    ("pairs", ("val_losses",), [], False, "not below its first loss"),
    ("pairs", ("val_losses",), [], True, None),
    ("pairs", ("data_bytes_read", 0), 1, False, None),
    ("second", ("memory",), [None, None], False, None),
    (
        "second",
        ("differences", 1),
        ["bytes of gradients: 204, not 200"],
        False,
        "rank 1: bytes of gradients: 204, not 200",
    ),
    ("second", ("differences",), [[]], False, "differences of 1 ranks"),
    ("oracle", ("data_bytes_read", 0), 2880, False, None),
    ("first", ("data_bytes_read", 1), 720, False, "read 720 bytes of data, not 1440"),
    ("second", ("data_bytes_read",), [1440, 1440], False, "read 2880 bytes of data, not 1440"),
    ("second", ("data_bytes_read",), [700, 740], False, None),
    (
        "second",
        ("data_bytes_read",),
        [700, 720],
        False,
        "its ranks read 1420 bytes of data, not 1440",
    ),
    ("second", ("losses", 1), 3.77, False, "it does not equal first: step 2: loss", 2),
    ("third", ("losses", 1), 3.77, False, "it does not equal second within 0.001: step 2: loss", 2),
]


def self_test():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rungs.tsv"
        path.write_text(TEXT_OF_STAGES)
        rungs = {m: read_rungs(path, m, data == "corpus") for m, data in BOUNDS}
    for (m, _), bounds in BOUNDS.items():
        assert {rung.name: rung.within for rung in rungs[m]} == bounds, rungs[m]
    # Each of the other objectives is trained by one rank and by all, with the same options but for
    # the cut.
    names = {rung.name: rung for rung in read_rungs()}
    compared = [
        (names[rung.equals], rung)
        for rung in names.values()
        if rung.reads == "-" and rung.equals != "-"
    ]
    assert len(compared) == 2, compared
    for one, each in compared:
        cut, whole = (
            "--pipeline-stages P --num-microbatches P",
            "--pipeline-stages 1 --num-microbatches P --accumulation R",
        )
        assert (one.ranks, each.ranks, one.options) == (
            "1",
            "N",
            each.options.replace(cut, whole),
        ), each
    for name, place, value, is_short, wanted, *more in PLANTED:
        of = rungs[more[0] if more else 1]
        with tempfile.TemporaryDirectory() as folder:
            for rung in of:
                fault = (place, value) if rung.name == name else ()
                write_run(Path(folder, rung.name), *fault, report=right_report(rung))
            rows = judge(Path(folder), of, 2, is_short, ["step3"])
        faults = {row["name"]: row["faults"] for row in rows}
        marked = re.findall(r"(\w+) \*", table_of(rows, LEARNING))
        assert marked == [rung.name for rung in of if rung.step == "step3"], marked
        said = "\n".join(faults[name])
        assert wanted in said if wanted else not said, (
            f"{name} with {place} {value}: wanted {wanted!r}, found {faults}"
        )
    print(f"self-test: {len(PLANTED)} planted faults are judged rightly")


def main():
    parser = argparse.ArgumentParser(description="Prints the ladder's table of a run.")
    parser.add_argument("run", type=Path, nargs="?")
    parser.add_argument(
        "--ranks", type=int, default=2, help="what N stands for in the rungs (default 2)"
    )
    parser.add_argument(
        "--short", action="store_true", help="not the usual run: the loss need only fall"
    )
    parser.add_argument("--rungs", type=Path, default=FILE)
    parser.add_argument(
        "--own",
        metavar="STEPS",
        default="",
        help="marks these, separated by commas, as trained with own answers",
    )
    parser.add_argument(
        "--self-test",
        action=SelfTest,
        const=self_test,
        help="plant faults and check that they are found",
    )
    arguments = parser.parse_args()
    if arguments.run is None:
        parser.error("a run is needed: runs/ladder-…")
    try:
        first = read_rungs(arguments.rungs)[0].name
        config = json.loads((arguments.run / first / "report.json").read_text())["config"]
        has_corpus = is_corpus(config["data"], config.get("val-data", ""))
        rungs = read_rungs(arguments.rungs, config["num-microbatches"], has_corpus)
        rows = judge(
            arguments.run, rungs, arguments.ranks, arguments.short, arguments.own.split(",")
        )
    except (OSError, ValueError) as error:
        sys.exit(f"ladder_table: {error}")

    note = NOTE + ("*: trained with your own answers to exercises.\n" if arguments.own else "")
    text = "\n\n".join([table_of(rows, LEARNING), table_of(rows, COST), note])
    write_or_fail(arguments.run / "table.md", text)
    write_or_fail(arguments.run / "table.json", json.dumps(rows, indent=1) + "\n")
    print("\n" + text, end="")
    for row in rows:
        for fault in row["faults"]:
            print(f"OUT OF BOUNDS: {row['name']}: {fault}")
    return 1 if any(row["faults"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
