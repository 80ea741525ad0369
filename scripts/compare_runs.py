#!/usr/bin/env python3
"""Holds one run against another: equal to the bit, or where they part and how far.

    scripts/compare_runs.py RUN REFERENCE [--within TOLERANCE]

RUN and REFERENCE are folders of runs (--out) or what --save-reference wrote. Compared are losses, gradient norms,
parameter norms and target counts of every step, and each tensor of the final parameters. Without --within all must
be equal to the bit; with it, series may differ relatively by TOLERANCE, and tensors by the relative norm of their
difference (the key's bias aside, whose gradient is nothing but rounding). Exit code 1 if they differ.
"""

import argparse
import array
import json
import math
import sys
from pathlib import Path

SERIES = {"target_tokens": "number of targets", "losses": "loss", "grad_norms": "gradient norm",
          "param_norms": "parameter norm"}  # fmt: skip


def read_report(folder):
    return json.loads((Path(folder) / "report.json").read_text())


def parameters_file(folder):
    """model.safetensors of a reference, or of the newest checkpoint of a run; None if there is none."""
    candidates = [Path(folder) / "model.safetensors", *sorted(Path(folder).glob("checkpoints/step_*/model.safetensors"))]
    present = [path for path in candidates if path.exists()]
    return present[-1] if present else None


def read_tensors(path):
    """{name: bytes of its fp32 values}"""
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header.pop("__metadata__", None)
    start = 8 + length
    return {name: data[start + entry["data_offsets"][0] : start + entry["data_offsets"][1]] for name, entry in header.items()}


def relative_distance(found, wanted):
    if len(found) != len(wanted):
        return math.inf
    a, b = array.array("f", found), array.array("f", wanted)
    difference = math.sqrt(math.fsum((x - y) ** 2 for x, y in zip(a, b)))
    norm = math.sqrt(math.fsum(y * y for y in b))
    return difference / norm if norm else difference


def series_differences(report, reference, within):
    """For each series the first step at which it differs."""
    lines = []
    for key, name in SERIES.items():
        found, wanted = report[key], reference[key]
        if len(found) != len(wanted):
            lines.append(f"{len(found)} steps instead of {len(wanted)}")
            break
        for i, (a, b) in enumerate(zip(found, wanted)):
            if a == b or (None not in (a, b) and within and abs(a - b) <= within * abs(b)):
                continue
            far = f" (relatively {abs(a - b) / abs(b):.1e})" if None not in (a, b) and b else ""
            lines.append(f"step {report['first_step'] + i + 1}: {name} {a!r}, wanted {b!r}{far}")
            break
    return lines


def tensor_differences(run, reference, within):
    files = parameters_file(run), parameters_file(reference)
    if None in files:
        return []
    found, wanted = map(read_tensors, files)
    lines = [f"tensor {name} is in one of them only" for name in sorted(found.keys() ^ wanted.keys())]
    for name in sorted(found.keys() & wanted.keys()):
        if found[name] == wanted[name]:
            continue
        distance = relative_distance(found[name], wanted[name])
        if within is None or (distance > within and not name.endswith("attn.c_attn.bias")):
            lines.append(f"tensor {name}: relative distance {distance:.1e}")
    return lines


def differences(run, reference, within=None):
    """What differs, a line each; nothing if the runs are equal."""
    report, wanted = read_report(run), read_report(reference)
    lines = series_differences(report, wanted, within)
    if report["param_hash"] != wanted["param_hash"]:
        lines += tensor_differences(run, reference, within)
        if within is None and not lines:
            lines.append(f"param_hash {report['param_hash']}, wanted {wanted['param_hash']}")
    return lines


def main():
    parser = argparse.ArgumentParser(description="Says whether a run equals another, and if not where they part.")
    parser.add_argument("run", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--within", type=float, default=None, metavar="TOLERANCE", help="relative; default: equal bits")
    arguments = parser.parse_args()
    try:
        lines = differences(arguments.run, arguments.reference, arguments.within)
        report = read_report(arguments.run)
    except (OSError, ValueError, KeyError) as error:
        sys.exit(f"compare: {error}")
    for line in lines:
        print(line)
    if not lines:
        steps = len(report["losses"])
        how = "equal to the bit" if arguments.within is None else f"equal within {arguments.within:g}"
        print(f"{how}: {steps} steps, {report['num_parameters']} parameters, param_hash {report['param_hash']}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
