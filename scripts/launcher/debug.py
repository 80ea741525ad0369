"""./ladder debug: a trainer in a debugger."""

import os
import shlex
import shutil
from pathlib import Path

from launcher.build import need_built, prepare, setup_lock
from launcher.checkout import ROOT, chosen_kind
from launcher.console import fail, say
from launcher.launch import split_ranks
from launcher.processes import become
from launcher.steps import take_step, trainer_in
from launcher.trainer_options import check_are_of

HELP = """\
./ladder debug STEP [--ranks N] [options]

Starts a trainer in gdb, or in lldb where there is no gdb. All N ranks (default 1) are threads of one process, so one
debugger sees them all. They compute the same bits as processes do. The step is built for it without optimization, in
build/debug. All options of ./ladder train STEP --help may follow. A tiny model answers sooner:

  ./ladder debug step4 --ranks 3 --steps 2 --layers 1 --channels 32 --heads 2 --context 16

Nothing runs until you say so. In gdb, type

  break ladder::step4::train       stop each rank where it begins to train; for another step, its number
  break gradient_bucketer.cpp:86   or wherever it reaches this line
  catch throw                      or where it throws an error
  run                              start. The first rank that gets there stops all of them
  info threads                     the ranks are the threads named "rank 0", "rank 1", …
  thread apply all bt              where is everyone? In a deadlock this shows who waits for whom
  thread 3                         turn to this thread; then bt, up, info locals, print tensor
  set scheduler-locking step       from now on, next and step move only this rank
  continue                         let all of them go on. Ctrl-C stops them again

LADDER_DEBUGGER=COMMAND starts another debugger, or gdb with other options, for example to find a crash:

  LADDER_DEBUGGER='gdb -batch -ex run -ex "thread apply all bt"' ./ladder debug step4 --ranks 3
"""


def run(words: list[str]) -> int:
    if {"--help", "-h"} & set(words):
        print(HELP, end="")
        return 0
    (step, words), kind = take_step("debug", words), chosen_kind()
    check_are_of(step, words)
    ranks, options = split_ranks("debug", words)
    debugger = find_debugger()  # before the build, which takes minutes
    build = f"debug{kind.suffix}"
    with setup_lock():
        prepare(kind, build, "--preset", "debug")
        need_built(build, step)
    say(
        f"{debugger[0]}, {ranks} rank(s) as threads. Type: break ladder::{step.split('_')[0]}::train, run, "
        "thread apply all bt (./ladder debug --help says more)"
    )
    become(
        [
            *debugger,
            trainer_in(ROOT / "build" / build, step),
            "--transport",
            "threads",
            "--ranks",
            ranks,
            *options,
        ]
    )


def find_debugger() -> list[str]:
    """The command that takes a program and its options."""
    if wish := os.environ.get("LADDER_DEBUGGER"):
        command = shlex.split(wish)
        if not shutil.which(command[0]):
            fail(f"LADDER_DEBUGGER is '{wish}', but there is no program {command[0]} here")
    elif shutil.which("gdb"):
        command = [
            "gdb",
            "-q",
            "-ex",
            "set breakpoint pending on",
        ]  # of libraries that are not loaded yet
    elif shutil.which("lldb"):
        command = ["lldb"]
    else:
        fail(
            "no debugger is installed. On Debian and Ubuntu: sudo apt-get install gdb (or lldb). LADDER_DEBUGGER=COMMAND names another one"
        )
    name = Path(command[0]).name
    return [
        *command,
        *(["--args"] if name.startswith("gdb") else ["--"] if name.startswith("lldb") else []),
    ]
