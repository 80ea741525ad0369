"""What is kept of answers that have passed, in exercises/board.json on this machine and nowhere else:
how near they have come to the targets of their exercises, and how long a step takes with them. None
of it is a verdict.

The judge measures targets without a clock (common/testing/judge_main.hpp): less is better.
"""

import statistics
from typing import NamedTuple

from launcher.checkout import EXERCISES, keep, read_kept
from launcher.console import say
from launcher.plan_speed import cpu_name
from launcher.predict import shown as number
from launcher.tables import digits

BOARD = EXERCISES / "board.json"


class Target(NamedTuple):
    """A line of the judge's."""

    found: float
    solution: float
    naive: float
    what: str
    naive_is: str
    hint: str


def read_target(line: str) -> Target:
    *numbers, what, naive_is, hint = line.split("\t")
    return Target(*map(float, numbers), what, naive_is, hint)


def keep_targets(name: str, targets: list[Target]) -> None:
    """Says them as well. The best counts, unless what the solution reaches has changed."""
    board, best = read_kept(BOARD, {}), {}
    for target in targets:
        say(
            f"target: {number(target.found)}{target.what}. The solution: {number(target.solution)}; "
            f"{target.naive_is}: {number(target.naive)}"
        )
        if target.found > target.solution:
            say(f"your answer has passed, and could be better: {target.hint}")
        before = board.get(name, {}).get("targets", {}).get(target.what, {})
        is_best = before.get("solution") != target.solution or target.found < before["found"]
        now = {"found": target.found, "solution": target.solution}
        best[target.what] = now if is_best else before
    if targets:
        board.setdefault(name, {})["targets"] = best
        keep(BOARD, board)


def keep_times(name: str, what: str, pairs: list[tuple[float, float]]) -> None:
    """Seconds of a step with the learner's files and with the solutions, which took turns. Says
    them as well."""
    ratios = [mine / solution for mine, solution in pairs]
    ms = [1e3 * statistics.median(times) for times in zip(*pairs)]
    time = {
        "ratio": statistics.median(ratios),
        "range": [min(ratios), max(ratios)],
        "ms": ms,
        "cpu": cpu_name(),
    }
    say(
        f"{what}: {digits(ms[0])} ms a step, {digits(ms[1])} with the solutions. {said_of(time)}. If "
        "1 is within the range, no difference shows; a time is no verdict"
    )
    board = read_kept(BOARD, {})
    board.setdefault(name, {}).setdefault("times", []).append(time)
    keep(BOARD, board)


def said_of(time: dict) -> str:
    ratio, least, most = (f"{value:.2f}" for value in (time["ratio"], *time["range"]))
    return f"{ratio} times the solutions' time ({least} to {most}; {time['cpu']})"


def lines_of(name: str) -> list[str]:
    """For one's own ladder: the best of each target, and the last time."""
    kept = read_kept(BOARD, {}).get(name, {})
    lines = [
        f"{number(best['found'])}{what.split(',')[0]}; the solution: {number(best['solution'])}"
        for what, best in kept.get("targets", {}).items()
    ]
    return lines + [said_of(time) for time in kept.get("times", [])[-1:]]
