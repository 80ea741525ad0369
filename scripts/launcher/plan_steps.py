"""What the steps' own plans say (--dry-run --json), and how each wants to be tried. Their options are
words, of which a step gets those that it has."""

import functools
import json
import re
import tempfile
from typing import NamedTuple

from launcher.launch import train
from launcher.processes import call
from launcher.steps import STEP_NAME, step_names, trainer_in

PLANNED_CHAPTER = "tensor_parallel"


def names_in(words):
    return [word[2:].partition("=")[0] for word in words if word.startswith("--")]


def without(words, names):
    """The words but for these options and their values."""
    kept, is_left_out = [], False
    for word in words:
        if word.startswith("--"):
            is_left_out = word[2:].partition("=")[0] in names
        if not is_left_out:
            kept.append(word)
    return kept


class Refusal(Exception):
    """By a trainer: its message."""


class Trainers:
    """The programs in a build folder."""

    def __init__(self, build):
        self.build = build

    def output(self, step, *words):
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            code = call([trainer_in(self.build, step), *words], stdout=out, stderr=err)
            texts = [file.seek(0) or file.read() for file in (out, err)]
        if code:
            raise Refusal(texts[1].strip().removeprefix("error: "))
        return texts[0]

    @functools.cache
    def options(self, step):
        """The names of its options."""
        return set(re.findall(r"^ +--([a-z0-9-]+)", self.output(step, "--help"), re.MULTILINE))

    def words_of(self, step, words):
        """Those that are options of this step."""
        return without(words, [name for name in names_in(words) if name not in self.options(step)])

    @functools.cache
    def facts(self, step, ranks, words):
        """Raises Refusal."""
        output = self.output(step, *self.words_of(step, words), "--dry-run", str(ranks), "--json")
        return json.loads(output)

    def tries(self, step, ranks, words):
        """The ways in which this step is to be planned."""
        try:
            output = self.output(
                step, *self.words_of(step, words), "--dry-run", str(ranks), "--tries"
            )
        except Refusal:
            return [Candidate(step)]  # it will say so again
        return [
            Candidate(step, tuple(each["words"].split()), each["name"])
            for each in json.loads(output)
        ]

    def train(self, step, ranks, words):
        """The report."""
        return train(trainer_in(self.build, step), ranks, words)


class Candidate(NamedTuple):
    step: str
    words: tuple = ()  # besides those of the user
    tried_as: str = ""  # as the trainer calls it

    def name(self):
        step = self.step.split("_")[0] if STEP_NAME.fullmatch(self.step) else self.step
        return ", ".join(filter(None, (step, self.tried_as)))


def planned_steps():
    """All of the course, and a chapter: each says itself how it is to be tried."""
    return [step for step in step_names() if STEP_NAME.fullmatch(step) or step == PLANNED_CHAPTER]


def candidates(trainers, ranks, words):
    for step in planned_steps():
        yield from trainers.tries(step, ranks, words)
