"""./ladder scale: the time of a step over the number of ranks, for several links.

One rank of N trains by itself (--transport simulated), and theory says when the others would
answer. The same options are measured on as many real ranks as a laptop has. Each rank has the same
rows, whatever their number: weak scaling.
"""

import re
import shutil
import statistics
from pathlib import Path
from typing import NamedTuple

from launcher.build import need_release, num_cores
from launcher.charts import DASHES, LOGARITHMIC, MARKERS
from launcher.checkout import chosen_kind, write_or_fail
from launcher.console import (
    Parser,
    count_from,
    fail,
    list_of,
    new_file,
    option_of,
    read_link,
    say,
    usage_error,
)
from launcher.figures import Curve, Panel, legend, page
from launcher.launch import train
from launcher.plan_steps import Trainers
from launcher.steps import resolve_step, trainer_in
from launcher.tables import table

MODEL = "--layers 4 --heads 4 --channels 128 --context 64 --micro-batch-size 1 --num-microbatches 4".split()
OWN = "link transport rank out overfit-one-batch dry-run json print-config show-schedule config resume trace".split()  # of trainers
COUNTS = list_of(count_from(1, 1024))
COLOURS = ("#4477aa", "#cc6677", "#228833", "#aa3377", "#997700")
WIDTH, PANEL, HEIGHT, LEFT, TOP = 560, 300, 200, 56, 84  # of a drawing, at least, and of a panel


class Point(NamedTuple):
    """Of one step, one link and one number of ranks, in seconds per optimizer step."""

    step: str
    link: str
    ranks: int
    seconds: float
    waiting: float | None  # of these; nobody has measured it in a real run

    def is_real(self):
        return self.waiting is None


def run(words: list[str]) -> int:
    this, options = parse(words)
    kind = chosen_kind()
    need_release(kind, *this.steps)
    points, plans = [], Trainers(kind.build)
    if wrong := [step for step in this.steps if not plans.tries(step, 2, ())]:
        usage_error(
            f"{wrong[0]} has nothing to scale: its ranks are alone, or there to be equalled"
        )
    for step in this.steps:
        role = plans.facts(step, 2, ())["role"]
        trainer = Trainer(trainer_in(kind.build, step), step, role, options)
        say(
            f"{step}: {len(this.ranks)} simulated and {len(this.measured)} real numbers of ranks, {len(this.links)} links"
        )
        points += [trainer.simulate(ranks, link) for ranks in this.ranks for link in this.links]
        points += [trainer.measure(ranks, link) for ranks in this.measured for link in this.links]
        print(f"{step}: ms per step (share of it in which the rank waits)\n")
        print(text_of(step, this.links, points), end="\n\n", flush=True)
    if this.measured and max(this.measured) > num_cores():
        say(
            f"real ranks share {num_cores()} cores, and wait for them; a simulated rank has one of its own"
        )
    if this.svg:
        write_or_fail(this.svg, draw(this.steps, this.links, points))
        say(f"wrote {this.svg}")
    return 0


def parse(words: list[str]):
    parser = Parser(
        "scale",
        "The time of an optimizer step on 1 to 1,024 ranks: one rank is simulated, a few are measured.",
        usage="./ladder scale [STEP…] [options]",
        epilog="STEP is one whose ranks train together, step4 if none is named. Every other option is the trainers': --channels 256.",
    )
    parser.add_argument(
        "--links",
        type=list_of(lambda link: read_link(link) and link),
        default="5:100,50:10,200:1",
        help="LATENCY_US:GBPS of each (default %(default)s)",
    )
    parser.add_argument(
        "--ranks",
        type=COUNTS,
        default="1,2,4,16,64,256,1024",
        help="that are simulated (default %(default)s)",
    )
    parser.add_argument(
        "--measure",
        dest="measured",
        metavar="RANKS",
        type=lambda text: text and COUNTS(text),
        default="2,4",
        help="real ones, each a process; '' for none (default %(default)s)",
    )
    parser.add_argument(
        "--svg", type=new_file, metavar="FILE", help="draw the curves into this new file"
    )
    num_steps = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    this, options = parser.parse_known_args(words[num_steps:])
    this.steps = list(dict.fromkeys(resolve_step(word) for word in words[:num_steps] or ["step4"]))
    for name in OWN:
        if option_of(options, name) is not None:
            usage_error(
                f"scale does not take --{name}: it sets that itself, or trains only to measure"
            )
    if late := [word for word in options if re.fullmatch(r"step\d\w*", word)]:
        usage_error(f"'{late[0]}' stands after an option: name the steps first")
    if this.measured and not shutil.which("mpirun"):
        usage_error(
            "there is no mpirun to measure with: install one (./ladder doctor), or leave that out with --measure ''"
        )
    return this, options


class Trainer:
    def __init__(self, program: Path, step: str, role: str, options: list[str]):
        self.program, self.step, self.role, self.options = program, step, role, options

    def simulate(self, ranks: int, link: str) -> Point:
        """A rank in the middle, whose pipeline stage has two neighbours."""
        rank = min(ranks - 1, ranks // 2 + 1)
        report = self.train(
            1, ranks, link, "--transport", "simulated", "--ranks", ranks, "--rank", rank
        )
        best = self.fastest_round(report)
        seconds = statistics.mean(report["step_seconds"][best])
        waiting = statistics.mean(report["simulation"]["waiting_seconds"][best])
        idle = (seconds - waiting) * report["simulation"]["bubble"]
        return Point(self.step, link, ranks, seconds + idle, waiting + idle)

    def measure(self, ranks: int, link: str) -> Point:
        report = self.train(ranks, ranks, link)
        return Point(
            self.step,
            link,
            ranks,
            statistics.mean(report["step_seconds"][self.fastest_round(report)]),
            None,
        )

    def fastest_round(self, report: dict) -> slice:
        """Which other programs have disturbed least: one step, or a round of step 9. The first one
        warms up."""
        seconds, length = report["step_seconds"], report["config"].get("sync-every", 1)
        rounds = [slice(start, start + length) for start in range(length, len(seconds), length)]
        if not rounds:
            fail(
                f"--steps {len(seconds)} is too few: the first {length} warm up, and nothing is left to be measured"
            )
        return min(rounds, key=lambda steps: sum(seconds[steps]))

    def train(self, processes: int, ranks: int, link: str, *transport) -> dict:
        words = [
            *transport,
            "--link",
            link,
            *MODEL,
            *own_options(self.role, ranks, self.options),
            "--overfit-one-batch",
            *self.options,
        ]
        return train(self.program, processes, words)


def own_options(role: str, ranks: int, options: list[str]) -> list:
    """A pipeline has as many stages as divide the ranks, up to 4, and each of its ranks computes as
    much as one alone."""
    stages = next(stages for stages in (4, 2, 1) if ranks % stages == 0)
    if role == "stage":
        return ["--pipeline-stages", stages, "--num-microbatches", 4 * stages, "--steps", 9]
    if role == "worker":
        sync_every = option_of(options, "sync-every") or "20"
        return [
            "--sync-every",
            sync_every,
            "--steps",
            3 * int(sync_every) if sync_every.isdigit() else 60,
        ]
    return ["--steps", 9]


def text_of(step: str, links: list[str], points: list[Point]) -> str:
    found = {
        (point.ranks, point.link, point.is_real()): point for point in points if point.step == step
    }
    lines = [["ranks", *(head for link in links for head in (link, "measured"))]]
    for ranks in sorted({point.ranks for point in points}):
        lines.append(
            [
                f"{ranks:,}",
                *(
                    shown(found.get((ranks, link, is_real)))
                    for link in links
                    for is_real in (False, True)
                ),
            ]
        )
    return table(lines, numbers_right=True)


def shown(point: Point | None) -> str:
    if point is None:
        return ""
    share = "" if point.waiting is None else f" ({100 * point.waiting / point.seconds:.0f}%)"
    return f"{1000 * point.seconds:.1f}{share}"


def draw(steps: list[str], links: list[str], all_points: list[Point]) -> str:
    """A panel for each step, all with the same axes; both logarithmic."""
    place, points, measured = (
        LOGARITHMIC.place,
        [p for p in all_points if not p.is_real()],
        [p for p in all_points if p.is_real()],
    )
    low, high = (
        min(1000 * p.seconds for p in all_points) / 1.2,
        max(1000 * p.seconds for p in all_points) * 1.2,
    )
    most_ranks = max(place(point.ranks) for point in all_points)
    width, out = max(PANEL, (WIDTH - LEFT) // len(steps) - LEFT), []
    ticks = {place(tick): f"{tick:g}" for tick in LOGARITHMIC.ticks(low, high)}
    ranks = {place(ranks): str(ranks) for ranks in sorted({point.ranks for point in points})}
    for number, step in enumerate(steps):
        panel = Panel(
            LEFT + number * (width + LEFT),
            TOP,
            width,
            HEIGHT,
            max(most_ranks, 1e-9),
            place(low),
            place(high),
        )
        curves = [
            curve_of(i, link, [p for p in points if (p.step, p.link) == (step, link)])
            for i, link in enumerate(links)
        ]
        out += [
            f'<text x="{panel.x}" y="{TOP - 10}">{step}, ms per step</text>',
            *panel.draw(curves, ticks, "ranks", ranks),
        ]
        for i, link in enumerate(links):
            real = curve_of(i, link, [p for p in measured if (p.step, p.link) == (step, link)])
            out += [marker(i, *panel.place(*point)) for point in real.points]
    for i, curve in enumerate(curves):
        out += [
            *legend(curve, 12 + i * 180, 20),
            *([marker(i, 22 + i * 180, 20)] if measured else []),
        ]
    if measured:
        out.append(
            '<text x="12" y="46">lines: one simulated rank; markers: measured on real ones</text>'
        )
    title = "Milliseconds per optimizer step over the number of ranks"
    return page(
        LEFT + len(steps) * (width + LEFT),
        TOP + HEIGHT + 56,
        title,
        out,
        description=described(points),
    )


def curve_of(i: int, link: str, points: list[Point]) -> Curve:
    latency, gbps = link.split(":")
    places = [
        (LOGARITHMIC.place(point.ranks), LOGARITHMIC.place(1000 * point.seconds))
        for point in points
    ]
    return Curve(
        f"{latency} µs, {gbps} Gbit/s", COLOURS[i % len(COLOURS)], places, DASHES[i % len(DASHES)]
    )


def marker(i: int, x: float, y: float) -> str:
    return f'<path d="{MARKERS[i % len(MARKERS)]}" transform="translate({x:.1f} {y:.1f})" fill="{COLOURS[i % len(COLOURS)]}"/>'


def described(points: list[Point]) -> str:
    return "; ".join(
        f"{p.step} on {p.ranks} ranks, link {p.link}: {1000 * p.seconds:.1f} ms" for p in points
    )
