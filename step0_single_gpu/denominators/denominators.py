#!/usr/bin/env python3
"""Step 8 with five mistakes in the denominator of its loss: README.md's table, and its exercise.

    denominators.py                          trains, and prints the table
    denominators.py --check                  compares what README.md, SOLUTION.md and reports/ say
                                             with new runs
    denominators.py --grade FILE             grades the exercise: five lines such as "a: right"
    denominators.py --write-reports FOLDER   writes the reports of the exercise

Exit code 1 if something differs, or an answer is wrong. --seed N: another puzzle than that of
reports/. The trainers are CMake's target denominators, in build/release or where LADDER_BUILD
says. Standard library only.
"""

import argparse
import array
import json
import math
import random
import re
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts"))
from compare_runs import relative_distance  # noqa: E402
from launcher.checkout import BUILD  # noqa: E402
from launcher.launch import run_all  # noqa: E402
from launcher.steps import resolve_step, trainer_in  # noqa: E402
from launcher.tables import table  # noqa: E402
from tensor_files import read_tensors  # noqa: E402

RIGHT_PROGRAM = trainer_in(BUILD, resolve_step("8"))
WRONG = (HERE / "denominators.wrong").read_text()
MISTAKES = dict(re.findall(r"^== (\S+) \| \d \| (.*)", WRONG, re.M))
RIGHT, OTHER = "right", "right, other weights"
AS_RIGHT = "all four cuts would agree, and the first loss would be that of an untrained model"
ANSWERS = {RIGHT: AS_RIGHT, **MISTAKES}  # and what they would show
ALL = """--context 256 --layers 1 --heads 2 --channels 32 --lr-schedule constant --pipeline-stages 1
    --transport threads --quiet"""
DOCUMENTS = "--rows documents --eval-samples 16 --eval-every"
SGD = "--optimizer sgd --weight-decay 0 --clip-norm 0 --lr 0.2"
RECIPES = {"SGD": SGD, "AdamW": "--clip-norm 0.5 --lr 3e-3"}
VALIDATE = f"{SGD} --lr 0 --steps 1 {DOCUMENTS} 1"  # the parameters stay as they are
# A cut of a step's rows: ranks, flushes of each, microbatches of each flush, rows of each of them.
OPTIONS = ["ranks", "accumulation", "num-microbatches", "micro-batch-size"]
CUT = 2, 2, 2, 1
CUTS = [(1, 1, 1, 8), (1, 1, 8, 1), (1, 4, 2, 1), (2, 1, 1, 4)]  # of a run of the exercise
RUNS = "abcde"
PARTS = ["losses", "grad_norms", "param_norms", "target_tokens"]


def train(home, jobs):
    """The reports of {folder in home: (answer, cut, options)}. Two of them train at a time."""
    commands = []
    for folder, (answer, cut, options) in jobs.items():
        is_right = answer not in MISTAKES
        program = RIGHT_PROGRAM if is_right else BUILD / f"step0_single_gpu/denominators/{answer}"
        rows = [f"--{name}={number}" for name, number in zip(OPTIONS, cut)]
        words = [*ALL.split(), *options.split(), *rows, "--out", f"{home}/{folder}"]
        commands.append([program, *words])
    for first in range(0, len(commands), 2):
        run_all(commands[first : first + 2])
    return [json.loads(Path(home, f, "report.json").read_text(), parse_float=short) for f in jobs]


def short(number):
    return float(f"{float(number):.6g}")


def moved(home, folder, start):
    """How far each parameter is from where it was."""
    ends = []
    for run in (folder, start):
        (file,) = Path(home, run).glob("checkpoints/*/model.safetensors")
        tensors = read_tensors(file).values()
        ends.append(array.array("f", b"".join(values for _, values in tensors)))
    return [a - b for a, b in zip(*ends, strict=True)]


def measured(home):
    """README.md's table."""
    starts = {name: f"start{1 + (name == OTHER)}" for name in (RIGHT, OTHER, *MISTAKES)}
    train(home, {f"start{seed}": (RIGHT, CUT, f"{VALIDATE} --seed {seed}") for seed in (1, 2)})
    head, rows = ["run", "gradient norm"], {name: [name] for name in starts}
    for recipe, options in RECIPES.items():
        runs = {name: f"{recipe}{i}" for i, name in enumerate(starts)}
        how = f"{options} --steps 30 {DOCUMENTS} 30 --init-from {home}"
        found = train(home, {runs[n]: (n, CUT, f"{how}/{starts[n]}") for n in starts})
        head.append(f"{recipe}: last loss")
        for row, of in zip(rows.values(), found):
            row.append(f"{of['losses'][-1]:.3f}")
    movement = [moved(home, runs[name], starts[name]) for name in starts]
    for row, of, movement_of in zip(rows.values(), found, movement):
        row.insert(1, f"{of['grad_norms'][0] / found[0]['grad_norms'][0]:.3f}")
        row.append(f"{relative_distance(movement_of, movement[0]):.3f}")
        row.append(f"{of['val_losses'][-1]['loss']:.3f}")
    return table([[*head, "parameters", "validation loss"], *rows.values()], numbers_right=True)


def puzzle(home, run, answer, seed):
    """Parts of the reports of a run's four cuts. Each run has its own data and weights."""
    seed = 5 * seed + RUNS.index(run)
    how, cuts = f"{RECIPES['AdamW']} --steps 3 {DOCUMENTS} 3 --seed {seed}", []
    for of in train(home, {f"{seed}{answer}{cut}": (answer, cut, how) for cut in CUTS}):
        parts = {key: of["config"][key] for key in OPTIONS}
        parts["val_loss"] = of["val_losses"][0]["loss"]
        text = json.dumps(parts | {key: of[key] for key in PARTS})
        cuts.append("\n  " + re.sub(r', ("\w+": \[)', r",\n   \1", text))
    return f'{{"run": "{run}", "cuts": [{",".join(cuts)}\n]}}\n'


def answers_of(seed):
    return dict(zip(RUNS, random.Random(seed).choices(list(ANSWERS), k=len(RUNS))))


def diagnosis(report):
    """SOLUTION.md's reasoning."""
    cuts = json.loads(report)["cuts"]
    norms, losses = [cut["grad_norms"][0] for cut in cuts], [cut["val_loss"] for cut in cuts]
    if cuts[0]["losses"][0] < 0.98 * math.log(258):
        return "padding"
    pairs = norms[:2], norms[1:3], (norms[0], norms[3]), losses[:2]
    names = "mean-of-means", "scaled-again", "local-weights", "validation-means"
    differ = (name for name, pair in zip(names, pairs) if not math.isclose(*pair, rel_tol=3e-5))
    return next(differ, RIGHT)


def wrong_answers(text, answers):
    """A line for each run whose answer in the text is not this one."""
    found, faults = re.findall(r"^ *(\w+) *: *(\S*)", text, re.M), []
    for run, answer in answers.items():
        given = [name for of, name in found if of == run]
        if len(given) != 1 or given[0] not in ANSWERS:
            faults.append(f"run {run} needs one answer of: {', '.join(ANSWERS)}")
        elif given[0] != answer:
            faults.append(f"run {run} is not '{given[0]}': then {ANSWERS[given[0]]}")
    return faults


def differences(name, old, new, absolute, relative):
    """Numbers of the old text that are not those of the new one. Another CPU rounds differently,
    and training amplifies that."""
    words = [re.findall(r"[-+]?\d[\d.e-]*|[a-zA-Z_]+", text) for text in (old, new)]
    faults = ["it has more or fewer words and numbers"] * (len(words[0]) != len(words[1]))
    for a, b in zip(*words):
        is_close = a == b
        if a[-1].isdigit() and b[-1].isdigit():
            is_close = math.isclose(float(a), float(b), rel_tol=relative, abs_tol=absolute)
        faults += [] if is_close else [f"it says {a} where a new run has {b}"]
    return [f"{name}: {fault}" for fault in faults]


def check(home):
    """What is wrong with the pages and reports of this chapter."""
    page, solution = ((HERE / name).read_text() for name in ("README.md", "SOLUTION.md"))
    lines = "\n".join(line for line in page.splitlines() if line.startswith("|"))
    if faults := differences("the table", lines, new := measured(home), 0.005, 0.01):
        print(new)
    sums = re.findall(r"(\([\d. +·]+\)/\d+|\d[\d.]*/\d[\d.]*) =\s\**(\d+\.\d+)", page)
    for left, right in sums:  # on paper
        if abs(eval(left.replace("·", "*")) - float(right)) > 0.005:
            faults.append(f"README.md: {left} is not {right}")
    faults += ["README.md has lost its sums"] * (len(sums) < 8)
    faults += wrong_answers(solution, answers_of(1))
    reports = ""
    for run, answer in [*answers_of(1).items(), ("a", "validation-means")]:
        report = puzzle(home, run, answer, 1)
        if answer == answers_of(1)[run]:
            old = (HERE / f"reports/run_{run}.json").read_text()
            faults += differences(f"run {run}", old, report, 0, 2e-4)
            reports += (report := old)
        if diagnosis(report) != answer:
            faults.append(f"{answer} is taken for {diagnosis(report)}")
    quoted = set(re.findall(r"\d\.\d{4,}", solution)) - set(re.findall(r"[\d.]+", reports))
    return faults + [f"SOLUTION.md: no report has {number}" for number in quoted]


def main():
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=form)
    parser.add_argument("--seed", type=int, default=1)
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument("--check", action="store_true")
    choice.add_argument("--grade", type=Path, metavar="FILE")
    choice.add_argument("--write-reports", type=Path, metavar="FOLDER")
    options = parser.parse_args()
    programs = BUILD / "step0_single_gpu/denominators"
    if not options.grade and not all((programs / name).exists() for name in MISTAKES):
        sys.exit(f"first: cmake --build {BUILD} --target denominators")
    with tempfile.TemporaryDirectory(prefix="ladder-denominators-") as home:
        if options.check or options.grade:
            faults = check(home) if options.check else []
            if options.grade:
                faults = wrong_answers(options.grade.read_text(), answers_of(options.seed))
            print("\n".join(faults) or "all is right")
            return 1 if faults else 0
        if not (folder := options.write_reports):
            print(measured(home))
            return 0
        folder.mkdir(parents=True, exist_ok=True)
        for run, answer in answers_of(options.seed).items():
            text = puzzle(home, run, answer, options.seed)
            Path(folder, f"run_{run}.json").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
