"""python3 scripts/launcher/__main__.py COMMAND …, as ./ladder starts it: as a folder it would begin
later."""

import _signal as signal  # which imports nothing

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # Ctrl-C ends it without a stack trace, until signals are held

import atexit  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

if sys.version_info < (3, 10):
    sys.exit(
        "ladder: %s is Python %s, Ladder needs 3.10 or later"
        % (sys.executable, sys.version.split()[0])
    )
for closed in (fd for fd in (0, 1, 2) if not os.path.exists("/dev/fd/%d" % fd)):
    os.open(os.devnull, os.O_RDWR)  # or the next file would get its number, and what is said
sys.path[0] = str(Path(__file__).resolve().parent.parent)
from launcher.processes import hold_signals  # noqa: E402

hold_signals()  # before anything else is done, which takes a while
from launcher.commands import main  # noqa: E402
from launcher.console import end_console  # noqa: E402

atexit.register(end_console)
sys.exit(main(sys.argv[1:]))
