"""./ladder predict: asks what a lesson asks, computes the answers, and scores the reader's.

A lesson's section "Predict" has numbered questions, and a comment that says how each answer is computed:

    <!-- predict
    a = dry: step4 --bucket-mb 0.5 --dry-run 2
    b = run: step4 --ranks 2 --bucket-mb 0.5 --link 50:1 --steps 6
    1: messages = a.ranks[0].sends.all_reduce.messages
    2: ms = 1000 * median(b.step_seconds)
    -->

`dry` stands for what a trainer prints with --dry-run and --json. `run` stands for the report.json of a run, with `trace.ranks`
and `trace.bubble`: what `./ladder trace` says of it.
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
from read_trace import account, bubbles, measured_steps, read_trace

SECTION = re.compile(r"^## Predict\n(.*?)<!-- predict\n(.*?)-->", re.M | re.S)
FUNCTIONS = {f.__name__: f for f in (abs, len, max, min, round, sum, statistics.mean, statistics.median)}
# How many times too large or too small an answer may be, what it is worth, and what is said of it.
SCORES = [(1, 3, "exact"), (1.1, 3, "within 10%"), (1.5, 2, "close"), (3, 1, "the right size"), (math.inf, 0, "far off")]
SAVED = EXERCISES / "predictions.json"


class Question(NamedTuple):
    text: str
    unit: str
    expression: str


class Lesson:
    def __init__(self, name: str, page: Path):
        self.name, self.page = name, page
        found = SECTION.search(page.read_text())
        asked = [" ".join(text.split()) for text in re.findall(r"^\d+\. (.*?)(?=^\d+\. |^$)", found[1], re.M | re.S)]
        self.commands = re.findall(r"^(\w+) = (dry|run): (\S+) ?(.*)$", found[2], re.M)
        answers = re.findall(r"^(\d+): (.+?) = (.+)$", found[2], re.M)
        if [number for number, _, _ in answers] != [str(i + 1) for i in range(len(asked))] or not asked:
            fail(f"{page}: {len(asked)} questions, but answers to {', '.join(number for number, _, _ in answers) or 'none'}")
        self.questions = [Question(text, unit, expression) for text, (_, unit, expression) in zip(asked, answers)]

    def compute(self) -> list[float]:
        """Runs the commands; the answers in the order of the questions."""
        kind, values = chosen_kind(), {}
        steps = {name: resolve_step(word) for name, _, word, _ in self.commands}
        need_release(kind, *sorted(set(steps.values())))
        for name, how, _, options in self.commands:
            say(f"./ladder train {steps[name]} {options}")
            values[name] = (dry_run if how == "dry" else trained)(trainer_in(kind.build, steps[name]), options.split())
        try:
            return [eval(question.expression, {"__builtins__": {}, **FUNCTIONS, **values}) for question in self.questions]
        except (ArithmeticError, AttributeError, LookupError, NameError, SyntaxError, TypeError) as error:
            fail(f"{self.page}: an answer cannot be computed: {error}")


def lessons() -> dict[str, Lesson]:
    """Those that ask something, by the names of their folders."""
    pages = sorted(ROOT.glob("step*_*/**/README.md"))
    return {page.parent.name: Lesson(page.parent.name, page) for page in pages if SECTION.search(page.read_text())}


def with_names(text: str) -> SimpleNamespace:
    return json.loads(text, object_hook=lambda pairs: SimpleNamespace(**pairs))


def dry_run(program: Path, options: list[str]) -> SimpleNamespace:
    return with_names(output_of([program, *options, "--json"]) or fail(f"{program.name} refuses {' '.join(options)}"))


def trained(program: Path, options: list[str]) -> SimpleNamespace:
    ranks, options = split_ranks("predict", options)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "trace.json")
        report, trace = with_names(json.dumps(train(program, ranks, [*options, "--trace", file]))), read_trace(file)
    steps = measured_steps(trace)
    accounts = [SimpleNamespace(**account(rank, steps)._asdict()) for rank in trace.ranks]
    return SimpleNamespace(**vars(report), trace=SimpleNamespace(ranks=accounts, bubble=bubbles(trace, steps)))


# ---- asking and scoring ------------------------------------------------------------------------------------------------


def number_from(text: str) -> float | None:
    """Nothing if it is none: '3,371,008' and '46%' are."""
    try:
        value = float(text.replace(",", "").replace("_", "").rstrip("% "))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def ask(question: Question, number: int) -> float:
    print(f"\n{number}. {question.text}")
    release_signals()  # Ctrl-C ends it
    while True:
        try:
            answer = input(f"   your answer, in {question.unit}: ")
        except EOFError:
            usage_error(f"a prediction is missing: type {question.unit}, or give all with --answers")
        if (value := number_from(answer)) is not None:
            hold_signals()
            return value
        print(f"   '{answer}' is not a number")


def score(guess: float, answer: float) -> tuple[int, str]:
    """Points of 3, and what to say."""
    is_comparable = guess * answer > 0  # neither is 0, and both have the same sign
    factor = 1.0 if guess == answer else max(guess / answer, answer / guess) if is_comparable else math.inf
    _, points, said = next(row for row in SCORES if factor <= row[0])
    return points, f"{said}, {factor:.3g} times too {'large' if guess > answer else 'small'}" if 1 < factor < math.inf else said


def run(words: list[str]) -> int:
    parser = Parser("predict", "Asks for three numbers before a lesson explains them, computes them with runs, and scores yours.",
                    epilog="Up to three points an answer: within 10%, within a factor of 1.5, within a factor of 3.")  # fmt: skip
    parser.add_argument("lesson", metavar="STEP", nargs="?", help="the lesson; without one: which there are, and your scores")
    parser.add_argument("--answers", nargs="+", metavar="X", help="your numbers, instead of typing them")
    parser.add_argument("--compute", action="store_true", help="ask nothing, only show the answers; of all lessons if none is named")
    this, known = parser.parse_args(words), lessons()
    if this.answers and (this.compute or not this.lesson):
        parser.error("--answers needs a STEP, and no --compute")
    if this.lesson is None and not this.compute:
        saved = read_kept(SAVED, {})
        for name in known:
            print(f"{name:<24} {f'{saved[name]} of {3 * len(known[name].questions)}' if name in saved else ''}".rstrip())
        return 0
    if this.lesson and (name := resolve_step(this.lesson, *known)) not in known:
        usage_error(f"{name} asks for no predictions; these do: {' '.join(known)}")
    chosen = [known[name]] if this.lesson else list(known.values())
    if this.compute:
        for lesson in chosen:
            for question, answer in zip(lesson.questions, lesson.compute()):
                print(f"{question.text}\n    {shown(answer)} {question.unit}", flush=True)
        return 0
    guesses = [ask(question, i + 1) for i, question in enumerate(chosen[0].questions)] if this.answers is None else list(map(number_from, this.answers))
    if None in guesses or len(guesses) != len(chosen[0].questions):
        usage_error(f"--answers {' '.join(this.answers)}: {chosen[0].name} wants {len(chosen[0].questions)} numbers, "
                    f"in {', '.join(question.unit for question in chosen[0].questions)}")  # fmt: skip
    return judge(chosen[0], guesses)


def judge(lesson: Lesson, guesses: list[float]) -> int:
    total, answers = 0, lesson.compute()
    print()
    for i, (question, guess, answer) in enumerate(zip(lesson.questions, guesses, answers)):
        points, said = score(guess, answer)
        total += points
        print(f"{i + 1}. {shown(answer)} {question.unit}; you said {shown(guess)}: {said}. {points} of 3")
    print(f"\n{total} of {3 * len(answers)} points. The lesson says why: {lesson.page.relative_to(ROOT)}")
    keep(SAVED, {**read_kept(SAVED, {}), lesson.name: total})
    return 0


def shown(value: float) -> str:
    """Whole numbers, and large ones, in full; others to three digits."""
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 1000 else f"{value:.3g}"
