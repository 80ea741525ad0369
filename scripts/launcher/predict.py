"""./ladder predict: asks what a lesson asks, computes the answers, and scores the reader's.

A lesson's section "Predict" has numbered questions, and a comment that says how each answer is
computed:

    <!-- predict
    a = dry: step4 --bucket-mb 0.5 --dry-run 2
    b = run: step4 --ranks 2 --bucket-mb 0.5 --link 50:1 --steps 6
    1: messages = a.ranks[0].sends.all_reduce.messages
    1 if answer / 2: those are all-reduces; each has two rounds, and a message in each
    2: ms = 1000 * median(b.step_seconds)
    2 if smaller: the last bucket leaves when nothing is left to compute
    -->

`dry` stands for what a trainer prints with --dry-run and --json. `run` stands for the report.json
of a run, with `trace.ranks` and `trace.bubble`: what `./ladder trace` says of it. What differs
between two runs is measured in five.

A line `1 if …: …` is a known mistake: the number that it gives, computed like an answer, of which
`answer` is the right one; and what to say to a reader who gives that number. What is measured has
no such numbers, only `smaller` and `larger`: what to say if the reader's number is. A line that
begins with a space continues the one before it.
"""

import itertools
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
NAMES = {
    f.__name__: f for f in (abs, len, max, min, round, sum, statistics.mean, statistics.median)
} | {"__builtins__": {}, "smaller": -math.inf, "larger": math.inf}
# How many times too large or too small an answer may be, what it is worth, and what is said of it.
SCORES = [
    (1.1, 3, "within 10%"),
    (1.5, 2, "close"),
    (3, 1, "the right size"),
    (math.inf, 0, "far off"),
]
APART = 1.1  # how many times as large as another a mistake's number must be at least
SAME = 1.03  # how many times as large the reader's may be
RUNS = 5  # of what is measured
SAVED = EXERCISES / "predictions.json"


class Question(NamedTuple):
    text: str
    unit: str
    expression: str
    misses: list[tuple[str, str]]  # what computes a known mistake's number, and what to say


class Answer(NamedTuple):
    found: list[float]  # of what is measured, as many as there were runs; otherwise one
    misses: list[tuple[float, str]]  # smaller is minus infinity, larger infinity


class Lesson:
    def __init__(self, name: str, page: Path):
        self.name, self.page = name, page
        found = SECTION.search(page.read_text())
        asked = [
            " ".join(text.split())
            for text in re.findall(r"^\d+\. (.*?)(?=^\d+\. |^$)", found[1], re.M | re.S)
        ]
        lines = re.sub(r"\n +", " ", found[2])
        self.commands = re.findall(r"^(\w+) = (dry|run): (\S+) ?(.*)$", lines, re.M)
        answers = re.findall(r"^(\d+): (.+?) = (.+)$", lines, re.M)
        misses = re.findall(r"^(\d+) if (.+?): (.+)$", lines, re.M)
        if [number for number, _, _ in answers] != [
            str(i + 1) for i in range(len(asked))
        ] or not asked:
            fail(
                f"{page}: {len(asked)} questions, but answers to {', '.join(number for number, _, _ in answers) or 'none'}"
            )
        self.questions = [
            Question(text, unit, formula, [miss[1:] for miss in misses if miss[0] == number])
            for text, (number, unit, formula) in zip(asked, answers)
        ]
        num_used = sum(len(question.misses) for question in self.questions)
        if len(lines.splitlines()) != len(self.commands) + len(answers) + num_used:
            fail(f"{page}: its comment has a line that is no command, no answer and no miss")

    def commands_of(self, questions: list[Question]) -> list[tuple[str, str, str, str]]:
        """What their answers and misses name."""
        formulas = " ".join(f for q in questions for f in [q.expression, *dict(q.misses)])
        return [command for command in self.commands if re.search(rf"\b{command[0]}\b", formulas)]

    def compute(self, questions: list[Question]) -> list[Answer]:
        """Runs the commands that these questions of the lesson need."""
        kind, values = chosen_kind(), {}
        steps = {name: resolve_step(word) for name, _, word, _ in self.commands_of(questions)}
        if steps:
            need_release(kind, *sorted(set(steps.values())))
        answers = [[] for _ in questions]
        for turn in range(RUNS):
            asked = [i for i, found in enumerate(answers) if turn < 2 or len(set(found)) > 1]
            for name, how, _, options in self.commands_of([questions[i] for i in asked]):
                if turn and how == "dry":
                    continue
                again = f" (run {turn + 1} of {RUNS})" if turn > 1 else ""
                say(f"./ladder train {steps[name]} {options}{again}")
                run = dry_run if how == "dry" else trained
                values[name] = run(trainer_in(kind.build, steps[name]), options.split())
            for i in asked:
                answers[i].append(self.value(questions[i].expression, values))
        computed = []
        for question, found in zip(questions, answers):
            known = values | {"answer": found[0]}
            misses = [(self.value(formula, known), why) for formula, why in question.misses]
            computed.append(Answer(found if len(set(found)) > 1 else found[:1], misses))
        return computed

    def value(self, expression: str, values: dict) -> float:
        try:
            return eval(expression, NAMES | values)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            NameError,
            SyntaxError,
            TypeError,
            ValueError,
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


def factor(a: float, b: float) -> float:
    """How many times as large the larger one is: infinitely many, if one is 0 or the signs differ."""
    return 1 if a == b else max(a / b, b / a) if a * b > 0 else math.inf


def score(guess: float, answers: list[float]) -> tuple[int, str]:
    """Points of 3, and what to say. What is measured is right anywhere within the range of the
    runs."""
    nearest = min(max(guess, min(answers)), max(answers))
    if guess == nearest:
        return 3, "exact" if len(answers) == 1 else "within the range"
    times = factor(guess, nearest)
    _, points, said = next(row for row in SCORES if times <= row[0])
    if times == math.inf:
        return points, said
    share = f"{digits(100 * abs(guess / nearest - 1), 2)}%"
    how = share if times <= 1.1 else f"{digits(times)} times"
    return points, f"{said}, {how} too {'large' if guess > nearest else 'small'}"


def explained(guess: float, answer: Answer) -> str:
    """What a guess has counted that earns less than all points, if we know; never a guess of ours."""
    if score(guess, answer.found)[0] == SCORES[0][1]:
        return ""
    beyond = -math.inf if guess < min(answer.found) else math.inf
    for number, why in answer.misses:
        if number == beyond or factor(guess, number) <= SAME:
            return why
    is_exact = any(math.isfinite(number) for number, _ in answer.misses)
    return f"none of the mistakes we know gives {shown(guess)}" if is_exact else ""


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
            points = attempts(saved, name)[-1:]
            said = f"{points[0]['points']} of {3 * len(known[name].questions)}" if points else ""
            print(f"{name:<24} {said}".rstrip())
        return 0
    if this.lesson and (name := resolve_step(this.lesson, *known)) not in known:
        usage_error(f"{name} asks for no predictions; these do: {' '.join(known)}")
    chosen = [known[name]] if this.lesson else list(known.values())
    if this.compute:
        for lesson in chosen:
            show_answers(lesson, lesson.questions)
        return 0
    return judge(chosen[0], guesses_for(chosen[0], this.answers))


def guesses_for(lesson: Lesson, answers: list[str] | None) -> list[float]:
    """The reader's: typed now, unless they are given."""
    if answers is None:
        return [ask(question, i + 1) for i, question in enumerate(lesson.questions)]
    guesses = list(map(number_from, answers))
    if None in guesses or len(guesses) != len(lesson.questions):
        units = ", ".join(question.unit for question in lesson.questions)
        usage_error(
            f"--answers {' '.join(answers)}: {lesson.name} wants {len(lesson.questions)} numbers, in {units}"
        )
    return guesses


def show_answers(lesson: Lesson, questions: list[Question]):
    """And fails if a miss cannot be told from the answer, or from another."""
    for question, answer in zip(questions, lesson.compute(questions)):
        numbers = [number for number, _ in answer.misses]
        if len(answer.found) > 1 and any(map(math.isfinite, numbers)):
            fail(
                f"{lesson.page}: {question.text} It is measured, so it has no misses but directions"
            )
        for a, b in itertools.combinations([answer.found[0], *numbers], 2):
            if factor(a, b) <= APART:
                fail(f"{lesson.page}: {question.text} {shown(a)} and {shown(b)} are too close")
        print(f"{question.text}\n    {said_of(answer.found, question.unit)}", flush=True)
        for number, why in answer.misses:
            if math.isfinite(number):
                print(f"    {shown(number)}: {why}", flush=True)


def attempts(saved: dict, name: str) -> list[dict]:
    """The guesses and points of each, the oldest first. Only points were kept once."""
    kept = saved.get(name, [])
    return kept if isinstance(kept, list) else [{"points": kept}]


def judge(lesson: Lesson, guesses: list[float]) -> int:
    total, computed = 0, lesson.compute(lesson.questions)
    print()
    for i, (question, guess, answer) in enumerate(zip(lesson.questions, guesses, computed)):
        points, said = score(guess, answer.found)
        total += points
        right = said_of(answer.found, question.unit)
        print(f"{i + 1}. {right}; you said {shown(guess)}: {said}. {points} of 3")
        if why := explained(guess, answer):
            print(f"   {why}")
    print(
        f"\n{total} of {3 * len(computed)} points. The lesson says why: {lesson.page.relative_to(ROOT)}"
    )
    saved = read_kept(SAVED, {})
    attempt = {"points": total, "guesses": guesses}
    keep(SAVED, {**saved, lesson.name: [*attempts(saved, lesson.name), attempt]})
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
