#!/usr/bin/env python3
"""Stops and fails benchmarks that have children: which end with them, and what was measured is
said.

benchmarks/processes.py --self-test
"""

import sys
import tempfile
from pathlib import Path

from results import HEEDED
from stand_ins import Checkout, expect

# Runs children, each of which notes that it has begun and then does what one of argv[2:] says.
PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
from results import Progress
from launcher.launch import run_all
with Progress(2) as progress:
    progress.add("first")
    run_all([["sh", "-c", f"echo begun >>begun; {ending}"] for ending in sys.argv[2:]])
    progress.add("second")
print("table")
progress.finish()
print("written")
"""


def self_test():
    cases = [
        ((number, "exec sleep 100", "exec sleep 100"), 128 + number, ["table"])
        for number in sorted(HEEDED)
    ]
    cases.append(((None, "exec sleep 100", "exit 3"), 1, []))
    cases.append(((None, "exit 0", "sleep 0.2"), 0, ["table", "written"]))
    for (number, *endings), code, wanted in cases:
        with tempfile.TemporaryDirectory() as folder:
            checkout = Checkout(folder)
            program = checkout.start(
                sys.executable, "-c", PROGRAM, str(Path(__file__).resolve().parent), *endings
            )
            # One that ends at once may end the program before the others have begun.
            checkout.wait_for(
                lambda: program.poll() is not None or len(checkout.lines("begun")) == len(endings)
            )
            if number is not None:
                program.send_signal(number)
            output, _ = program.communicate(timeout=60)
            printed = [line for line in output.splitlines() if line in ("table", "written")]
            expect(
                (program.returncode, printed) == (code, wanted),
                number,
                endings,
                "ended with",
                program.returncode,
                output,
            )
            expect(
                not checkout.processes(), number, endings, "a child is left:", checkout.processes()
            )
    print(f"self-test: {len(cases)} programs ended as they should")


if __name__ == "__main__" and sys.argv[1:] == ["--self-test"]:
    self_test()
