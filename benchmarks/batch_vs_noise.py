#!/usr/bin/env python3
"""How large a batch pays: the noise of gradients, and what batches of several sizes learn from the
same rows.

    ./ladder bench batch [--write] [options of a trainer]      --write: the lesson's tables
    benchmarks/batch_vs_noise.py --self-test       the estimate on gradients that are made; the lesson's tables

Trains step 0. A gradient of B rows is the true one and noise: the square of its norm is on average
|G|² + tr Σ / B. Two sizes of batch, at the same parameters, give both. Their ratio tr Σ / |G|² is
the noise scale (McCandlish et al., arXiv 1812.06162, appendix A.1): the number of rows at which
noise and gradient are equally large. Losses do not depend on the machine's speed, so nothing here
is timed.
"""

import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from results import ROOT, Progress, results_parser, write
from launcher.launch import run_all, train
from launcher.steps import trainer_in
from launcher.tables import cells_of, replaced, table

PROGRAMS = "step0_single_gpu"
PAGE = ROOT / "step2_sharded_data/learning_rate/README.md"
MODEL = "--layers 2 --heads 2 --channels 64 --context 64 --weight-decay 0".split()
ROWS = 8192  # that every run learns from
# Rows of a step, and the share of the steps that warm up.
BATCHES = {"1": (1, 0.1), "4": (4, 0.1), "16": (16, 0.1), "16, no warm-up": (16, 0), "64": (64, 0.1)}  # fmt: skip
RATES = (0.002, 0.004, 0.008, 0.016, 0.032)
OF_NOISE = (64, 256, 1024, 2048)  # steps of 4 rows, after which the noise is measured
SMALL, LARGE = (1, 256), (64, 16)  # rows and number of gradients


def mean_square(norms):
    return statistics.mean(norm * norm for norm in norms)


def noise_scale(small, large):
    """Of (rows, mean square of the gradient's norm) for two sizes of batch: tr Σ / |G|², in rows."""
    (b, of_small), (B, of_large) = small, large
    true = (B * of_large - b * of_small) / (B - b)
    return (of_small - of_large) / (1 / b - 1 / B) / true


def measured_noise(program, checkpoint, options):
    """At these parameters, which steps as small as this leave as they are."""
    still = ["--init-from", checkpoint, "--lr", 1e-12, "--clip-norm", 0, "--seed", 7]

    def square(rows, count):
        words = ["--micro-batch-size", rows, "--steps", count, *still]
        return rows, mean_square(train(program, 1, [*MODEL, *words, *options])["grad_norms"])

    return noise_scale(square(*SMALL), square(*LARGE))


def loss_after(program, name, rate, options):
    """Of the validation data."""
    rows, warmup = BATCHES[name]
    steps = ROWS // rows
    words = ["--micro-batch-size", rows, "--steps", steps, "--lr", rate]
    words += ["--warmup-steps", int(warmup * steps), "--eval-every", steps, "--eval-samples", 512]
    report = train(program, 1, [*MODEL, *words, *options])
    return report["val_losses"][-1]["loss"]


def noise_table(found):
    lines = [["steps of 4 rows", "training loss", "noise scale, rows"]]
    return table(
        lines + [[str(step), f"{loss:.2f}", f"{noise:.0f}"] for step, loss, noise in found],
        numbers_right=True,
    )


def loss_table(losses):
    """The best of each row in bold."""
    lines = [["rows of a step", "steps", *(f"η = {rate:g}" for rate in RATES)]]
    for name, (rows, _) in BATCHES.items():
        texts = [f"{losses[name, rate]:.2f}" for rate in RATES]
        best = min(RATES, key=lambda rate: losses[name, rate])
        texts = [f"**{t}**" if rate == best else t for rate, t in zip(RATES, texts)]
        lines.append([name, f"{ROWS // rows:,}", *texts])
    return table(lines, numbers_right=True)


def self_test():
    """Gradients of 50 numbers, the true one all 2 and the noise of a row of variance 9; and that the
    page has both tables."""
    random.seed(1)

    def norm(rows):
        noise = 3 / rows**0.5
        return sum((2 + random.gauss(0, noise)) ** 2 for _ in range(50)) ** 0.5

    squares = [(rows, mean_square(norm(rows) for _ in range(2000))) for rows in (1, 64)]
    assert abs(noise_scale(*squares) - 9 / 4) < 0.05, noise_scale(*squares)
    page = PAGE.read_text()
    assert list(cells_of(page, "losses")) == list(BATCHES)
    assert list(cells_of(page, "noise")) == [str(step) for step in OF_NOISE]
    print("self-test passed")


def main():
    parser = results_parser("batch", __doc__, self_test, has_folder=False)
    parser.add_argument("--write", action="store_true", help="the lesson's tables")
    arguments, options = parser.parse_known_args()
    program = trainer_in(arguments.build, PROGRAMS)
    noise, losses = [], {}
    with (
        tempfile.TemporaryDirectory() as out,
        Progress(4 + len(OF_NOISE) + len(BATCHES) * len(RATES)) as progress,
    ):
        words = ["--micro-batch-size", 4, "--steps", ROWS // 4, "--lr", 0.008]
        words += ["--warmup-steps", 100]
        words += ["--lr-schedule", "constant", "--save-every", 64, "--keep", 0]
        run_all([[program, *MODEL, *words, *options, "--quiet", "--out", out]])
        trained = json.loads(Path(out, "report.json").read_text())["losses"]
        progress.add(f"{ROWS // 4} steps of 4 rows", work=4)
        for step in OF_NOISE:
            at = measured_noise(program, Path(out) / f"checkpoints/step_{step:06d}", options)
            noise.append((step, statistics.mean(trained[step - 20 : step]), at))
            progress.add(f"after {step} steps, the noise scale is {at:.1f} rows")
        for name in BATCHES:
            for rate in RATES:
                losses[name, rate] = loss_after(program, name, rate, options)
                progress.add(f"{name} rows, η = {rate:g}: {losses[name, rate]:.3f}")
    if len(losses) == len(BATCHES) * len(RATES):
        print(noise_table(noise), loss_table(losses), sep="\n\n")
    progress.finish()
    if arguments.write:
        text = replaced(PAGE.read_text(), "noise", noise_table(noise))
        write(PAGE, replaced(text, "losses", loss_table(losses)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
