"""The runs that ./ladder report shows: what they have written, and how far one is from another."""

import math
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import compare_runs
from compare_runs import (
    RATE,
    SECONDS,
    SERIES,
    VALIDATION,
    is_finite,
    is_number,
    logged_series,
    read_metrics,
    read_report,
    whole_series,
)
from launcher.accounts import HELD

LOSS, GRADIENTS, PARAMETERS, UNITS = (
    SERIES[key] for key in ("losses", "grad_norms", "param_norms", "units")
)
PER_STEP = SERIES | {"learning_rates": RATE, "step_seconds": SECONDS}
ACCOUNTS = ("memory", "memory_theory", "traffic", "traffic_theory")
KINDS = compare_runs.KINDS | {
    "step": str,
    "config": dict,
    "world_size": int,
    "units_per_second": (int, float),
    **dict.fromkeys(("learning_rates", "step_seconds", *ACCOUNTS), list),
}
SHAPE = (
    "model",
    "layers",
    "heads",
    "kv-heads",
    "head-channels",
    "channels",
    "mlp-channels",
    "context",
    "vocab-size",
    "tie-embeddings",
    "rope-theta",
    "rope-scaling",
    "no-rope-interval",
    "norm-eps",
    "gelu",
)

Series = dict[int, float | None]  # a value for each step


@dataclass
class Run:
    folder: Path
    report: dict[str, Any]  # empty if the run was killed, has diverged, or has not ended yet
    series: dict[
        str, Series
    ]  # of the whole run; of steps that the report does not know, those that were logged
    times: dict[int, float] = field(
        default_factory=dict
    )  # when steps were logged, in seconds since 1970
    name: str = ""
    reference: "Run | None" = None
    memory: list[dict] = field(default_factory=list)  # one per rank, as in traffic; see below
    traffic: list[dict] = field(default_factory=list)
    diverged: str = ""  # at which step, and why

    def model(self) -> tuple:
        """Only runs of which this is equal can be equal."""
        shape = tuple(
            (name, self.report["config"][name]) for name in SHAPE if name in self.report["config"]
        )
        return (
            ("parameters", self.report["num_parameters"]),
            ("losses are means over", self.report["unit"]),
            *shape,
        )

    def other_model(self, run: "Run") -> str:
        """What is unlike in this model and that of another run; nothing if both are of one, or one
        has no report."""
        both = zip(self.model(), run.model()) if self.report and run.report else ()
        return next(
            (
                f"{what} {mine}, and {others} in {run.name}"
                for (what, mine), (_, others) in both
                if mine != others
            ),
            "",
        )

    def steps(self) -> list[int]:
        return sorted(
            self.series[LOSS]
            if self.report
            else {*self.series[LOSS], *self.series.get(VALIDATION, {})}
        )

    def num_taken(self) -> int:
        """Steps, all parts of the run together. It has a report."""
        return len(self.report["losses"]) + (
            self.report["first_step"] if self.steps()[:1] <= [self.report["first_step"]] else 0
        )

    def spans(self) -> list[tuple[int, int]]:
        """The first and last of steps without a gap. What a healed worker has missed is a gap.
        Where only some steps were logged, the gaps say nothing."""
        logged, spans = self.report.get("first_step", math.inf), []
        for step in self.steps():
            if spans and (step == spans[-1][1] + 1 or spans[-1][1] <= logged):
                spans[-1] = (spans[-1][0], step)
            else:
                spans.append((step, step))
        return spans


def read_run(folder: Path) -> Run:
    """Raises ValueError with the file and the reason if it is not a run, or is damaged."""
    path, lines = folder / "report.json", read_metrics(folder / "metrics.jsonl")
    times = {
        line["step"]: line["time"] for line in reversed(lines) if line.get("time")
    }  # of an evaluation's line only if alone
    if any("loss" in line or "diverged" in line for line in lines) and not path.exists():
        end = lines[-1]  # a run that goes on drops the line of the step at which it had diverged
        diverged = (
            f"diverged at step {end['step']:,}: {end['diverged']}" if "diverged" in end else ""
        )
        return Run(folder, {}, {LOSS: {}, **logged_series(lines)}, times, diverged=diverged)
    report = read_report(folder, KINDS)
    try:
        values = {name: report[key] for key, name in PER_STEP.items()} | report.get("metrics", {})
        series = whole_series(report, lines, number_steps(report, lines), values)
        if wrong := [
            value for of in series.values() for value in of.values() if not is_number(value)
        ]:
            raise ValueError(f"{wrong[0]!r:.40} is not a number")
        return Run(
            folder, report, series, times, memory=memory_of(report), traffic=traffic_of(report)
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        what = f"there is no {error}" if isinstance(error, KeyError) else error
        raise ValueError(f"{path}: is damaged: {what}") from None


def number_steps(report: dict, lines: list[dict]) -> list[int]:
    """The number of the step that each entry of the report's lists belongs to. It jumps where a
    worker was healed. Only metrics.jsonl says so: at the first step that is logged after it, which
    usually is the last one of the round."""
    logged = {
        (line["loss"], line["step_seconds"]): line["step"] for line in lines if "loss" in line
    }
    steps, before = [], report["first_step"]
    for entry in zip(report["losses"], report["step_seconds"], strict=True):
        before = max(logged.get(entry, before + 1), before + 1)
        steps.append(before)
    return steps


def first_rank(report: dict) -> int:
    """That has an account: 0, or a simulated rank, which has the only one."""
    return report.get("simulation", {}).get("rank", 0)


def memory_of(report: dict) -> list[dict]:
    """Rows for each rank that has an account: what it holds of each category, and what theory says
    of them, in bytes."""
    rows = []
    for rank, (memory, theory) in enumerate(
        zip(report["memory"], report["memory_theory"], strict=True), first_rank(report)
    ):
        if memory is not None:
            most = max(memory["peak"], memory["save_peak"])
            rows.append(
                {
                    "rank": rank,
                    "held": {name: memory[name] + 0 for name in (*HELD, "other")},
                    "theory": {name: theory[name] + 0 for name in HELD},
                    "resident": {
                        "tensors, at most": most,
                        "libraries, transport, heap": memory["resident_peak"] - most,
                    },
                }
            )
    return rows


def traffic_of(report: dict) -> list[dict]:
    """What each rank sent by each operation that sends anything, and what theory says, in bytes."""
    rows = []
    for rank, (counted, theory) in enumerate(
        zip(report["traffic"], report["traffic_theory"], strict=True), first_rank(report)
    ):
        of_theory = {
            name: counts["bytes_sent"] + 0 for name, counts in theory.items() if name in counted
        }
        sent = {name: counts["bytes_sent"] + 0 for name, counts in counted.items()}
        rows.append({"rank": rank, "sent": sent, "theory": of_theory})
    return rows


# ---- differences ------------------------------------------------------------------------------------------------------


class Difference(NamedTuple):
    """A difference between two series, at the steps that both have. ULPs are units in the last
    place: how many representable numbers two values are apart."""

    steps: list[int]
    first: int | None  # of the steps that differ
    ulps: Series  # at each step at which both values are finite
    precision: (
        str  # whose ULPs these are: fp32's, if all values are exact in fp32, otherwise fp64's
    )

    def largest(self) -> tuple[int, int] | None:
        """ULPs, and the negative of the first step that is so far apart."""
        return max(((ulps, -step) for step, ulps in self.ulps.items() if ulps), default=None)

    def __str__(self) -> str:
        if not self.steps:
            return "–"
        if self.first is None:
            return "equal"
        if not (largest := self.largest()):
            return f"differs at step {self.first}: not finite"
        ulps, step = largest
        many = f"{ulps:,}" if ulps < 10**6 else f"{ulps:.1e}".replace("e+", "e")
        return f"differs first at step {self.first}; most at step {-step}, by {many} {'ULP' if ulps == 1 else 'ULPs'} of {self.precision}"


def difference(found: Series, wanted: Series) -> Difference:
    """Values that are not finite equal nothing."""
    steps = sorted(found.keys() & wanted.keys())
    pairs = {
        step: (found[step], wanted[step])
        for step in steps
        if is_finite(found[step]) and is_finite(wanted[step])
    }
    is_single = all(is_exact_in_fp32(value) for pair in pairs.values() for value in pair)
    first = next((step for step in steps if step not in pairs or found[step] != wanted[step]), None)
    ulps = {step: abs(place(a, is_single) - place(b, is_single)) for step, (a, b) in pairs.items()}
    return Difference(steps, first, ulps, "fp32" if is_single else "fp64")


def is_exact_in_fp32(value: float) -> bool:
    try:
        return struct.unpack("f", struct.pack("f", value))[0] == value
    except OverflowError:
        return False


def place(value: float, is_single: bool) -> int:
    """Among all numbers of this precision, in order."""
    bits = (
        struct.unpack("<i", struct.pack("<f", value))[0]
        if is_single
        else struct.unpack("<q", struct.pack("<d", value))[0]
    )
    return bits if bits >= 0 else -(bits & (2**31 - 1 if is_single else 2**63 - 1))


class Comparison:
    """A run beside its reference."""

    def __init__(self, run: Run, reference: Run):
        names = [
            name for name in run.series if name in reference.series and name not in (RATE, SECONDS)
        ]
        self.by_name = {
            name: difference(run.series[name], reference.series[name]) for name in names
        }
        self.num_steps = len(self.by_name[LOSS].steps)
        self.have_differing_ends = run.steps()[-1:] != reference.steps()[-1:]
        hashes = [each.report.get("param_hash") for each in (run, reference)]
        self.parameters = "–" if None in hashes else "equal" if hashes[0] == hashes[1] else "differ"

    def is_equal(self) -> bool:
        """Whether they are equal to the bit, in all that both have."""
        has_other_parameters = self.parameters == "differ" and not self.have_differing_ends
        return (
            self.num_steps > 0
            and not has_other_parameters
            and all(each.first is None for each in self.by_name.values())
        )

    def others(self) -> str:
        """The series that have no column of their own in the table."""
        wrong = [
            name
            for name, each in self.by_name.items()
            if each.first and name not in (LOSS, VALIDATION, GRADIENTS, PARAMETERS)
        ]
        return "; ".join(f"{name}: {self.by_name[name]}" for name in wrong) or "equal"
