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
import json
import math
import os
import shutil
import sys
import tempfile
from pathlib import Path

from launcher.console import SelfTest, reader
from tensor_files import read_tensors

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


def self_test():
    import planted_differences

    planted_differences.check()


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
