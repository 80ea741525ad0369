"""./ladder run: trains all rungs of scripts/ladder_rungs.tsv, one after another, and compares them.

All rungs see the same rows: 8 per step, times the number of microbatches. In the usual run the loss
must fall below that of a bigram model; with --steps, or options that change what is learned, it
only has to fall.
"""

import contextlib
import itertools
import subprocess
import time
from pathlib import Path

from launcher import report
from launcher.build import (
    build_behind,
    is_built,
    need_built,
    num_cores,
    prepare_release,
    setup_lock,
)
from launcher.checkout import ROOT, chosen_kind, keep, shown
from launcher.console import Parser, count_from, say, usage_error
from launcher.exercise import count_own_lines, own_steps, with_own_answers
from launcher.launch import launch
from launcher.machine import made_with
from launcher.processes import call, script
from launcher.rungs import is_corpus, read_rungs
from launcher.steps import trainer_in

MODEL = "--layers 4 --heads 4 --channels 128 --context 128 --lr 6e-3 --warmup-steps 25 --log-every 25".split()
ROWS = 8  # per step and microbatch, of all ranks
HARMLESS = (
    "--quiet",
    "--log-every",
    "--eval-",
    "--save-every",
    "--keep",
    "--sample",
    "--transport",
    "--link",
    "--outer-link",
    "--ranks-per-machine",
)
REFUSED = {
    "--out": "it makes a folder under runs/",
    "--micro-batch-size": f"it divides {ROWS} rows per step among the ranks",
    "--resume": "it always starts anew; ./ladder train can resume a run",
    "--config": "it sets most options itself: give options one by one",
    "--dry-run": "it trains: ./ladder train STEP --dry-run",
    "--print-config": "it trains: ./ladder train STEP --print-config",
}


def run(words):
    this = Run(words)
    with setup_lock():
        builder = build(this)  # it keeps the lock
    this.out = make_folder(this.out)
    keep(this.out / "run.json", made_with(["./ladder", "run", *words]))
    corpus = ", the built-in corpus" if this.data == "corpus" else ""
    options = f", with {' '.join(this.options)}" if this.options else ""
    say(
        f"training {len(this.rungs)} rungs for {this.steps} steps on {this.ranks} ranks: "
        f"4 layers, 4 heads, 128 channels, context 128{corpus}{options}"
    )
    say(f"Everything is written to {shown(this.out)}.")
    with builder or contextlib.nullcontext():
        climb(this, builder)
    short, steps = ["--short"] if this.is_short else [], sorted({rung.step for rung in this.rungs})
    own = ["--own", ",".join(own_steps(this.kind.own, steps))] if this.kind.own else []
    code = call(
        script(ROOT / "scripts/ladder_table.py", this.out, "--ranks", this.ranks, *short, *own)
    )
    if own:
        num_own, num_all = count_own_lines(this.kind.own, steps)
        say(
            f"{num_own:,} of the {num_all:,} lines of code in the idea files and loops of these trainers are yours: "
            "not counted are blank lines, comments, lone braces, and yours that the stubs have as well"
        )
    if (this.out / "table.json").exists():  # all rungs have a report
        report.run([str(this.out)])
    return code


def make_folder(path: Path) -> Path:
    """Makes the folder, with a number appended if another run of the same second has taken the
    name."""
    for folder in itertools.chain(
        [path], (path.with_name(f"{path.name}-{number}") for number in itertools.count(2))
    ):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(parents=True)
            return folder


class Run:
    """What is trained, as the options say."""

    def __init__(self, words):
        parser = Parser(
            "run",
            "Climbs all steps on the built-in corpus; ends in a table that compares them.",
            epilog="Any other option that all trainers have works too: ./ladder train step0 --help shows them.",
        )
        number = count_from(1, 10**9 - 1)
        parser.add_argument(
            "--ranks",
            metavar="N",
            type=number,
            default=2,
            help="the number of processes: 1, 2, 4 or 8 (default 2)",
        )
        parser.add_argument(
            "--steps", metavar="N", type=number, help="optimizer steps of each rung (default 150)"
        )
        parser.add_argument(
            "--num-microbatches", metavar="N", type=number, help="per step and rank (default 1)"
        )
        parser.add_argument(
            "--data", metavar="FILE", default="corpus", help="train on your own text"
        )
        parser.add_argument("--val-data", metavar="FILE", help="evaluate on this text")
        parser.add_argument(
            "--mine",
            action="store_true",
            help="with your own answers to the exercises that have passed",
        )
        known, others = parser.parse_known_args(words)
        if refused := [name for name in (word.split("=")[0] for word in others) if name in REFUSED]:
            usage_error(f"{refused[0]} is not for run: {REFUSED[refused[0]]}")
        if ROWS % known.ranks:
            usage_error(
                f"--ranks is {known.ranks}, which does not divide the {ROWS} rows of a step: choose 1, 2, 4 or 8 "
                "(./ladder train takes any number)"
            )
        self.kind = with_own_answers(chosen_kind()) if known.mine else chosen_kind()
        self.ranks, self.steps, self.data = known.ranks, known.steps or 150, known.data
        own_data = [f"--data={known.data}"] if known.data != "corpus" else []
        own_data += [f"--val-data={known.val_data}"] if known.val_data else []
        microbatches = (
            [f"--num-microbatches={known.num_microbatches}"] if known.num_microbatches else []
        )
        self.options = [*microbatches, *own_data, *others]  # of all trainers
        is_changed = any(
            word.startswith("--") and not word.startswith(HARMLESS)
            for word in [*microbatches, *others]
        )
        self.is_short = bool(known.steps or is_changed or known.data != "corpus")
        can_evaluate = known.data == "corpus" or known.val_data
        self.evaluation = "--eval-every 50 --eval-samples 64".split() if can_evaluate else []
        self.rungs = read_rungs(
            num_microbatches=known.num_microbatches or 1,
            is_corpus=is_corpus(known.data, known.val_data or ""),
        )
        self.out = ROOT / "runs" / time.strftime("ladder-%Y%m%d-%H%M%S")

    def command(self, rung):
        own = rung.own_options(self.ranks, self.steps, self.out)
        # A model that was trained on other rows cannot continue a text.
        sample = [] if rung.reads == "-" else ["--sample", "CREATE TABLE"]
        return [
            trainer_in(self.kind.build, rung.step),
            *MODEL,
            "--micro-batch-size",
            ROWS // self.ranks,
            "--steps",
            self.steps,
            *self.evaluation,
            *own,
            *sample,
            *self.options,
        ]

    def check(self, what_happened, rungs):
        """Finds a trainer that refuses an option before the others have trained."""
        for rung in rungs:
            dry_run = [*self.command(rung), "--dry-run", rung.num_ranks(self.ranks)]
            if call(dry_run, stdout=subprocess.DEVNULL):
                usage_error(
                    f"{what_happened}: {rung.name} refuses these options. For options of single steps use ./ladder train STEP"
                )


def build(this):
    """Builds the first rung's program; the others behind, if they are not there yet."""
    prepare_release(this.kind)
    folder, programs = this.kind.folder, sorted({rung.step for rung in read_rungs()})
    if is_built(folder, *programs):
        this.check("nothing was trained", this.rungs)
        return None
    need_built(folder, this.rungs[0].step)
    this.check("nothing was trained", this.rungs[:1])
    return build_behind(folder, *programs)


def climb(this, builder):
    stopped = f"stopped (exit code 75). ./ladder run cannot resume; what the rungs wrote stays in {shown(this.out)}"
    one_rank_s, all_ranks_s = (
        None,
        [],
    )  # the last rung on one rank of several, and those on all ranks
    for i, rung in enumerate(this.rungs):
        if i == 1 and builder:
            builder.finish()
            this.check(f"only {this.rungs[0].name} was trained", this.rungs)
        ranks, start_s = rung.num_ranks(this.ranks), time.monotonic()
        left = time_left(len(this.rungs) - i, this.ranks, one_rank_s, all_ranks_s)
        say(f"rung {i + 1} of {len(this.rungs)}: {rung.name}, {ranks} rank(s){left}")
        launch(
            ranks, [*this.command(rung), "--out", this.out / rung.name], stopped
        ).exit_unless_well()
        if ranks < this.ranks:
            one_rank_s = time.monotonic() - start_s
        else:
            all_ranks_s.append(time.monotonic() - start_s)


def time_left(num_rungs, num_ranks, one_rank_s, all_ranks_s):
    """If only one rank was measured: at most as long as that, and at least its share if every core
    helps."""
    if all_ranks_s:
        least_s = most_s = sum(all_ranks_s) / len(all_ranks_s)
    elif one_rank_s is not None:
        least_s, most_s = one_rank_s / min(num_ranks, num_cores()), one_rank_s
    else:
        return ""
    least, most = round(num_rungs * least_s / 60), round(num_rungs * most_s / 60)
    if most < 1:
        return "; less than a minute left in all"
    if least == most:
        return f"; about {most} min left in all"
    return f"; {f'{least} to {most}' if least else f'at most {most}'} min left in all"
