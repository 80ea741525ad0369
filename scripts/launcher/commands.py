"""The commands of ./ladder. Each is a function that takes the words after its name and returns the
exit code."""

import re
import shutil
from pathlib import Path

from launcher import (
    ask,
    bench,
    bug,
    climb,
    clusters,
    completion,
    debug,
    docs,
    doctor,
    exercise,
    first_hour,
    machine,
    plan,
    predict,
    report,
    scale,
    test,
)
from launcher.build import need_release, setup_lock
from launcher.checkout import ROOT, chosen_kind, owner_of, use_cuda
from launcher.console import Failure, Parser, fail, nearest, option_of, say, usage_error
from launcher.launch import launch, launch_script, split_ranks
from launcher.libtorch import need_environment, python
from launcher.packages import BUILD_PACKAGES, TEST_PACKAGES, need_packages
from launcher.processes import become, script
from launcher.steps import resolve_step, step_names, take_step, trainer_in
from launcher.trainer_options import check_are_of, help_of

HELP = """\
Ladder: distributed training, written out step by step. Each step is a complete trainer.

  ./ladder start                   the first minutes of the course: three predictions, then steps 0 and 1
  ./ladder run [options]           climb all steps on the built-in corpus; ends in a table that compares them
      --ranks N                    the number of processes: 1, 2, 4 or 8 (default 2)
      --data FILE                  train on your own text; any other common trainer option works too: --steps 200
  ./ladder train STEP [options]    one trainer:  ./ladder train step0_single_gpu --steps 100 --data my.txt
      --ranks N                    the number of processes, under mpirun (default 1)
      --transport threads          instead, all ranks are threads of one process
      --mine                       with your own answers to the exercises that have passed; also for run
      --help                       show all options of the trainer
  ./ladder debug STEP [options]    the same under a debugger, all ranks being threads:  ./ladder debug step4 --ranks 3
      --help                       what to type there
  ./ladder plan [options]          which steps can train a model, how fast, and why not the others:  ./ladder plan --ranks 4
      --memory 2GiB --link 50:1    what a rank may hold; latency (µs) and bandwidth (Gbit/s) of its link
  ./ladder export RUN FOLDER       write a run's model as a Hugging Face folder;  --init-from FOLDER starts from one
      --dtype bf16                 in 16 bits
  ./ladder encode MODEL DATA OUT.bin   token ids of data, with any tokenizer: train with --data OUT.bin
      --chat                       conversations, in MODEL's chat template;  --pairs: preference pairs
  ./ladder ask RUN…                how many questions that it has not seen a run's model answers in valid SQL
      --prompt TEXT                answer this one: CREATE TABLE …, a new line, a question
  ./ladder compare RUN REFERENCE   check that two runs are equal to the bit; if not, show where they first differ
      --within TOLERANCE           allow relative differences up to TOLERANCE
  ./ladder trace FILE              what each rank of a run with --trace FILE did with its time
      --svg OUT                    draw one of its optimizer steps; --step N chooses which
  ./ladder report RUN…             charts of runs in one page of HTML: losses, ULPs, memory and traffic beside theory
      --tensorboard DIR            also TensorBoard's event files
  ./ladder scale [STEP…]           the time of a step on up to 1,024 ranks, of which one is simulated, for three links
      --svg FILE                   draw it
  ./ladder predict STEP            before a lesson explains them, predict three numbers; runs compute and score them
  ./ladder exercise                your own ladder: which exercises you have passed, what is next, and the hours left
  ./ladder exercise STEP           write the core of a step yourself: copies the stub, builds and judges your code
      --hint N                     a hint instead: 1 is where to begin, 3 is nearly the solution
      --hard                       a file without anything given: what the header declares, with empty bodies
      --watch                      judge again whenever you save a file, until it passes
  ./ladder exercise collectives    the primer: an all-reduce from messages
  ./ladder exercise loss_scaler    for fp16: a loss scale that adapts, and an optimizer step that uses it
  ./ladder bug [STEP]              a game: a mistake is planted into a trainer, out of sight; find the file and line
  ./ladder docs                    the course as a site, to be opened as a file or put on any web server: build/site
  ./ladder diff A B                show what step B's training loop changes compared with step A's:  ./ladder diff 4 5
  ./ladder bench [NAME] [options]  run one benchmark, or all: memory (against theory); optimizer, step,
                                   throughput, collectives, overlap, bubble, rounds; speed, ddp, zero, pipeline and tensor (against PyTorch in
                                   Python); diloco (against data parallelism, on a slow link); ideas (each
                                   step with its idea and without, over a link);
                                   batch (how many rows of a step pay, and with which learning rate);
                                   plan (what ./ladder plan predicts against what runs take);
                                   goodput (with workers that are killed); precision (16 bits against fp32);
                                   gpu (GPT-2 124M against PyTorch on an NVIDIA GPU) and gpu_kernels (against the
                                   GPU's memory bandwidth), only by name
  ./ladder demo failures           step 9's workers: one is killed, the others go on, it comes back (half a minute)
  ./ladder lighthouse [options]    where such workers find one another;  --help shows how they do
      --ask HOST:PORT              what the one there knows of its workers, and why no round begins
  ./ladder test                    test this checkout: units, ranks, each step against step 0 (about 10 minutes)
      all                          run everything (about an hour the first time, on two cores)
  ./ladder setup                   only set up and build
      --cuda                       what runs on NVIDIA GPUs, too; LADDER_CUDA=ON ./ladder … then uses that build
      --packages                   instead, install only the system packages that building and testing need
  ./ladder doctor                  show what is installed, what is missing, and how to get it
  ./ladder completion bash         what completes commands, steps and options after the Tab key: source <(./ladder completion bash)
  ./ladder help COMMAND            the same as ./ladder COMMAND --help;  ./ladder --version names this checkout

Every command first installs and builds what it needs: system packages (as root; otherwise it lists them), libtorch in
.ladder/venv (LADDER_TORCH=FOLDER uses another one), the programs in build/release. Logs: .ladder/logs.
With LADDER_CUDA=ON these are a CUDA build of libtorch in .ladder/venv-cuda, and build/cuda; nvcc must be installed.
STEP may be shortened: step0. Ctrl-C saves and stops; a second Ctrl-C kills. ./ladder COMMAND --help says more.
"""
TRAIN_HELP = """\
./ladder train STEP [--ranks N] [options]

Runs one trainer on N processes (default 1), under mpirun: ./ladder train step4 --ranks 2 --steps 100 --data my.txt
With --transport threads, all ranks are threads of one process. Ctrl-C saves and stops, with exit code 75; --resume auto
and the same --out continue. ./ladder train STEP --help shows all options of the trainer. With --mine, your own answers
take the place of the solutions of all exercises that have passed, also those of earlier steps.
The steps: """

EXPORT_HELP = """\
./ladder export RUN FOLDER [--dtype fp32|bf16|fp16]

Writes the model of a run, or of one of its checkpoints, as a new Hugging Face folder: weights, config.json and tokenizer."""


LIGHTHOUSE_HELP = """\
./ladder lighthouse [options]

Serves until Ctrl-C. Workers that may die find one another here: ./ladder train elastic --elastic HOST:PORT
    --ask HOST:PORT       instead, show what the lighthouse there knows of its workers, and why no round begins
    --make-key FILE       instead, write the keys that lighthouse and workers need on a network, for --elastic-key"""


def show_help(words: list[str]) -> int:
    if words and words[0] not in ("help", "--help", "-h"):
        return main([words[0], "--help"])
    print(f"{HELP}Steps here: {' '.join(step_names())}")
    return 0


def show_version(_: list[str]) -> int:
    version = re.search(
        r"^project\(ladder VERSION (\S+)", (ROOT / "CMakeLists.txt").read_text(), re.MULTILINE
    )[1]
    commit = machine.commit()
    print(f"Ladder {version}{f', commit {commit}' if commit else ''}")
    return 0


def show_completions(words: list[str]) -> int:
    print(*completion.complete(words, list(COMMANDS)), sep="\n")
    return 0


def setup(words: list[str]) -> int:
    parser = Parser("setup", "Sets up and builds: system packages, libtorch, all programs.")
    choice = parser.add_mutually_exclusive_group()
    choice.add_argument(
        "--cuda", action="store_true", help="what runs on NVIDIA GPUs, too, in folders of its own"
    )
    choice.add_argument(
        "--packages",
        action="store_true",
        help="only the system packages that building and testing need",
    )
    arguments = parser.parse_args(words)
    kind = use_cuda() if arguments.cuda else chosen_kind()
    if arguments.packages:
        packages = [*BUILD_PACKAGES, *TEST_PACKAGES]
        if not shutil.which("dpkg-query"):
            fail(f"there is no dpkg here. Debian's names: {' '.join(packages)}")
        need_packages(packages)
        return 0
    need_release(kind, "all")
    if kind.is_cuda:
        say(
            "ready in build/cuda: LADDER_CUDA=ON ./ladder … uses it, LADDER_CUDA=ON ./ladder doctor shows what it found"
        )
    else:
        say("ready: ./ladder run climbs the steps, ./ladder help shows all commands")
    return 0


def show_help_of(program: Path, otherwise: str) -> int:
    """What the program says, if it is built; help builds nothing."""
    if program.exists():
        become([program, "--help"])
    print(f"{otherwise}\n\nOnce {program.name} is built, it also shows types and defaults here.")
    return 0


def train(words: list[str]) -> int:
    if words[:1] in (["--help"], ["-h"]):
        print(TRAIN_HELP + " ".join(step_names()))
        return 0
    (step, words), kind = take_step("train", words), chosen_kind()
    if {"--help", "-h"} & set(words):
        return show_help_of(trainer_in(kind.build, step), help_of(step))
    check_are_of(step, words)
    if "--mine" in words:
        words, kind = (
            [word for word in words if word != "--mine"],
            exercise.with_own_answers(kind, step),
        )
    ranks, options = split_ranks("train", words)
    need_release(kind, step)
    program = trainer_in(kind.build, step)
    if option_of(options, "transport") in ("threads", "simulated"):
        become([program, *words])  # its ranks are in this process
    if ranks == 1:
        become([program, *options])  # it heeds signals itself
    return launch(ranks, [program, *options]).code


def export(words: list[str]) -> int:
    kind = chosen_kind()
    if not words:
        usage_error(
            "usage: ./ladder export RUN FOLDER [--dtype bf16] (./ladder export --help says more)"
        )
    if {"--help", "-h"} & set(words):
        return show_help_of(kind.build / "common/train/ladder_export", EXPORT_HELP)
    need_release(kind, "ladder_export")
    become([kind.build / "common/train/ladder_export", *words])


def encode(words: list[str]) -> int:
    program = ROOT / "scripts/encode/encode.py"
    if not words or {"--help", "-h"} & set(words):
        become(script(program, *words))
    with setup_lock():
        venv = need_environment("encode")
    become(script(program, *words, python=str(venv / "bin/python")))


def script_of_ours(name: str):
    return lambda words: become(script(ROOT / "scripts" / name, *words))


def diff(words: list[str]) -> int:
    parser = Parser(
        "diff",
        "Shows what step B's training loop changes compared with step A's: ./ladder diff 4 5",
    )
    parser.add_argument(
        "a", metavar="A", help=f"one of {' '.join(step_names())}; step4 or 4 will do"
    )
    parser.add_argument("b", metavar="B")
    arguments = parser.parse_args(words)
    become(script(ROOT / "scripts/delta", resolve_step(arguments.a), resolve_step(arguments.b)))


def demo(words: list[str]) -> int:
    if words[:1] in (["--help"], ["-h"]):
        print(
            "./ladder demo failures [options]\n\nStep 9's workers: one is killed, the others go on, it comes back.\n"
            "./ladder demo failures --help shows the options."
        )
        return 0
    if words[:1] != ["failures"]:
        usage_error("there is one demo: ./ladder demo failures")
    kind = chosen_kind()
    if not {"--help", "-h"} & set(words):
        need_release(kind, "elastic", "elastic_lighthouse")
    return launch_script(
        script(ROOT / "scripts/demo_failures.py", *words[1:], python=python(kind))
    ).code


def lighthouse(words: list[str]) -> int:
    kind = chosen_kind()
    program = trainer_in(kind.build, "elastic").with_name("elastic_lighthouse")
    if {"--help", "-h"} & set(words):
        return show_help_of(program, LIGHTHOUSE_HELP)
    need_release(kind, program.name)
    become([program, *words])


COMMANDS = {
    "setup": setup, "start": first_hour.run, "run": climb.run, "test": test.run, "train": train, "plan": plan.run, "scale": scale.run, "debug": debug.run,
    "encode": encode, "export": export, "compare": script_of_ours("compare_runs.py"), "trace": script_of_ours("show_trace.py"), "report": report.run,
    "ask": ask.run, "bench": bench.run, "demo": demo, "lighthouse": lighthouse, "exercise": exercise.run, "predict": predict.run,
    "bug": bug.run, "diff": diff, "docs": docs.run, "doctor": doctor.run, "completion": completion.run, "help": show_help,
}  # fmt: skip
ALSO = {
    "--help": show_help,
    "-h": show_help,
    "--version": show_version,
    "--complete": show_completions,
    **clusters.COMMANDS,
}


def main(words: list[str]) -> int:
    name = words[0] if words else "help"
    command = COMMANDS.get(name) or ALSO.get(name)
    try:
        if not command:
            usage_error(
                f"there is no command '{name}'{nearest(name, COMMANDS)} ./ladder help shows all"
            )
        return command(words[1:])
    except Failure as failure:
        say(str(failure))
        return failure.status
    except BrokenPipeError:  # nobody reads what we say
        return 1
    except OSError as error:  # a program that is to be started, such as mpirun, or a file
        say(
            f"{error.strerror}: {error.filename}{f', which belongs to {owner_of(ROOT)}' if isinstance(error, PermissionError) else ''}"
        )
        return 1
