"""How our programs are started, and what the parts of check_huggingface report."""

import math
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from safetensors.torch import load_file

from launcher.checkout import BUILD, ROOT  # noqa: F401
from launcher.launch import command, run_all  # noqa: F401
from launcher.steps import trainer_in

LOGITS, trainer = BUILD / "tests/huggingface/logits", partial(trainer_in, BUILD)
ENCODE = [ROOT / ".ladder/venv-encode/bin/python", ROOT / "scripts/encode/encode.py"]
AT_ONCE = 4  # on two cores; each needs a second or so, most of it to load libtorch


class Result(NamedTuple):
    """Two things are equal within a tolerance, or must not be: where a mistake was planted."""

    name: str
    what: str  # has been compared
    difference: float
    tolerance: float = 0
    mistake: str = ""

    def is_failure(self):
        return (self.difference <= self.tolerance) == bool(
            self.mistake
        )  # not a number is different

    def line(self):
        planted = f", {self.mistake}" if self.mistake else ""
        differs = (
            f"differ by at most {self.difference:.1e} (allowed: {self.tolerance:.0e})"
            if self.difference
            else "are equal"
        )
        return (
            f"{'FAILED  ' if self.is_failure() else ''}{self.name}{planted}: {self.what} {differs}"
        )


def start(commands):
    """Runs them all, a few at a time."""
    for i in range(0, len(commands), AT_ONCE):
        run_all(commands[i : i + AT_ONCE])


def encode(*words):
    run_all([[*ENCODE, *words]])


def write_tokens(file, num_tokens, vocab_size, seed=1):
    """A token file of nanoGPT's kind. Small tokens are frequent, so there is something to learn.
    Returns the tokens, int64."""
    uniform = np.random.default_rng(seed).random(num_tokens)
    tokens = (vocab_size * uniform**3).astype("<u2")
    file.write_bytes(tokens.tobytes())
    return torch.from_numpy(tokens.astype(np.int64))


def windows(tokens, context, num_rows, first=0):
    """(tokens, targets), each [num_rows, context]: what a trainer reads of a token file in
    sequential order."""
    rows = [tokens[i * context : (i + 1) * context + 1] for i in range(first, first + num_rows)]
    return torch.stack([row[:-1] for row in rows]), torch.stack([row[1:] for row in rows])


def read_saved(out):
    """What LOGITS has written: tokens, targets and logits."""
    return load_file(out / "logits.safetensors")


def largest_difference(a, b):
    """The largest difference of two tensors, or of two dicts of them with the same names. Infinite
    if they do not have the same shape."""
    if isinstance(a, dict):
        return (
            max((largest_difference(a[name], b[name]) for name in a), default=math.inf)
            if a.keys() == b.keys()
            else math.inf
        )
    return (a.double() - b.double()).abs().max().item() if a.shape == b.shape else math.inf
