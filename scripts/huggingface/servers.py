"""What the other parts have exported, as servers open it: with transformers 4.57, and with the gguf
package, from which llama.cpp's converter has special tokens. Both must find what transformers 5
finds. That this is what the run had, the other parts check."""

import json
import math
import shutil
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from huggingface.chat import CONVERSATIONS, SPECIALS, messages_of
from huggingface.export import EXPORTED, TEXT
from huggingface.models import edit_json
from huggingface.opened import find, read_folder
from huggingface.runs import ROOT, Result, largest_difference, start
from huggingface.tokens import TEXTS, set_config

PYTHON = ROOT / ".ladder/venv-huggingface-4/bin/python"
TOLERANCE = 1e-6
ASKED = [[*TEXTS, TEXT], [messages_of(said) for said in CONVERSATIONS]]
LOGITS, FOUR, GGUF = "logits of transformers 4.57", "findings of transformers 4.57", "findings of gguf"  # fmt: skip


def only_new_names(folder):
    old = ("rope_theta", "rope_scaling")
    edit_json(
        folder / "config.json",
        lambda config: {name: value for name, value in config.items() if name not in old},
    )


# What is planted into which export, and what must then differ.
MISTAKES = [
    ("Llama, fp32", "only rope_parameters in config.json", LOGITS, only_new_names),
    (
        "a space before",
        "a list of extra_special_tokens",
        FOUR,
        partial(set_config, extra_special_tokens=SPECIALS),
    ),
    ("with several ends", "another eos_token", FOUR, partial(set_config, eos_token=SPECIALS[1])),
    ("with several ends", "another eos_token", GGUF, partial(set_config, eos_token=SPECIALS[1])),
    ("Llama 3's settings", "no add_bos_token", GGUF, partial(set_config, add_bos_token=False)),
]
# What a reader is known to get wrong: version 5 gives every qwen2 model Qwen 2's pre-tokenizer and
# normal form.
FAULTS = {("Qwen2", FOUR): {"ids", "texts"}}  # of any step


def check(folder, has_mistakes):
    if not PYTHON.exists():
        sys.exit(f"there is no {PYTHON.parents[1]}: ./ladder test huggingface makes it")
    if not EXPORTED:
        sys.exit("servers opens what other parts export: name export, chat or tokens before it")
    mistakes = [case for case in MISTAKES if has_mistakes and case[0] in EXPORTED]
    wrong = [write_wrong(EXPORTED[name], *change) for name, _, _, *change in mistakes]
    there = read_in_4(folder, [*EXPORTED.values(), *wrong])
    here = {name: find(read_folder, export, *ASKED) for name, export in EXPORTED.items()}
    for name, found in zip(EXPORTED, there):
        yield from compare(name, here[name], *found).values()
    for (name, mistake, what, _), found in zip(mistakes, there[len(EXPORTED) :]):
        yield compare(name, here[name], *found)[what]._replace(mistake=mistake)


def write_wrong(export, change):
    wrong = shutil.copytree(export, Path(tempfile.mkdtemp(dir=export.parent)) / "wrong")
    change(wrong)
    return wrong


def read_in_4(folder, exports):
    """What read_folder() and read_vocabulary() find there, in pairs."""
    request, result = folder / "request.json", folder / "result.pt"
    finds_us = f"PYTHONPATH={ROOT / 'scripts'}"
    request.write_text(json.dumps([[*map(str, exports)], *ASKED]))
    start([["env", finds_us, PYTHON, "-m", "huggingface.opened", request, result]])
    return torch.load(result)


def compare(name, here, there, gguf):
    """The results by what is compared."""
    (logits, here), (logits_there, there) = without_logits(here), without_logits(there)
    results = {
        LOGITS: Result(name, LOGITS, largest_difference(logits, logits_there), TOLERANCE),
        FOUR: difference(name, FOUR, here, there),
    }
    if gguf and "vocabulary" in here:
        known = dict(here["vocabulary"])
        for kind, token in here["special tokens of config.json"].items():
            known[kind] = token if known[kind] is None else known[kind]
        results[GGUF] = difference(name, GGUF, known, gguf)
    return results


def without_logits(found):
    rest = dict(found)
    return rest.pop("logits", torch.tensor(math.nan)), rest


def difference(name, what, here, there):
    """How many names of what was found differ, except those that are known to."""
    differ = {found for found in here | there if here.get(found) != there.get(found)}
    known = FAULTS.get((name.partition(" of step")[0], what), set())
    what += f", except {', '.join(sorted(known))}," if known else ""
    said = there.get("error") or here.get("error") or ", ".join(sorted(differ ^ known))
    return Result(name, f"{what} ({said})" if said else what, len(differ ^ known))
