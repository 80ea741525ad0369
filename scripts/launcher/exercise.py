"""./ladder exercise: a learner's own version of a step's core. The stub is copied once, then built
and judged, and timed if asked."""

import dataclasses
import hashlib
import json
import os
import re
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from compare_runs import differences

from launcher.board import Target, keep_targets, keep_times, lines_of, read_target
from launcher.build import need_built, need_release, prepare_release, setup_lock
from launcher.checkout import EXERCISES, ROOT, Kind, chosen_kind, shown
from launcher.console import Failure, Parser, count_from, fail, say, usage_error
from launcher.course import exercise_names, read_course
from launcher.launch import launch, mpirun, train
from launcher.logs import Log, log_path
from launcher.processes import HEEDED, call, next_signal, output_of
from launcher.rungs import read_rungs
from launcher.steps import read_steps, resolve_step, trainer_in

TIME = re.compile(
    r"\*\*Time\*\* (?:about )?(half an|three quarters of an|an|two|three|four|\d+)( and a half)? (hour|minute)s?( and a half)?"
)
AMOUNTS = {"half an": 0.5, "three quarters of an": 0.75, "an": 1, "two": 2, "three": 3, "four": 4}


class Exercise:
    """Paths are from the root; that of the judge is from the build folder."""

    def __init__(self, name):
        self.name = name
        self.lessons = [one for one in read_course() if one.exercise == name]
        first = self.lessons[0]
        home, self.trainer = first.folder, None if first.train == "-" else first.train
        self.folder, self.lesson = f"{home}/exercise", first.page
        self.judge, self.mine = f"{home}/{name}_judge", EXERCISES / name
        self.passed = self.mine / "passed"  # holds the fingerprint of the answer that passed last
        self.cmake = ROOT / home / "CMakeLists.txt"

    def stubs(self):
        return sorted((ROOT / self.folder).glob("*.stub"))

    def files(self):
        """The learner's, there or not, and the stubs that they come from."""
        return {self.mine / f"{stub.stem}.cpp": stub for stub in self.stubs()}

    def fingerprint(self):
        return hashlib.sha256(
            b"".join(file.read_bytes() for file in self.files() if file.exists())
        ).hexdigest()

    def lesson_texts(self):
        return [(ROOT / one.page).read_text() for one in self.lessons]

    def hints(self, number):
        """The lessons' hints of this number: titles and texts. An exercise of two parts has two."""
        text = re.sub(r"^<!-- .* -->\n", "", "\n".join(self.lesson_texts()), flags=re.MULTILINE)
        return re.findall(
            rf"^<details><summary>(Hint {number}\b[^<]*)</summary>\n+(.*?)\n+</details>",
            text,
            re.MULTILINE | re.DOTALL,
        )

    def hours(self):
        """That the lessons say the exercise takes."""
        times = [TIME.search(text).groups() for text in self.lesson_texts()]
        return sum(
            (AMOUNTS.get(amount) or int(amount)) / (60 if unit == "minute" else 1)
            + (0.5 if half or later_half else 0)
            for amount, half, unit, later_half in times
        )

    def has_threads(self):
        """Whether the judge's ranks are threads of one process."""
        return "run_as_threads(" in (ROOT / self.folder / "checks.cpp").read_text()

    def state(self):
        """What the learner has made of it: "open", "begun", "passed", or "changed" since it passed."""
        if not self.passed.exists():
            return "begun" if self.mine.is_dir() else "open"
        is_all_there = all(file.exists() for file in self.files())  # the exercise may have grown
        return (
            "passed"
            if is_all_there and self.passed.read_text() == self.fingerprint()
            else "changed"
        )

    def ranks(self):
        """The numbers of ranks on which CMake runs the judge."""
        found = re.search(r"^[^#\n]*\bRANKS ([0-9 ]+)", self.cmake.read_text(), re.MULTILINE)
        return [int(word) for word in found[1].split()] if found else [1]


def mending_of(stub: Path) -> Path:
    """A diff, there only where the source is what to mend."""
    return stub.with_suffix(".solution")


def copy_solution(stub: Path, mine: Path):
    if not mending_of(stub).exists():
        shutil.copyfile(source_of(stub), mine)
    elif subprocess.run(
        [ROOT / "scripts/plant", source_of(stub), mending_of(stub), mine]
    ).returncode:
        fail(f"{shown(stub)} was not mended")


def source_of(stub: Path) -> Path:
    """The file that the stub is made from, and that a learner's file replaces: it has the same
    name. It is the solution, or what has to be mended. It is beside the header that the stub names
    first, the contract, or in a folder of solutions that no library has."""
    name = f"{stub.stem}.cpp"
    contracts = re.findall(r"[\w/]+\.hpp", stub.read_text())[:1]
    places = [(ROOT / contract).parent for contract in contracts]
    places += [stub.parent / "solution", stub.parent.parent]
    return next(place / name for place in places if (place / name).exists())


def copy_stub(stub: Path, mine: Path, is_hard=False):
    """Where a learner's file comes from."""
    if subprocess.run(
        [ROOT / "scripts/make_stub", source_of(stub), stub, mine, *["--hard"][:is_hard]]
    ).returncode:
        fail(f"no stub was made of {shown(stub)}")


def run(words):
    parser = Parser(
        "exercise",
        "Write the core of a step yourself: copies the stub, builds and judges your code.",
    )
    parser.add_argument(
        "step",
        metavar="STEP",
        nargs="?",
        help=f"without it, shows your own ladder; {' '.join(exercise_names())}",
    )
    parser.add_argument(
        "--hint",
        metavar="N",
        type=count_from(1, 3),
        help="only show a hint: 1 is where to begin, 3 is nearly the solution",
    )
    parser.add_argument(
        "--hard",
        action="store_true",
        help="a file without anything given: what the header declares, with empty bodies; judged the same",
    )
    parser.add_argument(
        "--watch",
        action="store_true",
        help="judges again whenever you save a file, until it passes",
    )
    parser.add_argument(
        "--time",
        action="store_true",
        help="judges nothing: trains with your answers that have passed and with the solutions, in turn, and says "
        "how long a step takes. Stays on this machine, and is no verdict",
    )
    wanted = parser.parse_args(words)
    if not wanted.step:
        if wanted.hint or wanted.hard or wanted.watch or wanted.time:
            parser.error("--hint, --hard, --watch and --time need a STEP")
        return show_ladder()
    name, kind = resolve_step(wanted.step, *exercise_names()), chosen_kind()
    if name not in exercise_names():
        usage_error(f"{name} has no exercise")
    exercise = Exercise(name)
    if wanted.hint:
        return show_hint(exercise, wanted.hint)
    if wanted.time:
        return time_answer(exercise, kind)
    if wanted.hard and any(mending_of(stub).exists() for stub in exercise.stubs()):
        usage_error(f"{exercise.name} has nothing that is harder: its source is what you mend")
    if wanted.hard and any(exercise.mine.glob("*.cpp")):
        usage_error(
            f"--hard gives you a new file, and yours is there: move {shown(exercise.mine)}/ away, or go on without --hard"
        )
    hand_out(exercise, wanted.hard)
    return watch(exercise, kind) if wanted.watch else judge_answer(exercise, kind)


def watch(exercise, kind, judge_once=None) -> int:
    """Judges again whenever a file of the answer changes, until it passes."""
    judge_once, judged = judge_once or judge_answer, None
    while True:
        now = [file.stat().st_mtime_ns if file.exists() else None for file in exercise.files()]
        if now != judged and None not in now:  # an editor may replace a file
            judged = now
            try:
                code = judge_once(exercise, kind)
            except Failure as failure:  # it does not compile
                say(str(failure))
                code = 1
            if code != 1:
                return code
            say(f"watching {shown(exercise.mine)}/: save a file there, or end with Ctrl-C")
        if (number := next_signal(0.3)) in HEEDED:
            return 128 + number


def judge_answer(exercise, kind) -> int:
    with setup_lock():
        prepare_release(kind)
        show_cmake_the_answers(kind)
        need_built(kind.folder, f"{exercise.name}_judge")
    code, targets = 0, []
    for text in shared_statics(exercise, kind) if exercise.has_threads() else []:
        say(text)
        code = 1
    for ranks in exercise.ranks():
        if not code:
            code, targets = judge(kind.build / exercise.judge, ranks)
    if code == 130:
        return code
    if code:
        say(
            f"not yet: edit {shown(exercise.mine)}/ and run ./ladder exercise {exercise.name} again (--hint 1 to 3 helps)"
        )
        return 1
    exercise.passed.write_text(exercise.fingerprint())
    say(f"passed: your {exercise.name} passes all checks")
    keep_targets(exercise.name, targets)
    train = ""
    if exercise.trainer:
        prove(exercise, kind)
        train = f"train with it, ./ladder train {exercise.trainer} --mine; "
    say(
        f"now {train}compare it with the solution (in {exercise.lesson}, under \"Exercise\"); then 'Go further' there"
    )
    return show_ladder()


class Judged(NamedTuple):
    code: int  # 0 if the judge itself says that the answer is right, 130 after a signal, else 1
    targets: list[Target]


def judge(program: Path, ranks: int) -> Judged:
    """Judges on so many ranks.

    An answer may end the judge's program, with any code, or print what the judge prints. So the
    verdict begins with a word that only the judge knows: it takes it out of a file before the
    answer runs."""
    word = secrets.token_hex(16)
    with tempfile.TemporaryDirectory(prefix="ladder-judge-") as folder:
        (verdict := Path(folder, "verdict")).write_text(word)
        end = launch(ranks, [program, "--verdict", verdict])
        said = verdict.read_text() if verdict.exists() else ""
    if end.was_stopped:
        return Judged(130, [])
    verdict, *targets = said.splitlines() or [""]
    if verdict not in (f"{word} right", f"{word} wrong"):
        say(
            "the judge has not come to its verdict. If nothing above says why, your code has ended "
            "the program, by exit() for example"
        )
    code = int(end.code != 0 or verdict != f"{word} right")
    return Judged(code, [] if code else list(map(read_target, targets)))


# A line of objdump: a variable that can be written to, and that all threads share.
SHARED = re.compile(
    r"^\S+ .{6}O \.(?:bss|data)(?!\.rel\.ro)\S*\s+\S+\s+(?:\.hidden )?(?:.*::)?(\w+)[^:]*$",
    re.MULTILINE,
)


def shared_names(symbols: str, text: str) -> list[str]:
    """Of what objdump prints, those that this source defines, and not as const: that is written to
    once, by whoever comes first, and the others would write the same."""
    own = re.findall(r"\w+", re.sub(r"\bconst\b[^;{}()]*", "", text))
    return sorted(set(SHARED.findall(symbols)) & set(own))


def shared_statics(exercise: Exercise, kind: Kind) -> list[str]:
    """What is wrong with an answer that keeps something where all ranks share it if ranks are
    threads: a verdict would depend on which of them comes first."""
    found = []
    objects = (kind.build / exercise.judge).parent / "CMakeFiles" / f"{exercise.name}_judge.dir"
    for file in filter(Path.exists, exercise.files()):
        for built in objects.rglob(f"{file.name}.o"):
            names = shared_names(output_of(["objdump", "-tC", built]), file.read_text())
            found += [
                f"'{name}' in {shown(file)} is static, or outside of all functions. This judge's "
                "ranks are threads, which would share it, and no verdict would be sure: make it "
                "local, or thread_local"
                for name in names
            ]
    return found


def show_ladder():
    """The learner's own: a row for each exercise, in the order of the course."""
    all_of_them = [Exercise(name) for name in exercise_names()]
    rungs = [one for one in all_of_them if one.lessons[0].is_on_path]
    beside = [one for one in all_of_them if one not in rungs]
    missing = [rung for rung in rungs if rung.state() != "passed"]
    hours = sum(rung.hours() for rung in missing)
    left = (
        f"about {hours:.0f} hours of exercises left"
        if missing
        else "it is all yours: ./ladder run --mine trains it"
    )
    print(f"\nyour ladder: {len(rungs) - len(missing)} of {len(rungs)} rungs; {left}\n")
    for exercise in [*rungs, None, *beside]:
        if exercise is None:
            print("\n  beside it, whenever you like:")
            continue
        state, hours = exercise.state(), exercise.hours()
        mark, color, text = {
            "passed": ("✓", 32, "passed"),
            "changed": ("!", 33, "changed since it passed"),
            "begun": ("…", 36, "begun"),
            "open": (" ", 0, f"{hours:g} h" if hours >= 1 else f"{60 * hours:.0f} min"),
        }[state]
        is_next = "   ← next" if missing[:1] == [exercise] else ""
        print(colored(f"  {mark} {exercise.name:20} {text}", color) + is_next)
        for line in lines_of(exercise.name) if state == "passed" else []:
            print(f"{'':25}{line}")
    if missing:
        print(f"\nnext: {missing[0].lesson}, then ./ladder exercise {missing[0].name}")
    return 0


def colored(text, color):
    """The text in color on a terminal, unless NO_COLOR is set."""
    return (
        f"\033[{color}m{text}\033[0m"
        if color and sys.stdout.isatty() and not os.environ.get("NO_COLOR")
        else text
    )


def show_hint(exercise, number):
    if not (hints := exercise.hints(number)):
        usage_error(f"{exercise.lesson} has no hint {number}")
    for title, text in hints:
        print(f"{title}\n\n{text}\n")
    return 0


# ---- training with answers that have passed ---------------------------------------------------------------------------


def with_own_answers(kind: Kind, step: str | None = None) -> Kind:
    """The set-up, with a build folder for the learner's answers: those that have passed, and not
    changed since; and that of this step, whatever it is worth."""
    own = []
    for exercise in map(Exercise, exercise_names()):
        state = exercise.state() if exercise.trainer else "open"
        if state == "passed":
            own.append(exercise.name)
        elif state != "open" and exercise.name == step:
            say(f"your {step} has not passed its exercise; training with it all the same")
            own.append(step)
        elif state == "changed":
            say(
                f"without your {exercise.name}: it has changed since it passed; ./ladder exercise {exercise.name} checks it again"
            )
    if not own:
        usage_error("--mine: no exercise has passed yet; ./ladder exercise STEP gives you one")
    return dataclasses.replace(kind, own=tuple(own))


def trainer_sources(step):
    """The idea files and the loop of a step's trainer, its own and those that it uses: an include
    is a citation."""
    found, left = (
        set(),
        [f"{read_steps()[step].folder}/train{suffix}" for suffix in (".hpp", ".cpp")],
    )
    while left:
        if (ROOT / (file := left.pop())).exists() and file not in found:
            found.add(file)
            cited = re.findall(
                r'^#include "(step\d[^"]*)\.hpp"', (ROOT / file).read_text(), re.MULTILINE
            )
            left += [f"{name}{suffix}" for name in cited for suffix in (".hpp", ".cpp")]
    return {file for file in found if file.endswith(".cpp")}


def own_files(own):
    """The learner's files of these exercises: {the source that each replaces: its own path, and its
    stub}."""
    return {
        shown(source_of(stub)): (mine, stub)
        for name in own
        for mine, stub in Exercise(name).files().items()
    }


def own_steps(own, steps):
    """Of these trainers, those that the learner's files are a part of."""
    return [step for step in steps if trainer_sources(step) & own_files(own).keys()]


def count_own_lines(own, steps):
    """Counts in the sources of these trainers lines that the learner wrote, and all; without blank
    lines, comments and lone braces. Of the learner's files, what the stub has as well does not
    count as their own."""
    files, num_own, num_all = own_files(own), 0, 0
    for source in set().union(*map(trainer_sources, steps)):
        mine, stub = files.get(source, (ROOT / source, None))
        lines = code_lines(mine.read_text())
        num_all += lines.total()
        if stub:
            with tempfile.NamedTemporaryFile("r", suffix=".cpp") as given:
                copy_stub(stub, Path(given.name), HARD in mine.read_text())
                num_own += (lines - code_lines(given.read())).total()
    return num_own, num_all


def code_lines(text):
    lines = [re.sub(r"//.*", "", line).strip() for line in text.splitlines()]
    return Counter(line for line in lines if re.search(r"\w", line))


HARD = ", the hard way."  # in the first line of such a file
# Documents have unequal numbers of targets.
SHORT = "--layers 3 --heads 4 --channels 96 --context 256 --rows documents --micro-batch-size 2 --lr 6e-3 --steps 4".split()


def short_run(kind, step, num_ranks, options, out):
    """A few steps, in silence. Returns the exit code."""
    command = [
        "timeout",
        "-k1",
        "60",
        *mpirun(num_ranks),
        trainer_in(kind.build, step),
        *SHORT,
        *options,
        "--quiet",
        "--out",
        out,
    ]
    with log_path("short-run").open("w") as log:
        return call(command, stdout=log, stderr=log)


def proof_of(exercise):
    """A trainer and its options, the rung that it is or builds on, and the rung of the solutions
    that it must equal: for a step's own run, step 0, which plays the ranks, where the ladder says
    that they are equal; else the same one."""
    word, *options = exercise.trainer.split()
    step, rungs = resolve_step(word), {rung.name: rung for rung in read_rungs()}
    rung = wanted = rungs.get(step) or rungs[read_steps()[step].builds_on]
    while (step == exercise.name or not options) and wanted.equals != "-":
        wanted = rungs[wanted.equals]
    return step, options, rung, wanted


def prove(exercise, kind):
    """Trains with all answers that have passed, on two ranks, and compares with the solutions."""
    step, options, rung, wanted = proof_of(exercise)
    mine = with_own_answers(kind)
    need_release(mine, step)
    need_release(kind, wanted.step)
    with tempfile.TemporaryDirectory() as folder:
        for built, name, of, out in (
            (mine, step, rung, f"{folder}/mine"),
            (kind, wanted.step, wanted, f"{folder}/wanted"),
        ):
            if short_run(
                built,
                name,
                of.num_ranks(2),
                [*of.own_options(2, num_steps=4), *(options if name == step else [])],
                out,
            ):
                fail(
                    f"it has passed, but {name} cannot train with it (log: .ladder/logs/short-run.log)"
                )
        lines, end = (
            differences(f"{folder}/mine", f"{folder}/wanted"),
            json.loads(Path(folder, "mine/report.json").read_text())["param_hash"],
        )
    if lines:
        fail(f"it has passed, but {step} does not train as {wanted.name}: {lines[0]}")
    reference = "with the solutions" if step == wanted.step else wanted.name
    names = used_answers(mine, step, exercise.name)
    say(
        f"proven: {step}, trained with your {names}, ends on the same bits as {reference}: {end[:8]}…"
    )


PAIRS, STEPS, LINK = 5, 20, "50:1"  # of --time; the link is that of the lessons' times


def time_answer(exercise, kind) -> int:
    """Trains with all answers that have passed and with the solutions, in turn."""
    name = exercise.name
    if not exercise.trainer:
        usage_error(f"--time: no trainer uses {name}")
    if exercise.state() != "passed":
        usage_error(f"--time: {name} has not passed as it is; ./ladder exercise {name} judges it")
    step, options, rung, _ = proof_of(exercise)
    mine, ranks = with_own_answers(kind), rung.num_ranks(2)
    for built in (mine, kind):
        need_release(built, step)
    words = [*rung.own_options(ranks, num_steps=STEPS), *options, "--steps", str(STEPS)]
    words += ["--link", LINK] if ranks > 1 else []
    say(f"{PAIRS} times, first with your answers, then without: {step} {' '.join(words)}")
    pairs = []
    for _ in range(PAIRS):
        runs = [train(trainer_in(built.build, step), ranks, words) for built in (mine, kind)]
        pairs.append(tuple(statistics.mean(run["step_seconds"][1:]) for run in runs))
        say(", ".join(f"{1e3 * seconds:.1f} ms a step" for seconds in pairs[-1]))
    keep_times(name, f"{step} with your {used_answers(mine, step, name)}", pairs)
    return 0


def used_answers(mine: Kind, step: str, name: str) -> str:
    """Of the answers that have passed, this one and those that the trainer uses."""
    sources = trainer_sources(step)
    *first, last = (one for one in mine.own if own_files([one]).keys() & sources or one == name)
    return f"{', '.join(first)} and {last}" if first else last


def show_cmake_the_answers(kind: Kind):
    """The learner's files are part of the usual build; CMake looks for new ones only when it runs."""
    there = "\n".join([str(EXERCISES), *sorted(str(file) for file in EXERCISES.glob("*/*.cpp"))])
    stamp = kind.build / ".ladder_exercises"
    if not stamp.exists() or stamp.read_text() != there:
        Log("configure-exercises").run(["cmake", kind.build, f"-DLADDER_EXERCISES={EXERCISES}"])
        stamp.write_text(there)


def hand_out(exercise, is_hard):
    """A learner's file that is there stays as it is."""
    exercise.mine.mkdir(parents=True, exist_ok=True)
    for mine, stub in exercise.files().items():
        if not mine.exists():
            copy_stub(stub, mine, is_hard)
            say(f"your file: {shown(mine)} (the lesson: {exercise.lesson})")
