"""./ladder start: the first minutes of the course, which need steps 0 and 1 only."""

import time

from compare_runs import differences

from launcher import predict
from launcher.build import need_release
from launcher.checkout import ROOT, chosen_kind, shown
from launcher.console import Parser, fail, say
from launcher.launch import launch
from launcher.steps import trainer_in

LESSON = "step0_single_gpu"
STEPS = ["--steps", "20"]
# What is said of a run, the trainer, its ranks and options, and its folder.
RUNS = [
    ("one process, which reads the rows of two and adds up as two would", LESSON, 1, ["--simulate-ranks", "2"], "one"),
    ("two processes, each with half of the rows", "step1_ddp_reference", 2, [], "two"),
]  # fmt: skip
NEXT = """
You have trained on two processes and ended on the bits of one. How that works is the course. Next:

  step0_single_gpu/README.md         the lesson, which says what your predictions missed (20 minutes)
  ./ladder exercise step0            its exercise: ten lines; the judge says what is wrong (half an hour)
  step1_ddp_reference/README.md      the loop on several processes
  docs/route.md                      all lessons, and three tracks
"""


def run(words: list[str]) -> int:
    parser = Parser(
        "start",
        "The first minutes of the course: you predict three numbers, then one process trains, then two, "
        "which must end on the same bits. Builds steps 0 and 1 only.",
    )
    parser.add_argument(
        "--answers", nargs="+", metavar="X", help="your three numbers, instead of typing them"
    )
    wanted, lesson = parser.parse_args(words), predict.lessons()[LESSON]
    print(
        f"Before anything runs, three questions of {lesson.page.relative_to(ROOT)}. Guess; it is no exam."
    )
    guesses = predict.guesses_for(lesson, wanted.answers)
    kind, home = chosen_kind(), ROOT / time.strftime("runs/start-%Y%m%d-%H%M%S")
    need_release(kind, *(step for _, step, *_ in RUNS))
    for about, step, ranks, options, name in RUNS:
        command = [*STEPS, *options, "--out", home / name]
        say(
            f"{about}: ./ladder train {step}{f' --ranks {ranks}' * (ranks > 1)} {' '.join(map(str, command[:-2]))}"
        )
        launch(ranks, [trainer_in(kind.build, step), *command]).exit_unless_well()
    if lines := differences(home / "one", home / "two"):
        fail(f"the two runs differ, which they never should: {lines[0]}")
    say(f"the same bits: ./ladder compare {shown(home / 'two')} {shown(home / 'one')}")
    predict.judge(lesson, guesses)
    print(NEXT, end="")
    return 0
