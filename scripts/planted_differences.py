"""What scripts/compare_runs.py --self-test plants in runs that it makes, and what compare_runs must
say."""

import array
import functools
import json
import math
import operator
import os
import tempfile
from pathlib import Path

from compare_runs import SERIES, differences, save_reference, tolerance
from stand_ins import refusal
from tensor_files import write_tensors

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


def check():
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
