"""./ladder run: trains all stages of scripts/ladder_stages.tsv, one after another, and compares them.

All stages see the same rows: 8 per step, times the number of microbatches. In the usual run the loss must fall below that
of a bigram model; with --steps, or options that change what is learned, it only has to fall.
"""

import contextlib
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from launcher.build import BuildBehind, is_built, need_built, num_cores, prepare_release, setup_lock
from launcher.checkout import ROOT, Kind, chosen_kind, shown
from launcher.console import Parser, count_from, say, usage_error
from launcher.launch import launch
from launcher.processes import become, call
from launcher.stages import Stage, is_corpus, read_stages

MODEL = "--layers 4 --heads 4 --channels 128 --context 128 --lr 6e-3 --warmup-steps 25 --log-every 25".split()
EVALUATION = "--eval-every 50 --eval-samples 64".split()
ROWS = 8  # per step and microbatch, of all ranks
HARMLESS = ("--quiet", "--log-every", "--eval-", "--save-every", "--keep", "--sample", "--transport", "--link")
REFUSED = {
    "--out": "it makes a folder under runs/",
    "--micro-batch-size": f"it divides {ROWS} rows per step among the ranks",
    "--resume": "it always starts anew; ./ladder train can resume a run",
    "--config": "it sets most options itself: give options one by one",
    "--dry-run": "it trains: ./ladder train STEP --dry-run",
    "--print-config": "it trains: ./ladder train STEP --print-config",
}


@dataclass
class Run:
    """What is trained: the stages, and the options of all of them."""

    kind: Kind
    num_ranks: int
    num_steps: int
    options: list[str]  # of the trainers, as the user gave them
    has_corpus: bool  # is trained on the built-in data
    is_short: bool  # is not the usual run
    evaluation: list[str]
    stages: list[Stage]
    out: Path

    def command(self, stage: Stage) -> list:
        own = stage.own_options(self.num_ranks, self.num_steps, self.out)
        # Only next-token prediction makes a model that can continue a text.
        sample = [] if "--objective" in own else ["--sample", "CREATE TABLE"]
        return [self.kind.program(stage.step), *MODEL, "--micro-batch-size", ROWS // self.num_ranks,
                "--steps", self.num_steps, *self.evaluation, *own, *sample, *self.options]  # fmt: skip

    def check(self, what_happened: str, stages: list[Stage]) -> None:
        """Finds a trainer that refuses an option before the others have trained."""
        for stage in stages:
            dry_run = [*self.command(stage), "--dry-run", stage.num_ranks(self.num_ranks)]
            if call(dry_run, stdout=subprocess.DEVNULL):
                usage_error(f"{what_happened}: {stage.name} refuses these options. For options of single steps use ./ladder train STEP")

    def announce(self) -> None:
        corpus = ", the built-in corpus" if self.has_corpus else ""
        options = f", with {' '.join(self.options)}" if self.options else ""
        say(f"training {len(self.stages)} stages for {self.num_steps} steps on {self.num_ranks} ranks: "
            f"4 layers, 4 heads, 128 channels, context 128{corpus}{options}")  # fmt: skip
        say(f"Everything is written to {shown(self.out)}.")


def run(words: list[str]) -> int:
    this = read_options(words)
    with setup_lock():
        builder = build(this)  # it keeps the lock
    this.out.mkdir(parents=True)
    this.announce()
    with builder or contextlib.nullcontext():
        climb(this, builder)
    table = [sys.executable, ROOT / "scripts/ladder_table.py", this.out, "--ranks", this.num_ranks]
    become([*table, *(["--short"] if this.is_short else [])])


def read_options(words: list[str]) -> Run:
    parser = Parser("run", "Climbs all steps on the built-in corpus; ends in a table that compares them.",
                    epilog="Any other option that all trainers have works too, such as --channels 64 (./ladder train step0 --help).")  # fmt: skip
    parser.add_argument("--ranks", type=count_from(1, 9999), default=2, help="the number of processes: 1, 2, 4 or 8 (default 2)")
    parser.add_argument("--steps", type=count_from(1, 10**9 - 1), help="optimizer steps of each stage (default 150)")
    parser.add_argument("--num-microbatches", type=count_from(1, 10**9 - 1), help="per step and rank (default 1)")
    parser.add_argument("--data", metavar="FILE", default="corpus", help="train on your own text")
    parser.add_argument("--val-data", metavar="FILE", default="", help="evaluate on this text")
    known, others = parser.parse_known_args(words)
    for name in [word.split("=")[0] for word in others]:
        if name in REFUSED:
            usage_error(f"{name} is not for run: {REFUSED[name]}")
    if ROWS % known.ranks:
        usage_error(f"--ranks is {known.ranks}, which does not divide the {ROWS} rows of a step: choose 1, 2, 4 or 8 "
                    "(./ladder train takes any number)")  # fmt: skip
    has_corpus = is_corpus(known.data, known.val_data)
    options = [f"--num-microbatches={known.num_microbatches}"] if known.num_microbatches else []
    options += [f"--data={known.data}"] if known.data != "corpus" else []
    options += [f"--val-data={known.val_data}"] if known.val_data else []
    is_changed = any(word.startswith("--") and not word.startswith(HARMLESS) for word in others)
    return Run(
        kind=chosen_kind(), num_ranks=known.ranks, num_steps=known.steps or 150, options=[*options, *others],
        has_corpus=known.data == "corpus", evaluation=EVALUATION if known.data == "corpus" or known.val_data else [],
        is_short=bool(known.steps or known.num_microbatches or known.data != "corpus" or is_changed),
        stages=read_stages(num_microbatches=known.num_microbatches or 1, is_corpus=has_corpus),
        out=ROOT / "runs" / time.strftime("ladder-%Y%m%d-%H%M%S"),
    )  # fmt: skip


def build(this: Run) -> BuildBehind | None:
    """Builds the first stage's program; the others behind, if they are not there yet."""
    prepare_release(this.kind)
    preset, first = this.kind.preset, this.stages[0]
    programs = sorted({stage.step for stage in read_stages()})
    if is_built(preset, *programs):
        this.check("nothing was trained", this.stages)
        return None
    need_built(preset, first.step)
    this.check("nothing was trained", [first])
    return BuildBehind(preset, *programs)


def climb(this: Run, builder: BuildBehind | None) -> None:
    stopped = f"stopped (exit code 75). ./ladder run cannot resume; what the stages wrote stays in {shown(this.out)}"
    clock = Clock(this.num_ranks)
    for i, stage in enumerate(this.stages):
        if i == 1 and builder:
            builder.finish()
            this.check("only step 0 was trained", this.stages)
        ranks = stage.num_ranks(this.num_ranks)
        left = clock.time_left(len(this.stages) - i)
        say(f"stage {i + 1} of {len(this.stages)}: {stage.name}, {ranks} rank(s){left}")
        start_s = time.monotonic()
        launch(ranks, [*this.command(stage), "--out", this.out / stage.name], stopped).exit_unless_well()
        clock.note(ranks, time.monotonic() - start_s)


class Clock:
    """Estimates how long the stages that are left will take from those so far."""

    def __init__(self, num_ranks: int):
        self.num_ranks = num_ranks
        self.slow_s: float | None = None  # the last stage on one rank of several
        self.fast_s: list[float] = []  # the stages on all ranks

    def note(self, ranks: int, seconds: float) -> None:
        if ranks < self.num_ranks:
            self.slow_s = seconds
        else:
            self.fast_s.append(seconds)

    def time_left(self, num_stages: int) -> str:
        """If only one rank was measured: at most as long as that, and at least its share if every core helps."""
        if self.fast_s:
            least = most = sum(self.fast_s) / len(self.fast_s)
        elif self.slow_s is not None:
            least, most = self.slow_s / min(self.num_ranks, num_cores()), self.slow_s
        else:
            return ""
        low, high = round(num_stages * least / 60), round(num_stages * most / 60)
        if high < 1:
            return "; less than a minute left in all"
        if low == high:
            return f"; about {high} min left in all"
        return f"; {f'at most {high}' if low < 1 else f'{low} to {high}'} min left in all"
