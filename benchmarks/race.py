"""What speed_vs_python.py, ddp_vs_python.py, zero_vs_python.py, pipeline_vs_python.py and gpu_vs_python.py share: programs that train one model from one start on one token file.

A run is a dict with num_parameters, step_seconds and losses: a step's report.json, or what python_trainer.py prints.
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
from pathlib import Path

from processes import Progress, command, on_ranks, run_all
from results import ROOT, cpu_info, write
from launcher.console import count_from

VOCABULARY = 258
OPTIMIZER = {"lr": 1e-4, "weight_decay": 1.0, "betas": [0.9, 0.95], "eps": 1e-8, "clip_norm": 1.0}
# After five steps, programs that only round differently have losses within 1e-7, relative. With a learning rate of 1.01 times
# as much they differ by 2e-4, without weight decay (which is large for that) by 8e-6, with one matrix scaled by 1.01 by 5e-5.
LOSS_TOLERANCE = 1e-6
BF16_LOSS_TOLERANCE = 1e-2  # where one of them computes in bf16, or both
LOSSES_COMPARED = 5
START_STEPS = 8  # a program's start takes about as long as so many steps
# On a CPU with AVX-512, a trainer of the course multiplies with oneDNN, the Python programs with the BLAS behind
# torch.nn.Linear. With these options it uses the same BLAS, so what is left of a ratio is not the matrix product.
PEERS_PRODUCTS = ("--products", "blas")


def make_parser(description):
    """The options that both programs have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=6)
    parser.add_argument("--channels", type=int, default=384)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--micro-batch-size", type=int, default=2, help="rows per step and rank")
    parser.add_argument("--default-model", action="store_true", help="4 layers, 4 heads, 128 channels, context 128, 4 rows")
    parser.add_argument("--threads", type=int, default=1, help="of each process")
    parser.add_argument("--steps", type=count_from(1, 10**6), default=30, help="steps measured per program and round")
    parser.add_argument("--warmup-steps", type=count_from(0, 10**6), default=5, help="steps before them that are not counted")
    parser.add_argument("--rounds", type=count_from(1, 10**6), default=5)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    parser.add_argument("--at-least", type=float, help="exit with 1 if the median ratio is below this")
    return parser


def parse(parser, *programs):
    """What these options name must be there."""
    arguments = parser.parse_args()
    if arguments.default_model:
        arguments.layers, arguments.heads, arguments.channels = 4, 4, 128
        arguments.context, arguments.micro_batch_size = 128, 4
    for option in programs:
        require_program(parser, option, vars(arguments)[option.removeprefix("--")])
    return arguments


def require_program(parser, option, path):
    if not path.is_file():
        parser.error(f"{option} {path} does not exist: build it (./ladder setup) or name another")


def write_tokens(path, num_tokens, vocab_size=VOCABULARY):
    """A nanoGPT file of tokens that can be learnt a little: small ones are frequent."""
    rng = random.Random(1)
    tokens = array.array("H", (int(vocab_size * rng.random() ** 3) for _ in range(num_tokens)))
    if sys.byteorder == "big":
        tokens.byteswap()
    path.write_bytes(tokens.tobytes())


class Race:
    """The files that the programs share, in a temporary folder, and how to start each of them.

    A step has at most max_microbatches, those of all ranks together. All programs compute on the device.
    """

    def __init__(
        self, arguments, folder, start_program, max_microbatches=1, is_tied=True, vocab_size=VOCABULARY, device="cpu"
    ):
        self.arguments, self.folder, self.is_tied = arguments, Path(folder), is_tied
        self.vocab_size, self.device = vocab_size, device
        self.data = self.folder / "tokens.bin"
        self.num_steps = arguments.warmup_steps + arguments.steps
        rows = max_microbatches * arguments.micro_batch_size * max(self.num_steps, LOSSES_COMPARED)
        write_tokens(self.data, rows * arguments.context + 1, vocab_size)
        start = self.folder / "start"
        run_all([[*self.step_command(start_program, num_steps=0, out=start), "--precision", "fp32"]])
        self.checkpoint = start / "checkpoints/step_000000"
        self.start_report = json.loads((start / "report.json").read_text())

    def run_step(self, program, num_steps, *further, ranks=1, copies=1):
        """A trainer of the course, under mpirun if it has several ranks; the slowest of so many copies at once."""
        outs = [Path(tempfile.mkdtemp(prefix="run", dir=self.folder)) for _ in range(copies)]
        commands = []
        for out in outs:
            words = [*self.step_command(program, num_steps, out), "--init-from", str(self.checkpoint), *further]
            commands.append(on_ranks(ranks, words))
        run_all(commands)
        reports = [json.loads((out / "report.json").read_text()) for out in outs]
        for out in outs:
            shutil.rmtree(out)  # its checkpoint: 1.5 GB for GPT-2's 124 million parameters
        return max(reports, key=lambda report: sum(report["step_seconds"]))

    def run_python(self, kind, num_steps, ranks=1, parallel="ddp", precision="fp32", further=()):
        """python_trainer.py; with several ranks over gloo. Losses are means over ranks."""
        a = self.arguments
        shape = {"layers": a.layers, "heads": a.heads, "channels": a.channels, "context": a.context,
                 "vocab_size": self.vocab_size}  # fmt: skip
        if not self.is_tied:
            shape["is_tied"] = False
        words = [
            sys.executable, str(ROOT / "benchmarks/python_trainer.py"), "--kind", kind, "--parallel", parallel,
            "--precision", precision, "--device", self.device, *further,
            "--checkpoint", str(self.checkpoint), "--data", str(self.data), "--shape", json.dumps(shape),
            "--options", json.dumps({**OPTIMIZER, "rows": a.micro_batch_size}),
            "--num-steps", str(num_steps), "--threads", str(a.threads),
        ]  # fmt: skip
        environment = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        texts = run_all([["env", f"RANK={rank}", *words] for rank in range(ranks)], environment)
        runs = [json.loads(text.splitlines()[-1]) for text in texts]
        return {**runs[0], "losses": [sum(losses) / ranks for losses in zip(*(run["losses"] for run in runs))]}

    def step_command(self, program, num_steps, out):
        a, o = self.arguments, OPTIMIZER
        return command(
            program, layers=a.layers, heads=a.heads, channels=a.channels, context=a.context, micro_batch_size=a.micro_batch_size,
            threads=a.threads, steps=num_steps, out=out, data=self.data, vocab_size=self.vocab_size, order="sequential", lr=o["lr"],
            lr_schedule="constant", weight_decay=o["weight_decay"], beta1=o["betas"][0], beta2=o["betas"][1], eps=o["eps"],
            clip_norm=o["clip_norm"], tie_embeddings=str(self.is_tied).lower(), device=self.device,
        )  # fmt: skip


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def check_same_model(kind, run, first, expected, tolerance):
    """Exits unless the program of this name has as many parameters as the first one and, within rounding, the same losses."""
    if run["num_parameters"] != expected["num_parameters"]:
        sys.exit(f"{kind} has {run['num_parameters']} parameters, {first} {expected['num_parameters']}")
    drift = max(abs(a - b) / a for a, b in zip(expected["losses"], run["losses"]))
    if not drift <= tolerance:
        sys.exit(f"{kind} trains another model: its losses differ by {drift:.1e} relative")
    print(f"{kind}: {run['num_parameters']:,} parameters as {first}; over {len(run['losses'])} steps its losses differ by at most "
          f"{drift:.1e} relative", flush=True)  # fmt: skip


def flops_per_token(arguments, num_parameters):
    """Forward and backward, PaLM appendix B: 6·parameters + 12·L·H·(C/H)·T; the causal half counted in full."""
    return 6 * num_parameters + 12 * arguments.layers * arguments.channels * arguments.context


def shape_text(a, rows="rows a step and rank"):
    return (f"{a.layers} layers, {a.heads} heads, {a.channels} channels, context {a.context}, {a.micro_batch_size} "
            f"{rows}, {a.threads} thread(s) a process, {getattr(a, 'precision', 'fp32')}; {a.rounds} rounds of {a.warmup_steps} + {a.steps} "
            f"steps each\n{cpu_name()}")  # fmt: skip


def print_load(loads):
    print("Load of the machine before each round: " + " ".join(f"{load:.1f}" for load in loads))


def write_figures(arguments, figures):
    """What --json asks for: the options and the figures."""
    if arguments.json:
        options = {name: str(value) if isinstance(value, Path) else value for name, value in vars(arguments).items()}
        write(arguments.json, json.dumps({"options": options, "cpu": cpu_name(), **figures}, indent=1) + "\n")


def print_figures(names, tokens_per_s, ratios):
    """Tokens per second, and ratios of them, round by round and their medians."""
    num_rounds = len(next(iter(tokens_per_s.values())))
    width = max(len(name) for name in ["tokens/s", *(names[kind] for kind in tokens_per_s), *ratios])
    print(f"\n{'tokens/s':{width}}" + "".join(f"  round {r + 1}" for r in range(num_rounds)) + "    median")
    for kind, speeds in tokens_per_s.items():
        print(f"{names[kind]:{width}}" + "".join(f"{s:9.0f}" for s in speeds) + f" {statistics.median(speeds):9.0f}")
    print("ratio")
    for name, values in ratios.items():
        print(f"{name:{width}}" + "".join(f"{value:9.3f}" for value in values) + f" {statistics.median(values):9.3f}")


def ratios_of(names, pairs, tokens_per_s):
    """{names: the tokens per second of the one over those of the other, round by round} for each pair of kinds."""
    both = [(a, b) for a, b in pairs if a in tokens_per_s and b in tokens_per_s]
    return {f"{names[a]} / {names[b]}": [x / y for x, y in zip(tokens_per_s[a], tokens_per_s[b])] for a, b in both}


def cpu_name():
    """Model, and the widest vectors that it has: with every figure."""
    lines = cpu_info()
    flags = lines["flags"].split()
    vectors = next((name for name in ("avx512f", "avx2", "avx") if name in flags), "no AVX")
    family = f"family {lines['cpu family']}, model {lines['model']}" if "cpu family" in lines else "family unknown"
    return f"{lines['model name']} ({family}, {vectors}), {os.cpu_count()} cores"


def measure(arguments, race, runs, names, same, num_microbatches, tolerance=LOSS_TOLERANCE, on_run=lambda kind, run: None):
    """Checks that the kinds in each list of `same` train the same model; then each of `runs` once a round.

    num_microbatches(kind): how many a step has, those of all ranks together. Returns tokens per second by kind and round, the
    machine's load before each round, and the Progress. If that was stopped, only whole rounds count, or a part of the first.
    """
    tokens_per_s, loads, num_checks, num_runs = {kind: [] for kind in runs}, [], sum(map(len, same)), arguments.rounds * len(runs)
    work_of_check, work_of_run = LOSSES_COMPARED + START_STEPS, race.num_steps + START_STEPS
    print(f"{num_checks} runs of {LOSSES_COMPARED} steps, to compare losses, and {num_runs} of {race.num_steps}, to measure", file=sys.stderr)

    def run(what, kind, num_steps, num_ignored, work):
        figures = runs[kind](num_steps)
        on_run(kind, figures)
        seconds = statistics.median(figures["step_seconds"][num_ignored:])
        progress.add(f"{what}: {names[kind]}, {1e3 * seconds:.1f} ms a step", work)
        return figures, num_microbatches(kind) * arguments.micro_batch_size * arguments.context / seconds

    with Progress(num_checks * work_of_check + num_runs * work_of_run) as progress:
        for first, *others in same:
            expected, _ = run("losses", first, LOSSES_COMPARED, 1, work_of_check)
            for kind in others:
                found, _ = run("losses", kind, LOSSES_COMPARED, 1, work_of_check)
                check_same_model(names[kind], found, names[first], expected, tolerance)
        for number in range(arguments.rounds):
            loads.append(os.getloadavg()[0])
            for kind in runs:
                _, speed = run(f"round {number + 1}", kind, race.num_steps, arguments.warmup_steps, work_of_run)
                tokens_per_s[kind].append(speed)
    if not any(tokens_per_s.values()):
        progress.finish()
    num_whole = min(map(len, tokens_per_s.values())) or 1
    return {kind: speeds[:num_whole] for kind, speeds in tokens_per_s.items() if speeds}, loads, progress


def require_ratio(arguments, ratio, what="the median ratio"):
    if arguments.at_least and ratio < arguments.at_least:
        sys.exit(f"{what} {ratio:.3f} is below {arguments.at_least}")


def race_on_ranks(arguments, step0, steps, peers, has_copies=False):
    """Step 0 and nn.Module on one rank, next to steps, {kind: (program, options)}, and their peers in Python, {kind: name}, on
    several. Each of ours also runs with the matrix product of the peers. First checks that all with as many rows train the same
    model. Exits if a step's speed is below --at-least times step 0's."""
    ranks = arguments.ranks
    ours, theirs = ["step0", *steps], ["module", *peers]
    names = {kind + suffix: f"step {kind[-1]}{how}" for suffix, how in (("", ""), ("-blas", ", BLAS")) for kind in ours}
    names |= {"copies": "step 0, copies", "module": "nn.Module", **peers}
    # Scaling against one's own single process first, then ours over theirs, as it is and with the same matrix product.
    pairs = [*((kind, "step0") for kind in (*steps, "copies")), *((kind, "copies") for kind in steps)]
    pairs += [*((f"{kind}-blas", "step0-blas") for kind in steps), *((kind, "module") for kind in peers)]
    pairs += [*zip(ours, theirs), *((f"{mine}-blas", peer) for mine, peer in zip(ours, theirs))]
    print(f"{ranks} ranks; {shape_text(arguments)}", flush=True)
    with tempfile.TemporaryDirectory(prefix="ladder-race-") as folder:
        race, runs = Race(arguments, folder, step0, ranks), {}

        def run(program, *options, **more):
            return lambda num_steps: race.run_step(program, num_steps, *options, **more)

        def python(num_ranks, parallel="ddp"):
            return lambda num_steps: race.run_python("module", num_steps, num_ranks, parallel)

        for suffix, products in {"": (), "-blas": PEERS_PRODUCTS}.items():
            runs["step0" + suffix] = run(step0, *products)
            runs |= {kind + suffix: run(program, *options, *products, ranks=ranks) for kind, (program, options) in steps.items()}
        if has_copies:
            runs["copies"] = run(step0, copies=ranks)
        runs |= {"module": python(1)} | {kind: python(ranks, kind) for kind in peers}
        alone = ("step0", "step0-blas", "module")
        same = [alone, [kind for kind in runs if kind not in (*alone, "copies")]]
        tokens_per_s, loads, progress = measure(arguments, race, runs, names, same, lambda kind: 1 if kind in alone else ranks)
    ratios = ratios_of(names, pairs, tokens_per_s)
    print_figures(names, tokens_per_s, ratios)
    print_load(loads)
    progress.finish()
    write_figures(arguments, {"tokens_per_second": tokens_per_s, "ratios": ratios, "load": loads})
    for kind in steps:
        require_ratio(arguments, statistics.median(ratios[f"{names[kind]} / step 0"]), f"{names[kind]}: the median ratio")
