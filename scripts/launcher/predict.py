"""./ladder predict: asks what a lesson asks, computes the answers, and scores the reader's.

A lesson's section "Predict" has numbered questions, and a comment that says how each answer is
computed:

    <!-- predict
    a = dry: step4 --bucket-mb 0.5 --dry-run 2
    b = run: step4 --ranks 2 --bucket-mb 0.5 --link 50:1 --steps 6
    1: messages = a.ranks[0].sends.all_reduce.messages
    2: ms = 1000 * median(b.step_seconds)
    -->

`dry` stands for what a trainer prints with --dry-run and --json. `run` stands for the report.json
of a run, with `trace.ranks` and `trace.bubble`: what `./ladder trace` says of it. What differs
between two runs is measured in five.
"""

import json
import math
import re
import statistics
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from launcher.build import need_release
from launcher.checkout import EXERCISES, ROOT, chosen_kind, keep, read_kept
from launcher.console import Parser, fail, say, usage_error
from launcher.launch import split_ranks, train
from launcher.processes import hold_signals, output_of, release_signals
from launcher.steps import resolve_step, trainer_in
from launcher.tables import digits
from read_trace import account, bubbles, measured_steps, read_trace

SECTION = re.compile(r"^## Predict\n(.*?)<!-- predict\n(.*?)-->", re.M | re.S)
FUNCTIONS = {
    f.__name__: f for f in (abs, len, max, min, round, sum, statistics.mean, statistics.median)
}
# How many times too large or too small an answer may be, what it is worth, and what is said of it.
SCORES = [
    (1.1, 3, "within 10%"),
    (1.5, 2, "close"),
    (3, 1, "the right size"),
    (math.inf, 0, "far off"),
]
RUNS = 5  # of what is measured
SAVED = EXERCISES / "predictions.json"


class Question(NamedTuple):
    text: str
    unit: str
    expression: str


class Lesson:
    def __init__(self, name: str, page: Path):
        self.name, self.page = name, page
        found = SECTION.search(page.read_text())
        asked = [
            " ".join(text.split())
            for text in re.findall(r"^\d+\. (.*?)(?=^\d+\. |^$)", found[1], re.M | re.S)
        ]
        self.commands = re.findall(r"^(\w+) = (dry|run): (\S+) ?(.*)$", found[2], re.M)
        answers = re.findall(r"^(\d+): (.+?) = (.+)$", found[2], re.M)
        if [number for number, _, _ in answers] != [
            str(i + 1) for i in range(len(asked))
        ] or not asked:
            fail(
                f"{page}: {len(asked)} questions, but answers to {', '.join(number for number, _, _ in answers) or 'none'}"
            )
        self.questions = [
            Question(text, unit, expression) for text, (_, unit, expression) in zip(asked, answers)
        ]

    def compute(self) -> list[list[float]]:
        """Runs the commands; the answers in the order of the questions. Of one that is measured, as
        many as there were runs; otherwise one."""
        kind, values = chosen_kind(), {}
        steps = {name: resolve_step(word) for name, _, word, _ in self.commands}
        need_release(kind, *sorted(set(steps.values())))
        answers = [[] for _ in self.questions]
        for turn in range(RUNS):
            asked = [i for i, found in enumerate(answers) if turn < 2 or len(set(found)) > 1]
            needed = " ".join(self.questions[i].expression for i in asked)
            for name, how, _, options in self.commands:
                if (turn and how == "dry") or not re.search(rf"\b{name}\b", needed):
                    continue
                again = f" (run {turn + 1} of {RUNS})" if turn > 1 else ""
                say(f"./ladder train {steps[name]} {options}{again}")
                run = dry_run if how == "dry" else trained
                values[name] = run(trainer_in(kind.build, steps[name]), options.split())
            for i in asked:
                answers[i].append(self.answer(self.questions[i], values))
        return [found if len(set(found)) > 1 else found[:1] for found in answers]

    def answer(self, question: Question, values: dict) -> float:
        try:
            return eval(question.expression, {"__builtins__": {}, **FUNCTIONS, **values})
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            NameError,
            SyntaxError,
            TypeError,
        ) as error:
            fail(f"{self.page}: an answer cannot be computed: {error}")


def lessons() -> dict[str, Lesson]:
    """The lessons that ask something, by the names of their folders."""
    pages = sorted(ROOT.glob("step*_*/**/README.md"))
    return {
        page.parent.name: Lesson(page.parent.name, page)
        for page in pages
        if SECTION.search(page.read_text())
    }


def with_names(text: str) -> SimpleNamespace:
    return json.loads(text, object_hook=lambda pairs: SimpleNamespace(**pairs))


def dry_run(program: Path, options: list[str]) -> SimpleNamespace:
    return with_names(
        output_of([program, *options, "--json"])
        or fail(f"{program.name} refuses {' '.join(options)}")
    )


def trained(program: Path, options: list[str]) -> SimpleNamespace:
    ranks, options = split_ranks("predict", options)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        report, trace = (
            with_names(json.dumps(train(program, ranks, [*options, "--trace", file]))),
            read_trace(file),
        )
    steps = measured_steps(trace)
    accounts = [SimpleNamespace(**account(rank, steps)._asdict()) for rank in trace.ranks]
    return SimpleNamespace(
        **vars(report), trace=SimpleNamespace(ranks=accounts, bubble=bubbles(trace, steps))
    )


# ---- asking and scoring ------------------------------------------------------------------------------------------------


def number_from(text: str) -> float | None:
    """Nothing if it is none: '3,371,008' and '46%' are."""
    try:
        value = float(text.replace(",", "").replace("_", "").rstrip("% "))
    except ValueError:
        return None
    return value if abs(value) < 1e15 else None


def ask(question: Question, number: int) -> float:
    print(f"\n{number}. {question.text}")
    release_signals()  # Ctrl-C ends it
    while True:
        try:
            answer = input(f"   your answer, in {question.unit}: ")
        except EOFError:
            usage_error(
                f"a prediction is missing: type {question.unit}, or give all with --answers"
            )
        if (value := number_from(answer)) is not None:
            hold_signals()
            return value
        print(f"   '{answer}' is not a number")


def score(guess: float, answers: list[float]) -> tuple[int, str]:
    """Points of 3, and what to say. What is measured is right anywhere within the range of the
    runs."""
    nearest = min(max(guess, min(answers)), max(answers))
    if guess == nearest:
        return 3, "exact" if len(answers) == 1 else "within the range"
    is_comparable = guess * nearest > 0  # neither is 0, and both have the same sign
    factor = max(guess / nearest, nearest / guess) if is_comparable else math.inf
    _, points, said = next(row for row in SCORES if factor <= row[0])
    if factor == math.inf:
        return points, said
    share = f"{digits(100 * abs(guess / nearest - 1), 2)}%"
    how = share if factor <= 1.1 else f"{digits(factor)} times"
    return points, f"{said}, {how} too {'large' if guess > nearest else 'small'}"


def run(words: list[str]) -> int:
    parser = Parser(
        "predict",
        "Asks for three numbers before a lesson explains them, computes them with runs, and scores yours.",
        epilog="Up to three points an answer: within 10%, within a factor of 1.5, within a factor of 3; "
        "of what five runs measured, from the nearest end of their range.",
    )
    parser.add_argument(
        "lesson",
        metavar="STEP",
        nargs="?",
        help="the lesson; without one: which there are, and your scores",
    )
    parser.add_argument(
        "--answers", nargs="+", metavar="X", help="your numbers, instead of typing them"
    )
    parser.add_argument(
        "--compute",
        action="store_true",
        help="ask nothing, only show the answers; of all lessons if none is named",
    )
    this, known = parser.parse_args(words), lessons()
    if this.answers and (this.compute or not this.lesson):
        parser.error("--answers needs a STEP, and no --compute")
    if this.lesson is None and not this.compute:
        saved = read_kept(SAVED, {})
        for name in known:
            print(
                f"{name:<24} {f'{saved[name]} of {3 * len(known[name].questions)}' if name in saved else ''}".rstrip()
            )
        return 0
    if this.lesson and (name := resolve_step(this.lesson, *known)) not in known:
        usage_error(f"{name} asks for no predictions; these do: {' '.join(known)}")
    chosen = [known[name]] if this.lesson else list(known.values())
    if this.compute:
        for lesson in chosen:
            for question, answers in zip(lesson.questions, lesson.compute()):
                print(f"{question.text}\n    {said_of(answers, question.unit)}", flush=True)
        return 0
    guesses = (
        [ask(question, i + 1) for i, question in enumerate(chosen[0].questions)]
        if this.answers is None
        else list(map(number_from, this.answers))
    )
    if None in guesses or len(guesses) != len(chosen[0].questions):
        usage_error(
            f"--answers {' '.join(this.answers)}: {chosen[0].name} wants {len(chosen[0].questions)} numbers, "
            f"in {', '.join(question.unit for question in chosen[0].questions)}"
        )
    return judge(chosen[0], guesses)


def judge(lesson: Lesson, guesses: list[float]) -> int:
    total, computed = 0, lesson.compute()
    print()
    for i, (question, guess, answers) in enumerate(zip(lesson.questions, guesses, computed)):
        points, said = score(guess, answers)
        total += points
        answer = said_of(answers, question.unit)
        print(f"{i + 1}. {answer}; you said {shown(guess)}: {said}. {points} of 3")
    print(
        f"\n{total} of {3 * len(computed)} points. The lesson says why: {lesson.page.relative_to(ROOT)}"
    )
    keep(SAVED, {**read_kept(SAVED, {}), lesson.name: total})
    return 0


def said_of(answers: list[float], unit: str) -> str:
    """The median, and of several the range."""
    text = f"{shown(statistics.median(answers))} {unit}"
    if len(answers) == 1:
        return text
    return f"{text} ({len(answers)} runs: {shown(min(answers))} to {shown(max(answers))})"


def shown(value: float) -> str:
    """Whole numbers, and large ones, in full; others to three digits."""
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    text = digits(value)
    return text.rstrip("0").rstrip(".") if "." in text else text
