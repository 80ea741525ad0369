#!/usr/bin/env python3
"""Compares two runs: are they equal to the bit, and if not, where do they first differ and by how
much?

    scripts/compare_runs.py RUN REFERENCE [--within TOLERANCE]
    scripts/compare_runs.py RUN --save-reference DIR     keeps what others are compared with
    scripts/compare_runs.py --self-test       plants differences in runs that it makes; each must be found

RUN and REFERENCE are folders of runs (--out) or folders that --save-reference wrote. Compares
losses, gradient norms, parameter norms, denominators and metrics of every step, validation losses
(also per byte of text, by which runs with different tokenizers are compared), and each tensor of
the final parameters. Of a run that was resumed, earlier steps are those that it has logged. Only
steps that both have are compared; both must end after the same step, and evaluate after the same
ones. Without --within, everything must be equal to the bit. With it, series may differ by the
relative TOLERANCE, and tensors by the same relative norm of their difference (except the key's
third of an attention bias, whose gradient is only rounding). Values that are not finite equal
nothing. Exit code 1 if the runs differ or cannot be compared. Standard library only.
"""

import argparse
import array
import functools
import json
import math
import operator
import os
import shutil
import sys
import tempfile
from pathlib import Path

from launcher.console import SelfTest, reader
from tensor_files import read_tensors, write_tensors

SERIES = {
    "units": "denominator",
    "losses": "loss",
    "grad_norms": "gradient norm",
    "param_norms": "parameter norm",
}
VALIDATION, PER_BYTE, RATE, SECONDS = (
    "validation loss",
    "nats per byte of the validation text",
    "learning rate",
    "seconds per step",
)
LOGGED = {"loss": SERIES["losses"], "grad_norm": SERIES["grad_norms"], "param_norm": SERIES["param_norms"], "units": SERIES["units"],
          "target_tokens": SERIES["units"], "learning_rate": RATE, "step_seconds": SECONDS, "val_loss": VALIDATION,
          "val_nats_per_byte": PER_BYTE}  # fmt: skip
KINDS = {
    **dict.fromkeys(SERIES, list),
    "unit": str,
    "first_step": int,
    "param_hash": str,
    "val_losses": list,
    "num_parameters": int,
}


def read_report(folder, kinds=KINDS):
    """Returns the report. Raises ValueError with its path if the file is not a report, with values
    of these kinds."""
    path = Path(folder) / "report.json"
    if not path.is_file():
        raise ValueError(f"{folder}: is not the folder of a run: it has no report.json")
    try:
        report = json.loads(path.read_text())
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path}: is damaged: {error}") from None
    if not isinstance(report, dict):
        raise ValueError(f"{path}: is not a report: it holds no object")
    for key, kind in kinds.items():
        if key not in report:
            raise ValueError(f"{path}: is not a report: it has no {key}")
        if not isinstance(report[key], kind):
            raise ValueError(f"{path}: is damaged: {key} is {report[key]!r:.40}")
    if any(
        not isinstance(values, list) or len(values) != len(report["losses"])
        for values in series_of(report).values()
    ):
        raise ValueError(f"{path}: its series differ in length")
    return report


def series_of(report):
    """What the report has a value of for each step: {name: values}."""
    return {name: report[key] for key, name in SERIES.items()} | report.get("metrics", {})


def last_step(report):
    return report["first_step"] + len(report["losses"])


def is_number(value):
    """A number, or the null of a value that is not finite. fp64 can hold it."""
    return (
        value is None or isinstance(value, float) or (type(value) is int and abs(value) < 2**1023)
    )


def read_metrics(path):
    """The lines of metrics.jsonl, without a last one that is not complete: the run may still write
    it."""
    lines = path.read_text().split("\n")[:-1] if path.exists() else []
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(json.loads(line))
            if (
                not all(is_number(found[-1].get(key)) for key in (*LOGGED, "time"))
                or type(found[-1]["step"]) is not int
                or found[-1]["step"] < 1
            ):
                raise ValueError(line)
        except (AttributeError, ValueError, TypeError, KeyError, RecursionError):
            raise ValueError(f"{path}: line {number} is not a logged step: {line:.40}") from None
    return found


def logged_series(lines, metrics=()):
    """{name: {step: value}} of such lines, and of these metrics of an objective."""
    series = {}
    for line in lines:
        for key, name in (LOGGED | {metric: metric for metric in metrics}).items():
            if key in line:
                series.setdefault(name, {})[line["step"]] = line[key]
    return series


def whole_series(report, lines, steps, values):
    """{name: {step: value}} of a whole run: the values at these steps, {name: list}, the validation
    losses of its report, and from before its first step what earlier parts of the run have logged
    in these lines."""
    series = {name: dict(zip(steps, of, strict=True)) for name, of in values.items()}
    for key, name in (("loss", VALIDATION), ("nats_per_byte", PER_BYTE)):
        series[name] = {
            entry["step"] + 0: entry[key]
            for entry in report["val_losses"]
            if key == "loss" or key in entry
        }
    past = logged_series(
        [line for line in lines if line["step"] <= report["first_step"]], report.get("metrics", ())
    )
    return {name: past.get(name, {}) | of for name, of in series.items()}


def read_run(folder):
    """The report, and with it `series`, {name: {step: value}}, of the whole run."""
    report = read_report(folder)
    lines = read_metrics(Path(folder) / "metrics.jsonl") if report["first_step"] else []
    report["series"] = whole_series(
        report, lines, range(report["first_step"] + 1, last_step(report) + 1), series_of(report)
    )
    return report


def common_steps(report, reference):
    """The steps that both have."""
    return sorted(
        report["series"][SERIES["losses"]].keys() & reference["series"][SERIES["losses"]].keys()
    )


def parameters_file(folder, step):
    """model.safetensors of a reference, or of a run's checkpoint after this step; None if there is
    none."""
    for path in (
        Path(folder) / "model.safetensors",
        Path(folder) / f"checkpoints/step_{step:06d}/model.safetensors",
    ):
        if path.exists():
            return path
    return None


def is_finite(value):
    return isinstance(value, (int, float)) and math.isfinite(value)


def is_close(found, wanted, within):
    return found == wanted or (within is not None and abs(found - wanted) <= within * abs(wanted))


def describe(step, name, found, wanted):
    far = f" (relative difference {abs(found - wanted) / abs(wanted):.1e})" if wanted else ""
    return f"step {step}: {name} {found!r}, wanted {wanted!r}{far}"


def first_difference(name, found, wanted, within):
    """At most one line: for the first step at which two series, {step: value}, differ."""
    for whose, series in (("", found), (" in the reference", wanted)):
        for step, value in series.items():
            if not is_finite(value):
                return [f"step {step}: {name} is not finite{whose}"]
    for step in sorted(found.keys() & wanted.keys()):
        if not is_close(found[step], wanted[step], within):
            return [describe(step, name, found[step], wanted[step])]
    return []


def series_differences(report, reference, within):
    lines = []
    ends = last_step(report), last_step(reference)
    if ends[0] != ends[1]:
        lines.append(f"the run ends after step {ends[0]}, the reference after step {ends[1]}")
    if not common_steps(report, reference):
        lines.append("there is no step that both have taken")
    if report["unit"] != reference["unit"]:
        lines.append(
            f"losses are means over {report['unit']}, in the reference over {reference['unit']}"
        )
    series = report["series"], reference["series"]
    lines += [
        f"only one of the runs has the metric {name}"
        for name in sorted(series[0].keys() ^ series[1].keys())
    ]
    found, wanted = (of[VALIDATION] for of in series)
    for step in sorted(set(common_steps(report, reference)) & (found.keys() ^ wanted.keys())):
        lines.append(
            f"step {step}: only {'the run' if step in found else 'the reference'} has a validation loss"
        )
    for name in [
        name for name in series[0] if name in series[1]
    ]:  # PER_BYTE also compares different tokenizers
        lines += first_difference(
            name, series[0][name], series[1][name], None if name == SERIES["units"] else within
        )
    return lines


def relative_distance(found, wanted):
    """Norm of the differences over the norm of what is wanted, unless that is 0."""
    difference, norm = math.dist(found, wanted), math.hypot(*wanted)
    return difference / norm if norm else difference


def without_key(name, values):
    """The values that --within compares: without the middle third of a bias of query, key and
    value."""
    third = len(values) // 3
    return values[:third] + values[2 * third :] if name.endswith("attn.c_attn.bias") else values


def tensor_difference(name, found, wanted, within):
    if found == wanted:
        return []
    if found[0] != wanted[0]:
        return [f"tensor {name}: shape {found[0]}, wanted {wanted[0]}"]
    values = [array.array("f", each) for _, each in (found, wanted)]
    distance = relative_distance(
        *(values if within is None else (without_key(name, each) for each in values))
    )
    return (
        []
        if within is not None and distance <= within
        else [f"tensor {name}: relative distance {distance:.1e}"]
    )


def parameter_differences(run, report, reference, wanted_report, within):
    hashes = report["param_hash"], wanted_report["param_hash"]
    if hashes[0] and hashes[0] == hashes[1]:
        return []
    hash_line = f"param_hash {hashes[0]!r}, wanted {hashes[1]!r}"
    files = (
        parameters_file(run, last_step(report)),
        parameters_file(reference, last_step(wanted_report)),
    )
    if None in files:
        missing = [str(folder) for folder, file in zip((run, reference), files) if file is None]
        return [
            f"{hash_line}; no final parameters in {' and '.join(missing)} to measure how far apart they are"
        ]
    found, wanted = map(read_tensors, files)
    if found == wanted:
        return [
            f"{hash_line}, yet the parameter files are equal: one does not belong to its report"
        ]
    lines = [
        f"tensor {name} is in only one of the runs" for name in sorted(found.keys() ^ wanted.keys())
    ]
    for name in sorted(found.keys() & wanted.keys()):
        lines += tensor_difference(name, found[name], wanted[name], within)
    return lines


def differences(run, reference, within=None):
    """One line per difference; none if the runs are equal. Raises OSError or ValueError if one
    cannot be read."""
    report, wanted = read_run(run), read_run(reference)
    return series_differences(report, wanted, within) + parameter_differences(
        run, report, reference, wanted, within
    )


def describe_equality(run, reference, within):
    report, wanted = read_run(run), read_run(reference)
    steps = common_steps(report, wanted)
    how = "equal to the bit" if within is None else f"equal within {within:g}"
    of_all = (
        f" ({steps[0]} to {steps[-1]}: those that both have)"
        if len(steps) < last_step(report)
        else ""
    )
    return f"{how}: {len(steps)} steps{of_all}, {report['num_parameters']} parameters, param_hash {report['param_hash']}"


def save_reference(run, folder):
    """Copies the report and the final parameters of a run that has ended into a new folder. Returns
    the steps that can be compared with it. Raises OSError or ValueError, and then leaves no
    folder."""
    report = read_report(run, KINDS | {"was_stopped": bool})
    parameters = parameters_file(run, last_step(report))
    place = folder.resolve()
    if os.path.lexists(folder) or place.exists():
        raise ValueError(
            f"--save-reference {folder} already exists: name a new folder, or remove this one"
        )
    if place.is_relative_to(run.resolve()):
        raise ValueError(
            f"--save-reference {folder} is inside the run's own folder: name one outside it"
        )
    if report["was_stopped"]:
        raise ValueError(f"{run}: was stopped: resume it with the same command until it ends")
    if not report["losses"]:
        raise ValueError(f"{run}: has taken no step that could be compared")
    if not parameters:
        raise ValueError(f"{run}: holds no final parameters to keep as a reference")
    place.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place.parent, prefix=f".{place.name}.partial-") as partial:
        made = Path(partial, "made")
        made.mkdir()
        shutil.copyfile(Path(run, "report.json"), made / "report.json")
        shutil.copyfile(parameters, made / "model.safetensors")
        made.rename(place)
    return range(report["first_step"] + 1, last_step(report) + 1)


BIAS = "h.0.attn.c_attn.bias"


class PlantedRun:
    """Six steps and two tensors, to be spoiled and written."""

    def __init__(self):
        self.report = {
            "first_step": 0,
            "param_hash": "equal",
            "num_parameters": 8,
            "val_losses": [
                {"step": 3, "loss": 2.5},
                {"step": 6, "loss": 1.5, "nats_per_byte": 0.5},
            ],
        }
        self.report["was_stopped"] = False
        self.report |= {key: [6.0, 5.0, 4.0, 3.0, 2.0, 1.0] for key in SERIES}
        self.report |= {"unit": "pairs", "metrics": {"accuracy": [0.5] * 6}}
        self.tensors = {
            "wte.weight": [3.0, 4.0],
            BIAS: [1.0, 1.0, 1e-9, 1e-9, 1.0, 1.0],
        }  # query, key, value
        self.file, self.log = "model.safetensors", []

    def write(self, folder):
        folder.mkdir()
        (folder / "report.json").write_text(
            self.report if isinstance(self.report, str) else json.dumps(self.report)
        )
        (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in self.log))
        if self.file is None:
            return
        write_tensors(
            folder / self.file,
            {
                name: ([len(values)], array.array("f", values).tobytes())
                for name, values in self.tensors.items()
            },
        )

    # What is planted, besides another report, file or log:
    def tensor(self, name, place, value):
        self.report["param_hash"] = "another"
        self.tensors[name][place] = value

    def steps(self, first, last):
        for values in [self.report[key] for key in SERIES] + [self.report["metrics"]["accuracy"]]:
            values[:] = values[first - 1 : last]
        self.report["first_step"] = first - 1

    def logged(self, *losses):
        """Before the first step of steps(); the rest of it is right."""
        right = ("grad_norm", "param_norm", "units")
        self.log = [
            {"step": step, "loss": loss, "accuracy": 0.5, **dict.fromkeys(right, 7.0 - step)}
            for step, loss in losses
        ]
        self.log += [{"step": 3, "val_loss": 2.5}, {"step": 9, "loss": 5.0}]
        del self.report["val_losses"][0]

    def without(self, *place):
        *path, last = place
        del functools.reduce(operator.getitem, path, self.report)[last]

    def set(self, *place_and_value):
        *place, last, value = place_and_value
        functools.reduce(operator.getitem, place, self.report)[last] = value


NAN = math.nan
MORE = (
    "set",
    "val_losses",
    [{"step": 3, "loss": 2.5}, {"step": 5, "loss": 1.7}, {"step": 6, "loss": 1.5}],
)
# What is planted, --within, and what must be said (None: the runs are equal). "both" plants it in
# both.
PLANTED = [
    ([], None, None),
    ([], 1e-6, None),
    ([("set", "losses", 3, 3.1)], None, "step 4: loss 3.1, wanted 3.0"),
    ([("set", "losses", 3, 3.1)], 0.1, None),
    ([("set", "losses", 3, 3.1)], 0.01, "step 4: loss"),
    ([("set", "losses", 3, 3.1)], 0.0, "step 4: loss"),
    ([("set", "grad_norms", 0, 7.0)], None, "step 1: gradient norm"),
    ([("set", "param_norms", 5, 7.0)], None, "step 6: parameter norm"),
    ([("set", "units", 1, 5.1)], 0.1, "step 2: denominator"),
    ([("set", "unit", "samples")], 0.1, "means over samples, in the reference over pairs"),
    ([("set", "metrics", "accuracy", 2, 0.6)], None, "step 3: accuracy 0.6, wanted 0.5"),
    ([("set", "metrics", "accuracy", 2, 0.52)], 0.1, None),
    ([("set", "metrics", "margin", [0.6] * 6)], 0.1, "only one of the runs has the metric margin"),
    ([("set", "losses", 1, None)], None, "step 2: loss is not finite"),
    (["both", ("set", "losses", 1, None)], None, "step 2: loss is not finite"),
    (["both", ("set", "losses", 1, NAN)], None, "step 2: loss is not finite"),
    (["both", ("set", "grad_norms", 1, math.inf)], 0.1, "step 2: gradient norm is not finite"),
    ([("set", "val_losses", 1, "loss", 1.6)], None, "step 6: validation loss"),
    ([("set", "val_losses", 1, "loss", 1.6)], 0.1, None),
    (
        [("set", "val_losses", 1, "nats_per_byte", 0.6)],
        None,
        "step 6: nats per byte of the validation text 0.6, wanted 0.5",
    ),
    ([("set", "val_losses", 1, "nats_per_byte", 0.6)], 0.3, None),
    ([("without", "val_losses", 1, "nats_per_byte")], None, None),  # an older run
    (
        [("set", "val_losses", 1, "loss", 1.6), ("set", "val_losses", 1, "nats_per_byte", None)],
        0.1,
        "step 6: nats per byte of the validation text is not finite",
    ),
    ([("set", "val_losses", [])], None, "step 3: only the reference has a validation loss"),
    ([("without", "val_losses", 1)], 0.1, "step 6: only the reference has a validation loss"),
    ([MORE], 0.1, "step 5: only the run has a validation loss"),
    (["both", MORE], None, None),
    (["both", ("set", "val_losses", [])], None, None),
    ([("report", '{"losses": 1}')], None, "has no units"),
    (
        ["both", ("set", "val_losses", 1, "loss", None)],
        None,
        "step 6: validation loss is not finite",
    ),
    ([("steps", 1, 5)], None, "ends after step 5, the reference after step 6"),
    ([("steps", 4, 6)], None, None),
    ([("steps", 4, 6), ("set", "losses", 1, 2.1)], None, "step 5: loss"),
    ([("steps", 7, 6)], None, "no step that both have"),
    ([("steps", 4, 6), ("logged", (1, 6.0), (3, 4.0))], None, None),
    ([("steps", 4, 6), ("logged", (1, 6.0), (3, 4.5))], None, "step 3: loss 4.5, wanted 4.0"),
    ([("steps", 4, 6), ("logged", (2, "x"))], None, "metrics.jsonl: line 1 is not a logged step"),
    (["both", ("steps", 1, 0)], None, "no step that both have"),
    ([("tensor", "wte.weight", 0, 3.1)], None, "tensor wte.weight: relative distance 2.0e-02"),
    ([("tensor", "wte.weight", 0, 3.1)], 0.1, None),
    ([("tensor", "wte.weight", 0, 3.1)], 0.01, "tensor wte.weight"),
    ([("tensor", "wte.weight", 0, NAN)], 0.1, "tensor wte.weight: relative distance nan"),
    ([("tensor", BIAS, 0, 2.0)], 0.01, f"tensor {BIAS}"),  # query
    ([("tensor", BIAS, 2, 2.0)], 0.01, None),  # key
    ([("tensor", BIAS, 3, 2.0)], 0.01, None),
    ([("tensor", BIAS, 2, 2.0)], None, f"tensor {BIAS}"),
    ([("tensor", BIAS, 5, 2.0)], 0.01, f"tensor {BIAS}"),  # value
    (
        [("tensor", "wte.weight", 0, 3.1), ("file", "checkpoints/step_000006/model.safetensors")],
        None,
        "tensor wte.weight",
    ),
    (
        [("tensor", "wte.weight", 0, 3.1), ("file", "checkpoints/step_000005/model.safetensors")],
        0.1,
        "no final parameters",
    ),
    ([("set", "param_hash", "another"), ("file", None)], None, "no final parameters"),
    (["both", ("file", None)], None, None),
    (["both", ("without", "metrics")], None, None),
    ([("without", "metrics")], None, "only one of the runs has the metric accuracy"),
    (["both", ("set", "param_hash", ""), ("file", None)], None, "no final parameters"),
    ([("set", "param_hash", "another")], None, "one does not belong to its report"),
    ([("report", "[]")], None, "holds no object"),
    ([("report", "{")], None, "report.json"),
    ([("without", "grad_norms")], None, "has no grad_norms"),
]


# What is planted into a run, where it is kept, and what must be said (None: it is kept).
KEPT = [
    ([], "kept", None),
    ([], "new/deep/", None),
    ([], "run/../dots", None),
    ([], "run2", None),  # a name that only begins like the run's
    ([("steps", 4, 6), ("logged", (1, 6.0))], "kept", None),
    ([("file", "checkpoints/step_000006/model.safetensors")], "kept", None),
    ([], "run", "already exists"),
    ([], ".", "already exists"),  # holds the run
    ([], "new/..", "already exists"),
    ([], "dangling", "already exists"),
    ([], "run/kept", "inside the run's own folder"),
    ([], "link/a/b", "inside the run's own folder"),
    ([], "x" * 256, "File name too long"),
    ([("set", "was_stopped", True)], "kept", "was stopped"),
    ([("without", "was_stopped")], "kept", "has no was_stopped"),
    ([("steps", 7, 6)], "kept", "no step that could be compared"),
    ([("file", None)], "kept", "no final parameters"),
    ([("file", "model.safetensors/a_file")], "kept", "Is a directory"),  # found amid copying
    ([("report", "{")], "kept", "is damaged"),
]


def planted(plants):
    run = PlantedRun()
    for name, *values in plants:
        if name in vars(run):
            setattr(run, name, *values)
        else:
            getattr(run, name)(*values)
    return run


def judge_kept(plants, name):
    """What save_reference() says about a run with these plants; nothing if it is kept rightly."""
    with tempfile.TemporaryDirectory() as home:
        run, kept = Path(home, "run"), Path(home, name)
        planted(plants).write(run)
        Path(home, "dangling").symlink_to("nowhere")
        Path(home, "link").symlink_to("run")
        before = set(Path(home).rglob("*"))
        try:
            save_reference(run, kept)
        except (OSError, ValueError) as error:
            return f"{error}{''.join(f'; left {path}' for path in set(Path(home).rglob('*')) - before)}"
        new = {path.name for path in set(Path(home).rglob("*")) - before if path.is_file()}
        assert new == {"report.json", "model.safetensors"} == set(os.listdir(kept)), new
        return "\n".join(differences(run, kept))


def judge(plants, within):
    """What differences() says about a run with these plants and one without, or with the same."""
    is_both = plants[:1] == ["both"]
    with tempfile.TemporaryDirectory() as home:
        for folder in (Path(home) / "run", Path(home) / "reference"):
            planted(plants[is_both:] if is_both or folder.name == "run" else []).write(folder)
        try:
            return differences(Path(home) / "run", Path(home) / "reference", within)
        except ValueError as error:
            return [str(error)]


def self_test():
    from stand_ins import refusal

    for plants, within, wanted in PLANTED:
        found = "\n".join(judge(plants, within))
        assert wanted in found if wanted else not found, (
            f"{plants} within {within}: wanted {wanted!r}, found {found}"
        )
    for text in ("-1", "nan", "inf", "much"):
        assert refusal(ValueError, tolerance, text), f"--within {text} was accepted"
    for plants, name, wanted in KEPT:
        found = judge_kept(plants, name)
        assert wanted in found and "left" not in found if wanted else not found, (
            f"{plants} kept as {name}: wanted {wanted!r}, found {found}"
        )
    print(
        f"self-test: {len(PLANTED)} pairs of runs are judged rightly, {len(KEPT)} are kept or refused"
    )


def tolerance(text):
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError(text)
    return value


def main():
    parser = argparse.ArgumentParser(
        prog="./ladder compare",
        description="Checks that two runs are equal; if not, shows where they first differ.",
        usage="%(prog)s [-h] [--within TOLERANCE] RUN REFERENCE\n       %(prog)s RUN --save-reference DIR",
    )
    parser.add_argument("run", type=Path, nargs="?", help="folder of a run")
    parser.add_argument(
        "reference",
        type=Path,
        nargs="?",
        help="folder of another run, or one that --save-reference wrote",
    )
    parser.add_argument(
        "--within",
        type=reader(tolerance, "a number of at least 0"),
        metavar="TOLERANCE",
        help="allowed relative difference; default: equal bits",
    )
    parser.add_argument(
        "--save-reference",
        type=Path,
        metavar="DIR",
        help="keep report and final parameters of RUN, which has ended, in this new folder, to compare other runs with",
    )
    parser.add_argument(
        "--self-test",
        action=SelfTest,
        const=self_test,
        help="plant differences and check that they are found",
    )
    arguments = parser.parse_args()
    run, reference, within = arguments.run, arguments.reference, arguments.within
    if kept := arguments.save_reference:
        if reference or within is not None or not run:
            parser.error("--save-reference needs one run, and nothing else")
    elif not reference:
        parser.error("two runs are needed: RUN REFERENCE")
    try:
        if kept:
            steps = save_reference(run, kept)
            print(f"reference: {kept} (steps {steps[0]} to {steps[-1]})")
            return 0
        lines = differences(run, reference, within)
    except (OSError, ValueError) as error:
        sys.exit(f"compare: {error}")
    except (LookupError, TypeError, AttributeError) as error:
        sys.exit(f"compare: a report of {run} or {kept or reference} is damaged: {error!r}")
    print("\n".join(lines) or describe_equality(run, reference, within))
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
