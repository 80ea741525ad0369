"""./ladder bug: a game. Plants one of the mistakes of the exercises' .wrong files into a trainer,
out of sight; the reader finds it."""

import base64
import dataclasses
import functools
import json
import random
import re
import runpy
import shutil
import zlib
from pathlib import Path

from launcher.build import need_release
from launcher.checkout import ROOT, Kind, chosen_kind, keep, read_kept, shown
from launcher.console import fail, say, usage_error
from launcher.course import exercise_names
from launcher.exercise import SHORT, Exercise, mending_of, short_run, source_of
from launcher.launch import launch, split_ranks
from launcher.processes import output_of
from launcher.rungs import read_rungs
from launcher.steps import resolve_step, step_names, trainer_in
from read_trace import read_trace

HOME = ROOT / ".ladder/bug"
STATE, SCORE, ANSWERS = HOME / "bug.json", HOME / "score.json", HOME / "answers"
PLANTS = """\
./ladder bug [STEP]              plants a mistake into the trainer of STEP, or of any step, and builds it

Your checkout stays as it is: the mistake is in a copy of one source file. Find out which line was changed, from what the
trainer does. A mistake that no short run shows is not planted.

"""
TOOLS = """\
  ./ladder bug train [options]   trains with the mistake, on as many ranks as show it, with options that show it. Others
                                 follow, or replace them: --out RUN, --trace FILE, --link 50:1, or --check-collectives 5,
                                 which ends a run that hangs
  ./ladder bug right [options]   the same run without the mistake
  ./ladder compare RUN RIGHT     where they first differ. Some mistakes leave every bit equal, and change only what is read, held
                                 or sent, or its order: ./ladder report RUN RIGHT, or a diff of the two report.json
  ./ladder trace FILE            what each rank did with its time
  ./ladder bug guess FILE:LINE   right if the line is one of those changed, or at most two lines away
  ./ladder bug hint              three: what the judge would say, the file, the function
  ./ladder bug show              gives up, and shows what was changed
  ./ladder bug score             10 points for each bug, less 1 for each wrong guess and 2 for each hint
"""
SAME = "losses grad_norms param_norms units val_losses param_hash data_bytes_read traffic".split()


def mistakes(step: str) -> list[dict]:
    """The mistakes that a training with this step may show: those of the exercises whose answer it
    trains with."""
    header, found = runpy.run_path(str(ROOT / "scripts/plant"))["HEADER"], []
    for exercise in map(Exercise, exercise_names()):
        for stub in exercise.stubs() if exercise.trainer == step else []:
            if not mending_of(stub).exists():
                heads = header.finditer(stub.with_suffix(".wrong").read_text())
                found += [
                    {"step": step, "exercise": exercise.name, "stub": str(stub), **head.groupdict()}
                    for head in heads
                    if not head["mark"]
                ]
    return found


def plant(words: list[str]) -> int:
    if len(words) > 1:
        usage_error(f"'{words[1]}' is too much: ./ladder bug --help says more")
    if read_bug():
        usage_error(
            "a bug is planted already: ./ladder bug guess FILE:LINE, or give it up with ./ladder bug show"
        )
    steps = [step for step in step_names() if mistakes(step)]
    step = resolve_step(words[0]) if words else random.choice(steps)
    if step not in steps:
        usage_error(f"{step} has no mistakes to plant. The steps: {' '.join(steps)}")
    kind = chosen_kind()
    need_release(kind, step)
    right = functools.cache(lambda ranks: account(kind, step, ranks, HOME / "runs/right"))
    for mistake in random.sample(found := mistakes(step), min(8, len(found))):
        ranks = 1 if step.startswith("step0") else max(2, int(mistake["ranks"]))
        bug = {
            **mistake,
            "ranks": ranks,
            "commit": commit(),
            "guesses": 0,
            "hints": 0,
            "change": write_answers(mistake),
        }
        need_release(kind_of(bug, kind), step)
        say("training with it and without, to see that it shows")
        if account(kind_of(bug, kind), step, ranks, HOME / "runs/bug") != right(ranks):
            keep_bug(bug)
            print(
                f"\na mistake is planted in the trainer of {step}; it shows on {ranks} rank{'s'[: ranks > 1]}.\n\n{TOOLS}",
                end="",
            )
            return 0
    fail("eight mistakes were tried, and none of them showed in a short run: once more, please")


def write_answers(mistake: dict) -> str:
    """The files of the exercise, one of them with the mistake. Returns in which functions it
    differs, and the diff."""
    shutil.rmtree(ANSWERS, ignore_errors=True)
    folder = ANSWERS / mistake["exercise"]
    folder.mkdir(parents=True)
    for stub in Exercise(mistake["exercise"]).stubs():
        shutil.copyfile(source_of(stub), folder / source_of(stub).name)
    stub = Path(mistake["stub"])
    words = [
        ROOT / "scripts/plant",
        source_of(stub),
        stub.with_suffix(".wrong"),
        folder / source_of(stub).name,
        "--only",
        mistake["name"],
    ]
    return output_of(words) or fail(f"'{mistake['name']}' could not be planted")


def kind_of(bug: dict, kind: Kind) -> Kind:
    return dataclasses.replace(kind, own=(bug["exercise"],), answers=ANSWERS, variant="bug")


def options_of(step: str, num_ranks: int) -> list[str]:
    """The options of the step's rung, but that step 0 plays no ranks; and several microbatches,
    which many mistakes need."""
    rung = next(rung for rung in read_rungs() if rung.name == step)
    own = rung.own_options(num_ranks, num_steps=4) if rung.ranks == "N" else []
    return [*own, *"--num-microbatches 3 --eval-every 2 --eval-samples 8".split()]


def account(kind: Kind, step: str, num_ranks: int, out: Path):
    """What a short run shows: the end of its report if it has one, and the order of all that its
    ranks do."""
    shutil.rmtree(out, ignore_errors=True)
    out.parent.mkdir(parents=True, exist_ok=True)
    trace = out.with_suffix(".json")
    trace.unlink(missing_ok=True)
    if short_run(
        kind,
        step,
        num_ranks,
        [*options_of(step, num_ranks), "--check-collectives", "10", "--trace", trace],
        out,
    ):
        return None
    report = json.loads((out / "report.json").read_text())
    held = [
        {key: of_rank[key] for key in theory}
        for of_rank, theory in zip(report["memory"], report["memory_theory"])
    ]
    order = [
        [each.name for each in sorted([*rank.spans, *rank.operations], key=lambda each: each.begin)]
        for rank in read_trace(trace).ranks
    ]
    return [report[key] for key in SAME], held, order


# ---- once it is planted -----------------------------------------------------------------------------------------------


def commit() -> str:
    return output_of(["git", "-C", ROOT, "rev-parse", "HEAD"])


# What a player is to find out.
SECRETS = ("stub", "name", "reason", "change")


def keep_bug(bug: dict) -> None:
    """Hides the answer from whoever looks at the file by chance."""
    answer = json.dumps({key: bug[key] for key in SECRETS}).encode()
    known = {key: value for key, value in bug.items() if key not in SECRETS}
    keep(STATE, known | {"answer": base64.b85encode(zlib.compress(answer)).decode()})


def revealed(kept: dict) -> dict:
    """What keep_bug() has kept, with the answer."""
    return kept | json.loads(zlib.decompress(base64.b85decode(kept["answer"])))


def read_bug() -> dict | None:
    kept = read_kept(STATE, None)
    if not kept:
        return None
    if kept["commit"] != commit():
        say("the bug was planted in another commit of this checkout, and is gone")
        return STATE.unlink()
    try:
        return revealed(kept)
    except (LookupError, ValueError, zlib.error):
        say(f"{shown(STATE)} is damaged, and the bug is gone")
        return STATE.unlink()


def need_bug() -> dict:
    return read_bug() or usage_error("no bug is planted: ./ladder bug [STEP] plants one")


def train(words: list[str], is_right: bool = False) -> int:
    bug, kind = need_bug(), chosen_kind()
    ranks, options = split_ranks("bug right" if is_right else "bug train", words, bug["ranks"])
    kind = kind if is_right else kind_of(bug, kind)
    need_release(kind, bug["step"])
    return launch(
        ranks,
        [trainer_in(kind.build, bug["step"]), *SHORT, *options_of(bug["step"], ranks), *options],
    ).code


def guess(words: list[str]) -> int:
    bug = need_bug()
    name, colon, line = "".join(words[:1]).rpartition(":")
    if len(words) != 1 or not (colon and line.isascii() and line.isdigit()):
        usage_error("usage: ./ladder bug guess FILE:LINE, such as step3_naive_dp/naive_dp.cpp:12")
    files = [
        file
        for file in (ROOT / name, *ROOT.glob(f"step*/**/{Path(name).name}"))
        if file.is_file() and f"/{file}".endswith(f"/{name}")
    ]
    if not files:
        usage_error(f"there is no file {name} in this checkout")
    source = source_of(Path(bug["stub"]))
    # A guess is about either file: the trainer's messages have the lines of the planted one.
    planted = [ANSWERS / bug["exercise"] / source.name] if source in files else []
    if not 1 <= int(line) <= max(len(file.read_text().splitlines()) for file in [*files, *planted]):
        usage_error(f"{name} has no line {line}: that was no guess, and costs nothing")
    heads = " ".join(re.findall(r"^@@ .*", bug["change"], re.MULTILINE))
    hunks = [
        (int(first), int(first) + int(count or 1))
        for first, count in re.findall(r"[-+](\d+)(?:,(\d+))?", heads)
    ]
    if source in files and any(first <= int(line) < end for first, end in hunks):
        return end_game(bug, max(1, 10 - bug["guesses"] - 2 * bug["hints"]), "right")
    bug["guesses"] += 1
    keep_bug(bug)
    say(f"no, it is not there. Guesses so far: {bug['guesses']}")
    return 1


def end_game(bug: dict, points: int, verdict: str) -> int:
    keep(
        SCORE,
        [
            *read_kept(SCORE, []),
            {key: bug[key] for key in ("step", "name", "guesses", "hints")} | {"points": points},
        ],
    )
    STATE.unlink()
    print(
        f'{verdict}: "{bug["name"]}", in {shown(source_of(Path(bug["stub"])))}; {points} points\n\n{bug["change"]}'
    )
    return 0


def hint(_: list[str]) -> int:
    bug = need_bug()
    functions = bug["change"].partition("\n---")[0].splitlines()
    hints = [
        f"the judge's words, or a part of them: … {bug['reason']} … (./ladder exercise {bug['exercise']} shows what it looks at)",
        f"the file is {shown(source_of(Path(bug['stub'])))}",
        f"it is in {' and in '.join(functions)}",
    ]
    bug["hints"] = min(bug["hints"] + 1, len(hints))
    keep_bug(bug)
    print("\n".join(f"hint {i + 1}: {text}" for i, text in enumerate(hints[: bug["hints"]])))
    return 0


def show_score(_: list[str]) -> int:
    for game in (games := read_kept(SCORE, [])):
        print(
            f'{game["points"]:3}  {game["step"]:20} "{game["name"]}": {game["guesses"]} wrong guesses, {game["hints"]} hints'
        )
    print(f"{sum(game['points'] for game in games)} of {10 * len(games)} points")
    return 0


WORDS = {
    "train": train,
    "right": lambda words: train(words, is_right=True),
    "guess": guess,
    "hint": hint,
    "show": lambda _: end_game(need_bug(), 0, "it was"),
    "score": show_score,
}
ALONE = ("hint", "show", "score")


def run(words: list[str]) -> int:
    if words[:1] in (["--help"], ["-h"]):
        print(PLANTS + TOOLS, end="")
        return 0
    if words[:1] and words[0] in ALONE and words[1:]:
        usage_error(f"'{words[1]}' is too much: ./ladder bug {words[0]} takes no more words")
    return WORDS[words[0]](words[1:]) if words and words[0] in WORDS else plant(words)
