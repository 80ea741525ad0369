"""python3 scripts/launcher COMMAND …, as ./ladder starts it."""

import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
from launcher.processes import hold_signals  # noqa: E402

hold_signals()  # before anything else is done, which takes a while
from launcher.commands import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
