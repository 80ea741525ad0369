"""What speed_vs_python.py, ddp_vs_python.py, zero_vs_python.py, pipeline_vs_python.py and
gpu_vs_python.py share: programs that train one model from one start on one token file.

A run is a dict with num_parameters, step_seconds and losses: a step's report.json, or what
python_trainer.py prints.
"""

import argparse
import array
import json
import os
import random
import shutil
import socket
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from results import BUILD, ROOT, Progress, cpu_name, write  # noqa: F401
from launcher.console import count_from
from launcher.launch import command, mpirun, run_all
from launcher.tables import table

VOCABULARY = 258
OPTIMIZER = {"lr": 1e-4, "weight_decay": 1.0, "betas": [0.9, 0.95], "eps": 1e-8, "clip_norm": 1.0}
# After five steps, programs that only round differently have losses within 1e-7, relative. With a
# learning rate of 1.01 times as much they differ by 2e-4, without weight decay (which is large for
# that) by 8e-6, with one matrix scaled by 1.01 by 5e-5.
LOSS_TOLERANCE = 1e-6
BF16_LOSS_TOLERANCE = 1e-2  # where one of them computes in bf16, or both
LOSSES_COMPARED = 5
START_STEPS = 8  # a program's start takes about as long as so many steps
# On a CPU with AVX-512, a trainer of the course multiplies with oneDNN, the Python programs with
# the BLAS behind torch.nn.Linear. With these options it uses the same BLAS, so what is left of a
# ratio is not the matrix product.
PEERS_PRODUCTS = ("--products", "blas")


def make_parser(description):
    """The options that both programs have."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--channels", type=int, default=384)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--micro-batch-size", type=int, default=2, help="rows per step and rank")
    parser.add_argument(
        "--default-model",
        action="store_true",
        help="4 layers, 4 heads, 128 channels, context 128, 4 rows",
    )
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument(
        "--steps",
        type=count_from(1, 10**6),
        default=30,
        help="steps measured per program and round",
    )
    parser.add_argument(
        "--warmup-steps",
        type=count_from(0, 10**6),
        default=5,
        help="steps before them that are not counted",
    )
    parser.add_argument("--rounds", type=count_from(1, 10**6), default=5)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument(
        "--at-least", type=float, help="exit with 1 if the median ratio is below this"
    )
    return parser


def parse(parser):
    arguments = parser.parse_args()
    if arguments.default_model:
        arguments.layers, arguments.heads, arguments.channels = 4, 4, 128
        arguments.context, arguments.micro_batch_size = 128, 4
    return arguments


def need_program(path):
    if not path.is_file():
        sys.exit(f"{path} does not exist: build it (./ladder setup) or name another")


def write_tokens(path, num_tokens, vocab_size=VOCABULARY):
    """A nanoGPT file of tokens that can be learnt a little: small ones are frequent."""
    rng = random.Random(1)
    tokens = array.array("H", (int(vocab_size * rng.random() ** 3) for _ in range(num_tokens)))
    path.write_bytes(tokens.tobytes())


class Program(NamedTuple):
    name: str  # in tables
    train: Callable[[int], dict]  # so many steps; returns a run
    num_microbatches: int  # of a step, those of all ranks together


class Race:
    """Programs by kind, the files that they share, and what was measured.

    A step has at most max_microbatches, those of all ranks together. All programs compute on the
    device.
    """

    def __init__(
        self,
        arguments,
        start_program,
        max_microbatches=1,
        is_tied=True,
        vocab_size=VOCABULARY,
        device="cpu",
    ):
        self.arguments, self.is_tied, self.vocab_size, self.device = (
            arguments,
            is_tied,
            vocab_size,
            device,
        )
        self.programs, self.tokens_per_s, self.loads = {}, {}, []
        self.files = tempfile.TemporaryDirectory(
            prefix="ladder-race-"
        )  # is removed with this object
        self.folder = Path(self.files.name)
        self.data = self.folder / "tokens.bin"
        self.num_steps = arguments.warmup_steps + arguments.steps
        rows = max_microbatches * arguments.micro_batch_size * max(self.num_steps, LOSSES_COMPARED)
        write_tokens(self.data, rows * arguments.context + 1, vocab_size)
        start = self.folder / "start"
        need_program(start_program)
        run_all(
            [[*self.step_command(start_program, num_steps=0, out=start), "--precision", "fp32"]]
        )
        self.checkpoint = start / "checkpoints/step_000000"
        self.start_report = json.loads((start / "report.json").read_text())

    def add_step(self, kind, name, program, *options, ranks=1, copies=1, num_microbatches=None):
        """A trainer of the course, under mpirun if it has several ranks; the slowest of so many
        copies at once."""
        need_program(program)

        def train(num_steps):
            outs = [Path(tempfile.mkdtemp(prefix="run", dir=self.folder)) for _ in range(copies)]
            further = ["--init-from", self.checkpoint, *options]
            run_all(
                [
                    [*mpirun(ranks), *self.step_command(program, num_steps, out), *further]
                    for out in outs
                ]
            )
            reports = [json.loads((out / "report.json").read_text()) for out in outs]
            for out in outs:
                shutil.rmtree(out)  # its checkpoint: 1.5 GB for GPT-2's 124 million parameters
            return max(reports, key=lambda report: sum(report["step_seconds"]))

        self.programs[kind] = Program(name, train, num_microbatches or ranks)

    def add_python(self, kind, name, *options, model="module", ranks=1, num_microbatches=None):
        """python_trainer.py; with several ranks over gloo. Losses are means over ranks."""
        a = self.arguments
        shape = {
            "layers": a.layers,
            "heads": a.heads,
            "channels": a.channels,
            "context": a.context,
            "vocab_size": self.vocab_size,
        }
        words = [
            sys.executable,
            ROOT / "benchmarks/python_trainer.py",
            "--kind",
            model,
            "--device",
            self.device,
            *options,
            "--checkpoint",
            self.checkpoint,
            "--data",
            self.data,
            "--threads",
            a.threads,
            "--shape",
            json.dumps(shape if self.is_tied else shape | {"is_tied": False}),
            "--options",
            json.dumps({**OPTIMIZER, "rows": a.micro_batch_size}),
        ]

        def train(num_steps):
            runs = run_on_gloo(ranks, [*words, "--num-steps", num_steps])
            return {
                **runs[0],
                "losses": [sum(losses) / ranks for losses in zip(*(run["losses"] for run in runs))],
            }

        self.programs[kind] = Program(name, train, num_microbatches or ranks)

    def step_command(self, program, num_steps, out):
        a, o = self.arguments, OPTIMIZER
        return command(
            program,
            layers=a.layers,
            heads=a.heads,
            channels=a.channels,
            context=a.context,
            micro_batch_size=a.micro_batch_size,
            threads=a.threads,
            steps=num_steps,
            out=out,
            data=self.data,
            vocab_size=self.vocab_size,
            order="sequential",
            lr=o["lr"],
            lr_schedule="constant",
            weight_decay=o["weight_decay"],
            beta1=o["betas"][0],
            beta2=o["betas"][1],
            eps=o["eps"],
            clip_norm=o["clip_norm"],
            tie_embeddings=str(self.is_tied).lower(),
            device=self.device,
        )

    def measure(self, *same, tolerance=LOSS_TOLERANCE, on_run=lambda kind, run: None):
        """Checks that the kinds in each list of `same` train the same model; then runs each program
        once a round.

        Tokens per second are by kind and round. If it is stopped, only whole rounds count, or a
        part of the first.
        """
        a, num_checks, speeds = (
            self.arguments,
            sum(map(len, same)),
            {kind: [] for kind in self.programs},
        )
        num_runs, work_of_check, work_of_run = (
            a.rounds * len(speeds),
            LOSSES_COMPARED + START_STEPS,
            self.num_steps + START_STEPS,
        )
        print(
            f"{num_checks} runs of {LOSSES_COMPARED} steps, to compare losses, and {num_runs} of {self.num_steps}, to measure",
            file=sys.stderr,
        )

        def run(what, kind, num_steps, num_ignored, work):
            program = self.programs[kind]
            figures = program.train(num_steps)
            on_run(kind, figures)
            seconds = statistics.median(figures["step_seconds"][num_ignored:])
            self.progress.add(f"{what}: {program.name}, {1e3 * seconds:.1f} ms a step", work)
            return figures, program.num_microbatches * a.micro_batch_size * a.context / seconds

        with Progress(num_checks * work_of_check + num_runs * work_of_run) as self.progress:
            for first, *others in same:
                expected, _ = run("losses", first, LOSSES_COMPARED, 1, work_of_check)
                for kind in others:
                    found, _ = run("losses", kind, LOSSES_COMPARED, 1, work_of_check)
                    check_same_model(
                        self.programs[kind].name,
                        found,
                        self.programs[first].name,
                        expected,
                        tolerance,
                    )
            for number in range(a.rounds):
                self.loads.append(os.getloadavg()[0])
                for kind in speeds:
                    speeds[kind].append(
                        run(
                            f"round {number + 1}", kind, self.num_steps, a.warmup_steps, work_of_run
                        )[1]
                    )
        if not any(speeds.values()):
            self.progress.finish()
        num_whole = min(map(len, speeds.values())) or 1
        self.tokens_per_s = {kind: of[:num_whole] for kind, of in speeds.items() if of}

    def ratios(self, pairs, more=()):
        """{names: ratios by round} for each pair of kinds that were measured; `more` has the speeds
        of others by name."""
        names, speeds = (
            {kind: program.name for kind, program in self.programs.items()},
            self.tokens_per_s | dict(more),
        )
        both = [pair for pair in pairs if speeds.keys() >= set(pair)]
        return {
            " / ".join(names.get(kind, kind) for kind in pair): ratios_to(*pair, speeds)
            for pair in both
        }

    def print_figures(self, ratios):
        speeds = {self.programs[kind].name: of for kind, of in self.tokens_per_s.items()}
        for what, values, form in (("tokens/s", speeds, ".0f"), ("ratio", ratios, ".3f")):
            lines = [
                [name, *(f"{value:{form}}" for value in (*of, statistics.median(of)))]
                for name, of in values.items()
            ]
            rounds = [f"round {i + 1}" for i in range(len(next(iter(speeds.values()))))]
            print("\n" + table([[what, *rounds, "median"], *lines], numbers_right=True))

    def finish(self, **figures):
        """Prints the load. Ends here if it was stopped; otherwise writes what --json asks for, and
        returns all figures."""
        print(
            "Load of the machine before each round: "
            + " ".join(f"{load:.1f}" for load in self.loads)
        )
        self.progress.finish()
        figures |= {"tokens_per_second": self.tokens_per_s, "load": self.loads}
        if self.arguments.json:
            write_figures(self.arguments.json, vars(self.arguments), figures)
        return figures


def run_on_gloo(ranks, words):
    """What each rank of a Python program prints last, a line of JSON. They find one another as
    under torchrun."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    place = [f"WORLD_SIZE={ranks}", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}"]
    texts = run_all([["env", f"RANK={rank}", *place, *words] for rank in range(ranks)])
    return [json.loads(text.splitlines()[-1]) for text in texts]


def check_same_model(kind, run, first, expected, tolerance):
    """Exits unless the program of this name has as many parameters as the first one and, within
    rounding, the same losses."""
    if run["num_parameters"] != expected["num_parameters"]:
        sys.exit(
            f"{kind} has {run['num_parameters']} parameters, {first} {expected['num_parameters']}"
        )
    drift = max(abs(a - b) / a for a, b in zip(expected["losses"], run["losses"]))
    if not drift <= tolerance:
        sys.exit(f"{kind} trains another model: its losses differ by {drift:.1e} relative")
    print(
        f"{kind}: {run['num_parameters']:,} parameters as {first}; over {len(run['losses'])} steps its losses differ by at most "
        f"{drift:.1e} relative",
        flush=True,
    )


def ratios_to(kind, reference, tokens_per_s):
    """Speed of the one over that of the other, round by round."""
    return [a / b for a, b in zip(tokens_per_s[kind], tokens_per_s[reference], strict=True)]


def flops_per_token(arguments, num_parameters):
    """Forward and backward, PaLM appendix B: 6·parameters + 12·L·H·(C/H)·T; the causal half counted
    in full."""
    return 6 * num_parameters + 12 * arguments.layers * arguments.channels * arguments.context


def shape_text(a, rows="rows a step and rank"):
    return (
        f"{a.layers} layers, {a.heads} heads, {a.channels} channels, context {a.context}, {a.micro_batch_size} "
        f"{rows}, {a.threads} thread(s) a process, {getattr(a, 'precision', 'fp32')}; {a.rounds} rounds of {a.warmup_steps} + {a.steps} "
        f"steps each\n{cpu_name()}"
    )


def write_figures(path, options, figures):
    write(
        path,
        json.dumps({"options": options, "cpu": cpu_name(), **figures}, indent=1, default=str)
        + "\n",
    )


def require_ratio(arguments, ratio, what="the median ratio"):
    if arguments.at_least and ratio < arguments.at_least:
        sys.exit(f"{what} {ratio:.3f} is below {arguments.at_least}")


def race_on_ranks(arguments, step0, steps, peers, has_copies=False):
    """Step 0 and nn.Module on one rank, next to steps, {kind: (program, options)}, and their peers
    in Python, {kind: name}, on several. Each of ours also runs with the matrix product of the
    peers. First checks that all with as many rows train the same model. Exits if a step's speed is
    below --at-least times step 0's."""
    ranks = arguments.ranks
    print(f"{ranks} ranks; {shape_text(arguments)}", flush=True)
    race = Race(arguments, step0, ranks)
    for suffix, how, products in (("", "", ()), ("-blas", ", BLAS", PEERS_PRODUCTS)):
        race.add_step("step0" + suffix, "step 0" + how, step0, *products)
        for kind, (program, options) in steps.items():
            race.add_step(
                kind + suffix, f"step {kind[-1]}{how}", program, *options, *products, ranks=ranks
            )
    if has_copies:
        race.add_step("copies", "step 0, copies", step0, copies=ranks, num_microbatches=ranks)
    race.add_python("module", "nn.Module")
    for kind, name in peers.items():
        race.add_python(kind, name, "--parallel", kind, ranks=ranks)
    alone = ("step0", "step0-blas", "module")
    race.measure(alone, [kind for kind in race.programs if kind not in (*alone, "copies")])
    # Scaling against one's own single process first, then ours over theirs, as it is and with the
    # same matrix product.
    ours, theirs = ["step0", *steps], ["module", *peers]
    pairs = [
        *((kind, "step0") for kind in (*steps, "copies")),
        *((kind, "copies") for kind in steps),
    ]
    pairs += [
        *((f"{kind}-blas", "step0-blas") for kind in steps),
        *((kind, "module") for kind in peers),
    ]
    pairs += [*zip(ours, theirs), *((f"{mine}-blas", peer) for mine, peer in zip(ours, theirs))]
    ratios = race.ratios(pairs)
    race.print_figures(ratios)
    race.finish(ratios=ratios)
    for kind in steps:
        name = race.programs[kind].name
        require_ratio(
            arguments, statistics.median(ratios[f"{name} / step 0"]), f"{name}: the median ratio"
        )
